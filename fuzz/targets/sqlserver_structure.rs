//! A small data file of SQL Server with an index, its IAM page and the table of allocation units, with changed bytes
//! under sums that fit: what its pages say of themselves and of one another is compared.
//!
//! Five bytes of the input a change: page, offset, what is there.

use std::fs;

use pagewarden::database::kind_named;
use pagewarden::formats::sqlserver::checksum::{PAGE_BYTES, Page, stamp_checksum};
use pagewarden_fuzz::{check_structure, empty_folder};

const PAGES: usize = 24;
const UNITS: u32 = 7;
const INDEX: u32 = 77;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let mut file: Vec<Page> = (0..PAGES).map(page).collect();
    for change in input.as_chunks::<5>().0 {
        let [page, high, low, first, second] = *change;
        let offset = usize::from(u16::from_be_bytes([high, low])) % (PAGE_BYTES - 1);
        file[usize::from(page) % PAGES][offset..offset + 2].copy_from_slice(&[first, second]);
    }
    file.iter_mut().for_each(stamp_checksum);
    let path = empty_folder().join("t.mdf");
    fs::write(&path, file.concat()).expect("the folder is ours");
    let report = check_structure(&path, kind_named("sqlserver"));
    if let Some(report) = report {
        assert!(report.unread.is_empty());
        assert!(!input.is_empty() || report.findings.is_empty(), "{:?}", report.findings);
    }
}

/// A page that is sound.
fn page(number: usize) -> Page {
    let mut page = [0; PAGE_BYTES];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    let id = u32::try_from(number).unwrap_or(0);
    put(32, &id.to_le_bytes());
    put(36, &[1]);
    match number {
        0 => file_header(&mut put),
        1 => {
            put(0, &[1, 11, 0, 0, 0, 2]);
            put(98, &8092_u16.to_le_bytes());
            for page in [0, 1, 2, 3, 6, 7] {
                put(100 + page, &[0x44]);
            }
            put(108, &[0x70, 0x64, 0x70, 0x60]);
            put(116, &[0x40; 8]);
        }
        2 | 3 | 6 | 7 => {
            let kind = [8, 9, 0, 0, 16, 17][number - 2];
            put(0, &[1, kind, 0, 0, 0, 2]);
            put(98, &94_u16.to_le_bytes());
            put(192, &7992_u16.to_le_bytes());
            put(8188, &[190, 0, 96, 0]);
            if number == 3 {
                put(194, &[2]);
            }
        }
        9 => {
            put(0, &[1, 13, 0, 0, 0, 2]);
            put(22, &[1]);
            put(96 + 4, &655_u16.to_le_bytes());
            put(96 + 36, &[0, 0, 1, 0x40]);
            put(8190, &[96]);
        }
        8 => iam(&mut put, INDEX, 2, 0),
        10 => iam(&mut put, UNITS, 0, 11),
        11 => {
            header(&mut put, 1, 0, UNITS, 2);
            unit(&mut put, 96, INDEX, 16, 8);
            unit(&mut put, 96 + 73, UNITS, 11, 10);
            end(&mut put, &[96, 96 + 73], 73);
        }
        16 => {
            header(&mut put, 2, 1, INDEX, 2);
            put(14, &[11]);
            for (at, child) in [(96, 17), (107, 18)] {
                put(at, &[6, 0, 0, 0, 0, child, 0, 0, 0, 1, 0]);
            }
            end(&mut put, &[96, 107], 11);
        }
        17..=23 => {
            header(&mut put, 2, 0, if number < 19 { INDEX } else { 0 }, 2);
            put(14, &[9]);
            put(96, &[6, 1, 0, 0, 0, 9, 9, 9, 9, 6, 2, 0, 0, 0, 9, 9, 9, 9]);
            end(&mut put, &[96, 105], 9);
            match number {
                17 => put(16, &[18, 0, 0, 0, 1]),
                18 => put(8, &[17, 0, 0, 0, 1]),
                // Not in use.
                _ => put(1, &[19]),
            }
        }
        _ => return [0; PAGE_BYTES],
    }
    page
}

/// Two slots' header of a page with rows.
fn header(put: &mut impl FnMut(usize, &[u8]), kind: u8, level: u8, object: u32, slots: u8) {
    put(0, &[1, kind, 0, level, 0, 2]);
    put(24, &object.to_le_bytes());
    put(6, &[u8::from(object == INDEX) * 2]);
    put(22, &[slots]);
}

/// Slots, free bytes, and where the records end.
fn end(put: &mut impl FnMut(usize, &[u8]), records: &[usize], bytes: usize) {
    let field = |value: usize| u16::try_from(value).unwrap_or(0).to_le_bytes();
    for (record, slot) in records.iter().zip(1..) {
        put(PAGE_BYTES - 2 * slot, &field(*record));
    }
    put(28, &field(8096 - records.len() * (2 + bytes)));
    put(30, &field(96 + records.len() * bytes));
}

fn iam(put: &mut impl FnMut(usize, &[u8]), object: u32, extents: usize, single: u8) {
    header(put, 10, 0, object, 2);
    put(98, &[94]);
    put(140, &[1]);
    put(8188, &[190, 0, 96, 0]);
    if extents > 0 {
        put(194, &[1 << extents]);
    }
    if single > 0 {
        put(142, &[single, 0, 0, 0, 1]);
    }
}

/// A row of the table of allocation units.
fn unit(put: &mut impl FnMut(usize, &[u8]), at: usize, object: u32, root: u8, iam: u8) {
    put(at, &[0x10, 0, 69, 0]);
    put(at + 6, &object.to_le_bytes());
    put(at + 10, &[u8::from(object == INDEX) * 2, 0, 1]);
    put(at + 33, &[root, 0, 0, 0, 1]);
    put(at + 39, &[iam, 0, 0, 0, 1]);
    put(at + 69, &[12]);
}

/// The columns that are read: binding, file, pages; each of variable length.
fn file_header(put: &mut impl FnMut(usize, &[u8])) {
    put(0, &[1, 15, 0, 0, 0, 2]);
    put(22, &[1]);
    put(8190, &[96]);
    put(96, &[0x30, 0, 4, 0, 5, 0, 0, 5, 0]);
    let begin: u16 = 9 + 10;
    for (end, index) in [begin + 16, begin + 16, begin + 18, begin + 18, begin + 22].iter().zip(0..) {
        put(96 + 9 + 2 * index, &end.to_le_bytes());
    }
    put(96 + usize::from(begin), &[7; 16]);
    put(96 + usize::from(begin) + 16, &[1, 0, 24, 0, 0, 0]);
}
