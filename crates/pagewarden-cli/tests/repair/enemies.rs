//! Histories that try to have a page called exact that is not: what changes pages without a word in
//! the log, files under the names of others, copies that went their own way.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden::repair::{Options as RepairOptions, Request, Verdict, repair};
use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

use super::history::base_backup;
use super::{Tally, attack, lengths, run};
use crate::clusters::installations;
use crate::damage::Dice;

fn options() -> Options {
    Options { wal_segment_mib: Some(1), ..Options::default() }
        .with("autovacuum", "off")
        .with("min_wal_size", "'64MB'")
        .with("max_wal_size", "'128MB'")
        .with("wal_keep_size", "'256MB'")
}

fn started(installation: &Installation, options: &Options) -> Option<Cluster> {
    let mut cluster = Cluster::init(installation, options).unwrap();
    cluster.start().unwrap();
    (cluster.has_psql() && cluster.client("pg_basebackup").is_ok()).then_some(cluster)
}

fn cold_copy(cluster: &Cluster, name: &str) -> PathBuf {
    let target = cluster.home().join(name);
    cluster.copy_data_dir(&target).unwrap();
    target
}

fn oid(cluster: &mut Cluster, database: &str) -> String {
    let sql = format!("SELECT oid FROM pg_database WHERE datname = '{database}'");
    cluster.execute("postgres", &[&sql]).unwrap().trim().to_owned()
}

fn assault(cluster: &Cluster, sources: &[PathBuf], files: &str) -> Tally {
    let mut dice = Dice::seeded();
    attack(cluster.data_dir(), sources, &mut dice, |file| file.starts_with(files), 150)
}

fn refusal(root: &Path, source: &Path) -> String {
    let request = Request { sources: vec![source.into()], ..Request::new(root) };
    repair(&request, &RepairOptions::default(), &()).unwrap_err().to_string()
}

/// Ruins one page, so that sources are looked at at all.
fn ruin(cluster: &Cluster, file: &str, block: usize) {
    let path = cluster.data_dir().join(file);
    let mut bytes = fs::read(&path).unwrap();
    bytes[block * 8192 + 6000..block * 8192 + 8000].fill(0x77);
    fs::write(path, bytes).unwrap();
}

/// Two databases with the same file numbers; one takes the other's place under its number.
#[test]
fn database_of_the_same_number_is_another_database() {
    for installation in installations().into_iter().filter(|one| one.major >= 15) {
        let Some(mut cluster) = started(&installation, &options()) else { continue };
        cluster.execute("postgres", &["CREATE DATABASE a"]).unwrap();
        let load = "CREATE TABLE t AS SELECT i AS id, md5(i::text) AS word FROM generate_series(1, 9000) i; \
             CREATE SEQUENCE s; SELECT nextval('s'); CHECKPOINT";
        cluster.psql_in("a", load).unwrap();
        cluster.execute("postgres", &["CREATE DATABASE b TEMPLATE a STRATEGY file_copy"]).unwrap();
        cluster
            .psql_in("b", "UPDATE t SET word = md5(word) WHERE id % 200 = 0; VACUUM FULL t")
            .unwrap();
        let shop = |template: &str| {
            format!("CREATE DATABASE shop OID 50000 TEMPLATE {template} STRATEGY file_copy")
        };
        cluster.execute("postgres", &[&shop("a"), "CHECKPOINT"]).unwrap();
        let backup = base_backup(&cluster, "backup", &["-X", "none"]);
        cluster.execute("postgres", &["DROP DATABASE shop", &shop("b")]).unwrap();
        // The same by pages in the log, where a sequence moves on without it.
        cluster.execute("postgres", &["CREATE DATABASE w TEMPLATE a STRATEGY wal_log"]).unwrap();
        cluster.psql_in("w", "SELECT nextval('s'), nextval('s'), nextval('s')").unwrap();
        let logged = format!("base/{}/", oid(&mut cluster, "w"));
        cluster.stop(StopMode::Fast).unwrap();
        let tally = assault(&cluster, std::slice::from_ref(&backup), "base/50000/");
        assert_eq!(tally.exact, 0, "{tally:?}");
        let tally = assault(&cluster, &[], &logged);
        assert!(tally.exact > 50, "{tally:?}");
        let everything = assault(&cluster, &[backup], "");
        assert!(everything.exact > 0, "{everything:?}");
    }
}

/// A copy in which one file is that of another database under the same name: every checksum fits.
#[test]
fn file_of_another_database_is_not_taken_for_the_relation() {
    for installation in installations() {
        let Some(mut cluster) = started(&installation, &options()) else { continue };
        cluster.execute("postgres", &["CREATE DATABASE a"]).unwrap();
        let load = "CREATE TABLE t AS SELECT i AS id, md5(i::text) AS word FROM generate_series(1, 2000) i; \
             CREATE TABLE small AS SELECT 1 AS id; CHECKPOINT";
        cluster.psql_in("a", load).unwrap();
        cluster.execute("postgres", &["CREATE DATABASE b TEMPLATE a"]).unwrap();
        let change = "UPDATE t SET word = upper(word) WHERE id % 300 = 0; UPDATE small SET id = 2; CHECKPOINT";
        cluster.psql_in("b", change).unwrap();
        let path = |cluster: &mut Cluster, database: &str, table: &str| {
            let path = cluster.relation_path(database, table).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let pairs = ["t", "small"]
            .map(|table| (path(&mut cluster, "a", table), path(&mut cluster, "b", table)));
        // What happened before is not in the log any more.
        let segments = "SELECT count(pg_switch_wal()) FROM generate_series(1, 3); CHECKPOINT";
        cluster.psql(segments).unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        let source = cold_copy(&cluster, "source");
        for (own, other) in &pairs {
            fs::copy(source.join(other), source.join(own)).unwrap();
            assault(&cluster, std::slice::from_ref(&source), own);
        }
    }
}

#[test]
fn loads_that_are_not_logged_prove_nothing() {
    let Some(installation) = installations().into_iter().next() else { return };
    let Some(mut cluster) = started(&installation, &options()) else { return };
    cluster
        .psql("CREATE TABLE t AS SELECT i, md5(i::text) FROM generate_series(1, 2000) i")
        .unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    let before = cold_copy(&cluster, "before");
    cluster.append_settings([("wal_level", "minimal"), ("max_wal_senders", "0")]).unwrap();
    cluster.start().unwrap();
    cluster
        .psql(
            "BEGIN; CREATE TABLE u (i int, t text); COPY u FROM PROGRAM 'seq 1 500 | sed s/$/,x/' CSV; COMMIT; \
             BEGIN; TRUNCATE t; INSERT INTO t SELECT i, 'x' FROM generate_series(1, 900) i; COMMIT",
        )
        .unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    let same = cold_copy(&cluster, "same");
    assert_eq!(assault(&cluster, std::slice::from_ref(&before), "base/").exact, 0);
    assert!(assault(&cluster, &[same], "base/").exact > 50);
    cluster.append_settings([("wal_level", "replica")]).unwrap();
    cluster.start().unwrap();
    cluster.psql("INSERT INTO t VALUES (1, 'y')").unwrap();
    let backup = {
        cluster.append_settings([("max_wal_senders", "10")]).unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        cluster.start().unwrap();
        base_backup(&cluster, "backup", &["-X", "none"])
    };
    cluster.psql("UPDATE t SET md5 = 'z' WHERE i = 1").unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    // What the log holds behind that is as good as ever.
    let alone = assault(&cluster, &[], "base/").exact;
    assert_eq!(assault(&cluster, &[before], "base/").exact, alone);
    assert!(assault(&cluster, &[backup], "base/").exact > 50);
}

/// Without checksums a copy's pages are never proved, and hints change without the log.
#[test]
fn without_checksums_only_images_in_the_log_are_exact() {
    for installation in installations() {
        let options = Options { checksums: false, ..options() };
        let Some(mut cluster) = started(&installation, &options) else { continue };
        cluster
            .psql(
                "CREATE TABLE t AS SELECT i, md5(i::text) FROM generate_series(1, 4000) i; CHECKPOINT; \
                 SELECT count(*) FROM t; SET wal_compression = on; UPDATE t SET md5 = 'x' WHERE i % 50 = 0; \
                 CHECKPOINT; SELECT count(*) FROM t; VACUUM t",
            )
            .unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        let same = cold_copy(&cluster, "same");
        let with = assault(&cluster, &[same], "base/");
        let alone = assault(&cluster, &[], "base/");
        assert_eq!(with.exact, alone.exact, "{with:?} {alone:?}");
    }
}

/// Two pages of an index that took each other's place contradict their neighbours, which no source has
/// to bring back: with the two all is well.
#[test]
fn pages_that_exchanged_ones_contradict_are_not_left_over() {
    for installation in installations() {
        let options = Options { checksums: false, ..options() };
        let Some(mut cluster) = started(&installation, &options) else { continue };
        let load = "CREATE TABLE t AS SELECT generate_series(1, 20000) i; CREATE INDEX k ON t (i)";
        cluster.psql(load).unwrap();
        let file = cluster.relation_path("postgres", "k").unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        let path = cluster.data_dir().join(file);
        let sound = fs::read(&path).unwrap();
        let mut bytes = sound.clone();
        let (one, other) = (5 * 8192, 8 * 8192);
        bytes[one..one + 8192].copy_from_slice(&sound[other..other + 8192]);
        bytes[other..other + 8192].copy_from_slice(&sound[one..one + 8192]);
        fs::write(&path, bytes).unwrap();
        let plan = run(&Request::new(cluster.data_dir()));
        assert!(plan.pages.len() > 2, "{:?}", plan.pages);
        let outcome = run(&Request { write: true, ..Request::new(cluster.data_dir()) });
        assert_eq!((outcome.verdict, outcome.pages.len()), (Verdict::Repaired, 2));
        assert!(fs::read(&path).unwrap() == sound);
    }
}

/// Images that are compressed in each way.
#[test]
fn compressed_images_are_exact() {
    for installation in installations().into_iter().filter(|one| one.major >= 15) {
        let Some(mut cluster) = started(&installation, &options()) else { continue };
        let mut tables = Vec::new();
        for method in ["pglz", "lz4", "zstd", "off"] {
            let set = format!("SET wal_compression = {method};");
            let load = format!(
                "{set} CREATE TABLE {method}_t AS SELECT i, repeat(i::text, 9) AS word \
                 FROM generate_series(1, 9000) i; SELECT count(*) FROM {method}_t; CHECKPOINT"
            );
            if let Err(error) = cluster.psql(&load) {
                // This server was built without it.
                assert!(error.to_string().contains("wal_compression"), "{error}");
                continue;
            }
            // Each page once.
            let table = format!("{method}_t");
            let change = format!("{set} DELETE FROM {table} WHERE ctid::text LIKE '%,1)'");
            cluster.psql(&change).unwrap();
            tables.push(cluster.relation_path("postgres", &table).unwrap());
        }
        cluster.stop(StopMode::Fast).unwrap();
        assert!(tables.len() >= 2, "{tables:?}");
        for table in tables {
            let tally = assault(&cluster, &[], table.to_str().unwrap());
            assert!(tally.exact > 50, "{}: {tally:?}", table.display());
        }
    }
}

#[test]
fn copies_with_a_history_of_their_own_are_refused_by_name() {
    let Some(installation) = installations().into_iter().next() else { return };
    let short = options().with("wal_keep_size", "0").with("min_wal_size", "'2MB'");
    let Some(mut cluster) = started(&installation, &short.with("max_wal_size", "'4MB'")) else {
        return;
    };
    cluster
        .psql("CREATE TABLE t AS SELECT i, md5(i::text) FROM generate_series(1, 2000) i")
        .unwrap();
    cluster.psql("VACUUM t").unwrap();
    for _ in 0..5 {
        cluster.psql("SELECT txid_current()").unwrap();
        cluster.psql("SELECT pg_switch_wal()").unwrap();
        cluster.psql("CHECKPOINT").unwrap();
    }
    let table = cluster.relation_path("postgres", "t").unwrap();
    let table = table.to_str().unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    // Both clones do as much, and stop: the same positions, other content.
    let change = |cluster: &mut Cluster, word: &str| {
        cluster.start().unwrap();
        cluster.psql(&format!("UPDATE t SET md5 = '{word}' WHERE i = 700; CHECKPOINT")).unwrap();
        cluster.stop(StopMode::Fast).unwrap();
    };
    let mut clone = cluster.duplicate().unwrap();
    ruin(&cluster, table, 1);
    change(&mut clone, "aaaa");
    assert!(refusal(cluster.data_dir(), clone.data_dir()).contains("history of its own"));
    let pristine = clone.duplicate().unwrap();
    let mut other = pristine.duplicate().unwrap();
    change(&mut clone, "bbbb");
    change(&mut other, "cccc");
    ruin(&other, table, 1);
    assert!(refusal(other.data_dir(), clone.data_dir()).contains("history of its own"));
    // The state before is common to both: an honest, older copy.
    let request =
        Request { sources: vec![pristine.data_dir().into()], ..Request::new(other.data_dir()) };
    let outcome = repair(&request, &RepairOptions::default(), &()).unwrap();
    assert_eq!(outcome.pages.len(), 1, "{outcome:?}");

    // Another cluster, a running one, a crashed one, another timeline, no cluster at all.
    let stranger = Cluster::init(&installation, &options()).unwrap();
    assert!(refusal(other.data_dir(), stranger.data_dir()).contains("system identifier"));
    assert!(refusal(other.data_dir(), other.data_dir()).contains("that is to be repaired"));
    let mut running = pristine.duplicate().unwrap();
    running.start().unwrap();
    assert!(refusal(other.data_dir(), running.data_dir()).contains("a server runs"));
    running.psql("CREATE TABLE lost (i int)").unwrap();
    running.crash().unwrap();
    let _ = fs::remove_file(running.data_dir().join("postmaster.pid"));
    assert!(refusal(other.data_dir(), running.data_dir()).contains("not shut down cleanly"));
    let mut promoted = pristine.duplicate().unwrap();
    fs::write(promoted.data_dir().join("recovery.signal"), "").unwrap();
    crate::clusters::give_to_owner_of_folder(&promoted.data_dir().join("recovery.signal"));
    promoted.append_settings([("restore_command", "'false'")]).unwrap();
    promoted.start().unwrap();
    promoted.psql("SELECT 1").unwrap();
    promoted.stop(StopMode::Fast).unwrap();
    assert!(refusal(other.data_dir(), promoted.data_dir()).contains("another timeline"));
    let empty = other.add_dir("empty").unwrap();
    assert!(refusal(other.data_dir(), &empty).contains("no copy of a PostgreSQL cluster"));

    // A candidate that is damaged, too.
    let mut source = fs::read(pristine.data_dir().join(table)).unwrap();
    source[8192 + 7000..8192 + 7100].fill(1);
    fs::write(pristine.data_dir().join(table), source).unwrap();
    let outcome = repair(&request, &RepairOptions::default(), &()).unwrap();
    assert!(outcome.pages[0].reason.contains("damaged in"), "{outcome:?}");
    assert!(outcome.pages[0].after.is_none() && outcome.pages[0].proof.is_none());
}

/// Asks the second server of a test.
fn ask(primary: &Cluster, sockets: &Path, sql: &str) -> String {
    let mut command = primary.client("psql").unwrap();
    command.args(["-XAtq", "-p", "5433", "-h"]).arg(sockets);
    let output = command.args(["-d", "postgres", "-c", sql]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn wait_for(primary: &Cluster, sockets: &Path, sql: &str) {
    let begin = Instant::now();
    while ask(primary, sockets, sql) != "t" {
        assert!(begin.elapsed() < Duration::from_secs(120), "{sql}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A standby makes its pages from the log: hints apart they are the primary's, and what the log does not
/// have must not be called exact.
#[test]
fn pages_of_a_standby_and_of_its_backup_are_the_primarys() {
    for installation in installations() {
        let Some(mut primary) = started(&installation, &options()) else { continue };
        let standby = base_backup(&primary, "standby", &["-X", "stream", "-R"]);
        primary
            .psql(
                "CREATE TABLE t (id int PRIMARY KEY, word text, place point, tags int[]);
                 CREATE INDEX t_gist ON t USING gist (place);
                 CREATE INDEX t_gin ON t USING gin (tags);
                 CREATE INDEX t_hash ON t USING hash (id);
                 CREATE INDEX t_spgist ON t USING spgist (place);
                 CREATE SEQUENCE s;
                 INSERT INTO t SELECT i, repeat('x', i % 40), point(i, i % 7), ARRAY[i, i % 9]
                     FROM generate_series(1, 4000) i;
                 SELECT nextval('s'), nextval('s'); CHECKPOINT;
                 UPDATE t SET word = word || 'y' WHERE id % 300 = 0;
                 DELETE FROM t WHERE id % 500 = 0; VACUUM t; SELECT count(*) FROM t; SELECT nextval('s');
                 CHECKPOINT;",
            )
            .unwrap();
        let sockets = primary.add_dir("sockets").unwrap();
        let mut second = primary.tool("postgres");
        second.arg("-D").arg(&standby).arg("-k").arg(&sockets).args(["-p", "5433"]);
        let mut server = second.spawn().unwrap();
        let position = primary.psql("SELECT pg_current_wal_flush_lsn()").unwrap();
        wait_for(&primary, &sockets, &format!("SELECT pg_last_wal_replay_lsn() >= '{position}'"));
        ask(&primary, &sockets, "CHECKPOINT");
        let backup = primary.home().join("of-standby");
        let mut command = primary.client("pg_basebackup").unwrap();
        command.args(["-c", "fast", "-X", "none", "-p", "5433", "-h"]).arg(&sockets);
        let output = command.arg("-D").arg(&backup).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        primary.psql("UPDATE t SET word = 'z' WHERE id % 900 = 1; SELECT nextval('s')").unwrap();
        // The primary first, so that the standby has its last checkpoint.
        primary.stop(StopMode::Fast).unwrap();
        wait_for(&primary, &sockets, "SELECT pg_last_wal_replay_lsn() = pg_last_wal_receive_lsn()");
        let pid = rustix::process::Pid::from_raw(server.id().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        server.wait().unwrap();
        for (name, source) in [("standby", &standby), ("its backup", &backup)] {
            let tally = assault(&primary, std::slice::from_ref(source), "base/5/");
            println!("PostgreSQL {}, {name}: {tally:?}", installation.version);
            assert!(tally.exact > 30, "{name}: {tally:?}");
            let sources = vec![source.as_path().into()];
            let request = Request { sources, ..Request::new(primary.data_dir()) };
            let cut = lengths::attack(&request, &mut Dice::seeded());
            println!("PostgreSQL {}, {name}, cut files: {cut:?}", installation.version);
            assert!(cut.exact > 0, "{name}: {cut:?}");
        }
        // The other way round: the standby is the patient.
        let mut dice = Dice::seeded();
        let source = vec![primary.data_dir().to_owned()];
        let tally = attack(&standby, &source, &mut dice, |file| file.starts_with("base/5/"), 150);
        println!("PostgreSQL {}, the standby itself: {tally:?}", installation.version);
        assert!(tally.exact > 30, "{tally:?}");
    }
}

/// A backup that is taken while pages change under it holds pages of many moments; one that is older
/// than the log proves nothing.
#[test]
fn backup_of_a_busy_server_is_exact_page_by_page() {
    for installation in installations() {
        if !installation.has("pgbench") {
            continue;
        }
        let long = options().with("autovacuum", "on").with("autovacuum_naptime", "1");
        let short = options()
            .with("wal_keep_size", "0")
            .with("min_wal_size", "'2MB'")
            .with("max_wal_size", "'2MB'");
        for (options, has_log) in [(long, true), (short, false)] {
            let Some(mut cluster) = started(&installation, &options) else { continue };
            cluster.pgbench(&["-i", "-s", "1", "-q"]).unwrap();
            let backup = thread::scope(|scope| {
                // A tenth of the accounts change, some of them during the backup.
                let load = scope.spawn(|| {
                    cluster.pgbench(&["-n", "-c", "2", "-t", "300"]).unwrap();
                });
                let backup = base_backup(&cluster, "backup", &["-X", "none"]);
                load.join().unwrap();
                backup
            });
            cluster.pgbench(&["-n", "-c", "1", "-t", "100"]).unwrap();
            if !has_log {
                for _ in 0..6 {
                    cluster.psql("SELECT txid_current()").unwrap();
                    cluster.psql("SELECT pg_switch_wal()").unwrap();
                    cluster.psql("CHECKPOINT").unwrap();
                }
            }
            cluster.stop(StopMode::Fast).unwrap();
            let with = assault(&cluster, std::slice::from_ref(&backup), "base/5/");
            let alone = assault(&cluster, &[], "base/5/");
            println!("PostgreSQL {}, {has_log}: {with:?}, {alone:?}", installation.version);
            assert_eq!(with.exact > alone.exact, has_log, "{with:?} {alone:?}");
        }
    }
}
