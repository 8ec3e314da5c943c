//! `pagewarden iotest`: measures a disk, holds a real database or real backups
//! against it, and reports.

use std::fs;
use std::io::{self, Read as _};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use pagewarden::database;
use pagewarden::system::MetadataExt as _;
use pagewarden::verify::{Caching, Options, verify};
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
    // How sound the database is, `check` says.
    let verified = verify(target, &options, &progress, &mut ());
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
        // The reading by which most can be understood; of two as good ones the first.
        let read = readings(&bytes).into_iter().map(|text| parse(&text));
        let understood = |found: &Vec<Backup>| found.iter().filter(|it| it.is_consistent).count();
        let found = read.reduce(
            |best, next| {
                if understood(&next) > understood(&best) { next } else { best }
            },
        );
        let found = found.unwrap_or_default();
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

/// A text in every way it may have been saved. Tools on Windows save UTF-16 as often as UTF-8, and
/// some the code page of their language; of those only figures and a few English words matter, which
/// are the same in all. But the second byte of a character of two may look like a bracket.
fn readings(bytes: &[u8]) -> Vec<String> {
    let units = |bytes: &[u8], of: fn([u8; 2]) -> u16| -> String {
        let pairs = bytes.chunks_exact(2);
        let units: Vec<u16> = pairs.filter_map(|pair| pair.try_into().ok().map(of)).collect();
        String::from_utf16_lossy(&units)
    };
    let zero_in = |odd: usize| {
        bytes.get(1).is_some() && bytes.iter().skip(odd).step_by(2).take(4).all(|byte| *byte == 0)
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => vec![units(rest, u16::from_le_bytes)],
        [0xfe, 0xff, rest @ ..] => vec![units(rest, u16::from_be_bytes)],
        _ if zero_in(1) => vec![units(bytes, u16::from_le_bytes)],
        _ if zero_in(0) => vec![units(bytes, u16::from_be_bytes)],
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => vec![text.to_owned()],
            Err(_) => {
                let lossy = String::from_utf8_lossy(bytes).into_owned();
                vec![lossy, of_two_bytes(bytes, false), of_two_bytes(bytes, true)]
            }
        },
    }
}

/// A text in a code page whose characters have one byte or two (936, 949, 950, and 932, which has
/// katakana of one byte): those beyond ASCII are blotted out.
fn of_two_bytes(bytes: &[u8], has_katakana: bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte.is_ascii() {
            text.push(char::from(byte));
            continue;
        }
        if !has_katakana || !(0xa0..=0xdf).contains(&byte) {
            rest.next_if(|next| *next >= 0x40);
        }
        text.push(char::REPLACEMENT_CHARACTER);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_saved_on_windows_are_read() {
        let text = "BACKUP \u{443} 1";
        let little: Vec<u8> =
            std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        assert_eq!(readings(&little), [text]);
        assert_eq!(readings(&little[2..]), [text], "without its mark");
        assert_eq!(readings(text.as_bytes()), [text]);
        assert_eq!(readings(&[0xff, 0xfe, b'a']), [""]);
        assert_eq!(readings(b""), [""]);
    }

    /// The same words in code page 932, where a long vowel ends with the byte of a bracket, and in one
    /// of one byte a character.
    #[test]
    fn messages_in_the_code_page_of_their_language_are_read() {
        let japanese =
            b"BACKUP DATABASE \x82\xc9\x82\xe6\x82\xe8 585 \x83y\x81[\x83W\x82\xaa 0.037 \
            \x95b\x8a\xd4\x82\xc5\xbf (123.350 MB/\x95b)\x81B";
        let german =
            b"BACKUP DATABASE hat 585 Seiten in 0,037 Sekunden verarbeitet f\xfcr (123,350 MB/s).";
        for bytes in [&japanese[..], german] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            io::Write::write_all(&mut file, bytes).unwrap();
            let found = backups(&[file.path().to_owned()]).unwrap();
            let [backup] = &*found else { panic!("{found:?}") };
            assert_eq!((backup.pages, backup.is_consistent), (585, true));
        }
    }
}
