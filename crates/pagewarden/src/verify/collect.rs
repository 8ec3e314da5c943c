//! Puts results back in the order of the files and hands them on.

use std::collections::BTreeMap;
use std::io;

use crate::target::Step;
use crate::verdict::{Finding, ModeCounts, PageCounts, Standing, Unread};
use crate::verify::plan::{Event, counts_as_page};
use crate::verify::{Sink, Summary};

/// The result of one sequence number.
#[derive(Debug)]
pub(super) enum Outcome {
    Event(Event),
    Run(RunOutcome),
}

/// What came out of one run.
#[derive(Debug, Default)]
pub(super) struct RunOutcome {
    pub(super) bytes: u64,
    pub(super) counts: PageCounts,
    pub(super) by_mode: ModeCounts,
    pub(super) findings: Vec<Finding>,
    pub(super) unread: Vec<Unread>,
}

pub(super) struct Collector<'a> {
    sink: &'a mut dyn Sink,
    next: u64,
    waiting: BTreeMap<u64, Outcome>,
    summary: Summary,
    /// The first refusal of the sink.
    failed: Option<io::Error>,
    /// The last unread stretch, held back to be joined with the next.
    unread: Option<Unread>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(sink: &'a mut dyn Sink) -> Self {
        Self {
            sink,
            next: 0,
            waiting: BTreeMap::new(),
            summary: Summary::default(),
            failed: None,
            unread: None,
        }
    }

    /// How many results were handed on.
    pub(super) fn collected(&self) -> u64 {
        self.next
    }

    /// Takes the result of `sequence`; hands on all that are next in order.
    /// False if the sink refused, now or before.
    pub(super) fn take(&mut self, sequence: u64, outcome: Outcome) -> bool {
        self.waiting.insert(sequence, outcome);
        while let Some(outcome) = self.waiting.remove(&self.next) {
            self.next += 1;
            self.hand_on(outcome);
        }
        self.failed.is_none()
    }

    pub(super) fn finish(mut self) -> io::Result<Summary> {
        // After an early stop there may be holes before these.
        for (_, outcome) in std::mem::take(&mut self.waiting) {
            self.hand_on(outcome);
        }
        self.flush_unread();
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.summary),
        }
    }

    fn hand_on(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Event(Event::Opened) => self.summary.files += 1,
            Outcome::Event(Event::PartialPage(finding)) => {
                if counts_as_page(&finding) {
                    self.summary.pages.add(Standing::Damaged);
                }
                self.finding(&finding);
            }
            Outcome::Event(Event::Step(step)) => match *step {
                Step::Finding(finding) => self.finding(&finding),
                Step::Unread(unread) => self.unread(unread),
                Step::Note(note) => {
                    let result = self.sink.note(&note);
                    self.keep(result);
                }
                // Files never get here: the plan opens them.
                Step::File(_) => {}
            },
            Outcome::Run(run) => {
                self.summary.bytes += run.bytes;
                self.summary.pages += run.counts;
                self.summary.by_mode += run.by_mode;
                for finding in &run.findings {
                    self.finding(finding);
                }
                for unread in run.unread {
                    self.unread(unread);
                }
            }
        }
    }

    fn finding(&mut self, finding: &Finding) {
        self.summary.severities.add(finding.severity);
        let result = self.sink.finding(finding);
        self.keep(result);
    }

    /// Neighbouring stretches with the same error become one.
    fn unread(&mut self, unread: Unread) {
        if let Some(last) = &mut self.unread
            && last.file == unread.file
            && last.error == unread.error
            && last.offset.0.checked_add(last.length) == Some(unread.offset.0)
        {
            last.length = last.length.saturating_add(unread.length);
            return;
        }
        self.flush_unread();
        self.summary.unread += 1;
        self.unread = Some(unread);
    }

    fn flush_unread(&mut self) {
        if let Some(unread) = self.unread.take() {
            let result = self.sink.unread(&unread);
            self.keep(result);
        }
    }

    fn keep(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }
}
