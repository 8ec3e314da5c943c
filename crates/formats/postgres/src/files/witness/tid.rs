//! Where a row is: `ItemPointerData`, and the entries of index pages that hold one.
//!
//! ```text
//! offset  size  field
//!      0     2  bi_hi    high half of the block number
//!      2     2  bi_lo    low half
//!      4     2  ip_posid number of the line pointer, from 1
//! ```
//!
//! ```text
//! index tuple
//!      0     6  t_tid
//!      6     2  t_info   0x1FFF size, 0x2000 for the method's use, 0x4000 has
//!                        variable widths, 0x8000 has nulls
//!      8        key
//! ```
//!
//! Sources: `src/include/storage/itemptr.h`, `src/include/access/itup.h`.

use crate::page::HEADER_BYTES;

/// Bytes in an item pointer.
pub(in crate::files) const TID_BYTES: usize = 6;
/// Bytes of an index tuple before its key.
const ENTRY_BYTES: usize = 8;
/// Offset of `pd_lower` and `pd_special` in the page header.
const LOWER: usize = 12;
const SPECIAL: usize = 16;

/// The place of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid {
    /// The block of the heap.
    pub block: u32,
    /// The number of its line pointer, from 1.
    pub number: u16,
}

impl Tid {
    /// Reads the low six bytes of a number that was read from eight.
    #[inline]
    pub(super) fn of(bits: u64) -> Self {
        let low = |bits: u64| u16::try_from(bits & 0xFFFF).unwrap_or(0);
        // Read as one number the halves of the block stand the wrong way round.
        let block = u32::try_from(bits & 0xFFFF_FFFF).unwrap_or(0).rotate_left(16);
        Self { block, number: low(bits >> 32) }
    }

    /// Reads six bytes.
    #[inline]
    pub(in crate::files) fn read(bytes: &[u8]) -> Option<Self> {
        let [high_0, high_1, low_0, low_1, number_0, number_1] = *bytes.first_chunk()?;
        Some(Self {
            block: u32::from_le_bytes([low_0, low_1, high_0, high_1]),
            number: u16::from_le_bytes([number_0, number_1]),
        })
    }
}

/// The entries of an index page from one line pointer on, as their first eight
/// bytes and where they begin. Ends at the first that lies outside of the page.
#[inline]
pub(super) fn entries(page: &[u8], first: usize) -> impl Iterator<Item = (u64, usize)> + '_ {
    let begin = HEADER_BYTES.saturating_add(first.saturating_mul(4));
    let pointers = page.get(begin..usize::from(u16_at(page, LOWER))).unwrap_or_default();
    let (pointers, _) = pointers.as_chunks::<4>();
    pointers.iter().map_while(|bits| {
        // The length is in the tuple as well; only the place matters.
        let at = usize::from(u16::from_le_bytes([bits[0], bits[1]]) & 0x7FFF);
        let entry = page.get(at..at + ENTRY_BYTES)?.first_chunk()?;
        Some((u64::from_le_bytes(*entry), at))
    })
}

/// `t_info` of an entry.
#[inline]
pub(super) fn info(entry: u64) -> u16 {
    u16::try_from(entry >> 48).unwrap_or(0)
}

/// The special space of an index page, of which the method says how long it is.
#[inline]
pub(super) fn special<const BYTES: usize>(page: &[u8]) -> Option<&[u8; BYTES]> {
    let begin = page.len().checked_sub(BYTES)?;
    if usize::from(u16_at(page, SPECIAL)) != begin {
        return None;
    }
    page.get(begin..)?.first_chunk()
}

/// The end of what a page holds in front of its free space.
#[inline]
pub(super) fn lower(page: &[u8]) -> usize {
    usize::from(u16_at(page, LOWER))
}

/// The little-endian number at `at`; 0 beyond the end.
#[inline]
pub(in crate::files) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |two| u16::from_le_bytes(*two))
}
