//! Puts results back in the order of the files and hands them on.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io;

use crate::database::{Description, Settled, Step};
use crate::page::standings::Standings;
use crate::verdict::{
    ByteOffset, Finding, Kind, ModeCounts, PageCounts, PageNo, Place, Recount, Severity, Standing,
    Stretch, Unread,
};
use crate::verify::held::{Held, HeldFindings};
use crate::verify::plan::{Event, counts_as_page};
use crate::verify::{Sink, Summary};

/// Of a few hundred bytes each, beside what the runs in flight may bring.
const WAITING_FINDINGS_MAX: usize = 16 << 10;

/// Results that wait for older ones: at most some 8 MiB.
const WAITING_RESULTS_MAX: usize = 16 << 10;

/// The result of one sequence number, or one of several.
#[derive(Debug)]
pub(super) enum Outcome {
    Event(Event),
    Run(RunOutcome),
}

impl Outcome {
    fn findings(&self) -> usize {
        match self {
            Self::Event(_) => 0,
            Self::Run(run) => run.findings.len() + run.held.len(),
        }
    }
}

/// The results of one sequence number.
#[derive(Debug, Default)]
struct Waiting {
    outcomes: Vec<Outcome>,
    /// No more will come.
    is_whole: bool,
}

/// What came out of one run.
#[derive(Debug, Default)]
pub(super) struct RunOutcome {
    pub(super) bytes: u64,
    pub(super) counts: PageCounts,
    pub(super) by_mode: ModeCounts,
    pub(super) findings: Vec<Finding>,
    pub(super) unread: Vec<Unread>,
    /// Findings that wait for the end of a stream.
    pub(super) held: Vec<Held>,
    /// What was judged at a time, in the order of the file.
    pub(super) judged: Vec<Judged>,
}

/// Consecutive pages that were judged, and what each of them counts as.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) file: String,
    pub(super) first: PageNo,
    pub(super) offset: u64,
    pub(super) page_size: u64,
    pub(super) standings: Standings,
}

pub(super) struct Collector<'a> {
    sink: &'a mut dyn Sink,
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// Outcomes in `waiting`.
    waiting_results: usize,
    /// Findings in `waiting`.
    waiting_findings: usize,
    summary: Summary,
    /// What the target turned out to be.
    turned_out: Option<Box<Description>>,
    /// The first refusal of the sink.
    failed: Option<io::Error>,
    held: HeldFindings,
    /// The last unread stretch, held back to be joined with the next.
    unread: Option<Unread>,
    /// What more than one witness knows is reported once.
    told: HashMap<(Place, Option<Kind>), Severity>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(sink: &'a mut dyn Sink) -> Self {
        Self {
            sink,
            next: 0,
            waiting: BTreeMap::new(),
            waiting_results: 0,
            waiting_findings: 0,
            summary: Summary::default(),
            turned_out: None,
            failed: None,
            held: HeldFindings::new(),
            unread: None,
            told: HashMap::new(),
        }
    }

    /// True if so much waits for an older result that no more should be made meanwhile: a read of
    /// the device can take longer than all others out of the page cache, and a large file than many
    /// small ones.
    pub(super) fn is_full(&self) -> bool {
        self.waiting_findings >= WAITING_FINDINGS_MAX || self.waiting_results >= WAITING_RESULTS_MAX
    }

    /// How many results were handed on.
    pub(super) fn collected(&self) -> u64 {
        self.next
    }

    /// Takes the result of `sequence`; hands on all that are next in order.
    /// False if the sink refused, now or before.
    pub(super) fn take(&mut self, sequence: u64, outcome: Outcome) -> bool {
        self.put(sequence, Some(outcome), true)
    }

    /// The same for one result of several, which are handed on in the order in which they come.
    pub(super) fn take_part(&mut self, sequence: u64, outcome: Outcome) -> bool {
        self.put(sequence, Some(outcome), false)
    }

    /// No more results of `sequence` will come.
    pub(super) fn end_parts(&mut self, sequence: u64) -> bool {
        self.put(sequence, None, true)
    }

    fn put(&mut self, sequence: u64, outcome: Option<Outcome>, is_last: bool) -> bool {
        let waiting = self.waiting.entry(sequence).or_default();
        waiting.is_whole |= is_last;
        if let Some(outcome) = outcome {
            self.waiting_findings += outcome.findings();
            self.waiting_results += 1;
            waiting.outcomes.push(outcome);
        }
        while let Some(next) = self.waiting.get_mut(&self.next) {
            let (outcomes, is_whole) = (std::mem::take(&mut next.outcomes), next.is_whole);
            for outcome in outcomes {
                self.waiting_findings -= outcome.findings();
                self.waiting_results -= 1;
                self.hand_on(outcome);
            }
            if !is_whole {
                break;
            }
            self.waiting.remove(&self.next);
            self.next += 1;
        }
        self.failed.is_none()
    }

    pub(super) fn finish(mut self) -> io::Result<(Summary, Option<Box<Description>>)> {
        // After an early stop there may be holes before these.
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            waiting.outcomes.into_iter().for_each(|outcome| self.hand_on(outcome));
        }
        self.flush_unread();
        // A stream that was not read to its end, because the run was ended.
        let mut held = std::mem::replace(&mut self.held, HeldFindings::new());
        let passed = self.summary.pages.ok;
        let result = held.give_up(passed, &mut |finding| self.finding(&finding));
        self.keep(result);
        match self.failed {
            Some(error) => Err(error),
            None => Ok((self.summary, self.turned_out)),
        }
    }

    fn hand_on(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Event(Event::Opened) => self.summary.files += 1,
            Outcome::Event(Event::PartialPage(finding)) => {
                if counts_as_page(&finding) {
                    self.summary.pages.add(Standing::Damaged);
                    self.pages(&Stretch {
                        file: &finding.place.file,
                        first: finding.place.page,
                        offset: finding.place.offset.unwrap_or(ByteOffset(0)),
                        pages: 1,
                        length: 0,
                        standing: Some(Standing::Damaged),
                    });
                }
                if !self.is_told(&finding) {
                    self.finding(&finding);
                }
            }
            Outcome::Event(Event::Step(step)) => match *step {
                Step::Finding(finding) if self.is_told(&finding) => {}
                Step::Finding(finding) => self.finding(&finding),
                Step::Overruled(finding, _) if self.is_told(&finding) => {}
                Step::Overruled(finding, standing) => self.overrule(&finding, standing),
                Step::Unread(unread) => {
                    self.gap(&unread);
                    self.unread(unread);
                }
                Step::Note(note) => {
                    let result = self.sink.note(&note);
                    self.keep(result);
                }
                Step::Untested(note, files) => {
                    self.summary.untested_files += files;
                    let result = self.sink.note(&note);
                    self.keep(result);
                }
                Step::Settled(settled) => self.settle(*settled),
                // These never get here: the plan opens and hands them out.
                Step::File(_)
                | Step::Pages(_)
                | Step::Apart(_)
                | Step::Passed(_)
                | Step::Wait(_)
                | Step::Barrier => {}
            },
            Outcome::Run(run) => {
                self.summary.bytes += run.bytes;
                self.summary.pages += run.counts;
                self.summary.by_mode += run.by_mode;
                self.stretches(&run);
                for held in &run.held {
                    let result = self.held.add(held);
                    self.keep(result);
                }
                for finding in &run.findings {
                    self.finding(finding);
                }
                for unread in run.unread {
                    self.unread(unread);
                }
            }
        }
    }

    /// True if there is a finding of this page, or of this kind about this file,
    /// already, that is as grave. Findings by a page's own test come once by themselves.
    fn is_told(&mut self, finding: &Finding) -> bool {
        let kind = Some(finding.kind).filter(|_| finding.place.page.is_none());
        let told = self.told.insert((finding.place.clone(), kind), finding.severity);
        if let Some(told) = told.filter(|told| *told >= finding.severity) {
            self.told.insert((finding.place.clone(), kind), told);
            return true;
        }
        false
    }

    /// A page that was counted as something else has a finding after all.
    fn overrule(&mut self, finding: &Finding, from: Standing) {
        // What is merely suspect changes no count.
        if finding.severity != Severity::Damage {
            return self.finding(finding);
        }
        let to = Standing::of_failed(finding.severity);
        self.summary.pages.remove(from);
        self.summary.pages.add(to);
        self.recount(&Recount::Page { place: finding.place.clone(), from, to });
        self.finding(finding);
    }

    /// The end of a stream: what waited for it is decided.
    fn settle(&mut self, settled: Settled) {
        let mut counts = self.summary.pages;
        let mut held = std::mem::replace(&mut self.held, HeldFindings::new());
        if !settled.has_sums {
            counts.unprotected += std::mem::take(&mut counts.ok);
            let by_mode = &mut self.summary.by_mode;
            by_mode.none += std::mem::take(&mut by_mode.checksum);
            self.recount(&Recount::NoSums);
        }
        let collector = RefCell::new(&mut *self);
        let result = held.settle(
            &settled,
            &mut counts,
            &mut |finding| collector.borrow_mut().finding(&finding),
            &mut |standing| collector.borrow_mut().recount(&Recount::Suspect(standing)),
        );
        self.keep(result);
        self.summary.pages = counts;
        self.turned_out = Some(Box::new(settled.description));
    }

    /// Hands on what the pages of a run count as, and its gaps, as they lie in
    /// the file.
    fn stretches(&mut self, run: &RunOutcome) {
        let mut gaps = run.unread.iter().peekable();
        for judged in &run.judged {
            while let Some(gap) = gaps.next_if(|gap| gap.offset.0 < judged.offset) {
                self.gap(gap);
            }
            let (mut first, mut offset) = (judged.first, judged.offset);
            for (standing, pages) in judged.standings.iter() {
                let length = pages.saturating_mul(judged.page_size);
                if standing.is_some() {
                    self.pages(&Stretch {
                        file: &judged.file,
                        first: Some(first),
                        offset: ByteOffset(offset),
                        pages,
                        length,
                        standing,
                    });
                }
                first = first.plus(pages);
                offset = offset.saturating_add(length);
            }
        }
        for gap in gaps {
            self.gap(gap);
        }
    }

    fn gap(&mut self, unread: &Unread) {
        self.pages(&Stretch {
            file: &unread.file,
            first: None,
            offset: unread.offset,
            pages: 0,
            length: unread.length,
            standing: None,
        });
    }

    fn pages(&mut self, stretch: &Stretch<'_>) {
        let result = self.sink.pages(stretch);
        self.keep(result);
    }

    fn recount(&mut self, recount: &Recount) {
        let result = self.sink.recount(recount);
        self.keep(result);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Note;

    /// Counts what it is given.
    #[derive(Default)]
    struct Count(usize);

    impl Sink for Count {
        fn finding(&mut self, _: &Finding) -> io::Result<()> {
            self.0 += 1;
            Ok(())
        }

        fn unread(&mut self, _: &Unread) -> io::Result<()> {
            Ok(())
        }

        fn note(&mut self, _: &Note) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn findings_that_wait_for_an_older_result_are_bounded() {
        let finding = Finding::of_file("a", Severity::Damage, Kind::Checksum, String::new());
        let run = |count| {
            let findings = vec![finding.clone(); count];
            Outcome::Run(RunOutcome { findings, ..RunOutcome::default() })
        };
        let mut sink = Count::default();
        let mut collector = Collector::new(&mut sink);
        assert!(collector.take(1, run(WAITING_FINDINGS_MAX - 1)) && !collector.is_full());
        assert!(collector.take(3, run(1)) && collector.is_full());
        // Those behind the gap wait still.
        assert!(collector.take(0, run(5)) && !collector.is_full());
        assert_eq!(collector.collected(), 2);
        assert!(collector.take(2, run(0)));
        assert_eq!((collector.collected(), collector.waiting_findings), (4, 0));
        drop(collector);
        assert_eq!(sink.0, WAITING_FINDINGS_MAX + 5);
    }
}
