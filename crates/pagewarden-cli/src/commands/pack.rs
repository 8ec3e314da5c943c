//! `pagewarden pack`: verifies a database and makes one compressed file of it, or
//! throws it away to learn how fast it can be read.

use std::fs;
use std::io::{self, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use pagewarden::database::{self, Format, OpenOptions, Target, stored};
use pagewarden::pack::{
    Content, Method, PackedTablespace, Packing, Root, Search, Settings, Strays, Totals,
    open_chain_in, train,
};
use pagewarden::report::json::JsonReport;
use pagewarden::report::several::Several;
use pagewarden::report::text::TextReport;
use pagewarden::report::{Report as _, RunEnd, TargetEnd};
use pagewarden::verdict::{Note, Verdict};
use pagewarden::verify::{Options, Sink as _, Summary, mib_per_second, verify};
use pagewarden::words::{bytes, counted, duration, rate};
use serde_json::{Value, json};

use self::place::Place;
use crate::args::pack::{Codec, Pack, Profile};
use crate::commands::storage::Storage;
use crate::exit::{self, Exit};
use crate::progress::Show;
use crate::signals::stop_on_signals;
use crate::terminal::colours;

mod estimate;
mod null;
mod place;
mod repack;
mod stream;
mod tablespace;

pub use repack::repack;

/// Blocks of `--profile oltp`: a page each, within these bounds, or the last of these where
/// the length of a page is not known.
const PAGE_BLOCK_BYTES_MIN: u32 = 4 << 10;
const PAGE_BLOCK_BYTES_MAX: u32 = 32 << 10;
const PAGE_BLOCK_BYTES: u32 = 16 << 10;
const SCAN_BLOCK_BYTES: u32 = 256 << 10;
const ARCHIVE_BLOCK_BYTES: u32 = 1 << 20;
/// The name that stands for standard input.
const STANDARD_INPUT: &str = "-";

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

fn options(arguments: &Pack, stop: &Arc<AtomicBool>) -> Options {
    let cores = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    Options {
        jobs: arguments.jobs.unwrap_or(cores),
        rate: arguments.rate.unwrap_or_default(),
        accepts_unverifiable: arguments.accept_unverifiable,
        stop: Arc::clone(stop),
        ..Options::default()
    }
}

/// What is packed from a folder or a file.
struct Whole<'a> {
    source: &'a Path,
    target: Target,
    /// What is to be remembered, if it is a tablespace to be mounted in its place.
    tablespace: Option<PackedTablespace>,
    /// The pack that the source is a mount of, whose links are folders in it.
    mounted: Option<&'a pagewarden::pack::Pack>,
}

/// What came out.
pub struct Packed {
    /// Of the pages that were packed.
    pub verdict: Verdict,
    summary: Summary,
    /// The report of the check.
    check: Vec<u8>,
    /// The root of what a delta builds on.
    base: Option<Root>,
    /// `None` if no pack was made.
    pub made: Option<(Root, Totals)>,
    /// How fast it could be read, as JSON.
    prediction: Value,
}

impl Packed {
    /// True if a user has ended it early.
    pub fn was_stopped(&self) -> bool {
        self.summary.stopped
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
    let packed = make_file(arguments, output, &storage, stop, show);
    show.end();
    if let Some(words) = storage.left_behind() {
        writeln!(
            io::stderr(),
            "warning: {words}\n\
             hint: they cost money until a rule of the bucket ends unfinished multipart uploads"
        )?;
    }
    let packed = match packed {
        Err(error) if is_interruption(&error) => {
            exit::report(&error);
            return Ok(Exit::Stopped);
        }
        packed => packed?,
    };
    let mut out = show.output();
    if arguments.json {
        let mut object = packed.object(output, begin.elapsed())?;
        if let (Some(traffic), Some(object)) = (storage.traffic(), object.as_object_mut()) {
            object.insert("storage".to_owned(), json!(traffic));
        }
        writeln!(out, "{object}")?;
    } else {
        if let Some(traffic) = storage.traffic() {
            writeln!(out, "Object storage: {traffic}")?;
        }
        packed.print(&mut out, begin.elapsed())?;
    }
    out.flush()?;
    if packed.made.is_none() && !packed.summary.stopped && !arguments.json {
        exit::report(&anyhow::anyhow!(
            "no pack was made: the verdict is {}\n\
             hint: mend what is reported above; --keep-damaged packs it as it is",
            packed.verdict.name()
        ));
    }
    Ok(match packed.made {
        _ if packed.verdict == Verdict::Damaged => Exit::Wrong,
        Some(_) => Exit::Fine,
        None if packed.summary.stopped => Exit::Stopped,
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

/// Makes the pack of whatever the source is.
fn make_file(
    arguments: &Pack,
    output: &Path,
    storage: &Storage,
    stop: &Arc<AtomicBool>,
    show: &Show,
) -> Result<Packed> {
    let source = arguments.source.as_path();
    if source == Path::new(STANDARD_INPUT) {
        let place = Place::prepare_in(storage, output, None::<&Path>)?;
        return stream::make(arguments, stream::Input::standard(stop)?, place, stop, show);
    }
    if let Some(stored) = storage.file(source).transpose()? {
        let place = Place::prepare_in(storage, output, None::<&Path>)?;
        let opened = stored::open_stream(&stored, kind(arguments), &OpenOptions::default())?;
        if opened.is_some() {
            return stream::make(arguments, stream::Input::stored(&stored)?, place, stop, show);
        }
        let (_folder, copy) = stored::copy(&stored)?;
        return make_at_rest(arguments, &copy, place, stop, show);
    }
    if let Some(name) = &arguments.tablespace {
        return tablespace::make(arguments, name, output, storage, stop, show);
    }
    let place = Place::prepare_in(storage, output, [source])?;
    make_at_rest(arguments, source, place, stop, show)
}

/// Makes the pack of a database of this machine that no server uses.
fn make_at_rest(
    arguments: &Pack,
    source: &Path,
    place: Place<'_>,
    stop: &Arc<AtomicBool>,
    show: &Show,
) -> Result<Packed> {
    let target = open(source, kind(arguments))?;
    ensure!(
        !target.description.live,
        "cannot pack {}: a server runs on it, or has not ended properly\n\
         hint: shut it down first, or pack a backup of it",
        source.display()
    );
    let whole = Whole { source, target, tablespace: None, mounted: None };
    make(arguments, whole, place, stop, show)
}

impl Packed {
    fn object(&self, output: &Path, elapsed: Duration) -> Result<Value> {
        let mut object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "pack",
            "verdict": self.verdict.name(),
            "output": output,
            "packed": null,
            "prediction": self.prediction,
            "check": serde_json::from_slice::<Value>(&self.check)?,
            "seconds": elapsed.as_secs_f64(),
        });
        if let (Some((root, totals)), Some(object)) = (self.made, object.as_object_mut()) {
            let packed = json!({
                "root": root.to_string(),
                "base": self.base.map(|base| base.to_string()),
                "files": totals.files,
                "bytes": totals.bytes,
                "stored_bytes": totals.stored_bytes,
                "blocks": {
                    "compressed": totals.compressed_blocks,
                    "raw": totals.raw_blocks,
                    "zero": totals.zero_blocks,
                    "base": totals.base_blocks,
                },
            });
            object.insert("packed".to_owned(), packed);
        }
        Ok(object)
    }

    fn print(&self, out: &mut impl Write, elapsed: Duration) -> io::Result<()> {
        let Some((root, totals)) = self.made else { return Ok(()) };
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
        if let Some(base) = self.base {
            let blocks = counted(totals.base_blocks, "block");
            writeln!(out, "A delta to root {base}, with {blocks} unchanged")?;
        }
        if self.verdict == Verdict::Unprotected {
            writeln!(
                out,
                "Its pages carry no checksums: the pack finds what changes from now on, not what was \
                 wrong before"
            )?;
        }
        Ok(())
    }
}

/// What the source is to be taken for, if that was said.
fn kind(arguments: &Pack) -> Option<&'static Format> {
    arguments.format.as_deref().and_then(database::kind_named)
}

fn open(source: &Path, kind: Option<&Format>) -> Result<Target> {
    let target = database::open(source, kind)?;
    let format = database::kind_named(target.description.format);
    for (suffix, what) in format.map_or(&[][..], |format| format.sidecars) {
        let mut name = source.as_os_str().to_owned();
        name.push(suffix);
        let beside = PathBuf::from(name);
        let is_needed = fs::metadata(&beside).is_ok_and(|metadata| metadata.len() > 0);
        ensure!(
            !is_needed,
            "cannot pack {}: its {what} {} is part of it\n\
             hint: open it with sqlite3 and run PRAGMA journal_mode = DELETE",
            source.display(),
            beside.display()
        );
    }
    Ok(target)
}

fn make(
    arguments: &Pack,
    whole: Whole<'_>,
    place: Place<'_>,
    stop: &Arc<AtomicBool>,
    show: &Show,
) -> Result<Packed> {
    let Whole { source, target, tablespace, mounted } = whole;
    let options = options(arguments, stop);
    let base = match &arguments.base {
        Some(base) => Some(Arc::new(open_chain_in(&place.store(base)?, &[], Search::Beside)?)),
        None => None,
    };
    let mut content = Content::list(source, Strays::Refused)?;
    if let Some(mounted) = mounted {
        repack::restore_links(&mut content, mounted);
    }
    let left_out = content.left_out.clone();
    // A delta has blocks as its base has them, and what is packed again as it had them.
    let older = base.as_deref().or(mounted);
    let settings = settings(arguments, &content, target.description.page_size, older)?;
    if base.is_none() {
        place.has_room(&content, &settings)?;
    }
    let prediction = estimate::predict(arguments, &content, &settings, stop)?;
    show.expect(content.bytes());
    let out = place.out(Some(content.bytes()))?;
    let base_root = base.as_ref().map(|base| base.root());
    let (target, packing) = Packing::begin(target, content, settings, base, out, stop)?;
    let (verdict, mut summary, mut check) = check(arguments, target, &left_out, &options, show)?;
    if let Some(tablespace) = &tablespace {
        check = with_tablespace(&check, tablespace)?;
    }
    let cannot = || format!("cannot make {}", place.path.display());
    if let Some(error) = packing.failure() {
        return Err(error).with_context(cannot);
    }
    let is_kept = is_sound_enough(verdict) || arguments.keep_damaged;
    if summary.stopped || !is_kept {
        return Ok(Packed { verdict, summary, check, base: base_root, made: None, prediction });
    }
    match packing.pack_rest(options.jobs.get(), options.rate.ceiling(), show) {
        Err(_) if stop.load(Ordering::Relaxed) => {
            summary.stopped = true;
            return Ok(Packed { verdict, summary, check, base: base_root, made: None, prediction });
        }
        packed => packed?,
    }
    let (out, root, totals) = packing.finish(&check).with_context(cannot)?;
    place.keep(out)?;
    Ok(Packed { verdict, summary, check, base: base_root, made: Some((root, totals)), prediction })
}

/// True if a pack may be made of it without being asked to: what is damaged, or was not
/// looked at in full, must not become the copy that is believed.
fn is_sound_enough(verdict: Verdict) -> bool {
    !matches!(verdict, Verdict::Damaged | Verdict::Incomplete)
}

/// Verifies the target, with the report on standard output and, as JSON, for the
/// pack.
fn check(
    arguments: &Pack,
    target: Target,
    left_out: &[PathBuf],
    options: &Options,
    show: &Show,
) -> Result<(Verdict, Summary, Vec<u8>)> {
    let mut check = Vec::new();
    let mut reports = Several::default();
    reports.add(JsonReport::begin(&mut check, "check")?);
    if !arguments.json {
        reports.add(TextReport::new(show.output(), colours()));
    }
    reports.begin_target(&target.description)?;
    let verified = verify(target, options, show, &mut reports)?;
    for link in left_out {
        let text = "a link to a folder that lies elsewhere, which is not in the pack".to_owned();
        reports.note(&Note { file: link.to_string_lossy().into_owned(), text })?;
    }
    let verdict = verified.verdict();
    let now = SystemTime::now();
    reports.end_target(&TargetEnd {
        verified: &verified,
        listed_bytes: None,
        ended: now,
        overall: None,
    })?;
    let summary = verified.summary;
    reports.end(&RunEnd {
        verdict,
        total: &summary,
        opened: 1,
        protection_missed: false,
        storage: None,
        drill: None,
        ended: now,
    })?;
    drop(reports);
    Ok((verdict, summary, check))
}

/// The report of the check, with what was packed.
fn with_tablespace(check: &[u8], tablespace: &PackedTablespace) -> Result<Vec<u8>> {
    let mut report: serde_json::Map<String, Value> = serde_json::from_slice(check)?;
    report.insert("tablespace".to_owned(), serde_json::to_value(tablespace)?);
    Ok(serde_json::to_vec(&report)?)
}

/// As asked for, with blocks as an older pack has them.
fn settings(
    arguments: &Pack,
    content: &Content,
    page_size: u32,
    older: Option<&pagewarden::pack::Pack>,
) -> Result<Settings> {
    let (mut settings, wants_dictionary) = plain_settings(arguments, page_size);
    if let Some(older) = older {
        let older = u32::try_from(older.block_bytes())?;
        ensure!(
            arguments.profile.is_none() || arguments.profile == profile_of(older),
            "the base has blocks of {}, and the profile asks for {}\n\
             hint: leave --profile out, or name the one that the base was made with",
            bytes(older.into()),
            bytes(settings.block_bytes.into())
        );
        settings.block_bytes = older;
    }
    if wants_dictionary {
        settings.dictionary = train(content, settings.block_bytes)
            .with_context(|| format!("cannot read {}", arguments.source.display()))?;
    }
    Ok(settings)
}

/// Without a dictionary, and whether there is to be one.
fn plain_settings(arguments: &Pack, page_size: u32) -> (Settings, bool) {
    let (block_bytes, level) = match arguments.profile {
        None => (64 << 10, 3),
        Some(Profile::Oltp) => (page_blocks(page_size), 3),
        Some(Profile::Scan) => (SCAN_BLOCK_BYTES, 3),
        Some(Profile::Archive) => (ARCHIVE_BLOCK_BYTES, 19),
    };
    let method = match arguments.codec {
        Some(Codec::Raw) => Method::Raw,
        Some(Codec::Lz4) => Method::Lz4,
        Some(Codec::Zstd) | None => Method::Zstd(arguments.level.unwrap_or(level)),
    };
    let wants_dictionary =
        arguments.profile == Some(Profile::Oltp) && matches!(method, Method::Zstd(_));
    (Settings { block_bytes, method, dictionary: Vec::new() }, wants_dictionary)
}

/// A block for each page: who looks a row up reads and expands nothing that he did not
/// ask for.
fn page_blocks(page_size: u32) -> u32 {
    if !page_size.is_power_of_two() {
        return PAGE_BLOCK_BYTES;
    }
    page_size.clamp(PAGE_BLOCK_BYTES_MIN, PAGE_BLOCK_BYTES_MAX)
}

/// The profile whose packs have such blocks, whatever their pages; 64 KiB are no
/// profile's.
fn profile_of(block_bytes: u32) -> Option<Profile> {
    match block_bytes {
        PAGE_BLOCK_BYTES_MIN..=PAGE_BLOCK_BYTES_MAX => Some(Profile::Oltp),
        SCAN_BLOCK_BYTES => Some(Profile::Scan),
        ARCHIVE_BLOCK_BYTES => Some(Profile::Archive),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_for_lookups_have_a_block_for_each_page() {
        for page in [4096, 8192, 16_384, 32_768] {
            assert_eq!(page_blocks(page), page);
        }
        assert_eq!([512, 1024, 65_536].map(page_blocks), [4096, 4096, 32_768]);
        // A stream, and pages that are none of a power of two.
        assert_eq!([0, 5000].map(page_blocks), [16_384, 16_384]);
    }

    #[test]
    fn a_profile_is_known_by_its_blocks() {
        for page in [0, 512, 4096, 8192, 16_384, 65_536] {
            assert_eq!(profile_of(page_blocks(page)), Some(Profile::Oltp), "{page}");
        }
        assert_eq!(profile_of(64 << 10), None);
        assert_eq!(profile_of(SCAN_BLOCK_BYTES), Some(Profile::Scan));
        assert_eq!(profile_of(ARCHIVE_BLOCK_BYTES), Some(Profile::Archive));
    }
}
