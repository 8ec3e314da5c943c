//! How results are written down. A report sees neither files nor formats.

use self::drill::Drill;
use std::fmt;
use std::io;
use std::time::SystemTime;

use serde::Serialize;

use crate::database::Description;
use crate::verdict::Verdict;
use crate::verify::{Sink, Summary, Verified};
use crate::words::{bytes, counted, grouped};

pub mod colours;
pub mod drill;
pub mod fold;
pub mod html;
pub mod json;
pub mod map;
pub mod metrics;
pub mod nagios;
pub mod picture;
#[cfg(test)]
mod sample;
mod sets;
pub mod several;
pub mod text;
pub mod why;

/// A target at its end.
#[derive(Debug, Clone, Copy)]
pub struct TargetEnd<'a> {
    /// What it is, and what was counted.
    pub verified: &'a Verified,
    /// How many bytes there were to read, where they were counted.
    pub listed_bytes: Option<u64>,
    /// When it ended.
    pub ended: SystemTime,
    /// What is known from earlier runs, where this one read only a part.
    pub overall: Option<&'a Overall>,
}

impl TargetEnd<'_> {
    /// The verdict on the target.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.overall.map_or_else(|| self.verified.verdict(), |overall| overall.verdict)
    }
}

/// A target by all runs together. It wins over what one run of them says.
#[derive(Debug, Clone)]
pub struct Overall {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason in words.
    pub reason: String,
    /// More fields of the target's JSON object.
    pub fields: serde_json::Map<String, serde_json::Value>,
}

/// A run at its end.
#[derive(Debug, Clone, Copy)]
pub struct RunEnd<'a> {
    /// The worst of all targets.
    pub verdict: Verdict,
    /// All targets together.
    pub total: &'a Summary,
    /// Targets that were opened.
    pub opened: u64,
    /// A level of protection that was demanded is missed.
    pub protection_missed: bool,
    /// What was asked of object stores, if the run read from some.
    pub storage: Option<Traffic>,
    /// What came of a restore drill.
    pub drill: Option<&'a Drill>,
    /// When it ended.
    pub ended: SystemTime,
}

/// What was asked of object stores, which costs money, and what came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Requests that were sent, each repetition counted.
    pub requests: u64,
    /// Repetitions among them.
    pub retries: u64,
    /// Bytes of the answers' bodies.
    pub bytes: u64,
    /// Bytes of what was written, each repetition counted.
    pub sent_bytes: u64,
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", counted(self.requests, "request"))?;
        if self.retries > 0 {
            write!(f, ", {} of them repeated", grouped(self.retries))?;
        }
        write!(f, ", {} read", bytes(self.bytes))?;
        match self.sent_bytes {
            0 => Ok(()),
            sent => write!(f, ", {} written", bytes(sent)),
        }
    }
}

/// Writes down a run: targets one after the other, what is found in each
/// between its beginning and its end.
pub trait Report: Sink {
    /// Begins a target.
    ///
    /// # Errors
    /// The output cannot be written.
    fn begin_target(&mut self, target: &Description) -> io::Result<()>;

    /// Says by which command a repair of the target is planned, between its beginning and its end; and the
    /// name of the page of the plan that it writes beside this report, if it writes one.
    ///
    /// # Errors
    /// The output cannot be written.
    fn advise(&mut self, command: &str, page: Option<&str>) -> io::Result<()> {
        let _ = (command, page);
        Ok(())
    }

    /// Ends a target.
    ///
    /// # Errors
    /// The output cannot be written.
    fn end_target(&mut self, target: &TargetEnd<'_>) -> io::Result<()>;

    /// Records a target that could not be opened at all.
    ///
    /// # Errors
    /// The output cannot be written.
    fn failed_target(&mut self, path: &str, error: &str, ended: SystemTime) -> io::Result<()>;

    /// Ends the run. Nothing may follow.
    ///
    /// # Errors
    /// The output cannot be written.
    fn end(&mut self, run: &RunEnd<'_>) -> io::Result<()>;
}

/// No report, where what is found is kept elsewhere.
impl Report for () {
    fn begin_target(&mut self, _: &Description) -> io::Result<()> {
        Ok(())
    }

    fn end_target(&mut self, _: &TargetEnd<'_>) -> io::Result<()> {
        Ok(())
    }

    fn failed_target(&mut self, _: &str, _: &str, _: SystemTime) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, _: &RunEnd<'_>) -> io::Result<()> {
        Ok(())
    }
}
