//! The headers of blocks and streams, and their sums: see the table in `mtf`.

use std::fmt;

use super::{ALIGNMENT, BLOCK_HEADER_BYTES, STREAM_ALIGNMENT, STREAM_HEADER_BYTES};

const BLOCK_ADDRESS: usize = 20;
const BLOCK_NUMBER: usize = 36;
const BLOCK_SUM: usize = 50;
const STREAM_SUM: usize = 20;
/// A block with all its strings is not larger.
const BLOCK_BYTES_MAX: usize = 1 << 16;

/// The types of blocks that were seen, and EOTM: the end of a medium that goes
/// on with another.
pub(super) const BLOCKS: [[u8; 4]; 10] = [
    *b"TAPE", *b"SFMB", *b"SSET", *b"VOLB", *b"MSCI", *b"MSDA", *b"MSTL", *b"MSLS", *b"ESET",
    *b"EOTM",
];
/// The types of streams that were seen, and CSUM of the document.
pub(super) const STREAMS: [[u8; 4]; 9] =
    [*b"RAID", *b"SPAD", *b"APAD", *b"MQCI", *b"MQDA", *b"MQTL", *b"OTCP", *b"TSMP", *b"CSUM"];

/// A block's or stream's type.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Type(pub [u8; 4]);

impl Type {
    pub(super) fn is_possible(self) -> bool {
        self.0.iter().all(u8::is_ascii_alphanumeric)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct BlockHeader {
    pub(super) kind: Type,
    pub(super) attributes: u32,
    pub(super) first_stream: u16,
    /// Logical blocks from the begin of the set on.
    pub(super) address: u64,
    /// Blocks of the set before it.
    pub(super) number: u32,
    pub(super) stored: u16,
    pub(super) computed: u16,
}

impl BlockHeader {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<BLOCK_HEADER_BYTES>()?;
        let (summed, stored) = header.split_first_chunk::<BLOCK_SUM>()?;
        let [a, b, c, d, e, f, g, h, low, high, ..] = *summed;
        Some(Self {
            kind: Type([a, b, c, d]),
            attributes: u32::from_le_bytes([e, f, g, h]),
            first_stream: u16::from_le_bytes([low, high]),
            address: u64::from_le_bytes(*summed.get(BLOCK_ADDRESS..)?.first_chunk()?),
            number: u32::from_le_bytes(*summed.get(BLOCK_NUMBER..)?.first_chunk()?),
            stored: word(stored),
            computed: sum(summed),
        })
    }

    /// Whether its size is a possible one.
    pub(super) fn is_plain(&self) -> bool {
        let size = usize::from(self.first_stream);
        let is_filemark = self.kind.0 == *b"SFMB";
        let unit = if is_filemark { ALIGNMENT } else { STREAM_ALIGNMENT };
        self.kind.is_possible()
            && (BLOCK_HEADER_BYTES..=BLOCK_BYTES_MAX).contains(&size)
            && u64::from(self.first_stream).is_multiple_of(unit)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct StreamHeader {
    pub(super) kind: Type,
    pub(super) attributes: u16,
    pub(super) bytes: u64,
    pub(super) encryption: u16,
    pub(super) compression: u16,
    pub(super) stored: u16,
    pub(super) computed: u16,
}

impl StreamHeader {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<STREAM_HEADER_BYTES>()?;
        let (summed, stored) = header.split_first_chunk::<STREAM_SUM>()?;
        let (kind, rest) = summed.split_first_chunk::<4>()?;
        let (attributes, rest) = rest.get(2..)?.split_first_chunk::<2>()?;
        let (bytes, rest) = rest.split_first_chunk::<8>()?;
        Some(Self {
            kind: Type(*kind),
            attributes: u16::from_le_bytes(*attributes),
            bytes: u64::from_le_bytes(*bytes),
            encryption: word(rest),
            compression: word(rest.get(2..)?),
            stored: word(stored),
            computed: sum(summed),
        })
    }
}

/// A little-endian word; what is not there is zero.
fn word(bytes: &[u8]) -> u16 {
    bytes.first_chunk().copied().map_or(0, u16::from_le_bytes)
}

pub(super) fn sum(bytes: &[u8]) -> u16 {
    bytes.as_chunks::<2>().0.iter().fold(0, |sum, word| sum ^ u16::from_le_bytes(*word))
}

/// Whether a block's header stands here, of any type, and has its sum.
#[must_use]
pub fn block_sum_fits(bytes: &[u8]) -> bool {
    BlockHeader::read(bytes).is_some_and(|header| header.stored == header.computed)
}

/// Whether a file that begins with these bytes is a backup: not a compressed one,
/// which begins with [`MAGIC`](crate::mssqlbak::MAGIC).
#[must_use]
pub fn looks_like_backup(begin: &[u8]) -> bool {
    begin.starts_with(b"TAPE") && block_sum_fits(begin)
}

/// Whether a block of a known type stands here and has its sum.
pub(super) fn is_block(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|kind| BLOCKS.contains(kind))
        && BlockHeader::read(bytes)
            .is_some_and(|header| header.stored == header.computed && header.is_plain())
}

/// Whether a stream of a known type begins here and has its sum.
pub(super) fn is_stream(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|kind| STREAMS.contains(kind))
        && StreamHeader::read(bytes).is_some_and(|header| header.stored == header.computed)
}
