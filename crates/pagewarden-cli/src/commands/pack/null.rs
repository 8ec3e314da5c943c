//! `pack --to null:`: what it prints.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use pagewarden::packing::Watch;
use pagewarden::packing::null::{self, Done, LOOK, Taker, known_cached};
use pagewarden::report::Traffic;
use pagewarden::source::device::DeviceLoad;
use pagewarden::verdict::{Finding, Note, Stretch, Unread};
use pagewarden::verify::timing::{Setter, Timing};
use pagewarden::verify::{Progress, Sink, Summary, mib_per_second};
use pagewarden::words::{self, counted, grouped, percent, printable};

use crate::args::pack::Pack;
use crate::commands::pack::{request, told};
use crate::commands::storage::Storage;
use crate::exit::Exit;
use crate::progress::{Output, Show};

/// A device that has something to do for more than this share of the time is not
/// ours alone.
const BUSY: f64 = 0.3;

pub(super) fn run(arguments: &Pack, stop: &Arc<AtomicBool>, show: &Show) -> Result<Exit> {
    let storage = Storage::begin([&arguments.source], &arguments.storage, arguments.rate, stop)?;
    let out = Mutex::new(show.output());
    let percent = Percent::new(arguments, show, &out);
    let mut lines = Lines::new(arguments, &out);
    let request = request(arguments);
    let done = null::read(&request, &storage, stop, &percent, &mut lines).map_err(told)?;
    show.end();
    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
    if arguments.json {
        writeln!(out, "{}", done.object(storage.traffic()))?;
    } else {
        let has_ceiling = request.rate.unwrap_or_default().ceiling().is_some();
        print(&done, storage.traffic(), &mut *out, has_ceiling)?;
    }
    out.flush()?;
    Ok(if done.stopped { Exit::Stopped } else { Exit::from(done.verified.verdict()) })
}

fn print(
    done: &Done,
    traffic: Option<Traffic>,
    out: &mut impl Write,
    has_ceiling: bool,
) -> io::Result<()> {
    let summary = &done.verified.summary;
    writeln!(out, "{}", found(summary))?;
    let from = match traffic {
        Some(traffic) => format!("Object storage: {traffic}."),
        None => cached_words(&done.pace, done.bytes),
    };
    for line in [from, pace_words(&done.pace, has_ceiling)] {
        writeln!(out, "{line}")?;
    }
    // Last, as servers end a backup.
    let pages = grouped(summary.pages.total());
    let seconds = tenths(done.elapsed.as_secs_f64());
    let speed = tenths(mib_per_second(done.bytes, done.elapsed));
    writeln!(out, "Processed {pages} pages in {seconds} seconds ({speed} MiB/s).")
}

/// `6,010.4`.
fn tenths(number: f64) -> String {
    let text = format!("{number:.1}");
    let (whole, tenth) = text.split_once('.').unwrap_or((&text, "0"));
    whole.parse().map_or_else(|_| text.clone(), |whole| format!("{}.{tenth}", grouped(whole)))
}

/// What the verification found, in a line.
fn found(summary: &Summary) -> String {
    let pages = &summary.pages;
    format!(
        "Verified on the way: {} damaged, {} suspect, {} undecided, {} that could not be read, {} unprotected.",
        counted(pages.damaged, "page"),
        grouped(pages.suspect),
        grouped(pages.undecided),
        grouped(summary.unread),
        grouped(pages.unprotected),
    )
}

/// A device that works for others, too.
fn busy_words(load: &DeviceLoad) -> String {
    let share = words::share(load.busy);
    let in_flight = counted(load.in_flight, "request");
    let bytes = words::bytes(load.bytes_per_second);
    format!(
        "the device {} is busy: something to do for {share} of {} ms, {in_flight} in flight, {bytes} a second; \
         what follows is what it has left",
        printable(&load.name),
        LOOK.as_millis(),
    )
}

fn cached_words(pace: &Timing, bytes: u64) -> String {
    let mut line = match known_cached(pace) {
        Some(cached) => format!(
            "From the page cache: {} ({} of {}).",
            percent(cached, bytes),
            words::bytes(cached),
            words::bytes(bytes)
        ),
        None => format!(
            "From the page cache: {} at least; of {} the system does not say.",
            words::bytes(pace.cached_bytes),
            words::bytes(pace.unknown_bytes)
        ),
    };
    if pace.hole_bytes > 0 {
        line.push_str(&format!(" Never written, and not read: {}.", words::bytes(pace.hole_bytes)));
    }
    line
}

/// Who set the pace, in a sentence.
fn pace_words(pace: &Timing, has_rate: bool) -> String {
    let who = match pace.setter() {
        None => return "Nothing was read.".to_owned(),
        Some(Setter::Disk) => "The disk",
        Some(Setter::Processor) => "The processor",
        Some(Setter::Limit) if has_rate => "--rate",
        Some(Setter::Limit) => "Waiting for each other",
        Some(Setter::OtherPrograms) => "Other programs on the processor",
    };
    let share = |part| words::share(pace.share(part));
    format!(
        "{who} set the pace: threads spent {} of their time waiting for reads, {} computing, {} held back and {} without a processor.",
        share(pace.waited),
        share(pace.computed),
        share(pace.paused),
        share(pace.lost()),
    )
}

/// As a server would call it, as far as a path tells.
fn database_name(source: &Path) -> String {
    let name = source.canonicalize().unwrap_or_else(|_| source.to_owned());
    name.file_stem().map_or_else(String::new, |name| printable(&name.to_string_lossy()))
}

/// Writes a line each time `every` percent more are done.
struct Percent<'a> {
    show: &'a Show,
    out: &'a Mutex<Output<'a>>,
    every: Option<u8>,
    total: AtomicU64,
    done: AtomicU64,
}

impl<'a> Percent<'a> {
    fn new(arguments: &Pack, show: &'a Show, out: &'a Mutex<Output<'a>>) -> Self {
        let every = arguments.stats.filter(|_| !arguments.json);
        Self { show, out, every, total: AtomicU64::new(0), done: AtomicU64::new(0) }
    }
}

impl Progress for Percent<'_> {
    fn advance(&self, bytes: u64) {
        self.show.advance(bytes);
        let Some(every) = self.every else { return };
        let before = self.done.fetch_add(bytes, Ordering::Relaxed);
        let steps = |done: u64| {
            let percent =
                u128::from(done) * 100 / u128::from(self.total.load(Ordering::Relaxed).max(1));
            percent.min(100) / u128::from(every.max(1))
        };
        let (old, new) = (steps(before), steps(before.saturating_add(bytes)));
        if new > old
            && let Ok(mut out) = self.out.lock()
        {
            let _ = writeln!(out, "{} percent processed.", new * u128::from(every));
        }
    }
}

impl Watch for Percent<'_> {
    fn expect(&self, bytes: u64) {
        self.show.expect(bytes);
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A line for each file.
struct Lines<'a> {
    out: &'a Mutex<Output<'a>>,
    is_shown: bool,
    database: String,
    file: String,
    pages: u64,
    is_told: bool,
    is_json: bool,
}

impl<'a> Lines<'a> {
    fn new(arguments: &Pack, out: &'a Mutex<Output<'a>>) -> Self {
        Self {
            out,
            is_shown: !arguments.json,
            database: database_name(&arguments.source),
            file: String::new(),
            pages: 0,
            is_told: !arguments.quiet,
            is_json: arguments.json,
        }
    }

    fn line(&self, text: &str) -> io::Result<()> {
        match self.out.lock() {
            Ok(mut out) if self.is_shown => writeln!(out, "{text}"),
            _ => Ok(()),
        }
    }

    fn end_file(&mut self) -> io::Result<()> {
        let file = std::mem::take(&mut self.file);
        if file.is_empty() {
            return Ok(());
        }
        let pages = grouped(std::mem::take(&mut self.pages));
        let shown = printable(&file);
        let database = &self.database;
        self.line(&format!("Processed {pages} pages for database '{database}', file '{shown}'."))
    }
}

impl Taker for Lines<'_> {
    fn wants_device(&self) -> bool {
        self.is_json || self.is_told
    }

    fn device(&mut self, load: &DeviceLoad) -> io::Result<()> {
        if load.busy <= BUSY || !self.is_told {
            return Ok(());
        }
        writeln!(io::stderr(), "warning: {}", busy_words(load))
    }

    fn verified(&mut self) -> io::Result<()> {
        self.end_file()
    }
}

impl Sink for Lines<'_> {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        let page = finding.place.page.map_or(String::new(), |page| format!(" page {page}"));
        let file = printable(&finding.place.file);
        let (severity, kind) = (finding.severity.name(), finding.kind.name());
        self.line(&format!("{severity}: {file}{page}: {kind}"))
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.line(&format!("unread: {}: {}", printable(&unread.file), printable(&unread.error)))
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }

    fn pages(&mut self, stretch: &Stretch<'_>) -> io::Result<()> {
        if self.file != stretch.file {
            self.end_file()?;
            stretch.file.clone_into(&mut self.file);
        }
        self.pages = self.pages.saturating_add(stretch.pages);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_rates_are_written_as_a_server_writes_them() {
        let pairs = [(6010.42, "6,010.4"), (393.55, "393.6"), (0.04, "0.0"), (999.96, "1,000.0")];
        for (number, text) in pairs {
            assert_eq!(tenths(number), text);
        }
    }
}
