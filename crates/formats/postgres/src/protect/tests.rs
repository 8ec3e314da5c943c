//! Small clusters made of pages that a server would accept, changed and
//! interrupted in every way.

use std::fs;
use std::path::{Path, PathBuf};

use crate::checksum::{checksum, hash_pages};
use crate::files::control::Control;
use crate::files::names::RelationFile;
use crate::page::{CHECKSUM_FIELD, Header};
use crate::protect::Run;
use crate::protect::pages::{BATCH_FILES, RUN_BYTES};
use pagewarden_core::protect::disk::{Disk, System};
use pagewarden_core::protect::journal;
use pagewarden_core::protect::plan::Wish;
use pagewarden_core::protect::{Options, Outcome, Request};
use pagewarden_core::testing::recorder::{Dice, Image, Recorder, image, one_thread};
use pagewarden_core::verdict::Protection;
use pagewarden_core::verify::Caching;

mod crashes;
mod refusals;
mod tablespaces;

pub(crate) const PAGE: usize = 8192;

/// A heap page that passes every rule.
pub(crate) fn heap_page(dice: &mut Dice) -> Vec<u8> {
    let mut page: Vec<u8> = (0..PAGE / 8).flat_map(|_| dice.any().to_le_bytes()).collect();
    page[4..8].fill(0);
    page[10..12].fill(0);
    for (at, value) in [(12, 40_u16), (14, 4000), (16, 8192), (18, 0x2004)] {
        page[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    page[40..4000].fill(0);
    page
}

pub(super) fn sum_of(page: &[u8], block: u32) -> u16 {
    let mut hash = [0];
    hash_pages(page, PAGE, &mut hash);
    checksum(hash[0], block)
}

pub(crate) fn stamp(page: &mut [u8], block: u32) {
    let sum = sum_of(page, block);
    page[CHECKSUM_FIELD].copy_from_slice(&sum.to_le_bytes());
}

/// Every kind of file that carries checksums, with new pages, pages that are
/// right already, and files beside them that carry none.
pub(super) fn make_cluster(root: &Path) {
    let mut dice = Dice(7);
    let folders = [
        "global",
        "base/1",
        "base/5/",
        "base/pgsql_tmp",
        "pg_tblspc/16500/PG_15_202209061/5",
        "pg_tblspc/16500/PG_14_202107181/5",
        "pg_wal/archive_status",
        "pg_stat",
    ];
    for folder in folders {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let control =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/postgres/15/control.off.shutdown");
    fs::copy(control, root.join("global/pg_control")).unwrap();
    fs::write(root.join("PG_VERSION"), "15\n").unwrap();
    for (name, content) in [
        ("global/pg_filenode.map", "a map"),
        ("global/pg_internal.init.123", "a cache"),
        ("base/5/PG_VERSION", "15\n"),
        ("base/pgsql_tmp/pgsql_tmp1.0", "temporary"),
        ("pg_wal/000000010000000000000001", "log"),
        ("pg_tblspc/16500/PG_14_202107181/5/16500", "another version's"),
        ("postgresql.conf", "port = 1"),
    ] {
        fs::write(root.join(name), content).unwrap();
    }
    let names = [
        "1259",
        "1259_fsm",
        "1259_vm",
        "1260",
        "16384",
        "16384.1",
        "16390_init",
        "16390",
        "t3_16402",
        "t3_16402_fsm",
        "2600",
        "2601",
        "16410",
    ];
    let places = ["global", "base/1", "base/5", "pg_tblspc/16500/PG_15_202209061/5"];
    for place in places {
        for name in names {
            let first = if name.ends_with(".1") { 131_072 } else { 0 };
            let mut bytes = Vec::new();
            for block in 0..if name == "2601" { 0 } else { 1 + dice.below(8) } {
                let mut page = heap_page(&mut dice);
                match dice.below(5) {
                    0 => page.fill(0),
                    1 => stamp(&mut page, first + u32::try_from(block).unwrap()),
                    _ => {}
                }
                bytes.extend(page);
            }
            fs::write(root.join(place).join(name), bytes).unwrap();
        }
    }
}

/// A cluster in a folder of its own.
pub(super) fn cluster() -> (tempfile::TempDir, PathBuf) {
    cluster_in(tempfile::tempdir().unwrap())
}

fn cluster_in(folder: tempfile::TempDir) -> (tempfile::TempDir, PathBuf) {
    let root = folder.path().join("data");
    fs::create_dir(&root).unwrap();
    make_cluster(&root);
    (folder, root)
}

pub(super) fn request(root: &Path, mode: Protection) -> Request {
    Request::new(root, Wish::Mode(mode))
}

pub(super) fn run_on(
    disk: &dyn Disk,
    request: &Request,
    options: &Options,
) -> Result<Outcome, pagewarden_core::error::Error> {
    run_cached(disk, request, options, Caching::Auto)
}

pub(super) fn run_cached(
    disk: &dyn Disk,
    request: &Request,
    options: &Options,
    caching: Caching,
) -> Result<Outcome, pagewarden_core::error::Error> {
    // Small runs and batches, so that there are many moments to be interrupted at.
    Run { disk, request, options, progress: &(), caching, run_bytes: 2 * PAGE, batch_files: 3 }
        .run()
}

/// As it is run by a user.
pub(super) fn run(request: &Request) -> Result<Outcome, pagewarden_core::error::Error> {
    let options = Options::default();
    Run {
        disk: &System,
        request,
        options: &options,
        progress: &(),
        caching: Caching::Auto,
        run_bytes: RUN_BYTES,
        batch_files: BATCH_FILES,
    }
    .run()
}

pub(super) fn setting(image: &Image) -> Option<Protection> {
    let control = image.get(Path::new("global/pg_control"))?.as_ref()?;
    Some(super::protection(
        Control::parse(control).expect("a control file that is whole").checksums,
    ))
}

/// The relations of this cluster's version.
pub(super) fn is_relation(name: &Path) -> bool {
    let file = name.file_name().and_then(|name| name.to_str()).and_then(RelationFile::parse);
    let name = name.to_str().unwrap();
    file.is_some() && !name.contains("PG_14_") && !name.starts_with("pg_wal")
}

/// Fails unless every page is what it was but for its checksum; says whether all
/// carry theirs.
pub(super) fn all_pages_are_right(before: &Image, after: &Image) -> bool {
    let mut all = true;
    for (name, bytes) in before.iter().filter(|(name, _)| is_relation(name)) {
        // Folders of databases are named like relations.
        let Some(bytes) = bytes else { continue };
        let now = after[name].as_ref().unwrap();
        assert_eq!(bytes.len(), now.len(), "{}", name.display());
        let first = if name.to_str().unwrap().ends_with(".1") { 131_072 } else { 0 };
        for ((block, page), before) in (first..).zip(now.chunks(PAGE)).zip(bytes.chunks(PAGE)) {
            let mut restored = page.to_vec();
            restored[CHECKSUM_FIELD].copy_from_slice(&before[CHECKSUM_FIELD]);
            assert!(restored == before, "{} page {block} has changed", name.display());
            let stored = Header::read(page).unwrap().checksum;
            all &= page.iter().all(|byte| *byte == 0) || stored == sum_of(page, block);
        }
    }
    all
}

/// Fails unless the cluster is what `before` was with checksums on, and no file
/// of Pagewarden is left in it.
pub(super) fn assert_protected(before: &Image, root: &Path) {
    let after = image(root);
    assert_eq!(setting(&after), Some(Protection::Checksum));
    assert!(all_pages_are_right(before, &after));
    for (name, bytes) in &after {
        if !is_relation(name) && name != Path::new("global/pg_control") {
            assert_eq!(before.get(name), Some(bytes), "{}", name.display());
        }
    }
    assert_eq!(before.len(), after.len());
}

#[test]
fn enabling_gives_every_page_its_checksum_and_touches_nothing_else() {
    let (_folder, root) = cluster();
    let before = image(&root);
    let outcome = run(&request(&root, Protection::Checksum)).unwrap();
    assert_protected(&before, &root);
    assert_eq!((outcome.before, outcome.after), (Protection::None, Protection::Checksum));
    let pages = outcome.pages;
    assert!(pages.changed > 50 && pages.right > 5 && pages.empty > 5 && pages.damaged == 0);
    assert_eq!(outcome.bytes_written, pages.changed * PAGE as u64);
    assert_eq!(outcome.bytes_verified, outcome.bytes_written);
    // And off again: nothing but the control file.
    let on = image(&root);
    let outcome = run(&request(&root, Protection::None)).unwrap();
    assert_eq!((outcome.before, outcome.after), (Protection::Checksum, Protection::None));
    assert_eq!(outcome.pages.total(), 0);
    let off = image(&root);
    assert_eq!(setting(&off), Some(Protection::None));
    let control = Path::new("global/pg_control");
    assert!(off.iter().all(|(name, bytes)| name == control || on[name] == *bytes));
    assert_eq!(off[control], before[control]);
    // And on: every page is right already.
    let outcome = run(&request(&root, Protection::Checksum)).unwrap();
    assert_eq!((outcome.pages.changed, outcome.bytes_written), (0, 0));
    assert_protected(&before, &root);
}

#[test]
fn what_is_so_already_is_left_as_it_is() {
    let (_folder, root) = cluster();
    let before = image(&root);
    run(&request(&root, Protection::None)).unwrap();
    assert_eq!(image(&root), before);
    run(&request(&root, Protection::Checksum)).unwrap();
    // A page that has been damaged since must not be blessed with a new checksum.
    let path = root.join("base/5/16384");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    let damaged = image(&root);
    let outcome = run(&request(&root, Protection::Checksum)).unwrap();
    assert_eq!(outcome.pages.total(), 0);
    assert_eq!(image(&root), damaged);
}

#[test]
fn dry_run_counts_what_a_run_would_change_and_writes_nothing() {
    let (_folder, root) = cluster();
    let before = image(&root);
    let dry = Request { dry_run: true, ..request(&root, Protection::Checksum) };
    let foreseen = run(&dry).unwrap();
    assert_eq!(image(&root), before);
    assert_eq!(foreseen.after, Protection::None);
    let done = run(&request(&root, Protection::Checksum)).unwrap();
    assert_eq!(foreseen.pages, done.pages);
}

#[test]
fn without_waiting_for_the_device_there_is_no_journal() {
    let (_folder, root) = cluster();
    let before = image(&root);
    let options = Options { sync: false, ..one_thread() };
    let request = request(&root, Protection::Checksum);
    let recorder = Recorder::new(&root, usize::MAX, 0);
    run_on(&recorder, &request, &options).unwrap();
    assert!(recorder.names_made().iter().all(|name| name != journal::NAME));
    assert_protected(&before, &root);
}

/// Past the page cache each of them would be waited for.
#[test]
fn many_short_writes_go_through_the_page_cache_and_long_ones_past_it() {
    let (_folder, root) = cluster();
    let mut dice = Dice(9);
    let mut pages = |stamped_every| {
        let one = |block| {
            let mut page = heap_page(&mut dice);
            if block % stamped_every == 1 {
                stamp(&mut page, block);
            }
            page
        };
        (0..64).flat_map(one).collect::<Vec<_>>()
    };
    let (short, long) = ("base/5/20000", "base/5/20001");
    fs::write(root.join(short), pages(2)).unwrap();
    fs::write(root.join(long), pages(1000)).unwrap();
    let before = image(&root);
    let recorder = Recorder::new(&root, usize::MAX, 0);
    let request = request(&root, Protection::Checksum);
    let options = one_thread();
    let run = Run {
        disk: &recorder,
        request: &request,
        options: &options,
        progress: &(),
        caching: Caching::Direct,
        run_bytes: 16 * PAGE,
        batch_files: 3,
    };
    run.run().unwrap();
    assert_protected(&before, &root);
    if recorder.writes_past(long) == 0 {
        eprintln!("skipped: this file system has no way past the page cache");
        return;
    }
    // Before and after the one page that is right.
    assert_eq!((recorder.writes_past(short), recorder.writes_past(long)), (0, 2));
}
