//! `pagewarden check` and `unpack` on files that real SQL Servers wrote, 2005 to
//! 2019, and on copies of them that were damaged: what the page's own protection
//! sees by theory must be found, no more and no less, and what it cannot see is
//! asserted as such, or found by the page's place and use.
//!
//! The files lie beside the project, in `../shared/fixtures/sqlserver`, or where
//! `PAGEWARDEN_FIXTURES` says.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pagewarden::formats::sqlserver::checksum::{PAGE_BYTES, Page};
use serde_json::Value;
use tempfile::TempDir;

use crate::runner::{Report, check};

pub mod backups;
pub mod chains;
mod large;
mod log_files;
mod mutations;
mod protect;
mod sums_made_right;
mod unpack;
pub mod wild;
mod wounds;

/// A folder with one file in it.
pub struct Copy {
    folder: TempDir,
    pub path: PathBuf,
}

impl Copy {
    pub fn of(name: &str, bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        Self { folder, path }
    }

    pub fn check(&self) -> Report {
        check([&self.path]).report()
    }

    /// Each page by itself.
    pub fn check_one_by_one(&self) -> Report {
        check([Path::new("--no-witness"), &self.path]).report()
    }

    /// Another file beside it.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

pub fn folder() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    std::env::var_os("PAGEWARDEN_FIXTURES").map_or_else(beside, PathBuf::from).join("sqlserver")
}

/// A file of the collection; `None`, said aloud, where it is not here.
pub fn fixture(name: &str) -> Option<Vec<u8>> {
    let path = folder().join(name);
    match fs::read(&path) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{}: {error}", path.display());
            eprintln!("SKIPPED: {}: {error}", path.display());
            None
        }
    }
}

pub const DATA_FILES: [&str; 6] = [
    "northwind-torn-2008r2.mdf",
    "pubs-checksum-2008.mdf",
    "nerddinner-stray-2008r2.mdf",
    "empty-checksum-2005.mdf",
    "testdb-checksum-2014.mdf",
    "derived-test-file3-2016.ndf",
];

pub const STRIPE: &str = "northwind-stripe2of2-torn-2008r2.bak";

/// A number of the list beside the files, summed up over the pieces of a backup.
fn expected(of: &Value, name: &str) -> u64 {
    match of["mqda"].as_array() {
        Some(pieces) => pieces.iter().map(|piece| piece[name].as_u64().unwrap()).sum(),
        None => of[name].as_u64().unwrap(),
    }
}

#[test]
fn every_page_of_real_files_counts_as_another_reader_counted_it() {
    let Some(list) = fixture("expected.json") else { return };
    let list: Value = serde_json::from_slice(&list).unwrap();
    let mut names: Vec<_> = list.as_object().unwrap().keys().map(String::as_str).collect();
    names.push("derived-test-file3-2016.ndf");
    for name in names {
        let report = check([folder().join(name)]).report();
        let pages = |class| report.pages(class);
        if let Some(of) = list.get(name) {
            let number = |name| expected(of, name);
            assert_eq!(pages("total"), number("pages"), "{name}");
            assert_eq!(pages("ok"), number("checksum_ok") + number("torn_ok"), "{name}");
            assert_eq!(pages("unprotected"), number("unprotected"), "{name}");
            assert_eq!(pages("empty"), number("zero") + number("stray"), "{name}");
            let by_mode = &report.target()["by_mode"];
            assert_eq!(by_mode["checksum"], number("checksum"), "{name}");
            assert_eq!(by_mode["torn"], number("torn"), "{name}");
            assert_eq!(by_mode["none"], number("unprotected"), "{name}");
            let boot = if of["mqda"].is_array() { &of["mqda"][0]["boot"] } else { &of["boot"] };
            let mode = boot["mode"].as_str().unwrap().to_lowercase();
            assert_eq!(report.target()["setting"], mode, "{name}");
            let version = format!("({})", boot["ver"]);
            assert!(report.target()["engine"].as_str().unwrap().ends_with(&version), "{name}");
        } else {
            assert_eq!((pages("total"), pages("ok"), pages("empty")), (40, 11, 29));
        }
        assert_eq!(pages("damaged") + pages("suspect"), 0, "{name}");
        let findings = report.findings();
        // One of two stripes was named.
        assert_eq!(findings.len(), usize::from(name == STRIPE), "{name}: {findings:?}");
        assert!(report.serious().is_empty(), "{name}: {findings:?}");
        assert_eq!(report.unread().len(), usize::from(name == STRIPE), "{name}");
        let none = report.target()["setting"] == "none";
        let verdict = match (name == STRIPE, none) {
            (true, _) => "incomplete",
            (false, true) => "unprotected",
            (false, false) => "intact",
        };
        assert_eq!(report.verdict(), verdict, "{name}");
    }
}

/// Bytes of a deleted file of another user are a privacy matter, and no damage.
#[test]
fn foreign_bytes_in_pages_that_were_never_written_are_told_once() {
    let Some(bytes) = fixture("nerddinner-stray-2008r2.mdf") else { return };
    let report = Copy::of("x.mdf", &bytes).check();
    let notes = report.target()["notes"].as_array().unwrap().clone();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0]["text"].as_str().unwrap().starts_with("130 pages were never written"));
}

#[test]
fn what_only_has_the_name_of_a_sql_server_file_is_called_what_it_is() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n";
    for (name, bytes, words) in [
        ("x.mdf", &pointer[..], "a Git LFS pointer"),
        ("NORTHWND.MDF", b"\n\n<!DOCTYPE html><html>", "a web page"),
        ("plan.bak", b"PK\x03\x04 an office document", "an office document"),
        ("board.bak", b"(kicad_pcb (version 20171130))", "not a SQL Server file"),
        ("x.ndf", &[0; 20_000], "begins with zeroes"),
    ] {
        let outcome = check([&Copy::of(name, bytes).path]);
        assert_eq!(outcome.status, Some(2), "{name}");
        assert!(outcome.stdout.contains(words), "{name}: {}", outcome.stdout);
    }
}

#[test]
fn log_file_without_log_behind_its_first_page_is_damaged() {
    let Some(mdf) = fixture("pubs-checksum-2008.mdf") else { return };
    let mut log = vec![0xAB; 64 * PAGE_BYTES];
    log[..PAGE_BYTES].copy_from_slice(&mdf[..PAGE_BYTES]);
    let report = Copy::of("pubs_log.ldf", &log).check();
    assert_eq!((report.verdict(), report.pages("total"), report.pages("ok")), ("damaged", 1, 1));
    assert_eq!(report.serious()[0].offset, Some(PAGE_BYTES as u64));
    // Under a data file's name, or none, it is a data file: the first of its database is no log.
    assert_eq!(Copy::of("pubs.mdf", &log).check().pages("damaged"), 6);
    assert_eq!(Copy::of("pubs", &log).check().pages("damaged"), 6);
    log[500] ^= 4;
    let report = Copy::of("pubs_log.ldf", &log).check();
    assert_eq!((report.verdict(), report.pages("damaged")), ("damaged", 1));
}

#[test]
fn file_that_lost_its_first_pages_or_was_compressed_is_called_so() {
    let Some(mdf) = fixture("pubs-checksum-2008.mdf") else { return };
    let outcome = check([&Copy::of("x.mdf", &mdf[PAGE_BYTES..10 * PAGE_BYTES]).path]);
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stdout.contains("page 1:1 of a SQL Server file"), "{}", outcome.stdout);
    let compressed = b"\x1F\x8B\x08\x00\x00\x00\x00\x00\x00\x03 and so on";
    for name in ["x.mdf", "x.bak.gz"] {
        let outcome = check([&Copy::of(name, compressed).path]);
        assert_eq!(outcome.status, Some(2));
        assert!(outcome.stdout.contains("zcat < "), "{name}: {}", outcome.stdout);
    }
}

#[test]
fn data_file_longer_than_its_header_says_is_told() {
    let (Some(one), Some(other)) =
        (fixture("pubs-checksum-2008.mdf"), fixture("testdb-checksum-2014.mdf"))
    else {
        return;
    };
    let report = Copy::of("x.mdf", &[one, other].concat()).check();
    assert_eq!(report.verdict(), "intact");
    let notes = report.target()["notes"].to_string();
    assert!(notes.contains("has 696 pages, and its header says 288"), "{notes}");
    assert!(!notes.contains("instant file initialisation"), "{notes}");
}

/// The page of number `number` of a data file.
pub fn page_of(bytes: &mut [u8], number: u64) -> &mut Page {
    let begin = usize::try_from(number).unwrap() * PAGE_BYTES;
    (&mut bytes[begin..begin + PAGE_BYTES]).try_into().unwrap()
}

pub fn u16_at(page: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(page[at..at + 2].try_into().unwrap())
}

pub fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().unwrap())
}

/// The pages of a report's findings of at least suspicion.
pub fn found(report: &Report) -> BTreeSet<u64> {
    report.serious().iter().filter_map(|finding| finding.page).collect()
}

/// Writes a stream header's sum anew.
pub fn sum_stream(header: &mut [u8]) {
    let words = header[..20].chunks_exact(2);
    let sum = words.fold([0, 0], |sum, word| [sum[0] ^ word[0], sum[1] ^ word[1]]);
    header[20..22].copy_from_slice(&sum);
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}
