//! What a heap page says of its own rows: the state of each line pointer.
//!
//! ```text
//! offset  size  field
//!     24   4*n  line pointers; n is (pd_lower - 24) / 4, numbered from 1
//!
//! line pointer, from the low bit:
//!   bits  field
//!     15  lp_off     where the tuple begins; for a redirect the number it leads to
//!      2  lp_flags   0 unused, 1 normal, 2 redirect, 3 dead
//!     15  lp_len     bytes of the tuple; 0 if there is none
//! ```
//!
//! Source: `src/include/storage/itemid.h` and `bufpage.h`, the same in 9.6 to 18.
//!
//! An entry of an index may lead to a normal, a redirected or a dead pointer: all
//! are sound. An unused one, or one past the end, is not: VACUUM frees a pointer
//! only after it has cleared the indexes of it. An intact page that lacks a row
//! that an index knows is thus older than the index.

use crate::files::control::u32_at;
use crate::page::{HEADER_BYTES, Header, PAGE_ALL_VISIBLE};

/// Bytes in a line pointer.
pub const LINE_POINTER_BYTES: usize = 4;

/// What a line pointer leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinePointer {
    /// Nothing: never used, or free again.
    Unused,
    /// A tuple: where it begins, and its length.
    Normal {
        /// Bytes from the begin of the page.
        offset: u16,
        /// Bytes.
        length: u16,
    },
    /// The line pointer of this number, on the same page.
    Redirect(u16),
    /// A row that is gone, and that indexes may still know.
    Dead,
}

impl LinePointer {
    /// Reads the four bytes.
    #[must_use]
    pub fn parse(bits: u32) -> Self {
        let low = |bits: u32| u16::try_from(bits & 0x7FFF).unwrap_or(0);
        match bits >> 15 & 3 {
            0 => Self::Unused,
            1 => Self::Normal { offset: low(bits), length: low(bits >> 17) },
            2 => Self::Redirect(low(bits)),
            _ => Self::Dead,
        }
    }

    /// True if an index may lead here.
    #[must_use]
    pub fn may_be_indexed(self) -> bool {
        self != Self::Unused
    }
}

/// True if a page says that all of its rows are visible to all.
#[must_use]
pub fn is_all_visible(page: &[u8]) -> bool {
    Header::read(page).is_some_and(|header| header.flags & PAGE_ALL_VISIBLE != 0)
}

/// How many line pointers a page has.
#[must_use]
pub fn count(page: &[u8]) -> u16 {
    let lower = Header::read(page).map_or(0, |header| usize::from(header.lower));
    let bytes = lower.min(page.len()).saturating_sub(HEADER_BYTES);
    u16::try_from(bytes / LINE_POINTER_BYTES).unwrap_or(u16::MAX)
}

/// The line pointer of a number, from 1. `None`: the page has none of that number.
#[must_use]
pub fn line_pointer(page: &[u8], number: u16) -> Option<LinePointer> {
    if number == 0 || number > count(page) {
        return None;
    }
    let at = usize::from(number).checked_sub(1)?.checked_mul(LINE_POINTER_BYTES)?;
    u32_at(page, at.checked_add(HEADER_BYTES)?).map(LinePointer::parse)
}

/// All line pointers of a page, in the order of their numbers.
pub fn line_pointers(page: &[u8]) -> impl Iterator<Item = LinePointer> + '_ {
    let end = HEADER_BYTES.saturating_add(usize::from(count(page)) * LINE_POINTER_BYTES);
    let pointers = page.get(HEADER_BYTES..end).unwrap_or_default();
    pointers
        .chunks_exact(LINE_POINTER_BYTES)
        .filter_map(|bits| u32_at(bits, 0).map(LinePointer::parse))
}

/// True if a page of the heap can hold the row that an index knows under this
/// number. Only the word of an intact page counts: one that is all zero, or fails
/// its test, is not asked.
#[must_use]
pub fn may_hold(page: &[u8], number: u16) -> bool {
    line_pointer(page, number).is_some_and(LinePointer::may_be_indexed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(pointers: &[u32]) -> Vec<u8> {
        let mut page = vec![0_u8; 8192];
        let lower = u16::try_from(HEADER_BYTES + pointers.len() * 4).unwrap();
        page[12..14].copy_from_slice(&lower.to_le_bytes());
        for (index, bits) in pointers.iter().enumerate() {
            let at = HEADER_BYTES + index * 4;
            page[at..at + 4].copy_from_slice(&bits.to_le_bytes());
        }
        page
    }

    #[test]
    fn line_pointers_are_read_by_their_state() {
        let page = page(&[0, 8000 | 1 << 15 | 40 << 17, 2 | 2 << 15, 3 << 15]);
        let all: Vec<_> = line_pointers(&page).collect();
        let normal = LinePointer::Normal { offset: 8000, length: 40 };
        let expected = [LinePointer::Unused, normal, LinePointer::Redirect(2), LinePointer::Dead];
        assert_eq!(all, expected);
        assert_eq!(count(&page), 4);
        for (number, holds) in [(0, false), (1, false), (2, true), (3, true), (4, true), (5, false)]
        {
            assert_eq!(may_hold(&page, number), holds, "{number}");
        }
    }

    #[test]
    fn pages_that_end_early_have_the_line_pointers_that_are_there() {
        let whole = page(&[1 << 15; 4]);
        for length in 0..60 {
            let seen = line_pointers(&whole[..length]).count();
            assert_eq!(seen, length.saturating_sub(HEADER_BYTES).min(16) / 4, "{length}");
        }
    }
}
