//! Files of an incremental backup (17 and later): `INCREMENTAL.16397.1` holds
//! the changed blocks of `16397.1` and says which they are.
//!
//! ```text
//! offset  size  field
//!      0     4  magic, 0xD3AE1F0D
//!      4     4  number of blocks
//!      8     4  truncation block length: the file is at least so long
//!     12   4*n  block numbers within the segment, ascending
//!               zeroes up to a multiple of the page size, if n > 0
//!               the blocks
//! ```
//!
//! Source: `sendFile` in `src/backend/backup/basebackup.c`; the order of the
//! two numbers was confirmed on backups of a real server of 18.

use std::io::{self, Read};

use crate::files::control::u32_at;
use pagewarden_core::verdict::Kind;

/// What stands before the name of the whole file.
pub const PREFIX: &str = "INCREMENTAL.";

const MAGIC: u32 = 0xD3AE_1F0D;
const MAGIC_AT: usize = 0;
const COUNT: usize = MAGIC_AT + 4;
const TRUNCATION: usize = COUNT + 4;
const NUMBERS: usize = TRUNCATION + 4;
const _: () = assert!(NUMBERS == 12);

/// What the header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Where the blocks begin.
    pub header_bytes: u64,
    /// Blocks that the whole file had at least.
    pub truncation_blocks: u32,
    /// The number of each block within its segment, ascending.
    pub numbers: Vec<u32>,
}

/// Why no header could be had.
#[derive(Debug)]
pub enum HeaderError {
    /// It could not be read.
    Io(io::Error),
    /// It is not one that a server writes.
    Wrong(Kind, String),
}

impl Header {
    /// Reads the header and its padding: `source` then stands at the first
    /// block. `segment_pages` bounds the memory that it takes.
    ///
    /// # Errors
    /// The header is cut off, or is none, or `source` fails.
    pub fn read(
        source: &mut impl Read,
        page_size: usize,
        segment_pages: u64,
    ) -> Result<Self, HeaderError> {
        let mut fixed = [0_u8; NUMBERS];
        fill(source, &mut fixed)?;
        let field = |at| u32_at(&fixed, at).unwrap_or(0);
        let wrong = |detail: String| HeaderError::Wrong(Kind::Header, detail);
        if field(MAGIC_AT) != MAGIC {
            return Err(wrong(format!("its magic number is 0x{:08x}", field(MAGIC_AT))));
        }
        let (count, truncation_blocks) = (field(COUNT), field(TRUNCATION));
        if u64::from(count) > segment_pages || u64::from(truncation_blocks) > segment_pages {
            return Err(wrong(format!(
                "it claims {count} blocks of {truncation_blocks}, in a segment of {segment_pages}"
            )));
        }
        // In pieces: the number is only a claim until the bytes are there.
        let mut numbers = Vec::new();
        let mut before = None;
        for _ in 0..count {
            let mut number = [0_u8; 4];
            fill(source, &mut number)?;
            let number = u32::from_le_bytes(number);
            if before.is_some_and(|before| number <= before) || u64::from(number) >= segment_pages {
                return Err(wrong(format!("block number {number} is out of order or range")));
            }
            before = Some(number);
            numbers.push(number);
        }
        let used = NUMBERS as u64 + 4 * u64::from(count);
        let header_bytes = if count == 0 { used } else { used.next_multiple_of(page_size as u64) };
        let mut padding = vec![0_u8; usize::try_from(header_bytes - used).unwrap_or(0)];
        fill(source, &mut padding)?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(wrong("its padding is not zero".to_owned()));
        }
        Ok(Self { header_bytes, truncation_blocks, numbers })
    }

    /// Bytes that the whole file must have.
    #[must_use]
    pub fn file_bytes(&self, page_size: usize) -> u64 {
        let blocks = (self.numbers.len() as u64).saturating_mul(page_size as u64);
        self.header_bytes.saturating_add(blocks)
    }
}

fn fill(source: &mut impl Read, bytes: &mut [u8]) -> Result<(), HeaderError> {
    source.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            HeaderError::Wrong(Kind::Truncated, "it ends inside its header".to_owned())
        }
        _ => HeaderError::Io(error),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: usize = 8192;
    const SEGMENT: u64 = 131_072;

    fn header(magic: u32, count: u32, truncation: u32, numbers: &[u32]) -> Vec<u8> {
        let words = [magic, count, truncation];
        words.iter().chain(numbers).flat_map(|word| word.to_le_bytes()).collect()
    }

    fn read(bytes: &[u8]) -> Result<Header, (Kind, String)> {
        Header::read(&mut &bytes[..], PAGE, SEGMENT).map_err(|error| match error {
            HeaderError::Wrong(kind, detail) => (kind, detail),
            HeaderError::Io(error) => panic!("{error}"),
        })
    }

    #[test]
    fn header_with_blocks_is_padded_to_a_page_and_one_without_is_not() {
        let mut bytes = header(MAGIC, 2, 403, &[0, 271]);
        bytes.resize(PAGE, 0);
        let read_back = read(&bytes).unwrap();
        assert_eq!(read_back.numbers, [0, 271]);
        assert_eq!((read_back.header_bytes, read_back.truncation_blocks), (8192, 403));
        assert_eq!(read_back.file_bytes(PAGE), 3 * 8192);
        let empty = read(&header(MAGIC, 0, 7, &[])).unwrap();
        assert_eq!((empty.header_bytes, empty.file_bytes(PAGE)), (12, 12));
    }

    #[test]
    fn headers_that_no_server_writes_are_refused() {
        for bytes in [
            header(0xD3AE_1F0C, 0, 0, &[]),
            header(MAGIC, u32::MAX, 0, &[]),
            header(MAGIC, 1, u32::MAX, &[0]),
            header(MAGIC, 2, 5, &[3, 3]),
            header(MAGIC, 2, 5, &[4, 3]),
            header(MAGIC, 1, 5, &[131_072]),
        ] {
            assert_eq!(read(&bytes).unwrap_err().0, Kind::Header);
        }
        let mut padded = header(MAGIC, 1, 5, &[3]);
        padded.resize(PAGE, 0);
        for length in 0..padded.len() {
            assert_eq!(read(&padded[..length]).unwrap_err().0, Kind::Truncated, "{length}");
        }
        padded[4000] = 1;
        assert_eq!(read(&padded).unwrap_err().0, Kind::Header);
    }

    proptest! {
        #[test]
        fn whatever_is_read_fits_a_segment(
            mut bytes in prop::collection::vec(any::<u8>(), 0..64),
            count in 0_u32..8,
        ) {
            if bytes.len() >= NUMBERS {
                bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
                bytes[4..8].copy_from_slice(&count.to_le_bytes());
            }
            bytes.resize(PAGE, 0);
            if let Ok(header) = read(&bytes) {
                prop_assert!(header.numbers.iter().all(|number| u64::from(*number) < SEGMENT));
                prop_assert!(header.numbers.is_sorted());
            }
        }
    }
}
