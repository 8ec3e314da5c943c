//! What healthy clusters have lived through, and that none of it looks like
//! damage: not alone, not compared with a seal of an earlier day.
//!
//! Every history is lived in a real server, part before a seal is made and part
//! after it, with a crash in between. Each leaves traces that one of the
//! witnesses could take for damage.

use std::path::Path;

use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};
use serde_json::Value;

use crate::clusters::installations;
use crate::runner::{Outcome, check};

/// One table's life. Each statement is a transaction of its own, unless the text
/// says otherwise.
struct History {
    /// The first version that can do this, 9 for 9.6.
    since: u32,
    before_seal: &'static str,
    /// Runs after the seal, and is followed by a crash.
    before_crash: &'static str,
    after_crash: &'static str,
}

const HISTORIES: &[History] = &[
    // Every kind of index, with entries that were added, moved and cleared.
    History {
        since: 9,
        before_seal: "
            CREATE TABLE every (id int, word text, tags int[], place point);
            INSERT INTO every SELECT i, md5((i % 50)::text), ARRAY[i % 50, i % 7, i],
                point(i % 211, i % 307) FROM generate_series(1, 12000) i;
            CREATE INDEX every_btree ON every (word);
            CREATE UNIQUE INDEX every_id ON every (id);
            CREATE INDEX every_expression ON every (lower(word), (id % 10));
            CREATE INDEX every_partial ON every (id) WHERE id % 3 = 0;
            CREATE INDEX every_hash ON every USING hash (id);
            CREATE INDEX every_gin ON every USING gin (tags) WITH (fastupdate = on);
            CREATE INDEX every_gist ON every USING gist (place);
            CREATE INDEX every_spgist ON every USING spgist (place);
            CREATE INDEX every_brin ON every USING brin (id);
            INSERT INTO every SELECT i, md5((i % 50)::text), ARRAY[i % 50, i % 7, i],
                point(i % 211, i % 307) FROM generate_series(12001, 16000) i;
            DELETE FROM every WHERE id % 5 = 0;",
        before_crash: "
            VACUUM every;
            INSERT INTO every SELECT i, md5((i % 50)::text), ARRAY[i % 50, i % 7, i],
                point(i % 211, i % 307) FROM generate_series(20001, 23000) i;
            UPDATE every SET word = 'a' || word WHERE id % 9 = 0;
            DELETE FROM every WHERE id > 9000;
            VACUUM every;",
        after_crash: "
            SELECT count(*) FROM every WHERE word > 'b';
            INSERT INTO every SELECT i, 'late', ARRAY[i % 50], point(1, i)
                FROM generate_series(30001, 33000) i;
            DELETE FROM every WHERE id % 2 = 0;",
    },
    // INCLUDE columns and lists of duplicates.
    History {
        since: 11,
        before_seal: "
            CREATE TABLE same (id int, word text);
            CREATE INDEX same_include ON same (word) INCLUDE (id);
            CREATE INDEX same_word ON same (word);
            INSERT INTO same SELECT i, 'word ' || i % 3 FROM generate_series(1, 20000) i;
            DELETE FROM same WHERE id % 4 <> 0;
            VACUUM same;",
        before_crash: "
            INSERT INTO same SELECT i, 'word ' || i % 3 FROM generate_series(1, 20000) i;
            DELETE FROM same WHERE word = 'word 1'; VACUUM same;",
        after_crash: "INSERT INTO same SELECT i, 'word 1' FROM generate_series(1, 500) i;",
    },
    // The end is given back, and grows anew.
    History {
        since: 9,
        before_seal: "
            CREATE TABLE tail AS SELECT i AS id, md5(i::text) AS word FROM generate_series(1, 30000) i;
            CREATE INDEX tail_id ON tail (id);
            CREATE INDEX tail_hash ON tail USING hash (id);
            VACUUM tail;",
        before_crash: "
            DELETE FROM tail WHERE id > 5000; VACUUM tail; CHECKPOINT;
            INSERT INTO tail SELECT i, md5(i::text) FROM generate_series(50001, 60000) i;",
        after_crash: "
            DELETE FROM tail WHERE id > 3000; VACUUM tail;
            COPY tail FROM PROGRAM 'seq -f ''%g\tcopied'' 90001 110000';",
    },
    // Given back and filled again between a seal and the next look.
    History {
        since: 9,
        before_seal: "
            CREATE TABLE refill AS SELECT i AS id, md5(i::text) AS word FROM generate_series(1, 30000) i;
            VACUUM refill;",
        before_crash: "
            DELETE FROM refill WHERE id > 500; VACUUM refill;
            COPY refill FROM PROGRAM 'seq -f ''%g\tcopied'' 1 9000'; VACUUM refill;",
        after_crash: "",
    },
    // An index whose build failed keeps entries that no process clears.
    History {
        since: 9,
        before_seal: "
            CREATE TABLE twice (id int, word text);
            INSERT INTO twice SELECT i, md5(i::text) FROM generate_series(1, 9000) i;
            INSERT INTO twice VALUES (9000, 'again');
            \\set ON_ERROR_STOP off
            CREATE UNIQUE INDEX CONCURRENTLY twice_id ON twice (id);
            \\set ON_ERROR_STOP on
            DELETE FROM twice WHERE id > 100; VACUUM twice;",
        before_crash: "INSERT INTO twice SELECT i, 'new' FROM generate_series(1, 30) i;",
        after_crash: "DELETE FROM twice; VACUUM twice;",
    },
    // Aborted: rows and their entries are dead, or without an owner.
    History {
        since: 9,
        before_seal: "
            CREATE TABLE aborted (id int PRIMARY KEY, tags int[]);
            CREATE INDEX aborted_gin ON aborted USING gin (tags);
            BEGIN; INSERT INTO aborted SELECT i, ARRAY[i, 1] FROM generate_series(1, 20000) i; ROLLBACK;",
        before_crash: "
            BEGIN; INSERT INTO aborted SELECT i, ARRAY[i, 2] FROM generate_series(1, 20000) i; ROLLBACK;
            VACUUM aborted;
            BEGIN; INSERT INTO aborted SELECT i, ARRAY[i, 3] FROM generate_series(1, 9000) i; ROLLBACK;
            BEGIN; CREATE TABLE never AS SELECT generate_series(1, 9000); ROLLBACK;",
        after_crash: "
            BEGIN; INSERT INTO aborted SELECT i, ARRAY[i, 3] FROM generate_series(1, 9000) i; ROLLBACK;
            SELECT count(*) FROM aborted;",
    },
    // Other files for the same relations.
    History {
        since: 9,
        before_seal: "
            CREATE TABLE moved (id int PRIMARY KEY, word text);
            INSERT INTO moved SELECT i, md5(i::text) FROM generate_series(1, 9000) i;
            CREATE INDEX moved_word ON moved (word);
            CREATE TABLE space (id int PRIMARY KEY) TABLESPACE elsewhere;
            INSERT INTO space SELECT generate_series(1, 5000);",
        before_crash: "
            ALTER TABLE moved ALTER id TYPE bigint;
            CLUSTER moved USING moved_word;
            VACUUM FULL moved;
            ALTER TABLE moved SET TABLESPACE elsewhere;
            ALTER TABLE space SET TABLESPACE pg_default;
            VACUUM FULL pg_class; VACUUM FULL pg_database; REINDEX TABLE pg_class;
            REINDEX TABLE pg_index;",
        after_crash: "
            ALTER INDEX moved_word SET TABLESPACE elsewhere;
            ALTER TABLE moved SET TABLESPACE pg_default;
            VACUUM FULL pg_class; VACUUM FULL pg_attribute;",
    },
    // Made, emptied and filled in one transaction.
    History {
        since: 9,
        before_seal: "
            BEGIN; CREATE TABLE once (id int PRIMARY KEY, word text);
            INSERT INTO once SELECT i, md5(i::text) FROM generate_series(1, 5000) i;
            TRUNCATE once; COPY once FROM PROGRAM 'seq -f ''%g\tcopied'' 1 4000'; COMMIT;",
        before_crash: "
            BEGIN; CREATE TABLE once_more (id int PRIMARY KEY, word text);
            COPY once_more FROM PROGRAM 'seq -f ''%g\tcopied'' 1 9000';
            SAVEPOINT a; TRUNCATE once_more; ROLLBACK TO a; COMMIT;
            BEGIN; TRUNCATE once; COPY once FROM PROGRAM 'seq -f ''%g\tcopied'' 1 900'; COMMIT;",
        after_crash: "TRUNCATE once_more; VACUUM FREEZE once;",
    },
    // What a crash empties, and what belongs to a session.
    History {
        since: 9,
        before_seal: "
            CREATE UNLOGGED TABLE fleeting (id int PRIMARY KEY, place point, tags int[]);
            CREATE INDEX fleeting_gist ON fleeting USING gist (place);
            CREATE INDEX fleeting_gin ON fleeting USING gin (tags);
            INSERT INTO fleeting SELECT i, point(i, i % 9), ARRAY[i] FROM generate_series(1, 9000) i;
            CREATE TEMP TABLE session AS SELECT generate_series(1, 9000);",
        before_crash: "
            DELETE FROM fleeting WHERE id > 100; VACUUM fleeting; CHECKPOINT;
            INSERT INTO fleeting SELECT i, point(i, i % 9), ARRAY[i] FROM generate_series(10001, 12000) i;",
        after_crash: "
            INSERT INTO fleeting SELECT i, point(i, i % 9), ARRAY[i] FROM generate_series(1, 5000) i;",
    },
    History {
        since: 9,
        before_seal: "
            CREATE UNLOGGED TABLE turned (id int PRIMARY KEY);
            INSERT INTO turned SELECT generate_series(1, 3000);
            CREATE TABLE turned_back (id int PRIMARY KEY);
            INSERT INTO turned_back SELECT generate_series(1, 3000);",
        before_crash: "ALTER TABLE turned SET LOGGED; ALTER TABLE turned_back SET UNLOGGED;",
        after_crash: "ALTER TABLE turned SET UNLOGGED; INSERT INTO turned SELECT generate_series(5001, 5009);",
    },
    // Dropped just before a crash.
    History {
        since: 9,
        before_seal: "
            CREATE TABLE dropped AS SELECT generate_series(1, 9000) AS id;
            CREATE INDEX dropped_id ON dropped (id);
            CREATE DATABASE dropped;
            CREATE DATABASE moving;",
        before_crash: "
            CHECKPOINT;
            DROP TABLE dropped;
            CREATE TABLE dropped AS SELECT generate_series(1, 900) AS id;
            DROP DATABASE dropped; CREATE DATABASE dropped; CREATE DATABASE another;
            ALTER DATABASE moving SET TABLESPACE elsewhere;",
        after_crash: "
            DROP DATABASE another; DROP TABLE dropped;
            ALTER DATABASE moving SET TABLESPACE pg_default;",
    },
    History {
        since: 15,
        before_seal: "
            CREATE DATABASE copied STRATEGY file_copy;
            CREATE DATABASE logged STRATEGY wal_log;",
        before_crash: "
            DROP DATABASE copied;
            CREATE DATABASE copied TEMPLATE logged STRATEGY file_copy;
            CREATE DATABASE logged_more TEMPLATE copied STRATEGY wal_log;",
        after_crash: "DROP DATABASE logged; CREATE DATABASE logged TEMPLATE copied;",
    },
    // Sequences, materialised views, values out of line, large objects.
    History {
        since: 9,
        before_seal: "
            CREATE SEQUENCE serial; SELECT nextval('serial');
            CREATE TABLE wide (id int PRIMARY KEY, document text);
            ALTER TABLE wide ALTER document SET STORAGE EXTERNAL;
            INSERT INTO wide SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 200) i;
            CREATE MATERIALIZED VIEW summary AS SELECT id % 10 AS class, count(*) AS n FROM wide GROUP BY 1;
            CREATE UNIQUE INDEX summary_class ON summary (class);
            SELECT lo_from_bytea(4711, 'abc');",
        before_crash: "
            SELECT count(nextval('serial')) FROM generate_series(1, 70);
            UPDATE wide SET document = document || 'x' WHERE id % 3 = 0;
            DELETE FROM wide WHERE id > 100; VACUUM wide;
            REFRESH MATERIALIZED VIEW summary; REFRESH MATERIALIZED VIEW CONCURRENTLY summary;",
        after_crash: "
            SELECT nextval('serial'); SELECT setval('serial', 5); ALTER SEQUENCE serial RESTART;
            SELECT lo_unlink(4711); VACUUM pg_largeobject;",
    },
    History {
        since: 11,
        before_seal: "
            CREATE TABLE part (id int, word text) PARTITION BY RANGE (id);
            CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (1000);
            CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (1000) TO (9000);
            CREATE INDEX part_word ON part (word);
            CREATE INDEX part_only ON ONLY part (id);
            INSERT INTO part SELECT i, md5(i::text) FROM generate_series(1, 8000) i;",
        before_crash: "
            UPDATE part SET id = id + 500 WHERE id < 1000;
            ALTER TABLE part DETACH PARTITION part_1;
            VACUUM part_2;",
        after_crash: "DROP TABLE part_1; DELETE FROM part; VACUUM part_2;",
    },
    // Updated in place, by transactions that end in every way, and locked by several.
    History {
        since: 9,
        before_seal: "
            CREATE TABLE hot (id int PRIMARY KEY, count int, word text) WITH (fillfactor = 70);
            INSERT INTO hot SELECT i, 0, md5(i::text) FROM generate_series(1, 9000) i;
            UPDATE hot SET count = count + 1; UPDATE hot SET count = count + 1 WHERE id % 3 = 0;
            BEGIN; UPDATE hot SET count = count + 10 WHERE id % 5 = 0; ROLLBACK;
            BEGIN; UPDATE hot SET count = count + 10 WHERE id % 7 = 0; SAVEPOINT a;
            UPDATE hot SET count = count + 1 WHERE id % 2 = 0; ROLLBACK TO a;
            UPDATE hot SET count = count + 2 WHERE id % 11 = 0; COMMIT;
            VACUUM hot; UPDATE hot SET count = count + 1 WHERE id % 4 = 0;",
        before_crash: "
            BEGIN; SELECT count(*) FROM (SELECT 1 FROM hot WHERE id < 5000 FOR SHARE) a; SAVEPOINT b;
            UPDATE hot SET count = count + 1 WHERE id < 2500; COMMIT;
            BEGIN; SELECT count(*) FROM (SELECT 1 FROM hot WHERE id < 5000 FOR KEY SHARE) a; SAVEPOINT b;
            UPDATE hot SET count = count + 1 WHERE id < 2500; ROLLBACK TO b; SAVEPOINT c;
            SELECT count(*) FROM (SELECT 1 FROM hot WHERE id < 3000 FOR UPDATE) a; COMMIT;
            INSERT INTO hot SELECT i, 0, 'x' FROM generate_series(1, 12000) i
                ON CONFLICT (id) DO UPDATE SET count = hot.count + 1;
            BEGIN; UPDATE hot SET count = 7 WHERE id % 3 = 0; DELETE FROM hot WHERE id % 6 = 0; COMMIT;",
        after_crash: "
            UPDATE hot SET count = count + 1 WHERE id % 5 = 0; VACUUM FREEZE hot;
            UPDATE hot SET count = count + 1 WHERE id % 9 = 0; CLUSTER hot USING hot_pkey;
            UPDATE hot SET count = count + 1 WHERE id % 8 = 0;",
    },
    // Columns that come and go; an insertion of more columns than there are in the end.
    History {
        since: 11,
        before_seal: "
            CREATE TABLE altered (id int); INSERT INTO altered SELECT generate_series(1, 3000);
            BEGIN; ALTER TABLE altered ADD more int;
            INSERT INTO altered SELECT i, i FROM generate_series(1, 3000) i; ROLLBACK;
            ALTER TABLE altered ADD late int DEFAULT 7; INSERT INTO altered VALUES (1, 2), (NULL, 3), (4, NULL);
            CREATE INDEX altered_late ON altered (late);",
        before_crash: "
            UPDATE altered SET id = id + 1 WHERE id % 2 = 0; ALTER TABLE altered DROP id;
            BEGIN; ALTER TABLE altered ADD more text DEFAULT 'm'; SAVEPOINT a;
            INSERT INTO altered VALUES (5, 'n'); ROLLBACK TO a; ROLLBACK;",
        after_crash: "UPDATE altered SET late = late + 1; VACUUM FULL altered;",
    },
    // Locked by several, frozen, and switched from one index to another.
    History {
        since: 12,
        before_seal: "
            CREATE TABLE frozen AS SELECT i AS id, md5(i::text) AS word FROM generate_series(1, 9000) i;
            CREATE INDEX frozen_id ON frozen (id); VACUUM FREEZE frozen;",
        before_crash: "
            REINDEX INDEX CONCURRENTLY frozen_id;
            BEGIN; SELECT count(*) FROM (SELECT 1 FROM frozen WHERE id < 3000 FOR UPDATE) a;
            SAVEPOINT a; UPDATE frozen SET word = 'x' WHERE id < 100; ROLLBACK TO a; COMMIT;
            VACUUM (FREEZE, INDEX_CLEANUP off) frozen;",
        after_crash: "VACUUM FREEZE; DELETE FROM frozen WHERE id > 10; VACUUM (TRUNCATE on) frozen;",
    },
];

/// In a cluster of their own: who has a transaction open keeps others from the
/// catalogues.
const PREPARED: &[History] = &[
    // Prepared, and left open over every stop.
    History {
        since: 9,
        before_seal: "
            CREATE TABLE prepared (id int PRIMARY KEY, word text);
            INSERT INTO prepared SELECT i, md5(i::text) FROM generate_series(1, 3000) i;
            CREATE TABLE prepared_gone AS SELECT generate_series(1, 900) AS id;
            CREATE TABLE prepared_empty AS SELECT generate_series(1, 900) AS id;
            BEGIN; INSERT INTO prepared SELECT i, 'p' FROM generate_series(4001, 9000) i;
            CREATE TABLE prepared_new AS SELECT generate_series(1, 900) AS id;
            DROP TABLE prepared_gone; TRUNCATE prepared_empty;
            PREPARE TRANSACTION 'open';",
        before_crash: "
            BEGIN; SAVEPOINT a; CREATE TABLE prepared_too (id int PRIMARY KEY);
            INSERT INTO prepared_too SELECT generate_series(1, 900);
            RELEASE a; PREPARE TRANSACTION 'open too';",
        after_crash: "
            COMMIT PREPARED 'open';
            BEGIN; ALTER TABLE prepared_empty ALTER id TYPE bigint; PREPARE TRANSACTION 'third';",
    },
];

/// The statements of all histories that this version can live through.
fn all(
    installation: &Installation,
    histories: &[History],
    part: impl Fn(&History) -> &'static str,
) -> String {
    let lived = histories.iter().filter(|history| history.since <= installation.major);
    lived.map(part).collect::<Vec<_>>().join("\n")
}

fn options(installation: &Installation, settings: &[(&str, &str)]) -> Options {
    let mut options = Options::default()
        .with("autovacuum", "off")
        .with("max_prepared_transactions", "5")
        // A history that waits for another one is a mistake of the test.
        .with("lock_timeout", "'5s'")
        .with("max_wal_senders", "4")
        .with("wal_level", "replica");
    if installation.major >= 17 {
        options = options.with("summarize_wal", "on");
    }
    for (name, value) in settings {
        options = options.with(name, value);
    }
    options
}

/// What is wrong with a cluster, in words; empty if nothing is.
fn complaints(outcome: &Outcome) -> Vec<String> {
    let report = outcome.report();
    let mut said: Vec<_> = report
        .raw_findings()
        .iter()
        .filter(|finding| finding["severity"] != "notice")
        .take(20)
        .map(Value::to_string)
        .collect();
    if said.is_empty() && (outcome.status != Some(0) || report.verdict() == "suspect") {
        said.push(format!("{} {:?} {:?}", report.verdict(), outcome.status, report.unread()));
    }
    said
}

fn assert_sound(root: &Path, seal: Option<&Path>, when: &str) {
    let outcome = match seal {
        None => check([root]),
        Some(seal) => check(["--against".as_ref(), seal.as_os_str(), root.as_os_str()]),
    };
    let mut complaints = complaints(&outcome);
    // At rest the structure is compared; elsewhere a note says that it is not.
    if seal.is_none() {
        complaints.extend(self::complaints(&check(["--structure".as_ref(), root.as_os_str()])));
    }
    assert!(complaints.is_empty(), "{when}, seal {}: {complaints:#?}", seal.is_some());
}

fn make_seal(cluster: &Cluster, name: &str) -> std::path::PathBuf {
    let seal = cluster.home().join(name);
    let outcome = check(["--seal".as_ref(), seal.as_os_str(), cluster.data_dir().as_os_str()]);
    let complaints = complaints(&outcome);
    assert!(complaints.is_empty() && seal.exists(), "while sealing: {complaints:#?}");
    seal
}

/// Lives through everything; the cluster is cleanly shut down in the end.
fn live(installation: &Installation, options: &Options, histories: &[History]) -> Cluster {
    let version = &installation.version;
    let mut cluster = Cluster::init(installation, options).unwrap();
    cluster.start().unwrap();
    cluster.add_tablespace("elsewhere").unwrap();
    cluster.psql(&all(installation, histories, |history| history.before_seal)).unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    let root = cluster.data_dir().to_owned();
    assert_sound(&root, None, &format!("{version}, before the crash"));
    let seal = make_seal(&cluster, "first");
    assert_sound(&root, Some(&seal), &format!("{version}, just sealed"));

    cluster.start().unwrap();
    cluster.psql(&all(installation, histories, |history| history.before_crash)).unwrap();
    assert_sound(&root, None, &format!("{version}, running"));
    cluster.stop(StopMode::Immediate).unwrap();
    assert_sound(&root, None, &format!("{version}, crashed"));
    cluster.start().unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    assert_sound(&root, None, &format!("{version}, recovered"));
    assert_sound(&root, Some(&seal), &format!("{version}, recovered"));
    let second = make_seal(&cluster, "second");

    cluster.start().unwrap();
    cluster.psql(&all(installation, histories, |history| history.after_crash)).unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    assert_sound(&root, None, &format!("{version}, in the end"));
    assert_sound(&root, Some(&seal), &format!("{version}, in the end"));
    assert_sound(&root, Some(&second), &format!("{version}, in the end, by a later one"));
    cluster
}

#[test]
fn healthy_histories_never_look_like_damage() {
    for installation in installations() {
        for histories in [HISTORIES, PREPARED] {
            live(&installation, &options(&installation, &[]), histories);
        }
    }
}

#[test]
fn healthy_histories_without_a_full_log_never_look_like_damage() {
    for installation in installations() {
        let mut settings = vec![("wal_level", "minimal"), ("max_wal_senders", "0")];
        if installation.major >= 17 {
            settings.push(("summarize_wal", "off"));
        }
        live(&installation, &options(&installation, &settings), HISTORIES);
    }
}

/// An older server's tables keep its numbers of transactions and its indexes, with names of
/// columns and types by a new one.
#[test]
fn upgraded_cluster_is_sound() {
    let installations = ["15", "18"].map(|version| Installation::for_test(version).unwrap());
    let [Some(from), Some(to)] = installations else { return };
    let mut old = Cluster::init(&from, &options(&from, &[])).unwrap();
    old.start().unwrap();
    old.add_tablespace("elsewhere").unwrap();
    let lived = [|history: &History| history.before_seal, |history: &History| history.before_crash];
    for part in lived {
        old.psql(&all(&from, HISTORIES, part)).unwrap();
    }
    old.psql("DROP TABLE space").unwrap();
    old.stop(StopMode::Fast).unwrap();
    assert_sound(old.data_dir(), None, "to be upgraded");
    let mut new = Cluster::init(&to, &options(&to, &[])).unwrap();
    let mut command = new.client("pg_upgrade").unwrap();
    command.arg("-b").arg(from.program("initdb").parent().unwrap());
    command.arg("-B").arg(to.program("initdb").parent().unwrap());
    command.arg("-d").arg(old.data_dir()).arg("-D").arg(new.data_dir());
    let upgraded = command.output().unwrap();
    assert!(upgraded.status.success(), "{upgraded:?}");
    assert_sound(new.data_dir(), None, "upgraded");
    new.start().unwrap();
    new.psql("UPDATE hot SET count = count + 1 WHERE id % 5 = 0; VACUUM FREEZE hot").unwrap();
    new.stop(StopMode::Fast).unwrap();
    assert_sound(new.data_dir(), None, "upgraded, with changes");
}

/// Checksums are switched by rewriting pages under their old LSNs, also those
/// that a summary of the log lists.
#[test]
fn checksums_switched_since_the_seal_are_no_damage() {
    for installation in installations() {
        if !installation.has("pg_checksums") {
            continue;
        }
        let version = &installation.version;
        let mut options = options(&installation, &[("wal_log_hints", "off")]);
        options.checksums = false;
        let mut cluster = Cluster::init(&installation, &options).unwrap();
        cluster.start().unwrap();
        // Marked all visible some time after the rows were written: the record of
        // that leaves the LSN of the pages without checksums.
        cluster
            .psql(
                "CREATE TABLE marked AS SELECT i AS id FROM generate_series(1, 9000) i;
                 CHECKPOINT; SELECT count(*) FROM marked; CHECKPOINT;
                 VACUUM marked; CHECKPOINT;",
            )
            .unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        let seal = cluster.home().join("seal");
        let root = cluster.data_dir().to_owned();
        check(["--seal".as_ref(), seal.as_os_str(), root.as_os_str()]);
        for switch in ["--enable", "--disable", "--enable"] {
            let output = cluster.pg_checksums(&[switch, "-D", root.to_str().unwrap()]).unwrap();
            assert!(output.success(), "{version}");
            let outcome = check(["--against".as_ref(), seal.as_os_str(), root.as_os_str()]);
            let report = outcome.report();
            let damage: Vec<_> =
                report.findings().into_iter().filter(|one| one.severity == "damage").collect();
            assert_eq!((damage, outcome.status), (vec![], Some(0)), "{version}, {switch}");
            let others = report.findings().into_iter().filter(|one| one.kind != "stale").count();
            assert_eq!(others, 0, "{version}, {switch}: {:?}", report.raw_findings());
        }
    }
}

/// A standby makes its pages from the log: they are not the primary's byte by
/// byte.
#[test]
fn promoted_standby_is_sound_by_the_seal_of_its_primary() {
    for installation in installations() {
        if !installation.has("pg_basebackup") || installation.major < 12 {
            continue;
        }
        let version = &installation.version;
        let mut primary =
            Cluster::init(&installation, &options(&installation, &[("wal_keep_size", "'1GB'")]))
                .unwrap();
        primary.start().unwrap();
        let standby = primary.home().join("standby");
        let mut command = primary.client("pg_basebackup").unwrap();
        command.args(["-c", "fast", "-X", "stream", "-R", "-D"]).arg(&standby);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_sound(&standby, None, &format!("{version}, a backup"));
        // Command numbers, subtransactions, padding, rows locked and freed.
        primary
            .psql(
                "CREATE TABLE t (id int PRIMARY KEY, word text, place point, tags int[]);
                 CREATE INDEX t_gist ON t USING gist (place);
                 CREATE INDEX t_gin ON t USING gin (tags);
                 CREATE INDEX t_hash ON t USING hash (id);
                 BEGIN; INSERT INTO t SELECT i, repeat('x', i % 40), point(i, i % 7), ARRAY[i, i % 9]
                     FROM generate_series(1, 9000) i;
                 UPDATE t SET word = word || 'y' WHERE id % 3 = 0;
                 SAVEPOINT a; DELETE FROM t WHERE id % 11 = 0; ROLLBACK TO a;
                 DELETE FROM t WHERE id % 5 = 0;
                 SELECT count(*) FROM (SELECT 1 FROM t WHERE id % 7 = 0 FOR UPDATE) l; COMMIT;
                 VACUUM t; SELECT count(*) FROM t;
                 UPDATE t SET word = word || 'z' WHERE id % 4 = 0;
                 DELETE FROM t WHERE id BETWEEN 2000 AND 6000; VACUUM t;
                 INSERT INTO t SELECT i, repeat('x', i % 40), point(i, i % 7), ARRAY[i, i % 9]
                     FROM generate_series(10000, 12000) i;",
            )
            .unwrap();
        primary.stop(StopMode::Fast).unwrap();
        let seal = make_seal(&primary, "seal");
        primary.start().unwrap();
        // The standby takes the place of the primary's own files.
        let mut second = primary.tool("postgres");
        let sockets = primary.add_dir("sockets").unwrap();
        second.arg("-D").arg(&standby).arg("-k").arg(&sockets).args(["-p", "5433"]);
        let mut server = second.spawn().unwrap();
        let stop = |server: &mut std::process::Child| {
            let pid = rustix::process::Pid::from_raw(server.id().try_into().unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            server.wait().unwrap();
        };
        let ask = |sql: &str| {
            let mut command = primary.client("psql").unwrap();
            command.args(["-XAtq", "-p", "5433", "-h"]).arg(&sockets);
            let output = command.args(["-d", "postgres", "-c", sql]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let position = primary.psql("SELECT pg_current_wal_flush_lsn()").unwrap();
        let wait_for = |sql: &str| {
            let begin = std::time::Instant::now();
            while ask(sql) != "t" {
                assert!(begin.elapsed().as_secs() < 60, "{version}: {sql}");
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        };
        wait_for(&format!("SELECT pg_last_wal_replay_lsn() >= '{position}'"));
        stop(&mut server);
        assert_sound(&standby, None, &format!("{version}, a standby, shut down"));
        server = second.spawn().unwrap();
        wait_for("SELECT pg_is_in_recovery()");
        ask("SELECT pg_promote()");
        wait_for("SELECT NOT pg_is_in_recovery()");
        stop(&mut server);
        assert_sound(&standby, None, &format!("{version}, promoted"));
        assert_sound(&standby, Some(&seal), &format!("{version}, promoted"));
        primary.stop(StopMode::Fast).unwrap();
    }
}

/// Nothing is said of a table that lies elsewhere, whatever its index knows of it.
#[test]
fn index_of_a_table_in_a_tablespace_that_is_not_at_hand_is_no_evidence() {
    for installation in installations() {
        let mut cluster = Cluster::init(&installation, &options(&installation, &[])).unwrap();
        cluster.start().unwrap();
        let space = cluster.add_tablespace("elsewhere").unwrap();
        cluster
            .psql(
                "CREATE TABLE far (id int) TABLESPACE elsewhere;
                 INSERT INTO far SELECT generate_series(1, 9000);
                 CREATE INDEX far_id ON far (id) TABLESPACE pg_default; VACUUM far",
            )
            .unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        std::fs::rename(&space, space.with_extension("away")).unwrap();
        let report = check([cluster.data_dir()]).report();
        let version = &installation.version;
        assert_eq!(report.findings(), [], "{version}: {:?}", report.raw_findings());
        let unread: Vec<_> = report.unread().into_keys().collect();
        assert!(matches!(*unread, [file] if file.starts_with("pg_tblspc/")), "{unread:?}");
        assert_eq!(report.verdict(), "incomplete", "{version}");
    }
}
