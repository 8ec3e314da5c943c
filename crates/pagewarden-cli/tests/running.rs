//! A running server: pages change while they are read, files come and go, and
//! nothing of that is damage.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden_scratch::postgres::{Cluster, StopMode};

use crate::clusters::{installations, sample};
use crate::damage::{Damage, Dice, Wound};
use crate::runner::{Finding, check};

/// How long each version is kept under load: ten seconds, or what
/// `PAGEWARDEN_SOAK_SECONDS` says.
fn load() -> Duration {
    let asked = std::env::var("PAGEWARDEN_SOAK_SECONDS").ok();
    Duration::from_secs(asked.map_or(10, |seconds| seconds.parse().unwrap()))
}

/// Runs pgbench, checkpoints, and everything that makes and removes files,
/// while `work` runs.
fn under_load(cluster: &Cluster, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let again = |sql: &str| {
        while !stop.load(Ordering::Relaxed) {
            // A conflict between these is no matter of ours.
            let _ = cluster.psql(sql);
        }
    };
    let mut pgbench = cluster.client("pgbench").unwrap();
    let mut pgbench = pgbench
        .args(["-n", "-c", "2", "-T", &(load().as_secs() + 300).to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let result = thread::scope(|scope| {
        scope.spawn(|| again("CHECKPOINT; SELECT pg_sleep(0.3)"));
        scope.spawn(|| {
            again(
                "DROP TABLE IF EXISTS churn;
                 CREATE TABLE churn AS SELECT i AS id, md5(i::text) AS word
                   FROM generate_series(1, 20000) i;
                 CREATE INDEX ON churn (word);
                 UPDATE churn SET word = md5(word);
                 DELETE FROM churn WHERE id > 2000;
                 VACUUM churn;
                 VACUUM FULL churn;
                 TRUNCATE churn;",
            );
        });
        scope.spawn(|| {
            again(
                "UPDATE item SET word = md5(word) WHERE id % 17 = 0;
                 VACUUM item;
                 UPDATE fleeting SET word = md5(word);
                 REINDEX INDEX item_gist;
                 DROP DATABASE IF EXISTS passing;
                 CREATE DATABASE passing;",
            );
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        result
    });
    pgbench.kill().unwrap();
    pgbench.wait().unwrap();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn running_cluster_under_load_has_no_findings() {
    for installation in installations() {
        let version = &installation.version;
        let mut cluster = sample(&installation, true).copy();
        cluster
            .append_settings([
                // So small that pages are written all the time.
                ("shared_buffers", "'1MB'"),
                ("max_wal_size", "'32MB'"),
                ("bgwriter_delay", "'10ms'"),
            ])
            .unwrap();
        cluster.start().unwrap();
        if cluster.client("pgbench").is_err() {
            continue;
        }
        let (mut checks, mut undecided) = (0, 0);
        under_load(&cluster, || {
            let begin = Instant::now();
            while begin.elapsed() < load() {
                // Through the cache a page is seen half written far more often
                // than on the device.
                let caching = if checks % 2 == 0 { "--cached" } else { "--direct" };
                let outcome = check([caching.as_ref(), cluster.data_dir().as_os_str()]);
                let report = outcome.report();
                let state = format!("{version}, check {checks}");
                assert_eq!(report.findings(), [], "{state}");
                assert!(report.unread().is_empty(), "{state}: {:?}", report.unread());
                assert_eq!(report.target()["live"], true, "{state}");
                assert!(report.pages("ok") > 1000, "{state}");
                undecided += report.pages("undecided");
                let expected = if report.pages("undecided") > 0 { 2 } else { 0 };
                assert_eq!(outcome.status, Some(expected), "{state}");
                checks += 1;
            }
        });
        eprintln!("PostgreSQL {version}: {checks} checks under load, {undecided} undecided pages");
        assert!(checks >= 2, "{version}: {checks}");
        cluster.stop(StopMode::Fast).unwrap();
        let report = check([cluster.data_dir()]).report();
        assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{version}");
    }
}

#[test]
fn damage_on_a_running_cluster_is_found_once_it_stands_still() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let mut cluster = sample.copy();
        cluster.start().unwrap();
        let root = cluster.data_dir().to_owned();
        // Not touched by anyone: the server never writes these pages.
        let quiet = sample.file("wide_toast");
        let mut dice = Dice::seeded();
        for damage in Damage::ALL {
            let what = format!("{version}: {damage:?}");
            let _wound = Wound::to(root.join(quiet)).inflict(damage, &mut dice, 6);
            let outcome = check([&root]);
            let report = outcome.report();
            let expected = Finding::page(quiet, 6, "damage", damage.kind());
            assert_eq!(report.findings(), [expected], "{what}");
            assert_eq!((outcome.status, report.verdict()), (Some(1), "damaged"), "{what}");
            assert_eq!(report.target()["live"], true);
        }
        assert_eq!(check([&root]).report().findings(), [], "{version}");
        cluster.stop(StopMode::Immediate).unwrap();
    }
}
