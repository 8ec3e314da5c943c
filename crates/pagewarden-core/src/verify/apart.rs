//! Steps that one worker takes to their end while others take what follows.
//!
//! A worker judges the pages of such steps itself, as they come, so that no page waits for another
//! thread: each has one stretch of pages in memory, a mebibyte at most, and what its steps need to read
//! on. Only results wait for older ones, and once too many do ([`Collector::is_full`]) all pause but
//! the worker with the oldest steps, which nothing can hold up.

use std::time::Duration;

use crate::database::{Apart, Step};
use crate::verify::collect::{Collector, Outcome};
use crate::verify::plan::Event;
use crate::verify::worker::{NAP, Shared, lock};

/// How long a worker pauses before it looks again whether its results are wanted.
const PAUSE: Duration = Duration::from_millis(1);

impl Shared<'_> {
    /// Takes the steps one by one, up to their end or that of the run. In the latter case they have
    /// no end in the results: what was not read is in no count.
    pub(super) fn take_apart(&self, sequence: u64, apart: Apart) {
        let mut steps = apart.into_steps(&self.seats);
        while self.is_wanted(sequence) {
            let Some(step) = self.pass(|| steps.next()) else {
                // What the steps have learned is known before their end is.
                drop(steps);
                lock(&self.plan).apart_ended();
                return self.note_refusal(lock(&self.collector).end_parts(sequence));
            };
            match step {
                Step::Pages(pages) => {
                    if pages.offset == pages.file.first_offset {
                        self.deliver_part(sequence, Outcome::Event(Event::Opened));
                    }
                    if self.pay(pages.bytes.len() as u64) {
                        let outcome = self.pass(|| self.judge_streamed(&pages));
                        self.deliver_part(sequence, Outcome::Run(outcome));
                    }
                }
                Step::Passed(bytes) => {
                    self.pay(bytes);
                }
                other => {
                    debug_assert!(
                        !matches!(other, Step::File(_) | Step::Apart(_) | Step::Barrier),
                        "steps apart are no target of their own"
                    );
                    let event = Event::Step(Box::new(other));
                    self.deliver_part(sequence, Outcome::Event(event));
                }
            }
        }
    }

    /// Waits while others must come first. False once the run is over.
    fn is_wanted(&self, sequence: u64) -> bool {
        loop {
            if self.is_over() {
                return false;
            }
            let collector = lock(&self.collector);
            if !collector.is_full() || collector.collected() == sequence {
                return true;
            }
            drop(collector);
            self.tally.pausing(|| std::thread::sleep(PAUSE));
        }
    }

    /// Waits until the rate allows as many bytes. False if the run is over before that.
    fn pay(&self, bytes: u64) -> bool {
        if !self.has_ceiling {
            return true;
        }
        let mut is_owing = false;
        while !self.is_over() {
            let Some(wait) = lock(&self.plan).pay(bytes, &mut is_owing) else { return true };
            self.tally.pausing(|| std::thread::sleep(wait.min(NAP)));
        }
        false
    }

    fn deliver_part(&self, sequence: u64, outcome: Outcome) {
        let take = |collector: &mut Collector<'_>, outcome| collector.take_part(sequence, outcome);
        self.collect(outcome, take);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::num::NonZero;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::database::{Description, Evidence, PageFile, StreamedPages, Target};
    use crate::page::{PageFinding, PageFormat, PageRun, RunVerdict};
    use crate::verdict::{ByteOffset, Finding, Kind, Note, Protection, Severity, Standing, Unread};
    use crate::verify::{Options, Sink, Summary, verify};

    const PAGE: usize = 512;

    /// A page is sound if it begins with a zero.
    #[derive(Debug)]
    struct Zeroes;

    impl PageFormat for Zeroes {
        fn page_size(&self) -> usize {
            PAGE
        }

        fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
            for (index, page) in run.bytes.chunks_exact(PAGE).enumerate() {
                let number = run.first.plus(index as u64);
                if page.first() == Some(&0) {
                    verdict.pass(Standing::Ok, Protection::Checksum);
                } else {
                    let finding = PageFinding::failed(number, Severity::Damage, Kind::Checksum);
                    verdict.fail(Protection::Checksum, finding);
                }
            }
        }
    }

    fn target(steps: impl Iterator<Item = Step> + Send + 'static) -> Target {
        let description = Description {
            path: "it".into(),
            format: "zeroes",
            engine: String::new(),
            page_size: 512,
            setting: Some(Protection::Checksum),
            state: String::new(),
            evidence: Evidence { tested_by: "", unseen: "" },
            live: false,
            epoch: None,
            part: None,
        };
        Target { description, steps: Box::new(steps), woken: None }
    }

    fn note(text: &str) -> Step {
        Step::Note(Note { file: String::new(), text: text.to_owned() })
    }

    /// The pages of a file, `each` in a stretch; the second of a stretch is damaged.
    fn pages(name: &str, stretches: u64, each: usize) -> Vec<Step> {
        let file = Arc::new(PageFile::of(name, name, 0, Arc::new(Zeroes)));
        let stretch = |number| {
            let mut bytes = vec![0; each * PAGE];
            bytes[PAGE] = 1;
            let offset = ByteOffset(number * bytes.len() as u64);
            Step::Pages(StreamedPages::whole(Arc::clone(&file), offset, bytes))
        };
        (0..stretches).map(stretch).collect()
    }

    fn apart(steps: impl Iterator<Item = Step> + Send + 'static) -> Step {
        Step::Apart(Apart::new(steps))
    }

    /// Everything that is reported, as lines.
    #[derive(Default)]
    struct Lines(Vec<String>);

    impl Sink for Lines {
        fn finding(&mut self, finding: &Finding) -> io::Result<()> {
            let page = finding.place.page.map_or(0, |page| page.0);
            self.0.push(format!("{} {page}", finding.place.file));
            Ok(())
        }

        fn unread(&mut self, unread: &Unread) -> io::Result<()> {
            self.0.push(format!("{} unread", unread.file));
            Ok(())
        }

        fn note(&mut self, note: &Note) -> io::Result<()> {
            self.0.push(note.text.clone());
            Ok(())
        }
    }

    fn options(jobs: usize) -> Options {
        Options { jobs: NonZero::new(jobs).unwrap(), ..Options::default() }
    }

    fn run(target: Target, options: &Options) -> (Summary, Vec<String>) {
        let mut lines = Lines::default();
        let summary = verify(target, options, &(), &mut lines).unwrap().summary;
        (summary, lines.0)
    }

    /// Steps that begin once another thread says so.
    fn once_told(told: Receiver<()>, steps: Vec<Step>) -> impl Iterator<Item = Step> + Send {
        let told = Mutex::new(Some(told));
        steps.into_iter().inspect(move |_| {
            if let Some(told) = lock(&told).take() {
                let waited = told.recv_timeout(Duration::from_secs(60));
                waited.expect("the steps behind these are taken meanwhile");
            }
        })
    }

    fn telling(tell: Sender<()>, steps: Vec<Step>) -> impl Iterator<Item = Step> + Send {
        let count = steps.len();
        steps.into_iter().enumerate().map(move |(index, step)| {
            if index + 1 == count {
                tell.send(()).unwrap();
            }
            step
        })
    }

    #[test]
    fn steps_apart_are_taken_together_and_reported_in_their_place() {
        let (tell, told) = channel();
        // The first file comes to its end after the second one has.
        let steps = vec![
            note("begin"),
            apart(once_told(told, pages("a", 2, 3))),
            apart(telling(tell, pages("b", 2, 3))),
            note("end"),
        ];
        let (summary, lines) = run(target(steps.into_iter()), &options(2));
        assert_eq!(lines, ["begin", "a 1", "a 4", "b 1", "b 4", "end"]);
        assert_eq!((summary.files, summary.pages.ok, summary.pages.damaged), (2, 8, 4));
    }

    #[test]
    fn any_number_of_threads_reports_the_same() {
        let all = || {
            let files = (0..300_u64).map(|number| {
                let mut steps = pages(&format!("f{number}"), number % 7, 4);
                steps.push(note(&format!("end of {number}")));
                match number % 5 {
                    0 => steps.remove(0),
                    _ => apart(steps.into_iter()),
                }
            });
            target(files)
        };
        let (one, expected) = run(all(), &options(1));
        for jobs in [2, 5, 16] {
            let (summary, lines) = run(all(), &options(jobs));
            assert_eq!(lines, expected, "{jobs} threads");
            assert_eq!((summary.pages, summary.files), (one.pages, one.files));
        }
    }

    #[test]
    fn behind_a_barrier_all_that_was_apart_has_ended() {
        let ended = Arc::new(AtomicUsize::new(0));
        let files = (0..40).map({
            let ended = Arc::clone(&ended);
            move |number| {
                let ended = Arc::clone(&ended);
                let mut steps = pages(&format!("f{number}"), 3, 2).into_iter();
                apart(std::iter::from_fn(move || {
                    let step = steps.next();
                    ended.fetch_add(usize::from(step.is_none()), Ordering::Relaxed);
                    step
                }))
            }
        });
        let behind = std::iter::once_with(move || {
            assert_eq!(ended.load(Ordering::Relaxed), 40);
            note("behind")
        });
        let (_, lines) = run(target(files.chain([Step::Barrier]).chain(behind)), &options(4));
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (121, "behind"));
    }

    #[test]
    fn what_was_not_read_before_a_stop_is_in_no_count() {
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stop);
        let steps = pages("a", 3, 2).into_iter().chain(std::iter::once_with(move || {
            stops.store(true, Ordering::Relaxed);
            note("the last that is said")
        }));
        let steps = steps.chain(pages("b", 1, 2));
        let options = Options { stop, ..options(2) };
        let (summary, lines) = run(target([apart(steps), Step::Barrier].into_iter()), &options);
        assert!(summary.stopped && !summary.is_complete());
        assert_eq!(lines, ["a 1", "a 3", "a 5", "the last that is said"]);
        assert_eq!((summary.pages.ok, summary.pages.damaged), (3, 3));
    }

    #[test]
    fn steps_that_are_far_ahead_wait_for_those_before_them() {
        const MANY: usize = 40_000;
        let (tell, told) = channel();
        let ahead = Arc::new(AtomicUsize::new(0));
        let (counts, seen) = (Arc::clone(&ahead), Arc::new(AtomicUsize::new(0)));
        let most = Arc::clone(&seen);
        // The steps behind end their first part, and would then go on without bound.
        let behind = (0..MANY).map(move |number| {
            counts.store(number, Ordering::Relaxed);
            if number == 1000 {
                tell.send(()).unwrap();
            }
            note("behind")
        });
        let before = once_told(told, vec![note("before")]).inspect(move |_| {
            // The others come to a halt, however long this takes.
            let mut last = usize::MAX;
            loop {
                let now = ahead.load(Ordering::Relaxed);
                if now == last || now + 1 == MANY {
                    break most.store(now, Ordering::Relaxed);
                }
                last = now;
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let (_, lines) = run(target([apart(before), apart(behind)].into_iter()), &options(2));
        assert_eq!((lines.len(), lines[0].as_str()), (MANY + 1, "before"));
        assert!(seen.load(Ordering::Relaxed) < 20_000, "{seen:?} results wait");
    }
}
