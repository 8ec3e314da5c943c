//! The rows that a leaf page of an SP-GiST index leads to.
//!
//! ```text
//! special space, the last 8 bytes of the page
//! offset  size  field
//!      0     2  flags           1 metapage, 2 deleted, 4 leaf, 8 nulls
//!      2     2  nRedirection
//!      4     2  nPlaceholder
//!      6     2  spgist_page_id  0xFF82
//!
//! leaf tuple
//!      0     4  low 2 bits: 0 live, 1 redirect, 2 dead, 3 placeholder; then its size
//!      4     2  nextOffset
//!      6     6  heapPtr         of live ones
//! ```
//!
//! Source: `src/include/access/spgist_private.h`, 9.6 to 18: from 14 on the two high
//! bits of `nextOffset` have a meaning, and nothing else has moved.

use crate::files::witness::tid::{Tid, entries, special, u16_at};

const SPECIAL_BYTES: usize = 8;
const FLAGS: usize = 0;
const PAGE_ID: usize = 6;
const ROW: usize = 6;

const SPGIST_PAGE: u16 = 0xFF82;
const META: u16 = 1;
const DELETED: u16 = 2;
const LEAF: u16 = 4;
/// The state of a tuple.
const STATE: u64 = 3;
const LIVE: u64 = 0;

/// Calls `each` for every row that the page leads to; for none if it is no leaf.
#[inline]
pub fn visit(page: &[u8], mut each: impl FnMut(Tid)) {
    let Some(special) = special::<SPECIAL_BYTES>(page) else { return };
    let is_leaf = u16_at(special, FLAGS) & (META | DELETED | LEAF) == LEAF;
    if !is_leaf || u16_at(special, PAGE_ID) != SPGIST_PAGE {
        return;
    }
    for (tuple, begin) in entries(page, 0) {
        let row = begin.checked_add(ROW).and_then(|at| page.get(at..)).and_then(Tid::read);
        if let Some(tid) = row.filter(|_| tuple & STATE == LIVE) {
            each(tid);
        }
    }
}
