//! Runs that end at any change to the disk, by a kill or by power failure, which the same command
//! finishes, and `--undo` undoes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::repair::ENGINE;
use pagewarden_core::protect::disk::Disk;
use pagewarden_core::repair::{Outcome, Proof, Request, Verdict};
use pagewarden_core::testing::interrupted_repair::{self, InterruptedRepair};
use pagewarden_core::testing::recorder::{Change, Image, Recorder, image, in_memory};

const PAGE: usize = 512;
const NAME: &str = "x.db";
const UNDO: &str = "x.db.pagewarden-repair.undo";
/// Their sums stay as they were, and show what belongs there.
const WOUNDED: [usize; 3] = [3, 5, 9];

fn request(root: &Path, copy: &Path) -> Request {
    Request { sources: vec![copy.into()], write: true, ..Request::new(&root.join(NAME)) }
}

fn run(disk: &dyn Disk, request: &Request) -> Result<Outcome, pagewarden_core::error::Error> {
    interrupted_repair::run(ENGINE, disk, request)
}

struct Made {
    _folder: tempfile::TempDir,
    copy: PathBuf,
    before: Image,
    sound: Vec<u8>,
    changes: Vec<Change>,
}

/// A whole run on a database that carries the sums of SQLite's own VFS, recorded.
fn made() -> Made {
    let folder = in_memory();
    let root = folder.path().join("data");
    fs::create_dir(&root).unwrap();
    let golden = "/../../../fixtures/sqlite/3.40.1/cksumvfs-512.db";
    let sound = fs::read(format!("{}{golden}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let copy = folder.path().join("copy.db");
    fs::write(&copy, &sound).unwrap();
    let mut wounded = sound.clone();
    for page in WOUNDED {
        wounded[(page - 1) * PAGE + 40..(page - 1) * PAGE + 90].fill(0xE7);
    }
    fs::write(root.join(NAME), wounded).unwrap();
    let before = image(&root);
    let recorder = Recorder::new(&root, usize::MAX, 0);
    let outcome = run(&recorder, &request(&root, &copy)).unwrap();
    assert_eq!(outcome.verdict, Verdict::Repaired, "{outcome:?}");
    assert!(outcome.pages.iter().all(|page| page.proof == Some(Proof::Exact)), "{outcome:?}");
    assert_eq!(outcome.pages.len(), WOUNDED.len());
    let changes = recorder.changes.into_inner().unwrap().0;
    Made { _folder: folder, copy, before, sound, changes }
}

/// Calls `each` with what is to be interrupted.
fn interrupted(made: &Made, each: impl FnOnce(&InterruptedRepair<'_>)) {
    each(&InterruptedRepair {
        engine: ENGINE,
        before: &made.before,
        changes: &made.changes,
        request: &|root| request(root, &made.copy),
        undo_file: UNDO,
        is_repaired: &|root| fs::read(root.join(NAME)).unwrap() == made.sound,
    });
}

#[test]
fn killed_at_any_change_it_is_finished_or_undone() {
    interrupted(&made(), |run| run.is_finished_or_undone_when_killed(8, 4));
}

#[test]
fn after_power_failure_at_any_change_it_is_finished_and_undone() {
    interrupted(&made(), |run| {
        run.is_finished_and_undone_after_power_failures();
    });
}
