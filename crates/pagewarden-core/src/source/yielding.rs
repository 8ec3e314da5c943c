//! A rate that yields: as fast as the machine allows while it is ours alone, and a share of it while
//! others use it. The disk and the processors are looked at four times a second, each has its own
//! ceiling, and the lower one counts. A run begins slowly, since it does not know yet who else is there;
//! one that soon follows another on the same disk goes on with what that one learned.
//!
//! Under a ceiling less is read at once: others wait for the end of what a disk has begun.
//!
//! Threads that yield stand behind others by themselves ([`crate::source::priority`]). That does not
//! suffice: a system call that copies from the page cache is not interrupted for the thread that waits
//! for the processor, and a request that a disk has begun is not taken back.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use disk::Disk;
use processors::Processors;

mod disk;
mod processors;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// A run never gets slower than this, in bytes a second, or it would not end.
const FLOOR: u64 = 4 << 20;
/// The ceiling at the beginning, before it is known who else is there. It doubles at each of the first
/// looks, which come sooner.
const START: u64 = 256 << 20;
const START_LOOK: Duration = Duration::from_millis(25);
const START_LOOKS: u32 = 4;
/// How much a ceiling grows at a look beside others, and without.
const GROWTH_BESIDE: f64 = 1.1;
const GROWTH_ALONE: f64 = 2.0;
/// Runs a second under a ceiling, and the shortest: others wait for the end of one that has begun, and
/// where there are many, threads that stand back wake too late for most of them.
const RUNS_PER_SECOND: u64 = 128;
const RUN_BYTES_MIN: u64 = 64 << 10;

/// How long what was learned is good for the next run on the same disk: it may be one of many.
const MEMORY: Duration = Duration::from_secs(2);

/// What the last run of this process left, and when.
static LEFT: Mutex<Option<(Instant, State)>> = Mutex::new(None);

/// Runs of this process that yield: with several, each takes what it asked for as its own.
static YIELDING: AtomicUsize = AtomicUsize::new(0);

/// See the head of this file.
#[derive(Debug)]
pub struct Yielding {
    state: State,
}

#[derive(Debug, Default)]
struct State {
    disk: Disk,
    processors: Processors,
    /// Since when it is looked; `None` where nothing was asked yet.
    begin: Option<Instant>,
    ceiling: Option<u64>,
}

impl State {
    /// What the last run left, if that is of use.
    fn after(left: Option<(Instant, Self)>, disk: Disk, now: Instant) -> Self {
        left.filter(|(at, _)| now.saturating_duration_since(*at) < MEMORY)
            .filter(|(_, state)| state.disk.is_same(&disk))
            .map_or_else(|| Self { disk, ..Self::default() }, |(_, state)| state)
    }
}

impl Yielding {
    /// For what lies at `path`.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        YIELDING.fetch_add(1, Ordering::Relaxed);
        let disk = Disk::beneath(path);
        let left = LEFT.lock().unwrap_or_else(PoisonError::into_inner).take();
        Self { state: State::after(left, disk, Instant::now()) }
    }

    /// Counts what is read.
    pub fn take(&mut self, bytes: u64) {
        self.state.disk.take(bytes);
        self.state.processors.take(bytes);
    }

    /// Bytes a second that may be read now; `None`: no ceiling.
    pub fn ceiling(&mut self, now: Instant) -> Option<u64> {
        let State { disk, processors, begin, ceiling } = &mut self.state;
        let since = now.saturating_duration_since(*begin.get_or_insert(now));
        let doubled = since.as_millis() / START_LOOK.as_millis();
        let doubled = u32::try_from(doubled).ok().filter(|doubled| *doubled < START_LOOKS);
        let look = if doubled.is_some() { START_LOOK } else { LOOK };
        let start = doubled.map(|doubled| START << doubled);
        let is_alone = YIELDING.load(Ordering::Relaxed) <= 1;
        let ceilings = [disk.ceiling(now, look, is_alone), processors.ceiling(now, look), start];
        *ceiling = ceilings.into_iter().flatten().min();
        *ceiling
    }

    /// How much to read at once, `most` where nothing is held back.
    #[must_use]
    pub fn run_bytes(&self, most: u64) -> u64 {
        let run_bytes = |ceiling: u64| (ceiling / RUNS_PER_SECOND).max(RUN_BYTES_MIN).min(most);
        self.state.ceiling.map_or(most, run_bytes)
    }
}

impl Drop for Yielding {
    fn drop(&mut self) {
        YIELDING.fetch_sub(1, Ordering::Relaxed);
        let left = Some((Instant::now(), std::mem::take(&mut self.state)));
        *LEFT.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }
}

fn per_second(bytes: u64, seconds: f64) -> u64 {
    if seconds > 0.0 { scaled(bytes, 1.0 / seconds) } else { 0 }
}

/// `bytes` times a factor that is not negative.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn scaled(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_begins_slowly_and_reads_less_at_once_meanwhile() {
        let mut yielding = Yielding { state: State::default() };
        let begin = Instant::now();
        let at = |yielding: &mut Yielding, looks: u32| {
            let ceiling = yielding.ceiling(begin + START_LOOK * looks);
            (ceiling, yielding.run_bytes(2 << 20))
        };
        assert_eq!(yielding.run_bytes(2 << 20), 2 << 20);
        let (ceiling, run_bytes) = at(&mut yielding, 0);
        assert!(ceiling.is_some_and(|ceiling| ceiling <= START), "{ceiling:?}");
        assert!(run_bytes <= 2 << 20);
        // Later nothing but a disk or processors that others use hold it back.
        let mut later = Yielding { state: State::default() };
        later.state.begin = Some(begin);
        let end = START_LOOK * START_LOOKS;
        later.state.ceiling = Some(8 << 20);
        assert_eq!(later.run_bytes(2 << 20), RUN_BYTES_MIN);
        assert_eq!(later.ceiling(begin + end), None, "its first look at the processors");
        assert_eq!(later.run_bytes(2 << 20), 2 << 20);
    }

    #[test]
    fn next_run_on_the_same_disk_goes_on_with_what_was_learned() {
        let now = Instant::now();
        let left = || {
            let state = State { ceiling: Some(7), begin: Some(now), ..State::default() };
            Some((now, state))
        };
        let soon = now + Duration::from_secs(1);
        let late = now + Duration::from_secs(3);
        assert_eq!(State::after(left(), Disk::default(), soon).ceiling, Some(7));
        assert_eq!(State::after(left(), Disk::default(), late).ceiling, None);
        assert_eq!(State::after(None, Disk::default(), soon).ceiling, None);
        // What holds no disk that is known is on another one.
        let here = Disk::beneath(&std::env::current_dir().unwrap());
        if here.is_same(&Disk::default()) {
            eprintln!("SKIPPED: this system tells of no disk");
            return;
        }
        assert_eq!(State::after(left(), here, soon).begin, None);
    }
}
