//! The database as a reader sees it: pages of a log over the file.
//!
//! Of a write-ahead log that is the newest committed frame of each page, of a rollback journal that will be
//! played back each page as it was: see `journal`. Which frames are committed is what recovery would find in a log that no process uses, and what
//! the index (`-shm`) counts in one that is in use.

#![deny(clippy::arithmetic_side_effects)]

use std::fs::File;
use std::path::Path;

use super::{FRAME_HEADER_BYTES, Fault, Frames, Log, State, offset_of, to_u64, with_suffix};
use crate::files::sidecars::open_beside;
use pagewarden_core::source::file::{open_regular, read_fully};

/// Frames that are remembered: 32 MiB of offsets.
pub const FRAMES_MAX: u64 = 2 << 20;

/// The pages of a log that count.
#[derive(Debug)]
pub struct View {
    file: File,
    /// What the log is called.
    pub name: String,
    /// Page, and offset of its content, by page; the newest of each page.
    places: Vec<(u32, u64)>,
    /// The pages of the database as of the last commit.
    pub pages: u32,
    /// Behind the first frame that does not fit there are frames of the same log: commits may
    /// have been lost. Of a journal: what would be undone is not all there.
    pub is_broken: bool,
}

/// A log, and what would tell that it was begun anew.
#[derive(Debug)]
pub struct Logged {
    /// Its frames; `None` if a reader takes nothing of it.
    pub view: Option<View>,
    shm: Option<File>,
    log: Option<File>,
    state: Option<State>,
}

impl Logged {
    /// Looks at the log beside `path`, the real path of a database that is open as `database`.
    ///
    /// # Errors
    /// Why it is not known what a reader sees.
    pub fn beside(database: &File, path: &Path) -> Result<Self, String> {
        let nothing = Self { view: None, shm: None, log: None, state: None };
        let Some((name, file, bytes)) = open_beside(path, "-wal") else { return Ok(nothing) };
        if bytes <= to_u64(super::HEADER_BYTES) {
            return Ok(nothing);
        }
        let file = file.ok_or("the write-ahead log cannot be opened")?;
        let shm = open_regular(&with_suffix(path, "-shm")).ok();
        let (state, committed) = State::of(database, &file, shm.as_ref())
            .ok_or("the write-ahead log changes too fast to be read")?;
        if state.at_rest.is_none() && state.salt.is_none() {
            return Err("a program has the write-ahead log to itself, without an index".to_owned());
        }
        let failed = |fault: Fault| format!("the write-ahead log: {}", fault.error);
        let other = file.try_clone().map_err(|error| format!("the write-ahead log: {error}"))?;
        let view = match Log::read(&file).map_err(failed)? {
            // A flipped bit in its header: a reader takes nothing of it.
            Some(log) if log.header_flip.is_none() => {
                View::of(&log, state.judged(&log, committed), other, name)?
            }
            _ => None,
        };
        Ok(Self { view, shm, log: Some(file), state: Some(state) })
    }

    /// True if the frames that were seen are still those of the log.
    #[must_use]
    pub fn is_unchanged(&self, database: &File, path: &Path) -> bool {
        let Some(log) = &self.log else {
            let empty = to_u64(super::HEADER_BYTES);
            return open_beside(path, "-wal").is_none_or(|(_, _, bytes)| bytes <= empty);
        };
        let now = State::of(database, log, self.shm.as_ref());
        now.is_some_and(|(now, _)| Some(now) == self.state)
    }
}

impl View {
    fn of(
        log: &Log<'_>,
        counted: Option<u64>,
        file: File,
        name: String,
    ) -> Result<Option<Self>, String> {
        let too_long = || "the write-ahead log is too long to be remembered".to_owned();
        let frame_bytes = to_u64(log.page_bytes.saturating_add(FRAME_HEADER_BYTES));
        let mut reader = Frames::of(log);
        let (mut places, mut committed, mut pages) = (Vec::new(), 0, 0);
        let (mut before, mut end) = (log.sum, log.frames);
        for number in 0..counted.unwrap_or(log.frames).min(log.frames) {
            if number >= FRAMES_MAX {
                return Err(too_long());
            }
            let frame = reader.get(number).map_err(|fault| fault.error.to_string())?;
            let Some(frame) = frame else { break };
            if counted.is_none() && !log.fits(before, &frame) {
                end = number;
                break;
            }
            before = frame.stored;
            let content = offset_of(number, frame_bytes).saturating_add(to_u64(FRAME_HEADER_BYTES));
            places.push((frame.page, content));
            if frame.commit != 0 {
                (committed, pages) = (places.len(), frame.commit);
            }
        }
        places.truncate(committed);
        let mut is_broken = false;
        for number in end..log.frames {
            let frame = reader.get(number).map_err(|fault| fault.error.to_string())?;
            is_broken |= frame.is_some_and(|frame| frame.salt == log.salt);
        }
        Ok((pages > 0).then(|| Self::new(file, name, places, pages, is_broken)))
    }

    /// Of a log in which the content of each page begins at an offset; of several the last counts.
    #[must_use]
    pub fn new(
        file: File,
        name: String,
        mut places: Vec<(u32, u64)>,
        pages: u32,
        is_broken: bool,
    ) -> Self {
        places.sort_unstable();
        places.reverse();
        places.dedup_by_key(|(page, _)| *page);
        places.reverse();
        Self { file, name, places, pages, is_broken }
    }

    /// Where the content of `page` begins in the log; `None` if it is in the file alone.
    #[must_use]
    pub fn offset(&self, page: u32) -> Option<u64> {
        let place = self.places.binary_search_by_key(&page, |(page, _)| *page).ok()?;
        self.places.get(place).map(|(_, offset)| *offset)
    }

    /// Reads a page at an offset that [`View::offset`] gave; false if it cannot be read.
    #[must_use]
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> bool {
        read_fully(&self.file, bytes, offset).is_ok_and(|count| count == bytes.len())
    }
}
