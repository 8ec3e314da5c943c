//! Databases that are made here byte by byte, and damaged.

#![allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use std::fs;

use super::*;
use crate::checksum::stamp;
use pagewarden_core::database::OpenOptions;
use pagewarden_core::verdict::{Unread, Verdict};
use pagewarden_core::verify::{Options, Sink, Summary, verify};

const BLOCK: usize = BLOCK_SIZE_MIN;

/// A database of `count` blocks, of which `free` are free; the list is in block 0.
fn made(count: u64, free: &[u64]) -> Vec<u8> {
    let mut main = vec![0; HEADER_BYTES];
    main[8..12].copy_from_slice(header::MAGIC);
    main[12..20].copy_from_slice(&64_u64.to_le_bytes());
    main[52..58].copy_from_slice(b"v1.5.6");
    stamp(&mut main);
    let database_header = |iteration: u64| {
        let mut bytes = vec![0; HEADER_BYTES];
        for (at, word) in [(8, iteration), (24, 3 << 56), (32, count), (40, BLOCK as u64)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        stamp(&mut bytes);
        bytes
    };
    let mut database = [main, database_header(7), database_header(6)].concat();
    for number in 0..count {
        let mut block: Vec<u8> = (0..BLOCK).map(|at| (at as u64 * 31 + number) as u8).collect();
        if number == 0 {
            // Part 3: nothing follows.
            let part = 8 + 3 * ((BLOCK - 8) / 64 / 8 * 8);
            let words = [u64::MAX, free.len() as u64].into_iter().chain(free.iter().copied());
            for (index, word) in words.enumerate() {
                let at = part + index * 8;
                block[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
        stamp(&mut block);
        database.extend(block);
    }
    database
}

#[derive(Default)]
struct Seen {
    findings: Vec<Finding>,
    notes: Vec<String>,
}

impl Sink for Seen {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.findings.push(finding.clone());
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        panic!("{unread:?}")
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.notes.push(format!("{}: {}", note.file, note.text));
        Ok(())
    }
}

struct Case(tempfile::TempDir);

impl Case {
    fn new(database: &[u8]) -> Self {
        let case = Self(tempfile::tempdir().unwrap());
        fs::write(case.path(), database).unwrap();
        case
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("shop.duckdb")
    }

    fn check(&self) -> (Summary, Seen) {
        let path = self.path();
        let metadata = fs::metadata(&path).unwrap();
        let target = open(&path, &metadata, &OpenOptions::default()).unwrap();
        assert_eq!(target.description.format, "duckdb");
        let mut seen = Seen::default();
        (verify(target, &Options::default(), &(), &mut seen).unwrap().summary, seen)
    }
}

fn place_of(number: usize) -> usize {
    HEADERS_BYTES + number * BLOCK
}

/// The kind, severity and offset of each finding.
fn found(database: &[u8]) -> Vec<(Kind, Severity, u64)> {
    let (_, seen) = Case::new(database).check();
    let offset = |finding: &Finding| finding.place.offset.unwrap().0;
    seen.findings.iter().map(|it| (it.kind, it.severity, offset(it))).collect()
}

#[test]
fn healthy_database_is_intact_and_free_blocks_are_in_no_count() {
    let mut database = made(10, &[4, 8, 9]);
    database[place_of(4)..place_of(5)].fill(0xA5);
    let (summary, seen) = Case::new(&database).check();
    assert_eq!(
        (summary.verdict(None), summary.pages.ok, summary.pages.total()),
        (Verdict::Intact, 7, 7)
    );
    assert_eq!((seen.findings.len(), seen.notes.len()), (0, 0));
    // DuckDB 1.1 cuts free blocks off the end and counts them all the same.
    database.truncate(place_of(8));
    assert_eq!(found(&database), []);
    database.extend([1; 100]);
    assert_eq!(found(&database), [(Kind::Truncated, Severity::Notice, place_of(8) as u64)]);
}

#[test]
fn damaged_blocks_are_found_where_they_are() {
    let mut database = made(10, &[4, 8, 9]);
    database[place_of(5) + 77] ^= 4;
    database[place_of(7)..place_of(8)].fill(0);
    let (bit, zero) = (place_of(5) as u64, place_of(7) as u64);
    let damage = Severity::Damage;
    assert_eq!(found(&database), [(Kind::BitFlip, damage, bit), (Kind::Zeroed, damage, zero)]);
    database.truncate(place_of(6) + 100);
    let (inside, missing) = (place_of(6) as u64, place_of(7) as u64);
    assert_eq!(
        found(&database),
        [
            (Kind::Truncated, damage, missing),
            (Kind::BitFlip, damage, bit),
            (Kind::Truncated, damage, inside)
        ]
    );
}

#[test]
fn each_damaged_header_is_damage() {
    for header in 0..3 {
        let at = header * HEADER_BYTES;
        let mut database = made(4, &[]);
        database[at + 2000] ^= 1;
        assert_eq!(found(&database), [(Kind::BitFlip, Severity::Damage, at as u64)], "{header}");
        database[at..at + HEADER_BYTES].fill(0);
        assert_eq!(found(&database), [(Kind::Zeroed, Severity::Damage, at as u64)], "{header}");
    }
    let mut database = made(4, &[]);
    database.truncate(10_000);
    let cut = (Kind::Truncated, Severity::Damage, 8192);
    assert_eq!(found(&database), [cut]);
}

/// Which blocks are free is not known then: what fails may be one of them.
#[test]
fn list_of_free_blocks_that_is_damaged_makes_no_other_block_damaged() {
    let mut database = made(10, &[4, 8, 9]);
    database[place_of(0) + 3000] ^= 1;
    database[place_of(4)..place_of(5)].fill(0xA5);
    let found: Vec<_> =
        found(&database).into_iter().map(|(_, severity, at)| (severity, at)).collect();
    let at = |number| place_of(number) as u64;
    assert_eq!(found, [(Severity::Damage, at(0)), (Severity::Suspect, at(4))]);
}

#[test]
fn log_beside_the_database_is_named_and_may_use_free_blocks() {
    let mut database = made(10, &[4, 8, 9]);
    database[place_of(4)..place_of(5)].fill(0xA5);
    let case = Case::new(&database);
    fs::write(case.0.path().join("shop.duckdb.wal"), "log").unwrap();
    let (summary, seen) = case.check();
    assert_eq!(summary.verdict(None), Verdict::Intact);
    assert_eq!(seen.findings[0].severity, Severity::Notice);
    assert!(seen.notes[0].starts_with("shop.duckdb.wal: a log is there"), "{:?}", seen.notes);
}

#[test]
fn encrypted_blocks_are_unverifiable_and_make_the_verdict_incomplete() {
    let mut database = made(4, &[]);
    database[20] = 1;
    stamp(&mut database[..HEADER_BYTES]);
    database[HEADER_BYTES..].fill(0x5A);
    database.resize(place_of(0) + 4 * BLOCK_SIZE_MAX, 0x5A);
    let (summary, seen) = Case::new(&database).check();
    assert_eq!((summary.verdict(None), summary.pages.unverifiable), (Verdict::Incomplete, 4));
    assert!(seen.findings.is_empty() && seen.notes[0].contains("encrypted"), "{:?}", seen.notes);
}

/// Numbers that make no sense, and chains in a circle: no panic, and an end.
#[test]
fn hostile_lists_of_free_blocks_end() {
    for (place, count) in [(0, u64::MAX), (3 << 56, 4), (70 << 56, 4), (u64::MAX >> 8, 4)] {
        let mut database = made(6, &[]);
        for header in [1, 2] {
            let at = header * HEADER_BYTES;
            database[at + 24..at + 32].copy_from_slice(&u64::to_le_bytes(place));
            database[at + 32..at + 40].copy_from_slice(&u64::to_le_bytes(count));
            stamp(&mut database[at..at + HEADER_BYTES]);
        }
        // Part 3 is followed by itself, and says that there are more free blocks than it has room
        // for.
        let part = place_of(0) + 8 + 3 * ((BLOCK - 8) / 64 / 8 * 8);
        database[part..part + 8].copy_from_slice(&(3_u64 << 56).to_le_bytes());
        database[part + 8..part + 16].copy_from_slice(&count.to_le_bytes());
        stamp(&mut database[place_of(0)..place_of(1)]);
        let case = Case::new(&database);
        let (summary, _) = case.check();
        assert!(summary.pages.total() <= 6, "{place:x}");
    }
}
