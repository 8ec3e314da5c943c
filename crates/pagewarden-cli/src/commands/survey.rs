//! `pagewarden survey`: one reading of a database, and the answers to what its owner
//! asks: what is it, what protects it, is it sound, how fast is it read, what would
//! more cost, what next.
//!
//! ```text
//! target --> verify --> Surveyed --> answers --> screen, page, JSON
//!                          ^
//!            runs of `cost` on this machine
//! ```

use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime};

use anyhow::Result;
use pagewarden::database::repository::kind_of as repository_kind;
use pagewarden::database::{self, Description, OpenOptions, Target, parts, stored};
use pagewarden::report::Traffic;
use pagewarden::source::pipe::StandardInput;
use pagewarden::source::store::{Seen, StorePath, Stores as _};
use pagewarden::verdict::{Finding, Note, Severity, Unread, Verdict};
use pagewarden::verify::{Options, Sink, Summary, Verified, verify};
use pagewarden::words::utc;

use crate::args::survey::Survey;
use crate::commands::storage::Storage;
use crate::exit::{self, Exit};
use crate::progress::{Show, listed_bytes};
use crate::replaced_file::{Content, ReplacedFile};
use crate::signals::stop_on_signals;
use crate::terminal::{colours, print, width};

mod advice;
mod answers;
mod json;
mod page;
#[cfg_attr(not(unix), path = "survey/no_price.rs")]
mod price;
mod repository;
mod screen;

/// This number of findings is listed one by one; `check` lists all.
const FINDINGS_TOLD: usize = 3;

/// All that a survey found out.
struct Surveyed {
    /// The path as it was named.
    path: PathBuf,
    description: Description,
    summary: Summary,
    verdict: Verdict,
    /// The first of the gravest findings.
    findings: Vec<Finding>,
    /// The first stretches that could not be read.
    unread: Vec<Unread>,
    /// Bytes that came from a device and not from memory, where the system tells.
    device_bytes: Option<u64>,
    /// What was asked of object stores, if it is in one.
    storage: Option<Traffic>,
    /// What protection costs on this machine.
    price: price::Price,
    /// When it ended.
    ended: String,
}

/// Runs the command.
pub fn run(arguments: &Survey) -> Result<Exit> {
    exit::or_json("survey", arguments.shown.json, || report(arguments, Instant::now()))
}

fn report(arguments: &Survey, begin: Instant) -> Result<Exit> {
    let mut read = vec![arguments.path.clone()];
    read.extend(arguments.keyring.clone());
    let html = arguments.html.as_deref();
    let html = html.map(|path| ReplacedFile::prepare(path, Content::Html, &read)).transpose()?;
    let stop = stop_on_signals()?;
    let paths = [arguments.path.clone()];
    let storage = Storage::begin(&paths, &arguments.storage, arguments.rate, &stop)?;
    let place = storage.at(&arguments.path)?;
    let kind = arguments.format.as_deref().and_then(database::kind_named);
    if let Some(tool) = repository_kind(&place, kind) {
        return repository::run(arguments, tool, &place, &storage);
    }
    let surveyed = survey(arguments, &place, &storage, &stop)?;
    let answers = answers::answers(&surveyed);
    if arguments.shown.json {
        let object = json::object(&surveyed, begin.elapsed().as_secs_f64());
        print(&format!("{object}\n"))?;
    } else {
        print(&screen::screen(&surveyed, &answers, width(), colours()))?;
    }
    let exit = if surveyed.summary.stopped { Exit::Stopped } else { Exit::from(surveyed.verdict) };
    let written =
        html.map_or(Ok(()), |file| file.replace(page::page(&surveyed, &answers).as_bytes()));
    Ok(match written {
        Ok(()) => exit,
        Err(error) => {
            let unable = exit::report(&error);
            if exit == Exit::Fine { unable } else { exit }
        }
    })
}

fn survey(
    arguments: &Survey,
    place: &StorePath,
    storage: &Storage,
    stop: &Arc<AtomicBool>,
) -> Result<Surveyed> {
    let cores = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let options = Options {
        jobs: arguments.jobs.unwrap_or(cores),
        rate: arguments.rate.unwrap_or_default(),
        accepts_unverifiable: arguments.accept_unverifiable,
        stop: Arc::clone(stop),
        ..Options::default()
    };
    let show = Show::choose(arguments.shown.quiet, arguments.shown.progress);
    let kind = arguments.format.as_deref().and_then(database::kind_named);
    // A folder of a store may be one database: a table of a lake.
    let is_one = || place.is_folder() && stored::of_folder(place, kind).is_some();
    let stored = match place.local_path() {
        None if is_one() => Some(place.clone()),
        _ => storage.file(&arguments.path).transpose()?,
    };
    let (target, _folder) = match &stored {
        Some(place) => stored::open(place, kind, &open_options(arguments))?,
        None => (open(arguments, &options)?, None),
    };
    if show.wants_total()
        && arguments.path != Path::new("-")
        && let Some(bytes) = match &stored {
            Some(place) => file_bytes(place),
            None => listed_bytes(&arguments.path, kind),
        }
    {
        show.expect(bytes);
    }
    let mut kept = Kept::default();
    let before = device_bytes();
    let verified = verify(target, &options, &show, &mut kept);
    let device_bytes = device_bytes().zip(before).map(|(now, then)| now.saturating_sub(then));
    // What came over a network came from no device of this machine.
    let device_bytes = device_bytes.filter(|_| stored.is_none());
    show.end();
    let verified = verified?;
    let verdict = verified.verdict();
    let Verified { description, summary, .. } = verified;
    let price = price::price(&description, &price::runs());
    Ok(Surveyed {
        path: arguments.path.clone(),
        description,
        verdict,
        findings: kept.findings,
        unread: kept.unread,
        device_bytes,
        storage: storage.traffic(),
        price,
        ended: utc(SystemTime::now()),
        summary,
    })
}

fn file_bytes(place: &StorePath) -> Option<u64> {
    place.look().ok().and_then(Seen::bytes)
}

fn open_options(arguments: &Survey) -> OpenOptions {
    let (keyring, jobs) = (arguments.keyring.clone(), arguments.jobs);
    let mut options = OpenOptions { keyring, jobs, ..OpenOptions::default() };
    options.repository.cipher_pass_file.clone_from(&arguments.cipher_pass_file);
    options.repository.stanza.clone_from(&arguments.stanza);
    options
}

fn open(arguments: &Survey, options: &Options) -> Result<Target> {
    let open_options = open_options(arguments);
    let kind = arguments.format.as_deref().and_then(database::kind_named);
    if arguments.path == Path::new("-") {
        let input = StandardInput::new(Arc::clone(&options.stop));
        return Ok(database::open_stream(&arguments.path, Box::new(input), kind, &open_options)?);
    }
    let paths = [arguments.path.clone()];
    Ok(parts::open_together(&paths, kind, &open_options)?)
}

/// What this process has had read from devices so far, as Linux counts it.
fn device_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

/// Keeps the first of what is found, the gravest first.
#[derive(Default)]
struct Kept {
    findings: Vec<Finding>,
    unread: Vec<Unread>,
}

impl Sink for Kept {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        if finding.severity == Severity::Notice {
            return Ok(());
        }
        self.findings.push(finding.clone());
        if self.findings.len() > FINDINGS_TOLD {
            // Stable: of those alike the first stay.
            self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
            self.findings.truncate(FINDINGS_TOLD);
        }
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        if self.unread.len() < FINDINGS_TOLD {
            self.unread.push(unread.clone());
        }
        Ok(())
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }
}
