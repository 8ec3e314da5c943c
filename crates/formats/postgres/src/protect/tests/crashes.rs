//! Runs that end at any change to the disk, by a kill or by power failure.
//!
//! Whatever is left must be true to what its control file says, and be finished by
//! the same command.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{
    PAGE, Run, all_pages_are_right, assert_protected, cluster_in, is_relation, request, run_cached,
    run_on, setting,
};
use pagewarden_core::protect::{Options, Request};
use pagewarden_core::testing::recorder::{
    Change, Dice, Hasty, Image, Recorder, Remains, after_each_power_failure, image, in_memory,
    laid_out, let_journal_name_these_files, one_thread,
};
use pagewarden_core::verdict::Protection;
use pagewarden_core::verify::Caching;

/// What holds in every moment: the control file is whole and says no more than is
/// true, pages are what they were, and no lock file stops a server for ever.
fn assert_true_to_its_word(before: &Image, root: &Path) {
    let after = image(root);
    let right = all_pages_are_right(before, &after);
    if setting(&after).unwrap() == Protection::Checksum {
        assert!(right, "the control file claims too much");
    }
    if let Some(Some(lock)) = after.get(Path::new("postmaster.pid")) {
        assert!(lock.starts_with(b"-"), "a server refuses to start over {lock:?}");
    }
}

/// Every change of a whole run, and how many writes went past the page cache.
fn whole_record(request: &Request, root: &Path, caching: Caching) -> (Vec<Change>, usize) {
    let recorder = Recorder::new(root, usize::MAX, 0);
    run_cached(&recorder, request, &one_thread(), caching).unwrap();
    let past = recorder.past.lock().unwrap().len();
    (recorder.changes.into_inner().unwrap().0, past)
}

#[test]
fn killed_at_any_change_the_same_command_finishes() {
    kill_at_any_change(Caching::Cached);
}

#[test]
fn killed_at_any_change_past_the_page_cache_the_same_command_finishes() {
    kill_at_any_change(Caching::Direct);
}

fn kill_at_any_change(caching: Caching) {
    let (_folder, root) = cluster_in(in_memory());
    let before = image(&root);
    let (changes, past) = whole_record(&request(&root, Protection::Checksum), &root, caching);
    if caching == Caching::Direct && past == 0 {
        eprintln!("skipped: this file system has no way past the page cache");
        return;
    }
    assert_eq!(past > 50, caching == Caching::Direct);
    let count = changes.len();
    // Past the cache runs are longer, and so fewer.
    assert!(count >= if past > 0 { 150 } else { 200 }, "{count} moments");
    let mut resumed_most = 0;
    for lives in 0..count {
        let (_folder, root) = laid_out(&before);
        let request = request(&root, Protection::Checksum);
        let recorder = Recorder::new(&root, lives, lives as u64 + 1);
        let first = run_cached(&recorder, &request, &one_thread(), caching);
        assert_true_to_its_word(&before, &root);
        // A run that dies while it tidies up has done its work.
        let was_done = first.is_ok() || setting(&image(&root)) == Some(Protection::Checksum);
        let second = run_cached(&Hasty, &request, &one_thread(), caching)
            .unwrap_or_else(|error| panic!("after {lives} of {count}: {error}"));
        assert_protected(&before, &root);
        assert!(was_done || second.before == Protection::None);
        resumed_most = resumed_most.max(second.files_resumed);
    }
    assert!(resumed_most > 20, "the journal was of no use: {resumed_most}");
}

#[test]
fn killed_with_several_threads_the_same_command_finishes() {
    let (_folder, root) = cluster_in(in_memory());
    let before = image(&root);
    for lives in (3..230).step_by(9) {
        let (_folder, root) = laid_out(&before);
        let request = request(&root, Protection::Checksum);
        let options = Options { jobs: std::num::NonZero::new(4).unwrap(), ..one_thread() };
        let _ = run_on(&Recorder::new(&root, lives, 5), &request, &options);
        assert_true_to_its_word(&before, &root);
        run_on(&Hasty, &request, &options).unwrap();
        assert_protected(&before, &root);
    }
}

#[test]
fn after_power_failure_at_any_change_the_same_command_finishes() {
    fail_power_at_any_change(Caching::Cached, 3);
}

#[test]
fn after_power_failure_past_the_page_cache_the_same_command_finishes() {
    fail_power_at_any_change(Caching::Direct, 1);
}

fn fail_power_at_any_change(caching: Caching, times: usize) {
    let (_folder, root) = cluster_in(in_memory());
    let before = image(&root);
    let (changes, past) = whole_record(&request(&root, Protection::Checksum), &root, caching);
    if caching == Caching::Direct && past == 0 {
        eprintln!("skipped: this file system has no way past the page cache");
        return;
    }
    let mut resumed_most = 0;
    after_each_power_failure(&before, &changes, times, |root, end| {
        assert_true_to_its_word(&before, root);
        let_journal_name_these_files(root);
        let request = request(root, Protection::Checksum);
        let outcome = run_cached(&Hasty, &request, &one_thread(), caching)
            .unwrap_or_else(|error| panic!("after {end}: {error}"));
        resumed_most = resumed_most.max(outcome.files_resumed);
        assert_protected(&before, root);
    });
    assert!(resumed_most > 3, "the journal was of no use: {resumed_most}");
}

/// The same test must fail where the order is broken, or it proves nothing.
#[test]
fn power_failure_without_syncs_would_be_noticed() {
    let (_folder, root) = cluster_in(in_memory());
    let before = image(&root);
    let request = request(&root, Protection::Checksum);
    let (mut changes, _) = whole_record(&request, &root, Caching::Cached);
    changes.retain(|change| !matches!(change, Change::Sync(_)));
    let mut dice = Dice(3);
    let mut lies = 0;
    for _ in 0..20 {
        let after = Remains::of(&before, &changes, &mut dice).image();
        let claims = setting(&after) == Some(Protection::Checksum);
        lies += u32::from(claims && !all_pages_are_right(&before, &after));
    }
    assert!(lies > 0);
}

/// A run that did not wait for the device, and was killed before the control file, leaves
/// pages that are right in the page cache only. The next finds nothing to write.
#[cfg(target_os = "linux")]
#[test]
fn what_another_run_wrote_is_on_the_device_before_the_control_file_claims_it() {
    const CONTROL: &str = "global/pg_control";
    let (_folder, root) = cluster_in(in_memory());
    let before = image(&root);
    let request = request(&root, Protection::Checksum);
    let recorder = Recorder::new(&root, usize::MAX, 0);
    let unwaited = Options { sync: false, ..one_thread() };
    run_cached(&recorder, &request, &unwaited, Caching::Cached).unwrap();
    let mut changes = recorder.changes.into_inner().unwrap().0;
    changes.retain(|change| matches!(change, Change::Write(name, ..) if is_relation(name)));
    fs::write(root.join(CONTROL), before[Path::new(CONTROL)].as_ref().unwrap()).unwrap();

    let recorder = Recorder::new(&root, usize::MAX, 0);
    let run = Run {
        disk: &recorder,
        request: &request,
        options: &one_thread(),
        progress: &(),
        caching: Caching::Cached,
        run_bytes: 2 * PAGE,
        batch_files: 100,
    };
    assert_eq!(run.run().unwrap().pages.changed, 0);
    assert_protected(&before, &root);
    changes.append(&mut recorder.changes.into_inner().unwrap().0);
    assert!(changes.iter().any(|change| matches!(change, Change::SyncAll)));
    let lies = |changes: &[Change]| {
        let mut dice = Dice(5);
        let lies = |_: &usize| {
            let after = Remains::of(&before, changes, &mut dice).image();
            let claims = setting(&after) == Some(Protection::Checksum);
            claims && !all_pages_are_right(&before, &after)
        };
        (0..20).filter(lies).count()
    };
    for end in 0..=changes.len() {
        assert_eq!(lies(&changes[..end]), 0, "after {end}");
    }
    // It would be noticed.
    changes.retain(|change| !matches!(change, Change::SyncAll));
    assert!(lies(&changes) > 0);
}

#[test]
fn copy_that_is_interrupted_is_no_cluster_and_is_finished() {
    let (_folder, root) = cluster_in(in_memory());
    let before = image(&root);
    let into = |folder: &Path| Request {
        copy_to: Some(folder.join("copy")),
        ..request(&root, Protection::Checksum)
    };
    let folder = in_memory();
    let copy = folder.path().join("copy");
    let recorder = Recorder::new(&copy, usize::MAX, 0);
    run_on(&recorder, &into(folder.path()), &one_thread()).unwrap();
    assert_protected(&before, &copy);
    let changes = recorder.changes.into_inner().unwrap().0;
    let mut dice = Dice(11);
    let is_true = |copy: &Path| {
        let after = if copy.exists() { image(copy) } else { BTreeMap::new() };
        if setting(&after).is_some() {
            assert!(after.contains_key(Path::new("PG_VERSION")));
            assert!(all_pages_are_right(&before, &after), "the copy claims too much");
        }
    };
    for end in (0..changes.len()).step_by(3) {
        // A kill.
        let folder = in_memory();
        let copy = folder.path().join("copy");
        let _ = run_on(&Recorder::new(&copy, end, 9), &into(folder.path()), &one_thread());
        is_true(&copy);
        let again = run_on(&Hasty, &into(folder.path()), &one_thread());
        match again {
            Ok(_) => {}
            // Complete, and no longer ours to touch.
            Err(error) => {
                assert!(error.to_string().contains("not empty"), "after {end}: {error}");
                assert!(setting(&image(&copy)).is_some(), "after {end}: {error}");
            }
        }
        assert_protected(&before, &copy);
        // Power failure.
        let folder = in_memory();
        let copy = folder.path().join("copy");
        let remains = Remains::of(&BTreeMap::new(), &changes[..end], &mut dice);
        fs::create_dir(&copy).unwrap();
        remains.lay_out_below(&copy);
        is_true(&copy);
    }
    assert_eq!(image(&root), before, "the source was written to");
}
