//! The rows that a btree leaf page leads to.
//!
//! ```text
//! special space, the last 16 bytes of the page
//! offset  size  field
//!      0     4  btpo_prev
//!      4     4  btpo_next      0 on the rightmost page of its level
//!      8     4  btpo_level     0 on leaf pages; on deleted ones up to 13 a transaction
//!     12     2  btpo_flags     1 leaf, 2 root, 4 deleted, 8 metapage, 16 half-dead,
//!                              32 end of a split, 64 has dead entries,
//!                              128 its split is incomplete, 256 (from 14 on) deleted
//!                              with a transaction of 64 bits
//!     14     2  btpo_cycleid
//!
//! entry with 0x2000 in t_info (from 11 on; never set before)
//!      0     4  offset of the list of rows in the entry, in the order of a block number
//!      4     2  low 12 bits: how many rows; 0x2000: it is a list (from 13 on);
//!               without it the entry is a high key or leads to another page
//! ```
//!
//! The first entry of a page that is not the rightmost is its high key, and leads
//! nowhere. Half-dead pages hold a link to their parent, deleted pages nothing.
//! Entries that are marked dead still lead to a line pointer, which VACUUM frees
//! only once they are gone.
//!
//! Source: `src/include/access/nbtree.h`, 9.6 to 18. What differs between the
//! versions of an index (2 to 4, on its metapage) is marked in the entries, so that
//! the metapage need not be asked.

use crate::files::witness::tid::{TID_BYTES, Tid, entries, info, special, u16_at};

const SPECIAL_BYTES: usize = 16;
const NEXT: usize = 4;
const FLAGS: usize = 12;

const LEAF: u16 = 1;
const DELETED: u16 = 4;
const META: u16 = 8;
const HALF_DEAD: u16 = 16;

/// `INDEX_ALT_TID_MASK`.
const OTHER_THAN_A_ROW: u16 = 0x2000;
/// `BT_IS_POSTING`.
const IS_LIST: u16 = 0x2000;
/// `BT_OFFSET_MASK`.
const LIST_COUNT: u16 = 0x0FFF;

/// What two entries have in common that lead to rows of one block: the block,
/// and that they are no lists.
const SAME_BLOCK: u64 = (OTHER_THAN_A_ROW as u64) << 48 | 0xFFFF_FFFF;
/// Equal to no entry that leads to a row.
const NO_RUN: u64 = SAME_BLOCK;

/// Calls `each` for every row that the page leads to; for none if it is no leaf.
#[inline]
pub fn visit(page: &[u8], mut each: impl FnMut(Tid)) {
    let Some(first) = first_row(page) else { return };
    for (entry, begin) in entries(page, first) {
        if info(entry) & OTHER_THAN_A_ROW == 0 {
            each(Tid::of(entry));
        } else {
            list(page, entry, begin, &mut each);
        }
    }
}

/// The same by runs of neighbours that lead to one block: `each` is given the row
/// with the highest number. Most entries take one comparison.
#[inline]
pub fn visit_runs(page: &[u8], mut each: impl FnMut(Tid)) {
    let Some(first) = first_row(page) else { return };
    let (mut run, mut highest) = (NO_RUN, 0);
    let mut end = |run: u64, highest: u64| {
        if run != NO_RUN {
            each(Tid::of(run | highest << 32));
        }
    };
    for (entry, begin) in entries(page, first) {
        let number = entry >> 32 & 0xFFFF;
        if (entry ^ run) & SAME_BLOCK == 0 {
            highest = number.max(highest);
            continue;
        }
        end(run, highest);
        (run, highest) = (entry & SAME_BLOCK, number);
        if info(entry) & OTHER_THAN_A_ROW != 0 {
            run = NO_RUN;
            list(page, entry, begin, &mut |tid| {
                end(u64::from(tid.block.rotate_left(16)), u64::from(tid.number));
            });
        }
    }
    end(run, highest);
}

/// The first entry of a leaf page that leads to rows; `None` for other pages.
#[inline]
fn first_row(page: &[u8]) -> Option<usize> {
    let special = special::<SPECIAL_BYTES>(page)?;
    let is_leaf = u16_at(special, FLAGS) & (LEAF | DELETED | META | HALF_DEAD) == LEAF;
    let is_rightmost = special.get(NEXT..NEXT + 4) == Some(&[0; 4]);
    is_leaf.then_some(usize::from(!is_rightmost))
}

/// The rows of an entry that is a list; none for what leads to another page.
#[inline]
fn list(page: &[u8], entry: u64, begin: usize, each: &mut impl FnMut(Tid)) {
    let tid = Tid::of(entry);
    if tid.number & IS_LIST == 0 {
        return;
    }
    let rows = usize::try_from(tid.block).ok().and_then(|offset| begin.checked_add(offset));
    let rows = rows.and_then(|rows| page.get(rows..)).unwrap_or_default();
    let (rows, _) = rows.as_chunks::<TID_BYTES>();
    for row in rows.iter().take(usize::from(tid.number & LIST_COUNT)) {
        if let Some(tid) = Tid::read(row) {
            each(tid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A leaf page with two rows, one list of two rows, and a high key in front.
    fn page() -> Vec<u8> {
        let mut page = vec![0_u8; 8192];
        page[12..14].copy_from_slice(&40_u16.to_le_bytes());
        page[16..18].copy_from_slice(&8176_u16.to_le_bytes());
        for (index, at) in [8000_u16, 8016, 8032, 8048].iter().enumerate() {
            page[24 + index * 4..26 + index * 4].copy_from_slice(&(at | 0x8000).to_le_bytes());
        }
        let mut put = |at: usize, words: &[u16]| {
            for (index, word) in words.iter().enumerate() {
                page[at + index * 2..at + index * 2 + 2].copy_from_slice(&word.to_le_bytes());
            }
        };
        put(8000, &[0, 9, 1, 0x2010]);
        put(8016, &[1, 2, 3, 0x0010]);
        put(8032, &[0, 5, 6, 0x4010]);
        put(8048, &[0, 16, 0x2000 | 2, 0x2000 | 28]);
        put(8064, &[0, 7, 8, 0, 7, 9]);
        put(8180, &[3, 0]);
        put(8188, &[LEAF]);
        page
    }

    fn rows(page: &[u8]) -> Vec<(u32, u16)> {
        let mut rows = Vec::new();
        visit(page, |tid| rows.push((tid.block, tid.number)));
        rows
    }

    #[test]
    fn rows_are_those_of_entries_and_lists_without_the_high_key() {
        let mut page = page();
        assert_eq!(rows(&page), [(0x1_0002, 3), (5, 6), (7, 8), (7, 9)]);
        for flags in [0, LEAF | DELETED, LEAF | HALF_DEAD, META, LEAF | META] {
            page[8188..8190].copy_from_slice(&flags.to_le_bytes());
            assert_eq!(rows(&page), [], "{flags}");
        }
    }

    #[test]
    fn first_entry_of_the_rightmost_page_is_a_row() {
        let mut page = page();
        page[8180] = 0;
        page[8006..8008].copy_from_slice(&0x0010_u16.to_le_bytes());
        assert_eq!(rows(&page)[0], (9, 1));
    }

    proptest! {
        #[test]
        fn changed_pages_are_read_as_far_as_they_can_be(
            changes in prop::collection::vec((0..8192_usize, any::<u8>()), 0..40),
            length in 0..=8192_usize,
        ) {
            let mut page = page();
            for (at, byte) in changes {
                page[at] = byte;
            }
            // A list may be claimed by each of the entries.
            prop_assert!(rows(&page).len() < 2048 * 1366);
            rows(&page[..length]);
            // Runs lose nothing but lower numbers.
            let mut highest = BTreeMap::new();
            for (block, number) in rows(&page) {
                let known = highest.entry(block).or_insert(number);
                *known = number.max(*known);
            }
            let mut by_runs = BTreeMap::new();
            visit_runs(&page, |tid| {
                let known = by_runs.entry(tid.block).or_insert(tid.number);
                *known = tid.number.max(*known);
            });
            prop_assert_eq!(by_runs, highest);
        }
    }
}
