//! A running server: pages change while they are read, files come and go, and
//! nothing of that is damage.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden_scratch::postgres::{Cluster, Installation, StopMode};

use crate::clusters::{any_installation, installations, sample};
use crate::damage::{Damage, Dice, PAGE, Wound};
use crate::file_damage::write_segment;
use crate::runner::{Finding, Report, Started, check, pagewarden};

/// The ways in which pages are read.
const CACHING: [&str; 3] = ["--cached", "--direct", "--jobs=1"];

/// How long each version is kept under load: ten seconds, or what
/// `PAGEWARDEN_SOAK_SECONDS` says.
fn load() -> Duration {
    let asked = std::env::var("PAGEWARDEN_SOAK_SECONDS").ok();
    Duration::from_secs(asked.map_or(10, |seconds| seconds.parse().unwrap()))
}

/// Runs pgbench, checkpoints, and everything that makes, moves and removes
/// files, while `work` runs.
fn under_load(cluster: &mut Cluster, work: impl FnOnce()) {
    cluster.add_tablespace("spare").unwrap();
    let passing_space = cluster.add_dir("passing_space").unwrap();
    let cluster = &*cluster;
    cluster
        .psql("CREATE TABLE moving AS SELECT i, md5(i::text) FROM generate_series(1, 9999) i")
        .unwrap();
    cluster.psql("CREATE INDEX moving_index ON moving (md5); CREATE TABLE bulk (i int)").unwrap();
    let stop = AtomicBool::new(false);
    let again = |sql: &str| {
        while !stop.load(Ordering::Relaxed) {
            // A conflict between these does not matter here.
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
        scope.spawn(|| {
            again(
                "TRUNCATE bulk;
                 COPY bulk FROM PROGRAM 'seq 1 60000';
                 COPY bulk FROM PROGRAM 'seq 1 60000';
                 DELETE FROM bulk WHERE i > 100;
                 VACUUM bulk;",
            );
        });
        scope.spawn(|| {
            again(&format!(
                "ALTER TABLE moving SET TABLESPACE spare;
                 ALTER INDEX moving_index SET TABLESPACE spare;
                 CREATE TABLESPACE passing_space LOCATION '{}';
                 ALTER TABLE moving SET TABLESPACE passing_space;
                 ALTER INDEX moving_index SET TABLESPACE pg_default;
                 ALTER TABLE moving SET TABLESPACE pg_default;
                 DROP TABLESPACE passing_space;",
                passing_space.display()
            ));
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
    // At the same time: the more there is to do, the more is half done.
    let installations = installations();
    thread::scope(|scope| {
        for installation in &installations {
            scope.spawn(|| soak(installation));
        }
    });
}

/// Checks a cluster under load again and again.
fn soak(installation: &Installation) {
    let version = &installation.version;
    let mut cluster = sample(installation, true).copy();
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
        return;
    }
    let root = cluster.data_dir().to_owned();
    let (mut checks, mut undecided) = (0, 0);
    under_load(&mut cluster, || {
        let begin = Instant::now();
        // Each way once at least, however slow that is.
        while begin.elapsed() < load() || checks < CACHING.len() {
            // Through the cache a page is seen half written far more often
            // than on the device.
            let caching = CACHING[checks % CACHING.len()];
            let mut arguments = vec![caching.as_ref(), root.as_os_str()];
            if checks % 2 == 1 {
                arguments.push("--structure".as_ref());
            }
            let outcome = check(arguments);
            let report = outcome.report();
            let state = format!("{version}, check {checks}, {caching}");
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
    cluster.stop(StopMode::Fast).unwrap();
    let report = check([cluster.data_dir()]).report();
    assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{version}");
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

/// What lies in several files proves something only once a checkpoint has
/// brought them to one state.
#[test]
fn hole_in_a_running_cluster_is_damage_after_a_checkpoint() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let mut cluster = sample.copy();
    cluster.start().unwrap();
    let folder = sample.file("item").rsplit_once('/').unwrap().0;
    let short = format!("{folder}/99990");
    let behind = cluster.data_dir().join(format!("{short}.1"));
    let pages = fs::read(cluster.data_dir().join(sample.file("item"))).unwrap();
    write_segment(&cluster.data_dir().join(&short), &pages[..3 * PAGE], 0, None);
    write_segment(&behind, &pages[..PAGE], 1, None);
    let root = cluster.data_dir().to_owned();
    // At full speed: a check that stands back for whatever else this machine does may need minutes.
    let words = ["--rate", "none", "--settle"].map(OsStr::new);
    let settled = |time: &str| check(words.into_iter().chain([OsStr::new(time), root.as_os_str()]));
    let found = |severity: &str| Finding::page(&short, 3, severity, "truncated");
    let notes = |report: &Report| report.target()["notes"].to_string();

    let report = check([&root]).report();
    assert_eq!((report.findings(), report.verdict()), (vec![found("suspect")], "suspect"));
    // A checkpoint from before the first look says nothing.
    cluster.psql("CHECKPOINT").unwrap();
    let outcome = settled("1200ms");
    let report = outcome.report();
    assert_eq!((report.findings(), outcome.status), (vec![found("suspect")], Some(0)));
    assert!(notes(&report).contains("no checkpoint began and ended"), "{}", notes(&report));

    let outcome = thread::scope(|scope| {
        let waiting = scope.spawn(|| settled("60s"));
        // One that begins in the very second of the first look does not count.
        while !waiting.is_finished() {
            thread::sleep(Duration::from_millis(700));
            cluster
                .psql("CREATE TABLE IF NOT EXISTS tick (); DROP TABLE tick; CHECKPOINT")
                .unwrap();
        }
        waiting.join().unwrap()
    });
    let report = outcome.report();
    assert_eq!((report.findings(), outcome.status), (vec![found("damage")], Some(1)));
    assert!(report.details()[0].contains("after a checkpoint"), "{:?}", report.details());

    // What closes while it waits was none. A busy machine may need more than a second for the first
    // look, which then sees no hole: so it is given more time until it sees one.
    let waited = [1, 4, 16, 64].into_iter().any(|seconds| {
        write_segment(&behind, &pages[..PAGE], 1, None);
        let report = thread::scope(|scope| {
            let waiting = scope.spawn(|| settled(&format!("{}s", 2 * seconds)));
            thread::sleep(Duration::from_secs(seconds));
            fs::remove_file(&behind).unwrap();
            waiting.join().unwrap().report()
        });
        assert_eq!((report.findings(), report.verdict()), (vec![], "intact"));
        notes(&report).contains("waits for a checkpoint")
    });
    assert!(waited, "it waited");
    // Nothing waits, so nothing is waited for.
    let report = settled("60s").report();
    assert_eq!(report.findings(), []);
    assert!(!notes(&report).contains("waits for a checkpoint"), "{}", notes(&report));
    cluster.stop(StopMode::Fast).unwrap();
}

/// True if a check of this folder was seen with a thread that any other goes before.
fn stands_back(root: &Path, words: &[&str]) -> bool {
    /// `SCHED_IDLE` of linux/sched.h.
    const IDLE: &str = "5";
    let mut command = pagewarden();
    let mut started = Started::spawn(command.args(["check", "-q"]).args(words).arg(root));
    let tasks = format!("/proc/{}/task", started.id());
    let mut seen = false;
    while started.is_running() {
        for task in fs::read_dir(&tasks).into_iter().flatten().flatten() {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The policy is the 41st field, and the name, in brackets, the second.
            let policy = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(38));
            seen |= policy == Some(IDLE);
        }
    }
    started.wait();
    seen
}

#[test]
fn check_of_a_running_cluster_stands_back_unless_it_is_asked_not_to() {
    let Some(installation) = any_installation() else { return };
    let mut cluster = sample(&installation, true).copy();
    let root = cluster.data_dir().to_owned();
    assert!(!stands_back(&root, &[]), "no server is there that it could disturb");
    cluster.start().unwrap();
    // It may be over before anyone has looked.
    assert!((0..20).any(|_| stands_back(&root, &[])));
    assert!(!stands_back(&root, &["--rate", "none"]));
}
