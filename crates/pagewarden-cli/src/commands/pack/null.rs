//! `pack --to null:`: all of a database read and verified as a backup would do it,
//! and nothing kept: how fast can it be read?
//!
//! Pages are read by the engine of `check`, and every other file plainly: a backup
//! holds those too.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use pagewarden::pack::{Content, Strays, What};
use pagewarden::report::words::{counted, grouped, printable, rate};
use pagewarden::source::file::{open_regular, read_fully};
use pagewarden::target;
use pagewarden::verdict::{Finding, Note, Stretch, Unread};
use pagewarden::verify::{Progress, Sink, Summary, mib_per_second, verify};
use serde_json::json;

use crate::args::pack::Pack;
use crate::commands::pack::options;
use crate::exit::Exit;
use crate::progress::{Output, Show};

/// Files without pages are read so much at a time.
const READ_BYTES: usize = 1 << 20;

pub(super) fn run(arguments: &Pack, stop: &Arc<AtomicBool>, show: &Show) -> Result<Exit> {
    let begin = Instant::now();
    let source = arguments.source.as_path();
    let target = target::open(source, None)?;
    let description = target.description.clone();
    let content = Content::list(source, Strays::PassedOver)?;
    show.expect(content.bytes());
    let out = Mutex::new(show.output());
    let percent = Percent {
        show,
        out: &out,
        every: arguments.stats.filter(|_| !arguments.json),
        total: content.bytes(),
        done: AtomicU64::new(0),
    };
    let mut lines = Lines {
        out: &out,
        is_shown: !arguments.json,
        database: database_name(source),
        file: String::new(),
        pages: 0,
        seen: HashSet::new(),
    };
    let summary = verify(target, &options(arguments, stop), &percent, &mut lines)?;
    lines.end_file()?;
    let seen = std::mem::take(&mut lines.seen);
    let others = read_others(&content, &seen, description.live, stop, &percent)?;
    show.end();
    let elapsed = begin.elapsed();
    let setting = summary.description.as_ref().map_or(description.setting, |found| found.setting);
    let verdict = summary.verdict(setting);
    let bytes = summary.bytes.saturating_add(others);
    let speed = mib_per_second(bytes, elapsed);
    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
    if arguments.json {
        let object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "pack",
            "verdict": verdict.name(),
            "output": null,
            "pages": summary.pages.total(),
            "bytes": bytes,
            "mib_per_second": speed,
            "seconds": elapsed.as_secs_f64(),
        });
        writeln!(out, "{object}")?;
    } else {
        let pages = grouped(summary.pages.total());
        let seconds = elapsed.as_secs_f64();
        writeln!(out, "Processed {pages} pages in {seconds:.1} seconds ({} MiB/s).", rate(speed))?;
        writeln!(out, "{}", found(&summary))?;
    }
    out.flush()?;
    Ok(if summary.stopped || stop.load(Ordering::Relaxed) {
        Exit::Stopped
    } else {
        Exit::from(verdict)
    })
}

/// What the verification found, in a line.
fn found(summary: &Summary) -> String {
    let pages = &summary.pages;
    format!(
        "Verified on the way: {} damaged, {} suspect, {} undecided, {} that could not be read, {} unprotected.",
        counted(pages.damaged, "page"),
        pages.suspect,
        pages.undecided,
        summary.unread,
        pages.unprotected,
    )
}

/// As a server would call it, as far as a path tells.
fn database_name(source: &Path) -> String {
    let name = source.canonicalize().unwrap_or_else(|_| source.to_owned());
    name.file_stem().map_or_else(String::new, |name| printable(&name.to_string_lossy()))
}

/// Reads what has no pages. Returns how many bytes that were.
fn read_others(
    content: &Content,
    seen: &HashSet<PathBuf>,
    is_live: bool,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<u64> {
    let mut bytes = 0_u64;
    let mut buffer = vec![0; READ_BYTES];
    for (number, entry) in content.entries.iter().enumerate() {
        if entry.what == What::Folder || seen.contains(&entry.name) {
            continue;
        }
        let path = content.path(number);
        let file = match open_regular(&path) {
            Ok(file) => file,
            // A server that runs removes files too.
            Err(error) if is_live && error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(pagewarden::Error::io("open", &path, error).into()),
        };
        let mut offset = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            let count = read_fully(&file, &mut buffer, offset)
                .map_err(|error| pagewarden::Error::io("read", &path, error))?;
            offset = offset.saturating_add(count as u64);
            progress.advance(count as u64);
            if count < READ_BYTES {
                break;
            }
        }
        bytes = bytes.saturating_add(offset);
    }
    Ok(bytes)
}

/// A line for each so many percent.
struct Percent<'a> {
    show: &'a Show,
    out: &'a Mutex<Output<'a>>,
    every: Option<u8>,
    total: u64,
    done: AtomicU64,
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
    seen: HashSet<PathBuf>,
}

impl Lines<'_> {
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
        self.seen.insert(PathBuf::from(file));
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
