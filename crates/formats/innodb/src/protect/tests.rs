//! Small data directories of pages that a server would accept, changed and interrupted in every
//! way.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::checksum::fold::{new_fold, old_fold};
use crate::checksum::{NO_CHECKSUM_MAGIC, crc32, full_crc32, zip_adler32, zip_crc32};
use crate::page::fields::read_u32;
use crate::protect::work::BATCH_FILES;
use crate::protect::{RUN_BYTES, Run};
use pagewarden_core::crc::crc32c;
use pagewarden_core::protect::disk::{Disk, System};
use pagewarden_core::protect::plan::Wish;
use pagewarden_core::protect::{Options, Outcome, Request};
use pagewarden_core::testing::recorder::{Dice, Image, image, one_thread};
use pagewarden_core::verdict::Protection;

mod crashes;
mod refusals;
mod servers;

const SMALL: usize = 4096;
const ZIP: usize = 1024;
const LARGE: usize = 16_384;

/// How a page is summed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sum {
    Crc32,
    Fold,
    None,
}

pub(super) fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A page with everything but a sum.
fn page(dice: &mut Dice, size: usize, space: u32, number: u32) -> Vec<u8> {
    let mut page: Vec<u8> = (0..size / 8).flat_map(|_| dice.any().to_be_bytes()).collect();
    put(&mut page, 4, &number.to_be_bytes());
    put(&mut page, 8, &[0xff; 8]);
    put(&mut page, 24, &17_855_u16.to_be_bytes());
    put(&mut page, 26, &[0; 8]);
    put(&mut page, 34, &space.to_be_bytes());
    page
}

/// The first page of a tablespace.
fn first_page(dice: &mut Dice, size: usize, space: u32, flags: u32, count: u32) -> Vec<u8> {
    let mut page = page(dice, size, space, 0);
    put(&mut page, 24, &8_u16.to_be_bytes());
    page[38..].fill(0);
    for (at, field) in [(38, space), (46, count), (50, 0), (54, flags)] {
        put(&mut page, at, &field.to_be_bytes());
    }
    page
}

/// Closes a page of the old layout.
pub(super) fn stamp(page: &mut [u8], sum: Sum) {
    let end = page.len();
    let low: [u8; 4] = page[20..24].try_into().unwrap();
    put(page, end - 4, &low);
    let first = match sum {
        Sum::Crc32 => crc32(page),
        Sum::Fold => new_fold(page),
        Sum::None => NO_CHECKSUM_MAGIC,
    };
    put(page, 0, &first.to_be_bytes());
    let second = if sum == Sum::Fold { old_fold(page) } else { first };
    put(page, end - 8, &second.to_be_bytes());
}

fn stamp_zip(page: &mut [u8], sum: Sum) {
    let first = match sum {
        Sum::Crc32 => zip_crc32(page),
        Sum::Fold => zip_adler32(page),
        Sum::None => NO_CHECKSUM_MAGIC,
    };
    put(page, 0, &first.to_be_bytes());
}

fn stamp_full(page: &mut [u8]) {
    let end = page.len();
    put(page, 0, &[0; 4]);
    let low: [u8; 4] = page[20..24].try_into().unwrap();
    put(page, end - 8, &low);
    let sum = full_crc32(page);
    put(page, end - 4, &sum.to_be_bytes());
}

/// A tablespace of the old layout; every kind of page comes.
fn old_space(dice: &mut Dice, size: usize, space: u32, flags: u32, sums: &[Sum]) -> Vec<u8> {
    let count = u32::try_from(3 + dice.below(5)).unwrap();
    let mut bytes = Vec::new();
    for number in 0..count {
        let mut page = match number {
            0 => first_page(dice, size, space, flags, count),
            _ => page(dice, size, space, number),
        };
        let sum = sums[dice.below(sums.len())];
        if size == ZIP {
            stamp_zip(&mut page, sum);
        } else {
            stamp(&mut page, sum);
        }
        if number > 1 && dice.below(6) == 0 {
            page.fill(0);
        }
        bytes.extend(page);
    }
    bytes
}

fn full_space(dice: &mut Dice, space: u32) -> Vec<u8> {
    let pages = (0..3).map(|number| {
        let mut page = match number {
            0 => first_page(dice, LARGE, space, 0x15, 3),
            _ => page(dice, LARGE, space, number),
        };
        stamp_full(&mut page);
        page
    });
    pages.flatten().collect()
}

/// `ibdata1` and `ibdata2`, with copies in a doublewrite area.
fn system_space(dice: &mut Dice) -> [Vec<u8>; 2] {
    const COPIES: u32 = 8;
    const BEHIND_THE_END: u32 = 128;
    let mut bytes = Vec::new();
    for number in 0..16_u32 {
        let mut page = match number {
            0 => first_page(dice, SMALL, 0, 0xc0, 16),
            _ => page(dice, SMALL, 0, number),
        };
        if number == 5 {
            put(&mut page, 24, &7_u16.to_be_bytes());
            put(&mut page, SMALL - 190, &536_853_855_u32.to_be_bytes());
            put(&mut page, SMALL - 186, &COPIES.to_be_bytes());
            put(&mut page, SMALL - 182, &BEHIND_THE_END.to_be_bytes());
        }
        if number == 0 {
            // What the server notes there is covered by no sum.
            put(&mut page, 26, &0x0123_4567_89ab_cdef_u64.to_be_bytes());
        }
        if (COPIES..COPIES + 4).contains(&number) {
            put(&mut page, 4, &77_u32.to_be_bytes());
        }
        // Pages from the area's end on belong to it too: its extent is larger than the file.
        if number < COPIES + 4 {
            stamp(&mut page, Sum::Fold);
        } else {
            page.fill(0);
        }
        bytes.extend(page);
    }
    // The numbers go on behind those of the first file.
    let second = (16..20_u32).flat_map(|number| {
        let mut page = page(dice, SMALL, 0, number);
        stamp(&mut page, Sum::None);
        page
    });
    let second: Vec<u8> = second.collect();
    [bytes, second]
}

/// The log of MariaDB 10.11, at its end; or one with a change behind its checkpoint.
pub(super) fn log(is_clean: bool) -> Vec<u8> {
    const BEGIN: u64 = 12_288;
    let mut log = vec![0; 16_384];
    put(&mut log, 0, b"Phys");
    put(&mut log, 8, &BEGIN.to_be_bytes());
    put(&mut log, 16, b"MariaDB 10.11.19");
    let sum = crc32c(&log[..508]);
    put(&mut log, 508, &sum.to_be_bytes());
    put(&mut log, 4096, &BEGIN.to_be_bytes());
    put(&mut log, 4104, &BEGIN.to_be_bytes());
    let sum = crc32c(&log[4096..4156]);
    put(&mut log, 4156, &sum.to_be_bytes());
    let mut records = vec![0xFA, 0, 0];
    records.extend(BEGIN.to_be_bytes());
    if !is_clean {
        records.extend([0x36, 0x40, 0x57, 0x60, 0x12, 0x34, 0x56]);
    }
    let sum = crc32c(&records);
    records.push(1);
    records.extend(sum.to_be_bytes());
    put(&mut log, 12_288, &records);
    log
}

/// Every layout and every sum, and files beside them that Pagewarden leaves as they are.
pub(super) fn make_directory(root: &Path) {
    use Sum::{Crc32, Fold, None};

    let mut dice = Dice(9);
    for folder in ["mysql", "shop", "#tmp"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let [first, second] = system_space(&mut dice);
    for (name, content) in [
        ("ibdata1", &first[..]),
        ("ibdata2", &second[..]),
        ("ib_logfile0", &log(true)[..]),
        ("aria_log_control", b"aria"),
        ("shop/db.opt", b"default-collation=x"),
        ("shop/aria.MAD", b"rows"),
        ("shop/#sql-1-2.ibd", &old_space(&mut dice, SMALL, 99, 0xe1, &[Fold])),
        ("#tmp/t.ibd", b"temporary"),
    ] {
        fs::write(root.join(name), content).unwrap();
    }
    let mut space = 10;
    let mut add = |name: String, flags: u32, size: usize, sums: &[Sum]| {
        space += 1;
        let bytes = old_space(&mut dice, size, space, flags, sums);
        fs::write(root.join(name), bytes).unwrap();
    };
    for folder in ["mysql", "shop"] {
        for (name, flags, size) in
            [("small", 0xe1, SMALL), ("zip", 0x23, ZIP), ("large", 0x21, LARGE)]
        {
            add(format!("{folder}/{name}_crc.ibd"), flags, size, &[Crc32]);
            add(format!("{folder}/{name}_fold.ibd"), flags, size, &[Fold]);
            add(format!("{folder}/{name}_none.ibd"), flags, size, &[None]);
            add(format!("{folder}/{name}_mixed.ibd"), flags, size, &[Crc32, Fold, None]);
        }
    }
    add("undo001".to_owned(), 0xe1, SMALL, &[Fold]);
    for (name, space) in [("mysql/full.ibd", 7), ("shop/full.ibd", 8)] {
        fs::write(root.join(name), full_space(&mut dice, space)).unwrap();
    }
}

pub(super) fn directory_in(folder: tempfile::TempDir) -> (tempfile::TempDir, PathBuf) {
    let root = folder.path().join("data");
    fs::create_dir(&root).unwrap();
    make_directory(&root);
    (folder, root)
}

pub(super) fn directory() -> (tempfile::TempDir, PathBuf) {
    directory_in(tempfile::tempdir().unwrap())
}

pub(super) fn request(path: &Path) -> Request {
    Request::new(path, Wish::Mode(Protection::Checksum))
}

pub(super) fn run_on(
    disk: &dyn Disk,
    request: &Request,
    options: &Options,
) -> Result<Outcome, pagewarden_core::error::Error> {
    // Small runs and batches, so that there are many moments to be interrupted at.
    Run { disk, request, options, progress: &(), run_bytes: 2 * SMALL, batch_files: 3 }.run()
}

/// As it is run by a user.
pub(super) fn run(request: &Request) -> Result<Outcome, pagewarden_core::error::Error> {
    let options = Options::default();
    Run {
        disk: &System,
        request,
        options: &options,
        progress: &(),
        run_bytes: RUN_BYTES,
        batch_files: BATCH_FILES,
    }
    .run()
}

fn page_size(name: &Path) -> usize {
    let name = name.to_str().unwrap();
    if name.contains("zip") {
        ZIP
    } else if name.contains("large") || name.contains("full") {
        LARGE
    } else {
        SMALL
    }
}

/// The tablespaces of the directory.
fn is_tablespace(name: &Path) -> bool {
    let name = name.to_str().unwrap();
    !name.contains('#')
        && (name.ends_with(".ibd") || name.starts_with("ibdata") || name.starts_with("undo"))
}

/// What a file is to become, by the definition and not by the code that is tested.
pub(super) fn stamped(name: &Path, bytes: &[u8]) -> Vec<u8> {
    let size = page_size(name);
    let mut bytes = bytes.to_vec();
    for (number, page) in bytes.chunks_mut(size).enumerate() {
        let is_copy = name == Path::new("ibdata1") && number >= 8;
        if is_copy || name.to_str().unwrap().contains("full") || page.iter().all(|byte| *byte == 0)
        {
            continue;
        }
        if size == ZIP { stamp_zip(page, Sum::Crc32) } else { stamp(page, Sum::Crc32) }
    }
    bytes
}

/// How MariaDB 10.6 and later judge a page of the old layout, where they are not set to a
/// `strict_` algorithm: `buf_page_is_corrupted` in `storage/innobase/buf/buf0buf.cc`. Zip pages
/// have one field (`page_zip_verify_checksum`).
pub(super) fn server_accepts(page: &[u8], is_zip: bool) -> bool {
    if page.iter().all(|byte| *byte == 0) {
        return true;
    }
    let first = read_u32(page, 0);
    if is_zip {
        return [NO_CHECKSUM_MAGIC, zip_crc32(page), zip_adler32(page)].contains(&first);
    }
    let end = page.len();
    if page[20..24] != page[end - 4..] {
        return false;
    }
    let second = read_u32(page, end - 8);
    if (first, second) == (NO_CHECKSUM_MAGIC, NO_CHECKSUM_MAGIC) {
        return true;
    }
    let is_crc = (first, second) == (crc32(page), crc32(page));
    let is_second_known = second == read_u32(page, 16) || second == NO_CHECKSUM_MAGIC;
    if !is_second_known && !is_crc && second != old_fold(page) {
        return false;
    }
    first == 0 || first == NO_CHECKSUM_MAGIC || is_crc || first == new_fold(page)
}

/// Fails unless every tablespace is, as a whole, what it was or what it is to be, so that a server
/// reads every page of it; says whether all are what they are to be.
pub(super) fn all_files_are_whole(before: &Image, after: &Image) -> bool {
    let mut all = true;
    for (name, bytes) in before {
        let Some(bytes) = bytes else { continue };
        let now = after[name].as_ref().unwrap();
        if !is_tablespace(name) {
            assert!(now == bytes, "{}", name.display());
            continue;
        }
        let wanted = stamped(name, bytes);
        assert!(*now == wanted || now == bytes, "{} is neither old nor new", name.display());
        all &= *now == wanted;
        let size = page_size(name);
        if !name.to_str().unwrap().contains("full") {
            let accepted = now.chunks(size).all(|page| server_accepts(page, size == ZIP));
            assert!(accepted, "{}", name.display());
        }
    }
    all
}

/// Fails unless the directory is what `before` was with `crc32` everywhere, and no file of
/// Pagewarden's is left in it.
pub(super) fn assert_protected(before: &Image, root: &Path) {
    let after = image(root);
    assert!(all_files_are_whole(before, &after));
    let names = |image: &Image| image.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(before), names(&after));
}

#[test]
fn every_page_gets_its_sum_and_nothing_else_is_touched() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    let (_folder, root) = directory();
    fs::set_permissions(root.join("shop/small_fold.ibd"), fs::Permissions::from_mode(0o640))
        .unwrap();
    let before = image(&root);
    let attributes = |name: &Path| {
        let metadata = fs::metadata(root.join(name)).unwrap();
        (metadata.mode(), metadata.uid(), metadata.gid())
    };
    let inode = |name: &Path| fs::metadata(root.join(name)).unwrap().ino();
    let kept: BTreeMap<_, _> =
        before.keys().map(|name| (name.clone(), (attributes(name), inode(name)))).collect();
    let outcome = run(&request(&root)).unwrap();
    assert_protected(&before, &root);
    assert_eq!((outcome.before, outcome.after), (Protection::None, Protection::Checksum));
    let pages = outcome.pages;
    assert!(pages.changed > 60 && pages.right > 20 && pages.empty > 5, "{pages:?}");
    // The pages in the doublewrite area; behind them all is blank.
    assert_eq!((pages.damaged, pages.left), (0, 4));
    let bytes: usize = before
        .iter()
        .filter(|(name, _)| is_tablespace(name))
        .map(|(name, bytes)| bytes.as_ref().unwrap().len() / page_size(name))
        .sum();
    assert_eq!(pages.total(), bytes as u64);
    assert!(outcome.bytes_verified >= outcome.bytes_written);
    assert!(outcome.engine.starts_with("MariaDB 10.11"), "{}", outcome.engine);
    assert!(outcome.warnings.iter().any(|text| text.contains("#sql")), "{:?}", outcome.warnings);
    for (name, (kept, number)) in &kept {
        assert_eq!(attributes(name), *kept, "{}", name.display());
        // What was right already was not written again.
        let is_same = |bytes: &Vec<u8>| stamped(name, bytes) == *bytes;
        if !is_tablespace(name) || before[name].as_ref().is_none_or(is_same) {
            assert_eq!(inode(name), *number, "{}", name.display());
        }
    }
    let again = run(&request(&root)).unwrap();
    assert_eq!((again.before, again.after), (Protection::Checksum, Protection::Checksum));
    assert_eq!((again.pages.changed, again.bytes_written), (0, 0));
    assert_eq!(again.pages.right, pages.changed + pages.right);
}

#[test]
fn dry_run_counts_what_a_run_would_change_and_writes_nothing() {
    let (_folder, root) = directory();
    let before = image(&root);
    let foreseen = run(&Request { dry_run: true, ..request(&root) }).unwrap();
    assert_eq!(image(&root), before);
    assert_eq!((foreseen.after, foreseen.bytes_written), (Protection::None, 0));
    let done = run(&request(&root)).unwrap();
    assert_eq!(foreseen.pages, done.pages);
}

#[test]
fn lone_tablespace_is_changed_by_itself_and_in_its_directory() {
    let (folder, root) = directory();
    let before = image(&root);
    let inside = root.join("shop/large_mixed.ibd");
    let outcome = run(&request(&inside)).unwrap();
    assert_eq!((outcome.files, outcome.after), (1, Protection::Checksum));
    let name = Path::new("shop/large_mixed.ibd");
    let wanted = stamped(name, before[name].as_ref().unwrap());
    assert!(fs::read(&inside).unwrap() == wanted);
    let after = image(&root);
    assert!(before.iter().all(|(other, bytes)| other == name || after[other] == *bytes));
    assert_eq!(before.len(), after.len());
    // Without a directory, and by a link.
    let lone = folder.path().join("t.ibd");
    fs::write(&lone, before[name].as_ref().unwrap()).unwrap();
    let link = folder.path().join("link.ibd");
    std::os::unix::fs::symlink(&lone, &link).unwrap();
    run(&request(&link)).unwrap();
    assert!(link.is_symlink() && fs::read(&lone).unwrap() == wanted);
}

/// Files that real servers wrote, with the pages that are changed, right, left and empty: what
/// the table of fixtures counts.
#[test]
fn pages_that_real_servers_wrote_become_what_their_kind_says() {
    let folder = tempfile::tempdir().unwrap();
    for (name, size, [changed, right, left, empty]) in [
        ("mysql-9.7/innodb-4k/dyn.ibd", 4096, [31, 0, 0, 2]),
        ("mysql-9.7/innodb-4k/zip4.ibd", 4096, [30, 0, 0, 1]),
        ("mysql-9.7/innodb-32k/red.ibd", 32_768, [5, 0, 0, 2]),
        // Compressed by the server, with the older sum inside.
        ("mysql-9.7/innodb-32k/tpl.ibd", 32_768, [1, 0, 14, 1]),
        ("mysql-9.7/none-64k/red.ibd", 65_536, [5, 0, 0, 2]),
        ("mysql-9.7/crc32-16k/tpz.ibd", LARGE, [0, 20, 0, 1]),
        ("mysql-9.7/crc32-16k/enc.ibd", LARGE, [0, 1, 20, 1]),
        ("mariadb-10.11/crc32-16k/enc.ibd", LARGE, [0, 22, 0, 0]),
        ("mariadb-10.11/crc32-16k/encpc.ibd", LARGE, [0, 1, 21, 0]),
        ("mariadb-10.11/crc32-16k/pcz.ibd", LARGE, [0, 22, 0, 0]),
        ("mariadb-10.11/crc32-16k/zip1.ibd", ZIP, [0, 11, 0, 53]),
        ("mariadb-10.11/full_crc32-16k/encpc.ibd", LARGE, [0, 22, 0, 0]),
    ] {
        let Some(before) = crate::files::fixture(name) else { return };
        let path = folder.path().join("t.ibd");
        fs::write(&path, &before).unwrap();
        let pages = run(&request(&path)).unwrap().pages;
        let found = [pages.changed, pages.right, pages.left, pages.empty];
        assert_eq!((found, pages.damaged), ([changed, right, left, empty], 0), "{name}");
        let after = fs::read(&path).unwrap();
        let is_zip = name.contains("zip");
        for (old, new) in before.chunks(size).zip(after.chunks(size)) {
            let mut restored = new.to_vec();
            put(&mut restored, 0, &old[..4]);
            if !is_zip {
                put(&mut restored, size - 8, &old[size - 8..size - 4]);
            }
            assert!(restored == old, "{name}: more than a sum has changed");
            assert!(changed > 0 || new == old, "{name}");
        }
        assert_eq!(run(&request(&path)).unwrap().pages.changed, 0, "{name}");
    }
}

#[test]
fn holes_stay_holes() {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    let (_folder, root) = directory();
    let path = root.join("shop/small_fold.ibd");
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(8 << 20).unwrap();
    let mut last = page(&mut Dice(3), SMALL, 0, 2047);
    // Of the tablespace that the others say they are of.
    let bytes = fs::read(&path).unwrap();
    put(&mut last, 34, &bytes[34..38]);
    stamp(&mut last, Sum::None);
    file.write_all_at(&last, 2047 * SMALL as u64).unwrap();
    drop(file);
    let before = image(&root);
    run(&request(&root)).unwrap();
    assert_protected(&before, &root);
    let metadata = fs::metadata(&path).unwrap();
    assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
}

#[test]
fn without_waiting_for_the_device_there_is_no_journal() {
    use pagewarden_core::testing::recorder::Recorder;

    let (_folder, root) = directory();
    let before = image(&root);
    let options = Options { sync: false, ..one_thread() };
    let recorder = Recorder::new(&root, usize::MAX, 0);
    run_on(&recorder, &request(&root), &options).unwrap();
    assert!(recorder.names_made().iter().all(|name| !name.contains("journal")));
    assert_protected(&before, &root);
}
