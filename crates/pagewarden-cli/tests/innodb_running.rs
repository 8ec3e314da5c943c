//! A running MariaDB: pages change while they are read, tables come and go, and
//! nothing of that is damage.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden_scratch::mariadb::Server;

use crate::mariadb_samples::{Shape, installation, server, tables};
use crate::runner::check;

/// How long: ten seconds, or what `PAGEWARDEN_SOAK_SECONDS` says, of which an
/// ordinary run gives this a third.
fn load() -> Duration {
    let asked = std::env::var("PAGEWARDEN_SOAK_SECONDS").ok();
    Duration::from_secs(asked.map_or(10, |seconds| seconds.parse::<u64>().unwrap() / 3))
}

/// Writes, and everything that makes, moves and removes files, while `work` runs.
fn under_load(server: &Server, work: impl FnOnce()) {
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
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
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
