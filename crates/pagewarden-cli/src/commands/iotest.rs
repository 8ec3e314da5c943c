//! `pagewarden iotest`: measures a disk, holds a real database or real backups
//! against it, and reports.

use std::fs;
use std::io::{self, Read as _};
use std::num::NonZero;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use pagewarden::database;
use pagewarden::verdict::{Finding, Note, Unread};
use pagewarden::verify::{Caching, Options, Sink, verify};
use pagewarden_lab::iotest::diagnosis::Reading;
use pagewarden_lab::iotest::drive::Method;
use pagewarden_lab::iotest::fio;
use pagewarden_lab::iotest::judge::judge;
use pagewarden_lab::iotest::measured::processor_time;
use pagewarden_lab::iotest::messages::{Backup, parse};
use pagewarden_lab::iotest::patterns::{PATTERNS, Pattern};
use pagewarden_lab::iotest::report::{Beside, json, text};
use pagewarden_lab::iotest::session::{Session, Settings, measure};

use crate::args::iotest::Iotest;
use crate::exit::{self, Exit};
use crate::progress::{Show, listed_bytes};
use crate::signals::stop_on_signals;
use crate::terminal::print;

mod show;

/// No file of messages is larger.
const MESSAGES_BYTES_MAX: u64 = 16 << 20;

/// Runs the command.
pub fn run(arguments: &Iotest) -> Result<Exit> {
    exit::or_json("iotest", arguments.shown.json, || report(arguments, Instant::now()))
}

fn report(arguments: &Iotest, begin: Instant) -> Result<Exit> {
    // What is to be judged is read before minutes are spent.
    let backups = backups(&arguments.judge)?;
    let stop = stop_on_signals()?;
    let session = arguments.folder.as_deref().map(|folder| session(arguments, folder, &stop));
    let session = session.transpose()?;
    let mut beside = Beside { judged: judge(backups, session.as_ref()), against: None };
    let is_stopped = || stop.load(Ordering::Relaxed);
    if let (Some(path), Some(folder), false) = (&arguments.against, &arguments.folder, is_stopped())
    {
        let reading = read_to_nowhere(arguments, path, folder, &stop)?;
        beside.against = reading.map(|reading| (path.to_string_lossy().into_owned(), reading));
    }
    let stopped = is_stopped();
    let session = session.map(|session| Session { stopped: session.stopped || stopped, ..session });
    if arguments.shown.json {
        let object = json(session.as_ref(), &beside, begin.elapsed().as_secs_f64());
        print(&format!("{object}\n"))?;
    } else {
        let folder = arguments.folder.as_deref().unwrap_or(Path::new(""));
        print(&text::text(session.as_ref(), &folder.to_string_lossy(), &beside))?;
    }
    Ok(if stopped { Exit::Stopped } else { Exit::Fine })
}

fn session(arguments: &Iotest, folder: &Path, stop: &AtomicBool) -> Result<Session> {
    let with_fio = arguments.engine == "fio";
    ensure!(
        !with_fio || fio::version().is_some(),
        "fio is not installed\nhint: install it, or leave --engine out"
    );
    let is_wanted = |pattern: &&Pattern| {
        arguments.pattern.is_empty() || arguments.pattern.iter().any(|name| name == pattern.name)
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let settings = Settings {
        folder: folder.to_owned(),
        file_bytes: arguments.size,
        reserve_bytes: arguments.reserve,
        page: arguments.page_size,
        time: arguments.time,
        compressible_percent: arguments.compressible,
        method: match arguments.io.as_str() {
            "uring" => Some(Method::Ring),
            "threads" => Some(Method::Threads),
            _ => None,
        },
        with_fio,
        patterns: PATTERNS.iter().filter(is_wanted).collect(),
        with_sweeps: !arguments.no_sweep,
        seed: since.as_secs(),
        rate: arguments.rate.ceiling(),
    };
    let mut show = show::Show::choose(arguments.shown.quiet, arguments.shown.progress);
    let measured = measure(&settings, stop, &mut |event| show.tell(event));
    show.end();
    measured
}

/// Reads a database as `pack --to null:` does its pages, past the page cache, since
/// the disk is in question. `None` if it was stopped.
fn read_to_nowhere(
    arguments: &Iotest,
    path: &Path,
    folder: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<Option<Reading>> {
    let cores = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let options = Options {
        jobs: arguments.jobs.unwrap_or(cores),
        rate: arguments.rate,
        caching: Caching::Direct,
        stop: Arc::clone(stop),
        ..Options::default()
    };
    let progress = Show::choose(arguments.shown.quiet, arguments.shown.progress);
    let target = database::open(path, None)?;
    if progress.wants_total()
        && let Some(bytes) = listed_bytes(path, None)
    {
        progress.expect(bytes);
    }
    let cpu = processor_time();
    let verified = verify(target, &options, &progress, &mut Nowhere);
    progress.end();
    let summary = verified.with_context(|| format!("cannot read {}", path.display()))?.summary;
    if summary.stopped {
        return Ok(None);
    }
    let cpu = processor_time().saturating_sub(cpu);
    let seconds = summary.elapsed.as_secs_f64();
    let device = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.dev());
    Ok(Some(Reading {
        bytes: summary.bytes,
        seconds,
        mib_per_second: summary.mib_per_second(),
        cores_busy: (seconds > 0.0).then(|| cpu.as_secs_f64() / seconds),
        jobs: Some(options.jobs.get()),
        files: Some(summary.files),
        is_same_disk: device(path).zip(device(folder)).map(|(one, other)| one == other),
    }))
}

/// Takes results and keeps none: how sound the database is, `check` says.
struct Nowhere;

impl Sink for Nowhere {
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

/// The backups that the files report.
fn backups(files: &[PathBuf]) -> Result<Vec<Backup>> {
    let mut backups = Vec::new();
    for file in files {
        let shown = file.display();
        let mut bytes = Vec::new();
        let read = if file == Path::new("-") {
            io::stdin().take(MESSAGES_BYTES_MAX).read_to_end(&mut bytes)
        } else {
            pagewarden::source::file::open_regular(file)
                .and_then(|file| file.take(MESSAGES_BYTES_MAX).read_to_end(&mut bytes))
        };
        read.with_context(|| format!("cannot read {shown}"))?;
        let found = parse(&decoded(&bytes));
        if found.is_empty() {
            bail!(
                "{shown} holds no message of a backup\n\
                 hint: save what BACKUP DATABASE prints, its last line included"
            );
        }
        backups.extend(found);
    }
    Ok(backups)
}

/// Tools on Windows save UTF-16 as often as UTF-8.
fn decoded(bytes: &[u8]) -> String {
    let units = |of: fn([u8; 2]) -> u16| -> String {
        let pairs = bytes.get(2..).unwrap_or_default().chunks_exact(2);
        let units: Vec<u16> = pairs.filter_map(|pair| pair.try_into().ok().map(of)).collect();
        String::from_utf16_lossy(&units)
    };
    match bytes {
        [0xff, 0xfe, ..] => units(u16::from_le_bytes),
        [0xfe, 0xff, ..] => units(u16::from_be_bytes),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_saved_on_windows_are_read() {
        let text = "BACKUP \u{443} 1";
        let little: Vec<u8> =
            std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        assert_eq!(decoded(&little), text);
        assert_eq!(decoded(text.as_bytes()), text);
        assert_eq!(decoded(&[0xff, 0xfe, b'a']), "");
    }
}
