//! Real servers on mounted packs: they start, answer as on plain files, find nothing
//! wrong, and leave little behind.

use super::*;

use pagewarden_scratch::mariadb::Server;
use pagewarden_scratch::postgres::{Cluster, Installation};

/// Empties a data directory and mounts a pack in its place.
fn mount_in_place_of(data_dir: &Path, pack: &Path) -> Mount {
    empty(data_dir);
    Mount::begin(pack, data_dir, &[])
}

fn empty(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }
}

/// A cluster at rest as a read-only one should be, all rows frozen, and its answers.
fn frozen(installation: &Installation) -> (Cluster, String) {
    let mut source = sample(installation, true).copy();
    source.execute("postgres", &["DROP TABLE elsewhere"]).unwrap();
    source.execute("postgres", &["DROP TABLESPACE sample_space"]).unwrap();
    source.start().unwrap();
    for database in ["postgres", "other", "template1"] {
        source.psql_in(database, "VACUUM (FREEZE, ANALYZE)").unwrap();
    }
    let answers = answers(&source);
    source.stop(StopMode::Fast).unwrap();
    (source, answers)
}

/// Sums over every row of every table, by scans and by an index.
fn answers(cluster: &Cluster) -> String {
    cluster
        .psql(
            "SELECT count(*), sum(hashtext(item::text)) FROM item;
             SELECT count(*), sum(hashtext(document)) FROM wide;
             SELECT count(*), sum(hashtext(word)) FROM part;
             SELECT count(*), sum(hashtext(loaded::text)) FROM loaded;
             SELECT count(*), sum(abalance) FROM pgbench_accounts;
             SET enable_seqscan = off;
             SELECT sum(hashtext(word)) FROM item WHERE id BETWEEN 1000 AND 9000;
             SELECT count(*) FROM pg_largeobject;",
        )
        .unwrap()
}

/// What the server's own checker finds wrong.
fn amcheck(cluster: &Cluster) -> String {
    cluster
        .psql(
            "CREATE EXTENSION amcheck;
             SELECT c.relname, v.* FROM pg_class c, LATERAL verify_heapam(c.oid) v
               WHERE c.relkind IN ('r', 't', 'm') AND c.relpersistence = 'p';
             SELECT bt_index_check(c.oid, true) FROM pg_class c JOIN pg_am a ON a.oid = c.relam
               WHERE a.amname = 'btree' AND c.relkind = 'i' AND c.relpersistence = 'p';",
        )
        .unwrap()
}

#[test]
fn postgres_runs_on_a_mounted_pack() {
    if !has_fuse() {
        return;
    }
    for installation in installations() {
        let (source, expected) = frozen(&installation);
        let folder = tempfile::tempdir().unwrap();
        let pack = folder.path().join("x.pwk");
        make_pack(source.data_dir(), &pack);
        let mut target = source.duplicate().unwrap();
        let mount = mount_in_place_of(target.data_dir(), &pack);
        target.start().unwrap();
        assert_eq!(answers(&target), expected, "{}", installation.version);
        if target.client("pgbench").is_ok() {
            target.pgbench(&["-n", "-S", "-c", "2", "-t", "300"]).unwrap();
        }
        target.stop(StopMode::Fast).unwrap();
        // It starts again on what it left.
        target.start().unwrap();
        if installation.has_extension("amcheck") {
            let found = amcheck(&target);
            assert!(found.lines().all(str::is_empty), "{}: {found}", installation.version);
        }
        target.stop(StopMode::Fast).unwrap();
        let (outcome, json) = mount.end();
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        let delta = json["delta_bytes_max"].as_u64().unwrap();
        assert!(delta < READ_ONLY_DELTA_BYTES, "{}: {json}", installation.version);
        println!("PostgreSQL {}: {json}", installation.version);

        // A workload that writes works too, and leaves nothing.
        let mount = Mount::begin(&pack, target.data_dir(), &[]);
        target.start().unwrap();
        target
            .psql("CREATE TABLE t AS SELECT i, md5(i::text) FROM generate_series(1, 50000) i")
            .unwrap();
        target.psql("DELETE FROM item WHERE id % 2 = 0; VACUUM item; CHECKPOINT").unwrap();
        target.psql("SELECT pg_switch_wal(); CREATE DATABASE third; CHECKPOINT").unwrap();
        assert_eq!(target.psql("SELECT count(*) FROM t").unwrap(), "50000");
        target.crash().unwrap();
        target.start().unwrap();
        assert_eq!(target.psql("SELECT count(*) FROM t").unwrap(), "50000", "it recovers");
        target.stop(StopMode::Fast).unwrap();
        mount.end();
        let mount = Mount::begin(&pack, target.data_dir(), &[]);
        target.start().unwrap();
        assert_eq!(answers(&target), expected, "{}", installation.version);
        target.stop(StopMode::Fast).unwrap();
        mount.end();
    }
}

#[test]
fn a_server_whose_mount_is_killed_starts_on_the_next_one() {
    if !has_fuse() {
        return;
    }
    let Some(installation) = crate::clusters::any_installation() else { return };
    let (source, expected) = frozen(&installation);
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("x.pwk");
    make_pack(source.data_dir(), &pack);
    let mut target = source.duplicate().unwrap();
    let place = target.data_dir().to_owned();
    let mut mount = mount_in_place_of(&place, &pack);
    for wait in [300, 900] {
        target.start().unwrap();
        thread::scope(|scope| {
            // It fails when its server does.
            scope.spawn(|| target.pgbench(&["-n", "-c", "2", "-T", "20"]));
            thread::sleep(Duration::from_millis(wait));
            mount.signal(Signal::KILL);
        });
        mount.wait();
        if target.is_running() {
            target.crash().unwrap();
        }
        let outcome = run(pagewarden().args(["mount", "--cleanup"]).arg(&place));
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        mount = Mount::begin(&pack, &place, &[]);
    }
    target.start().unwrap();
    assert_eq!(answers(&target), expected);
    target.stop(StopMode::Fast).unwrap();
    assert_eq!(mount.end().0.status, Some(0));
}

#[test]
fn a_server_keeps_what_it_committed_when_its_durable_mount_is_killed() {
    if !has_fuse() {
        return;
    }
    let Some(installation) = crate::clusters::any_installation() else { return };
    let (source, expected) = frozen(&installation);
    source.append_settings([("fsync", "on")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (pack, durable) = (folder.path().join("x.pwk"), folder.path().join("durable"));
    make_pack(source.data_dir(), &pack);
    let options = ["--durable", durable.to_str().unwrap()];
    let mut target = source.duplicate().unwrap();
    let place = target.data_dir().to_owned();
    drop(mount_in_place_of(&place, &pack));
    let mut mount = Mount::begin(&pack, &place, &options);
    target.start().unwrap();
    target.psql("CREATE TABLE kept (i int)").unwrap();
    let mut kept = 0;
    for round in 0..3 {
        thread::scope(|scope| {
            let target = &target;
            let writer = scope.spawn(move || {
                let mut done = 0;
                // Each is a transaction that the server has said is committed.
                while target.psql("INSERT INTO kept SELECT generate_series(1, 100)").is_ok() {
                    done += 100;
                }
                done
            });
            thread::sleep(Duration::from_millis(400 + 300 * round));
            mount.signal(Signal::KILL);
            kept += writer.join().unwrap();
        });
        mount.wait();
        if target.is_running() {
            target.crash().unwrap();
        }
        let outcome = run(pagewarden().args(["mount", "--cleanup"]).arg(&place));
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        mount = Mount::begin(&pack, &place, &options);
        let _ = fs::remove_file(place.join("postmaster.pid"));
        target.start().unwrap();
        let found: i64 = target.psql("SELECT count(*) FROM kept").unwrap().parse().unwrap();
        // The last one may have been committed without the server's having said so.
        assert!((kept..=kept + 100).contains(&found), "round {round}: {found}, {kept} committed");
        kept = found;
        assert_eq!(answers(&target), expected);
    }
    if installation.has_extension("amcheck") {
        assert!(amcheck(&target).lines().all(str::is_empty));
    }
    target.stop(StopMode::Fast).unwrap();
    assert_eq!(mount.end().0.status, Some(0));
    // A pack of the two together.
    let mount = Mount::begin(&pack, &place, &options);
    make_pack(&place, &folder.path().join("new.pwk"));
    mount.end();
}

/// In the mount a tablespace is a folder where the cluster has a link.
#[test]
fn a_cluster_with_a_tablespace_runs_in_one_place() {
    if !has_fuse() {
        return;
    }
    for installation in installations() {
        let mut source = sample(&installation, true).copy();
        let question = "SELECT count(*), sum(hashtext(elsewhere::text)) FROM elsewhere";
        source.start().unwrap();
        let expected = source.psql(question).unwrap();
        source.stop(StopMode::Fast).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let pack = folder.path().join("x.pwk");
        make_pack(source.data_dir(), &pack);
        let mut target = source.duplicate().unwrap();
        let mount = mount_in_place_of(target.data_dir(), &pack);
        target.start().unwrap();
        assert_eq!(target.psql(question).unwrap(), expected, "{}", installation.version);
        target.psql("INSERT INTO elsewhere VALUES (1, 'new')").unwrap();
        // Recovery finds it too.
        target.crash().unwrap();
        target.start().unwrap();
        target.psql("SELECT 1 / (count(*) - 1) FROM elsewhere; CHECKPOINT").unwrap();
        target.stop(StopMode::Fast).unwrap();
        assert_eq!(mount.end().0.status, Some(0));
    }
}

#[test]
fn a_packed_tablespace_serves_a_cluster_that_goes_on() {
    if !has_fuse() {
        return;
    }
    let Some(installation) = crate::clusters::any_installation() else { return };
    let mut cluster = sample(&installation, true).copy();
    cluster.start().unwrap();
    cluster.psql("UPDATE pg_database SET datallowconn = true; VACUUM (FREEZE) elsewhere").unwrap();
    let question = "SELECT count(*), sum(hashtext(elsewhere::text)) FROM elsewhere;
         SET enable_seqscan = off; SELECT count(*) FROM elsewhere WHERE word < 'b'";
    let expected = cluster.psql(question).unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (pack, durable) = (folder.path().join("space.pwk"), folder.path().join("durable"));
    let made = run(pagewarden()
        .args(["pack", "--tablespace", "sample_space"])
        .arg(cluster.data_dir())
        .arg("-o")
        .arg(&pack));
    assert_eq!(made.status, Some(0), "{made:?}");
    let link = fs::read_dir(cluster.data_dir().join("pg_tblspc")).unwrap().next().unwrap();
    let place = fs::read_link(link.unwrap().path()).unwrap();
    let options = ["--durable", durable.to_str().unwrap()];
    empty(&place);
    let mut mount = Mount::begin(&pack, &place, &options);
    // Transaction numbers go on as they would in years.
    let outcome =
        cluster.tool("pg_resetwal").arg("-x").arg("2500000").arg(cluster.data_dir()).output();
    assert!(outcome.unwrap().status.success());
    let log = cluster.data_dir().join("pg_xact");
    for name in ["0001", "0002"] {
        fs::write(log.join(name), vec![0; 256 << 10]).unwrap();
        crate::clusters::give_to_owner_of_folder(&log.join(name));
    }
    cluster.start().unwrap();
    assert_eq!(cluster.psql(question).unwrap(), expected);
    for database in ["postgres", "other", "template0", "template1"] {
        cluster.psql_in(database, "VACUUM (FREEZE)").unwrap();
    }
    cluster.psql("CHECKPOINT").unwrap();
    assert!(!log.join("0000").exists(), "what became of old transactions is known no longer");
    mount.signal(Signal::KILL);
    mount.wait();
    cluster.crash().unwrap();
    let outcome = run(pagewarden().args(["mount", "--cleanup"]).arg(&place));
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    mount = Mount::begin(&pack, &place, &options);
    cluster.start().unwrap();
    assert_eq!(cluster.psql(question).unwrap(), expected);
    if installation.has_extension("amcheck") {
        assert!(amcheck(&cluster).lines().all(str::is_empty));
    }
    cluster.stop(StopMode::Fast).unwrap();
    assert_eq!(mount.end().0.status, Some(0));
}

const TABLES: &[&str] = &["item", "packed_rows", "aria_table"];

fn rows(server: &Server) -> String {
    let sums = TABLES.iter().map(|table| {
        let sql = format!("SELECT count(*), sum(crc32(concat_ws('|', id, word))) FROM {table}");
        server.sql(&format!("USE shop; {sql}")).unwrap()
    });
    let looked_up = server
        .sql("USE shop; SELECT sum(crc32(word)) FROM item FORCE INDEX (word) WHERE word > 'f'");
    sums.chain([looked_up.unwrap()]).collect::<Vec<_>>().join("\n")
}

#[test]
fn mariadb_runs_on_a_mounted_pack() {
    if !has_fuse() {
        return;
    }
    let Some(installation) = mariadb::Installation::for_test().unwrap() else { return };
    let mut source = Server::install(&installation, &[]).unwrap();
    source.start().unwrap();
    source
        .sql(
            "CREATE DATABASE shop; USE shop;
             CREATE TABLE item (id INT PRIMARY KEY, word VARCHAR(60), KEY word (word)) ENGINE=InnoDB;
             INSERT INTO item SELECT seq, md5(seq) FROM seq_1_to_60000;
             CREATE TABLE packed_rows (id INT PRIMARY KEY, word TEXT) ENGINE=InnoDB
               ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8;
             INSERT INTO packed_rows SELECT seq, repeat(md5(seq), 5) FROM seq_1_to_20000;
             CREATE TABLE aria_table (id INT PRIMARY KEY, word TEXT) ENGINE=Aria;
             INSERT INTO aria_table SELECT seq, md5(seq) FROM seq_1_to_20000;
             SET GLOBAL innodb_fast_shutdown = 0;",
        )
        .unwrap();
    let expected = rows(&source);
    source.stop().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("x.pwk");
    make_pack(source.data_dir(), &pack);
    for options in [&["innodb_read_only=1"][..], &[]] {
        let mut target = source.duplicate(options).unwrap();
        let mount = mount_in_place_of(target.data_dir(), &pack);
        target.start().unwrap();
        assert_eq!(rows(&target), expected, "{options:?}");
        for table in TABLES {
            let checked = target.sql(&format!("CHECK TABLE shop.{table} EXTENDED")).unwrap();
            assert!(checked.ends_with("status\tOK"), "{checked}");
        }
        target.stop().unwrap();
        if options.is_empty() {
            target.start().unwrap();
            target.sql("UPDATE shop.item SET word = 'x' WHERE id = 7").unwrap();
            assert_eq!(target.sql("SELECT word FROM shop.item WHERE id = 7").unwrap(), "x");
            target.stop().unwrap();
        }
        let (outcome, json) = mount.end();
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        let delta = json["delta_bytes_max"].as_u64().unwrap();
        println!("MariaDB {options:?}: {json}");
        assert!(delta < READ_ONLY_DELTA_BYTES, "{options:?}: {json}");
    }
}
