//! What `checksum` and `compare` show while they read rows of live databases, and how
//! they are ended.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use pagewarden::source::rate::RateLimiter;
use pagewarden::source::store::Stores as _;
use pagewarden::words::{grouped, printable, shortened};
use pagewarden_db::compare::Advance;
use pagewarden_db::error::{Error, Result};
use pagewarden_db::location::{Given, Location};

use crate::args::storage::StorageOptions;
use crate::commands::storage::{Storage, is_address};
use crate::progress;
use crate::signals::stop_on_signals;

/// Characters of a table's name beside its bar.
const NAME_CHARS: usize = 24;
/// How often a plain line is written.
const LINE_EVERY: Duration = Duration::from_secs(3);

/// Progress in rows, and the wish to end.
pub struct Reading {
    stop: Arc<AtomicBool>,
    rows: AtomicU64,
    limiter: RateLimiter,
    begin: Instant,
    table: Mutex<String>,
    bar: Option<ProgressBar>,
    /// A bar a table that is being compared, above the line for all.
    tables: MultiProgress,
    bars: Mutex<BTreeMap<String, ProgressBar>>,
    lines: Option<Mutex<Instant>>,
}

impl Reading {
    /// What the flags and the terminal ask for.
    pub fn begin(quiet: bool, lines: bool, rate: Option<NonZero<u64>>) -> anyhow::Result<Self> {
        let now = Instant::now();
        let tables = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        let bar = (!quiet && !lines).then(|| progress::bar("{spinner} {wide_msg}")).flatten();
        let bar = bar.map(|bar| tables.add(bar));
        Ok(Self {
            stop: stop_on_signals()?,
            rows: AtomicU64::new(0),
            limiter: RateLimiter::new(rate),
            begin: now,
            table: Mutex::new(String::new()),
            bar,
            tables,
            bars: Mutex::default(),
            lines: lines.then(|| Mutex::new(now)),
        })
    }

    /// A URL's location, of files in object storage too: see [`locate`].
    pub fn locate(
        &self,
        url: &str,
        given: &Given,
        quiet: bool,
        options: &StorageOptions,
    ) -> anyhow::Result<Location> {
        let mut location = locate(url, given, quiet)?;
        let path = PathBuf::from(location.database.clone().unwrap_or_default());
        if location.is_file() && is_address(&path) {
            let storage = Storage::begin([&path], options, None, &self.stop)?;
            location.stored = storage.place(&path).transpose()?;
        }
        Ok(location)
    }

    /// A table begins.
    pub fn table(&self, name: &str) {
        if let Ok(mut table) = self.table.lock() {
            *table = printable(name);
        }
    }

    /// A table has come so far.
    pub fn advance(&self, advance: Advance<'_>) {
        let (Some(last), Ok(mut bars)) = (&self.bar, self.bars.lock()) else { return };
        let bar = bars.entry(advance.table.to_owned()).or_insert_with(|| {
            let bar = self.tables.insert_before(last, ProgressBar::no_length());
            bar.set_prefix(shortened(&printable(advance.table), NAME_CHARS));
            bar
        });
        let done = match advance.of.filter(|of| *of >= advance.rows) {
            // Statistics are old: what is not done is never said to be.
            Some(of) => {
                bar.set_length(of.max(1));
                "{prefix:24} [{bar:30}] {percent:>3} %  {msg}"
            }
            None => "{prefix:24} {spinner}  {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(done) {
            bar.set_style(style.progress_chars("#>-"));
        }
        bar.set_position(advance.rows);
        bar.set_message(format!("{} rows", grouped(advance.rows)));
    }

    /// A table is done.
    pub fn table_ends(&self, name: &str) {
        let bar = self.bars.lock().ok().and_then(|mut bars| bars.remove(name));
        if let Some(bar) = bar {
            bar.finish_and_clear();
            self.tables.remove(&bar);
        }
    }

    /// Adds to the progress counters, and keeps to the rate.
    ///
    /// # Errors
    /// [`Error::Stopped`] once the run was asked to end.
    pub fn tell(&self, more: u64, bytes: u64) -> Result<()> {
        self.limiter.pay(bytes, &self.stop);
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
            Some(_) => self.tables.suspend(write),
            None => write(),
        }
    }

    /// Takes the bars away.
    pub fn end(&self) {
        // A table that failed or was stopped has one still.
        for bar in self.bars.lock().iter_mut().flat_map(|bars| std::mem::take(&mut **bars)) {
            bar.1.finish_and_clear();
        }
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
            "warning: every user who lists this machine's processes sees the password in the URL\n\
             hint: --password-file FILE, or the files of the engine's own programs"
        );
    }
    Ok(location)
}
