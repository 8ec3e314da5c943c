//! SQLite databases that are compressed, in archives, or come from standard input: checked as the same
//! files are where they lie.

use std::fs::{self, File};
use std::path::Path;

use crate::packs::database;
use crate::runner::{Report, check, pagewarden, run};
use crate::tar_files;

fn golden() -> Vec<u8> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sqlite/3.40.1");
    fs::read(Path::new(root).join("cksumvfs-4096.db")).unwrap()
}

/// With a page that fails its sum.
fn damaged() -> Vec<u8> {
    let mut bytes = golden();
    bytes[2 * 4096 + 1000] ^= 4;
    bytes
}

fn checked(path: &Path) -> Report {
    check([path]).report()
}

fn from_standard_input(path: &Path) -> Report {
    let input = File::open(path).unwrap();
    run(pagewarden().args(["check", "--json", "-"]).stdin(input)).report()
}

/// Counts and findings, without the names of files.
fn result(report: &Report) -> (String, u64, Vec<(Option<u64>, String)>) {
    let findings = report.findings().into_iter().map(|one| (one.page, one.kind)).collect();
    (report.verdict().to_owned(), report.pages("total"), findings)
}

#[test]
fn compressed_database_is_checked_as_the_database_is() {
    let folder = tempfile::tempdir().unwrap();
    for bytes in [golden(), damaged()] {
        let plain = folder.path().join("shop.db");
        fs::write(&plain, &bytes).unwrap();
        let expected = result(&checked(&plain));
        assert_eq!(result(&from_standard_input(&plain)), expected);
        for ending in ["gz", "lz4", "zst"] {
            let packed = folder.path().join(format!("shop.db.{ending}"));
            tar_files::write(&packed, &bytes);
            let report = checked(&packed);
            assert_eq!(result(&report), expected, "{ending}");
            assert!(report.findings().iter().all(|one| one.file == "shop.db"), "{ending}");
            assert_eq!(result(&from_standard_input(&packed)), expected, "{ending}");
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
}

#[test]
fn databases_of_an_archive_are_checked_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let mut archive = tar_files::header("shops/", b'5', 0);
    archive.extend(tar_files::file("shops/readme.txt", b"nothing of interest"));
    archive.extend(tar_files::file("shops/one.db", &golden()));
    // A log belongs to its database wherever it lies.
    archive.extend(tar_files::file("shops/two.db-wal", &[7; 100]));
    archive.extend(tar_files::file("shops/two.db", &damaged()));
    archive.extend([0; 1024]);
    for ending in ["tar", "tar.gz"] {
        let path = folder.path().join(format!("shops.{ending}"));
        tar_files::write(&path, &archive);
        for report in [checked(&path), from_standard_input(&path)] {
            assert_eq!(report.pages("total") as usize * 4096, 2 * golden().len(), "{ending}");
            let failed: Vec<_> =
                report.serious().into_iter().filter(|one| one.page == Some(3)).collect();
            assert_eq!(failed.len(), 1, "{report:?}");
            assert_eq!(failed[0].file, "shops/two.db");
            let notes = report.target()["notes"].to_string();
            assert!(notes.contains("1 other file in the archive"), "{notes}");
            assert!(notes.contains("shops/two.db-wal"), "{notes}");
        }
    }
}

#[test]
fn what_breaks_off_is_incomplete_and_what_came_of_it_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    if let Some(large) = database(folder.path()) {
        let bytes = fs::read(&large).unwrap();
        for ending in ["gz", "zst"] {
            let packed = folder.path().join(format!("shop.db.{ending}"));
            tar_files::write(&packed, &bytes);
            let packed_bytes = fs::read(&packed).unwrap();
            fs::write(&packed, &packed_bytes[..packed_bytes.len() / 2]).unwrap();
            let report = checked(&packed);
            assert_eq!(report.verdict(), "incomplete", "{report:?}");
            assert!(report.unread().contains_key("shop.db"), "{report:?}");
            assert!(report.pages("total") > 10, "{report:?}");
        }
    }

    let archive = [
        tar_files::file("one.db", &golden()),
        tar_files::file("two.db", &golden())[..9000].to_vec(),
    ]
    .concat();
    let path = folder.path().join("two.tar");
    fs::write(&path, archive).unwrap();
    let report = checked(&path);
    assert_eq!(report.verdict(), "incomplete", "{report:?}");
    assert!(report.pages("total") as usize * 4096 >= golden().len());
    assert!(report.unread().contains_key("two.db"), "{report:?}");
}
