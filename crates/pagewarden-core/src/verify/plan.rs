//! What to read next: walks the target and cuts its files into runs.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::database::{Apart, Description, PageFile, Step, StreamedPages, Target};
use crate::source::buffer::ALIGNMENT;
use crate::source::rate::Rate;
use crate::source::yielding::Yielding;
use crate::system::Errno;
use crate::system::MetadataExt as _;
use crate::verdict::{ByteOffset, Finding, Kind, Note, Severity, Unread};
use crate::verify::open_file::OpenFile;
use crate::verify::{Caching, Options, RUN_BYTES};

/// A stretch of whole pages to read and judge.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) sequence: u64,
    pub(super) file: Arc<OpenFile>,
    pub(super) offset: u64,
    pub(super) length: usize,
}

/// What the plan has for a worker.
#[derive(Debug)]
pub(super) enum Next {
    /// Read and judge this.
    Run(Run),
    /// Judge this.
    Pages(u64, StreamedPages),
    /// Take these steps to their end, and say when that is reached.
    Apart(u64, Apart),
    /// Something that needs no reading, for the collector.
    Event(u64, Event),
    /// Nothing just now: the rate is used up, or the target waits, for so long.
    Wait(Duration),
    /// Nothing more.
    End,
}

/// A result that needs no reading.
#[derive(Debug)]
pub(super) enum Event {
    Step(Box<Step>),
    /// A file was opened; it counts.
    Opened,
    /// A finding of the plan itself, and whether it stands for a page.
    PartialPage(Box<Finding>),
}

pub(super) struct Plan {
    steps: Box<dyn Iterator<Item = Step> + Send>,
    current: Option<(Arc<OpenFile>, u64)>,
    /// What came as a stream and waits for its time.
    streamed: Option<Streamed>,
    /// A file that could not be opened because too many are open.
    waiting: Option<(PageFile, Instant)>,
    patience: Duration,
    next_sequence: u64,
    caching: Caching,
    live: bool,
    limiter: RunLimiter,
    /// What is to be said before anything else.
    note: Option<Note>,
    /// Whether it was said that direct reads are refused.
    said_refused: bool,
    /// The target is not asked before everything it gave is collected.
    at_barrier: bool,
    /// Steps that wait until fewer others are taken apart.
    apart: Option<Apart>,
    /// How many are taken apart now, and may be.
    apart_count: usize,
    apart_max: usize,
    /// How many of them wait for the rate.
    owing: usize,
}

/// Bytes that were read by the target itself.
enum Streamed {
    Pages(StreamedPages),
    Others(u64),
}

/// Holds runs back. Under a ceiling no run begins before it and all before it are paid
/// for, so that from the beginning to any moment no more was read than the rate
/// allows. Time that was not used is lost, but for one run's worth, which makes
/// up for waking late: within any stretch of time no more is read than the rate
/// allows and two runs.
struct RunLimiter {
    ceiling: Ceiling,
    /// Up to when time was paid with.
    paid_to: Instant,
}

enum Ceiling {
    None,
    Fixed(NonZero<u64>),
    Yielding(Box<Yielding>),
}

impl RunLimiter {
    fn new(rate: Rate, description: &Description, now: Instant) -> Self {
        let yielding = || Ceiling::Yielding(Box::new(Yielding::at(&description.path)));
        let ceiling = match rate {
            Rate::AtMost(bytes) => Ceiling::Fixed(bytes),
            Rate::Yielding => yielding(),
            Rate::ByTarget if description.live => yielding(),
            Rate::ByTarget | Rate::Unlimited => Ceiling::None,
        };
        Self { ceiling, paid_to: now }
    }

    /// How much to read at once: a share of what a fixed rate allows in a second.
    fn run_bytes(&self) -> u64 {
        match &self.ceiling {
            Ceiling::Fixed(bytes) => (bytes.get() / RUNS_PER_SECOND).clamp(1, RUN_BYTES as u64),
            Ceiling::Yielding(yielding) => yielding.run_bytes(RUN_BYTES as u64),
            Ceiling::None => RUN_BYTES as u64,
        }
    }

    /// How long a run of `length` bytes must still wait; `None` if it begins
    /// now.
    fn wait(&mut self, length: u64, now: Instant) -> Option<Duration> {
        let bytes_per_second = match &mut self.ceiling {
            Ceiling::None => return None,
            Ceiling::Fixed(bytes) => bytes.get(),
            Ceiling::Yielding(yielding) => match yielding.ceiling(now) {
                Some(bytes) => bytes,
                None => {
                    yielding.take(length);
                    return None;
                }
            },
        };
        let price = Duration::from_secs_f64(length as f64 / bytes_per_second as f64);
        let saved = now.saturating_duration_since(self.paid_to);
        if let Some(wait) = price.checked_sub(saved).filter(|wait| !wait.is_zero()) {
            return Some(wait);
        }
        if let Ceiling::Yielding(yielding) = &mut self.ceiling {
            yielding.take(length);
        }
        let unused = saved.saturating_sub(price).min(price);
        self.paid_to = now.checked_sub(unused).unwrap_or(now);
        None
    }
}

/// Runs for each second of a limited rate: more would cost system calls, fewer
/// would be bursts.
const RUNS_PER_SECOND: u64 = 8;

/// How long a worker waits that finds others still at work before a barrier.
const A_MOMENT: Duration = Duration::from_millis(1);

/// How long a worker waits that is one too many to take steps apart. One that has done so asks
/// again by itself.
const A_WHILE: Duration = Duration::from_millis(20);

/// How long the first file that cannot be opened for want of descriptors may
/// wait for others to be closed. Later ones need not wait as long again.
const PATIENCE: Duration = Duration::from_secs(10);

impl Plan {
    pub(super) fn new(target: Target, options: &Options) -> Self {
        let limiter = RunLimiter::new(options.rate, &target.description, Instant::now());
        Self {
            steps: target.steps,
            current: None,
            streamed: None,
            waiting: None,
            patience: PATIENCE,
            next_sequence: 0,
            caching: options.caching,
            live: target.description.live,
            limiter,
            note: None,
            said_refused: false,
            at_barrier: false,
            apart: None,
            apart_count: 0,
            apart_max: options.jobs.get(),
            owing: 0,
        }
    }

    /// True if some rate may hold reads back.
    pub(super) fn has_ceiling(&self) -> bool {
        !matches!(self.limiter.ceiling, Ceiling::None)
    }

    /// Pays for bytes that were read apart. If that must wait, for how long: nothing else is begun
    /// before it was asked again, or given up.
    pub(super) fn pay(&mut self, bytes: u64, is_owing: &mut bool) -> Option<Duration> {
        let wait = self.limiter.wait(bytes, Instant::now());
        match (wait.is_some(), *is_owing) {
            (true, false) => self.owing += 1,
            (false, true) => self.owing -= 1,
            _ => {}
        }
        *is_owing = wait.is_some();
        wait
    }

    /// Steps that were taken apart have come to their end.
    pub(super) fn apart_ended(&mut self) {
        self.apart_count -= 1;
    }

    /// The next thing to do, now that `collected` results are there.
    pub(super) fn next(&mut self, collected: u64) -> Next {
        // The rate is used up.
        if self.owing > 0 {
            return Next::Wait(A_MOMENT);
        }
        if let Some(note) = self.note.take() {
            return self.event(Event::Step(Box::new(Step::Note(note))));
        }
        loop {
            if self.at_barrier && self.ahead_of(collected) > 0 {
                return Next::Wait(A_MOMENT);
            }
            self.at_barrier = false;
            if let Some((file, offset)) = self.current.take() {
                if let Some(next) = self.next_of_file(file, offset) {
                    return next;
                }
                continue;
            }
            if let Some(apart) = self.apart.take() {
                if self.apart_count < self.apart_max {
                    self.apart_count += 1;
                    return Next::Apart(self.sequence(), apart);
                }
                self.apart = Some(apart);
                return Next::Wait(A_WHILE);
            }
            if let Some(streamed) = self.streamed.take() {
                if let Some(next) = self.next_of_stream(streamed) {
                    return next;
                }
                continue;
            }
            let step = match self.waiting.take() {
                Some((page_file, since)) => {
                    if let Some(next) = self.open(page_file, since) {
                        return next;
                    }
                    continue;
                }
                None => self.steps.next(),
            };
            match step {
                None => return Next::End,
                Some(Step::File(page_file)) => {
                    if let Some(next) = self.open(page_file, Instant::now()) {
                        return next;
                    }
                }
                Some(Step::Pages(pages)) => {
                    let begins = pages.offset == pages.file.first_offset;
                    self.streamed = Some(Streamed::Pages(pages));
                    if begins {
                        return self.event(Event::Opened);
                    }
                }
                Some(Step::Barrier) => self.at_barrier = true,
                Some(Step::Apart(apart)) => self.apart = Some(apart),
                Some(Step::Wait(wait)) => return Next::Wait(wait),
                Some(Step::Passed(bytes)) => self.streamed = Some(Streamed::Others(bytes)),
                Some(other) => return self.event(Event::Step(Box::new(other))),
            }
        }
    }

    fn event(&mut self, event: Event) -> Next {
        Next::Event(self.sequence(), event)
    }

    fn sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        sequence
    }

    /// How far the plan is ahead of `collected` results.
    pub(super) fn ahead_of(&self, collected: u64) -> u64 {
        self.next_sequence.saturating_sub(collected)
    }

    /// `None` where there is nothing to judge.
    fn next_of_stream(&mut self, streamed: Streamed) -> Option<Next> {
        let bytes = match &streamed {
            Streamed::Pages(pages) => pages.bytes.len() as u64,
            Streamed::Others(bytes) => *bytes,
        };
        if let Some(wait) = self.limiter.wait(bytes, Instant::now()) {
            self.streamed = Some(streamed);
            return Some(Next::Wait(wait));
        }
        match streamed {
            Streamed::Pages(pages) => Some(Next::Pages(self.sequence(), pages)),
            Streamed::Others(_) => None,
        }
    }

    fn next_of_file(&mut self, file: Arc<OpenFile>, offset: u64) -> Option<Next> {
        let whole_pages = file.page_file.end(file.length).0;
        if offset >= whole_pages {
            return self.end_of_file(&file).map(|event| self.event(event));
        }
        let length = self.run_length(file.page_size).min(whole_pages - offset);
        if let Some(wait) = self.limiter.wait(length, Instant::now()) {
            self.current = Some((file, offset));
            return Some(Next::Wait(wait));
        }
        let sequence = self.sequence();
        self.current = Some((Arc::clone(&file), offset + length));
        // A run is at most two mebibytes, or one page.
        let length = usize::try_from(length).ok()?;
        Some(Next::Run(Run { sequence, file, offset, length }))
    }

    /// Whole pages, and where pages are small, whole units of direct reads.
    fn run_length(&self, page_size: u64) -> u64 {
        // Both are powers of two.
        let unit = page_size.max(ALIGNMENT as u64);
        let run_bytes = self.limiter.run_bytes();
        (run_bytes - run_bytes % unit).max(unit)
    }

    /// What is left to say when all whole pages were given out.
    fn end_of_file(&self, file: &OpenFile) -> Option<Event> {
        let grown = |file: &OpenFile| {
            let length = file.cached.metadata().map_or(file.length, |metadata| metadata.len());
            length.checked_sub(file.length).filter(|more| *more > 0)
        };
        let rest = file.page_file.rest(file.length);
        if self.live {
            // A server extends files by whole pages, but not in one stroke.
            if rest == 0 || still_partial(file).is_none() {
                return None;
            }
        } else if let Some(more) = grown(file) {
            let unread = file.unread(file.length, more, "the file grew while it was read");
            return Some(Event::Step(Box::new(Step::Unread(unread))));
        }
        if rest == 0 {
            return None;
        }
        let offset = file.length - rest;
        let page_file = &file.page_file;
        let detail = format!("the file ends after {rest} of {} bytes of this page", file.page_size);
        let mut finding =
            Finding::of_file(&page_file.name, page_file.partial_page, Kind::Truncated, detail)
                .at(Some(file.page_at(offset)), Some(ByteOffset(offset)))
                .about(page_file.database.as_deref(), page_file.object.as_deref());
        finding.hint = page_file.hint.as_deref().map(str::to_owned);
        Some(Event::PartialPage(Box::new(finding)))
    }

    /// Opens a file that has been waiting for it for some time. `None` if a
    /// live server took it away meanwhile.
    fn open(&mut self, page_file: PageFile, since: Instant) -> Option<Next> {
        match OpenFile::open(&page_file, self.caching, self.live) {
            Ok(file) => {
                if self.caching == Caching::Direct && !self.said_refused && file.direct().is_none()
                {
                    self.said_refused = true;
                    self.note = Some(Note {
                        file: page_file.name,
                        text: "direct reads are refused here (and perhaps for other files): read through the page cache".to_owned(),
                    });
                }
                let begin = file.page_file.first_offset.0;
                self.current = Some((Arc::new(file), begin));
                Some(self.event(Event::Opened))
            }
            Err(error) if self.live && error.kind() == io::ErrorKind::NotFound => None,
            // Others are being read and will be closed.
            Err(error) if is_out_of_files(&error) && since.elapsed() < self.patience => {
                self.waiting = Some((page_file, since));
                Some(Next::Wait(Duration::from_millis(1)))
            }
            Err(error) => {
                if is_out_of_files(&error) {
                    self.patience = Duration::ZERO;
                }
                let unread = Unread {
                    file: page_file.name,
                    offset: ByteOffset(0),
                    length: page_file.listed_bytes,
                    error: error.to_string(),
                };
                Some(self.event(Event::Step(Box::new(Step::Unread(unread)))))
            }
        }
    }
}

fn is_out_of_files(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// The length of a file that still ends inside a page after a while. One that was
/// removed meanwhile is of no interest, nor one that grows.
fn still_partial(file: &OpenFile) -> Option<u64> {
    const LOOKS: u32 = 20;
    for _ in 0..LOOKS {
        std::thread::sleep(Duration::from_millis(20));
        let metadata = file.cached.metadata().ok()?;
        if metadata.len() != file.length || metadata.nlink() == 0 {
            return None;
        }
    }
    Some(file.length)
}

/// A finding of severity damage about a partial page counts as a page.
pub(super) fn counts_as_page(finding: &Finding) -> bool {
    finding.severity == Severity::Damage
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for runs of `length` for `seconds`, a little late each time, and
    /// says when they began.
    fn begun(
        pace: &mut RunLimiter,
        length: u64,
        seconds: u64,
        lateness: Duration,
    ) -> Vec<Duration> {
        let begin = pace.paid_to;
        let mut now = begin;
        let mut times = Vec::new();
        while now - begin < Duration::from_secs(seconds) {
            match pace.wait(length, now) {
                Some(wait) => now += wait + lateness,
                None => times.push(now - begin),
            }
        }
        times
    }

    fn plan_of(steps: Vec<Step>, options: &Options) -> Plan {
        let description = Description {
            path: "it".into(),
            format: "",
            engine: String::new(),
            page_size: 0,
            setting: None,
            state: String::new(),
            evidence: crate::database::Evidence { tested_by: "", unseen: "" },
            live: false,
            epoch: None,
            part: None,
        };
        Plan::new(Target { description, steps: Box::new(steps.into_iter()), woken: None }, options)
    }

    fn nothing() -> Step {
        Step::Apart(Apart::new(std::iter::empty()))
    }

    #[test]
    fn no_more_steps_are_taken_apart_than_there_are_jobs() {
        let options = Options { jobs: NonZero::<usize>::MIN, ..Options::default() };
        let mut plan = plan_of(vec![nothing(), nothing()], &options);
        assert!(matches!(plan.next(0), Next::Apart(0, _)));
        assert!(matches!(plan.next(0), Next::Wait(_)));
        plan.apart_ended();
        assert!(matches!(plan.next(0), Next::Apart(1, _)));
    }

    #[test]
    fn nothing_is_begun_while_what_was_read_apart_is_not_paid_for() {
        let rate = Rate::AtMost(NonZero::new(1 << 20).unwrap());
        let mut plan = plan_of(vec![nothing()], &Options { rate, ..Options::default() });
        let (mut one, mut other) = (false, false);
        assert!(plan.pay(1 << 40, &mut one).is_some() && plan.pay(1 << 40, &mut other).is_some());
        assert!(plan.pay(1 << 40, &mut one).is_some());
        assert!(matches!(plan.next(0), Next::Wait(_)));
        assert!(plan.pay(0, &mut one).is_none());
        assert!(matches!(plan.next(0), Next::Wait(_)), "the other owes still");
        assert!(plan.pay(0, &mut other).is_none());
        assert!(matches!(plan.next(0), Next::Apart(0, _)));
    }

    #[test]
    fn no_stretch_of_time_sees_more_than_the_rate_and_two_runs() {
        const PAGE: u64 = 8 << 10;
        for (rate, length) in [
            (PAGE, PAGE),
            (PAGE, 8 * PAGE),
            (1 << 20, 128 << 10),
            (1 << 30, 1 << 20),
            (3 * PAGE - 1, PAGE),
        ] {
            for lateness in [0, 50, 700, 40_000].map(Duration::from_micros) {
                let mut pace = RunLimiter {
                    ceiling: Ceiling::Fixed(NonZero::new(rate).unwrap()),
                    paid_to: Instant::now(),
                };
                let times = begun(&mut pace, length, 20, lateness);
                // Prices are rounded to nanoseconds.
                let allowed = |time: Duration| time.as_secs_f64() * rate as f64 * 1.000_001 + 2.0;
                for (count, time) in (1_u64..).zip(&times) {
                    assert!((count * length) as f64 <= allowed(*time), "{rate} {time:?}");
                }
                for (first, begin) in times.iter().enumerate().step_by(7) {
                    for (last, end) in times.iter().enumerate().skip(first).step_by(3) {
                        let bytes = (last - first) as u64 * length;
                        assert!(bytes as f64 <= allowed(*end - *begin) + length as f64);
                    }
                }
            }
        }
    }

    #[test]
    fn waking_late_costs_nothing_and_a_long_pause_is_not_made_up_for() {
        let rate = 1 << 30;
        let begin = Instant::now();
        let mut pace =
            RunLimiter { ceiling: Ceiling::Fixed(NonZero::new(rate).unwrap()), paid_to: begin };
        let late = Duration::from_micros(300);
        let runs = begun(&mut pace, 1 << 20, 1, late).len();
        assert!(runs > 1000, "{runs} of 1024 runs");
        let now = begin + Duration::from_secs(100);
        let begun_at_once = (0..10).filter(|_| pace.wait(1 << 20, now).is_none()).count();
        assert_eq!(begun_at_once, 2);
    }
}
