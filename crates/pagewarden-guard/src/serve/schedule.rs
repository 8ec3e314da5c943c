//! When `serve` scrubs what: one database at a time, what is due, in its window.

use std::collections::HashMap;
use std::io;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use pagewarden::database::Description;
use pagewarden::report::{Report, RunEnd, TargetEnd};
use pagewarden::verdict::{Finding, Note, Unread, Verdict};
use pagewarden::verify::Sink;

use crate::config::Subject;
use crate::ledger::passes::Due;
use crate::scrub::Scrub;

/// With nothing due, files are listed again so often: new ones are due at once.
const LIST_EVERY: Duration = Duration::from_secs(3600);
/// What could not be opened, and what was left over, is tried again so often.
const AGAIN_AFTER: Duration = Duration::from_secs(300);
/// A budget is for a day.
const BUDGET_EVERY: Duration = Duration::from_secs(24 * 3600);

static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// True while a database is being read.
pub(super) fn is_running() -> bool {
    IS_RUNNING.load(Ordering::Relaxed)
}

/// Reads the configuration.
pub type ReadConfig<'a> = Box<dyn Fn() -> Result<Vec<Subject>> + 'a>;

/// See the module.
pub struct Schedule<'a> {
    scrub: Scrub<'a>,
    read: ReadConfig<'a>,
    /// Set from outside: the configuration is to be read again.
    reload: std::sync::Arc<AtomicBool>,
    last: HashMap<String, Last>,
}

impl std::fmt::Debug for Schedule<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedule").finish_non_exhaustive()
    }
}

/// The last run over a database by this process.
#[derive(Debug, Clone, Copy)]
struct Last {
    begun: Instant,
    ended: Instant,
    verdict: Verdict,
    overdue: bool,
    failed: bool,
}

impl<'a> Schedule<'a> {
    /// A schedule of runs of `scrub`. `read` reads the configuration again once `reload` is set.
    #[must_use]
    pub fn new(scrub: Scrub<'a>, read: ReadConfig<'a>, reload: std::sync::Arc<AtomicBool>) -> Self {
        Self { scrub, read, reload, last: HashMap::new() }
    }

    /// Runs one database that is due, if there is one.
    pub(super) fn step(&mut self, subjects: &RwLock<Vec<Subject>>, log: &(dyn Fn(&str) + Sync)) {
        if self.reload.swap(false, Ordering::Relaxed) {
            match ((self.read)(), subjects.write()) {
                (Ok(read), Ok(mut subjects)) => {
                    log(&format!("the configuration was read again: {} databases", read.len()));
                    *subjects = read;
                }
                (Err(error), _) => log(&format!("the configuration stays as it was: {error:#}")),
                (Ok(_), Err(_)) => {}
            }
        }
        let all = subjects.read().map(|subjects| subjects.clone()).unwrap_or_default();
        let next = all.iter().filter(|subject| self.is_its_time(subject)).max_by_key(|subject| {
            // What was verified longest ago comes first, what never was before all.
            self.age(subject).unwrap_or(u64::MAX)
        });
        if let Some(subject) = next {
            self.run(subject, log);
        }
    }

    fn age(&self, subject: &Subject) -> Option<u64> {
        let target = self.scrub.ledger.target(&subject.name).ok()??;
        let coverage = self.scrub.ledger.coverage(target, (self.scrub.clock)()).ok()?;
        Some(coverage.oldest_unverified_seconds)
    }

    fn is_its_time(&self, subject: &Subject) -> bool {
        let now = (self.scrub.clock)();
        if subject.window.is_some_and(|window| !window.holds(now)) {
            return false;
        }
        let Some(last) = self.last.get(&subject.name) else { return true };
        if last.failed {
            return last.ended.elapsed() >= AGAIN_AFTER;
        }
        let due = self.scrub.ledger.target(&subject.name).ok().flatten();
        let due = due.and_then(|target| self.scrub.ledger.due(target, subject.every, now).ok()?);
        match due {
            Some(Due::Begin | Due::Resume) => {
                subject.budget.is_none() || last.begun.elapsed() >= BUDGET_EVERY
            }
            Some(Due::CatchUp) => last.ended.elapsed() >= AGAIN_AFTER,
            None => last.ended.elapsed() >= LIST_EVERY,
        }
    }

    fn run(&mut self, subject: &Subject, log: &(dyn Fn(&str) + Sync)) {
        let begun = Instant::now();
        IS_RUNNING.store(true, Ordering::Relaxed);
        let done = self.scrub.target(subject, &mut NoReport, &());
        IS_RUNNING.store(false, Ordering::Relaxed);
        let name = &subject.name;
        let before = self.last.get(name);
        let (verdict, overdue, failed) = match &done {
            Ok(Ok(done)) => (done.verdict, done.coverage.overdue, false),
            Ok(Err(error)) => {
                log(&format!("{name}: {error}"));
                (Verdict::Incomplete, before.is_some_and(|last| last.overdue), true)
            }
            Err(error) => {
                log(&format!("{name}: {error:#}"));
                (Verdict::Incomplete, before.is_some_and(|last| last.overdue), true)
            }
        };
        if before.is_none_or(|last| (last.verdict, last.overdue) != (verdict, overdue)) {
            let late = if overdue { ", overdue" } else { "" };
            log(&format!("{name}: {}{late}", verdict.name()));
        }
        let last = Last { begun, ended: Instant::now(), verdict, overdue, failed };
        self.last.insert(name.clone(), last);
    }
}

/// What is found is in the ledger.
struct NoReport;

impl Sink for NoReport {
    fn finding(&mut self, _: &Finding) -> io::Result<()> {
        Ok(())
    }

    fn unread(&mut self, _: &Unread) -> io::Result<()> {
        Ok(())
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }
}

impl Report for NoReport {
    fn begin_target(&mut self, _: &Description) -> io::Result<()> {
        Ok(())
    }

    fn end_target(&mut self, _: &TargetEnd<'_>) -> io::Result<()> {
        Ok(())
    }

    fn failed_target(&mut self, _: &str, _: &str, _: SystemTime) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, _: &RunEnd<'_>) -> io::Result<()> {
        Ok(())
    }
}
