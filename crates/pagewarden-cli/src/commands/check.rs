//! `pagewarden check`: verifies targets one after the other and reports.

use std::io::{self, IsTerminal as _};
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context as _;
use pagewarden::report::json::JsonReport;
use pagewarden::report::text::{Colours, TextReport};
use pagewarden::target::{self, Description, TargetKind};
use pagewarden::verdict::{Protection, Verdict};
use pagewarden::verify::{Caching, Method, Options, Sink, Summary, verify};
use signal_hook::consts::TERM_SIGNALS;

use crate::args::Check;
use crate::exit::Exit;
use crate::progress::{Output, Show};

/// Where results go.
enum Report<'a> {
    Text(TextReport<Output<'a>>),
    Json(JsonReport<Output<'a>>),
}

/// Runs the command.
pub fn run(arguments: &Check) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let kind = arguments.format.as_deref().and_then(target::kind_named);
    let options = options(arguments)?;
    let show = Show::choose(arguments.quiet, arguments.progress);
    let mut report = if arguments.json {
        Report::Json(JsonReport::begin(show.output(), "check")?)
    } else {
        Report::Text(TextReport::new(show.output(), colours()))
    };
    let mut total = Summary::default();
    let mut worst = None;
    let mut missed = false;
    let mut opened = 0;
    for path in &arguments.paths {
        if options.stop.load(Ordering::Relaxed) {
            total.stopped = true;
            break;
        }
        let verdict = match check(path, kind, &options, &show, &mut report)? {
            Some((setting, summary)) => {
                opened += 1;
                total += &summary;
                missed |= misses_protection(arguments, setting, &summary);
                summary.verdict(setting)
            }
            None => Verdict::Incomplete,
        };
        worst = Some(worst.map_or(verdict, |worst: Verdict| worst.min(verdict)));
    }
    let mut verdict = worst.unwrap_or(Verdict::Incomplete);
    if total.stopped {
        verdict = verdict.min(Verdict::Incomplete);
    }
    show.end();
    total.elapsed = begin.elapsed();
    match report {
        // Where nothing could be opened, the errors have said all there is.
        Report::Text(_) if opened == 0 => {}
        Report::Text(report) => report.end(&total)?,
        Report::Json(report) => report.end(verdict, total.bytes, total.elapsed)?,
    }
    Ok(exit(arguments, verdict, &total, missed))
}

/// Checks one target; `None` if it could not be opened.
fn check(
    path: &Path,
    kind: Option<&TargetKind>,
    options: &Options,
    show: &Show,
    report: &mut Report<'_>,
) -> anyhow::Result<Option<(Option<Protection>, Summary)>> {
    let target = match target::open(path, kind) {
        Ok(target) => target,
        Err(error) => {
            if let Report::Json(report) = report {
                report.failed_target(&path.to_string_lossy(), &error.to_string());
            }
            crate::exit::report(&error.into());
            return Ok(None);
        }
    };
    let description = target.description.clone();
    report.begin_target(&description)?;
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| show.measure(path, kind));
        verify(target, options, show, report.sink())
    })?;
    report.end_target(&description, &summary)?;
    Ok(Some((description.setting, summary)))
}

impl Report<'_> {
    fn begin_target(&mut self, target: &Description) -> io::Result<()> {
        match self {
            Self::Text(report) => report.begin_target(target),
            Self::Json(report) => report.begin_target(target),
        }
    }

    fn end_target(&mut self, target: &Description, summary: &Summary) -> io::Result<()> {
        match self {
            Self::Text(report) => report.end_target(target, summary),
            Self::Json(report) => report.end_target(target, summary),
        }
    }

    fn sink(&mut self) -> &mut dyn Sink {
        match self {
            Self::Text(report) => report,
            Self::Json(report) => report,
        }
    }
}

fn options(arguments: &Check) -> anyhow::Result<Options> {
    let cores = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    Ok(Options {
        jobs: arguments.jobs.unwrap_or(cores),
        rate: arguments.rate,
        caching: match (arguments.direct, arguments.cached) {
            (true, _) => Caching::Direct,
            (_, true) => Caching::Cached,
            _ => Caching::Auto,
        },
        method: match arguments.io.as_str() {
            "uring" => Method::Uring,
            "threads" => Method::Threads,
            _ => Method::Auto,
        },
        stop: stop_on_signals()?,
    })
}

/// A flag that the first signal sets; a second one ends the program at once.
fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in TERM_SIGNALS {
        let register = || {
            signal_hook::flag::register_conditional_shutdown(*signal, 3, Arc::clone(&stop))?;
            signal_hook::flag::register(*signal, Arc::clone(&stop))
        };
        register().context("cannot listen for signals")?;
    }
    Ok(stop)
}

fn colours() -> Colours {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Colours(wanted && io::stdout().is_terminal())
}

fn misses_protection(arguments: &Check, setting: Option<Protection>, summary: &Summary) -> bool {
    let by_mode = summary.by_mode;
    let protected = by_mode.checksum + by_mode.torn;
    let used = protected + by_mode.none;
    let off = setting == Some(Protection::None) || (used > 0 && protected == 0);
    let below = arguments
        .min_protected
        .is_some_and(|floor| used > 0 && (protected as f64) * 100.0 < floor * used as f64);
    (arguments.require_protection && off) || below
}

fn exit(arguments: &Check, verdict: Verdict, total: &Summary, missed: bool) -> Exit {
    if total.stopped {
        return Exit::Stopped;
    }
    let exit = Exit::from(verdict);
    let wrong = missed || (arguments.strict && verdict == Verdict::Suspect);
    if exit == Exit::Fine && wrong { Exit::Wrong } else { exit }
}
