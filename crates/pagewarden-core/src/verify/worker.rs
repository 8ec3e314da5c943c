//! Takes runs from the plan, keeps reads in flight, judges what comes in.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::database::{Description, StreamedPages, Target};
use crate::page::{PageRun, RunVerdict};
use crate::source::buffer::{ALIGNMENT, AlignedBuffer};
use crate::source::file::read_at;
use crate::source::queue::ReadQueue;
use crate::source::read_ahead::Seats;
use crate::verify::collect::{Collector, Outcome, RunOutcome};
use crate::verify::look::Look;
use crate::verify::open_file::{OpenFile, Way};
use crate::verify::plan::{Next, Plan, Run};
use crate::verify::timing::{Stopwatch, Tally, Timing};
use crate::verify::{Options, Progress, Sink, Summary};

/// How far the plan may run ahead of the oldest unfinished result.
const WINDOW: u64 = 4096;

/// Bytes of a run from the page cache that are read and judged at a time, small enough to
/// still be in the processor's second-level cache when they are judged.
const STEP_BYTES: usize = 256 << 10;

/// How long a worker with nothing in flight sleeps before it asks again.
pub(super) const NAP: Duration = Duration::from_millis(50);

/// What the workers of one run share.
pub(super) struct Shared<'a> {
    pub(super) plan: Mutex<Plan>,
    pub(super) collector: Mutex<Collector<'a>>,
    progress: &'a dyn Progress,
    stop: Arc<AtomicBool>,
    /// The sink refused: no use in going on.
    refused: AtomicBool,
    look: Look,
    gate: Gate,
    pub(super) tally: Tally,
    /// Some rate may hold reads back.
    pub(super) has_ceiling: bool,
    /// Threads that read ahead of those that judge: they wait for each other much of the time.
    pub(super) seats: Arc<Seats>,
}

/// Limits how many threads judge at a time, where there are more of them for
/// the sake of reads in flight.
struct Gate {
    free: Mutex<usize>,
    freed: Condvar,
    open: bool,
}

impl Gate {
    fn new(jobs: usize, workers: usize) -> Self {
        Self { free: Mutex::new(jobs), freed: Condvar::new(), open: workers <= jobs }
    }

    fn pass<T>(&self, tally: &Tally, work: impl FnOnce() -> T) -> T {
        if self.open {
            return work();
        }
        let mut free = lock(&self.free);
        if *free == 0 {
            free = tally.queueing(move || {
                while *free == 0 {
                    free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
                }
                free
            });
        }
        *free -= 1;
        drop(free);
        let result = work();
        *lock(&self.free) += 1;
        self.freed.notify_one();
        result
    }
}

/// A worker that panicked has already ended the run; its locks hold nothing
/// that could be half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the run if its worker panics: others would wait for what it has not delivered.
struct EndsAll<'a>(&'a AtomicBool);

impl Drop for EndsAll<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl<'a> Shared<'a> {
    pub(super) fn new(
        mut target: Target,
        options: &Options,
        progress: &'a dyn Progress,
        sink: &'a mut dyn Sink,
        workers: usize,
    ) -> Self {
        let look = Look::new(&mut target, Arc::clone(&options.stop));
        let plan = Plan::new(target, options);
        Self {
            look,
            has_ceiling: plan.has_ceiling(),
            seats: Seats::new(options.jobs.get() / 2),
            plan: Mutex::new(plan),
            collector: Mutex::new(Collector::new(sink)),
            progress,
            stop: Arc::clone(&options.stop),
            refused: AtomicBool::new(false),
            gate: Gate::new(options.jobs.get(), workers),
            tally: Tally::default(),
        }
    }

    /// What the time of the workers went to, once they have ended.
    pub(super) fn pace(&self) -> Timing {
        self.tally.pace()
    }

    /// What was counted, and what the target turned out to be where that was not known before its
    /// end.
    pub(super) fn finish(self) -> io::Result<(Summary, Option<Box<Description>>)> {
        self.collector.into_inner().unwrap_or_else(PoisonError::into_inner).finish()
    }

    /// Runs one worker until the plan is exhausted.
    pub(super) fn work(&self, queue: &mut dyn ReadQueue) {
        let _ends_all = EndsAll(&self.refused);
        let mut reading: Vec<Option<Run>> = (0..queue.depth()).map(|_| None).collect();
        let mut buffer = AlignedBuffer::new(0);
        let mut more = true;
        let life = Stopwatch::start();
        while more || queue.in_flight() > 0 {
            let mut nap = None;
            while more && nap.is_none() && queue.in_flight() < queue.depth() {
                match self.next() {
                    Next::End => more = false,
                    Next::Wait(wait) => nap = Some(wait.min(NAP)),
                    Next::Event(sequence, event) => self.deliver(sequence, Outcome::Event(event)),
                    Next::Pages(sequence, pages) => {
                        let outcome = self.pass(|| self.judge_streamed(&pages));
                        self.deliver(sequence, Outcome::Run(outcome));
                    }
                    Next::Apart(sequence, apart) => {
                        // Others wait for what is in flight, and this may wait for them.
                        while queue.in_flight() > 0 {
                            self.complete(queue, &mut reading, &mut buffer);
                        }
                        self.take_apart(sequence, apart);
                    }
                    Next::Run(run) => match run.file.way(run.offset, run.length) {
                        Way::Past => self.submit(queue, &mut reading, run, &mut buffer),
                        Way::Hole => self.pass(|| {
                            if !self.judge_hole(&run) {
                                self.read_in_steps(&run, Way::Through, &mut buffer);
                            }
                        }),
                        way => self.pass(|| self.read_in_steps(&run, way, &mut buffer)),
                    },
                }
            }
            if queue.in_flight() > 0 {
                self.complete(queue, &mut reading, &mut buffer);
            } else if let Some(nap) = nap {
                self.tally.pausing(|| std::thread::sleep(nap));
            }
        }
        self.tally.life(&life);
    }

    pub(super) fn judge_streamed(&self, pages: &StreamedPages) -> RunOutcome {
        let mut outcome = RunOutcome::default();
        self.look.judge(&pages.file, None, pages.offset.0, &pages.bytes, &mut outcome);
        outcome.bytes = outcome.bytes.saturating_sub(pages.filler_bytes);
        outcome
    }

    pub(super) fn pass<T>(&self, work: impl FnOnce() -> T) -> T {
        self.gate.pass(&self.tally, work)
    }

    /// True if no more is to be read.
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.refused.load(Ordering::Relaxed)
    }

    fn next(&self) -> Next {
        if self.is_over() {
            return Next::End;
        }
        let collector = lock(&self.collector);
        let (collected, is_full) = (collector.collected(), collector.is_full());
        drop(collector);
        let mut plan = lock(&self.plan);
        if is_full || plan.ahead_of(collected) >= WINDOW {
            return Next::Wait(Duration::from_millis(1));
        }
        plan.next(collected)
    }

    fn deliver(&self, sequence: u64, outcome: Outcome) {
        self.collect(outcome, |collector, outcome| collector.take(sequence, outcome));
    }

    pub(super) fn collect(
        &self,
        outcome: Outcome,
        take: impl FnOnce(&mut Collector<'a>, Outcome) -> bool,
    ) {
        if let Outcome::Run(run) = &outcome {
            self.progress.advance(run.bytes);
        }
        let is_taken = take(&mut lock(&self.collector), outcome);
        self.note_refusal(is_taken);
    }

    /// The sink takes no more, if `is_taken` is false.
    pub(super) fn note_refusal(&self, is_taken: bool) {
        if !is_taken {
            self.refused.store(true, Ordering::Relaxed);
        }
    }

    /// Judges what was read this way.
    fn judge(
        &self,
        file: &OpenFile,
        way: Way,
        offset: u64,
        bytes: &[u8],
        outcome: &mut RunOutcome,
    ) {
        self.look.judge(&file.page_file, Some(file.again(way)), offset, bytes, outcome);
    }

    /// A run that was never written: as if zeroes had been read. False, and
    /// nothing is done, if zeroes would be a finding: on account of what was not
    /// read nothing is said.
    fn judge_hole(&self, run: &Run) -> bool {
        // Not a constant: it would lie in the program's file.
        let zeroes = vec![0; STEP_BYTES.min(run.length)];
        let page_size = usize::try_from(run.file.page_size).unwrap_or(usize::MAX);
        let step = STEP_BYTES - STEP_BYTES % page_size.min(STEP_BYTES);
        let steps = || {
            (0..run.length).step_by(step).map(|done| {
                let zeroes = zeroes.get(..step.min(run.length - done)).unwrap_or_default();
                (run.offset + done as u64, zeroes)
            })
        };
        let mut verdict = RunVerdict::default();
        for (offset, bytes) in steps() {
            let first = run.file.page_at(offset);
            run.file.page_file.format.judge(PageRun { first, bytes }, &mut verdict);
            if !verdict.findings.is_empty() {
                return false;
            }
        }
        let mut outcome = RunOutcome::default();
        for (offset, bytes) in steps() {
            self.judge(&run.file, Way::Hole, offset, bytes, &mut outcome);
        }
        self.tally.hole(run.length as u64);
        self.deliver(run.sequence, Outcome::Run(outcome));
        true
    }

    fn submit(
        &self,
        queue: &mut dyn ReadQueue,
        reading: &mut [Option<Run>],
        run: Run,
        buffer: &mut AlignedBuffer,
    ) {
        let submitted = match run.file.direct() {
            Some(file) => queue.submit(file, run.offset, run.length),
            None => Err(io::Error::from(io::ErrorKind::Unsupported)),
        };
        match submitted {
            Ok(slot) => {
                self.tally.read(run.length as u64, Some(0));
                if let Some(place) = reading.get_mut(slot.0) {
                    *place = Some(run);
                }
            }
            Err(_) => self.pass(|| self.read_in_steps(&run, Way::Past, buffer)),
        }
    }

    fn complete(
        &self,
        queue: &mut dyn ReadQueue,
        reading: &mut [Option<Run>],
        buffer: &mut AlignedBuffer,
    ) {
        let (slot, read) = match self.tally.waiting(|| queue.wait()) {
            Ok(completed) => completed,
            // The queue is lost; its runs are not.
            Err(_) => {
                for run in reading.iter_mut().filter_map(Option::take) {
                    self.pass(|| self.read_in_steps(&run, Way::Past, buffer));
                }
                return;
            }
        };
        let Some(run) = reading.get_mut(slot.0).and_then(Option::take) else { return };
        self.pass(|| match read {
            Ok(count) if count >= run.length => {
                let bytes = queue.bytes(slot).get(..run.length).unwrap_or_default();
                let mut outcome = RunOutcome::default();
                self.judge(&run.file, Way::Past, run.offset, bytes, &mut outcome);
                self.deliver(run.sequence, Outcome::Run(outcome));
            }
            // A short read (the file shrank, or the system gave less than was
            // asked for) or an error: once more, in the careful way.
            Ok(_) => self.read_in_steps(&run, Way::Past, buffer),
            Err(error) => {
                if is_refused(&error) {
                    run.file.refuse_direct();
                }
                self.read_in_steps(&run, Way::Past, buffer);
            }
        });
    }

    /// Reads a run piece by piece, and page by page where it must be: the way
    /// of the page cache, and of direct reads that went wrong.
    fn read_in_steps(&self, run: &Run, way: Way, buffer: &mut AlignedBuffer) {
        let page_size = usize::try_from(run.file.page_size).unwrap_or(usize::MAX);
        let wish = run.file.page_file.format.bytes_at_once().min(run.length);
        let step = STEP_BYTES.max(wish - wish % page_size.max(1)).max(page_size);
        if buffer.bytes().len() < step {
            *buffer = AlignedBuffer::new(step);
        }
        let (mut file, mut way) = run.file.readable(way);
        let range = run.offset..run.offset + run.length as u64;
        if way == Way::Through {
            run.file.before_through(&range);
        }
        let length = run.length as u64;
        let cached = match way {
            Way::Resident => Some(length),
            Way::Through => run.file.cached_before(&range),
            Way::Past | Way::Hole => Some(0),
        };
        self.tally.read(length, cached);
        let mut outcome = RunOutcome::default();
        let mut done = 0;
        while done < run.length && !self.stop.load(Ordering::Relaxed) {
            let offset = run.offset + done as u64;
            let length = step.min(run.length - done);
            let bytes = buffer.bytes_mut().get_mut(..length).unwrap_or_default();
            let mut read = || read_fully(file, bytes, offset);
            // What is in memory is copied, not waited for.
            let read = if way == Way::Resident { read() } else { self.tally.waiting(read) };
            match read {
                Ok(count) if count == length => {
                    self.judge(&run.file, way, offset, bytes, &mut outcome);
                }
                Ok(count) => {
                    let whole = count - count % page_size;
                    let judged = bytes.get(..whole).unwrap_or_default();
                    self.judge(&run.file, way, offset, judged, &mut outcome);
                    self.file_ended(run, offset + whole as u64, &mut outcome);
                    break;
                }
                // Again from here, through the page cache.
                Err(error) if way == Way::Past && is_refused(&error) => {
                    run.file.refuse_direct();
                    (file, way) = run.file.readable(way);
                    run.file.before_through(&range);
                    continue;
                }
                Err(_) => self.salvage(run, (file, way), offset, bytes, &mut outcome),
            }
            done += length;
        }
        if way == Way::Through {
            run.file.after_through(&range);
        }
        self.deliver(run.sequence, Outcome::Run(outcome));
    }

    /// The file is shorter than when it was opened. A live server truncates;
    /// otherwise the rest of the run is missing from the check.
    fn file_ended(&self, run: &Run, offset: u64, outcome: &mut RunOutcome) {
        run.file.is_cut();
        if !self.look.may_change() {
            let missing = run.offset + run.length as u64 - offset;
            outcome.unread.push(run.file.unread(offset, missing, BECAME_SHORTER));
        }
    }

    /// After a read error: page by page, so that one bad sector costs one page.
    fn salvage(
        &self,
        run: &Run,
        (source, way): (&File, Way),
        offset: u64,
        bytes: &mut [u8],
        outcome: &mut RunOutcome,
    ) {
        let file = &run.file;
        let page_size = usize::try_from(file.page_size).unwrap_or(usize::MAX);
        for (index, page) in bytes.chunks_exact_mut(page_size).enumerate() {
            // A failing device may take seconds for each of them.
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let at = offset + (index * page_size) as u64;
            match read_fully(source, page, at) {
                Ok(count) if count == page_size => self.judge(file, way, at, page, outcome),
                Ok(_) if self.look.may_change() => file.is_cut(),
                Ok(_) => outcome.unread.push(file.unread(at, file.page_size, BECAME_SHORTER)),
                Err(error) => {
                    outcome.unread.push(file.unread(at, file.page_size, error.to_string()));
                }
            }
        }
    }
}

/// Why the rest of a file at rest is unread.
const BECAME_SHORTER: &str = "the file became shorter while it was read";

/// True if a direct read was not done because it was one.
fn is_refused(error: &io::Error) -> bool {
    error.raw_os_error() == Some(crate::system::Errno::INVAL.raw_os_error())
}

/// Reads until `bytes` is full or the file ends.
pub(super) fn read_fully(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match read_at(file, rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A direct read may go on only from a multiple of the alignment,
            // and ends elsewhere only where the file does.
            Err(error) if !filled.is_multiple_of(ALIGNMENT) && is_refused(&error) => {
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
