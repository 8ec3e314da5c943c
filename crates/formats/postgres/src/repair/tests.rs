//! What proves a version, case by case; and runs that end at any change to the disk, by a kill or by
//! power failure, which the same command finishes, and `--undo` undoes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::files::wal::block::Locator;
use crate::protect::tests::{PAGE, heap_page, stamp};
use crate::repair::ENGINE;
use crate::repair::log::{Block, Event, Log, Reach, Touch};
use crate::repair::proof::{Copy, Worth, last_image, worth};
use pagewarden_core::protect::disk::{Disk, System};
use pagewarden_core::repair::undo_file::UndoFile;
use pagewarden_core::repair::{Outcome, Proof, Request};
use pagewarden_core::testing::interrupted_repair::{self, InterruptedRepair};
use pagewarden_core::testing::recorder::{
    Change, Dice, Hasty, Image, Recorder, after_each_power_failure, image, in_memory, laid_out,
};

const LOCATOR: Locator = Locator { tablespace: 1663, database: 5, number: 16384 };
const BLOCK: Block = Block { locator: LOCATOR, fork: 0, number: 7 };

fn touch(begin: u64, end: u64) -> (Block, Touch) {
    (BLOCK, Touch { begin, end, transaction: 700, has_image: false })
}

fn event(begin: u64, reach: Reach) -> Event {
    Event { begin, reach, what: "something happened" }
}

/// A heap page with this LSN.
fn page(lsn: u64) -> Vec<u8> {
    let mut page = heap_page(&mut Dice(3));
    page[..4].copy_from_slice(&u32::try_from(lsn >> 32).unwrap().to_le_bytes());
    page[4..8].copy_from_slice(&u32::try_from(lsn & 0xFFFF_FFFF).unwrap().to_le_bytes());
    page
}

fn copy(since: u64) -> Copy {
    Copy { since, is_same_state: false, doubt: None }
}

fn name(worth: &Worth) -> &'static str {
    match worth {
        Worth::Exact(_) => "exact",
        Worth::ExactOfKin(_) => "exact of kin",
        Worth::Older(_) => "older",
        Worth::Foreign(_) => "foreign",
    }
}

/// The log of these cases reaches from 10,000 to 20,000.
fn told(lsn: u64, since: u64, touches: &[(Block, Touch)], events: &[Event]) -> &'static str {
    let log = Log::made_up(10_000..20_000, touches, events);
    name(&worth(&page(lsn), BLOCK, &copy(since), Ok(&log)))
}

#[test]
fn page_that_the_log_does_not_name_is_exact_by_the_position_of_the_copy() {
    assert_eq!(told(9_000, 12_000, &[], &[]), "exact of kin");
    // The log does not reach back to the copy.
    assert_eq!(told(9_000, 9_999, &[], &[]), "older");
    // A page of a history of its own.
    assert_eq!(told(11_000, 12_000, &[], &[]), "foreign");
    assert_eq!(told(13_000, 12_000, &[], &[]), "foreign");
    // Pages without an LSN show nothing.
    assert_eq!(told(0, 12_000, &[], &[]), "older");
}

#[test]
fn page_that_the_log_names_must_be_what_the_last_record_made() {
    let touches = [touch(11_000, 11_100), touch(15_000, 15_100)];
    assert_eq!(told(15_100, 16_000, &touches, &[]), "exact");
    // Also where the copy began before the change, or before all of the log.
    assert_eq!(told(15_100, 12_000, &touches, &[]), "exact");
    assert_eq!(told(15_100, 5_000, &touches, &[]), "exact");
    // An older version, whatever the copy says of itself: it may have failed to write.
    for since in [5_000, 12_000, 16_000, 19_000] {
        assert_eq!(told(11_100, since, &touches, &[]), "older", "{since}");
        assert_eq!(told(9_000, since, &touches, &[]), "older", "{since}");
        assert_eq!(told(12_345, since, &touches, &[]), "foreign", "{since}");
        assert_eq!(told(15_108, since, &touches, &[]), "foreign", "{since}");
    }
    // Records about other blocks, forks and relations say nothing.
    let other = |block: Block| [(block, touch(15_000, 15_100).1)];
    let elsewhere = Locator { database: 6, ..LOCATOR };
    for block in [
        Block { number: 8, ..BLOCK },
        Block { fork: 3, ..BLOCK },
        Block { locator: elsewhere, ..BLOCK },
    ] {
        assert_eq!(told(9_000, 12_000, &other(block), &[]), "exact of kin", "{block:?}");
        assert_eq!(told(15_100, 12_000, &other(block), &[]), "foreign", "{block:?}");
    }
}

#[test]
fn what_changes_a_block_without_naming_it_ends_every_proof_from_before() {
    let reaches = [
        Reach::Relation(LOCATOR, 0),
        Reach::Relation(LOCATOR, 7),
        Reach::Database(5),
        Reach::Tablespace(1663),
        Reach::Everything,
    ];
    for reach in reaches {
        let at = |begin| [event(begin, reach)];
        assert_eq!(told(9_000, 12_000, &[], &at(12_000)), "older", "{reach:?}");
        assert_eq!(told(9_000, 12_000, &[], &at(19_000)), "older", "{reach:?}");
        // Before the copy it is in the copy.
        assert_eq!(told(9_000, 12_000, &[], &at(11_999)), "exact of kin", "{reach:?}");
        let touches = [touch(15_000, 15_100)];
        assert_eq!(told(15_100, 12_000, &touches, &at(14_000)), "exact", "{reach:?}");
        assert_eq!(told(15_100, 12_000, &touches, &at(15_000)), "older", "{reach:?}");
        assert_eq!(told(15_100, 18_000, &touches, &at(16_000)), "older", "{reach:?}");
        let log = Log::made_up(10_000..20_000, &image_touch(), &at(16_000));
        assert_eq!(last_image(BLOCK, &log), None, "{reach:?}");
    }
    // The end of the file was cut behind the block, and what is of another relation.
    for reach in [
        Reach::Relation(LOCATOR, 8),
        Reach::Relation(Locator { number: 1, ..LOCATOR }, 0),
        Reach::Database(6),
        Reach::Tablespace(1664),
    ] {
        let events = [event(15_000, reach)];
        assert_eq!(told(9_000, 12_000, &[], &events), "exact of kin", "{reach:?}");
    }
}

fn image_touch() -> [(Block, Touch); 1] {
    let (block, touch) = touch(15_000, 15_100);
    [(block, Touch { has_image: true, ..touch })]
}

#[test]
fn only_the_last_record_about_a_block_gives_its_image() {
    let log = Log::made_up(10_000..20_000, &image_touch(), &[event(14_000, Reach::Everything)]);
    assert_eq!(last_image(BLOCK, &log).map(|touch| touch.begin), Some(15_000));
    let [first] = image_touch();
    let log = Log::made_up(10_000..20_000, &[first, touch(15_200, 15_300)], &[]);
    assert_eq!(last_image(BLOCK, &log), None);
}

#[test]
fn sequences_and_doubtful_copies_are_never_exact() {
    let log = Log::made_up(10_000..20_000, &[touch(15_000, 15_100)], &[]);
    let mut sequence = page(15_100);
    sequence[16..18].copy_from_slice(&8184_u16.to_le_bytes());
    sequence[8184..8188].copy_from_slice(&0x1717_u32.to_le_bytes());
    let mut meta = page(15_100);
    meta[16..18].copy_from_slice(&8184_u16.to_le_bytes());
    meta[8184..].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0x82, 0xFF]);
    for page in [sequence, meta] {
        assert_eq!(name(&worth(&page, BLOCK, &copy(12_000), Ok(&log))), "older");
        let same = Copy { is_same_state: true, ..copy(12_000) };
        assert_eq!(name(&worth(&page, BLOCK, &same, Ok(&log))), "exact");
    }
    let doubtful = Copy { doubt: Some("why".to_owned()), ..copy(12_000) };
    assert_eq!(name(&worth(&page(15_100), BLOCK, &doubtful, Ok(&log))), "older");
    assert_eq!(name(&worth(&page(15_100), BLOCK, &copy(12_000), Err("gap"))), "older");
}

/// A control file by which a segment has five pages.
fn control() -> Vec<u8> {
    const SEGMENT_PAGES: usize = 220;
    const SUM: usize = 288;
    let fixture = "/../../../fixtures/postgres/15/control.on.shutdown";
    let mut bytes = fs::read(format!("{}{fixture}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    bytes[SEGMENT_PAGES..SEGMENT_PAGES + 4].copy_from_slice(&5_u32.to_le_bytes());
    let sum = pagewarden_core::crc::crc32c(&bytes[..SUM]);
    bytes[SUM..SUM + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Sound pages of a file, from this block on.
fn pages(dice: &mut Dice, first: u32, count: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for block in first..first + count {
        let mut page = heap_page(dice);
        page[..4].fill(0);
        page[4..8].copy_from_slice(&2000_u32.to_le_bytes());
        stamp(&mut page, block);
        bytes.extend(page);
    }
    bytes
}

/// Damaged pages in two files, and in a map of free space; a segment that is missing between two; a file
/// that ends inside its third page of five; and a copy from before.
fn make(root: &Path) -> PathBuf {
    let copy = root.with_extension("copy");
    let mut dice = Dice(7);
    for root in [root, &copy] {
        for folder in ["global", "base/5", "pg_wal"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("global/pg_control"), control()).unwrap();
        fs::write(root.join("PG_VERSION"), "15\n").unwrap();
    }
    for (name, damaged) in [("16384", &[1_usize, 3][..]), ("16385", &[0]), ("16384_fsm", &[2])] {
        let mut bytes = pages(&mut dice, 0, 5);
        let path = Path::new("base/5").join(name);
        fs::write(copy.join(&path), &bytes).unwrap();
        for block in damaged {
            let begin = block * PAGE;
            bytes[begin + 5000..begin + 8000].iter_mut().for_each(|byte| *byte ^= 0x5A);
        }
        fs::write(root.join(&path), &bytes).unwrap();
    }
    for (name, first, count, kept) in [
        ("16386", 0, 5, Some(5 * PAGE)),
        ("16386.1", 5, 5, None),
        ("16386.2", 10, 2, Some(2 * PAGE)),
        ("16387", 0, 5, Some(2 * PAGE + 3000)),
    ] {
        let path = Path::new("base/5").join(name);
        let bytes = pages(&mut dice, first, count);
        fs::write(copy.join(&path), &bytes).unwrap();
        if let Some(kept) = kept {
            fs::write(root.join(&path), &bytes[..kept]).unwrap();
        }
    }
    copy
}

const UNDO: &str = "pagewarden-repair.undo";

fn request(root: &Path, copy: &Path) -> Request {
    Request { sources: vec![copy.into()], accept_older: true, write: true, ..Request::new(root) }
}

fn run(disk: &dyn Disk, request: &Request) -> Result<Outcome, pagewarden_core::error::Error> {
    interrupted_repair::run(ENGINE, disk, request)
}

/// The files of the database, without Pagewarden's.
fn database(image: &Image) -> Image {
    let is_ours = |name: &Path| name.to_string_lossy().contains("pagewarden");
    let lock = Path::new("postmaster.pid");
    let kept = image.iter().filter(|(name, _)| !is_ours(name) && name.as_path() != lock);
    kept.map(|(name, bytes)| (name.clone(), bytes.clone())).collect()
}

struct Made {
    _folder: tempfile::TempDir,
    copy: PathBuf,
    before: Image,
    after: Image,
    changes: Vec<Change>,
}

/// A whole run, recorded.
fn made() -> Made {
    let folder = in_memory();
    let root = folder.path().join("data");
    fs::create_dir(&root).unwrap();
    let copy = make(&root);
    let before = image(&root);
    let recorder = Recorder::new(&root, usize::MAX, 0);
    let outcome = run(&recorder, &request(&root, &copy)).unwrap();
    let written: Vec<_> = outcome.pages.iter().filter(|page| page.written).collect();
    // Of the missing segment five, and three of the file that was cut.
    assert_eq!(written.len(), 4 + 5 + 3, "{:?}", outcome.pages);
    for file in ["16386.1", "16387"].map(|name| Path::new("base/5").join(name)) {
        assert!(fs::read(root.join(&file)).unwrap() == fs::read(copy.join(&file)).unwrap());
    }
    let proofs: BTreeSet<_> = written.iter().map(|page| format!("{:?}", page.proof)).collect();
    assert_eq!(proofs.len(), 2, "{proofs:?}");
    let after = database(&image(&root));
    assert_ne!(after, before);
    let changes = recorder.changes.into_inner().unwrap().0;
    Made { _folder: folder, copy, before, after, changes }
}

/// Calls `each` with what is to be interrupted.
fn interrupted(made: &Made, each: impl FnOnce(&InterruptedRepair<'_>)) {
    each(&InterruptedRepair {
        engine: ENGINE,
        before: &made.before,
        changes: &made.changes,
        request: &|root| request(root, &made.copy),
        undo_file: UNDO,
        is_repaired: &|root| database(&image(root)) == made.after,
    });
}

#[test]
fn killed_at_any_change_it_is_finished_or_undone() {
    interrupted(&made(), |run| run.is_finished_or_undone_when_killed(15, 6));
}

#[test]
fn after_power_failure_at_any_change_it_is_finished_and_undone() {
    interrupted(&made(), |run| {
        run.is_finished_and_undone_after_power_failures();
    });
}

/// The same test must fail where the order is broken, or it proves nothing.
#[test]
fn power_failure_without_syncs_would_be_noticed() {
    let made = made();
    let is_wait = |change: &Change| matches!(change, Change::Sync(_) | Change::SyncFolder(_));
    let changes: Vec<_> = made.changes.iter().filter(|one| !is_wait(one)).cloned().collect();
    let mut lost = 0;
    after_each_power_failure(&made.before, &changes, 6, |root, _| {
        let _ = fs::remove_file(root.join("postmaster.pid"));
        let undo = UndoFile::read(&root.join(UNDO));
        let is_touched = database(&image(root)) != database(&made.before);
        lost += u32::from(is_touched && undo.is_err());
    });
    assert!(lost > 0);
}

#[test]
fn undo_that_is_killed_at_any_change_is_finished() {
    let made = made();
    let folder = in_memory();
    let whole = folder.path().join("data");
    fs::create_dir(&whole).unwrap();
    let (_folder, whole) = laid_out(&made.before);
    run(&Hasty, &request(&whole, &made.copy)).unwrap();
    let repaired = image(&whole);
    let undoing =
        |root: &Path| Request { undo: Some(root.join(UNDO)), write: true, ..Request::new(root) };
    let recorder = Recorder::new(&whole, usize::MAX, 0);
    run(&recorder, &undoing(&whole)).unwrap();
    let count = recorder.changes.into_inner().unwrap().0.len();
    for lives in 0..count {
        let (_folder, root) = laid_out(&repaired);
        let _ = run(&Recorder::new(&root, lives, 5), &undoing(&root));
        if root.join(UNDO).exists() {
            let case = format!("undo killed after {lives}");
            interrupted(&made, |run| run.undo(&root, &case));
        } else {
            assert!(database(&image(&root)) == database(&made.before), "{lives}");
        }
    }
}

#[test]
fn what_a_server_has_changed_since_is_neither_finished_nor_undone() {
    let made = made();
    let (_folder, root) = laid_out(&made.before);
    run(&System, &request(&root, &made.copy)).unwrap();
    let path = root.join("base/5/16384");
    let mut bytes = fs::read(&path).unwrap();
    bytes[PAGE + 100..PAGE + 1500].fill(9);
    stamp(&mut bytes[PAGE..2 * PAGE], 1);
    fs::write(&path, &bytes).unwrap();
    let undo = Some(root.join(UNDO));
    let before = image(&root);
    for write in [false, true] {
        let request = Request { undo: undo.clone(), write, ..Request::new(&root) };
        let error = run(&System, &request).unwrap_err().to_string();
        assert!(error.contains("neither"), "{error}");
    }
    assert!(image(&root) == before);
    // The same command plans anew, and leaves the undo file of the other run alone.
    let kept = fs::read(root.join(UNDO)).unwrap();
    let outcome = run(&System, &request(&root, &made.copy)).unwrap();
    assert!(outcome.pages.iter().all(|page| page.proof != Some(Proof::Older)), "{outcome:?}");
    assert_eq!(fs::read(root.join(UNDO)).unwrap(), kept);
}

#[test]
fn run_of_another_state_is_not_finished_by_its_undo_file() {
    let made = made();
    let write_of_pages = made
        .changes
        .iter()
        .rposition(|change| matches!(change, Change::Write(name, ..) if name.starts_with("base")));
    let (_folder, root) = laid_out(&made.before);
    let lives = write_of_pages.unwrap();
    let _ = run(&Recorder::new(&root, lives, 1), &request(&root, &made.copy));
    let undo = root.join(UNDO);
    assert!(undo.exists());
    let _ = fs::remove_file(root.join("postmaster.pid"));
    // Another control file, as a server would leave it, of the same cluster.
    let mut later = control();
    *later.last_mut().unwrap() = 1;
    fs::write(root.join("global/pg_control"), &later).unwrap();
    let planned = run(&System, &Request { write: false, ..request(&root, &made.copy) }).unwrap();
    assert!(planned.warnings.iter().all(|text| !text.contains("interrupted")), "{planned:?}");
}
