//! What is refused, and what damage does.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use super::{
    CHECKSUM, CLEAN, Files, TORN, assert_copied, boot_page, copy_of, data_page, image, lay_out,
    made, put, request, run, run_on, shop_of,
};
use crate::checksum::PAGE_BYTES;
use crate::page::stamp::stamp;
use pagewarden_core::protect::disk::System;
use pagewarden_core::protect::{Options, Request, Wish};
use pagewarden_core::testing::recorder::Dice;
use pagewarden_core::verdict::{Kind, Protection};

/// Runs it, and fails unless it refuses and makes nothing.
fn refusal(request: &Request) -> String {
    let folder = request.path.parent().unwrap();
    let before: Vec<_> = fs::read_dir(folder).unwrap().map(|one| one.unwrap().path()).collect();
    let text = run(request).expect_err("it must be refused").to_string();
    let after: Vec<_> = fs::read_dir(folder).unwrap().map(|one| one.unwrap().path()).collect();
    assert_eq!(before, after, "{text}");
    text
}

/// Puts a page into a file, with a checksum.
fn put_page(files: &mut Files, name: &str, number: usize, mut page: [u8; PAGE_BYTES]) {
    stamp(&mut page, Protection::Checksum);
    put(files.get_mut(name).unwrap(), number * PAGE_BYTES, &page);
}

#[test]
fn databases_that_are_not_at_rest_or_not_known_are_refused() {
    for (boot, words) in [
        (boot_page(782, CHECKSUM), "not shut down cleanly"),
        (boot_page(539, CLEAN | TORN), "SQL Server 2000 (539): files of this version"),
        (boot_page(998, CLEAN | TORN), "SQL Server 2025 (998): files of this version"),
        (made(1, 9, 1), "boot page (1:9) cannot be believed"),
    ] {
        let mut files = shop_of(CLEAN);
        put_page(&mut files, "shop.mdf", 9, boot);
        let (_folder, root) = lay_out(&files);
        for path in [root.clone(), root.join("shop.mdf")] {
            let text = refusal(&Request { path, ..request(&root, Protection::Torn) });
            assert!(text.contains(words), "{text}");
        }
    }
}

/// Its sum fits, and its name is that of the database that no server flushes.
#[test]
fn temporary_tables_are_refused() {
    let mut files = shop_of(CLEAN);
    let mut boot = boot_page(782, CLEAN);
    put(&mut boot, 96 + 52, b"t\0e\0m\0p\0d\0b\0");
    put_page(&mut files, "shop.mdf", 9, boot);
    let (_folder, root) = lay_out(&files);
    assert!(refusal(&request(&root, Protection::None)).contains("not shut down cleanly"));
}

/// Headers in the clear, sums that fit, and noise.
#[test]
fn encrypted_pages_are_refused() {
    let mut files = shop_of(CLEAN | CHECKSUM);
    let mut dice = Dice(99);
    for number in 10..18 {
        let mut page = data_page(1, number, &mut dice);
        page[96..].fill_with(|| dice.any().to_le_bytes()[3]);
        put_page(&mut files, "shop.mdf", number as usize, page);
    }
    let (_folder, root) = lay_out(&files);
    let text = refusal(&request(&root, Protection::Checksum));
    assert!(text.contains("encrypted (TDE)"), "{text}");
}

#[test]
fn in_place_and_for_another_cluster_are_refused() {
    let (_folder, root) = lay_out(&shop_of(CLEAN));
    for dry_run in [false, true] {
        let in_place = Request { copy_to: None, dry_run, ..request(&root, Protection::Torn) };
        assert!(refusal(&in_place).contains("not changed in place"));
    }
    let wish = Wish::Like(root.clone());
    let text = refusal(&Request { wish, ..request(&root, Protection::Torn) });
    assert!(text.contains("--mode checksum"), "{text}");
}

#[test]
fn what_is_no_database_is_refused() {
    let files = shop_of(CLEAN);
    let (_folder, root) = lay_out(&files);
    let of = |name: &str| Request { path: root.join(name), ..request(&root, Protection::None) };
    assert!(refusal(&of("shop_log.ldf")).contains("a log file"));
    fs::write(root.join("pointer.mdf"), "version https://git-lfs.github.com/spec/v1\n").unwrap();
    assert!(refusal(&of("pointer.mdf")).contains("Git LFS"));
    assert!(refusal(&request(&root, Protection::None)).contains("Git LFS"));
    fs::remove_file(root.join("pointer.mdf")).unwrap();
    fs::write(root.join("shop.bak"), [&b"TAPE"[..], &[0; 5000]].concat()).unwrap();
    // What it is called does not matter; nor does it stop a folder's files.
    run(&Request { dry_run: true, ..request(&root, Protection::None) }).unwrap();
}

#[test]
fn files_of_two_databases_are_refused() {
    let mut files = shop_of(CLEAN);
    let other = super::data_file(1, 12, CLEAN, &mut Dice(3));
    files.insert("other.mdf".to_owned(), other);
    let (_folder, root) = lay_out(&files);
    assert!(refusal(&request(&root, Protection::None)).contains("more than one database"));
    // The same number is not needed: another binding will do.
    let mut files = shop_of(CLEAN);
    put_page(&mut files, "shop_2.ndf", 0, super::file_header(3, 23, *b"the other's file"));
    let (_folder, root) = lay_out(&files);
    assert!(refusal(&request(&root, Protection::None)).contains("shop.mdf and shop_2.ndf"));
}

#[test]
fn files_that_cannot_be_one_copy_are_refused() {
    let (folder, root) = lay_out(&shop_of(CLEAN));
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    let mut bytes = super::data_file(3, 12, CLEAN, &mut Dice(3));
    put(&mut bytes, 0, &super::file_header(3, 12, *b"the other's file"));
    fs::write(other.join("shop.mdf"), &bytes).unwrap();
    fs::write(other.join("other.ndf"), &bytes).unwrap();
    let with = |further: &[&Path]| {
        let further = further.iter().map(|path| path.to_path_buf()).collect();
        refusal(&Request {
            path: root.join("shop.mdf"),
            further,
            ..request(&root, Protection::Torn)
        })
    };
    assert!(with(&[&root.join("shop.mdf")]).contains("named twice"));
    assert!(with(&[&other.join("shop.mdf")]).contains("of one name"));
    assert!(with(&[&other.join("other.ndf")]).contains("more than one database"));
    assert!(with(&[&root]).contains("a folder"));
    assert!(with(&[&root.join("nothing.ndf")]).contains("cannot open"));
    let path = root.clone();
    let further = vec![root.join("shop.mdf")];
    let folder_first = Request { path, further, ..request(&root, Protection::Torn) };
    assert!(refusal(&folder_first).contains("a folder"));
}

#[test]
fn folder_that_is_not_empty_is_refused_and_left_alone() {
    let files = shop_of(CLEAN);
    let (_folder, root) = lay_out(&files);
    let copy = copy_of(&root);
    fs::create_dir(&copy).unwrap();
    fs::write(copy.join("mine"), "mine").unwrap();
    for dry_run in [false, true] {
        let text = refusal(&Request { dry_run, ..request(&root, Protection::Torn) });
        assert!(text.contains("not empty"), "{text}");
        assert_eq!(image(&copy).len(), 1);
    }
    // Nor is it emptied because a marker of another copy lies in it.
    fs::write(copy.join("pagewarden-protect.copy"), "of something else").unwrap();
    assert!(refusal(&request(&root, Protection::Torn)).contains("not empty"));
    assert_eq!(image(&copy).len(), 2);
    // The folder of the source is none that is empty.
    let same = Request { copy_to: Some(root.clone()), ..request(&root, Protection::Torn) };
    assert!(refusal(&same).contains("not empty"));
    assert!(image(&root) == files);
}

#[test]
fn second_run_is_refused_while_the_first_is_at_work() {
    let (_folder, root) = lay_out(&shop_of(CLEAN));
    let copy = copy_of(&root);
    fs::create_dir(&copy).unwrap();
    let marker = fs::File::create(copy.join("pagewarden-protect.copy")).unwrap();
    let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&marker, exclusive).unwrap();
    let text = refusal(&request(&root, Protection::Torn));
    assert!(text.contains("another run"), "{text}");
    drop(marker);
    run(&request(&root, Protection::Torn)).unwrap();
}

fn damaged_shop() -> Files {
    let mut files = shop_of(CLEAN | CHECKSUM);
    let mut dice = Dice(5);
    put_page(&mut files, "shop.mdf", 20, data_page(1, 20, &mut dice));
    let mdf = files.get_mut("shop.mdf").unwrap();
    mdf[20 * PAGE_BYTES + 5000] ^= 1;
    mdf[21 * PAGE_BYTES..22 * PAGE_BYTES].fill(0);
    put_page(&mut files, "shop_2.ndf", 15, data_page(3, 16, &mut dice));
    files
}

#[test]
fn damaged_pages_are_named_and_no_copy_is_made() {
    let files = damaged_shop();
    let (_folder, root) = lay_out(&files);
    for dry_run in [true, false] {
        let outcome = run(&Request { dry_run, ..request(&root, Protection::Torn) }).unwrap();
        let found: Vec<_> = outcome
            .findings
            .iter()
            .map(|one| (&*one.place.file, one.place.page.unwrap().0, one.kind))
            .collect();
        let expected = [
            ("shop.mdf", 20, Kind::Checksum),
            ("shop.mdf", 21, Kind::Zeroed),
            ("shop_2.ndf", 15, Kind::Misplaced),
        ];
        assert_eq!(found, expected);
        assert_eq!((outcome.pages.damaged, outcome.after), (3, Protection::Checksum));
        assert_eq!((outcome.bytes_verified, outcome.stopped), (0, false));
        assert_eq!(image(&copy_of(&root)), Files::new());
    }
    // The same folder does, when it is said to go on.
    let on = Request { skip_damaged: true, ..request(&root, Protection::Torn) };
    let outcome = run(&on).unwrap();
    assert_eq!((outcome.pages.damaged, outcome.after), (3, Protection::Torn));
    let copy = image(&copy_of(&root));
    for (name, number) in [("shop.mdf", 20), ("shop.mdf", 21), ("shop_2.ndf", 15)] {
        let page = number * PAGE_BYTES..(number + 1) * PAGE_BYTES;
        assert!(copy[name][page.clone()] == files[name][page], "{name} {number}");
    }
    // The rest as ever.
    let without = |files: &Files| {
        let mut files = files.clone();
        for (name, number) in [("shop.mdf", 20), ("shop.mdf", 21), ("shop_2.ndf", 15)] {
            let bytes = files.get_mut(name).unwrap();
            bytes[number * PAGE_BYTES..(number + 1) * PAGE_BYTES].fill(0);
        }
        files
    };
    assert_copied(&without(&files), &without(&copy), Protection::Torn);
}

#[test]
fn file_that_is_cut_is_damage() {
    let mut files = shop_of(CLEAN);
    files.get_mut("shop.mdf").unwrap().truncate(30 * PAGE_BYTES + 100);
    let (_folder, root) = lay_out(&files);
    let outcome = run(&request(&root, Protection::Checksum)).unwrap();
    assert!(outcome.findings.iter().all(|finding| finding.kind == Kind::Truncated));
    assert_eq!((outcome.findings.len(), outcome.pages.damaged), (2, 2));
    let on = Request { skip_damaged: true, ..request(&root, Protection::Checksum) };
    run(&on).unwrap();
    let copy = image(&copy_of(&root));
    let tail = 30 * PAGE_BYTES..30 * PAGE_BYTES + 100;
    assert_eq!(copy["shop.mdf"].len(), tail.end);
    assert!(copy["shop.mdf"][tail.clone()] == files["shop.mdf"][tail]);
}

/// A server that wakes up in the middle makes the copy worthless.
#[test]
fn source_that_changes_meanwhile_is_noticed() {
    #[derive(Debug)]
    struct Meddling<'a>(&'a Path);
    impl pagewarden_core::protect::disk::Disk for Meddling<'_> {
        fn sync(&self, _: &pagewarden_core::protect::disk::Written) -> std::io::Result<()> {
            use std::io::Write as _;
            fs::File::options().append(true).open(self.0).unwrap().write_all(&[0; PAGE_BYTES])
        }
    }
    let (_folder, root) = lay_out(&shop_of(CLEAN));
    let path = root.join("shop_2.ndf");
    let error = run_on(&Meddling(&path), &request(&root, Protection::Torn), &Options::default());
    let text = error.unwrap_err().to_string();
    assert!(text.contains("changed while it was copied"), "{text}");
    assert!(image(&copy_of(&root)).keys().all(|name| name.contains("pagewarden")));
}

#[test]
fn write_that_the_device_loses_is_noticed() {
    #[derive(Debug)]
    struct Losing;
    impl pagewarden_core::protect::disk::Disk for Losing {
        fn write_at(
            &self,
            file: &pagewarden_core::protect::disk::Written,
            bytes: &[u8],
            offset: u64,
        ) -> std::io::Result<()> {
            let is_lost = offset == 6 * PAGE_BYTES as u64;
            if is_lost { Ok(()) } else { System.write_at(file, bytes, offset) }
        }
    }
    let (_folder, root) = lay_out(&shop_of(CLEAN));
    let request = request(&root, Protection::Torn);
    let text = run_on(&Losing, &request, &Options::default()).unwrap_err().to_string();
    assert!(text.contains("do not read back"), "{text}");
    assert!(!copy_of(&root).join("shop.mdf").exists());
}

#[test]
fn run_that_is_to_stop_leaves_what_is_known_as_unfinished() {
    let (_folder, root) = lay_out(&shop_of(CLEAN));
    let options = Options::default();
    options.stop.store(true, Ordering::Relaxed);
    let outcome = run_on(&System, &request(&root, Protection::Torn), &options).unwrap();
    assert!(outcome.stopped && outcome.after == Protection::None);
    let names: Vec<_> = image(&copy_of(&root)).into_keys().collect();
    assert!(names.iter().all(|name| name.contains("pagewarden")), "{names:?}");
    run(&request(&root, Protection::Torn)).unwrap();
}
