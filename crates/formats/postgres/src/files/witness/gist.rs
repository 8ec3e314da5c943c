//! The rows that a leaf page of a GiST index leads to.
//!
//! ```text
//! special space, the last 16 bytes of the page
//! offset  size  field
//!      0     8  nsn
//!      8     4  rightlink
//!     12     2  flags        1 leaf, 2 deleted
//!     14     2  gist_page_id 0xFF81
//! ```
//!
//! Source: `src/include/access/gist.h`, 9.6 to 18.

use crate::files::witness::tid::{Tid, entries, special, u16_at};

const SPECIAL_BYTES: usize = 16;
const FLAGS: usize = 12;
const PAGE_ID: usize = 14;

const GIST_PAGE: u16 = 0xFF81;
const LEAF: u16 = 1;
const DELETED: u16 = 2;

/// Calls `each` for every row that the page leads to; for none if it is no leaf.
#[inline]
pub fn visit(page: &[u8], mut each: impl FnMut(Tid)) {
    let Some(special) = special::<SPECIAL_BYTES>(page) else { return };
    let is_leaf = u16_at(special, FLAGS) & (LEAF | DELETED) == LEAF;
    if is_leaf && u16_at(special, PAGE_ID) == GIST_PAGE {
        entries(page, 0).for_each(|(entry, _)| each(Tid::of(entry)));
    }
}
