//! Packs: arbitrary bytes, and a table, an index and blocks of arbitrary bytes in a
//! file whose sums fit.

#![no_main]

use std::io::Write as _;

use libfuzzer_sys::fuzz_target;
use pagewarden::pack::{BEGIN, Pack, VERSION};

/// More is not read at once, whatever the pack says of its files.
const READ_BYTES: usize = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let Some((mode, bytes)) = input.split_first() else { return };
    let file = if mode & 1 == 0 { wrapped(*mode, bytes) } else { bytes.to_vec() };
    let mut place = tempfile::NamedTempFile::new().unwrap();
    place.write_all(&file).unwrap();
    let pack = match Pack::open(place.path()) {
        Ok(pack) => pack,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let _ = pack.report();
    let mut contents = pack.contents();
    let mut out = vec![0; READ_BYTES];
    let mut span = Vec::new();
    for (number, entry) in pack.entries().iter().enumerate().take(100) {
        assert!(!entry.name.is_absolute());
        if let Ok(count) = contents.read_at(number, 0, &mut out) {
            assert!(count as u64 <= entry.bytes());
        }
        let _ = contents.read_at(number, entry.bytes() / 2, &mut out);
        if contents.span(number, 0, &mut span).is_ok() {
            assert!(span.len() as u64 <= entry.bytes());
        }
    }
});

fn crc(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

/// A pack of these: two lengths, then a table, an index and blocks.
fn wrapped(mode: u8, bytes: &[u8]) -> Vec<u8> {
    let (table, rest) = cut(bytes);
    let (index, blocks) = cut(rest);
    let block_bytes = 4096_u32 << (mode >> 4 & 7);
    let mut file = BEGIN.as_bytes().to_vec();
    for number in [VERSION, block_bytes, 0] {
        file.extend(number.to_le_bytes());
    }
    file.extend(crc(&[]).to_le_bytes());
    file.extend(crc(&file).to_le_bytes());
    file.extend(blocks);
    let index_at = file.len() as u64;
    file.extend(index);
    if mode & 2 == 0 {
        file.extend(crc(index).to_le_bytes());
    }
    let stored = zstd::bulk::compress(table, 1).unwrap();
    let report = zstd::bulk::compress(b"{}", 1).unwrap();
    let table_at = file.len() as u64;
    let mut footer = index_at.to_le_bytes().to_vec();
    let report_at = table_at + stored.len() as u64;
    for (begin, stored, expanded) in [(table_at, &stored, table.len()), (report_at, &report, 2)] {
        for number in [begin, stored.len() as u64, expanded as u64, crc(stored)] {
            footer.extend(number.to_le_bytes());
        }
    }
    footer.extend(blake3::hash(table).as_bytes());
    footer.extend(crc(&footer).to_le_bytes());
    file.extend(stored);
    file.extend(report);
    file.extend(footer);
    file.extend(BEGIN.as_bytes());
    file
}

/// A length of two bytes, so much, and the rest.
fn cut(bytes: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return (&[], &[]) };
    let length = usize::from(u16::from_le_bytes(*length));
    rest.split_at_checked(length).unwrap_or((rest, &[]))
}
