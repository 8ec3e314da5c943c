//! The rows that a page of a GIN index leads to.
//!
//! ```text
//! special space, the last 8 bytes of the page
//! offset  size  field
//!      0     4  rightlink
//!      4     2  maxoff     rows of a list that is not compressed
//!      6     2  flags      1 data, 2 leaf, 4 deleted, 8 metapage, 16 pending list,
//!                          32 complete rows, 64 incomplete split, 128 compressed
//!
//! page               rows
//! pending list       each entry's t_tid is one
//! data, leaf         lists one after the other, from offset 32 to pd_lower; if not
//!                    compressed (before 9.4) an array of maxoff rows at 32
//! leaf               each entry has a list at the offset that stands for its block
//!                    number, of as many rows as stand for its line pointer; with the
//!                    high bit of the offset it is compressed; 0xFFFF: another page has it
//!
//! compressed list
//!      0     6  the first row
//!      6     2  nbytes
//!      8        distances to the next rows, in 7 bits a byte, the low ones first; a
//!               byte with its high bit is not the last of its distance; padded to an
//!               even length
//! ```
//!
//! A distance is that of `block << 11 | line pointer`.
//!
//! Sources: `src/include/access/ginblock.h`, `src/backend/access/gin/ginpostinglist.c`
//! (11 is `MaxHeapTuplesPerPageBits`), 9.6 to 18.

use crate::files::witness::tid::{TID_BYTES, Tid, entries, lower, special, u16_at};

const SPECIAL_BYTES: usize = 8;
const COUNT: usize = 4;
const FLAGS: usize = 6;

const DATA: u16 = 1;
const LEAF: u16 = 2;
const DELETED: u16 = 4;
const META: u16 = 8;
const PENDING: u16 = 16;
const COMPRESSED: u16 = 128;

/// Where the lists of a data page begin: behind the page header and a row, each
/// rounded up to 8 bytes.
const LISTS: usize = 32;
/// Bytes of a compressed list before its distances.
const LIST_HEADER_BYTES: usize = TID_BYTES + 2;
/// The entry's rows are in a tree of their own.
const IN_TREE: u16 = 0xFFFF;
/// `GIN_ITUP_COMPRESSED`.
const IS_COMPRESSED: u32 = 1 << 31;
/// `MaxHeapTuplesPerPageBits`.
const NUMBER_BITS: u32 = 11;
/// No distance takes more bytes.
const DISTANCE_BYTES_MAX: u32 = 7;

/// Calls `each` for every row that the page leads to.
#[inline]
pub fn visit(page: &[u8], mut each: impl FnMut(Tid)) {
    let Some(special) = special::<SPECIAL_BYTES>(page) else { return };
    let flags = u16_at(special, FLAGS);
    if flags & (META | DELETED) != 0 {
        return;
    }
    if flags & PENDING != 0 {
        return entries(page, 0).for_each(|(entry, _)| each(Tid::of(entry)));
    }
    match flags & (DATA | LEAF | COMPRESSED) {
        LEAF => visit_keys(page, &mut each),
        all if all == DATA | LEAF | COMPRESSED => {
            let mut lists = page.get(LISTS..lower(page)).unwrap_or_default();
            while let Some(rest) = visit_list(lists, &mut each) {
                lists = rest;
            }
        }
        some if some == DATA | LEAF => {
            visit_array(page.get(LISTS..).unwrap_or_default(), u16_at(special, COUNT), &mut each);
        }
        _ => {}
    }
}

/// The lists that stand beside their keys.
fn visit_keys(page: &[u8], each: &mut impl FnMut(Tid)) {
    for (entry, begin) in entries(page, 0) {
        let Tid { block, number } = Tid::of(entry);
        if matches!(number, 0 | IN_TREE) {
            continue;
        }
        let offset = usize::try_from(block & !IS_COMPRESSED).ok();
        let list = offset.and_then(|offset| page.get(begin.checked_add(offset)?..));
        let list = list.unwrap_or_default();
        if block & IS_COMPRESSED != 0 {
            visit_list(list, each);
        } else {
            visit_array(list, number, each);
        }
    }
}

fn visit_array(list: &[u8], count: u16, each: &mut impl FnMut(Tid)) {
    let rows = list.chunks_exact(TID_BYTES).take(usize::from(count));
    rows.filter_map(Tid::read).for_each(each);
}

/// The rows of one compressed list; gives what follows it.
fn visit_list<'a>(list: &'a [u8], each: &mut impl FnMut(Tid)) -> Option<&'a [u8]> {
    let first = Tid::read(list)?;
    let bytes = usize::from(u16_at(list.get(..LIST_HEADER_BYTES)?, TID_BYTES));
    let distances = list.get(LIST_HEADER_BYTES..)?.get(..bytes)?;
    each(first);
    let mut place = u64::from(first.block) << NUMBER_BITS | u64::from(first.number);
    let (mut distance, mut shift) = (0_u64, 0_u32);
    for byte in distances {
        distance |= u64::from(byte & 0x7F) << shift;
        shift += 7;
        if byte & 0x80 != 0 && shift < DISTANCE_BYTES_MAX * 7 {
            continue;
        }
        place = place.checked_add(distance)?;
        (distance, shift) = (0, 0);
        let number = place & ((1 << NUMBER_BITS) - 1);
        each(Tid {
            block: u32::try_from(place >> NUMBER_BITS).ok()?,
            number: u16::try_from(number).ok()?,
        });
    }
    list.get(LIST_HEADER_BYTES.checked_add(bytes.checked_next_multiple_of(2)?)?..)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn distances_are_added_up() {
        // (2, 5), then 1, then 11 << 11 | 3 farther.
        let list = [0, 0, 2, 0, 5, 0, 4, 0, 1, 0x83, 0xB0, 1, 9];
        let mut rows = Vec::new();
        let rest = visit_list(&list, &mut |tid: Tid| rows.push((tid.block, tid.number)));
        assert_eq!(rows, [(2, 5), (2, 6), (13, 9)]);
        assert_eq!(rest, Some(&[9][..]));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(
            mut page in prop::collection::vec(any::<u8>(), 64..1024),
            flags: u8,
            lower in 0..1100_u16,
        ) {
            let length = page.len();
            let special = u16::try_from(length - 8).unwrap();
            page[16..18].copy_from_slice(&special.to_le_bytes());
            page[12..14].copy_from_slice(&lower.to_le_bytes());
            page[length - 2..].copy_from_slice(&[flags, 0]);
            let mut count = 0;
            visit(&page, |_| count += 1);
            prop_assert!(count <= length * length);
        }
    }
}
