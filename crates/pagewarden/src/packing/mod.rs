//! A pack, made of whatever it can be made of: a folder, a file, a file of a store, a stream, one
//! tablespace, what was written over a mounted pack. The program and the Python module both make
//! theirs here.
//!
//! ```text
//! Request --> Place (can it be written?) --> Content, Target --> Packing or StreamPacking
//!                                                                      |
//!             Packed <-- it gets its name <-- the verdict is good enough
//! ```
//!
//! What a run has to say on its way goes to a [`Watch`]. What was found is in [`Packed`], also where
//! no pack was made of it.

use std::fs;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::database::{self, Format, OpenOptions, Target, stored};
use crate::error::ErrorKind;
use crate::pack::{
    Content, Forecast, Method, Pack, PackedTablespace, Packing, Root, Search, Settings, Strays,
    Totals, open_chain_in, train,
};
use crate::report::json::JsonReport;
use crate::report::several::Several;
use crate::report::{Report as _, RunEnd, TargetEnd};
use crate::source::rate::Rate;
use crate::source::store::Stores;
use crate::verdict::{Note, Verdict};
use crate::verify::{Options, Progress, Sink as _, Summary, verify};
use crate::words::bytes;

use self::place::Place;

mod failure;
pub mod null;
mod object;
mod place;
mod repack;
mod stream;
mod tablespace;

pub use failure::Failure;
pub use object::{codec, forecast_object};
pub use repack::repack;

/// What the functions of this room give.
pub type Result<T> = std::result::Result<T, Failure>;

/// Blocks of `--profile oltp`: a page each, within these bounds, or the last of these where
/// the length of a page is not known.
const PAGE_BLOCK_BYTES_MIN: u32 = 4 << 10;
const PAGE_BLOCK_BYTES_MAX: u32 = 32 << 10;
const PAGE_BLOCK_BYTES: u32 = 16 << 10;
const SCAN_BLOCK_BYTES: u32 = 256 << 10;
const ARCHIVE_BLOCK_BYTES: u32 = 1 << 20;
/// The name that stands for standard input.
pub const STANDARD_INPUT: &str = "-";

/// What is to be packed, and how.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// A folder, a file, an address of a store, or [`STANDARD_INPUT`].
    pub source: PathBuf,
    /// What the source is to be taken for.
    pub format: Option<&'static Format>,
    /// An earlier pack: only what has changed since is stored.
    pub base: Option<PathBuf>,
    /// The tablespace of the cluster `source` that is to be packed alone.
    pub tablespace: Option<String>,
    /// What it is optimized for.
    pub profile: Option<Profile>,
    /// Compression, instead of the profile's.
    pub codec: Option<Codec>,
    /// Level of zstd, instead of the profile's.
    pub level: Option<i32>,
    /// Damage, and what could not be looked at in full, is packed too.
    pub keep_damaged: bool,
    /// As of [`Options::accepts_unverifiable`].
    pub accepts_unverifiable: bool,
    /// Threads; the cores that there are, if it is not said.
    pub jobs: Option<NonZero<usize>>,
    /// A ceiling on bytes read a second.
    pub rate: Option<Rate>,
}

impl Request {
    /// One that asks for nothing in particular.
    #[must_use]
    pub fn of(source: &Path) -> Self {
        Self { source: source.to_owned(), ..Self::default() }
    }

    /// How its source is verified.
    #[must_use]
    pub fn options(&self, stop: &Arc<AtomicBool>) -> Options {
        let cores = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        Options {
            jobs: self.jobs.unwrap_or(cores),
            rate: self.rate.unwrap_or_default(),
            accepts_unverifiable: self.accepts_unverifiable,
            stop: Arc::clone(stop),
            ..Options::default()
        }
    }

    /// How fast a pack of `content` could be read, if that can be measured.
    ///
    /// # Errors
    /// The source cannot be read.
    pub fn measure(
        &self,
        content: &Content,
        settings: &Settings,
        stop: &AtomicBool,
    ) -> Result<Option<Forecast>> {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        // A user who sets a ceiling wants it kept.
        let may_read_device = self.rate.and_then(Rate::ceiling).is_none();
        Forecast::measure(content, settings, cores, may_read_device, stop)
            .map_err(Failure::io("read", &self.source))
    }
}

/// What a pack is optimized for. Without a profile blocks have 64 KiB, by zstd of level 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Lookups of single rows: a block for each page, with a dictionary.
    Oltp,
    /// Scans of whole tables: blocks of 256 KiB.
    Scan,
    /// Smallest size, slow to make: blocks of 1 MiB, zstd of level 19.
    Archive,
}

impl Profile {
    /// The profile of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "oltp" => Self::Oltp,
            "scan" => Self::Scan,
            "archive" => Self::Archive,
            _ => return None,
        })
    }
}

/// How blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Not at all.
    Raw,
    /// LZ4: larger, decompresses at the speed of memory.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Codec {
    /// The codec of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "raw" => Self::Raw,
            "lz4" => Self::Lz4,
            "zstd" => Self::Zstd,
            _ => return None,
        })
    }
}

/// Hears how a run goes on.
pub trait Watch: Progress {
    /// There are `bytes` more to read.
    fn expect(&self, bytes: u64) {
        let _ = bytes;
    }

    /// True if it is to be measured how fast the pack could be read, which takes a moment.
    fn wants_forecast(&self) -> bool {
        false
    }

    /// What was measured.
    ///
    /// # Errors
    /// It cannot be reported: the run ends.
    fn forecast(&self, forecast: &Forecast) -> io::Result<()> {
        let _ = forecast;
        Ok(())
    }

    /// Adds a report on what is verified, beside that in the pack.
    fn report<'a>(&'a self, reports: &mut Several<'a>) {
        let _ = reports;
    }
}

impl Watch for () {}

/// What is packed from a folder or a file.
struct Whole<'a> {
    source: &'a Path,
    target: Target,
    /// What is to be remembered, if it is a tablespace to be mounted in its place.
    tablespace: Option<PackedTablespace>,
    /// The pack that the source is a mount of, whose links are folders in it.
    mounted: Option<&'a Pack>,
}

/// What came out.
#[derive(Debug)]
#[non_exhaustive]
pub struct Packed {
    /// Of the pages that were packed.
    pub verdict: Verdict,
    summary: Summary,
    /// The report of the check.
    check: Vec<u8>,
    /// The root of what a delta builds on.
    pub base: Option<Root>,
    /// `None` if no pack was made.
    pub made: Option<(Root, Totals)>,
    /// How fast it could be read, if that was measured.
    forecast: Option<Forecast>,
}

impl Packed {
    /// True if a user has ended it early.
    #[must_use]
    pub fn was_stopped(&self) -> bool {
        self.summary.stopped
    }
}

/// Makes the pack `output`, a file or an object of a store, of whatever the source is.
///
/// What is damaged, or was not looked at in full, is not packed unless that was asked for: then
/// [`Packed::made`] is `None`, and so it is if the run was stopped.
///
/// # Errors
/// The source cannot be opened, a server runs on it, or the pack cannot be written: nothing is there
/// then. [`io::ErrorKind::Interrupted`] in an error is a stop while something was sent.
pub fn pack(
    request: &Request,
    output: &Path,
    stores: &dyn Stores,
    stop: &Arc<AtomicBool>,
    watch: &dyn Watch,
) -> Result<Packed> {
    let source = request.source.as_path();
    if source == Path::new(STANDARD_INPUT) {
        let place = Place::prepare_in(stores, output, None::<&Path>)?;
        return stream::make(request, stream::Input::standard(stop)?, place, stop, watch);
    }
    if let Some(stored) = stores.file(source).transpose()? {
        let place = Place::prepare_in(stores, output, None::<&Path>)?;
        let opened = stored::open_stream(&stored, request.format, &OpenOptions::default())?;
        if opened.is_some() {
            return stream::make(request, stream::Input::stored(&stored)?, place, stop, watch);
        }
        let (_folder, copy) = stored::copy(&stored)?;
        return pack_at_rest(request, &copy, place, stop, watch);
    }
    if let Some(name) = &request.tablespace {
        return tablespace::make(request, name, output, stores, stop, watch);
    }
    let place = Place::prepare_in(stores, output, [source])?;
    pack_at_rest(request, source, place, stop, watch)
}

/// Makes the pack of a database of this machine that no server uses.
fn pack_at_rest(
    request: &Request,
    source: &Path,
    place: Place<'_>,
    stop: &Arc<AtomicBool>,
    watch: &dyn Watch,
) -> Result<Packed> {
    let target = open(source, request.format)?;
    if target.description.live {
        let text = format!(
            "cannot pack {}: a server runs on it, or has not ended properly\n\
             hint: shut it down first, or pack a backup of it",
            source.display()
        );
        return Err(Failure::new(ErrorKind::InUse, source, text));
    }
    let whole = Whole { source, target, tablespace: None, mounted: None };
    make(request, whole, place, stop, watch)
}

fn open(source: &Path, kind: Option<&Format>) -> Result<Target> {
    let target = database::open(source, kind)?;
    let format = database::kind_named(target.description.format);
    for (suffix, what) in format.map_or(&[][..], |format| format.sidecars) {
        let mut name = source.as_os_str().to_owned();
        name.push(suffix);
        let beside = PathBuf::from(name);
        let is_needed = fs::metadata(&beside).is_ok_and(|metadata| metadata.len() > 0);
        if is_needed {
            let text = format!(
                "cannot pack {}: its {what} {} is part of it\n\
                 hint: open it with sqlite3 and run PRAGMA journal_mode = DELETE",
                source.display(),
                beside.display()
            );
            return Err(Failure::refused(source, text));
        }
    }
    Ok(target)
}

fn make(
    request: &Request,
    whole: Whole<'_>,
    place: Place<'_>,
    stop: &Arc<AtomicBool>,
    watch: &dyn Watch,
) -> Result<Packed> {
    let Whole { source, target, tablespace, mounted } = whole;
    let options = request.options(stop);
    let base = match &request.base {
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
    let settings = settings(request, &content, target.description.page_size, older)?;
    if base.is_none() {
        place.has_room(&content, &settings)?;
    }
    let forecast = match watch.wants_forecast() {
        true => request.measure(&content, &settings, stop)?,
        false => None,
    };
    if let Some(forecast) = &forecast {
        watch.forecast(forecast)?;
    }
    watch.expect(content.bytes());
    let out = place.out(Some(content.bytes()))?;
    let base_root = base.as_ref().map(|base| base.root());
    let cannot = || Failure::io("make", &place.path);
    let begun = Packing::begin(target, content, settings, base, out, stop);
    let (target, packing) = begun.map_err(cannot())?;
    let (verdict, mut summary, mut check) = check(target, &left_out, &options, watch)?;
    if let Some(tablespace) = &tablespace {
        check = object::with_tablespace(&check, tablespace)?;
    }
    if let Some(error) = packing.failure() {
        return Err(cannot()(error));
    }
    let is_kept = is_sound_enough(verdict) || request.keep_damaged;
    if summary.stopped || !is_kept {
        return Ok(Packed { verdict, summary, check, base: base_root, made: None, forecast });
    }
    match packing.pack_rest(options.jobs.get(), options.rate.ceiling(), watch) {
        Err(_) if stop.load(Ordering::Relaxed) => {
            summary.stopped = true;
            return Ok(Packed { verdict, summary, check, base: base_root, made: None, forecast });
        }
        packed => packed?,
    }
    let (out, root, totals) = packing.finish(&check).map_err(cannot())?;
    place.keep(out)?;
    Ok(Packed { verdict, summary, check, base: base_root, made: Some((root, totals)), forecast })
}

/// True if a pack may be made of it without being asked to: what is damaged, or was not
/// looked at in full, must not become the copy that is believed.
fn is_sound_enough(verdict: Verdict) -> bool {
    !matches!(verdict, Verdict::Damaged | Verdict::Incomplete)
}

/// Verifies the target, with a report for the pack as JSON, and those that the watch adds.
fn check(
    target: Target,
    left_out: &[PathBuf],
    options: &Options,
    watch: &dyn Watch,
) -> Result<(Verdict, Summary, Vec<u8>)> {
    let mut check = Vec::new();
    let mut reports = Several::default();
    reports.add(JsonReport::begin(&mut check, "check")?);
    watch.report(&mut reports);
    reports.begin_target(&target.description)?;
    let verified = verify(target, options, watch, &mut reports)?;
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

/// As asked for, with blocks as an older pack has them.
///
/// # Errors
/// The older pack has other blocks than the profile asks for, or the source cannot be read.
pub fn settings(
    request: &Request,
    content: &Content,
    page_size: u32,
    older: Option<&Pack>,
) -> Result<Settings> {
    let (mut settings, wants_dictionary) = plain_settings(request, page_size);
    if let Some(older) = older {
        let older = u32::try_from(older.block_bytes()).unwrap_or(u32::MAX);
        if request.profile.is_some() && request.profile != profile_of(older) {
            let text = format!(
                "the base has blocks of {}, and the profile asks for {}\n\
                 hint: leave --profile out, or name the one that the base was made with",
                bytes(older.into()),
                bytes(settings.block_bytes.into())
            );
            return Err(Failure::refused(request.base.as_deref().unwrap_or(Path::new("")), text));
        }
        settings.block_bytes = older;
    }
    if wants_dictionary {
        settings.dictionary =
            train(content, settings.block_bytes).map_err(Failure::io("read", &request.source))?;
    }
    Ok(settings)
}

/// Without a dictionary, and whether there is to be one.
fn plain_settings(request: &Request, page_size: u32) -> (Settings, bool) {
    let (block_bytes, level) = match request.profile {
        None => (64 << 10, 3),
        Some(Profile::Oltp) => (page_blocks(page_size), 3),
        Some(Profile::Scan) => (SCAN_BLOCK_BYTES, 3),
        Some(Profile::Archive) => (ARCHIVE_BLOCK_BYTES, 19),
    };
    let method = match request.codec {
        Some(Codec::Raw) => Method::Raw,
        Some(Codec::Lz4) => Method::Lz4,
        Some(Codec::Zstd) | None => Method::Zstd(request.level.unwrap_or(level)),
    };
    let wants_dictionary =
        request.profile == Some(Profile::Oltp) && matches!(method, Method::Zstd(_));
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
