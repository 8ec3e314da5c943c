//! Runs that end at any change to the disk, by a kill or by power failure: see the tests of the
//! same name of PostgreSQL.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::{
    CHECKSUM, CLEAN, Files, assert_copied, copy_of, image, lay_out, request, run_on, shop_of,
};
use crate::checksum::PAGE_BYTES;
use pagewarden_core::protect::Options;
use pagewarden_core::testing::recorder::{Change, Dice, Hasty, Recorder, Remains, one_thread};
use pagewarden_core::verdict::Protection;

/// What holds in every moment: whatever has its own name is whole, a primary file has it only
/// when all others do, and what has not is known by its name, and without its first page unless it
/// is whole. Says whether the copy is complete.
fn is_true_to_its_word(whole: &Files, copy: &Files) -> bool {
    for (name, bytes) in copy {
        if let Some(own) = name.strip_suffix(".pagewarden-unfinished") {
            let begin = &bytes[..bytes.len().min(PAGE_BYTES)];
            let page = &whole[own][..PAGE_BYTES];
            let is_begun = begin.iter().zip(page).all(|(is, was)| is == was || *is == 0);
            assert!(is_begun, "{name} begins with something else");
            if begin.iter().any(|byte| *byte != 0) {
                // The first page is written when all others are on the device.
                assert!(bytes[PAGE_BYTES..] == whole[own][PAGE_BYTES..], "{name} begins too soon");
            }
        } else if name != "pagewarden-protect.copy" {
            assert!(*bytes == whole[name], "{name} is not whole");
        }
    }
    let is_complete = copy.contains_key("shop.mdf");
    assert!(!is_complete || whole.keys().all(|name| copy.contains_key(name)));
    is_complete
}

fn whole_copy(before: &Files, mode: Protection) -> (Files, Vec<Change>) {
    let (_folder, root) = lay_out(before);
    let (copy, changes) = record_of(&root, mode);
    assert_copied(before, &copy, mode);
    (copy, changes)
}

/// A copy of these very files, and every change that made it.
fn record_of(root: &Path, mode: Protection) -> (Files, Vec<Change>) {
    let copy = copy_of(root);
    let recorder = Recorder::new(&copy, usize::MAX, 0);
    run_on(&recorder, &request(root, mode), &one_thread()).unwrap();
    (image(&copy), recorder.changes.into_inner().unwrap().0)
}

/// Makes the copy on what is left of one.
fn finish(root: &Path, whole: &Files, was_complete: bool, mode: Protection) {
    let begin = Instant::now();
    let finished = loop {
        match run_on(&Hasty, &request(root, mode), &one_thread()) {
            // A program that another test has begun holds our lock until it is its own.
            Err(error) if error.to_string().contains("another run") => {
                assert!(begin.elapsed() < Duration::from_secs(20), "{error}");
                thread::sleep(Duration::from_millis(5));
            }
            finished => break finished,
        }
    };
    match finished {
        Ok(_) => {}
        // Complete, and no longer ours to touch.
        Err(error) => {
            assert!(was_complete && error.to_string().contains("not empty"), "{error}");
        }
    }
    assert!(image(&copy_of(root)) == *whole);
}

#[test]
fn killed_at_any_change_the_copy_is_known_as_unfinished_and_the_same_command_makes_it() {
    let before = shop_of(CLEAN | CHECKSUM);
    let (_folder, root) = lay_out(&before);
    let copy = copy_of(&root);
    let mut moments = 0;
    for mode in super::MODES {
        let (whole, changes) = whole_copy(&before, mode);
        for lives in 0..changes.len() {
            let recorder = Recorder::new(&copy, lives, lives as u64 + 1);
            let died = run_on(&recorder, &request(&root, mode), &one_thread());
            assert!(died.is_err(), "{lives}");
            let is_complete = is_true_to_its_word(&whole, &image(&copy));
            finish(&root, &whole, is_complete, mode);
            fs::remove_dir_all(&copy).unwrap();
            moments += 1;
        }
    }
    assert!(moments >= 200, "{moments} moments");
    assert!(image(&root) == before, "the source was written to");
}

#[test]
fn killed_again_and_again_the_same_command_makes_the_copy() {
    let before = shop_of(CLEAN | CHECKSUM);
    let (whole, changes) = whole_copy(&before, Protection::Torn);
    let (_folder, root) = lay_out(&before);
    let mut dice = Dice(17);
    for _ in 0..30 {
        let mut is_complete = false;
        for _ in 0..3 {
            let lives = dice.below(changes.len());
            let _ = run_on(
                &Recorder::new(&copy_of(&root), lives, lives as u64 + 1),
                &request(&root, Protection::Torn),
                &Options { jobs: std::num::NonZero::new(3).unwrap(), ..one_thread() },
            );
            is_complete = is_true_to_its_word(&whole, &image(&copy_of(&root)));
        }
        finish(&root, &whole, is_complete, Protection::Torn);
        fs::remove_dir_all(copy_of(&root)).unwrap();
    }
}

/// Puts what power failure may leave of these changes in the place of the copy.
fn lay_out_remains(root: &Path, changes: &[Change], dice: &mut Dice) -> PathBuf {
    let copy = copy_of(root);
    fs::create_dir(&copy).unwrap();
    Remains::of(&BTreeMap::new(), changes, dice).lay_out_below(&copy);
    copy
}

#[test]
fn after_power_failure_at_any_change_the_same_command_makes_the_copy() {
    let before = shop_of(CLEAN | CHECKSUM);
    let (_folder, root) = lay_out(&before);
    // Of this very folder: the marker knows the times of its files.
    let (whole, changes) = record_of(&root, Protection::Torn);
    fs::remove_dir_all(copy_of(&root)).unwrap();
    let mut dice = Dice(3);
    for end in 0..=changes.len() {
        for _ in 0..3 {
            let copy = lay_out_remains(&root, &changes[..end], &mut dice);
            let is_complete = is_true_to_its_word(&whole, &image(&copy));
            finish(&root, &whole, is_complete, Protection::Torn);
            fs::remove_dir_all(copy).unwrap();
        }
    }
}

/// The same test must fail where the order is broken, or it proves nothing.
#[test]
fn power_failure_without_syncs_would_be_noticed() {
    let before = shop_of(CLEAN | CHECKSUM);
    let (whole, mut changes) = whole_copy(&before, Protection::Torn);
    changes.retain(|change| !matches!(change, Change::Sync(_)));
    let mut dice = Dice(3);
    let (_folder, root) = lay_out(&before);
    let lies = (0..20).filter(|_| {
        let copy = lay_out_remains(&root, &changes, &mut dice);
        let left = image(&copy);
        fs::remove_dir_all(copy).unwrap();
        left.get("shop.mdf").is_some_and(|bytes| *bytes != whole["shop.mdf"])
    });
    assert!(lies.count() > 0);
}
