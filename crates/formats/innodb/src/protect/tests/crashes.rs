//! Runs that end at any change to the disk, by a kill or by power failure: see the tests of the
//! same name of PostgreSQL. In every state each file must be, as a whole, old or new.

use std::fs;
use std::path::Path;

use super::{all_files_are_whole, assert_protected, directory_in, request, run_on, server_accepts};
use pagewarden_core::protect::{Options, Request};
use pagewarden_core::testing::recorder::{
    Change, Dice, Hasty, Recorder, Remains, after_each_power_failure, image, in_memory, laid_out,
    let_journal_name_these_files, one_thread,
};

/// How many changes a whole run makes, and its record.
fn whole_record(root: &Path) -> Vec<Change> {
    let recorder = Recorder::new(root, usize::MAX, 0);
    run_on(&recorder, &request(root), &one_thread()).unwrap();
    recorder.changes.into_inner().unwrap().0
}

#[test]
fn killed_at_any_change_the_same_command_finishes() {
    let (_folder, root) = directory_in(in_memory());
    let before = image(&root);
    let count = whole_record(&root).len();
    assert!(count >= 200, "{count} moments");
    let mut resumed_most = 0;
    for lives in 0..count {
        let (_folder, root) = laid_out(&before);
        let recorder = Recorder::new(&root, lives, lives as u64 + 1);
        let first = run_on(&recorder, &request(&root), &one_thread());
        assert!(first.is_err() || lives + 1 >= count, "{lives} of {count}");
        all_files_are_whole(&before, &image(&root));
        let second = run_on(&Hasty, &request(&root), &one_thread())
            .unwrap_or_else(|error| panic!("after {lives} of {count}: {error}"));
        assert_protected(&before, &root);
        resumed_most = resumed_most.max(second.files_resumed);
    }
    assert!(resumed_most > 10, "the journal was of no use: {resumed_most}");
}

#[test]
fn killed_with_several_threads_the_same_command_finishes() {
    let (_folder, root) = directory_in(in_memory());
    let before = image(&root);
    for lives in (3..300).step_by(9) {
        let (_folder, root) = laid_out(&before);
        let options = Options { jobs: std::num::NonZero::new(4).unwrap(), ..one_thread() };
        let _ = run_on(&Recorder::new(&root, lives, 5), &request(&root), &options);
        all_files_are_whole(&before, &image(&root));
        run_on(&Hasty, &request(&root), &options).unwrap();
        assert_protected(&before, &root);
    }
}

#[test]
fn after_power_failure_at_any_change_the_same_command_finishes() {
    let (_folder, root) = directory_in(in_memory());
    let before = image(&root);
    let changes = whole_record(&root);
    let mut resumed_most = 0;
    after_each_power_failure(&before, &changes, 2, |root, end| {
        all_files_are_whole(&before, &image(root));
        let_journal_name_these_files(root);
        let outcome = run_on(&Hasty, &request(root), &one_thread())
            .unwrap_or_else(|error| panic!("after {end}: {error}"));
        resumed_most = resumed_most.max(outcome.files_resumed);
        assert_protected(&before, root);
    });
    assert!(resumed_most > 3, "the journal was of no use: {resumed_most}");
}

/// The same test must fail where the order is broken, or it proves nothing.
#[test]
fn power_failure_without_syncs_would_be_noticed() {
    let (_folder, root) = directory_in(in_memory());
    let before = image(&root);
    let mut changes = whole_record(&root);
    changes.retain(|change| !matches!(change, Change::Sync(_)));
    let mut dice = Dice(3);
    let after = Remains::of(&before, &changes, &mut dice).image();
    let torn = before.iter().any(|(name, bytes)| {
        let Some(bytes) = bytes else { return false };
        let now = after[name].as_ref().unwrap();
        let is_small = name.starts_with("shop") && name.to_str().unwrap().contains("small");
        is_small
            && (now.len() != bytes.len()
                || now.chunks(4096).any(|page| !server_accepts(page, false)))
    });
    assert!(torn, "no page is torn");
}

#[test]
fn copy_that_is_interrupted_is_no_database_and_is_finished() {
    let (_folder, root) = directory_in(in_memory());
    let before = image(&root);
    let into = |folder: &Path| Request { copy_to: Some(folder.join("copy")), ..request(&root) };
    let folder = in_memory();
    let copy = folder.path().join("copy");
    let recorder = Recorder::new(&copy, usize::MAX, 0);
    run_on(&recorder, &into(folder.path()), &one_thread()).unwrap();
    assert_protected(&before, &copy);
    let changes = recorder.changes.into_inner().unwrap().0;
    let is_true = |copy: &Path| {
        if copy.join("ibdata1").exists() {
            assert!(all_files_are_whole(&before, &image(copy)), "the copy claims too much");
        }
    };
    let mut dice = Dice(11);
    for end in (0..changes.len()).step_by(5) {
        // A kill.
        let folder = in_memory();
        let copy = folder.path().join("copy");
        let _ = run_on(&Recorder::new(&copy, end, 9), &into(folder.path()), &one_thread());
        is_true(&copy);
        if let Err(error) = run_on(&Hasty, &into(folder.path()), &one_thread()) {
            // Complete, and no longer ours to touch.
            assert!(error.to_string().contains("not empty"), "after {end}: {error}");
            assert!(copy.join("ibdata1").exists(), "after {end}: {error}");
        }
        assert_protected(&before, &copy);
        // Power failure.
        let folder = in_memory();
        let copy = folder.path().join("copy");
        fs::create_dir(&copy).unwrap();
        let nothing = std::collections::BTreeMap::new();
        Remains::of(&nothing, &changes[..end], &mut dice).lay_out_below(&copy);
        is_true(&copy);
    }
    assert_eq!(image(&root), before, "the source was written to");
}
