//! Progress of a run of experiments on standard error.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use pagewarden_lab::cost::run::Event;

use crate::progress;

/// How often a plain line is written.
const LINE_EVERY: Duration = Duration::from_secs(3);

/// Where progress goes.
pub enum Show {
    /// Nowhere; what went wrong is said all the same.
    Nothing,
    /// A bar that moves.
    Bar(ProgressBar),
    /// A line now and then.
    Lines(Option<Instant>),
}

impl Show {
    /// What the flags and the terminal ask for.
    pub fn choose(quiet: bool, lines: bool) -> Self {
        if quiet {
            return Self::Nothing;
        }
        if lines {
            return Self::Lines(None);
        }
        progress::bar("{wide_bar} {pos} of {len} runs  {msg}").map_or(Self::Nothing, Self::Bar)
    }

    /// Shows what happens.
    pub fn tell(&mut self, event: Event<'_>) {
        match event {
            Event::Prepares { description, place: (place, all) } => {
                let text = format!("{} ({place} of {all}): preparing", description.name);
                match self {
                    Self::Nothing => {}
                    Self::Bar(bar) => {
                        bar.reset();
                        bar.set_length(0);
                        bar.set_message(text);
                        bar.tick();
                    }
                    Self::Lines(written) => {
                        *written = None;
                        line(&text);
                    }
                }
            }
            Event::Runs { description, condition, done: (done, all), left } => {
                let left = left.map(|left| format!(", about {} left", rough(left)));
                let left = left.unwrap_or_default();
                let comma = if condition.is_empty() { "" } else { ", " };
                let what = format!("{}{comma}{condition}{left}", description.name);
                match self {
                    Self::Nothing => {}
                    Self::Bar(bar) => {
                        bar.set_length(all);
                        bar.set_position(done);
                        bar.set_message(what);
                    }
                    Self::Lines(written) => {
                        if written.is_none_or(|at| at.elapsed() >= LINE_EVERY) {
                            *written = Some(Instant::now());
                            line(&format!("{done} of {all} runs of {what}"));
                        }
                    }
                }
            }
            Event::Notes(note) => {
                let text = format!("{}: {}", note.experiment, note.text);
                match self {
                    Self::Bar(bar) => bar.suspend(|| line(&text)),
                    Self::Nothing | Self::Lines(_) => line(&text),
                }
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

fn line(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A guess, as rough as it is: `40 s`, `12 min`, `3 h 5 min`.
fn rough(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..=89 => format!("{} s", seconds.max(1)),
        seconds @ 90..=5399 => format!("{} min", (seconds + 30) / 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_said_as_roughly_as_it_is_known() {
        for (seconds, expected) in [(0, "1 s"), (89, "89 s"), (90, "2 min"), (11_100, "3 h 5 min")]
        {
            assert_eq!(rough(Duration::from_secs(seconds)), expected);
        }
    }
}
