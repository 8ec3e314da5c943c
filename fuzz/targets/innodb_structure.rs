//! A small InnoDB tablespace, plain or compressed, with changed bytes under sums that fit: what its pages
//! say of themselves and of one another is gone through by `--structure`.
//!
//! The first byte of the input chooses the form; then five bytes a change: page, offset, what is there.

use std::fs;

use pagewarden::database::kind_named;
use pagewarden::formats::innodb::checksum::{crc32, full_crc32, zip_crc32};
use pagewarden::formats::innodb::page::layout::{Form, Layout};
use pagewarden_fuzz::{check_structure, empty_folder};

const PAGES: usize = 12;
const TYPES: [u16; PAGES] = [8, 5, 3, 17_855, 17_855, 17_855, 17_855, 10, 10, 24, 22, 23];
/// 4K plain, 4K of `full_crc32`, 1K of 4K, 16K of redundant rows.
const FLAGS: [u32; 4] = [0xe1, 0x13, 0xe3, 0x21];

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((choice, changes)) = input.split_first() else { return };
    let flags = FLAGS[usize::from(choice & 3)];
    let Some(layout) = Layout::of_flags(flags) else { return };
    let size = layout.page_size;
    let mut file: Vec<u8> = (0..).zip(TYPES).flat_map(|it| page(it, size, layout.form)).collect();
    file[54..58].copy_from_slice(&flags.to_be_bytes());
    for change in changes.as_chunks::<5>().0 {
        let [page, high, low, first, second] = *change;
        let offset = usize::from(u16::from_be_bytes([high, low])) % (size - 1);
        let at = usize::from(page) % PAGES * size + offset;
        file[at..at + 2].copy_from_slice(&[first, second]);
    }
    file.chunks_exact_mut(size).for_each(|page| make_right(page, layout.form));
    let path = empty_folder().join("t.ibd");
    fs::write(&path, &file).expect("the folder is ours");
    let report = check_structure(&path, kind_named("innodb"));
    assert!(report.is_none_or(|report| report.unread.is_empty()));
}

/// A page of that number and type, which is sound as far as this goes.
fn page((number, kind): (u32, u16), size: usize, form: Form) -> Vec<u8> {
    let mut page = vec![0; size];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(4, &number.to_be_bytes());
    put(8, &[0xFF; 8]);
    put(24, &kind.to_be_bytes());
    put(34, &7_u32.to_be_bytes());
    match kind {
        8 => {
            put(38, &7_u32.to_be_bytes());
            put(46, &12_u32.to_be_bytes());
            put(50, &12_u32.to_be_bytes());
            // An extent of single pages, all of them in use.
            put(150 + 20, &2_u32.to_be_bytes());
        }
        17_855 => {
            let top: u16 = 120;
            put(38, &[0, 2]);
            put(40, &top.to_be_bytes());
            put(42, &[0x80, 2]);
            if form == Form::Zip {
                // One field of four bytes, and no records.
                const STREAM: [u8; 23] = [
                    0x78, 0x01, 0, 2, 0, 0xFD, 0xFF, 9, 0, 0, 0, 0, 0xFF, 0xFF, 1, 0, 0, 0xFF, 0xFF, 0,
                    0x14, 0, 0x0A,
                ];
                put(94, &STREAM);
            } else {
                put(94, &[1, 0, 2, 0, 13]);
                put(99, b"infimum\0\0\0\x0B\0\0supremum");
                put(107, &[1]);
                put(size - 12, &[0, 112, 0, 99]);
            }
        }
        _ => {}
    }
    page
}

/// Gives a page the sum of its form.
pub(crate) fn make_right(page: &mut [u8], form: Form) {
    let size = page.len();
    let low = page[20..24].to_vec();
    match form {
        Form::Old => {
            page[size - 4..].copy_from_slice(&low);
            let sum = crc32(page).to_be_bytes();
            page[..4].copy_from_slice(&sum);
            page[size - 8..size - 4].copy_from_slice(&sum);
        }
        Form::Zip => {
            let sum = zip_crc32(page).to_be_bytes();
            page[..4].copy_from_slice(&sum);
        }
        Form::FullCrc32 => {
            page[..4].fill(0);
            page[size - 8..size - 4].copy_from_slice(&low);
            let sum = full_crc32(page).to_be_bytes();
            page[size - 4..].copy_from_slice(&sum);
        }
    }
}
