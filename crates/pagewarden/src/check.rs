//! The front door: one database checked, with everything found in one value.
//!
//! [`check`] and [`Check`] are [`database::open_with`] and [`verify`] put together, for programs
//! that want a verdict and a list. A program that shows findings as they come, or that must not
//! keep them in memory, gives [`Check::run_with`] a [`Sink`] of its own.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::database::{self, OpenOptions};
use crate::error::Error;
use crate::source::rate::Rate;
use crate::verdict::{Finding, Note, Unread, Verdict};
use crate::verify::{Kept, Options, Progress, Sink, Verified, verify};

/// Checks the database at `path`: a data directory, a database file, a backup or a pack.
///
/// # Errors
/// No verdict can be given: there is no such path, it may not be read, or no known format fits.
pub fn check(path: impl AsRef<Path>) -> Result<Checked, Error> {
    Check::new(path).run()
}

/// A check that is yet to run.
#[derive(Debug, Clone)]
#[must_use = "nothing is checked until it runs"]
pub struct Check {
    path: PathBuf,
    format: Option<String>,
    open: OpenOptions,
    options: Options,
}

impl Check {
    /// A check of the database at `path` with the defaults of the command line.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            format: None,
            open: OpenOptions::default(),
            options: Options::default(),
        }
    }

    /// Takes the path for this format (`postgres`, `innodb`, `sqlserver`, `sqlite` ...), whatever
    /// it looks like.
    pub fn format(self, name: impl Into<String>) -> Self {
        Self { format: Some(name.into()), ..self }
    }

    /// Uses this number of threads; by default one for each core.
    pub fn jobs(mut self, jobs: NonZero<usize>) -> Self {
        self.options.jobs = jobs;
        self
    }

    /// Reads at most this number of bytes a second. Without this a check yields to whatever else uses
    /// the disk where a server lives on the target.
    pub fn rate(mut self, bytes_per_second: NonZero<u64>) -> Self {
        self.options.rate = Rate::AtMost(bytes_per_second);
        self
    }

    /// Opens encrypted tablespaces with the keys in this file.
    pub fn keyring(mut self, path: impl Into<PathBuf>) -> Self {
        self.open.keyring = Some(path.into());
        self
    }

    /// Looks for log of the database in this folder, too.
    pub fn wal(mut self, folder: impl Into<PathBuf>) -> Self {
        self.open.wal = Some(folder.into());
        self
    }

    /// Lets pages that cannot be tested pass: those without their key, or without a reader.
    pub fn accept_unverifiable(mut self) -> Self {
        self.options.accepts_unverifiable = true;
        self
    }

    /// Ends the run early once this is true; it is then [`Verdict::Incomplete`] at best.
    pub fn stop(mut self, stop: Arc<AtomicBool>) -> Self {
        self.options.stop = stop;
        self
    }

    /// Runs it, and keeps what it finds.
    ///
    /// # Errors
    /// As [`check`].
    pub fn run(self) -> Result<Checked, Error> {
        let mut kept = Kept::default();
        let verified = self.run_with(&(), &mut kept)?;
        let Kept { findings, unread, notes } = kept;
        Ok(Checked { verified, findings, unread, notes })
    }

    /// Runs it, and hands what it finds to `sink`.
    ///
    /// # Errors
    /// As [`check`]; and the sink could not take a result.
    pub fn run_with(self, progress: &dyn Progress, sink: &mut dyn Sink) -> Result<Verified, Error> {
        let format = match &self.format {
            None => None,
            Some(name) => Some(database::kind_named(name).ok_or_else(|| {
                let names: Vec<_> = crate::formats::FORMATS.iter().map(|one| one.name).collect();
                let hint = format!("name one of: {}", names.join(", "));
                Error::refused(&self.path, format!("there is no format {name}"), hint)
            })?),
        };
        let target = database::open_with(&self.path, format, &self.open)?;
        verify(target, &self.options, progress, sink)
            .map_err(|source| Error::io("check", &self.path, source))
    }
}

/// What a check found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Checked {
    /// What the database is, and what was counted.
    pub verified: Verified,
    /// What is wrong, in the order of the files; the first [`KEPT_MAX`](crate::KEPT_MAX).
    pub findings: Vec<Finding>,
    /// What could not be read; the first [`KEPT_MAX`](crate::KEPT_MAX).
    pub unread: Vec<Unread>,
    /// What is worth knowing besides; the first [`KEPT_MAX`](crate::KEPT_MAX).
    pub notes: Vec<Note>,
}

impl Checked {
    /// The verdict: [`Verdict::Intact`] only if everything that a server needs was looked at.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verified.verdict()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// A pack of a SQLite database, as our own script made it.
    fn pack() -> Vec<u8> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/pack/1/shop.pwk");
        std::fs::read(path).unwrap()
    }

    #[test]
    fn damage_is_a_result_and_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.pwk");
        let mut bytes = pack();
        std::fs::write(&path, &bytes).unwrap();
        let checked = check(&path).unwrap();
        assert!(checked.findings.is_empty() && checked.verdict() != Verdict::Damaged);
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let checked = check(&path).unwrap();
        assert_eq!(checked.verdict(), Verdict::Damaged, "{checked:?}");
        assert!(!checked.findings.is_empty());
    }

    #[test]
    fn what_cannot_be_looked_at_is_an_error_with_its_kind() {
        let kind = |check: Check| check.run().map(|_| ()).unwrap_err().kind();
        assert_eq!(kind(Check::new("no/such/file")), ErrorKind::NotFound);
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(kind(Check::new(folder.path())), ErrorKind::Unrecognised);
        assert_eq!(kind(Check::new(folder.path()).format("oracle")), ErrorKind::Refused);
    }

    #[test]
    fn run_that_was_stopped_is_incomplete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.pwk");
        std::fs::write(&path, pack()).unwrap();
        let stop = Arc::new(AtomicBool::new(true));
        let checked = Check::new(&path).stop(stop).run().unwrap();
        assert_eq!(checked.verdict(), Verdict::Incomplete);
    }
}
