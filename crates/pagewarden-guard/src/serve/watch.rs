//! Looks for changes while the schedule runs, and reports them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{NAP, Shared};
use crate::ledger::Ledger;
use crate::moment;
use crate::notify::deliver::Post;
use crate::notify::{self, LOOK_EVERY, Notifier};
use crate::state::Held;

/// All databases are looked at so often, and whenever a run has ended or a finding is new: only the
/// time that passes makes one overdue.
const LOOK_AT_ALL_EVERY: Duration = Duration::from_secs(15);
/// What goes wrong is said again after this.
const SAY_EVERY: Duration = Duration::from_secs(3600);

/// Reports changes until it is asked to stop.
pub(super) fn watch(shared: &Shared<'_>, held: &Held, post: &Post) {
    let notifier = Notifier { post, stop: Arc::clone(&shared.settings.stop), log: shared.log };
    let mut ledger: Option<Ledger> = None;
    // When, with the runs that had ended and the findings that were left.
    let mut looked: Option<(Instant, u64, u64)> = None;
    let mut said: Option<Instant> = None;
    while !shared.stops() {
        let mut turn = || -> Result<()> {
            let open = match ledger.take() {
                Some(open) => open,
                None => Ledger::open(held)?,
            };
            let ledger = ledger.insert(open);
            let (now, configuration) = (moment::now(), shared.configuration());
            let ended = shared.runs_ended.load(Ordering::Relaxed);
            let untold = notify::untold(ledger)?;
            // Those of databases that are not in the configuration are left.
            let is_due = looked.is_none_or(|(at, before, left)| {
                (before, left) != (ended, untold) || at.elapsed() >= LOOK_AT_ALL_EVERY
            });
            if is_due {
                notify::look(ledger, &configuration.databases, &configuration.ways, now)?;
                looked = Some((Instant::now(), ended, notify::untold(ledger)?));
            }
            notifier.send(ledger, &configuration.ways, now, false)
        };
        if let Err(error) = turn()
            && said.is_none_or(|at| at.elapsed() >= SAY_EVERY)
        {
            (shared.log)(&format!("changes cannot be reported: {error:#}"));
            said = Some(Instant::now());
        }
        let begin = Instant::now();
        while !shared.stops() && begin.elapsed() < LOOK_EVERY {
            thread::sleep(NAP);
        }
    }
}
