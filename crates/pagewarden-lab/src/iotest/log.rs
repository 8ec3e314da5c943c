//! The pattern of a log: small writes in order, each on the device before the next
//! begins.
//!
//! Two ways of asking for that: a flush after each write (`fdatasync`, as
//! PostgreSQL's default), or a descriptor that flushes by itself (`O_DSYNC` past
//! the page cache, as SQL Server and some settings of InnoDB).

use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context as _;
use pagewarden::source::buffer::AlignedBuffer;
use pagewarden::source::rate::RateLimiter;

use crate::iotest::drive::Trial;
use crate::iotest::measured::{Measured, Tally, processor_time};
use crate::iotest::patterns::Pattern;
use crate::iotest::workplace::Workplace;
use crate::stats::random::Random;

/// How a write gets to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// `fdatasync` after it.
    Called,
    /// By the descriptor it is written through.
    Implied,
}

/// Appends to the file, from its beginning on, for as long as the trial says.
///
/// # Errors
/// A write or a flush fails.
pub fn append(
    trial: &Trial<'_>,
    place: &Workplace,
    payload: &[u8],
    flush: Flush,
    stop: &AtomicBool,
) -> anyhow::Result<Measured> {
    let pattern = trial.pattern;
    let mut buffer = AlignedBuffer::new(pattern.largest_block(trial.page));
    for part in buffer.bytes_mut().chunks_mut(payload.len().max(1)) {
        if let Some(source) = payload.get(..part.len()) {
            part.copy_from_slice(source);
        }
    }
    let mut is_called = flush == Flush::Called;
    let mut random = Random::new(trial.seed);
    let mut tally = Tally::new()?;
    let mut offset = 0_u64;
    // A log comes to pages that have not been touched for long; in pages that were
    // left cached it would be written up to 1.7 times as fast.
    leave_page_cache(place);
    let cpu = processor_time();
    let limiter = RateLimiter::new(trial.rate);
    let begin = Instant::now();
    while begin.elapsed() < trial.time
        && tally.bytes_written < trial.written_bytes_max
        && !stop.load(Ordering::Relaxed)
    {
        let length = pattern.block(random.below(100), trial.page);
        if offset.saturating_add(length as u64) > place.file_bytes {
            offset = 0;
        }
        if let Some(stamp) = buffer.bytes_mut().first_chunk_mut::<8>() {
            *stamp = tally.latencies.count().to_le_bytes();
        }
        let Some(bytes) = buffer.bytes().get(..length) else { break };
        let file = if is_called { &place.buffered } else { &place.synchronous };
        limiter.pay(length as u64, stop);
        let started = Instant::now();
        match file.write_all_at(bytes, offset) {
            // A device whose sectors have 4 KiB takes nothing smaller past the
            // page cache.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput && !is_called => {
                is_called = true;
                continue;
            }
            written => written.with_context(|| failed(pattern))?,
        }
        if is_called {
            file.sync_data().with_context(|| failed(pattern))?;
        }
        tally.latencies.add(started.elapsed());
        tally.bytes_written = tally.bytes_written.saturating_add(length as u64);
        offset = offset.saturating_add(length as u64);
    }
    let measured = tally.measured(begin.elapsed(), processor_time().saturating_sub(cpu));
    // What was written through the page cache would stay there, in the way of the
    // reads past it that follow.
    leave_page_cache(place);
    Ok(measured)
}

/// Drops what the page cache holds of the file: all of it has been flushed.
fn leave_page_cache(place: &Workplace) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(&*place.buffered, 0, None, rustix::fs::Advice::DontNeed);
}

fn failed(pattern: &Pattern) -> String {
    format!("cannot run {}", pattern.name)
}
