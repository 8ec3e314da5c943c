//! `pagewarden scrub`: verifies what is due.

use std::cmp::Reverse;
use std::io::Write as _;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use pagewarden::report::json::JsonReport;
use pagewarden::report::several::Several;
use pagewarden::report::text::TextReport;
use pagewarden::report::{Report as _, RunEnd};
use pagewarden::verdict::Verdict;
use pagewarden::verify::{Options, Summary};
use pagewarden::words::printable;
use pagewarden_guard::config::Configuration;
use pagewarden_guard::ledger::Ledger;
use pagewarden_guard::moment;
use pagewarden_guard::notify::way::Way;
use pagewarden_guard::notify::{self, Notifier};
use pagewarden_guard::scrub::Scrub as Run;
use pagewarden_guard::state::Held;

use crate::args::scrub::Scrub;
use crate::commands::notifications::post;
use crate::commands::subjects::{Wanted, configured, open_options, state_folder, wanted};
use crate::exit::{self, Exit};
use crate::progress::Show;
use crate::signals::stop_on_signals;
use crate::terminal::colours;

/// Runs the command.
pub fn run(arguments: &Scrub) -> anyhow::Result<Exit> {
    exit::or_json("scrub", arguments.json, || scrub(arguments))
}

fn scrub(arguments: &Scrub) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let stop = stop_on_signals()?;
    let Configuration { databases, ways } = configured(&arguments.place)?;
    let mut wanted = wanted(databases, &arguments.operands)?;
    set_by_options(&mut wanted, arguments);
    // A folder of databases, too: the ledger would be one more of them.
    let subjects = wanted.iter().flat_map(|one| one.subject.paths.clone());
    let paths: Vec<_> = subjects.chain(arguments.operands.iter().cloned()).collect();
    let held = Held::lock(&state_folder(&arguments.place), "scrub", &paths)?;
    let mut ledger = Ledger::open(&held)?;
    oldest_first(&mut wanted, &ledger)?;
    let show = Show::choose(arguments.pace.quiet, arguments.pace.progress);
    let mut reports = report_of(arguments, &show)?;
    let cores = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let jobs = arguments.jobs.unwrap_or(cores);
    let mut run = Run {
        ledger: &mut ledger,
        open: open_options(arguments.keyring.as_ref(), arguments.cipher_pass_file.as_ref(), jobs),
        options: Options { jobs, ..Options::default() },
        stop: stop.clone(),
        deadline: arguments.budget.and_then(|budget| begin.checked_add(budget)),
        clock: moment::now,
        seals: held.folder().join("seals"),
    };
    let mut total = Summary::default();
    let mut worst: Option<Verdict> = None;
    let (mut opened, mut overdue) = (0, false);
    for Wanted { subject, is_named } in &wanted {
        let is_late = run.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if stop.load(Ordering::Relaxed) || is_late {
            total.stopped = true;
            break;
        }
        if !is_named && subject.window.is_some_and(|window| !window.holds(moment::now())) {
            if !arguments.pace.quiet {
                let _ = writeln!(std::io::stderr(), "{}: outside its window", subject.name);
            }
            continue;
        }
        let verdict = match run.target(subject, &mut reports, &show)? {
            Ok(done) => {
                opened += 1;
                total += &done.summary;
                total.stopped |= done.stopped;
                overdue |= done.coverage.overdue;
                done.verdict
            }
            Err(error) => {
                exit::report(&error.into());
                Verdict::Incomplete
            }
        };
        worst = Some(worst.map_or(verdict, |worst| worst.min(verdict)));
    }
    show.end();
    report_changes(&mut ledger, &wanted, &ways, &stop);
    total.elapsed = begin.elapsed();
    let mut verdict = worst.unwrap_or(Verdict::Intact);
    if total.stopped {
        verdict = verdict.min(Verdict::Incomplete);
    }
    reports.end(&RunEnd {
        verdict,
        total: &total,
        opened,
        protection_missed: false,
        storage: None,
        drill: None,
        ended: SystemTime::now(),
    })?;
    Ok(exit_of(arguments, verdict, total.stopped, overdue))
}

/// What the command line says goes before what the configuration says.
fn set_by_options(wanted: &mut [Wanted], arguments: &Scrub) {
    for Wanted { subject, .. } in wanted {
        subject.every = arguments.every.unwrap_or(subject.every);
        subject.rate = arguments.pace.rate.unwrap_or(subject.rate);
    }
}

fn report_of<'a>(arguments: &Scrub, show: &'a Show) -> anyhow::Result<Several<'a>> {
    let mut reports = Several::default();
    if arguments.json {
        reports.add(JsonReport::begin(show.output(), "scrub")?);
    } else {
        reports.add(TextReport::new(show.output(), colours()));
    }
    Ok(reports)
}

/// Tells of changes, once. What cannot be sent now is sent by the next run.
fn report_changes(ledger: &mut Ledger, wanted: &[Wanted], ways: &[Way], stop: &Arc<AtomicBool>) {
    if ways.is_empty() {
        return;
    }
    let log = |line: &str| {
        let _ = writeln!(std::io::stderr(), "pagewarden: {}", printable(line));
    };
    let now = moment::now();
    let subjects: Vec<_> = wanted.iter().map(|one| one.subject.clone()).collect();
    let notifier = Notifier { post: &post, stop: Arc::clone(stop), log: &log };
    let sent = notify::look(ledger, &subjects, ways, now)
        .and_then(|()| notifier.send(ledger, ways, now, true));
    if let Err(error) = sent {
        log(&format!("changes cannot be reported: {error:#}"));
    }
}

/// What was verified longest ago comes first, what never was before all.
fn oldest_first(wanted: &mut [Wanted], ledger: &Ledger) -> anyhow::Result<()> {
    let now = moment::now();
    let mut ages = std::collections::HashMap::new();
    for one in wanted.iter() {
        if let Some(target) = ledger.target(&one.subject.name)? {
            let age = ledger.coverage(target, now)?.oldest_unverified_seconds;
            ages.insert(one.subject.name.clone(), age);
        }
    }
    let age = |one: &Wanted| ages.get(&one.subject.name).copied().unwrap_or(u64::MAX);
    wanted.sort_by_key(|one| Reverse(age(one)));
    Ok(())
}

/// As `check`, but that damage is not hidden by a budget that ended: with one, every run may be
/// stopped early.
fn exit_of(arguments: &Scrub, verdict: Verdict, stopped: bool, overdue: bool) -> Exit {
    let exit = Exit::from(verdict);
    let wrong = arguments.strict && (overdue || verdict == Verdict::Suspect);
    match exit {
        Exit::Wrong => Exit::Wrong,
        _ if stopped => Exit::Stopped,
        Exit::Fine if wrong => Exit::Wrong,
        other => other,
    }
}
