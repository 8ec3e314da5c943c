//! `pg_control`: arbitrary bytes, and arbitrary bytes whose CRC fits.
//!
//! The first byte of the input says what is done with the others.

use pagewarden::crc::crc32c;
use pagewarden::formats::postgres::files::control::Control;
use pagewarden::formats::postgres::page::PAGE_SIZES;

/// Where the versions keep their CRC, and where none does.
const CRC_PLACES: [usize; 8] = [256, 280, 288, 292, 304, 128, 400, 508];

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if mode % 4 != 0 {
        let at = CRC_PLACES[usize::from(mode / 4) % CRC_PLACES.len()];
        if let (Some(covered), true) = (bytes.get(..at), bytes.len() >= at + 4) {
            let crc = crc32c(covered).to_le_bytes();
            bytes[at..at + 4].copy_from_slice(&crc);
        }
    }
    match Control::parse(&bytes) {
        Ok(control) => {
            assert!(PAGE_SIZES.contains(&control.page_size), "{control:?}");
            assert!(matches!(control.max_align, 4 | 8), "{control:?}");
            assert!(control.segment_pages > 0, "{control:?}");
            assert!(control.wal_segment_bytes.is_power_of_two(), "{control:?}");
        }
        Err(fault) => assert!(!fault.detail.is_empty()),
    }
}
