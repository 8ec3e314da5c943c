//! The tuples of a page, as its line pointers say where they are: inside of the space for
//! tuples, aligned, none over another.
//!
//! ```text
//! pd_upper <= lp_off, lp_off + lp_len <= pd_special, lp_off a multiple of 8
//! ```
//!
//! A server places a tuple at the lower end of those before it, with its length rounded up to
//! 8, and moves all of them together when it removes some (`PageAddItemExtended`,
//! `PageRepairFragmentation`, `PageIndexMultiDelete` in `src/backend/storage/page/bufpage.c`,
//! 9.6 to 18). So the tuples of most pages fill the space from `pd_upper` to `pd_special`
//! without a hole, which [`Tiles`] shows with two numbers; only where it does not, each byte
//! is asked ([`overlap`]).

use crate::files::witness::heap::{LinePointer, line_pointers};

/// `MAXIMUM_ALIGNOF`, of 64-bit servers.
pub const ALIGN: u16 = 8;

/// Sums over the tuples of a page. Tuples that fill a stretch without a hole and without
/// overlap have ends and beginnings that cancel each other but for the first and last, and so
/// do the squares of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tiles {
    bytes: u32,
    squares: u64,
}

impl Tiles {
    /// With a tuple from `begin` that takes `bytes`, rounded up to [`ALIGN`].
    #[inline]
    #[must_use]
    pub fn with(self, begin: u32, bytes: u32) -> Self {
        let bytes = bytes.wrapping_add(7) & !7;
        // The difference of the squares of end and begin.
        let squares = u64::from(begin.wrapping_mul(2).wrapping_add(bytes)) * u64::from(bytes);
        Self { bytes: self.bytes.wrapping_add(bytes), squares: self.squares.wrapping_add(squares) }
    }

    /// True if the tuples fill this stretch. False says nothing.
    #[inline]
    #[must_use]
    pub fn fill(self, begin: u32, end: u32) -> bool {
        let all = Self::default().with(begin, end.saturating_sub(begin));
        self.bytes == all.bytes && self.squares == all.squares
    }
}

/// Two tuples of a page that have bytes in common: the number of the line pointer of the
/// second, in words; `None` if there are none. Tuples must be inside of the page.
#[must_use]
pub fn overlap(page: &[u8]) -> Option<String> {
    const WORD: usize = 64;
    // A bit for each 8 bytes: tuples begin at multiples of 8.
    let mut taken = vec![0_u64; page.len().div_ceil(usize::from(ALIGN)).div_ceil(WORD)];
    for (number, pointer) in (1_u32..).zip(line_pointers(page)) {
        let LinePointer::Normal { offset, length } = pointer else { continue };
        let begin = usize::from(offset / ALIGN);
        let end = begin.saturating_add(usize::from(length).div_ceil(usize::from(ALIGN)));
        for unit in begin..end {
            let Some(word) = taken.get_mut(unit / WORD) else { break };
            let bit = 1 << (unit % WORD);
            if *word & bit != 0 {
                return Some(format!(
                    "line pointer {number} leads into the bytes of another tuple"
                ));
            }
            *word |= bit;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::page::HEADER_BYTES;

    fn page(tuples: &[(u16, u16)]) -> Vec<u8> {
        let mut page = vec![0_u8; 8192];
        let lower = u16::try_from(HEADER_BYTES + tuples.len() * 4).unwrap();
        page[12..14].copy_from_slice(&lower.to_le_bytes());
        for (index, (offset, length)) in tuples.iter().enumerate() {
            let bits = u32::from(*offset) | 1 << 15 | u32::from(*length) << 17;
            page[HEADER_BYTES + index * 4..][..4].copy_from_slice(&bits.to_le_bytes());
        }
        page
    }

    #[test]
    fn tuples_in_any_order_fill_their_space_and_one_that_is_moved_does_not() {
        let sums = |tuples: &[(u16, u16)]| {
            tuples.iter().fold(Tiles::default(), |sums, (offset, length)| {
                sums.with(u32::from(*offset), u32::from(*length))
            })
        };
        let tuples = [(8000, 192), (7960, 33), (7904, 56)];
        assert!(sums(&tuples).fill(7904, 8192));
        assert_eq!(overlap(&page(&tuples)), None);
        let moved = [(8000, 192), (7968, 33), (7904, 56)];
        assert!(!sums(&moved).fill(7904, 8192));
        let text = overlap(&page(&moved)).unwrap();
        assert_eq!(text, "line pointer 2 leads into the bytes of another tuple");
        // A hole alone is no fault.
        let apart = [(8000, 192), (7904, 56)];
        assert!(!sums(&apart).fill(7904, 8192));
        assert_eq!(overlap(&page(&apart)), None);
    }

    proptest! {
        #[test]
        fn no_line_pointers_are_too_strange(tuples in prop::collection::vec(any::<(u16, u16)>(), 0..300)) {
            let _ = overlap(&page(&tuples));
        }
    }
}
