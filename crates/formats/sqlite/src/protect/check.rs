//! Is the database sound? What `pagewarden check` says of it.

use std::io;
use std::path::Path;

use pagewarden_core::database::{OpenOptions, Target};
use pagewarden_core::error::Error;
use pagewarden_core::protect::Options;
use pagewarden_core::source::rate::Rate;
use pagewarden_core::verdict::{Finding, ModeCounts, Note, PageNo, Protection, Severity, Unread};
use pagewarden_core::verify::{self, Sink, verify};

/// What a check found.
#[derive(Debug, Default)]
pub(super) struct Soundness {
    /// What is wrong.
    pub(super) findings: Vec<Finding>,
    /// Pages that are damaged, or may be; at least one where anything is wrong.
    pub(super) damaged: u64,
    /// Pages that fail and need not pass, in order: free ones.
    pub(super) excused: Vec<PageNo>,
    /// All pages, and those in use by their protection.
    pub(super) pages: u64,
    pub(super) counts: ModeCounts,
    /// What the database says of itself.
    pub(super) setting: Option<Protection>,
    pub(super) bytes: u64,
    pub(super) stopped: bool,
    unread: Option<Unread>,
}

impl Soundness {
    pub(super) fn is_damaged(&self) -> bool {
        self.damaged > 0
    }
}

impl Sink for Soundness {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        match finding.severity {
            Severity::Notice => self.excused.extend(finding.place.page),
            Severity::Damage | Severity::Suspect => self.findings.push(finding.clone()),
        }
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.unread = Some(unread.clone());
        Ok(())
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }
}

/// Checks the database. What only its log explains is no ground against it where
/// `has_log`, since it is read through the log then.
pub(super) fn look(path: &Path, options: &Options, has_log: bool) -> Result<Soundness, Error> {
    let metadata = std::fs::metadata(path).map_err(|error| Error::io("open", path, error))?;
    let target = crate::files::open(path, &metadata, &pages_only())?;
    judge(target, path, options, has_log)
}

/// Checks our own copy of a database, which is neither compressed nor in an archive.
pub(super) fn look_at_copy(path: &Path, options: &Options) -> Result<Soundness, Error> {
    judge(crate::files::open_copy(path, false, &pages_only())?, path, options, false)
}

/// What pages say of one another is copied as it is, and no part of what is done here.
fn pages_only() -> OpenOptions {
    OpenOptions { no_witness: true, ..OpenOptions::default() }
}

/// What a check of `target` finds.
pub(super) fn all_findings(
    target: Target,
    path: &Path,
    options: &Options,
) -> Result<Soundness, Error> {
    judge(target, path, options, false)
}

fn judge(
    target: Target,
    path: &Path,
    options: &Options,
    has_log: bool,
) -> Result<Soundness, Error> {
    let options = verify::Options {
        jobs: options.jobs,
        rate: options.rate.map_or(Rate::Unlimited, Rate::AtMost),
        stop: options.stop.clone(),
        ..verify::Options::default()
    };
    let setting = target.description.setting;
    let mut found = Soundness { setting, ..Soundness::default() };
    let summary = verify(target, &options, &(), &mut found)
        .map_err(|error| Error::io("check", path, error))?
        .summary;
    if has_log {
        found.findings.retain(|finding| finding.severity == Severity::Damage);
    }
    if let Some(unread) = &found.unread {
        let reason = format!("byte {} cannot be read: {}", unread.offset.0, unread.error);
        return Err(Error::damaged(path, reason, "copy what is readable to another disk first"));
    }
    let counted = if has_log {
        summary.pages.damaged
    } else {
        summary.pages.damaged.saturating_add(summary.pages.suspect)
    };
    // A finding may be about no page.
    found.damaged = counted.max(u64::from(!found.findings.is_empty()));
    found.pages = summary.pages.total();
    found.counts = summary.by_mode;
    found.bytes = summary.bytes;
    found.stopped = summary.stopped;
    Ok(found)
}
