//! Frames that a power failure may have left as if one bit of them had flipped.
//!
//! What is written before a sync reaches the disk in any order, sector by sector. Where the sector that was
//! lost differed by one bit from what stood there before, in a frame of an earlier life of the log, the frame
//! looks as if that bit had flipped: a counter in the same page does it. SQLite forgets such a frame and all
//! behind it, and has promised nothing of them.
//!
//! The earlier frame is lost. But it was of the same page, or it would differ by more; and an earlier life of
//! a log ends with a checkpoint, so that the database has a version of that page not much newer. Where that
//! version is far from what the sector has now, the bit has flipped. So it has in the header of a frame,
//! whose salt is another one in each life of a log, and in a log that has had no other life.

use std::fs::File;

use super::{Broken, FRAME_HEADER_BYTES, Log, offset_of};
use crate::files::to_u64;
use pagewarden_core::source::file::read_fully;

/// What a disk writes as a whole, at least.
const SECTOR_BYTES: usize = 512;
/// Versions of a sector that differ in no more bytes are close: counters, flags, times.
const BYTES_APART_MAX: usize = 16;

/// True if a power failure may have left the frame so.
pub(super) fn may_be_torn(log: &Log<'_>, database: &File, broken: &Broken) -> bool {
    let Some(bit) = broken.flip else { return false };
    let Some(sector) = sector_of_page(log, broken.frame, bit / 8).filter(|_| log.lives > 0) else {
        return false;
    };
    let page_bytes = to_u64(log.page_bytes);
    let in_database =
        broken.page.checked_sub(1).map(|before| u64::from(before).saturating_mul(page_bytes));
    let Some(in_database) = in_database.and_then(|begin| begin.checked_add(sector.in_page)) else {
        return false;
    };
    let read = |file: &File, offset: u64| {
        let mut bytes = [0; SECTOR_BYTES];
        let count = read_fully(file, &mut bytes, offset).ok()?;
        (count == bytes.len()).then_some(bytes)
    };
    match (read(log.file, sector.in_log), read(database, in_database)) {
        (Some(now), Some(before)) => {
            now.iter().zip(&before).filter(|(now, before)| now != before).count() <= BYTES_APART_MAX
        }
        _ => false,
    }
}

/// A sector of the log, by its place there and in the page that is in it.
struct Sector {
    in_log: u64,
    in_page: u64,
}

/// The sector that this byte of a frame is in, if nothing but a part of the frame's page is.
fn sector_of_page(log: &Log<'_>, frame: u64, byte: u64) -> Option<Sector> {
    let (frame_bytes, sector_bytes) = (to_u64(log.frame_bytes()), to_u64(SECTOR_BYTES));
    let begin = offset_of(frame, frame_bytes);
    let page = begin.checked_add(to_u64(FRAME_HEADER_BYTES))?;
    let end = begin.checked_add(frame_bytes)?;
    let at = begin.checked_add(byte)?;
    let in_log = at.checked_sub(at.checked_rem(sector_bytes)?)?;
    let in_page = in_log.checked_sub(page)?;
    (in_log.checked_add(sector_bytes)? <= end).then_some(Sector { in_log, in_page })
}
