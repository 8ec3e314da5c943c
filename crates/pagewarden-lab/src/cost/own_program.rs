//! Arms that are processes of their own: this program, started once more.
//!
//! Such an arm inherits nothing from the run before it: its heap is empty, its
//! addresses are new, and what it used the system has counted for it alone. It
//! also ends alone if foreign code in it crashes.
//!
//! ```text
//! OwnProgram::arm --- a task, as JSON on standard input --> serve
//!                 <-- a reading, as JSON in a line of standard output ---
//! ```

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::cost::experiment::Reading;
use crate::cost::program;
use crate::cost::{read_only, reading, sqlite};

/// The file that this process runs, also when another has taken its name since.
const SELF: &str = "/proc/self/exe";
/// Set for a process that is to run an arm.
pub const IS_ARM: &str = "PAGEWARDEN_LAB_ARM";
/// No task is longer.
const TASK_BYTES_MAX: u64 = 1 << 16;

/// What a process of its own is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Task {
    /// Work on a database of SQLite, under one protection.
    Sqlite(sqlite::Task),
    /// Scans of a database that no program writes to.
    Scan(read_only::Task),
    /// Files, read from end to end.
    Read(reading::Task),
}

impl Task {
    /// Does it, in this process and its current folder.
    ///
    /// # Errors
    /// It failed.
    pub fn run(&self) -> Result<Reading> {
        match self {
            Self::Sqlite(task) => task.run(),
            Self::Scan(task) => task.run(),
            Self::Read(task) => task.run(),
        }
    }
}

/// How this program is started once more.
#[derive(Debug, Clone, Copy)]
pub struct OwnProgram {
    /// Its arguments beside [`IS_ARM`], so that it calls [`serve`].
    pub arm: &'static [&'static str],
    /// Whether it is `pagewarden`, and so knows the other commands.
    pub has_commands: bool,
}

impl OwnProgram {
    /// A command of `pagewarden`; `None` if this is another program.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Option<Command> {
        self.has_commands.then(|| {
            let mut command = Command::new(SELF);
            command.args(words);
            command
        })
    }

    /// Runs a task in a process of its own, which works in `folder`.
    ///
    /// # Errors
    /// The task failed, or the run is to end.
    pub fn arm(&self, task: &Task, folder: &Path, stop: &AtomicBool) -> Result<Reading> {
        self.arm_by(Command::new(SELF), task, folder, stop)
    }

    /// As [`OwnProgram::arm`]; `command` starts this program in the end.
    ///
    /// # Errors
    /// As [`OwnProgram::arm`].
    pub fn arm_by(
        &self,
        mut command: Command,
        task: &Task,
        folder: &Path,
        stop: &AtomicBool,
    ) -> Result<Reading> {
        command.args(self.arm).env(IS_ARM, "1").current_dir(folder);
        let output = program::run(&mut command, &serde_json::to_string(task)?, stop)?;
        ensure!(output.status == Some(0), "the arm's process fails: {}", output.said());
        // A test program says more than that.
        let line = output.stdout.lines().rfind(|line| line.starts_with('{'));
        let line = line.with_context(|| format!("the arm's process says: {}", output.said()))?;
        serde_json::from_str(line).with_context(|| format!("the arm's process says: {line}"))
    }
}

/// Reads a task, runs it, and answers with its reading.
///
/// # Errors
/// There is no task, or it failed.
pub fn serve(input: impl Read, mut output: impl Write) -> Result<()> {
    let task: Task = serde_json::from_reader(input.take(TASK_BYTES_MAX)).context("no task")?;
    let reading = serde_json::to_string(&task.run()?)?;
    writeln!(output, "\n{reading}")?;
    Ok(())
}
