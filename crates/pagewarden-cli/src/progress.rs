//! Progress on standard error: a bar on a terminal, plain lines on demand,
//! nothing otherwise.

use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pagewarden::database::{Format, Step};
use pagewarden::verify::{Progress, mib_per_second};
use pagewarden::words::bytes;

/// How often a plain line is written.
const LINE_EVERY: Duration = Duration::from_secs(3);

/// Where progress goes.
pub enum Show {
    /// Nowhere.
    Nothing,
    /// A bar that moves.
    Bar(ProgressBar),
    /// A line now and then.
    Lines(Lines),
}

/// Plain lines for logs.
pub struct Lines {
    begin: Instant,
    done: AtomicU64,
    total: AtomicU64,
    written: Mutex<Instant>,
}

impl Show {
    /// What the flags and the terminal ask for.
    pub fn choose(quiet: bool, lines: bool) -> Self {
        if quiet {
            return Self::Nothing;
        }
        if lines {
            let now = Instant::now();
            return Self::Lines(Lines {
                begin: now,
                done: AtomicU64::new(0),
                total: AtomicU64::new(0),
                written: Mutex::new(now),
            });
        }
        let of_bytes = "{wide_bar} {percent:>3} %  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";
        bar(of_bytes).map_or(Self::Nothing, Self::Bar)
    }

    /// True if [`Show::expect`] is of use.
    pub fn wants_total(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// Learns that there are `bytes` more to read.
    pub fn expect(&self, bytes: u64) {
        match self {
            Self::Nothing => {}
            Self::Bar(bar) => bar.set_length(bar.length().unwrap_or(0) + bytes),
            Self::Lines(lines) => {
                lines.total.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }

    /// Standard output that does not write into the bar.
    pub fn output(&self) -> Output<'_> {
        let terminal = io::stdout().is_terminal();
        Output { show: self, buffer: Vec::new(), terminal }
    }
}

/// A bar on standard error, if that is a terminal.
pub fn bar(template: &str) -> Option<ProgressBar> {
    io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        let style = ProgressStyle::with_template(template);
        bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    })
}

/// How much there is to read. Walks the target once more, which costs a look
/// at every file's length.
pub fn listed_bytes(path: &Path, kind: Option<&Format>) -> Option<u64> {
    let target = pagewarden::database::open(path, kind).ok()?;
    let mut sum = 0;
    for step in target.steps {
        match step {
            Step::File(file) => sum += file.listed_bytes,
            // What comes after the files is no matter of pages.
            Step::Passed(_) if sum > 0 => break,
            // To count a stream is to read it.
            Step::Pages(_) | Step::Apart(_) | Step::Passed(_) => return None,
            _ => {}
        }
    }
    Some(sum)
}

impl Progress for Show {
    fn advance(&self, bytes: u64) {
        match self {
            Self::Nothing => {}
            Self::Bar(bar) => bar.inc(bytes),
            Self::Lines(lines) => lines.advance(bytes),
        }
    }
}

impl Lines {
    fn advance(&self, more: u64) {
        let done = self.done.fetch_add(more, Ordering::Relaxed) + more;
        // A thread that cannot get the lock leaves the line to the one that has it.
        let Ok(mut written) = self.written.try_lock() else { return };
        if written.elapsed() < LINE_EVERY {
            return;
        }
        *written = Instant::now();
        let total = self.total.load(Ordering::Relaxed).max(done);
        let elapsed = self.begin.elapsed();
        let left = elapsed.as_secs_f64() * (total - done) as f64 / done.max(1) as f64;
        // To the second: it is a guess.
        let left = Duration::try_from_secs_f64(left.ceil()).unwrap_or(Duration::MAX);
        let _ = writeln!(
            io::stderr(),
            "checked {} of {} ({:.0} MiB/s), about {} s left",
            bytes(done),
            bytes(total),
            mib_per_second(done, elapsed),
            left.as_secs()
        );
    }
}

/// Standard output, written in large pieces, with the bar taken aside when
/// both share a terminal.
pub struct Output<'a> {
    show: &'a Show,
    buffer: Vec<u8>,
    terminal: bool,
}

/// What is held back before it is written.
const OUTPUT_BUFFER: usize = 32 << 10;

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        // On a terminal a line is shown when it is known.
        if self.buffer.len() >= OUTPUT_BUFFER || (self.terminal && self.buffer.ends_with(b"\n")) {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let write = || {
            let mut out = io::stdout().lock();
            out.write_all(&buffer)?;
            out.flush()
        };
        match self.show {
            Show::Bar(bar) if self.terminal => bar.suspend(write),
            _ => write(),
        }
    }
}
