//! What `checksum` and `compare` show while they read rows of live databases, and how
//! they are ended.

use std::io::{self, Write as _};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use pagewarden::report::words::{grouped, printable};
use pagewarden_db::error::{Error, Result};
use pagewarden_db::location::{Given, Location};

use crate::progress;
use crate::signals::stop_on_signals;

/// How long nobody looks whether the run is to end.
const NAP: Duration = Duration::from_millis(50);
/// How often a plain line is written.
const LINE_EVERY: Duration = Duration::from_secs(3);

/// Progress in rows, and the wish to end.
pub struct Reading {
    stop: Arc<AtomicBool>,
    rows: AtomicU64,
    bytes: AtomicU64,
    rate: Option<NonZero<u64>>,
    begin: Instant,
    table: Mutex<String>,
    bar: Option<ProgressBar>,
    lines: Option<Mutex<Instant>>,
}

impl Reading {
    /// What the flags and the terminal ask for.
    pub fn begin(quiet: bool, lines: bool, rate: Option<NonZero<u64>>) -> anyhow::Result<Self> {
        let now = Instant::now();
        let wants_bar = !quiet && !lines;
        let bar = wants_bar.then(|| progress::bar("{spinner} {wide_msg}")).flatten();
        Ok(Self {
            stop: stop_on_signals()?,
            rows: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            rate,
            begin: now,
            table: Mutex::new(String::new()),
            bar,
            lines: lines.then(|| Mutex::new(now)),
        })
    }

    /// A table begins.
    pub fn table(&self, name: &str) {
        if let Ok(mut table) = self.table.lock() {
            *table = printable(name);
        }
    }

    /// So much more was read. The error is somebody's wish to end.
    pub fn tell(&self, more: u64, bytes: u64) -> Result<()> {
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(bytes as f64 / rate.get() as f64);
            while !self.stop.load(Ordering::Relaxed)
                && let Some(early) = due.checked_sub(self.begin.elapsed())
            {
                std::thread::sleep(early.min(NAP));
            }
        }
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let rows = self.rows.fetch_add(more, Ordering::Relaxed) + more;
        if let Some(bar) = &self.bar {
            bar.set_message(self.line(rows));
            bar.tick();
        }
        if let Some(lines) = &self.lines
            && let Ok(mut written) = lines.try_lock()
            && written.elapsed() >= LINE_EVERY
        {
            *written = Instant::now();
            let _ = writeln!(io::stderr(), "{}", self.line(rows));
        }
        Ok(())
    }

    fn line(&self, rows: u64) -> String {
        let table = self.table.lock().map(|table| table.clone()).unwrap_or_default();
        let rate = rows as f64 / self.begin.elapsed().as_secs_f64().max(0.001);
        format!("{table}: {} rows read so far ({rate:.0} rows/s)", grouped(rows))
    }

    /// Takes the bar away for what `write` writes.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A URL's location, completed. Warns of a password that everybody may see.
pub fn locate(url: &str, given: &Given, quiet: bool) -> Result<Location> {
    let location = Location::find(url, given)?;
    if location.password_in_url && !quiet {
        let _ = writeln!(
            io::stderr(),
            "warning: whoever lists this machine's processes sees the password in the URL\n\
             hint: --password-file FILE, or the files of the engine's own programs"
        );
    }
    Ok(location)
}

/// Seconds to the microsecond.
pub fn seconds(elapsed: Duration) -> f64 {
    (elapsed.as_secs_f64() * 1e6).round() / 1e6
}
