//! Rows of a result: what a report is given, written down, and given to a report again.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pagewarden::database::chains::BackupChains;
use pagewarden::database::repository::{Backup, BackupKind, Binlogs, Log, Lsn, RepositoryPart};
use pagewarden::database::{Description, Evidence};
use pagewarden::verdict::{
    ByteOffset, Finding, ModeCounts, Note, PageCounts, Protection, SeverityCounts, Unread,
};
use pagewarden::verify::{Summary, Verified};
use serde::{Deserialize, Serialize};

use crate::path::ExactPath;

/// One line of a unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Row {
    /// The subject of this number in the unit begins.
    Subject(u64),
    /// A target begins.
    Target(Box<TargetRow>),
    /// Something is wrong with a page or a file.
    Finding(Box<Finding>),
    /// Something could not be read.
    Unread(UnreadRow),
    /// A circumstance worth knowing.
    Note(Note),
    /// How long the target that ends next took. No part of what was found: two results that differ
    /// here only are the same.
    Time(TimeRow),
    /// The target ends.
    Done(Box<DoneRow>),
    /// A target could not be opened.
    Failed(FailedRow),
}

/// How the line of a [`Row::Time`] begins.
pub const TIME_BEGIN: &str = "{\"time\":";

/// A [`Description`], without what only seals need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetRow {
    path: ExactPath,
    format: String,
    engine: String,
    page_size: u32,
    setting: Option<Protection>,
    state: String,
    tested_by: String,
    unseen: String,
    live: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    part: Option<PartRow>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PartRow {
    Set(Box<SetRow>),
    Whole(Option<Log>),
    Binlogs(Option<Binlogs>),
    Media,
    Chains(Option<BackupChains>),
}

/// A [`Backup`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SetRow {
    tool: String,
    label: String,
    #[serde(rename = "type")]
    kind: BackupKind,
    prior: Option<String>,
    started: Option<String>,
    stopped: Option<String>,
    from_lsn: Option<Lsn>,
    to_lsn: Option<Lsn>,
    timeline: Option<u32>,
    database_version: Option<String>,
    system_identifier: Option<u64>,
    files: Option<u64>,
    repository_bytes: Option<u64>,
}

/// An [`Unread`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadRow {
    file: String,
    offset: ByteOffset,
    length: u64,
    error: String,
}

/// See [`Row::Time`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeRow {
    elapsed_ns: u64,
    /// Seconds since 1970.
    ended: u64,
}

/// A target's end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DoneRow {
    target: TargetRow,
    files: u64,
    pages: PageCounts,
    by_mode: ModeCounts,
    bytes: u64,
    severities: SeverityCounts,
    unread: u64,
    untested_files: u64,
    accepts_unverifiable: bool,
    listed_bytes: Option<u64>,
}

/// See [`Row::Failed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRow {
    /// The target.
    pub path: String,
    /// Why.
    pub error: String,
    ended: u64,
}

impl TargetRow {
    /// What a report gets at a target's beginning.
    #[must_use]
    pub fn of(description: &Description) -> Self {
        let part = description.part.as_ref().map(|part| match part {
            RepositoryPart::Set(backup) => PartRow::Set(Box::new(SetRow::of(backup))),
            RepositoryPart::Whole(log) => PartRow::Whole(log.as_deref().cloned()),
            RepositoryPart::Binlogs(log) => PartRow::Binlogs(log.as_deref().cloned()),
            RepositoryPart::Media => PartRow::Media,
            RepositoryPart::Chains(chains) => PartRow::Chains(chains.as_deref().cloned()),
        });
        Self {
            path: ExactPath(description.path.clone()),
            format: description.format.to_owned(),
            engine: description.engine.clone(),
            page_size: description.page_size,
            setting: description.setting,
            state: description.state.clone(),
            tested_by: description.evidence.tested_by.to_owned(),
            unseen: description.evidence.unseen.to_owned(),
            live: description.live,
            part,
        }
    }

    /// The description again.
    ///
    /// # Errors
    /// It says what no pagewarden says.
    pub fn description(self) -> io::Result<Description> {
        let part = match self.part {
            None => None,
            Some(PartRow::Whole(log)) => Some(RepositoryPart::Whole(log.map(Arc::new))),
            Some(PartRow::Binlogs(log)) => Some(RepositoryPart::Binlogs(log.map(Arc::new))),
            Some(PartRow::Media) => Some(RepositoryPart::Media),
            Some(PartRow::Chains(chains)) => Some(RepositoryPart::Chains(chains.map(Arc::new))),
            Some(PartRow::Set(set)) => Some(RepositoryPart::Set(Arc::new(set.backup()?))),
        };
        Ok(Description {
            path: self.path.0,
            format: kept(self.format)?,
            engine: self.engine,
            page_size: self.page_size,
            setting: self.setting,
            state: self.state,
            evidence: Evidence { tested_by: kept(self.tested_by)?, unseen: kept(self.unseen)? },
            live: self.live,
            epoch: None,
            part,
        })
    }
}

impl SetRow {
    fn of(backup: &Backup) -> Self {
        let backup = backup.clone();
        Self {
            tool: backup.tool.to_owned(),
            label: backup.label,
            kind: backup.kind,
            prior: backup.prior,
            started: backup.started,
            stopped: backup.stopped,
            from_lsn: backup.from_lsn,
            to_lsn: backup.to_lsn,
            timeline: backup.timeline,
            database_version: backup.database_version,
            system_identifier: backup.system_identifier,
            files: backup.files,
            repository_bytes: backup.repository_bytes,
        }
    }

    fn backup(self) -> io::Result<Backup> {
        Ok(Backup {
            tool: kept(self.tool)?,
            label: self.label,
            kind: self.kind,
            prior: self.prior,
            started: self.started,
            stopped: self.stopped,
            from_lsn: self.from_lsn,
            to_lsn: self.to_lsn,
            timeline: self.timeline,
            database_version: self.database_version,
            system_identifier: self.system_identifier,
            files: self.files,
            repository_bytes: self.repository_bytes,
        })
    }
}

impl UnreadRow {
    /// What a report gets.
    #[must_use]
    pub fn of(unread: &Unread) -> Self {
        Self {
            file: unread.file.clone(),
            offset: unread.offset,
            length: unread.length,
            error: unread.error.clone(),
        }
    }

    /// The same again.
    #[must_use]
    pub fn unread(self) -> Unread {
        let mut unread = Unread::of_file(self.file, self.error);
        (unread.offset, unread.length) = (self.offset, self.length);
        unread
    }
}

impl TimeRow {
    /// Of a target that took so long and ended then.
    #[must_use]
    pub fn of(elapsed: Duration, ended: SystemTime) -> Self {
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        Self { elapsed_ns, ended: seconds(ended) }
    }

    /// How long it took.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns)
    }

    /// When it ended.
    #[must_use]
    pub fn ended(&self) -> SystemTime {
        time(self.ended)
    }
}

impl DoneRow {
    /// What a report gets at a target's end.
    #[must_use]
    pub fn of(verified: &Verified, listed_bytes: Option<u64>) -> Self {
        let summary = &verified.summary;
        Self {
            target: TargetRow::of(&verified.description),
            files: summary.files,
            pages: summary.pages,
            by_mode: summary.by_mode,
            bytes: summary.bytes,
            severities: summary.severities,
            unread: summary.unread,
            untested_files: summary.untested_files,
            accepts_unverifiable: summary.accepts_unverifiable,
            listed_bytes,
        }
    }

    /// How much there was to read, where that is known.
    #[must_use]
    pub fn listed_bytes(&self) -> Option<u64> {
        self.listed_bytes
    }

    /// The target's end again; it took so long.
    ///
    /// # Errors
    /// It says what no pagewarden says.
    pub fn verified(self, elapsed: Duration) -> io::Result<Verified> {
        let summary = Summary {
            files: self.files,
            pages: self.pages,
            by_mode: self.by_mode,
            bytes: self.bytes,
            severities: self.severities,
            unread: self.unread,
            untested_files: self.untested_files,
            accepts_unverifiable: self.accepts_unverifiable,
            // The unit of a run that was stopped has no result.
            stopped: false,
            elapsed,
            ..Summary::default()
        };
        Ok(Verified::of(self.target.description()?, summary))
    }
}

impl FailedRow {
    /// A target that could not be opened.
    #[must_use]
    pub fn of(path: &str, error: &str, ended: SystemTime) -> Self {
        Self { path: path.to_owned(), error: error.to_owned(), ended: seconds(ended) }
    }

    /// When it was tried.
    #[must_use]
    pub fn ended(&self) -> SystemTime {
        time(self.ended)
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH)
}

/// More different texts than this no version of the program has.
const TEXTS_MAX: usize = 512;
/// No such text is longer.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// A text that is part of the program, in this or another version of it: which format, which tool,
/// what pages are tested by. There are some dozens, and each is kept once for the life of the
/// process, because descriptions hold them without owning them.
fn kept(text: String) -> io::Result<&'static str> {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text.as_str()) {
        return Ok(known);
    }
    if texts.len() >= TEXTS_MAX || text.len() > TEXT_BYTES_MAX {
        let what = "it describes databases as no pagewarden does";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let new: &'static str = text.leak();
    texts.insert(new);
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a set and its log are described by must come back word for word: it is printed.
    #[test]
    fn descriptions_of_backups_come_back_as_they_were() {
        let backup = Backup {
            tool: "pgBackRest",
            label: "20261123-084605F".to_owned(),
            kind: BackupKind::Incremental,
            prior: Some("older".to_owned()),
            from_lsn: Some(Lsn(0x1_00A0_0028)),
            timeline: Some(3),
            system_identifier: Some(u64::MAX),
            ..Backup::default()
        };
        let log = Log { segments: 7, ..Log::default() };
        let parts = [
            None,
            Some(RepositoryPart::Set(Arc::new(backup))),
            Some(RepositoryPart::Whole(Some(Arc::new(log)))),
            Some(RepositoryPart::Whole(None)),
        ];
        for part in parts {
            let description = Description {
                path: "/backups#one".into(),
                format: "postgres",
                engine: "PostgreSQL 15".to_owned(),
                page_size: 8192,
                setting: Some(Protection::Checksum),
                state: "checksums on".to_owned(),
                evidence: Evidence { tested_by: "sums", unseen: "older versions" },
                live: true,
                epoch: None,
                part,
            };
            let text = serde_json::to_string(&TargetRow::of(&description)).unwrap();
            let again: TargetRow = serde_json::from_str(&text).unwrap();
            let again = again.description().unwrap();
            assert_eq!(format!("{again:?}"), format!("{description:?}"));
        }
    }

    #[test]
    fn a_row_of_time_begins_as_it_is_looked_for() {
        let row = Row::Time(TimeRow::of(Duration::from_millis(3), UNIX_EPOCH));
        assert!(serde_json::to_string(&row).unwrap().starts_with(TIME_BEGIN));
    }
}
