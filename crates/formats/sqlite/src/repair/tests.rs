//! Runs that end at any change to the disk, by a kill or by power failure, which the same command
//! finishes, and `--undo` undoes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::repair::ENGINE;
use pagewarden_core::protect::disk::Disk;
use pagewarden_core::repair::copies::Packs;
use pagewarden_core::repair::{Means, Options, Outcome, Proof, Request, Verdict, repair_with};
use pagewarden_core::testing::recorder::{
    Change, Hasty, Image, Recorder, after_each_power_failure, image, in_memory, laid_out,
};

const PAGE: usize = 512;
const NAME: &str = "x.db";
const UNDO: &str = "x.db.pagewarden-repair.undo";
/// Their sums stay as they were, and show what belongs there.
const WOUNDED: [usize; 3] = [3, 5, 9];

fn request(root: &Path, copy: &Path) -> Request {
    Request { sources: vec![copy.to_owned()], write: true, ..Request::new(&root.join(NAME)) }
}

fn run(disk: &dyn Disk, request: &Request) -> Result<Outcome, pagewarden_core::error::Error> {
    let means = Means { disk, engines: &[ENGINE], packs: Packs::NONE };
    repair_with(means, request, &Options::default(), &())
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

/// What is left is finished by the same command; and what that leaves is undone.
fn finish_and_undo(made: &Made, root: &Path, case: &str) {
    let outcome = run(&Hasty, &request(root, &made.copy));
    let outcome = outcome.unwrap_or_else(|error| panic!("{case}: {error}"));
    assert!(fs::read(root.join(NAME)).unwrap() == made.sound, "{case}: {outcome:?}");
    undo(made, root, case);
}

fn undo(made: &Made, root: &Path, case: &str) {
    let undo = Some(root.join(UNDO));
    let request = Request { undo, write: true, ..Request::new(&root.join(NAME)) };
    let outcome = run(&Hasty, &request).unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!(outcome.verdict, Verdict::Undone);
    assert!(image(root) == made.before, "{case}: not every byte is back");
}

#[test]
fn killed_at_any_change_it_is_finished_or_undone() {
    let made = made();
    let count = made.changes.len();
    assert!(count >= 8, "{count} moments");
    let mut begun = 0;
    for lives in 0..count {
        for undoes_at_once in [false, true] {
            let (_folder, root) = laid_out(&made.before);
            let recorder = Recorder::new(&root, lives, lives as u64 + 1);
            let _ = run(&recorder, &request(&root, &made.copy));
            let case = format!("killed after {lives} of {count}");
            let has_undo = root.join(UNDO).exists();
            if undoes_at_once && has_undo {
                begun += 1;
                undo(&made, &root, &case);
            } else if !undoes_at_once {
                finish_and_undo(&made, &root, &case);
            }
        }
    }
    assert!(begun > 3, "{begun}");
}

#[test]
fn after_power_failure_at_any_change_it_is_finished_and_undone() {
    let made = made();
    after_each_power_failure(&made.before, &made.changes, 3, |root, end| {
        finish_and_undo(&made, root, &format!("power failed after {end}"));
    });
}
