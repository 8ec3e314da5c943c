//! Progress of a session on standard error.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use pagewarden::words::bytes;
use pagewarden_lab::iotest::session::Event;

use crate::progress;

/// How often a plain line is written.
const LINE_EVERY: Duration = Duration::from_secs(3);

/// Where progress goes.
pub enum Show {
    /// Nowhere.
    Nothing,
    /// A bar that moves.
    Bar(ProgressBar),
    /// A line now and then.
    Lines {
        /// When the last one was written.
        written: Option<Instant>,
        /// Bytes of the test file so far.
        laid_out: u64,
    },
}

impl Show {
    /// What the flags and the terminal ask for.
    pub fn choose(quiet: bool, lines: bool) -> Self {
        if quiet {
            return Self::Nothing;
        }
        if lines {
            return Self::Lines { written: None, laid_out: 0 };
        }
        progress::bar("{wide_bar} {percent:>3} %  {msg}").map_or(Self::Nothing, Self::Bar)
    }

    /// Shows what happens.
    pub fn tell(&mut self, event: Event<'_>) {
        match (self, event) {
            (Self::Nothing, _) => {}
            (Self::Bar(bar), Event::LaidOut { bytes: more, all }) => {
                bar.set_length(all);
                bar.inc(more);
                bar.set_message("writing the test file");
            }
            (Self::Bar(bar), Event::Runs { what, done, all }) => {
                bar.set_length(all as u64);
                bar.set_position(done as u64);
                bar.set_message(what.to_owned());
            }
            (Self::Lines { written, laid_out }, Event::LaidOut { bytes: more, all }) => {
                *laid_out += more;
                let text = format!("wrote {} of {} of the test file", bytes(*laid_out), bytes(all));
                line_now_and_then(written, &text);
            }
            (Self::Lines { written, .. }, Event::Runs { what, done, all }) => {
                // Another part of the work has a line at once.
                if done == 0 {
                    *written = None;
                }
                line_now_and_then(written, &format!("{done} of {all} steps done; next: {what}"));
            }
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn line_now_and_then(written: &mut Option<Instant>, text: &str) {
    if written.is_none_or(|at| at.elapsed() >= LINE_EVERY) {
        *written = Some(Instant::now());
        let _ = writeln!(io::stderr(), "{text}");
    }
}
