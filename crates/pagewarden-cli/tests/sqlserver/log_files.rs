//! The body of log files, made here block by block as servers write them; `wild.rs` has real ones.

use pagewarden::formats::sqlserver::checksum::{PAGE_BYTES, stamp_checksum};

use super::{Copy, fixture, page_of, u16_at};
use crate::runner::{Finding, Report, check};

const SECTOR: usize = 512;
/// Sectors before the first block of a virtual log file.
const FIRST: usize = PAGE_BYTES / SECTOR;

/// A virtual log file that is not in use, with its length in sectors.
fn unused(log: &mut Vec<u8>, sectors: usize) -> usize {
    let begin = log.len();
    log.resize(begin + sectors * SECTOR, 0);
    log[begin] = 0xAB;
    log[begin + 2] = 5;
    log[begin + 16..begin + 24].copy_from_slice(&((sectors * SECTOR) as u64).to_le_bytes());
    log[begin + 24..begin + 32].copy_from_slice(&(begin as u64).to_le_bytes());
    begin
}

/// A virtual log file with blocks of these sizes.
fn used(log: &mut Vec<u8>, sequence: u32, sectors: usize, blocks: &[usize]) -> usize {
    let begin = unused(log, sectors);
    log[begin + 1] = 0x80;
    log[begin + 4..begin + 8].copy_from_slice(&sequence.to_le_bytes());
    log[begin + 12] = 2;
    let (mut place, mut previous) = (FIRST, 0);
    for size in blocks {
        let at = begin + place * SECTOR;
        let block = &mut log[at..at + size * SECTOR];
        for (byte, at) in block.iter_mut().zip(0_usize..) {
            *byte = u8::try_from((at * 31 + place) % 251).unwrap();
        }
        for sector in block.chunks_mut(SECTOR) {
            sector[0] = 0x80;
        }
        block[0] |= 0x10;
        block[(size - 1) * SECTOR] |= 0x08;
        let bytes = u16::try_from(size * SECTOR).unwrap();
        block[4..6].copy_from_slice(&(bytes - 16).to_le_bytes());
        block[6..8].copy_from_slice(&bytes.to_le_bytes());
        block[10..12].copy_from_slice(&u16::to_le_bytes(previous));
        block[12..16].copy_from_slice(&sequence.to_le_bytes());
        block[16..20].copy_from_slice(&u32::try_from(place).unwrap().to_le_bytes());
        block[24..28].fill(0);
        let sum = block.chunks(SECTOR).fold(0_u32, |sum, sector| {
            let words = sector.as_chunks::<4>().0.iter();
            sum.rotate_left(1) ^ words.fold(0, |sum, word| sum ^ u32::from_le_bytes(*word))
        });
        block[24..28].copy_from_slice(&sum.to_le_bytes());
        (place, previous) = (place + size, bytes);
    }
    begin
}

/// The first page of a log file, out of that of a data file.
fn first_page() -> Option<Vec<u8>> {
    let mut page = fixture("pubs-checksum-2008.mdf")?;
    page.truncate(PAGE_BYTES);
    page[36] = 2;
    Some(page)
}

/// Writes the number of the file and its pages where its header says them.
fn finish(mut log: Vec<u8>) -> Vec<u8> {
    let pages = u32::try_from(log.len() / PAGE_BYTES).unwrap();
    let page = page_of(&mut log, 0);
    let record = usize::from(u16_at(page, PAGE_BYTES - 2));
    let fixed = usize::from(u16_at(page, record + 2));
    let columns = usize::from(u16_at(page, record + fixed));
    let ends = record + fixed + 2 + columns.div_ceil(8) + 2;
    let begin_of = |index: usize| record + usize::from(u16_at(page, ends + 2 * (index - 1)));
    let (file, size) = (begin_of(2), begin_of(4));
    page[file..file + 2].copy_from_slice(&2_u16.to_le_bytes());
    page[size..size + 4].copy_from_slice(&pages.to_le_bytes());
    stamp_checksum(page);
    log
}

/// Three virtual log files in use, the newest of them first and not full, and one that is not.
struct Log {
    bytes: Vec<u8>,
    /// Where they begin, oldest first.
    begins: [usize; 3],
    unused: usize,
}

fn log() -> Option<Log> {
    let mut bytes = first_page()?;
    let many = [1; 200];
    let newest = used(&mut bytes, 9, 496, &many);
    let oldest = used(&mut bytes, 7, 496, &[96, 3, 1, 100, 120, 1, 1, 118, 40]);
    let middle = used(&mut bytes, 8, 496, &[100, 100, 100, 100, 80]);
    let unused = unused(&mut bytes, 512);
    Some(Log { bytes: finish(bytes), begins: [oldest, middle, newest], unused })
}

fn checked(bytes: &[u8]) -> Report {
    Copy::of("x_log.ldf", bytes).check()
}

fn serious(report: &Report) -> Vec<(u64, String, String)> {
    let told = |one: Finding| (one.offset.unwrap(), one.severity, one.kind);
    report.serious().into_iter().map(told).collect()
}

fn damage(at: usize, kind: &str) -> (u64, String, String) {
    (at as u64, "damage".to_owned(), kind.to_owned())
}

#[test]
fn sound_log_file_is_intact_and_its_blocks_are_counted() {
    let Some(log) = log() else { return };
    let report = checked(&log.bytes);
    assert_eq!((report.verdict(), report.findings()), ("intact", vec![]));
    assert_eq!((report.pages("total"), report.pages("ok")), (1, 1));
    let notes = report.target()["notes"].to_string();
    assert!(notes.contains("214 blocks in 3 virtual log files in use"), "{notes}");
}

#[test]
fn log_file_that_was_cut_is_damaged_wherever_it_was_cut() {
    let Some(log) = log() else { return };
    for length in (PAGE_BYTES..log.bytes.len()).step_by(SECTOR * 37) {
        let report = checked(&log.bytes[..length]);
        assert_eq!(report.verdict(), "damaged", "{length}");
        assert_eq!(serious(&report).last().unwrap(), &damage(length, "truncated"), "{length}");
    }
    // Between two parts of it the header alone says so.
    let report = checked(&log.bytes[..log.unused]);
    assert_eq!(report.verdict(), "suspect");
}

#[test]
fn log_file_that_is_zero_behind_its_first_page_is_damaged() {
    let Some(mut log) = log() else { return };
    log.bytes[PAGE_BYTES..].fill(0);
    let report = checked(&log.bytes);
    assert_eq!(serious(&report)[0], damage(PAGE_BYTES, "zeroed"));
    assert_eq!(report.verdict(), "damaged");
}

#[test]
fn each_lost_header_of_a_part_of_the_log_is_found() {
    let Some(log) = log() else { return };
    for begin in log.begins.into_iter().chain([log.unused]) {
        for (fill, bytes, kind) in [(0, 496 * SECTOR, "zeroed"), (0x77, 64, "header")] {
            let mut damaged = log.bytes.clone();
            damaged[begin..begin + bytes].fill(fill);
            let report = checked(&damaged);
            assert_eq!(serious(&report), [damage(begin, kind)], "{begin}");
            assert_eq!(report.verdict(), "damaged");
        }
    }
}

/// More blocks follow than a server has under way when it crashes.
#[test]
fn blocks_that_were_damaged_or_lost_are_found_where_others_follow() {
    let Some(log) = log() else { return };
    let [oldest, middle, newest] = log.begins;
    for (at, bytes, kind) in [
        (oldest + FIRST * SECTOR, 96 * SECTOR, "zeroed"),
        (oldest + 115 * SECTOR, SECTOR, "zeroed"),
        (middle + 416 * SECTOR, 80 * SECTOR, "zeroed"),
        (newest + 30 * SECTOR, 5 * SECTOR, "zeroed"),
    ] {
        let mut damaged = log.bytes.clone();
        damaged[at..at + bytes].fill(0);
        assert_eq!(serious(&checked(&damaged)), [damage(at, kind)], "{at}");
    }
    // A sector inside a block is of another write, one in it was written wrongly.
    let block = middle + 116 * SECTOR;
    let mut damaged = log.bytes.clone();
    damaged[block + 7 * SECTOR] = 0x40;
    assert_eq!(serious(&checked(&damaged)), [damage(block, "torn")]);
    let mut damaged = log.bytes.clone();
    damaged[block + 7 * SECTOR + 100] ^= 0x55;
    assert_eq!(serious(&checked(&damaged)), [damage(block, "checksum")]);
}

/// A crash may leave a hole before a few last blocks; one flipped bit no crash leaves.
#[test]
fn hole_before_a_few_last_blocks_is_suspect_and_a_flipped_bit_is_damage() {
    let Some(log) = log() else { return };
    let at = log.begins[2] + 150 * SECTOR;
    let mut damaged = log.bytes.clone();
    damaged[at..at + SECTOR].fill(0);
    let report = checked(&damaged);
    assert_eq!(report.verdict(), "suspect");
    assert_eq!(serious(&report), [(at as u64, "suspect".to_owned(), "zeroed".to_owned())]);
    for block in [at, log.begins[2] + (FIRST + 199) * SECTOR] {
        let mut damaged = log.bytes.clone();
        damaged[block + 300] ^= 4;
        assert_eq!(serious(&checked(&damaged)), [damage(block, "checksum")], "{block}");
    }
}

#[test]
fn log_file_whose_first_page_is_lost_is_a_log_file_all_the_same() {
    let Some(mut log) = log() else { return };
    log.bytes[..PAGE_BYTES].fill(0);
    let report = checked(&log.bytes);
    assert_eq!((report.verdict(), report.pages("damaged")), ("damaged", 1));
    assert_eq!(serious(&report), [damage(0, "zeroed")]);
}

#[test]
fn what_lies_behind_the_end_that_the_header_names_is_told() {
    let Some(mut log) = log() else { return };
    log.bytes.extend([0x11; 3 * PAGE_BYTES]);
    let report = checked(&log.bytes);
    assert_eq!((report.verdict(), report.findings()), ("intact", vec![]));
    let notes = report.target()["notes"].to_string();
    assert!(notes.contains("longer than its header says"), "{notes}");
}

#[test]
fn log_file_of_another_database_than_the_data_file_beside_it_is_told() {
    let Some(log) = log() else { return };
    let copy = Copy::of("x_log.ldf", &log.bytes);
    for (name, is_strange) in
        [("pubs-checksum-2008.mdf", false), ("testdb-checksum-2014.mdf", true)]
    {
        let Some(bytes) = fixture(name) else { return };
        let data = copy.beside(name);
        std::fs::write(&data, bytes).unwrap();
        let report = check([&data, &copy.path]).report();
        assert_eq!(report.verdict(), "intact");
        let notes = report.json["targets"][1]["notes"].to_string();
        assert_eq!(notes.contains("another database than"), is_strange, "{notes}");
    }
}

/// What is in a part of the log and its number show whether it was used, and not one field.
#[test]
fn part_of_the_log_that_says_it_is_unused_is_looked_at() {
    let Some(log) = log() else { return };
    for begin in log.begins {
        let mut says_unused = log.bytes.clone();
        says_unused[begin + 12..begin + 16].fill(0);
        let mut damaged = says_unused.clone();
        damaged[begin + PAGE_BYTES + 300] ^= 1;
        assert_eq!(checked(&damaged).verdict(), "damaged", "{begin}");
        // What is neither the oldest nor the newest part lies between two that were written.
        if begin == log.begins[1] {
            says_unused[begin + PAGE_BYTES..begin + 496 * SECTOR].fill(0);
            assert_ne!(checked(&says_unused).verdict(), "intact", "{begin}");
        }
    }
}

/// A page that was emptied before its sum was made passes its own test, and no server opens the file.
#[test]
fn pages_that_every_file_has_must_hold_what_the_server_reads() {
    for name in ["pubs-checksum-2008.mdf", "testdb-checksum-2014.mdf"] {
        let Some(bytes) = fixture(name) else { return };
        for number in [0, 1, 2, 3, 6, 9] {
            let mut damaged = bytes.clone();
            let page = page_of(&mut damaged, number);
            page[96..].fill(0);
            stamp_checksum(page);
            let report = Copy::of(name, &damaged).check();
            let expected = Finding::page(name, number, "damage", "header");
            assert!(
                report.serious().contains(&expected),
                "{name} {number}: {:?}",
                report.findings()
            );
        }
    }
}
