//! Python with some package: a process that answers one line for each line it is given, and scripts
//! that write files.
//!
//! `PAGEWARDEN_` and the name of what is tested, in capitals, names the program; where `PAGEWARDEN_REQUIRE` names it,
//! the package must be there.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::panic,
    reason = "for tests only: what fails ends them, and what they skip is said aloud"
)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::required;

fn program(name: &str) -> String {
    std::env::var(format!("PAGEWARDEN_{}", name.to_uppercase()))
        .unwrap_or_else(|_| "python3".to_owned())
}

/// Runs a script with a folder of its own as its argument, and gives the folder. `None`, said aloud,
/// where Python lacks a package.
///
/// # Panics
/// The script fails, or the package is required.
#[must_use]
pub fn files_of(name: &str, script: &str) -> Option<TempDir> {
    let program = program(name);
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(&program).args(["-c", script]).arg(folder.path()).output().unwrap();
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(!required(name), "PAGEWARDEN_REQUIRE names {name}: {said}");
        assert!(said.contains("No module named"), "{said}");
        eprintln!("SKIPPED: {program}: {}", said.lines().last().unwrap_or_default());
        return None;
    }
    Some(folder)
}

/// Such a process. It ends when its input does.
#[derive(Debug)]
pub struct Python {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Python {
    /// Runs `script`, which says the version of `package` first. `None`, said aloud, where there is no
    /// such package.
    ///
    /// # Panics
    /// The package is required.
    #[must_use]
    pub fn with(name: &str, package: &str, script: &str) -> Option<Self> {
        let program = program(name);
        let mut process = Command::new(&program)
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut python = Self { process, answers };
        let version = python.answer();
        if version.is_empty() {
            assert!(!required(name), "PAGEWARDEN_REQUIRE names {name}: {program} has no {package}");
            eprintln!("SKIPPED: {program} has no package {package}");
            return None;
        }
        eprintln!("{package} {version}");
        Some(python)
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The answer to a command about a file.
    ///
    /// # Panics
    /// The process has ended.
    pub fn ask(&mut self, command: &str, path: &Path, number: usize) -> String {
        let mut input = self.process.stdin.as_ref().unwrap();
        writeln!(input, "{command}\t{}\t{number}", path.display()).unwrap();
        self.answer()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
