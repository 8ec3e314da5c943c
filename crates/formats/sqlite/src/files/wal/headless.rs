//! A log whose header was lost: its frames still prove one another, as the sum of each goes on from that of
//! the one before. Of the first frame only the sum is taken, since what it begins with was in the header.
//!
//! SQLite takes nothing of such a log. With `synchronous` NORMAL and above it syncs the header before the
//! first frame (`syncHeader` in its `wal.c`), so that frames without one are no matter of a power loss.
//! Nothing is lost where all of them were checkpointed: then the main file has the same pages.

use std::collections::HashMap;
use std::fs::File;

use super::sum::Sum;
use super::{FRAME_HEADER_BYTES, Frames, HEADER_BYTES, Log, State};
use crate::page::header::{DatabaseHeader, HEADER_BYTES as DATABASE_HEADER_BYTES};
use pagewarden_core::source::file::read_fully;

/// Pages that are compared with the main file; of larger logs nothing is said.
const PAGES_MAX: usize = 1 << 20;

/// Frames that may be lost with the header: those of some sectors.
const FIRST_MAX: u64 = 256;

/// What a log without a header holds that the main file does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lost {
    /// Transactions up to the last one that is whole.
    pub commits: u64,
    /// Pages of them that are others in the main file.
    pub pages: u64,
}

/// `None` if nothing proves that something was lost.
pub(super) fn lost(database: &File, log: &File, before: &State) -> Option<Lost> {
    let mut head = [0; DATABASE_HEADER_BYTES];
    let read = read_fully(database, &mut head, 0).ok()?;
    let page_bytes = DatabaseHeader::parse(head.get(..read)?)?.page_size()?;
    let (length, _) = before.at_rest?;
    let frame_bytes = super::to_u64(page_bytes.saturating_add(FRAME_HEADER_BYTES));
    let frames = length.checked_sub(super::to_u64(HEADER_BYTES))?.checked_div(frame_bytes)?;
    [false, true].into_iter().find_map(|is_big_endian| {
        let log = Log {
            file: log,
            lives: 0,
            page_bytes,
            salt: [0; 8],
            is_big_endian,
            frames,
            sum: Sum::default(),
            header_flip: None,
        };
        lost_of(database, &log)
    })
}

fn lost_of(database: &File, log: &Log<'_>) -> Option<Lost> {
    let mut frames = Frames::of(log);
    // The first frames may have been lost with the header.
    let first = (0..log.frames.min(FIRST_MAX)).find_map(|number| {
        let frame = frames.get(number).ok()??;
        (frame.page != 0).then_some((number, frame.salt))
    });
    let (first, salt) = first?;
    let log = &Log { salt, ..*log };
    let mut frames = Frames::of(log);
    // The newest frame of each page, up to the last commit.
    let (mut newest, mut waiting) = (HashMap::new(), HashMap::new());
    let (mut before, mut commits) = (Sum::default(), 0_u64);
    for number in first..log.frames {
        let frame = frames.get(number).ok()??;
        let is_proven = number == first || log.fits(before, &frame);
        if !is_proven || frame.page == 0 || newest.len() >= PAGES_MAX {
            break;
        }
        before = frame.stored;
        waiting.insert(frame.page, number);
        // The first one is not proven by itself.
        if frame.commit != 0 && number > first {
            commits = commits.saturating_add(1);
            newest.extend(waiting.drain());
            newest.retain(|page, _| *page <= frame.commit);
        }
    }
    let mut places: Vec<(u64, u32)> = newest.into_iter().map(|(page, at)| (at, page)).collect();
    places.sort_unstable();
    let mut content = vec![0; log.page_bytes];
    let mut pages = 0_u64;
    for (number, page) in places {
        let frame = frames.get(number).ok()??;
        let offset =
            u64::from(page).saturating_sub(1).saturating_mul(super::to_u64(log.page_bytes));
        let read = read_fully(database, &mut content, offset).ok()?;
        let is_same = content.get(..read) == Some(frame.content);
        pages = pages.saturating_add(u64::from(!is_same));
    }
    (commits > 0 && pages > 0).then_some(Lost { commits, pages })
}
