//! Reads what has no pages and keeps nothing of it: what a backup holds besides, where
//! the backup is to nowhere.

use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;
use crate::pack::content::Content;
use crate::pack::lock;
use crate::pack::table::{Entry, What};
use crate::source::file::{open_regular, read_fully};
use crate::source::rate::RateLimiter;
use crate::source::residency::{absent, forget};
use crate::verify::Progress;
use crate::verify::timing::{Stopwatch, Timing};

/// So much is read at a time.
const READ_BYTES: usize = 1 << 20;

/// How files are read for nothing but to have read them.
#[derive(Debug)]
pub struct Draining<'a> {
    /// Where they are.
    pub content: &'a Content,
    /// How many are read at once.
    pub jobs: NonZero<usize>,
    /// At most this number of bytes a second, for all files together.
    pub rate: Option<NonZero<u64>>,
    /// True where a server may remove files meanwhile.
    pub is_live: bool,
    /// Ends it early.
    pub stop: &'a AtomicBool,
}

impl Draining<'_> {
    /// Reads the files that are wanted, and leaves the page cache as it was. Returns how many
    /// bytes that were, and what the time of its threads went to.
    ///
    /// # Errors
    /// The first file that cannot be opened or read.
    pub fn drain(
        &self,
        is_wanted: &(dyn Fn(&Entry) -> bool + Sync),
        progress: &dyn Progress,
    ) -> Result<(u64, Timing), Error> {
        let ceiling = RateLimiter::new(self.rate);
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let done = Mutex::new((0_u64, Timing::default()));
        let work = || {
            let mut pace = Timing::default();
            let mut buffer = vec![0; ceiling.step_bytes(READ_BYTES)];
            let mut bytes = 0_u64;
            let life = Stopwatch::start();
            while !self.stop.load(Ordering::Relaxed) && lock(&failed).is_none() {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(entry) = self.content.entries.get(number) else { break };
                if !matches!(entry.what, What::File { .. }) || !is_wanted(entry) {
                    continue;
                }
                match self.drain_file(number, &ceiling, &mut buffer, &mut pace, progress) {
                    Ok(count) => bytes = bytes.saturating_add(count),
                    Err(error) => drop(lock(&failed).get_or_insert(error)),
                }
            }
            pace.total = life.total();
            pace.computed = life.computed();
            let mut done = lock(&done);
            done.0 = done.0.saturating_add(bytes);
            done.1 += pace;
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.get() {
                scope.spawn(work);
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn drain_file(
        &self,
        number: usize,
        ceiling: &RateLimiter,
        buffer: &mut [u8],
        pace: &mut Timing,
        progress: &dyn Progress,
    ) -> Result<u64, Error> {
        let path = self.content.path(number);
        let failed = |error| Error::io("read", &path, error);
        let file = match open_regular(&path) {
            Ok(file) => file,
            // A server that runs removes files too.
            Err(error) if self.is_live && error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(Error::io("open", &path, error)),
        };
        let length = file.metadata().map_err(failed)?.len();
        let missing = absent(&file, length);
        let mut offset = 0_u64;
        while !self.stop.load(Ordering::Relaxed) {
            // What is left as far as is known: it may grow while it is read.
            let left = length.saturating_sub(offset).min(buffer.len() as u64);
            let held_back = Stopwatch::start();
            ceiling.pay(left, self.stop);
            pace.paused += held_back.waited();
            let watch = Stopwatch::start();
            let count = read_fully(&file, buffer, offset).map_err(failed)?;
            pace.waited += watch.waited();
            offset = offset.saturating_add(count as u64);
            progress.advance(count as u64);
            if count < buffer.len() {
                break;
            }
        }
        match missing {
            Some(missing) => {
                let gaps = missing.iter().map(|gap| gap.end.min(offset).saturating_sub(gap.start));
                let read = gaps.fold(0, u64::saturating_add);
                pace.cached_bytes = pace.cached_bytes.saturating_add(offset.saturating_sub(read));
                missing.iter().for_each(|gap| forget(&file, gap));
            }
            None => pace.unknown_bytes = pace.unknown_bytes.saturating_add(offset),
        }
        Ok(offset)
    }
}
