//! `repair --replay`: pages that no copy has in their last version are brought forward by the server's own redo.

use std::fs;
use std::path::Path;

use pagewarden_scratch::postgres::StopMode;
use serde_json::Value;

use super::history::base_backup;
use super::stored::{archive_to_folder, archiving, go_on_and_stop};
use super::{contents_of, is_same_version, page_at, wound};
use crate::clusters::installations_for_campaigns;
use crate::damage::Dice;
use crate::runner::{Outcome, pagewarden, run};

const WOUNDS: usize = 120;

fn repair(root: &Path, from: &Path, log: &Path, arguments: &[&str]) -> Outcome {
    let mut command = pagewarden();
    command.args(["repair", "--json", "--quiet"]).arg(root).arg("--from").arg(from);
    run(command.arg("--log").arg(log).args(arguments))
}

/// How many pages have each proof.
fn proofs(outcome: &Outcome) -> impl Fn(&str) -> usize {
    let object: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", outcome.stdout, outcome.stderr));
    let pages = object["pages"].as_array().unwrap().clone();
    move |proof| pages.iter().filter(|page| page["proof"].as_str() == Some(proof)).count()
}

#[test]
fn pages_that_changed_since_the_backup_are_brought_forward() {
    for installation in installations_for_campaigns() {
        if !installation.has("pgbench") {
            continue;
        }
        let Some(mut cluster) = archiving(&installation) else { continue };
        let log = archive_to_folder(&mut cluster);
        cluster.pgbench(&["-i", "-s", "1", "-q"]).unwrap();
        let folder = base_backup(&cluster, "folder", &["-X", "none"]);
        let archives = base_backup(&cluster, "archives", &["-Ft", "-z", "-X", "none"]);
        // Twice to the same pages: the first change of a page after a checkpoint brings all of it.
        for _ in 0..2 {
            cluster
                .psql("UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid % 2 = 0")
                .unwrap();
        }
        go_on_and_stop(&mut cluster);
        let root = cluster.data_dir();
        let sound = contents_of(root);
        let is_wanted = |file: &str| file.starts_with("base/5/");
        for source in [&folder, &archives] {
            let wounds = wound(root, &sound, &mut Dice::seeded(), is_wanted, WOUNDS);
            let wounded = contents_of(root);
            let plain = repair(root, source, &log, &[]);
            assert!(proofs(&plain)("older") > 10, "{}", plain.stdout);
            let planned = repair(root, source, &log, &["--replay"]);
            assert!(contents_of(root) == wounded, "a plan wrote");
            let count = proofs(&planned);
            println!(
                "PostgreSQL {}: exact {}, replayed {}, rebuilt {}, older {} ({} without replay)",
                installation.version,
                count("exact"),
                count("replayed"),
                count("rebuilt"),
                count("older"),
                proofs(&plain)("older"),
            );
            assert_eq!(count("older"), 0, "{}", planned.stdout);
            let named = format!("{}: base/5/", source.display());
            assert!(planned.stdout.contains(&named), "{}", planned.stdout);
            assert!(planned.stdout.contains("brought forward by the server's own redo"));
            assert!(count("replayed") >= proofs(&plain)("older"), "{}", planned.stdout);
            let written = repair(root, source, &log, &["--replay", "--yes"]);
            assert_eq!(written.status, Some(0), "{} {}", written.stdout, written.stderr);
            let repaired = contents_of(root);
            for wound in &wounds {
                let (before, now) = (page_at(&sound, wound), page_at(&repaired, wound));
                let is_map = wound.file.ends_with("_fsm") || wound.file.ends_with("_vm");
                assert!(is_map || is_same_version(&before, &now), "{} {}", wound.file, wound.block);
            }
            fs::remove_file(root.join("pagewarden-repair.undo")).unwrap();
            for (file, bytes) in &sound {
                fs::write(root.join(file), bytes).unwrap();
            }
        }
        // A hole in the log, and redo does not come to the end: nothing is taken.
        let mut names: Vec<_> = fs::read_dir(&log).unwrap().map(|it| it.unwrap().path()).collect();
        names.retain(|path| path.extension().is_none());
        names.sort();
        fs::remove_file(&names[names.len() - 3]).unwrap();
        wound(root, &sound, &mut Dice::seeded(), is_wanted, WOUNDS);
        let wounded = contents_of(root);
        let refused = repair(root, &folder, &log, &["--replay", "--yes"]);
        assert_eq!(refused.status, Some(2), "{}", refused.stdout);
        assert!(refused.stdout.contains("redo did not come to"), "{}", refused.stdout);
        assert!(contents_of(root) == wounded);
        for (file, bytes) in &sound {
            fs::write(root.join(file), bytes).unwrap();
        }
        cluster.start().unwrap();
        cluster.stop(StopMode::Fast).unwrap();
    }
}
