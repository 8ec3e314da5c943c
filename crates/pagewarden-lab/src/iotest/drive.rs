//! Runs one pattern by our own engine.

use std::fs::File;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use pagewarden::source::rate::RateLimiter;
use pagewarden::source::transfer::{
    Direction, Done, Shape, Transfer, TransferQueue, has_ring, ring, threads,
};

use crate::iotest::log;
use crate::iotest::measured::{Measured, Tally, processor_time};
use crate::iotest::patterns::{Access, Pattern, Sync};
use crate::iotest::workplace::Workplace;
use crate::stats::random::Random;

/// How transfers are kept in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// By `io_uring`.
    Ring,
    /// By a thread for each.
    Threads,
}

impl Method {
    /// The best that works here.
    #[must_use]
    pub fn best() -> Self {
        if has_ring() { Self::Ring } else { Self::Threads }
    }

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "io_uring",
            Self::Threads => "threads",
        }
    }
}

/// What is to be run, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// The pattern.
    pub pattern: &'a Pattern,
    /// Requests in flight.
    pub depth: usize,
    /// Bytes of the database's page.
    pub page: usize,
    /// The longest it may take, but for what is in flight then.
    pub time: Duration,
    /// The most that it may write.
    pub written_bytes_max: u64,
    /// Chooses blocks and places.
    pub seed: u64,
    /// No more bytes than this a second.
    pub rate: Option<NonZero<u64>>,
}

/// Runs a trial.
///
/// # Errors
/// The file cannot be read or written.
pub fn drive(
    trial: &Trial<'_>,
    place: &Workplace,
    payload: &[u8],
    method: Method,
    stop: &AtomicBool,
) -> anyhow::Result<Measured> {
    if trial.pattern.sync == Sync::EachWrite {
        return log::append(trial, place, payload, log::Flush::Called, stop);
    }
    let pattern = trial.pattern;
    let streams = pattern.streams();
    let length_max = pattern.largest_block(trial.page);
    let shape = Shape { depth: (trial.depth / streams).max(1), length_max, payload };
    let queues: Vec<Box<dyn TransferQueue>> = (0..streams)
        .map(|_| match method {
            Method::Ring => ring(&shape).context("cannot use io_uring"),
            Method::Threads => Ok(threads(&shape)),
        })
        .collect::<anyhow::Result<_>>()?;
    // Who only reads is given nothing to write with.
    let file = if pattern.only_reads() { &place.reading } else { &place.writing };
    let cpu = processor_time();
    let begin = Instant::now();
    // A thread for each stream, as scans of different sessions are.
    let tallies: Vec<anyhow::Result<Tally>> = std::thread::scope(|scope| {
        let workers: Vec<_> = queues
            .into_iter()
            .enumerate()
            .map(|(stream, mut queue)| {
                let course = Course::new(trial, place.file_bytes, stream);
                scope.spawn(move || go(trial, course, queue.as_mut(), file, stop))
            })
            .collect();
        let ended_early = |_| Err(anyhow!("a thread of {} ended early", pattern.name));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(ended_early)).collect()
    });
    let mut sum = Tally::new()?;
    for tally in tallies {
        sum.add_all(&tally?);
    }
    if pattern.sync == Sync::AtEnd {
        file.sync_data().with_context(|| failed(pattern))?;
    }
    Ok(sum.measured(begin.elapsed(), processor_time().saturating_sub(cpu)))
}

/// Goes along one stream until the time is over.
fn go(
    trial: &Trial<'_>,
    mut course: Course<'_>,
    queue: &mut dyn TransferQueue,
    file: &Arc<File>,
    stop: &AtomicBool,
) -> anyhow::Result<Tally> {
    let pattern = trial.pattern;
    let streams = pattern.streams() as u64;
    let share =
        |all: NonZero<u64>| NonZero::new(all.get() / streams).unwrap_or(NonZero::<u64>::MIN);
    let limiter = RateLimiter::new(trial.rate.map(share));
    let mut tally = Tally::new()?;
    let begin = Instant::now();
    let mut written = 0_u64;
    loop {
        let is_over = begin.elapsed() >= trial.time
            || written >= trial.written_bytes_max / streams
            || stop.load(Ordering::Relaxed);
        while !is_over && queue.in_flight() < queue.depth() {
            let transfer = course.next(file);
            if transfer.direction == Direction::Write {
                written = written.saturating_add(transfer.length as u64);
            }
            limiter.pay(transfer.length as u64, stop);
            queue.submit(&transfer).with_context(|| failed(pattern))?;
        }
        if queue.in_flight() == 0 {
            return Ok(tally);
        }
        take(queue, &mut tally).with_context(|| failed(pattern))?;
    }
}

fn failed(pattern: &Pattern) -> String {
    format!("cannot run {}", pattern.name)
}

/// Waits for a transfer and counts it.
fn take(queue: &mut dyn TransferQueue, tally: &mut Tally) -> anyhow::Result<()> {
    let Done { direction, latency, result } = queue.wait()?;
    let count = result? as u64;
    if count == 0 {
        bail!("the test file ends early");
    }
    match direction {
        Direction::Read => tally.bytes_read = tally.bytes_read.saturating_add(count),
        Direction::Write => tally.bytes_written = tally.bytes_written.saturating_add(count),
    }
    tally.latencies.add(latency);
    Ok(())
}

/// A part of the file that is gone through again and again.
#[derive(Debug, Clone, Copy)]
struct Stream {
    begin: u64,
    end: u64,
    next: u64,
}

impl Stream {
    fn new(begin: u64, end: u64) -> Self {
        Self { begin, end, next: begin }
    }

    fn advance(&mut self, length: u64) -> u64 {
        if self.next.saturating_add(length) > self.end {
            self.next = self.begin;
        }
        let offset = self.next;
        self.next = self.next.saturating_add(length);
        offset
    }
}

/// Decides what comes next.
struct Course<'a> {
    pattern: &'a Pattern,
    page: usize,
    file_bytes: u64,
    random: Random,
    reads: Stream,
    writes: Stream,
}

impl<'a> Course<'a> {
    /// The course of one of the pattern's streams, each of which has a part of the
    /// file.
    fn new(trial: &Trial<'a>, file_bytes: u64, stream: usize) -> Self {
        // Who reads and writes in order reads one half and writes the other.
        let is_both = !trial.pattern.only_reads() && trial.pattern.write_percent < 100;
        let middle = if is_both { align(file_bytes / 2) } else { 0 };
        let read_end = if is_both { middle } else { file_bytes };
        let share = align(read_end / trial.pattern.streams() as u64);
        let begin = share.saturating_mul(stream as u64);
        Self {
            pattern: trial.pattern,
            page: trial.page,
            file_bytes,
            random: Random::new(trial.seed.wrapping_add(stream as u64)),
            reads: Stream::new(begin, begin.saturating_add(share)),
            writes: Stream::new(middle, file_bytes),
        }
    }

    fn next(&mut self, file: &Arc<File>) -> Transfer {
        let percent = self.random.below(100);
        let is_write = percent < usize::from(self.pattern.write_percent);
        let direction = if is_write { Direction::Write } else { Direction::Read };
        let length = self.pattern.block(self.random.below(100), self.page);
        let is_anywhere = match self.pattern.access {
            Access::Random => true,
            Access::Sequential { astray, .. } => self.random.below(100) < usize::from(astray),
        };
        let offset =
            if is_anywhere { self.anywhere(length) } else { self.in_order(is_write, length) };
        Transfer { file: Arc::clone(file), direction, offset, length }
    }

    fn anywhere(&mut self, length: usize) -> u64 {
        let length = length as u64;
        let places = usize::try_from(self.file_bytes / length.max(1)).unwrap_or(usize::MAX);
        self.random.below(places) as u64 * length
    }

    fn in_order(&mut self, is_write: bool, length: usize) -> u64 {
        let stream = if is_write { &mut self.writes } else { &mut self.reads };
        stream.advance(length as u64)
    }
}

/// Down to a place where any block of any pattern may begin.
fn align(bytes: u64) -> u64 {
    bytes / (1 << 20) * (1 << 20)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::iotest::patterns::PATTERNS;
    use crate::iotest::payload::payload;
    use crate::iotest::workplace::Wanted;

    const BYTES: u64 = 16 << 20;

    /// A short one, which writes little.
    pub(in crate::iotest) fn trial(pattern: &Pattern) -> Trial<'_> {
        Trial {
            pattern,
            depth: pattern.depth,
            page: 8192,
            time: Duration::from_millis(60),
            written_bytes_max: 4 << 20,
            seed: 7,
            rate: None,
        }
    }

    #[test]
    fn every_transfer_stays_inside_the_file_and_is_aligned() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        for pattern in PATTERNS.iter().filter(|pattern| pattern.sync != Sync::EachWrite) {
            let mut course = Course::new(&trial(pattern), BYTES, pattern.streams() - 1);
            let mut writes = 0_u64;
            for _ in 0..10_000 {
                let transfer = course.next(&file);
                assert!(transfer.offset + transfer.length as u64 <= BYTES, "{transfer:?}");
                assert!(transfer.offset.is_multiple_of(4096), "{transfer:?}");
                writes += u64::from(transfer.direction == Direction::Write);
            }
            let share = i64::try_from(writes / 100).unwrap();
            let wanted = i64::from(pattern.write_percent);
            assert!((share - wanted).abs() <= 2, "{}: {share} %", pattern.name);
        }
    }

    #[test]
    fn what_is_in_order_follows_what_was_before() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let pattern = Pattern::named("backup").unwrap();
        let mut course = Course::new(&trial(pattern), BYTES, pattern.streams() - 1);
        let offsets: Vec<u64> = (0..17).map(|_| course.next(&file).offset).collect();
        let expected: Vec<u64> = (0..17).map(|at| (at % 16) << 20).collect();
        assert_eq!(offsets, expected);
    }

    #[test]
    fn every_pattern_runs_by_either_method_and_keeps_to_its_limits() {
        let folder = tempfile::tempdir().unwrap();
        let payload = payload(0, 1);
        let wanted = Wanted::new(folder.path(), BYTES, &payload);
        let stop = AtomicBool::new(false);
        let place = Workplace::make(&wanted, &stop, &|_| ()).unwrap();
        for method in [Method::best(), Method::Threads] {
            for pattern in PATTERNS {
                let measured = drive(&trial(pattern), &place, &payload, method, &stop).unwrap();
                assert!(measured.transfers > 0, "{}", pattern.name);
                assert!(measured.mib_per_second > 0.0);
                assert!(measured.latency_us.p50 <= measured.latency_us.max);
                let most = (4 << 20) + pattern.depth as u64 * (1 << 20);
                assert!(measured.bytes_written <= most, "{}", pattern.name);
                assert_eq!(measured.bytes_written == 0, pattern.only_reads());
                assert!(measured.outstanding <= pattern.depth as f64 * 1.1, "{measured:?}");
            }
        }
        assert_eq!(place.buffered.metadata().unwrap().len(), BYTES, "no pattern extends it");
    }
}
