//! The exit statuses, and the only place that decides between them.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io;
use std::process::ExitCode;

use pagewarden::report::nagios::{self, State};
use pagewarden::verdict::Verdict;

/// How a run ended. The numbers are promised to users' scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done, and nothing wrong found.
    Fine,
    /// 1: done, and something is wrong.
    Wrong,
    /// 2: could not do it, or not all of it.
    Unable,
    /// 3: stopped early.
    Stopped,
    /// What a monitoring system understands: 0 to 3, with other meanings.
    Monitored(State),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Fine => 0,
            Exit::Wrong => 1,
            Exit::Unable => 2,
            Exit::Stopped => 3,
            Exit::Monitored(State::Ok) => 0,
            Exit::Monitored(State::Warning) => 1,
            Exit::Monitored(State::Critical) => 2,
            Exit::Monitored(State::Unknown) => 3,
        })
    }
}

/// What a verdict means where nothing stricter was asked for.
impl From<Verdict> for Exit {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Damaged => Self::Wrong,
            Verdict::Incomplete => Self::Unable,
            Verdict::Suspect | Verdict::Unprotected | Verdict::Intact => Self::Fine,
        }
    }
}

/// Says on standard error why a command could not be done.
pub fn report(error: &anyhow::Error) -> Exit {
    // A reader that has seen enough is no reason for a message.
    let hung_up = error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
    if !hung_up {
        eprintln!("pagewarden: {error:#}");
    }
    Exit::Unable
}

/// Says on standard output, in one line, why a command could not be done.
pub fn report_to_monitoring(message: &str) -> Exit {
    println!("{}", nagios::unknown(message));
    Exit::Monitored(State::Unknown)
}

/// Repeats a usage error on standard output for whoever parses it.
pub fn report_usage_as_json(error: &clap::Error) {
    let message = error.to_string();
    let first = message.lines().next().unwrap_or_default();
    let object = serde_json::json!({
        "pagewarden": pagewarden::VERSION,
        "command": null,
        "verdict": "incomplete",
        "seconds": 0.0,
        "error": first.strip_prefix("error: ").unwrap_or(first),
    });
    println!("{object}");
}
