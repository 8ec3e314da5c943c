//! A page of `ROW_FORMAT=COMPRESSED` as it is stored: its stream, its directory, the pages below.
//!
//! | place | what |
//! |---|---|
//! | 0..94 | the headers of the page in the clear |
//! | 94 | a zlib stream, then a log of changes up to a zero |
//! | end down, 2 bytes a record | the directory: the list in its order, then removed records; 14 bits place, 0x4000 owns others, 0x8000 deleted |
//! | before it, 4 bytes a record | of upper levels: the page below, by number of the heap |
//!
//! Source: `page0zip.cc` of MariaDB 10.11.

#![deny(clippy::arithmetic_side_effects)]

use flate2::{Decompress, FlushDecompress, Status};

use crate::page::fields::{read_u16, read_u32};
use crate::page::index::IndexPage;

const HEADERS: usize = 94;
const SLOT_BYTES: usize = 2;
const CHILD_BYTES: usize = 4;
const PLACE: u16 = 0x3FFF;

/// The pages below it, in their order.
///
/// # Errors
/// It is none that a server writes; in words.
pub(super) fn test(page: &IndexPage<'_>, page_size: usize) -> Result<Vec<u32>, String> {
    let bytes = page.bytes();
    let records = page.heap_count().saturating_sub(2);
    let listed = usize::from(page.record_count());
    let directory = records.saturating_mul(SLOT_BYTES);
    let begin = bytes.len().saturating_sub(directory);
    if page.heap_count() < 2 || listed > records || begin < HEADERS {
        return Err(format!("{listed} records in its list, and {records} in its heap"));
    }
    if page.heap_top() > page_size || page.level() > 32 {
        let (top, level) = (page.heap_top(), page.level());
        return Err(format!("it is of level {level}, and its heap ends at byte {top}"));
    }
    let slots = bytes.get(begin..).unwrap_or_default().rchunks_exact(SLOT_BYTES);
    let places: Vec<_> = slots.map(|slot| read_u16(slot, 0) & PLACE).collect();
    let mut sorted = places.clone();
    sorted.sort_unstable();
    let first = sorted.first().copied().unwrap_or(u16::MAX);
    let last = sorted.last().map_or(0, |last| usize::from(*last));
    let is_twice = sorted.windows(2).any(|pair| matches!(pair, [one, two] if one == two));
    if is_twice || first < 125 && first != u16::MAX || last > page.heap_top() {
        return Err("its directory names a place twice, or one that is not in its heap".to_owned());
    }
    test_stream(bytes.get(HEADERS..begin).unwrap_or_default(), page_size)?;
    if page.level() == 0 {
        return Ok(Vec::new());
    }
    let below = |place: &u16| {
        let rank = sorted.binary_search(place).ok()?;
        let back = rank.checked_add(1)?.checked_mul(CHILD_BYTES)?;
        Some(read_u32(bytes.get(begin.checked_sub(back)?..)?, 0))
    };
    let children: Option<Vec<_>> = places.iter().take(listed).map(below).collect();
    children.ok_or_else(|| "it has no room for the pages below".to_owned())
}

fn test_stream(stream: &[u8], page_size: usize) -> Result<(), String> {
    // What comes out is the page, and the lengths of its fields before it.
    let mut clear = vec![0; page_size.saturating_mul(2)];
    let mut inflate = Decompress::new(true);
    match inflate.decompress(stream, &mut clear, FlushDecompress::Finish) {
        Ok(Status::StreamEnd) => Ok(()),
        Ok(_) => Err("its compressed stream does not end".to_owned()),
        Err(error) => Err(format!("its compressed stream cannot be unpacked: {error}")),
    }
}
