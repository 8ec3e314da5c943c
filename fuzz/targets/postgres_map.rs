//! `pg_filenode.map`: arbitrary bytes, and arbitrary bytes whose CRC fits.
//!
//! The first byte of the input says what is done with the others.

use pagewarden::crc::crc32c;
use pagewarden::formats::postgres::files::maps;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if mode & 1 != 0 {
        let (length, crc_at) = if mode & 2 != 0 { (512, 504) } else { (524, 520) };
        bytes.resize(length, 0);
        let crc = crc32c(&bytes[..crc_at]).to_le_bytes();
        bytes[crc_at..crc_at + 4].copy_from_slice(&crc);
    }
    match maps::check(&bytes) {
        Ok(()) => {
            assert!(matches!(bytes.len(), 512 | 524));
            assert!(bytes.starts_with(&0x0059_2717_u32.to_le_bytes()));
        }
        Err((_, detail)) => assert!(!detail.is_empty()),
    }
}
