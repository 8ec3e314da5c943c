//! `pagewarden pack`: verifies a database and makes one compressed file of it, or
//! throws it away to learn how fast it can be read.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Result;
use pagewarden::database;
use pagewarden::pack::Forecast;
use pagewarden::packing::{self, Failure, Packed, Request, Watch};
use pagewarden::report::several::Several;
use pagewarden::report::text::TextReport;
use pagewarden::verdict::Verdict;
use pagewarden::verify::{Progress, mib_per_second};
use pagewarden::words::{bytes, counted, duration, rate};

use crate::args::pack::{Codec, Pack, Profile};
use crate::commands::storage::Storage;
use crate::exit::{self, Exit};
use crate::progress::Show;
use crate::signals::stop_on_signals;
use crate::terminal::colours;

mod estimate;
mod null;

/// Runs the command.
pub fn run(arguments: &Pack) -> Result<Exit> {
    exit::or_json("pack", arguments.json, || pack(arguments))
}

fn pack(arguments: &Pack) -> Result<Exit> {
    let stop = stop_on_signals()?;
    let show = Show::choose(arguments.quiet, arguments.progress);
    match &arguments.output {
        Some(output) => run_to_file(arguments, output, &stop, &show),
        None if arguments.estimate => estimate::run(arguments, &stop, &show),
        None => null::run(arguments, &stop, &show),
    }
}

/// What is asked for.
fn request(arguments: &Pack) -> Request {
    let profile = arguments.profile.map(|profile| match profile {
        Profile::Oltp => packing::Profile::Oltp,
        Profile::Scan => packing::Profile::Scan,
        Profile::Archive => packing::Profile::Archive,
    });
    let codec = arguments.codec.map(|codec| match codec {
        Codec::Raw => packing::Codec::Raw,
        Codec::Lz4 => packing::Codec::Lz4,
        Codec::Zstd => packing::Codec::Zstd,
    });
    Request {
        source: arguments.source.clone(),
        // What the source is to be taken for, if that was said.
        format: arguments.format.as_deref().and_then(database::kind_named),
        base: arguments.base.clone(),
        tablespace: arguments.tablespace.clone(),
        profile,
        codec,
        level: arguments.level,
        keep_damaged: arguments.keep_damaged,
        accepts_unverifiable: arguments.accept_unverifiable,
        jobs: arguments.jobs,
        rate: arguments.rate,
    }
}

/// Why it could not be done, as the program says it. A reader of the output that has gone is known by
/// the error itself.
pub fn told(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Report(error) => error.into(),
        Failure::Of(error) => error.into(),
        other => other.into(),
    }
}

/// What a run says on its way.
pub struct Told<'a> {
    show: &'a Show,
    /// Results are one object, and no report is printed.
    is_json: bool,
    /// Nothing is said on standard error.
    is_quiet: bool,
}

impl<'a> Told<'a> {
    /// As the flags ask for.
    pub fn new(show: &'a Show, is_json: bool, is_quiet: bool) -> Self {
        Self { show, is_json, is_quiet }
    }
}

impl Progress for Told<'_> {
    fn advance(&self, bytes: u64) {
        self.show.advance(bytes);
    }
}

impl Watch for Told<'_> {
    fn expect(&self, bytes: u64) {
        self.show.expect(bytes);
    }

    fn wants_forecast(&self) -> bool {
        !self.is_quiet || self.is_json
    }

    fn forecast(&self, forecast: &Forecast) -> io::Result<()> {
        if self.is_quiet {
            return Ok(());
        }
        writeln!(io::stderr(), "{}", estimate::forecast_words(forecast))
    }

    fn report<'a>(&'a self, reports: &mut Several<'a>) {
        if !self.is_json {
            reports.add(TextReport::new(self.show.output(), colours()));
        }
    }
}

fn run_to_file(
    arguments: &Pack,
    output: &Path,
    stop: &Arc<AtomicBool>,
    show: &Show,
) -> Result<Exit> {
    let begin = Instant::now();
    let named = [&arguments.source].into_iter().chain(&arguments.output).chain(&arguments.base);
    let storage = Storage::begin(named, &arguments.storage, arguments.rate, stop)?;
    let watch = Told::new(show, arguments.json, arguments.quiet);
    let packed = packing::pack(&request(arguments), output, &storage, stop, &watch);
    show.end();
    if let Some(words) = storage.left_behind() {
        writeln!(
            io::stderr(),
            "warning: {words}\n\
             hint: they cost money until a rule of the bucket ends unfinished multipart uploads"
        )?;
    }
    let packed = match packed.map_err(told) {
        Err(error) if is_interruption(&error) => {
            exit::report(&error);
            return Ok(Exit::Stopped);
        }
        packed => packed?,
    };
    let mut out = show.output();
    if arguments.json {
        let object = packed.object(output, begin.elapsed(), storage.traffic()).map_err(told)?;
        writeln!(out, "{object}")?;
    } else {
        if let Some(traffic) = storage.traffic() {
            writeln!(out, "Object storage: {traffic}")?;
        }
        print(&packed, &mut out, begin.elapsed())?;
    }
    out.flush()?;
    if packed.made.is_none() && !packed.was_stopped() && !arguments.json {
        exit::report(&anyhow::anyhow!(
            "no pack was made: the verdict is {}\n\
             hint: mend what is reported above; --keep-damaged packs it as it is",
            packed.verdict.name()
        ));
    }
    Ok(match packed.made {
        _ if packed.verdict == Verdict::Damaged => Exit::Wrong,
        Some(_) => Exit::Fine,
        None if packed.was_stopped() => Exit::Stopped,
        None => Exit::Unable,
    })
}

/// True if it was stopped while something was sent, which is no fault of the store.
fn is_interruption(error: &anyhow::Error) -> bool {
    let is_one = |error: &io::Error| error.kind() == io::ErrorKind::Interrupted;
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|error| {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<io::Error>());
        is_one(error) || inner.is_some_and(is_one)
    })
}

fn print(packed: &Packed, out: &mut impl Write, elapsed: Duration) -> io::Result<()> {
    let Some((root, totals)) = packed.made else { return Ok(()) };
    writeln!(
        out,
        "Packed {} ({}) into {}, {:.2} times smaller, in {} ({} MiB/s)\nRoot {root}",
        counted(totals.files, "file"),
        bytes(totals.bytes),
        bytes(totals.stored_bytes),
        totals.bytes as f64 / totals.stored_bytes.max(1) as f64,
        duration(elapsed),
        rate(mib_per_second(totals.bytes, elapsed)),
    )?;
    if let Some(base) = packed.base {
        let blocks = counted(totals.base_blocks, "block");
        writeln!(out, "A delta to root {base}, with {blocks} unchanged")?;
    }
    if packed.verdict == Verdict::Unprotected {
        writeln!(
            out,
            "Its pages carry no checksums: the pack finds what changes from now on, not what was \
             wrong before"
        )?;
    }
    Ok(())
}
