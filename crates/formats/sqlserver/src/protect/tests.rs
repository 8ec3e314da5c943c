//! A small database of two data files and a log, copied and interrupted in every
//! way. Files of real servers are gone through in the program's tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::checksum::{PAGE_BYTES, Page};
use crate::page::header::{Header, Tested, tested};
use crate::page::stamp::stamp;
use crate::page::system::BootPage;
use crate::protect::Run;
use pagewarden_core::protect::disk::{Disk, System};
use pagewarden_core::protect::plan::Wish;
use pagewarden_core::protect::{Options, Outcome, Request};
use pagewarden_core::testing::recorder::Dice;
use pagewarden_core::verdict::Protection;

mod crashes;
mod refusals;

const CLEAN: u32 = 0x4000_0000;
const CHECKSUM: u32 = 0x1_0000;
const TORN: u32 = 0x10;
const MODES: [Protection; 3] = [Protection::Checksum, Protection::Torn, Protection::None];

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A page with one record in place 96, without protection.
fn made(file: u16, number: u32, kind: u8) -> Page {
    let mut page = [0; PAGE_BYTES];
    put(&mut page, 0, &[1, kind]);
    put(&mut page, 22, &1_u16.to_le_bytes());
    put(&mut page, 32, &number.to_le_bytes());
    put(&mut page, 36, &file.to_le_bytes());
    put(&mut page, PAGE_BYTES - 2, &96_u16.to_le_bytes());
    page
}

/// The columns of the file header that are read; what lies between is empty.
fn file_header(file: u16, pages: u32, binding: [u8; 16]) -> Page {
    const COLUMNS: u16 = 28;
    let columns: [(u16, Vec<u8>); 4] = [
        (0, binding.to_vec()),
        (2, file.to_le_bytes().to_vec()),
        (4, pages.to_le_bytes().to_vec()),
        (27, "shop".encode_utf16().flat_map(u16::to_le_bytes).collect()),
    ];
    let mut record = vec![0x30, 0, 8, 0, 0, 0, 0, 0];
    record.extend(COLUMNS.to_le_bytes());
    record.extend([0; 4]);
    record.extend(COLUMNS.to_le_bytes());
    let begin = record.len() + 2 * usize::from(COLUMNS);
    let mut content: Vec<u8> = Vec::new();
    for column in 0..COLUMNS {
        let of_column = columns.iter().filter(|(number, _)| *number == column);
        of_column.for_each(|(_, bytes)| content.extend(bytes));
        record.extend(u16::try_from(begin + content.len()).unwrap().to_le_bytes());
    }
    record.extend(content);
    let mut page = made(file, 0, 15);
    put(&mut page, 96, &record);
    page
}

fn boot_page(version: u16, status: u32) -> Page {
    let mut page = made(1, 9, 13);
    put(&mut page, 96 + 4, &version.to_le_bytes());
    put(&mut page, 96 + 36, &status.to_le_bytes());
    let name: Vec<u8> = "shop".encode_utf16().flat_map(u16::to_le_bytes).collect();
    put(&mut page, 96 + 52, &[0x20; 256]);
    put(&mut page, 96 + 52, &name);
    page
}

fn pfs(file: u16, allocated: &[usize]) -> Page {
    let mut page = made(file, 1, 11);
    put(&mut page, 98, &8092_u16.to_le_bytes());
    for number in allocated {
        page[100 + number] = 0x40;
    }
    page
}

/// A map of extents: two records.
fn map(file: u16, number: u32, kind: u8) -> Page {
    let mut page = made(file, number, kind);
    put(&mut page, 22, &2_u16.to_le_bytes());
    put(&mut page, 98, &94_u16.to_le_bytes());
    put(&mut page, 192, &7992_u16.to_le_bytes());
    put(&mut page, PAGE_BYTES - 4, &190_u16.to_le_bytes());
    page
}

fn data_page(file: u16, number: u32, dice: &mut Dice) -> Page {
    let mut page = made(file, number, 1);
    for at in (96..PAGE_BYTES - 200).step_by(8) {
        put(&mut page, at, &dice.any().to_le_bytes());
    }
    // As a deletion leaves them: two slots, one that leads nowhere.
    put(&mut page, 22, &3_u16.to_le_bytes());
    put(&mut page, PAGE_BYTES - 6, &[0xF0, 0x0F, 0, 0]);
    page
}

/// A data file with pages of every protection, and some that were never written.
fn data_file(file: u16, pages: usize, status: u32, dice: &mut Dice) -> Vec<u8> {
    const FIXED: [(usize, u8); 4] = [(2, 8), (3, 9), (6, 16), (7, 17)];
    let mut bytes = Vec::new();
    let in_use: Vec<usize> = (0..pages).filter(|number| number % 5 != 4).collect();
    for number in 0..pages {
        let own = u32::try_from(number).unwrap();
        let fixed = FIXED.iter().find(|(at, _)| *at == number);
        let mut page = match (number, fixed) {
            (0, _) => file_header(file, u32::try_from(pages).unwrap(), *b"the shop's files"),
            (1, _) => pfs(file, &in_use),
            (9, _) if file == 1 => boot_page(782, status),
            (_, Some((_, kind))) => map(file, own, *kind),
            (_, None) if number % 10 == 4 => [0; PAGE_BYTES],
            (_, None) if number % 10 == 9 => [0xA7; PAGE_BYTES],
            (_, None) => data_page(file, own, dice),
        };
        if Header::parse(&page).is_of(file, number as u64) {
            stamp(&mut page, MODES[dice.below(3)]);
        }
        bytes.extend(page);
    }
    bytes
}

/// The files of the database, in a folder of their own.
fn shop_of(status: u32) -> BTreeMap<String, Vec<u8>> {
    let mut dice = Dice(7);
    let log = [made(2, 0, 15).to_vec(), vec![0xAB; 20_000]].concat();
    [
        ("shop.mdf", data_file(1, 37, status, &mut dice)),
        ("shop_2.ndf", data_file(3, 23, status, &mut dice)),
        ("shop_log.ldf", log),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into()
}

type Files = BTreeMap<String, Vec<u8>>;

fn lay_out(files: &Files) -> (tempfile::TempDir, PathBuf) {
    // In memory where there is such a place: hundreds of copies are made here.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let root = folder.path().join("data");
    fs::create_dir(&root).unwrap();
    for (name, bytes) in files {
        fs::write(root.join(name), bytes).unwrap();
    }
    (folder, root)
}

fn image(folder: &Path) -> Files {
    let Ok(entries) = fs::read_dir(folder) else { return Files::new() };
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read(path).unwrap())
    };
    entries.map(read).collect()
}

fn request(root: &Path, mode: Protection) -> Request {
    Request { copy_to: Some(copy_of(root)), ..Request::new(root, Wish::Mode(mode)) }
}

fn copy_of(root: &Path) -> PathBuf {
    root.parent().unwrap().join("copy")
}

/// Small runs, so that there are many moments to be interrupted at.
fn run_on(
    disk: &dyn Disk,
    request: &Request,
    options: &Options,
) -> Result<Outcome, pagewarden_core::error::Error> {
    Run { disk, request, options, progress: &(), run_bytes: 2 * PAGE_BYTES }.run()
}

fn run(request: &Request) -> Result<Outcome, pagewarden_core::error::Error> {
    run_on(&System, request, &Options::default())
}

/// Every page of a file, by its number in the file.
fn pages(bytes: &[u8]) -> impl Iterator<Item = (u64, Page)> {
    (0..).zip(bytes.as_chunks::<PAGE_BYTES>().0.iter().copied())
}

/// What a page is without protection, and without the setting on the boot page.
fn content(file: u16, number: u64, page: &Page) -> Page {
    let mut page = *page;
    if Header::parse(&page).is_of(file, number) {
        BootPage::set(&mut page, Protection::None);
        stamp(&mut page, Protection::None);
    }
    // What an engine leaves there when it takes the flag off.
    page[60..64].fill(0);
    page
}

/// Fails unless the copy is what the files were, in this mode.
fn assert_copied(before: &Files, after: &Files, mode: Protection) {
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (name, bytes) in before {
        let copied = &after[name];
        assert_eq!(bytes.len(), copied.len(), "{name}");
        let Some(file) = [("shop.mdf", 1), ("shop_2.ndf", 3)].iter().find(|(it, _)| it == name)
        else {
            assert!(bytes == copied, "{name} has changed");
            continue;
        };
        for ((number, page), (_, was)) in pages(copied).zip(pages(bytes)) {
            let (header, what) = (Header::parse(&page), format!("{name} page {number}"));
            assert!(content(file.1, number, &page) == content(file.1, number, &was), "{what}");
            if !header.is_of(file.1, number) {
                assert!(page == was, "{what}");
                continue;
            }
            assert_eq!(header.protection(), Some(mode), "{what}");
            assert_ne!(tested(&page, &header), Tested::Failed, "{what}");
            if number == 9 && file.1 == 1 {
                let boot = BootPage::parse(&page).unwrap();
                assert!(boot.setting == mode && boot.is_clean && boot.version == 782);
            } else if Header::parse(&was).protection() == Some(mode) {
                assert!(page == was, "{what} was right already");
            }
        }
    }
}

#[test]
fn every_page_of_the_copy_carries_what_is_wanted_and_the_source_is_left_alone() {
    for status in [CLEAN, CLEAN | TORN, CLEAN | CHECKSUM] {
        for mode in MODES {
            let before = shop_of(status);
            let (_folder, root) = lay_out(&before);
            let dry = run(&Request { dry_run: true, ..request(&root, mode) }).unwrap();
            assert!(!copy_of(&root).exists());
            let outcome = run(&request(&root, mode)).unwrap();
            assert_eq!(dry.pages, outcome.pages);
            assert_copied(&before, &image(&copy_of(&root)), mode);
            assert!(image(&root) == before);
            assert_eq!((outcome.files, outcome.after), (2, mode));
            let setting = match status {
                CLEAN => Protection::None,
                status if status & TORN != 0 => Protection::Torn,
                _ => Protection::Checksum,
            };
            assert_eq!((outcome.before, dry.after, dry.bytes_written), (setting, setting, 0));
            let counts = outcome.pages;
            assert_eq!((counts.total(), counts.damaged), (60, 0));
            assert!(counts.right > 5 && counts.changed > 20 && counts.empty > 5, "{counts:?}");
            // All of it, and no first page twice.
            assert_eq!(outcome.bytes_written, before.values().map(|b| b.len() as u64).sum::<u64>());
            assert_eq!(outcome.bytes_verified, outcome.bytes_written);
            assert!(outcome.warnings[0].starts_with("experimental"), "{:?}", outcome.warnings);
            assert!(outcome.warnings.iter().any(|one| one.contains("never written")));
        }
    }
}

/// The same bytes where the way back leads to a checksum or to none; with torn bits the same
/// pattern everywhere.
#[test]
fn copies_of_copies_end_up_the_same() {
    let before = shop_of(CLEAN | CHECKSUM);
    let (_folder, mut root) = lay_out(&before);
    let mut seen: BTreeMap<&str, Files> = BTreeMap::new();
    let (checksum, torn, none) = (MODES[0], MODES[1], MODES[2]);
    for mode in [checksum, none, torn, checksum, torn, none, checksum] {
        run(&request(&root, mode)).unwrap();
        let copy = copy_of(&root);
        let files = image(&copy);
        assert_copied(&before, &files, mode);
        if let Some(same) = seen.insert(mode.name(), files.clone()) {
            assert!(same == files, "{}", mode.name());
        }
        fs::remove_dir_all(&root).unwrap();
        fs::rename(&copy, &root).unwrap();
        root = root.clone();
    }
    assert_eq!(seen.len(), 3);
}

#[test]
fn one_file_is_copied_with_a_word_about_the_others() {
    let before = shop_of(CLEAN | CHECKSUM);
    let (_folder, root) = lay_out(&before);
    for (name, words) in
        [("shop.mdf", "shop_2.ndf lies beside it"), ("shop_2.ndf", "primary file (file 1) was not")]
    {
        let outcome = run(&request(&root, Protection::Torn)).map(drop);
        outcome.unwrap();
        fs::remove_dir_all(copy_of(&root)).unwrap();
        let one = Request { path: root.join(name), ..request(&root, Protection::Torn) };
        let outcome = run(&one).unwrap();
        assert!(outcome.warnings.iter().any(|one| one.contains(words)), "{:?}", outcome.warnings);
        let only: Files = [(name.to_owned(), before[name].clone())].into();
        assert_copied(&only, &image(&copy_of(&root)), Protection::Torn);
        fs::remove_dir_all(copy_of(&root)).unwrap();
    }
}

/// Files of one database often lie on several disks.
#[test]
fn files_that_are_named_one_by_one_are_one_database() {
    let before = shop_of(CLEAN | CHECKSUM);
    let (_folder, root) = lay_out(&before);
    let elsewhere = root.with_file_name("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::rename(root.join("shop_2.ndf"), elsewhere.join("shop_2.ndf")).unwrap();
    let named = Request {
        path: elsewhere.join("shop_2.ndf"),
        further: vec![root.join("shop_log.ldf"), root.join("shop.mdf")],
        ..request(&root, Protection::Torn)
    };
    let foreseen = run(&Request { dry_run: true, ..named.clone() }).unwrap();
    let outcome = run(&named).unwrap();
    assert_eq!((outcome.files, outcome.pages), (2, foreseen.pages));
    // The primary file is among them, and so are its sisters.
    let words = ["primary file", "lies beside it"];
    let is_said = |one: &String| words.iter().any(|words| one.contains(words));
    assert!(!outcome.warnings.iter().any(is_said), "{:?}", outcome.warnings);
    assert_copied(&before, &image(&copy_of(&root)), Protection::Torn);
    // One is missing: of the others, beside whatever lies it.
    fs::remove_dir_all(copy_of(&root)).unwrap();
    fs::rename(elsewhere.join("shop_2.ndf"), root.join("shop_2.ndf")).unwrap();
    let few =
        Request { path: root.join("shop.mdf"), further: vec![root.join("shop_log.ldf")], ..named };
    let outcome = run(&few).unwrap();
    let sister = "shop_2.ndf lies beside it";
    assert!(outcome.warnings.iter().any(|one| one.contains(sister)), "{:?}", outcome.warnings);
}

/// Files of one database often lie on several disks.
#[test]
fn folder_of_links_is_as_good_as_one_of_files() {
    let before = shop_of(CLEAN | CHECKSUM);
    let (_folder, root) = lay_out(&before);
    let elsewhere = root.with_file_name("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::rename(root.join("shop_2.ndf"), elsewhere.join("on-another-disk")).unwrap();
    std::os::unix::fs::symlink(elsewhere.join("on-another-disk"), root.join("shop_2.ndf")).unwrap();
    run(&request(&root, Protection::Torn)).unwrap();
    let copy = copy_of(&root);
    assert_copied(&before, &image(&copy), Protection::Torn);
    assert!(fs::symlink_metadata(copy.join("shop_2.ndf")).unwrap().is_file());
}

#[test]
fn modes_and_times_of_files_are_kept() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    let (_folder, root) = lay_out(&shop_of(CLEAN));
    for (name, mode) in [("shop.mdf", 0o640), ("shop_2.ndf", 0o600), ("", 0o750)] {
        let path = root.join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        fs::File::open(&path).unwrap().set_modified(long_ago).unwrap();
    }
    run(&request(&root, Protection::Checksum)).unwrap();
    for name in ["shop.mdf", "shop_2.ndf", "shop_log.ldf", ""] {
        let of = |root: &Path| {
            let metadata = fs::metadata(root.join(name)).unwrap();
            (metadata.mode(), metadata.mtime(), metadata.uid(), metadata.gid())
        };
        assert_eq!(of(&copy_of(&root)), of(&root), "{name}");
    }
}

/// Where the file system shares blocks, only what changes is written.
#[test]
fn shared_blocks_are_patched() {
    #[derive(Debug)]
    struct Sharing;
    impl Disk for Sharing {
        fn share_blocks(
            &self,
            file: &pagewarden_core::protect::disk::Written,
            source: &fs::File,
        ) -> bool {
            let (mut from, mut to) = (source.try_clone().unwrap(), file.file.try_clone().unwrap());
            std::io::copy(&mut from, &mut to).is_ok()
        }
    }
    let before = shop_of(CLEAN | CHECKSUM);
    let (_folder, root) = lay_out(&before);
    let outcome = run_on(&Sharing, &request(&root, Protection::Checksum), &Options::default());
    let outcome = outcome.unwrap();
    assert_copied(&before, &image(&copy_of(&root)), Protection::Checksum);
    // And the first page of each file, and of the log.
    let pages = outcome.bytes_written / PAGE_BYTES as u64;
    assert!((outcome.pages.changed..=outcome.pages.changed + 3).contains(&pages), "{outcome:?}");
    assert_eq!(outcome.bytes_verified, outcome.bytes_written);
}

#[test]
fn holes_stay_holes() {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    let mut before = shop_of(CLEAN | CHECKSUM);
    let (_folder, root) = lay_out(&before);
    let path = root.join("shop.mdf");
    let file = fs::File::options().write(true).open(&path).unwrap();
    // Longer than the header says, which is no matter of damage: the end is not in use.
    let length = 500 * PAGE_BYTES;
    file.set_len(length as u64).unwrap();
    file.write_all_at(&[0xA7; PAGE_BYTES], length as u64 - PAGE_BYTES as u64).unwrap();
    drop(file);
    before.insert("shop.mdf".to_owned(), fs::read(&path).unwrap());
    let outcome = run(&request(&root, Protection::None)).unwrap();
    assert_copied(&before, &image(&copy_of(&root)), Protection::None);
    let blocks = |path: PathBuf| fs::metadata(path).unwrap().blocks();
    assert_eq!(blocks(copy_of(&root).join("shop.mdf")), blocks(path));
    assert_eq!(outcome.pages.total(), 523);
}
