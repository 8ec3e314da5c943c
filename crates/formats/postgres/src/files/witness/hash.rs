//! The rows that a page of a hash index leads to.
//!
//! ```text
//! special space, the last 16 bytes of the page
//! offset  size  field
//!      0     4  hasho_prevblkno
//!      4     4  hasho_nextblkno
//!      8     4  hasho_bucket
//!     12     2  hasho_flag      0 unused, 1 overflow, 2 bucket, 4 bitmap, 8 metapage
//!     14     2  hasho_page_id   0xFF80
//! ```
//!
//! All entries of bucket and overflow pages lead to rows, also those that a split
//! has copied: VACUUM clears both copies. Up to 9.6 these indexes are not in the
//! log: after a crash or on a standby they prove nothing.
//!
//! Source: `src/include/access/hash.h`, 9.6 to 18.

use crate::files::witness::tid::{Tid, entries, special, u16_at};

const SPECIAL_BYTES: usize = 16;
const FLAGS: usize = 12;
const PAGE_ID: usize = 14;

const HASH_PAGE: u16 = 0xFF80;
const OVERFLOW: u16 = 1;
const BUCKET: u16 = 2;
/// `LH_PAGE_TYPE`.
const TYPE: u16 = 15;

/// Calls `each` for every row that the page leads to.
#[inline]
pub fn visit(page: &[u8], mut each: impl FnMut(Tid)) {
    let Some(special) = special::<SPECIAL_BYTES>(page) else { return };
    let has_rows = matches!(u16_at(special, FLAGS) & TYPE, OVERFLOW | BUCKET);
    if has_rows && u16_at(special, PAGE_ID) == HASH_PAGE {
        entries(page, 0).for_each(|(entry, _)| each(Tid::of(entry)));
    }
}
