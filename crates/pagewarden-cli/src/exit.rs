//! The exit statuses, and the only place that decides between them.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Instant;

use clap::CommandFactory as _;
use pagewarden::report::nagios::{self, State};
use pagewarden::verdict::Verdict;
use pagewarden::words::printable;

use crate::args::Arguments;

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

impl Exit {
    /// The number.
    pub fn status(self) -> u8 {
        match self {
            Self::Fine | Self::Monitored(State::Ok) => 0,
            Self::Wrong | Self::Monitored(State::Warning) => 1,
            Self::Unable | Self::Monitored(State::Critical) => 2,
            Self::Stopped | Self::Monitored(State::Unknown) => 3,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.status())
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
        eprintln!("pagewarden: {}", shown(error));
    }
    Exit::Unable
}

/// Runs a command, and says on standard output, as the one object that was asked for,
/// why it could not be done. A command that has printed a result of its own returns no
/// error.
///
/// # Errors
/// Those of the command.
pub fn or_json(
    command: &str,
    json: bool,
    run: impl FnOnce() -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let done = run();
    if let (Err(error), true) = (&done, json) {
        let object = serde_json::json!({
            "pagewarden": pagewarden::VERSION,
            "command": command,
            "verdict": "incomplete",
            "seconds": begin.elapsed().as_secs_f64(),
            "error": shown(error),
        });
        // The reader of the output may be gone; standard error still gets the error.
        let _ = writeln!(io::stdout(), "{object}");
    }
    done
}

/// An error with its causes. Names and texts in it come from files and servers, so nothing but a
/// hint begins a line of its own, and what would change a terminal or the order of the letters is
/// spelled out.
pub fn shown(error: &anyhow::Error) -> String {
    shown_text(&format!("{error:#}"))
}

/// Says something on standard error, as an error is said.
#[cfg_attr(not(unix), allow(dead_code, reason = "only commands that write databases use it"))]
pub fn say(text: std::fmt::Arguments<'_>) {
    eprintln!("pagewarden: {}", shown_text(&text.to_string()));
}

fn shown_text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (number, line) in text.split('\n').enumerate() {
        match number {
            0 => {}
            _ if line.starts_with("hint: ") => shown.push('\n'),
            _ => shown.push_str("\\n"),
        }
        shown.push_str(&printable(line));
    }
    shown
}

/// Text of several lines that may have in it what a shell found in a folder.
pub fn lines_shown(text: &str) -> String {
    let piece = |piece: &str| piece.split('\t').map(printable).collect::<Vec<_>>().join("\t");
    text.split('\n').map(piece).collect::<Vec<_>>().join("\n")
}

/// Says on standard output, in one line, why a command could not be done.
pub fn report_to_monitoring(message: &str) -> Exit {
    println!("{}", nagios::unknown(message));
    Exit::Monitored(State::Unknown)
}

/// Repeats a usage error on standard output for programs that parse it.
pub fn report_usage_as_json(error: &clap::Error) {
    let message = error.to_string();
    // What is wrong and its hint; behind a blank line stands the usage.
    let first = message.split("\n\n").next().unwrap_or_default().trim_end();
    // The command may be what is wrong.
    let known = Arguments::command();
    let mut words = std::env::args_os().skip(1);
    let command = words.find_map(|word| Some(known.find_subcommand(word)?.get_name().to_owned()));
    let object = serde_json::json!({
        "pagewarden": pagewarden::VERSION,
        "command": command,
        "verdict": "incomplete",
        "seconds": 0.0,
        "error": first.strip_prefix("error: ").unwrap_or(first),
    });
    println!("{object}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_or_server_says_does_not_reach_the_terminal_as_it_is() {
        let cause = anyhow::anyhow!("at \x1b]0;PWNED\x07, \u{9b}2J\u{202e}txt\nverdict: intact\r");
        let error = cause.context("cannot read x").context("twice");
        let text = shown(&error);
        let expected = "twice: cannot read x: at \\u{1b}]0;PWNED\\u{7}, \\u{9b}2J\\u{202e}txt\\n\
                        verdict: intact\\r";
        assert_eq!(text, expected);
        let error = anyhow::anyhow!("it is no file\nhint: name a file");
        assert_eq!(shown(&error), "it is no file\nhint: name a file");
        let usage = "error: no \u{202e}fdp\x1b[2J\n\n\tUsage: x\n";
        assert_eq!(lines_shown(usage), "error: no \\u{202e}fdp\\u{1b}[2J\n\n\tUsage: x\n");
    }
}
