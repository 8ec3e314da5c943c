//! `pack --to null:`: all of a database read and verified as a backup would do it,
//! and nothing kept: how fast can it be read?
//!
//! Pages are read by the engine of `check`, and every other file plainly: a backup
//! holds those too.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Request, Result, Watch};
use crate::database::{self, OpenOptions, stored};
use crate::pack::{Content, Draining, Entry, Strays, What};
use crate::report::Traffic;
use crate::source::device::{DeviceLoad, device_load};
use crate::source::file::open_regular;
use crate::source::residency::{Residency, residency};
use crate::source::store::{Seen, StorePath, Stores};
use crate::verdict::{Finding, Note, Stretch, Unread};
use crate::verify::timing::{Setter, Timing};
use crate::verify::{Sink, Verified, mib_per_second, verify};

/// So much of every [`ASKED_EVERY`] bytes is asked about: is it in the page cache?
const ASKED_BYTES: u64 = 1 << 20;
const ASKED_EVERY: usize = 16 << 20;
/// How long the device is looked at before it is read.
pub const LOOK: Duration = Duration::from_millis(300);

/// Hears what is read.
pub trait Taker: Sink {
    /// True if it wants to know what else the device does, which takes [`LOOK`].
    fn wants_device(&self) -> bool {
        false
    }

    /// What the device does before it is read.
    ///
    /// # Errors
    /// It cannot be reported: the run ends.
    fn device(&mut self, load: &DeviceLoad) -> io::Result<()> {
        let _ = load;
        Ok(())
    }

    /// All pages were read; files without pages may follow.
    ///
    /// # Errors
    /// As [`Taker::device`].
    fn verified(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Taker for () {}

/// What a run came to.
#[derive(Debug)]
#[non_exhaustive]
pub struct Done {
    /// What was found.
    pub verified: Verified,
    /// Of pages, and of files that have none.
    pub pace: Timing,
    /// Bytes that were read.
    pub bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// What the device did before.
    pub device: Option<DeviceLoad>,
    /// It was ended early.
    pub stopped: bool,
}

/// Reads and verifies all of the request's source, a live database too. Nothing is written.
///
/// # Errors
/// The source cannot be opened, or a file without pages not read.
pub fn read(
    request: &Request,
    stores: &dyn Stores,
    stop: &Arc<AtomicBool>,
    watch: &dyn Watch,
    taker: &mut dyn Taker,
) -> Result<Done> {
    let source = request.source.as_path();
    if let Some(place) = stores.file(source).transpose()? {
        return read_stored(request, &place, stop, watch, taker);
    }
    let target = database::open(source, request.format)?;
    let is_live = target.description.live;
    let content = Content::list(source, Strays::PassedOver)?;
    let looks = taker.wants_device() && !is_in_memory(&content);
    let device = if looks { device_load(source, LOOK) } else { None };
    if let Some(load) = &device {
        taker.device(load)?;
    }
    let begin = Instant::now();
    watch.expect(content.bytes());
    let options = request.options(stop);
    let mut listed = Listed { taker, seen: HashSet::new() };
    let verified = verify(target, &options, watch, &mut listed)?;
    let Listed { taker, seen } = listed;
    taker.verified()?;
    let draining = Draining {
        content: &content,
        jobs: options.jobs,
        rate: options.rate.ceiling(),
        is_live,
        stop,
    };
    let has_no_pages = |entry: &Entry| !seen.contains(&*entry.name.to_string_lossy());
    let (others, rest) = draining.drain(&has_no_pages, watch)?;
    let mut pace = verified.summary.pace;
    pace += rest;
    let bytes = verified.summary.bytes.saturating_add(others);
    let elapsed = begin.elapsed();
    let stopped = verified.summary.stopped || stop.load(Ordering::Relaxed);
    Ok(Done { verified, pace, bytes, elapsed, device, stopped })
}

/// The same of a file in object storage.
fn read_stored(
    request: &Request,
    place: &StorePath,
    stop: &Arc<AtomicBool>,
    watch: &dyn Watch,
    taker: &mut dyn Taker,
) -> Result<Done> {
    let begin = Instant::now();
    let (target, _folder) = stored::open(place, request.format, &OpenOptions::default())?;
    let bytes = match place.look() {
        Ok(Seen::File(bytes)) => bytes,
        _ => 0,
    };
    watch.expect(bytes);
    let mut listed = Listed { taker, seen: HashSet::new() };
    let verified = verify(target, &request.options(stop), watch, &mut listed)?;
    listed.taker.verified()?;
    let (pace, bytes) = (verified.summary.pace, verified.summary.bytes);
    let stopped = verified.summary.stopped || stop.load(Ordering::Relaxed);
    Ok(Done { verified, pace, bytes, elapsed: begin.elapsed(), device: None, stopped })
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

/// Remembers which files had pages.
struct Listed<'a> {
    taker: &'a mut dyn Taker,
    /// Names as reports have them: what is not UTF-8 is replaced.
    seen: HashSet<String>,
}

impl Sink for Listed<'_> {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.taker.finding(finding)
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.taker.unread(unread)
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.taker.note(note)
    }

    fn pages(&mut self, stretch: &Stretch<'_>) -> io::Result<()> {
        if !self.seen.contains(stretch.file) {
            self.seen.insert(stretch.file.to_owned());
        }
        self.taker.pages(stretch)
    }
}

impl Done {
    /// The object of `pagewarden pack --to null: --json`; `traffic` is what was asked of stores, if
    /// any were.
    #[must_use]
    pub fn object(&self, traffic: Option<Traffic>) -> Value {
        let mut object = json!({
            "pagewarden": crate::VERSION,
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
        if let (Some(traffic), Some(object)) = (traffic, object.as_object_mut()) {
            object.insert("storage".to_owned(), json!(traffic));
        }
        object
    }
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
#[must_use]
pub fn known_cached(pace: &Timing) -> Option<u64> {
    (pace.unknown_bytes == 0).then_some(pace.cached_bytes)
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
