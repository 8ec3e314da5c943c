//! One run over one target: lists it, finds what is due, reads that, and writes down what was seen.
//!
//! A run that reads all files from their beginnings asks for everything that `check` asks for. One
//! that reads only a part judges pages by their own tests: what files say of one another would be
//! said of files that this run has not seen. It says so.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use pagewarden::Error;
use pagewarden::database::{OpenOptions, Step, Target, parts, repository};
use pagewarden::repair::advice::{Advice, Advised};
use pagewarden::report::{Report, TargetEnd};
use pagewarden::source::store::StorePath;
use pagewarden::verdict::{Note, Protection, Verdict};
use pagewarden::verify::{Options, Progress, Summary, Verified, verify};
use rusqlite::params;

use crate::config::Subject;
use crate::evidence;
use crate::ledger::claims::Look;
use crate::ledger::findings::{self, Run};
use crate::ledger::passes::{Coverage, Due};
use crate::ledger::{Ledger, TargetId, int};
use crate::listing::Listing;
use crate::record::{HandedOut, Reads, Recorder};
use crate::scrub::sealing::Making;
use crate::scrub::words::overall;

mod archive;
mod partly;
mod sealing;
#[cfg(test)]
mod week;
pub mod words;

/// How often is looked whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What runs have in common.
pub struct Scrub<'a> {
    /// Where it is written down.
    pub ledger: &'a mut Ledger,
    /// How targets are opened.
    pub open: OpenOptions,
    /// How they are read. The rate is each subject's own, and the wish to stop is [`Self::stop`].
    pub options: Options,
    /// Set from outside to end the run.
    pub stop: Arc<AtomicBool>,
    /// When the run is to end by itself.
    pub deadline: Option<Instant>,
    /// What time it is; set by tests.
    pub clock: fn() -> i64,
    /// The folder for seals.
    pub seals: PathBuf,
}

impl fmt::Debug for Scrub<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrub").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What came of a target.
#[derive(Debug)]
pub struct Done {
    /// All that was counted in this run.
    pub summary: Summary,
    /// By all that is known.
    pub verdict: Verdict,
    /// How much is covered.
    pub coverage: Coverage,
    /// What was due; `None` if nothing was.
    pub due: Option<Due>,
    /// Its time was used up, or it was asked to stop.
    pub stopped: bool,
}

/// How a run reads a target.
struct Plan {
    target: TargetId,
    pass: i64,
    run: i64,
    now: i64,
    /// What is due; `None`: nothing is read.
    due: Option<Due>,
    /// All files from their beginnings.
    is_whole: bool,
    reads: Reads,
    /// When it must end.
    deadline: Option<Instant>,
    options: Options,
    /// How a repair is planned, if a source of sound pages is known.
    advice: Option<Advice>,
    /// Where a seal is to be made.
    seal: Option<PathBuf>,
}

/// What came of reading a target.
struct Read {
    verified: Verified,
    /// It was stopped.
    stopped: bool,
    /// The hash of the seal that was made.
    seal: Option<String>,
}

impl Plan {
    fn as_run<'a>(&self, member: &'a str) -> Run<'a> {
        Run { target: self.target, member, run: self.run, pass: self.pass, now: self.now }
    }
}

/// What a subject is.
enum Opened {
    Files(Listing, bool),
    Archive,
}

/// Where results and progress go.
struct Out<'a> {
    report: &'a mut dyn Report,
    progress: &'a dyn Progress,
}

impl Scrub<'_> {
    /// Reads what is due of a target, and reports it. An error inside: it could not be opened.
    ///
    /// # Errors
    /// The ledger cannot be written, or the report.
    pub fn target(
        &mut self,
        subject: &Subject,
        report: &mut dyn Report,
        progress: &dyn Progress,
    ) -> Result<Result<Done, Error>> {
        let now = (self.clock)();
        let target = self.ledger.enter(subject, now)?;
        let mut out = Out { report, progress };
        let done = match self.opened(subject) {
            Ok(Opened::Files(listing, live)) => {
                let look = Look { live, is_blind: listing.is_blind };
                let files = listing.files.iter().cloned();
                let is_lost = self.ledger.list(target, look, files, now)?;
                self.files(subject, target, listing, is_lost, now, &mut out)?
            }
            Ok(Opened::Archive) => self.archive(subject, target, now, &mut out)?,
            Err(error) => Err(error),
        };
        if let Err(error) = &done {
            let text = match std::error::Error::source(error) {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            };
            self.ledger.failed(target, &text, now)?;
            let path = subject.path().to_string_lossy();
            out.report.failed_target(&path, &text, SystemTime::now())?;
        }
        Ok(done)
    }

    fn opened(&self, subject: &Subject) -> Result<Opened, Error> {
        if let [path] = subject.paths.as_slice()
            && repository::kind_of(&StorePath::local(path), None).is_some()
        {
            return Ok(Opened::Archive);
        }
        let pages_only =
            OpenOptions { no_witness: true, settle: None, ..subject.open_options(&self.open) };
        let target = parts::open_together(&subject.paths, None, &pages_only)?;
        let live = target.description.live;
        Ok(match Listing::of(target) {
            Some(listing) => Opened::Files(listing, live),
            None => Opened::Archive,
        })
    }

    fn files(
        &mut self,
        subject: &Subject,
        target: TargetId,
        listing: Listing,
        is_lost: bool,
        now: i64,
        out: &mut Out<'_>,
    ) -> Result<Result<Done, Error>> {
        // Whether files may be missing is asked when everything is read in one run.
        let due =
            if is_lost { Some(Due::Begin) } else { self.ledger.due(target, subject.every, now)? };
        let pass = match due {
            Some(Due::Begin) => self.ledger.begin_pass(target, now)?,
            _ => self.ledger.entry(target)?.pass,
        };
        let begins = match due {
            Some(Due::Begin | Due::Resume) => self.ledger.unread_in_pass(target, pass)?,
            Some(Due::CatchUp) => self.ledger.to_catch_up(target, pass)?,
            None => HashMap::new(),
        };
        let is_whole = due.is_some() && self.covers_all(target, &begins)?;
        let open = OpenOptions { no_witness: !is_whole, ..subject.open_options(&self.open) };
        let mut opened = match parts::open_together(&subject.paths, None, &open) {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };
        if due.is_some() && !is_whole {
            opened.steps = partly::only(opened.steps, begins.clone());
        }
        if is_lost {
            opened.steps = partly::after_a_loss(opened.steps);
        }
        let handed_out = HandedOut::default();
        opened.steps = partly::noted(opened.steps, Arc::clone(&handed_out));
        let reads = Reads::Files { begins, places: listing.places, handed_out };
        let plan = self.plan(subject, target, pass, now, due, is_whole, reads)?;
        let Read { verified, stopped, seal } = self.read(&plan, "", opened, out)?;
        if !stopped {
            self.end_run(&plan, &verified, seal.as_deref())?;
        }
        self.succeeded(target)?;
        let verdict = self.ledger.verdict(target, now)?;
        self.close(&plan, "", &verified, verdict, None, stopped, out).map(Ok)
    }

    /// True if these are all files that have pages, from their beginnings.
    fn covers_all(&self, target: TargetId, begins: &HashMap<String, u64>) -> Result<bool> {
        let sql = "SELECT name, first FROM file WHERE target = ?1 AND first < end";
        let mut statement = self.ledger.db.prepare_cached(sql)?;
        let mut rows = statement.query([target])?;
        while let Some(row) = rows.next()? {
            let (name, first): (String, i64) = (row.get(0)?, row.get(1)?);
            if begins.get(&name).map(|begin| int(*begin)) != Some(first) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[allow(clippy::too_many_arguments)]
    fn plan(
        &self,
        subject: &Subject,
        target: TargetId,
        pass: i64,
        now: i64,
        due: Option<Due>,
        is_whole: bool,
        reads: Reads,
    ) -> Result<Plan> {
        // The run's own time, the subject's, its window: whichever ends first.
        let begin = Instant::now();
        let budget = subject.budget.and_then(|budget| begin.checked_add(budget));
        let window = subject.window.and_then(|window| window.seconds_left(now));
        let window = window.and_then(|left| begin.checked_add(Duration::from_secs(left)));
        Ok(Plan {
            target,
            pass,
            run: self.ledger.entry(target)?.run,
            now,
            due,
            is_whole,
            reads,
            deadline: [self.deadline, budget, window].into_iter().flatten().min(),
            options: Options { rate: subject.rate, ..self.options.clone() },
            advice: subject.advice(),
            seal: (subject.seal && is_whole)
                .then(|| self.seals.join(format!("{}.seal", subject.name))),
        })
    }

    /// Reads a target, and writes down what is seen. True if it was stopped.
    fn read(
        &mut self,
        plan: &Plan,
        member: &str,
        mut opened: Target,
        out: &mut Out<'_>,
    ) -> Result<Read> {
        let description = opened.description.clone();
        self.ledger.db.execute(
            "UPDATE target SET engine = ?2, format = ?3 WHERE id = ?1",
            params![plan.target, description.engine, description.format],
        )?;
        out.report.begin_target(&description)?;
        let stop = Arc::new(AtomicBool::new(false));
        let options = Options { stop: Arc::clone(&stop), ..plan.options.clone() };
        if plan.due.is_none() {
            opened.steps = Box::new(std::iter::empty::<Step>());
            let verified = verify(opened, &options, out.progress, &mut ())?;
            return Ok(Read { verified, stopped: false, seal: None });
        }
        let mut making = None;
        if let Some(place) = &plan.seal {
            let (sealed, begun) = Making::begin(opened, place, plan.now)?;
            opened = sealed;
            making = Some(begun);
        }
        let begin = Instant::now();
        let run = plan.as_run(member);
        let mut recorder =
            Recorder::new(&mut self.ledger.db, run, &plan.reads, &stop, &mut *out.report)
                .between_passes(plan.due == Some(Due::CatchUp));
        let is_over = AtomicBool::new(false);
        let wish = &self.stop;
        let progress = out.progress;
        let verified = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let is_late = plan.deadline.is_some_and(|deadline| Instant::now() >= deadline);
                    if is_late || wish.load(Ordering::Relaxed) {
                        stop.store(true, Ordering::Relaxed);
                        return;
                    }
                    thread::park_timeout(LOOK_EVERY);
                }
            });
            let mut advised = Advised::new(&mut recorder, plan.advice.as_ref(), description.live);
            let verified = verify(opened, &options, progress, &mut advised);
            is_over.store(true, Ordering::Relaxed);
            watch.thread().unpark();
            verified
        });
        let verified = verified?;
        let stopped = verified.summary.stopped;
        recorder.finish(!stopped).context("cannot write the ledger")?;
        if plan.due != Some(Due::CatchUp) {
            self.ledger.db.execute(
                "UPDATE pass SET seconds = seconds + ?3, bytes = bytes + ?4
                 WHERE target = ?1 AND number = ?2",
                params![
                    plan.target,
                    plan.pass,
                    begin.elapsed().as_secs_f64(),
                    int(verified.summary.bytes)
                ],
            )?;
        }
        let is_healthy = matches!(verified.verdict(), Verdict::Intact | Verdict::Unprotected);
        let seal = making.map(|making| making.end(is_healthy)).transpose()?.flatten();
        Ok(Read { verified, stopped, seal })
    }

    /// A run has come to its end, and with it the pass, if one was under way.
    fn end_run(&self, plan: &Plan, verified: &Verified, seal: Option<&str>) -> Result<()> {
        let Plan { target, pass, .. } = *plan;
        let is_archive = matches!(plan.reads, Reads::Archive);
        let ended = (self.clock)().max(plan.now);
        let ends_pass = matches!(plan.due, Some(Due::Begin | Due::Resume));
        if plan.due.is_none() {
            return Ok(());
        }
        // All of it, or nothing: a pass that has ended has a receipt.
        let tx = self.ledger.writing()?;
        if plan.is_whole {
            findings::seen_all(&tx, plan.as_run(""), is_archive)?;
        }
        findings::forget_unread(&tx, plan.as_run(""), is_archive)?;
        if ends_pass {
            let is_off = verified.description.setting == Some(Protection::None);
            tx.execute(
                "UPDATE pass SET ended_at = ?3, is_whole = ?4, untested_files = ?5, is_off = ?6
                 WHERE target = ?1 AND number = ?2",
                params![
                    target,
                    pass,
                    ended,
                    plan.is_whole,
                    int(verified.summary.untested_files),
                    is_off
                ],
            )?;
            self.succeeded(target)?;
            let coverage = self.ledger.coverage(target, ended)?;
            tx.execute(
                "UPDATE pass SET is_complete = ?3 WHERE target = ?1 AND number = ?2",
                params![target, pass, coverage.pass_complete],
            )?;
            evidence::append(self.ledger, target, &verified.description, seal, ended)?;
        }
        tx.commit().context("cannot write the ledger")
    }

    /// The target could be looked at.
    fn succeeded(&self, target: TargetId) -> Result<()> {
        let set = "UPDATE target SET error = NULL, attempt_at = ?2 WHERE id = ?1";
        self.ledger.db.execute(set, params![target, (self.clock)()])?;
        Ok(())
    }

    /// Reports what earlier runs found, and how things stand: with the target, or with a set of it that
    /// is so far covered.
    #[allow(clippy::too_many_arguments)]
    fn close(
        &mut self,
        plan: &Plan,
        member: &str,
        verified: &Verified,
        verdict: Verdict,
        of_set: Option<Coverage>,
        stopped: bool,
        out: &mut Out<'_>,
    ) -> Result<Done> {
        let now = (self.clock)().max(plan.now);
        // Of a run that read nothing, all is of earlier ones.
        let run = if plan.due.is_some() { plan.run } else { i64::MAX };
        let mut summary = verified.summary.clone();
        for kept in self.ledger.open_findings(plan.target)? {
            if kept.last_run < run && kept.member == member {
                summary.severities.add(kept.finding.severity);
                out.report.finding(&kept.finding)?;
            }
        }
        for unread in self.ledger.unread_before(plan.target, member, run)? {
            summary.unread += 1;
            out.report.unread(&unread)?;
        }
        let mut damage = summary.severities.damage;
        let coverage = if let Some(coverage) = of_set {
            coverage
        } else {
            // Some of it may be of the sets of a repository.
            damage = damage.max(self.ledger.open_counts(plan.target)?.damage);
            self.ledger.coverage(plan.target, now)?
        };
        if of_set.is_none() && coverage.from_future {
            out.report.note(&Note {
                file: String::new(),
                text: "the clock was set back: what was verified after this time will be verified \
                       again"
                    .to_owned(),
            })?;
        }
        let verdict = if stopped { verdict.min(Verdict::Incomplete) } else { verdict };
        let overall = overall(verdict, &coverage, (damage, summary.unread), plan.due, stopped);
        out.report.end_target(&TargetEnd {
            verified,
            listed_bytes: None,
            ended: SystemTime::now(),
            overall: Some(&overall),
        })?;
        Ok(Done { summary, verdict, coverage, due: plan.due, stopped })
    }
}
