//! Crashed clusters and backups: recovery may mend a page that fails, so
//! nothing there is called damage.

use std::fs;
use std::process::Stdio;

use pagewarden_scratch::postgres::Cluster;

use crate::clusters::{Sample, installations, sample};
use crate::damage::{Damage, Dice, PAGE, Wound};
use crate::runner::{Finding, Report, check};

/// A copy that was killed amid changes, some after its last checkpoint.
fn crashed(sample: &Sample) -> Cluster {
    let mut cluster = sample.copy();
    cluster.start().unwrap();
    if cluster.has_psql() {
        cluster
            .psql(
                "CHECKPOINT;
                 UPDATE item SET word = 'late ' || word WHERE id % 3 = 0;
                 CREATE TABLE late AS SELECT i AS id FROM generate_series(1, 5000) i;
                 DELETE FROM sparse WHERE id % 2 = 0;
                 DROP TABLE refilled;
                 TRUNCATE loaded;
                 INSERT INTO fleeting SELECT i, 'late' FROM generate_series(100000, 110000) i;
                 CREATE DATABASE late;",
            )
            .unwrap();
    }
    cluster.crash().unwrap();
    cluster
}

#[test]
fn crashed_cluster_is_never_called_damaged() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let cluster = crashed(sample);
        let root = cluster.data_dir();
        let outcome = check([root]);
        let report = outcome.report();
        let damage = report.serious();
        assert!(!damage.iter().any(|one| one.severity == "damage"), "{version}: {damage:?}");
        assert!(["intact", "suspect"].contains(&report.verdict()), "{version}");
        assert_eq!(outcome.status, Some(0), "{version}");
        assert_eq!(report.pages("suspect"), 0, "{version}: {:?}", report.findings());
        assert_eq!(report.target()["live"], false);

        let mut dice = Dice::seeded();
        let before = report;
        // Nothing touched it since the checkpoint, so the log has no image of
        // it: recovery will not mend it.
        let quiet = sample.file("wide_toast");
        for damage in Damage::ALL {
            let what = format!("{version}: {damage:?}");
            let _wound = Wound::to(root.join(quiet)).inflict(damage, &mut dice, 4);
            let outcome = check([root]);
            let report = outcome.report();
            let [found] = report.serious().try_into().expect(&what);
            assert!(["damage", "suspect"].contains(&found.severity.as_str()), "{what}");
            let expected = Finding::page(quiet, 4, &found.severity, damage.kind());
            assert_eq!(found, expected, "{what}");
            assert_eq!(report.pages("total"), before.pages("total"), "{what}");
            assert_eq!(report.pages("damaged") + report.pages("suspect"), 1, "{what}");
            let strict = check(["--strict".as_ref(), root.as_os_str()]);
            assert_eq!(strict.status, Some(1), "{what}");
        }
        // Recovery empties what is unlogged.
        let unlogged = sample.file("fleeting");
        let _wound = Wound::to(root.join(unlogged)).inflict(Damage::Noise, &mut dice, 1);
        let outcome = check([root]);
        let report = outcome.report();
        assert_eq!(
            report.findings(),
            [Finding::page(unlogged, 1, "notice", "header")],
            "{version}"
        );
        assert_eq!(outcome.status, Some(0), "{version}");
    }
}

/// It is not known then what recovery would have mended.
#[test]
fn failing_page_of_a_crashed_cluster_without_its_log_is_suspect() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let cluster = crashed(sample);
        let root = cluster.data_dir();
        let log = root.join(if installation.major < 10 { "pg_xlog" } else { "pg_wal" });
        fs::remove_dir_all(&log).unwrap();
        fs::create_dir(&log).unwrap();
        // That the checkpoint record is not there is reported once.
        let beside_log = |report: &Report| {
            let (log, others): (Vec<_>, Vec<_>) = report
                .serious()
                .into_iter()
                .partition(|one| one.file.starts_with("pg_wal") || one.file.starts_with("pg_xlog"));
            assert_eq!(log.len(), 1, "{version}: {log:?}");
            others
        };
        assert_eq!(beside_log(&check([root]).report()), [], "{version}");
        let quiet = sample.file("wide_toast");
        let mut dice = Dice::seeded();
        for damage in Damage::ALL {
            let what = format!("{version}: {damage:?}");
            let _wound = Wound::to(root.join(quiet)).inflict(damage, &mut dice, 4);
            let outcome = check([root]);
            let report = outcome.report();
            // Without the log it is not known where it ended, either.
            let expected = (damage != Damage::FutureLsn)
                .then(|| Finding::page(quiet, 4, "suspect", damage.kind()));
            assert_eq!(beside_log(&report), Vec::from_iter(expected), "{what}");
            assert_eq!(outcome.status, Some(0), "{what}");
            assert_eq!(report.pages("damaged"), 0, "{what}");
        }
        let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 100);
        let _wound = Wound::to(root.join(quiet)).change(cut);
        let serious = beside_log(&check([root]).report());
        let kinds: Vec<_> = serious.iter().map(|one| (&*one.severity, &*one.kind)).collect();
        assert_eq!(kinds, [("suspect", "truncated")], "{version}");
    }
}

/// Only a server that runs now makes a cluster a live one.
#[test]
fn pid_file_of_a_dead_server_or_of_another_program_is_not_believed() {
    for installation in installations() {
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let root = cluster.data_dir();
        let mut dice = Dice::seeded();
        let item = sample.file("item");
        let _wound = Wound::to(root.join(item)).inflict(Damage::BitInTuple, &mut dice, 4);
        let ours = std::process::id();
        for pid in ["999999999".to_owned(), ours.to_string(), "0".into(), "x".into(), String::new()]
        {
            let text = format!("{pid}\n{}\n1\n5432\n/tmp\n\n1 2\nready   \n", root.display());
            let _pid_file = Wound::to(root.join("postmaster.pid")).write(text.as_bytes());
            let report = check([root]).report();
            assert_eq!(report.target()["live"], false, "{pid}");
            assert_eq!(report.findings(), [Finding::page(item, 4, "damage", "checksum")], "{pid}");
        }
    }
}

#[test]
fn failing_page_of_a_backup_is_suspect() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let root = cluster.data_dir();
        let label = b"START WAL LOCATION: 0/2000028\n";
        let _label = Wound::to(root.join("backup_label")).write(label);
        let report = check([root]).report();
        assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{version}");
        let item = sample.file("item");
        let mut dice = Dice::seeded();
        for damage in Damage::ALL.into_iter().filter(|damage| *damage != Damage::FutureLsn) {
            let _wound = Wound::to(root.join(item)).inflict(damage, &mut dice, 4);
            let outcome = check([root]);
            let report = outcome.report();
            let expected = Finding::page(item, 4, "suspect", damage.kind());
            assert_eq!(report.findings(), [expected], "{version}: {damage:?}");
            assert_eq!((outcome.status, report.verdict()), (Some(0), "suspect"));
        }
        // The log may lie elsewhere, so where it ends is not known for sure.
        let _wound = Wound::to(root.join(item)).inflict(Damage::FutureLsn, &mut dice, 4);
        assert_eq!(check([root]).report().findings(), [], "{version}");
    }
}

#[test]
fn base_backup_of_a_busy_server_is_intact() {
    for installation in installations() {
        if !installation.has("pg_basebackup") {
            continue;
        }
        let version = &installation.version;
        let mut cluster = sample(&installation, true).copy();
        cluster.start().unwrap();
        let target = cluster.home().join("backup");
        let space = fs::read_dir(cluster.data_dir().join("pg_tblspc")).unwrap().next().unwrap();
        let space = fs::read_link(space.unwrap().path()).unwrap();
        let mut load = cluster.client("pgbench").unwrap();
        let mut load = load
            .args(["-n", "-c", "2", "-T", "60"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let backup = cluster
            .client("pg_basebackup")
            .unwrap()
            .args(["--checkpoint=fast", "--no-sync", "-X", "stream", "-D"])
            .arg(&target)
            .arg("-T")
            .arg(format!("{}={}", space.display(), cluster.home().join("space_copy").display()))
            .output()
            .unwrap();
        load.kill().unwrap();
        load.wait().unwrap();
        assert!(backup.status.success(), "{version}: {backup:?}");
        let outcome = check([&target]);
        let report = outcome.report();
        // Torn pages are to be mended by the log; the tool that copied them
        // looks at checksums too, so there are next to none.
        assert!(!report.serious().iter().any(|one| one.severity == "damage"), "{version}");
        assert!(["intact", "suspect"].contains(&report.verdict()), "{version}");
        assert_eq!(outcome.status, Some(0), "{version}");
        assert!(report.pages("ok") * PAGE as u64 > 10 << 20, "{version}");
    }
}
