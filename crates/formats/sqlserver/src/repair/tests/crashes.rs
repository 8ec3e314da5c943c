//! Runs that end at any change to the disk, by a kill or by power failure, which the same command
//! finishes, and `--undo` undoes. The copy is there already, as a run leaves it that was interrupted
//! behind it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{PUBS, Place, data_file, formatted};
use crate::checksum::PAGE_BYTES;
use crate::repair::ENGINE;
use pagewarden_core::repair::{Proof, Request, Verdict};
use pagewarden_core::testing::interrupted_repair::{self, InterruptedRepair};
use pagewarden_core::testing::recorder::{Change, Image, Recorder, image, in_memory};

const NAME: &str = "pubs.mdf";
const UNDO: &str = "pubs.mdf.pagewarden-repair.undo";
const WOUNDED: [usize; 3] = [16, 40, 41];

/// Mends the copy in `root`.
fn request(root: &Path, original: &Path, backup: &Path) -> Request {
    Request {
        sources: vec![backup.into()],
        write: true,
        copy_to: Some(root.to_owned()),
        ..Request::new(original)
    }
}

struct Made {
    _places: (Place, tempfile::TempDir),
    original: PathBuf,
    backup: PathBuf,
    before: Image,
    sound: Vec<u8>,
    changes: Vec<Change>,
}

/// A whole run, recorded.
fn made() -> Option<Made> {
    let (place, folder) = (Place::new(), in_memory());
    let backup = place.put_fixture(PUBS)?;
    let root = folder.path().join("data");
    fs::create_dir(&root).unwrap();
    let mut sound = data_file(&backup);
    // Its length is what interruptions are slow by.
    let last = formatted(&sound, 1).last().copied().unwrap();
    sound.truncate((usize::try_from(last).unwrap() + 1) * PAGE_BYTES);
    let mut wounded = sound.clone();
    for page in WOUNDED {
        wounded[page * PAGE_BYTES + 140..page * PAGE_BYTES + 900].fill(0xE7);
    }
    fs::write(root.join(NAME), &wounded).unwrap();
    let original = place.put(NAME, &wounded);
    let before = image(&root);
    let recorder = Recorder::new(&root, usize::MAX, 0);
    let outcome =
        interrupted_repair::run(ENGINE, &recorder, &request(&root, &original, &backup)).unwrap();
    assert_eq!(outcome.verdict, Verdict::Repaired, "{outcome:#?}");
    assert!(outcome.pages.iter().all(|page| page.proof == Some(Proof::Exact)), "{outcome:#?}");
    assert_eq!(outcome.pages.len(), WOUNDED.len());
    let changes = recorder.changes.into_inner().unwrap().0;
    Some(Made { _places: (place, folder), original, backup, before, sound, changes })
}

/// Calls `each` with what is to be interrupted.
fn interrupted(made: &Made, each: impl FnOnce(&InterruptedRepair<'_>)) {
    each(&InterruptedRepair {
        engine: ENGINE,
        before: &made.before,
        changes: &made.changes,
        request: &|root| request(root, &made.original, &made.backup),
        undo_file: UNDO,
        is_repaired: &|root| fs::read(root.join(NAME)).unwrap() == made.sound,
    });
}

#[test]
fn killed_at_any_change_it_is_finished_or_undone() {
    let Some(made) = made() else { return };
    interrupted(&made, |run| run.is_finished_or_undone_when_killed(8, 4));
}

#[test]
fn after_power_failure_at_any_change_it_is_finished_and_undone() {
    let Some(made) = made() else { return };
    interrupted(&made, |run| {
        run.is_finished_and_undone_after_power_failures();
    });
}
