//! Data files and backups of SQL Server, of pages that were made and damaged.

use std::fs;
use std::num::NonZero;

use arbitrary::{Arbitrary, Unstructured};
use pagewarden::database::kind_named;
use pagewarden::formats::sqlserver::checksum::{PAGE_BYTES, Page, stamp_checksum, stamp_torn_bits};
use pagewarden_fuzz::{check, empty_folder};

#[derive(Debug, Arbitrary)]
struct Input {
    is_backup: bool,
    file: u8,
    is_clean: bool,
    allocated: Vec<u8>,
    pages: Vec<Made>,
    /// Bytes of the file, before the end, that are turned over.
    patches: Vec<(u16, u8)>,
    cut: u16,
    raw: Vec<u8>,
}

#[derive(Debug, Arbitrary)]
enum Made {
    Checksum(u8),
    Torn(u8),
    Plain,
    Zero,
    Noise(u8),
    Of(u16),
}

const PAGES_MAX: usize = 48;
/// Types of the pages that every file has.
const FIXED: [(usize, u8); 7] = [(0, 15), (1, 11), (2, 8), (3, 9), (6, 16), (7, 17), (9, 13)];

fn page(input: &Input, number: usize) -> Page {
    let mut page = [0; PAGE_BYTES];
    let fixed = FIXED.iter().find(|(at, _)| *at == number).map(|(_, kind)| *kind);
    let made = input.pages.get(number).unwrap_or(&Made::Zero);
    let made =
        if fixed.is_some() && matches!(made, Made::Zero) { &Made::Checksum(7) } else { made };
    let claimed = match made {
        Made::Zero => return page,
        Made::Noise(byte) => return [*byte; PAGE_BYTES],
        Made::Of(other) => usize::from(*other),
        _ => number,
    };
    page[..2].copy_from_slice(&[1, fixed.unwrap_or(1)]);
    page[32..36].copy_from_slice(&(claimed as u32).to_le_bytes());
    page[36] = input.file.max(1);
    match fixed {
        Some(11) => {
            page[98..100].copy_from_slice(&8092_u16.to_le_bytes());
            for (byte, use_) in page[100..8188].iter_mut().zip(&input.allocated) {
                *byte = *use_;
            }
        }
        Some(13) => {
            page[8190] = 96;
            page[96 + 36..96 + 40].copy_from_slice(&[
                0,
                0,
                1,
                if input.is_clean { 0x40 } else { 0 },
            ]);
        }
        _ => page[200..4000].fill(input.file),
    }
    match made {
        Made::Checksum(byte) => {
            page[5] = 2;
            page[8000] = *byte;
            stamp_checksum(&mut page);
        }
        Made::Torn(pattern) => {
            page[5] = 1;
            stamp_torn_bits(&mut page, 1 + pattern % 2);
        }
        _ => {}
    }
    page
}

fn sum(bytes: &mut [u8], at: usize) {
    let words = bytes[..at].chunks_exact(2);
    let sum = words.fold([0, 0], |sum, word| [sum[0] ^ word[0], sum[1] ^ word[1]]);
    bytes[at..at + 2].copy_from_slice(&sum);
}

fn block(file: &mut Vec<u8>, kind: &[u8; 4]) {
    file.resize(file.len().next_multiple_of(512), 0);
    let bytes = if kind == b"SFMB" { 512_u16 } else { 128 };
    let mut block = vec![0; usize::from(bytes)];
    block[..4].copy_from_slice(kind);
    block[8..10].copy_from_slice(&bytes.to_le_bytes());
    block[10..12].copy_from_slice(&[14, 1]);
    block[52] = 4;
    sum(&mut block, 50);
    file.extend(block);
}

fn stream(file: &mut Vec<u8>, kind: &[u8; 4], contents: &[u8]) {
    let mut header = vec![0; 22];
    header[..4].copy_from_slice(kind);
    header[8..16].copy_from_slice(&(contents.len() as u64).to_le_bytes());
    sum(&mut header, 20);
    file.extend(header);
    file.extend(contents);
    file.resize(file.len().next_multiple_of(4), 0);
}

/// Fills a block up.
fn padding(file: &mut Vec<u8>) {
    let begin = file.len() + 22;
    stream(file, b"SPAD", &vec![0; begin.next_multiple_of(512) - begin]);
}

/// A backup of these pages.
fn backup(pages: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    for kind in [b"TAPE", b"SSET", b"MSDA"] {
        block(&mut file, kind);
        if kind == b"MSDA" {
            // The first page stands at a multiple of 512.
            let begin = (file.len() + 22 + 22 + 2).next_multiple_of(512);
            let padding = begin - 2 - 22 - 22 - file.len();
            stream(&mut file, b"APAD", &vec![0; padding]);
            let mut contents = vec![0; 2];
            contents.extend(pages);
            contents.resize(2 + pages.len().next_multiple_of(8 * PAGE_BYTES), 0);
            stream(&mut file, b"MQDA", &contents);
            stream(&mut file, b"MQDA", &[]);
        }
        padding(&mut file);
    }
    block(&mut file, b"ESET");
    padding(&mut file);
    block(&mut file, b"SFMB");
    file.resize(file.len().next_multiple_of(512), 0);
    file
}

/// Runs one input.
pub(crate) fn run(bytes: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    let count = input.pages.len().clamp(10, PAGES_MAX);
    let mut bytes: Vec<u8> = (0..count).flat_map(|number| page(&input, number)).collect();
    if input.is_backup {
        bytes = backup(&bytes);
    }
    for (at, value) in &input.patches {
        let at = usize::from(*at) * 13 % bytes.len();
        bytes[at] ^= *value;
    }
    bytes.truncate(bytes.len() - usize::from(input.cut) % bytes.len());
    bytes.extend(&input.raw);
    let path = empty_folder().join(if input.is_backup { "x.bak" } else { "x.mdf" });
    fs::write(&path, &bytes).expect("the folder is ours");
    for kind in [None, kind_named("sqlserver")] {
        if let Some(report) = check(&path, kind, NonZero::<usize>::MIN) {
            assert!(report.summary.bytes <= bytes.len() as u64);
        }
    }
}
