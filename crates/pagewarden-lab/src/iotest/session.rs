//! One session: the file, every pattern, the sweeps, and how far the figures can
//! be believed.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::iotest::device::{Device, load};
use crate::iotest::diagnosis::{Doubt, doubts};
use crate::iotest::drive::{Method, Trial, drive};
use crate::iotest::fio;
use crate::iotest::log::{Flush, append};
use crate::iotest::measured::Measured;
use crate::iotest::patterns::{Pattern, Sync};
use crate::iotest::payload::payload;
use crate::iotest::sweep::{Common, SCAN_STEPS, STEPS, Step, Sweep, scans, sweeps};
use crate::iotest::workplace::{Wanted, Workplace};

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where.
    pub folder: PathBuf,
    /// Bytes in the test file.
    pub file_bytes: u64,
    /// Bytes to be left free; by default (`None`) a part of what is free.
    pub reserve_bytes: Option<u64>,
    /// Bytes of the database's page.
    pub page: usize,
    /// How long each pattern is run.
    pub time: Duration,
    /// Percent of the payload that can be compressed away.
    pub compressible_percent: u8,
    /// How transfers are kept in flight; the best there is if `None`.
    pub method: Option<Method>,
    /// Whether fio runs each pattern too.
    pub with_fio: bool,
    /// The patterns.
    pub patterns: Vec<&'static Pattern>,
    /// Whether reads are swept over depths, and scans by block sizes.
    pub with_sweeps: bool,
    /// Chooses blocks and places.
    pub seed: u64,
    /// No more bytes than this a second.
    pub rate: Option<NonZero<u64>>,
}

/// What happens.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// More bytes of the test file were written.
    LaidOut {
        /// Bytes.
        bytes: u64,
        /// Of how many.
        all: u64,
    },
    /// A step begins.
    Runs {
        /// What it is.
        what: &'a str,
        /// How many steps are done.
        done: usize,
        /// Of how many.
        all: usize,
    },
}

/// A pattern with its figures.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PatternResult {
    /// Its name.
    pub name: &'static str,
    /// Requests in flight.
    pub depth: usize,
    /// By our engine.
    #[serde(flatten)]
    pub measured: Measured,
    /// By fio.
    pub fio: Option<Measured>,
}

/// All that was measured.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Session {
    /// What the folder lies on.
    pub device: Device,
    /// Bytes in the test file.
    pub file_bytes: u64,
    /// Bytes of the database's page.
    pub page_bytes: usize,
    /// True if reads and writes went past the page cache.
    pub is_direct: bool,
    /// Percent of the payload that can be compressed away.
    pub compressible_percent: u8,
    /// `io_uring` or `threads`.
    pub method: &'static str,
    /// The version of fio, if it took part.
    pub fio: Option<String>,
    /// How the file was written: mebibytes a second.
    pub layout_mib_per_second: f64,
    /// Bytes written in all, by our engine.
    pub bytes_written: u64,
    /// Every pattern that was run.
    pub patterns: Vec<PatternResult>,
    /// The log's pattern once more, by writes that flush themselves.
    pub log_by_dsync: Option<Measured>,
    /// Reads at several depths.
    pub sweeps: Vec<Sweep>,
    /// Scans by small and large requests.
    pub scans: Vec<Step>,
    /// Other work of the machine: processes that waited for a processor.
    pub load: Option<f64>,
    /// Why figures may not mean what they seem to.
    pub doubts: Vec<Doubt>,
    /// True if it was stopped early.
    pub stopped: bool,
}

impl Session {
    /// A pattern's figures.
    #[must_use]
    pub fn pattern(&self, name: &str) -> Option<&Measured> {
        self.patterns.iter().find(|result| result.name == name).map(|result| &result.measured)
    }

    /// The sweep of that name.
    #[must_use]
    pub fn sweep(&self, name: &str) -> Option<&Sweep> {
        self.sweeps.iter().find(|sweep| sweep.name == name)
    }
}

/// Measures. What was measured before it was stopped is kept.
///
/// # Errors
/// The folder is refused, or cannot be read or written.
pub fn measure(
    settings: &Settings,
    stop: &AtomicBool,
    told: &mut dyn FnMut(Event<'_>),
) -> anyhow::Result<Session> {
    let method = settings.method.unwrap_or_else(Method::best);
    let mut session = Session {
        device: Device::below(&settings.folder),
        page_bytes: settings.page,
        compressible_percent: settings.compressible_percent,
        method: method.name(),
        fio: if settings.with_fio { fio::version() } else { None },
        load: load(),
        ..Session::default()
    };
    let payload = payload(settings.compressible_percent, settings.seed);
    let place = match lay_out(settings, &payload, stop, told) {
        Ok(place) => place,
        Err(_) if stop.load(Ordering::Relaxed) => {
            session.stopped = true;
            return Ok(session);
        }
        Err(error) => return Err(error),
    };
    session.file_bytes = place.file_bytes;
    session.is_direct = place.is_direct;
    let (bytes, elapsed) = place.layout;
    session.bytes_written = bytes;
    session.layout_mib_per_second = pagewarden::verify::mib_per_second(bytes, elapsed);
    let bench = Bench { settings, place: &place, payload: &payload, method, stop };
    let ended = bench.run(&mut session, told);
    session.stopped = stop.load(Ordering::Relaxed);
    // What fails because it is stopped is no failure.
    if !session.stopped {
        ended?;
    }
    session.doubts = doubts(&session);
    Ok(session)
}

fn lay_out(
    settings: &Settings,
    payload: &[u8],
    stop: &AtomicBool,
    told: &mut dyn FnMut(Event<'_>),
) -> anyhow::Result<Workplace> {
    let wanted = Wanted {
        folder: &settings.folder,
        file_bytes: settings.file_bytes,
        reserve_bytes: settings.reserve_bytes,
        payload,
        rate: settings.rate,
    };
    let told = std::cell::RefCell::new(told);
    Workplace::make(&wanted, stop, &|bytes| {
        if let Ok(mut told) = told.try_borrow_mut() {
            told(Event::LaidOut { bytes, all: settings.file_bytes });
        }
    })
}

/// What all steps have in common.
struct Bench<'a> {
    settings: &'a Settings,
    place: &'a Workplace,
    payload: &'a [u8],
    method: Method,
    stop: &'a AtomicBool,
}

impl Bench<'_> {
    fn run(&self, session: &mut Session, told: &mut dyn FnMut(Event<'_>)) -> anyhow::Result<()> {
        let all = self.steps(session.fio.is_some());
        let mut done = 0;
        let mut tell = |what: &str| {
            told(Event::Runs { what, done, all });
            done += 1;
        };
        for pattern in &self.settings.patterns {
            self.pattern(pattern, session, &mut tell)?;
            if self.is_stopped() {
                return Ok(());
            }
        }
        if self.settings.with_sweeps {
            let time = self.settings.time / 4;
            session.sweeps = sweeps(&self.common(time), &mut tell)?;
            session.scans = scans(&self.common(time), &mut tell)?;
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn steps(&self, with_fio: bool) -> usize {
        let patterns = self.settings.patterns.len();
        let is_log = |pattern: &&&Pattern| pattern.sync == Sync::EachWrite;
        let logs = self.settings.patterns.iter().filter(is_log).count();
        let series = if self.settings.with_sweeps { STEPS + SCAN_STEPS } else { 0 };
        patterns * if with_fio { 2 } else { 1 } + logs + series
    }

    fn common(&self, time: Duration) -> Common<'_> {
        Common {
            place: self.place,
            method: self.method,
            page: self.settings.page,
            time,
            rate: self.settings.rate,
            stop: self.stop,
        }
    }

    /// Runs one pattern; what is cut short does not count.
    fn pattern(
        &self,
        pattern: &'static Pattern,
        session: &mut Session,
        tell: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        let trial = Trial {
            pattern,
            depth: pattern.depth,
            page: self.settings.page,
            time: self.settings.time,
            written_bytes_max: pattern.written_bytes_max(self.place.file_bytes),
            seed: self.settings.seed,
            rate: self.settings.rate,
        };
        tell(pattern.name);
        // Not even begun, however long the threads below would take to find that out.
        if self.is_stopped() {
            return Ok(());
        }
        let begin = Instant::now();
        let measured = drive(&trial, self.place, self.payload, self.method, self.stop)?;
        session.bytes_written = session.bytes_written.saturating_add(measured.bytes_written);
        // Half of the time is enough for figures.
        if self.is_stopped() && begin.elapsed() < trial.time / 2 {
            return Ok(());
        }
        let mut result =
            PatternResult { name: pattern.name, depth: pattern.depth, measured, fio: None };
        if session.fio.is_some() && !self.is_stopped() {
            tell(&format!("{} by fio", pattern.name));
            match fio::run(&trial, self.place, self.method, self.stop) {
                Err(_) if self.is_stopped() => {}
                other => result.fio = Some(other?),
            }
        }
        session.patterns.push(result);
        if pattern.sync == Sync::EachWrite && !self.is_stopped() {
            tell("oltp-log by O_DSYNC");
            let written_bytes_max = trial.written_bytes_max / 2;
            let trial = Trial { time: trial.time / 2, written_bytes_max, ..trial };
            let measured = append(&trial, self.place, self.payload, Flush::Implied, self.stop)?;
            session.bytes_written = session.bytes_written.saturating_add(measured.bytes_written);
            session.log_by_dsync = Some(measured);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iotest::patterns::PATTERNS;

    fn settings(folder: &std::path::Path) -> Settings {
        Settings {
            folder: folder.to_owned(),
            file_bytes: 16 << 20,
            reserve_bytes: None,
            page: 8192,
            time: Duration::from_millis(40),
            compressible_percent: 0,
            method: None,
            with_fio: false,
            patterns: PATTERNS.iter().collect(),
            with_sweeps: true,
            seed: 3,
            rate: None,
        }
    }

    #[test]
    fn a_session_measures_everything_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (mut last, mut laid_out) = ((0, 0), 0);
        let mut told = |event: Event<'_>| match event {
            Event::LaidOut { bytes, .. } => laid_out += bytes,
            Event::Runs { done, all, .. } => last = (done + 1, all),
        };
        let session =
            measure(&settings(folder.path()), &AtomicBool::new(false), &mut told).unwrap();
        assert_eq!(laid_out, 16 << 20);
        assert_eq!(last.0, last.1, "every step was announced, and no other");
        assert_eq!(session.patterns.len(), PATTERNS.len());
        assert_eq!(session.sweeps.len(), 2);
        assert_eq!(session.scans.len(), SCAN_STEPS);
        assert!(session.log_by_dsync.is_some());
        assert!(!session.stopped);
        assert!(session.bytes_written <= 4 * session.file_bytes, "{}", session.bytes_written);
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    }

    #[test]
    fn by_default_four_gibibytes_bound_what_is_written() {
        let patterns = PATTERNS.iter().filter(|pattern| !pattern.only_reads());
        let all: u64 = patterns.map(|pattern| pattern.written_bytes_max(1 << 30)).sum();
        // With the layout, and half of the log's share by the other way of flushing.
        assert!(all + (1 << 30) + (1 << 27) < 4 << 30);
    }

    #[test]
    fn a_session_that_is_stopped_keeps_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let mut told = |event: Event<'_>| {
            if let Event::Runs { what: "bulk-insert", .. } = event {
                stop.store(true, Ordering::Relaxed);
            }
        };
        let session = measure(&settings(folder.path()), &stop, &mut told).unwrap();
        assert!(session.stopped);
        let names: Vec<&str> = session.patterns.iter().map(|result| result.name).collect();
        assert_eq!(names, ["oltp-log", "oltp-data"]);
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
        stop.store(true, Ordering::Relaxed);
        let session = measure(&settings(folder.path()), &stop, &mut |_| ()).unwrap();
        assert!(session.stopped && session.patterns.is_empty());
    }
}
