//! Seals as proof: a page of an old copy that is the one that was sealed counts as of the seal, so that less log is
//! needed.

use std::fs;

use pagewarden_scratch::postgres::{Cluster, Options, StopMode};
use serde_json::Value;

use super::history::base_backup;
use super::{contents_of, is_same_version, page_at, wound};
use crate::clusters::installations;
use crate::damage::Dice;
use crate::runner::{Outcome, pagewarden, run};

const WOUNDS: usize = 100;

fn exact(outcome: &Outcome) -> usize {
    let object: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", outcome.stdout, outcome.stderr));
    let pages = object["pages"].as_array().unwrap();
    pages.iter().filter(|page| page["proof"] == "exact").count()
}

/// Makes the server forget its log, as far as it can.
fn forget_log(cluster: &Cluster) {
    for _ in 0..6 {
        cluster.psql("SELECT txid_current()").unwrap();
        cluster.psql("SELECT pg_switch_wal()").unwrap();
        cluster.psql("CHECKPOINT").unwrap();
    }
}

#[test]
fn page_of_an_old_copy_that_was_sealed_is_proved_by_the_seal() {
    for installation in installations() {
        let options = Options { wal_segment_mib: Some(1), ..Options::default() }
            .with("autovacuum", "off")
            .with("wal_keep_size", "'3MB'")
            .with("min_wal_size", "'2MB'")
            .with("max_wal_size", "'2MB'");
        let mut cluster = Cluster::init(&installation, &options).unwrap();
        cluster.start().unwrap();
        if !cluster.has_psql() || cluster.client("pg_basebackup").is_err() {
            continue;
        }
        let make = |name: &str| {
            format!(
                "CREATE TABLE {name} AS SELECT i, md5(i::text) AS word FROM generate_series(1, 9000) i"
            )
        };
        cluster.psql(&make("still")).unwrap();
        cluster.psql(&make("busy")).unwrap();
        let backup = base_backup(&cluster, "backup", &["-X", "none"]);
        cluster.psql("UPDATE busy SET word = 'between'").unwrap();
        forget_log(&cluster);
        cluster.stop(StopMode::Fast).unwrap();
        let seal = cluster.home().join("it.seal");
        let mut sealing = pagewarden();
        sealing.arg("check").arg(cluster.data_dir()).arg("--seal").arg(&seal).arg("-q");
        let sealed = run(&mut sealing);
        assert_eq!(sealed.status, Some(0), "{} {}", sealed.stdout, sealed.stderr);
        cluster.start().unwrap();
        cluster.psql("UPDATE busy SET word = 'after' WHERE i % 50 = 0").unwrap();
        cluster.stop(StopMode::Fast).unwrap();

        let root = cluster.data_dir();
        let sound = contents_of(root);
        let is_wanted = |file: &str| file.starts_with("base/5/");
        let wounds = wound(root, &sound, &mut Dice::seeded(), is_wanted, WOUNDS);
        let repair = |arguments: &[&str]| {
            let mut command = pagewarden();
            command.args(["repair", "--json", "-q"]).arg(root).arg("--from").arg(&backup);
            run(command.args(arguments))
        };
        let seal = seal.to_str().unwrap();
        let (without, with) = (exact(&repair(&[])), exact(&repair(&["--seal", seal])));
        println!("PostgreSQL {}: {with} exact, {without} without the seal", installation.version);
        assert!(
            with > without + WOUNDS / 4,
            "{with} {without}: {}",
            repair(&["--seal", seal]).stdout
        );
        let written = repair(&["--seal", seal, "--yes"]);
        assert!(matches!(written.status, Some(0 | 1)), "{} {}", written.stdout, written.stderr);
        let object: Value = serde_json::from_str(&written.stdout).unwrap();
        let repaired = contents_of(root);
        let mut compared = 0;
        for page in object["pages"].as_array().unwrap() {
            let is_it = |wound: &&super::Wound| {
                wound.file == page["file"].as_str().unwrap_or_default()
                    && page["page"].as_u64() == Some(wound.block as u64)
            };
            let found = wounds.iter().find(is_it).filter(|_| page["proof"] == "exact");
            if let Some(wound) = found {
                let (before, now) = (page_at(&sound, wound), page_at(&repaired, wound));
                assert!(is_same_version(&before, &now), "{page}");
                compared += 1;
            }
        }
        assert_eq!(compared, with);

        // A seal of another cluster, and of a running one.
        let other = Cluster::init(&installation, &Options::default()).unwrap();
        let strange = cluster.home().join("strange.seal");
        let mut sealing = pagewarden();
        sealing.arg("check").arg(other.data_dir()).arg("--seal").arg(&strange).arg("-q");
        assert_eq!(run(&mut sealing).status, Some(0));
        fs::remove_file(root.join("pagewarden-repair.undo")).unwrap();
        let refused = repair(&["--seal", strange.to_str().unwrap()]);
        assert_eq!(refused.status, Some(2), "{}", refused.stdout);
        assert!(refused.stdout.contains("a seal of another database"), "{}", refused.stdout);
    }
}
