//! `pack --to null:`: all of a database read and verified as a backup would do it,
//! and nothing kept: how fast can it be read?
//!
//! Pages are read by the engine of `check`, and every other file plainly: a backup
//! holds those too.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use pagewarden::database::{self, OpenOptions, stored};
use pagewarden::pack::{Content, Draining, Entry, Strays, What};
use pagewarden::report::Traffic;
use pagewarden::source::device::{DeviceLoad, device_load};
use pagewarden::source::file::open_regular;
use pagewarden::source::residency::{Residency, residency};
use pagewarden::source::store::{Seen, StorePath};
use pagewarden::verdict::{Finding, Note, Stretch, Unread};
use pagewarden::verify::timing::{Setter, Timing};
use pagewarden::verify::{Options, Progress, Sink, Summary, Verified, mib_per_second, verify};
use pagewarden::words::{self, counted, grouped, percent, printable};
use serde_json::{Value, json};

use crate::args::pack::Pack;
use crate::commands::pack::{kind, options};
use crate::commands::storage::Storage;
use crate::exit::Exit;
use crate::progress::{Output, Show};

/// So much of every [`ASKED_EVERY`] bytes is asked about: is it in the page cache?
const ASKED_BYTES: u64 = 1 << 20;
const ASKED_EVERY: usize = 16 << 20;
/// How long the device is looked at before it is read.
const LOOK: Duration = Duration::from_millis(300);
/// A device that has something to do for more than this share of the time is not
/// ours alone.
const BUSY: f64 = 0.3;

pub(super) fn run(arguments: &Pack, stop: &Arc<AtomicBool>, show: &Show) -> Result<Exit> {
    let source = arguments.source.as_path();
    let storage = Storage::begin([&arguments.source], &arguments.storage, arguments.rate, stop)?;
    if let Some(place) = storage.file(source).transpose()? {
        return read_stored(arguments, &place, &storage, stop, show);
    }
    let target = database::open(source, kind(arguments))?;
    let is_live = target.description.live;
    let content = Content::list(source, Strays::PassedOver)?;
    let device = look(arguments, &content);
    if let Some(load) = device.as_ref().filter(|load| load.busy > BUSY && !arguments.quiet) {
        writeln!(io::stderr(), "warning: {}", busy_words(load))?;
    }
    let begin = Instant::now();
    show.expect(content.bytes());
    let out = Mutex::new(show.output());
    let percent = Percent::new(arguments, show, &out, content.bytes());
    let mut lines = Lines::new(arguments, &out);
    let options = options(arguments, stop);
    let verified = verify(target, &options, &percent, &mut lines)?;
    let summary = &verified.summary;
    lines.end_file()?;
    let draining = Draining {
        content: &content,
        jobs: options.jobs,
        rate: options.rate.ceiling(),
        is_live,
        stop,
    };
    let has_no_pages = |entry: &Entry| !lines.seen.contains(&*entry.name.to_string_lossy());
    let (others, rest) = draining.drain(&has_no_pages, &percent)?;
    let mut pace = summary.pace;
    pace += rest;
    let done = Done {
        verified: &verified,
        pace,
        bytes: summary.bytes.saturating_add(others),
        elapsed: begin.elapsed(),
        device,
        storage: None,
    };
    done.tell(arguments, &options, show, &out)
}

/// The same of a file in object storage.
fn read_stored(
    arguments: &Pack,
    place: &StorePath,
    storage: &Storage,
    stop: &Arc<AtomicBool>,
    show: &Show,
) -> Result<Exit> {
    let begin = Instant::now();
    let (target, _folder) = stored::open(place, kind(arguments), &OpenOptions::default())?;
    let bytes = match place.look() {
        Ok(Seen::File(bytes)) => bytes,
        _ => 0,
    };
    show.expect(bytes);
    let out = Mutex::new(show.output());
    let percent = Percent::new(arguments, show, &out, bytes);
    let mut lines = Lines::new(arguments, &out);
    let options = options(arguments, stop);
    let verified = verify(target, &options, &percent, &mut lines)?;
    lines.end_file()?;
    let done = Done {
        verified: &verified,
        pace: verified.summary.pace,
        bytes: verified.summary.bytes,
        elapsed: begin.elapsed(),
        device: None,
        storage: storage.traffic(),
    };
    done.tell(arguments, &options, show, &out)
}

/// What a run came to.
struct Done<'a> {
    verified: &'a Verified,
    /// Of pages, and of files that have none.
    pace: Timing,
    bytes: u64,
    elapsed: Duration,
    /// What the device did before.
    device: Option<DeviceLoad>,
    /// What was asked of object stores, if it is in one.
    storage: Option<Traffic>,
}

impl Done<'_> {
    /// Says it, and what the program ends with.
    fn tell(
        &self,
        arguments: &Pack,
        options: &Options,
        show: &Show,
        out: &Mutex<Output<'_>>,
    ) -> Result<Exit> {
        show.end();
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        if arguments.json {
            writeln!(out, "{}", self.object())?;
        } else {
            self.print(&mut *out, options.rate.ceiling().is_some())?;
        }
        out.flush()?;
        let is_stopped = self.verified.summary.stopped || options.stop.load(Ordering::Relaxed);
        Ok(if is_stopped { Exit::Stopped } else { Exit::from(self.verified.verdict()) })
    }

    fn object(&self) -> Value {
        let mut object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "pack",
            "verdict": self.verified.verdict().name(),
            "output": null,
            "pages": self.verified.summary.pages.total(),
            "bytes": self.bytes,
            "mib_per_second": mib_per_second(self.bytes, self.elapsed),
            "cached_bytes": known_cached(&self.pace),
            "pace": pace_object(&self.pace),
            "device_before": self.device.as_ref().map(device_object),
            "seconds": self.elapsed.as_secs_f64(),
        });
        if let (Some(traffic), Some(object)) = (self.storage, object.as_object_mut()) {
            object.insert("storage".to_owned(), json!(traffic));
        }
        object
    }

    fn print(&self, out: &mut impl Write, has_ceiling: bool) -> io::Result<()> {
        let summary = &self.verified.summary;
        writeln!(out, "{}", found(summary))?;
        let from = match self.storage {
            Some(traffic) => format!("Object storage: {traffic}."),
            None => cached_words(&self.pace, self.bytes),
        };
        for line in [from, pace_words(&self.pace, has_ceiling)] {
            writeln!(out, "{line}")?;
        }
        // Last, as servers end a backup.
        let pages = grouped(summary.pages.total());
        let seconds = tenths(self.elapsed.as_secs_f64());
        let speed = tenths(mib_per_second(self.bytes, self.elapsed));
        writeln!(out, "Processed {pages} pages in {seconds} seconds ({speed} MiB/s).")
    }
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

/// What the device does, if the output shows it and the content is read from a device.
fn look(arguments: &Pack, content: &Content) -> Option<DeviceLoad> {
    let is_told = arguments.json || !arguments.quiet;
    if is_told && !is_in_memory(content) { device_load(&arguments.source, LOOK) } else { None }
}

/// True if the page cache holds every part of the files that is asked about: the first MiB of
/// every 16. To ask about all of a large file would take as long as to read a tenth of it.
fn is_in_memory(content: &Content) -> bool {
    let files = content.entries.iter().enumerate();
    files.filter(|(_, entry)| matches!(entry.what, What::File { .. })).all(|(number, entry)| {
        let bytes = entry.bytes();
        open_regular(&content.path(number)).is_ok_and(|file| {
            let mut parts = (0..bytes).step_by(ASKED_EVERY);
            parts.all(|begin| {
                let part = begin..bytes.min(begin.saturating_add(ASKED_BYTES));
                residency(&file, part) == Residency::Whole
            })
        })
    })
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

fn device_object(load: &DeviceLoad) -> Value {
    json!({
        "name": load.name,
        "busy_share": load.busy,
        "in_flight": load.in_flight,
        "bytes_per_second": load.bytes_per_second,
    })
}

/// Bytes out of the page cache; `None` where that is not known of some.
fn known_cached(pace: &Timing) -> Option<u64> {
    (pace.unknown_bytes == 0).then_some(pace.cached_bytes)
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

fn pace_object(pace: &Timing) -> Value {
    json!({
        "set_by": pace.setter().map(Setter::name),
        "waited_share": pace.share(pace.waited),
        "computed_share": pace.share(pace.computed),
        "held_back_share": pace.share(pace.paused),
        "without_processor_share": pace.share(pace.lost()),
        "hole_bytes": pace.hole_bytes,
        "unknown_bytes": pace.unknown_bytes,
    })
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
    total: u64,
    done: AtomicU64,
}

impl<'a> Percent<'a> {
    fn new(arguments: &Pack, show: &'a Show, out: &'a Mutex<Output<'a>>, total: u64) -> Self {
        let every = arguments.stats.filter(|_| !arguments.json);
        Self { show, out, every, total, done: AtomicU64::new(0) }
    }
}

impl Progress for Percent<'_> {
    fn advance(&self, bytes: u64) {
        self.show.advance(bytes);
        let Some(every) = self.every else { return };
        let before = self.done.fetch_add(bytes, Ordering::Relaxed);
        let steps = |done: u64| {
            let percent = u128::from(done) * 100 / u128::from(self.total.max(1));
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

/// A line for each file.
struct Lines<'a> {
    out: &'a Mutex<Output<'a>>,
    is_shown: bool,
    database: String,
    file: String,
    pages: u64,
    /// Names as reports have them: what is not UTF-8 is replaced.
    seen: HashSet<String>,
}

impl<'a> Lines<'a> {
    fn new(arguments: &Pack, out: &'a Mutex<Output<'a>>) -> Self {
        Self {
            out,
            is_shown: !arguments.json,
            database: database_name(&arguments.source),
            file: String::new(),
            pages: 0,
            seen: HashSet::new(),
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
        self.seen.insert(file);
        let database = &self.database;
        self.line(&format!("Processed {pages} pages for database '{database}', file '{shown}'."))
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
