//! When `serve` scrubs what: what is due, in its window, one database of a device at a time.
//!
//! Two readers of one disk make both slow, so a database waits for another one on the same disk.
//! Databases on other disks do not. What was verified longest ago comes first.
//!
//! Many machines with one configuration, and with disks of one array, would all begin at the same
//! second. A window therefore begins up to a tenth of its length later, and at most a quarter of an
//! hour, by the names of machine and database. (When a pass is due differs a little, too:
//! [`crate::ledger::passes`].)

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use anyhow::Result;
use pagewarden::database::OpenOptions;
use pagewarden::source::device::disk_beneath;
use pagewarden::verdict::Verdict;
use pagewarden::verify::Options;

use super::Shared;
use crate::config::{Configuration, Subject};
use crate::ledger::passes::{AGAIN_AFTER, Due, waiting_since};
use crate::ledger::{Ledger, uint};
use crate::moment::{self, lot};
use crate::scrub::Scrub;
use crate::state::Held;

/// With nothing due, files are listed again so often: new ones are due at once.
const LIST_EVERY: Duration = Duration::from_secs(3600);
/// A budget is for a day.
const BUDGET_EVERY: Duration = Duration::from_secs(24 * 3600);
/// A database with nothing to do is asked again so often.
const ASK_EVERY: Duration = Duration::from_secs(15);
/// Disks that are read at a time.
const RUNS_MAX: usize = 8;
/// The longest that a window begins later, in seconds.
const LATER_MAX: u64 = 900;

/// Reads the configuration.
pub type ReadConfig<'a> = Box<dyn Fn() -> Result<Configuration> + Sync + Send + 'a>;

/// What all runs have in common.
pub struct Runs<'a> {
    /// The state folder.
    pub held: &'a Held,
    /// How targets are opened.
    pub open: OpenOptions,
    /// How they are read.
    pub options: Options,
    /// Set from outside to end all runs.
    pub stop: Arc<AtomicBool>,
    /// Reads the configuration again.
    pub read: ReadConfig<'a>,
    /// Set from outside: it is to be read again.
    pub reload: Arc<AtomicBool>,
}

impl std::fmt::Debug for Runs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runs").finish_non_exhaustive()
    }
}

/// See the module.
pub(super) struct Schedule<'a> {
    runs: &'a Runs<'a>,
    ledger: Ledger,
    last: HashMap<String, Last>,
    /// When a database is asked again whether it is its time.
    ask_at: HashMap<String, Instant>,
    /// Disks that are being read, by the names of the databases.
    busy: HashMap<String, Disk>,
    ended: (Sender<Ended>, Receiver<Ended>),
}

/// A run that has ended, by the name of its database.
type Ended = (String, Last);

/// The last run over a database by this process.
#[derive(Debug, Clone, Copy)]
struct Last {
    begun: Instant,
    ended: Instant,
    verdict: Verdict,
    overdue: bool,
    failed: bool,
}

/// What databases wait for each other on: a disk, or what has none by itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Disk {
    Known(PathBuf),
    Unknown(u64),
}

fn disk_of(subject: &Subject) -> Disk {
    use pagewarden::system::MetadataExt as _;
    let path = subject.path();
    disk_beneath(path).map_or_else(
        || Disk::Unknown(std::fs::metadata(path).map_or(0, |metadata| metadata.dev())),
        Disk::Known,
    )
}

impl<'a> Schedule<'a> {
    pub(super) fn new(runs: &'a Runs<'a>) -> Result<Self> {
        Ok(Self {
            runs,
            ledger: Ledger::open(runs.held)?,
            last: HashMap::new(),
            ask_at: HashMap::new(),
            busy: HashMap::new(),
            ended: channel(),
        })
    }

    /// Takes what has ended, and begins what is due and has its disk to itself.
    pub(super) fn step<'scope, 'env>(
        &mut self,
        scope: &'scope Scope<'scope, 'env>,
        shared: &'scope Shared<'_>,
    ) where
        'a: 'scope,
    {
        if self.runs.reload.swap(false, Ordering::Relaxed) {
            self.reload(shared);
        }
        while let Ok((name, last)) = self.ended.1.try_recv() {
            self.busy.remove(&name);
            self.ask_at.remove(&name);
            self.tell(&name, last, shared);
            self.last.insert(name, last);
            shared.runs_ended.fetch_add(1, Ordering::Relaxed);
        }
        if self.busy.len() >= RUNS_MAX {
            return;
        }
        let configuration = shared.configuration();
        let mut due: Vec<_> = configuration
            .databases
            .iter()
            .filter(|subject| !self.busy.contains_key(&subject.name) && self.asks(subject))
            .collect();
        // What never was verified comes before all.
        due.sort_by_cached_key(|subject| std::cmp::Reverse(self.age(subject).unwrap_or(u64::MAX)));
        let mut disks: HashSet<Disk> = self.busy.values().cloned().collect();
        for subject in due {
            let disk = disk_of(subject);
            if self.busy.len() >= RUNS_MAX || !disks.insert(disk.clone()) {
                // It is asked again as soon as a run has ended.
                self.ask_at.remove(&subject.name);
                continue;
            }
            self.busy.insert(subject.name.clone(), disk);
            let (subject, ended, runs) = (subject.clone(), self.ended.0.clone(), self.runs);
            scope.spawn(move || {
                let last = run(runs, &subject, shared);
                let _ = ended.send((subject.name, last));
            });
        }
    }

    fn reload(&mut self, shared: &Shared<'_>) {
        match (self.runs.read)() {
            Ok(read) => {
                let count = read.databases.len();
                (shared.log)(&format!("the configuration was read again: {count} databases"));
                shared.set_configuration(read);
                self.ask_at.clear();
            }
            Err(error) => (shared.log)(&format!("the configuration stays as it was: {error:#}")),
        }
    }

    /// True if a run over a database is to begin; asked only now and then.
    fn asks(&mut self, subject: &Subject) -> bool {
        let now = Instant::now();
        if self.ask_at.get(&subject.name).is_some_and(|at| now < *at) {
            return false;
        }
        let is_time = self.is_its_time(subject);
        let next = now.checked_add(ASK_EVERY).unwrap_or(now);
        self.ask_at.insert(subject.name.clone(), next);
        is_time
    }

    fn age(&self, subject: &Subject) -> Option<u64> {
        let target = self.ledger.target(&subject.name).ok()??;
        let entry = self.ledger.entry(target).ok()?;
        let since = waiting_since(&self.ledger.db, target, &entry).ok()?;
        Some(since.map_or(0, |since| uint(moment::now().saturating_sub(since))))
    }

    fn is_its_time(&self, subject: &Subject) -> bool {
        let now = moment::now();
        let is_closed = subject.window.is_some_and(|window| {
            let later = lot(&subject.name, LATER_MAX.min(window.seconds() / 10));
            window.seconds_since(now).is_none_or(|since| since < later)
        });
        if is_closed {
            return false;
        }
        let Some(last) = self.last.get(&subject.name) else { return true };
        if last.failed {
            return last.ended.elapsed() >= AGAIN_AFTER;
        }
        let due = self.ledger.target(&subject.name).ok().flatten();
        let due = due.and_then(|target| self.ledger.due(target, subject.every, now).ok()?);
        match due {
            Some(Due::Begin | Due::Resume) => {
                subject.budget.is_none() || last.begun.elapsed() >= BUDGET_EVERY
            }
            Some(Due::CatchUp) => last.ended.elapsed() >= AGAIN_AFTER,
            None => last.ended.elapsed() >= LIST_EVERY,
        }
    }

    /// Says what is not as it was.
    fn tell(&self, name: &str, last: Last, shared: &Shared<'_>) {
        let before = self.last.get(name).map(|before| (before.verdict, before.overdue));
        if before != Some((last.verdict, last.overdue)) {
            let late = if last.overdue { ", overdue" } else { "" };
            (shared.log)(&format!("{name}: {}{late}", last.verdict.name()));
        }
    }
}

/// One run over one database, to its end.
fn run(runs: &Runs<'_>, subject: &Subject, shared: &Shared<'_>) -> Last {
    let begun = Instant::now();
    let name = &subject.name;
    let scrubbed = || -> Result<_> {
        let mut ledger = Ledger::open(runs.held)?;
        let mut scrub = Scrub {
            ledger: &mut ledger,
            open: runs.open.clone(),
            options: runs.options.clone(),
            stop: Arc::clone(&runs.stop),
            deadline: None,
            clock: moment::now,
            seals: runs.held.folder().join("seals"),
        };
        scrub.target(subject, &mut (), &())
    };
    let (verdict, overdue, failed) = match scrubbed() {
        Ok(Ok(done)) => (done.verdict, done.coverage.overdue, false),
        Ok(Err(error)) => {
            (shared.log)(&format!("{name}: {error}"));
            (Verdict::Incomplete, false, true)
        }
        Err(error) => {
            (shared.log)(&format!("{name}: {error:#}"));
            (Verdict::Incomplete, false, true)
        }
    };
    Last { begun, ended: Instant::now(), verdict, overdue, failed }
}
