//! The beginning of an index file (`.MAI`): how the pages of a table are laid
//! out and protected. All integers are big-endian.
//!
//! ```text
//! offset  size  field
//!      0     4  magic FE FE 09 03
//!      4     2  options: 2048 page checksums
//!     12     2  where the base information begins, b
//!     22     1  how rows are stored: 3 in pages
//!     24     2  how often the table is open
//!     26     2  changes: 2 and 4 crashed
//!     49     8  rows
//!     89     8  bytes in the index file when it was last written
//!     97     8  bytes in the data file then
//!   b+16     8  where the pages of indexes begin
//!   b+90     2  more options: 1 encrypted
//!  b+100     2  bytes in a page
//!  b+106     1  1 for a transactional table
//! ```
//!
//! Source: `maria_def.h`, `ma_open.c` and `ma_backup.c` of MariaDB 10.11, and
//! its system tables.

#![deny(clippy::arithmetic_side_effects)]

/// So much of the file is enough to read a header.
pub const HEADER_BYTES: usize = 4096;

const MAGIC: [u8; 4] = [0xFE, 0xFE, 0x09, 0x03];
const OPTIONS: usize = 4;
const BASE_BEGIN: usize = 12;
const DATA_FILE_TYPE: usize = 22;
const OPEN_COUNT: usize = 24;
const CHANGES: usize = 26;
const ROWS: usize = 49;
const INDEX_BYTES: usize = 89;
const DATA_BYTES: usize = 97;
const BASE_KEY_START: usize = 16;
const BASE_EXTRA_OPTIONS: usize = 90;
const BASE_PAGE_BYTES: usize = 100;
const BASE_TRANSACTIONAL: usize = 106;

const OPTION_PAGE_CHECKSUM: u16 = 2048;
const ROWS_IN_PAGES: u8 = 3;
const CHANGES_CRASHED: u16 = 2 | 4;
const EXTRA_ENCRYPTED: u16 = 1;

/// What an index file says of its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AriaHeader {
    /// Bytes in a page: a power of two from 1 KiB to 32 KiB.
    pub page_size: usize,
    /// Where the pages of indexes begin.
    pub index_begin: u64,
    /// Pages carry sums.
    pub has_sums: bool,
    /// Pages are encrypted, but those of bitmaps.
    pub is_encrypted: bool,
    /// Pages have log positions.
    pub is_transactional: bool,
    /// The data file consists of pages (ROW_FORMAT=PAGE).
    pub has_data_pages: bool,
    /// No server had it open when it was last written, and it did not crash.
    pub is_closed: bool,
    /// It was not open then, whether it was marked as crashed or not.
    pub is_unused: bool,
    /// Rows that the table had then.
    pub rows: u64,
    /// Bytes that the index file had then.
    pub index_bytes: u64,
    /// Bytes that the data file had then.
    pub data_bytes: u64,
}

impl AriaHeader {
    /// Reads the beginning of an index file; `None` where it is none.
    #[must_use]
    pub fn parse(file: &[u8]) -> Option<Self> {
        if !file.starts_with(&MAGIC) {
            return None;
        }
        let base = file.get(usize::from(u16_at(file, BASE_BEGIN)?)..)?;
        let page_size = usize::from(u16_at(base, BASE_PAGE_BYTES)?);
        if !page_size.is_power_of_two() || page_size < 1024 {
            return None;
        }
        Some(Self {
            page_size,
            index_begin: u64_at(base, BASE_KEY_START)?,
            has_sums: u16_at(file, OPTIONS)? & OPTION_PAGE_CHECKSUM != 0,
            is_encrypted: u16_at(base, BASE_EXTRA_OPTIONS)? & EXTRA_ENCRYPTED != 0,
            is_transactional: *base.get(BASE_TRANSACTIONAL)? != 0,
            has_data_pages: *file.get(DATA_FILE_TYPE)? == ROWS_IN_PAGES,
            is_closed: u16_at(file, OPEN_COUNT)? == 0
                && u16_at(file, CHANGES)? & CHANGES_CRASHED == 0,
            is_unused: u16_at(file, OPEN_COUNT)? == 0,
            rows: u64_at(file, ROWS)?,
            index_bytes: u64_at(file, INDEX_BYTES)?,
            data_bytes: u64_at(file, DATA_BYTES)?,
        })
    }
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().map(|field| u16::from_be_bytes(*field))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|field| u64::from_be_bytes(*field))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// As MariaDB 10.11 writes it for `mysql.db`.
    pub(crate) fn header() -> Vec<u8> {
        let mut file = vec![0; 8192];
        file[..8].copy_from_slice(&[0xFE, 0xFE, 9, 3, 8, 2, 4, 0]);
        file[BASE_BEGIN..BASE_BEGIN + 2].copy_from_slice(&[0x01, 0x1F]);
        file[DATA_FILE_TYPE] = 3;
        file[INDEX_BYTES..INDEX_BYTES + 8].copy_from_slice(&16_384_u64.to_be_bytes());
        file[DATA_BYTES..DATA_BYTES + 8].copy_from_slice(&24_576_u64.to_be_bytes());
        let base = &mut file[0x11F..];
        base[BASE_KEY_START..BASE_KEY_START + 8].copy_from_slice(&8192_u64.to_be_bytes());
        base[BASE_PAGE_BYTES] = 0x20;
        base[BASE_TRANSACTIONAL] = 1;
        file
    }

    #[test]
    fn header_of_a_table_is_read() {
        let mut file = header();
        let parsed = AriaHeader::parse(&file).unwrap();
        assert_eq!((parsed.page_size, parsed.index_begin), (8192, 8192));
        assert!(parsed.has_sums && parsed.is_transactional && parsed.has_data_pages);
        assert!(parsed.is_closed && !parsed.is_encrypted);
        assert_eq!((parsed.index_bytes, parsed.data_bytes), (16_384, 24_576));
        file[OPEN_COUNT + 1] = 1;
        assert!(!AriaHeader::parse(&file).unwrap().is_closed);
    }

    #[test]
    fn what_is_no_header_is_refused_wherever_it_ends() {
        let file = header();
        for length in 0..0x11F + BASE_TRANSACTIONAL {
            assert_eq!(AriaHeader::parse(&file[..length]), None, "{length}");
        }
        for (at, byte) in [(0, 1), (3, 1), (BASE_BEGIN, 0xFF), (0x11F + BASE_PAGE_BYTES, 0x21)] {
            let mut file = file.clone();
            file[at] = byte;
            assert_eq!(AriaHeader::parse(&file), None, "{at}");
        }
    }
}
