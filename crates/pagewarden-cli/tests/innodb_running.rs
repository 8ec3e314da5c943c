//! A running MariaDB: pages change while they are read, tables come and go, and
//! nothing of that is damage.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden_scratch::mariadb::Server;

use crate::mariadb_samples::{Shape, installation, server, server_with, tables};
use crate::runner::check;

/// How long: ten seconds, or a sixth of what `PAGEWARDEN_SOAK_SECONDS` says: others
/// are under load at the same time.
fn load() -> Duration {
    let asked = std::env::var("PAGEWARDEN_SOAK_SECONDS").ok();
    Duration::from_secs(asked.map_or(10, |seconds| seconds.parse::<u64>().unwrap() / 6))
}

/// How often a server is killed under load: twice, or `PAGEWARDEN_KILLS`.
fn kills() -> usize {
    std::env::var("PAGEWARDEN_KILLS").map_or(2, |kills| kills.parse().unwrap())
}

/// Writes, and everything that makes, moves and removes files, while `work` runs.
fn under_load<T>(server: &Server, work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    let again = |sql: &str| {
        while !stop.load(Ordering::Relaxed) {
            // A conflict between these is no matter of ours.
            let _ = server.sql(sql);
        }
    };
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            again(
                "USE shop;
                 UPDATE dynamic SET body = REVERSE(body);
                 UPDATE squeezed SET word = MD5(word) WHERE id % 3 = 0;
                 UPDATE zipped SET word = MD5(word) WHERE id % 7 = 0;
                 UPDATE secret SET word = MD5(word) WHERE id % 7 = 0;
                 UPDATE secret_squeezed SET word = MD5(word) WHERE id % 7 = 0;
                 SET GLOBAL innodb_log_checkpoint_now=1;",
            );
        });
        scope.spawn(|| {
            again(
                "USE shop;
                 DROP TABLE IF EXISTS churn;
                 CREATE TABLE churn ENGINE=InnoDB AS SELECT * FROM source;
                 ALTER TABLE churn ADD KEY (word);
                 TRUNCATE TABLE churn;
                 INSERT INTO churn SELECT * FROM source;
                 ALTER TABLE churn ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4;
                 ALTER TABLE churn ROW_FORMAT=DYNAMIC PAGE_COMPRESSED=1;
                 ALTER TABLE churn PAGE_COMPRESSED=0 ENCRYPTED=YES;
                 DELETE FROM churn WHERE id > 100;
                 OPTIMIZE TABLE churn;
                 RENAME TABLE churn TO churned;
                 DROP TABLE churned;",
            );
        });
        scope.spawn(|| {
            again(
                "USE shop;
                 TRUNCATE TABLE compact;
                 INSERT INTO compact SELECT * FROM source;
                 OPTIMIZE TABLE redundant;
                 ALTER TABLE parts FORCE;
                 ALTER TABLE parts TRUNCATE PARTITION p0;
                 INSERT IGNORE INTO parts SELECT * FROM source;",
            );
        });
        scope.spawn(|| {
            again(
                "USE shop;
                 UPDATE aria_sums SET word = MD5(word);
                 TRUNCATE TABLE aria_session;
                 INSERT INTO aria_session SELECT * FROM source;
                 ALTER TABLE aria_plain ADD KEY late (word, body), ADD KEY later (body);
                 ALTER TABLE aria_plain DROP KEY late, DROP KEY later;
                 OPTIMIZE TABLE aria_sums;",
            );
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        result
    });
    match result {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

#[test]
fn running_server_under_load_has_no_findings() {
    let Some(installation) = installation() else { return };
    let shape = Shape { encrypted: true, ..Shape::USUAL };
    let (mut server, _keys) = server(&installation, shape);
    let root = server.data_dir().to_owned();
    server.start().unwrap();
    server.sql(&tables(shape)).unwrap();
    let (mut checks, mut undecided, mut pages) = (0, 0, 0);
    under_load(&server, || {
        let begin = Instant::now();
        while begin.elapsed() < load() || checks < 3 {
            let caching = ["--cached", "--direct", "--jobs=1"][checks % 3];
            let outcome = check([caching.as_ref(), root.as_os_str()]);
            let report = outcome.report();
            let state = format!("check {checks}, {caching}");
            assert_eq!(report.findings(), [], "{state}: {:?}", report.details());
            assert!(report.unread().is_empty(), "{state}: {:?}", report.unread());
            assert_eq!(report.target()["live"], true, "{state}");
            assert!(report.pages("ok") > 1000, "{state}");
            undecided += report.pages("undecided");
            pages += report.pages("total");
            checks += 1;
        }
    });
    eprintln!("MariaDB: {checks} checks under load, {pages} pages, {undecided} undecided");
    server.stop().unwrap();
    let report = check([&root]).report();
    assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{:?}", report.details());
}

/// What is half done when a server is killed, recovery finishes: none of it is
/// damage. Pages that are given back are erased, undo logs are cut off, the log goes
/// round many times, and is encrypted or not.
#[test]
fn killed_server_leaves_no_findings() {
    let Some(installation) = installation() else { return };
    let erasing = [
        "innodb_undo_tablespaces=3",
        "innodb_undo_log_truncate=ON",
        "innodb_max_undo_log_size=10M",
        "innodb_immediate_scrub_data_uncompressed=ON",
        "innodb_log_file_size=4M",
    ];
    let secretive = ["innodb_encrypt_log=ON", "innodb_log_file_size=6M"];
    for (round, more) in [&erasing[..], &secretive[..]].into_iter().enumerate() {
        let shape = Shape { encrypted: true, ..Shape::USUAL };
        let (mut server, _keys) = server_with(&installation, shape, more);
        let root = server.data_dir().to_owned();
        server.start().unwrap();
        server.sql(&tables(shape)).unwrap();
        let pid = |server: &mut Server| {
            rustix::process::Pid::from_raw(server.pid().unwrap().try_into().unwrap()).unwrap()
        };
        for kill in 0..kills().div_ceil(2) {
            // Killed often enough, a server may not come back: no matter of ours.
            if let Err(error) = server.start() {
                assert!(kill > 2, "{error}");
                break;
            }
            let victim = pid(&mut server);
            let wait = Duration::from_millis(1500 + 700 * (kill as u64 % 7));
            under_load(&server, || {
                thread::sleep(wait);
                rustix::process::kill_process(victim, rustix::process::Signal::KILL).unwrap();
            });
            while server.is_running() {}
            let report = check([&root]).report();
            let state = report.target()["state"].as_str().unwrap();
            assert!(
                state.contains("recovery has yet to run"),
                "{round} {kill} {state} {:?}",
                report.details()
            );
            assert_eq!(report.serious(), [], "round {round}, kill {kill}: {:?}", report.details());
            assert!(report.unread().is_empty(), "{:?}", report.unread());
        }
        if server.start().is_err() {
            continue;
        }
        server.stop().unwrap();
        let report = check([&root]).report();
        assert_eq!(report.serious(), [], "round {round}: {:?}", report.details());
    }
}

/// A table that comes from a server with a longer history keeps pages of that time
/// where it has free ones.
#[test]
fn imported_table_is_not_newer_than_the_log() {
    let Some(installation) = installation() else { return };
    let (mut older, _keys) = server(&installation, Shape::USUAL);
    older.start().unwrap();
    older.sql(&tables(Shape::USUAL)).unwrap();
    older
        .sql(
            "USE shop; INSERT INTO dynamic SELECT id + 10000, word, body FROM source;
             DELETE FROM dynamic WHERE id > 200; SET GLOBAL innodb_max_dirty_pages_pct=0;",
        )
        .unwrap();
    older.stop().unwrap();
    older.start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let from = older.data_dir().join("shop");
    let mut client = older.client();
    let script = format!(
        "USE shop; FLUSH TABLES dynamic FOR EXPORT;\n\
         system cp {0}/dynamic.ibd {0}/dynamic.cfg {1}/\nUNLOCK TABLES;",
        from.display(),
        folder.path().display()
    );
    crate::runner::open_to_all(folder.path());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut child = client.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    older.stop().unwrap();

    let (mut younger, _keys) = server(&installation, Shape::USUAL);
    younger.start().unwrap();
    younger
        .sql(
            "CREATE DATABASE shop; USE shop;
             CREATE TABLE dynamic (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300),
               KEY (word)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
             ALTER TABLE dynamic DISCARD TABLESPACE;",
        )
        .unwrap();
    for name in ["dynamic.ibd", "dynamic.cfg"] {
        let place = younger.data_dir().join("shop").join(name);
        assert!(
            Command::new("cp")
                .arg("-p")
                .arg(folder.path().join(name))
                .arg(place)
                .status()
                .unwrap()
                .success()
        );
    }
    younger.sql("USE shop; ALTER TABLE dynamic IMPORT TABLESPACE").unwrap();
    younger.stop().unwrap();
    let report = check([younger.data_dir()]).report();
    assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{:?}", report.details());
}
