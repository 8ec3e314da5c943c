//! Runs that end at any change to the disk, by a kill or by power failure, which the same command
//! finishes, and `--undo` undoes; and pages that two copies tell differently.

use std::fs;
use std::path::{Path, PathBuf};

use crate::checksum::full_crc32;
use crate::repair::ENGINE;
use pagewarden_core::crc::crc32c;
use pagewarden_core::protect::disk::{Disk, System};
use pagewarden_core::repair::{Outcome, Proof, Request, Verdict};
use pagewarden_core::testing::interrupted_repair::{self, InterruptedRepair};
use pagewarden_core::testing::recorder::{Change, Image, Recorder, image, in_memory, laid_out};

const PAGE: usize = 16_384;
const TABLE: &str = "shop/t.ibd";
const UNDO: &str = "pagewarden-repair.undo";
const WOUNDED: [usize; 3] = [3, 4, 6];
const CHECKPOINT: u64 = 12_288;

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A page in `full_crc32` of this LSN.
fn page(space: u32, number: u32, lsn: u64, fill: u8) -> Vec<u8> {
    const FLAGS: u32 = 0x15;
    const PAGES: u32 = 8;
    let mut page = vec![fill; PAGE];
    page[..38].fill(0);
    put(&mut page, 4, &number.to_be_bytes());
    put(&mut page, 8, &[0xff; 8]);
    put(&mut page, 16, &lsn.to_be_bytes());
    put(&mut page, 24, &10_u16.to_be_bytes());
    put(&mut page, 34, &space.to_be_bytes());
    if number == 0 {
        put(&mut page, 24, &8_u16.to_be_bytes());
        page[38..].fill(0);
        for (at, field) in [(38, space), (46, PAGES), (54, FLAGS)] {
            put(&mut page, at, &field.to_be_bytes());
        }
    }
    let low: [u8; 4] = page[20..24].try_into().unwrap();
    put(&mut page, PAGE - 8, &low);
    let sum = full_crc32(&page);
    put(&mut page, PAGE - 4, &sum.to_be_bytes());
    page
}

fn space(space: u32, fill: u8) -> Vec<u8> {
    (0..8).flat_map(|number| page(space, number, 5000 + u64::from(number), fill)).collect()
}

/// The log of MariaDB 10.11 that ends at its checkpoint.
fn log() -> Vec<u8> {
    let mut log = vec![0; 16_384];
    put(&mut log, 0, b"Phys");
    put(&mut log, 8, &CHECKPOINT.to_be_bytes());
    put(&mut log, 16, b"MariaDB 10.11.19");
    let sum = crc32c(&log[..508]);
    put(&mut log, 508, &sum.to_be_bytes());
    put(&mut log, 4096, &CHECKPOINT.to_be_bytes());
    put(&mut log, 4104, &CHECKPOINT.to_be_bytes());
    let sum = crc32c(&log[4096..4156]);
    put(&mut log, 4156, &sum.to_be_bytes());
    let mut records = vec![0xFA, 0, 0];
    records.extend(CHECKPOINT.to_be_bytes());
    let sum = crc32c(&records);
    records.push(1);
    records.extend(sum.to_be_bytes());
    put(&mut log, 12_288, &records);
    log
}

fn make(root: &Path, fill: u8) {
    fs::create_dir_all(root.join("shop")).unwrap();
    fs::write(root.join("ibdata1"), space(0, 0)).unwrap();
    fs::write(root.join("ib_logfile0"), log()).unwrap();
    fs::write(root.join(TABLE), space(9, fill)).unwrap();
}

fn ruin(root: &Path) {
    let mut bytes = fs::read(root.join(TABLE)).unwrap();
    for number in WOUNDED {
        bytes[number * PAGE + 600..][..50].fill(0xE7);
    }
    fs::write(root.join(TABLE), bytes).unwrap();
}

fn request(root: &Path, copy: &Path) -> Request {
    Request { sources: vec![copy.into()], write: true, ..Request::new(root) }
}

fn run(disk: &dyn Disk, request: &Request) -> Result<Outcome, pagewarden_core::error::Error> {
    interrupted_repair::run(ENGINE, disk, request)
}

struct Made {
    folder: tempfile::TempDir,
    copy: PathBuf,
    before: Image,
    sound: Vec<u8>,
    changes: Vec<Change>,
}

/// A whole run, recorded.
fn made() -> Made {
    let folder = in_memory();
    let (root, copy) = (folder.path().join("data"), folder.path().join("copy"));
    make(&root, 1);
    make(&copy, 1);
    ruin(&root);
    let sound = fs::read(copy.join(TABLE)).unwrap();
    let before = image(&root);
    let recorder = Recorder::new(&root, usize::MAX, 0);
    let outcome = run(&recorder, &request(&root, &copy)).unwrap();
    assert_eq!(outcome.verdict, Verdict::Repaired, "{outcome:?}");
    assert!(outcome.pages.iter().all(|page| page.proof == Some(Proof::Exact)), "{outcome:?}");
    assert_eq!(outcome.pages.len(), WOUNDED.len());
    let changes = recorder.changes.into_inner().unwrap().0;
    Made { folder, copy, before, sound, changes }
}

/// Calls `each` with what is to be interrupted.
fn interrupted(made: &Made, each: impl FnOnce(&InterruptedRepair<'_>)) {
    each(&InterruptedRepair {
        engine: ENGINE,
        before: &made.before,
        changes: &made.changes,
        request: &|root| request(root, &made.copy),
        undo_file: UNDO,
        is_repaired: &|root| fs::read(root.join(TABLE)).unwrap() == made.sound,
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

/// Equal LSNs, other rows: the checksum on the damaged page says of which history it is.
#[test]
fn copy_with_equal_lsns_and_other_rows_is_never_exact() {
    let made = made();
    let other = made.folder.path().join("other");
    make(&other, 2);
    let (_folder, root) = laid_out(&made.before);
    let outcome = run(&System, &request(&root, &other)).unwrap();
    assert_eq!(outcome.verdict, Verdict::Impossible, "{outcome:?}");
    assert!(outcome.pages.iter().all(|page| page.proof == Some(Proof::Older)), "{outcome:?}");
    // The right one beside it is found.
    let both = Request {
        sources: vec![other.as_path().into(), made.copy.as_path().into()],
        ..request(&root, &made.copy)
    };
    let outcome = run(&System, &both).unwrap();
    assert_eq!(outcome.verdict, Verdict::Repaired, "{outcome:?}");
    assert!(fs::read(root.join(TABLE)).unwrap() == made.sound);
}

/// Page 0 maps what is in use: an older one is refused, whatever was accepted.
#[test]
fn older_pages_are_taken_when_they_are_accepted_but_no_maps() {
    let made = made();
    let older = made.folder.path().join("older");
    make(&older, 2);
    let (_folder, root) = laid_out(&made.before);
    let mut bytes = fs::read(root.join(TABLE)).unwrap();
    bytes[..PAGE].fill(0xE7);
    fs::write(root.join(TABLE), &bytes).unwrap();
    let request = Request { accept_older: true, ..request(&root, &older) };
    let outcome = run(&System, &request).unwrap();
    assert_eq!(outcome.verdict, Verdict::Partly, "{outcome:?}");
    let written: Vec<_> = outcome.pages.iter().map(|page| (page.page, page.written)).collect();
    assert_eq!(
        written,
        [(Some(0), false), (Some(3), true), (Some(4), true), (Some(6), true)],
        "{outcome:?}"
    );
    let first = &outcome.pages[0];
    assert!(first.hint.as_ref().unwrap().contains("never taken"), "{first:?}");
}
