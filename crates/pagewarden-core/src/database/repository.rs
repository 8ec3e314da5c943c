//! Repositories in which a backup tool keeps sets: a folder with many backups of one database,
//! in a form of the tool's own, that share files with one another.
//!
//! Each set is a target, and so is the repository itself, which holds the log that all sets need.
//! Tools are entries of [`Format::repositories`](crate::database::Format::repositories); none is recognised by names alone.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::database::chains::BackupChains;
use crate::database::{OpenOptions, Probe, Target};
use crate::error::Error;
use crate::source::store::StorePath;
use crate::verdict::Verdict;

/// A backup tool, with how its repositories are recognised and opened.
#[derive(Debug)]
pub struct RepositoryKind {
    /// The tool's name, for people.
    pub tool: &'static str,
    /// Looks at a folder by the content of the tool's own files.
    pub probe: fn(&StorePath) -> Probe,
    /// Opens the folder, which may be a repository, a part of one or one set.
    ///
    /// # Errors
    /// Nothing can be said at all: it cannot be listed, or what was asked for by name is not
    /// there. What is wrong with one set is a matter of that set's target.
    pub open: fn(&StorePath, &OpenOptions) -> Result<Sets, Error>,
}

/// The targets of a repository.
pub struct Sets {
    /// How many targets there are.
    pub count: usize,
    /// The sets, oldest first, and at last the repository itself. A target is opened when it is
    /// asked for: after the one before it was verified, so that it knows what was read.
    pub targets: Box<dyn Iterator<Item = Target> + Send>,
    /// Takes what came of each target: what is said of all of them depends on it.
    pub outcomes: Outcomes,
    /// What the names of the files of the log tell; `None` where it was not listed.
    pub outline: Option<Outline>,
}

/// The outlines of the logs of a repository, made when they are asked for.
pub type Outline = Arc<dyn Fn() -> Vec<LogOutline> + Send + Sync>;

/// What came of the targets that were verified, by their paths.
#[derive(Debug, Clone, Default)]
pub struct Outcomes(Arc<Mutex<BTreeMap<PathBuf, Verdict>>>);

impl Outcomes {
    /// Notes what came of a target.
    pub fn tell(&self, path: &Path, verdict: Verdict) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(path.to_owned(), verdict);
    }

    /// True if the set of this label, or of this path, was found to be damaged.
    #[must_use]
    pub fn is_damaged(&self, label: &str) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|(path, verdict)| {
            let path = path.to_string_lossy();
            let set = path.rsplit_once('#').map_or("", |(_, set)| set);
            *verdict == Verdict::Damaged && (set == label || path == label)
        })
    }

    /// What came of a target; `None` if that was not said.
    #[must_use]
    pub fn of(&self, path: &Path) -> Option<Verdict> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(path).copied()
    }
}

impl Sets {
    /// Targets, the last of which asks `outcomes`.
    pub fn of(
        count: usize,
        targets: impl Iterator<Item = Target> + Send + 'static,
        outcomes: Outcomes,
    ) -> Self {
        Self { count, targets: Box::new(targets), outcomes, outline: None }
    }

    /// The same with what the names of the log tell.
    #[must_use]
    pub fn with_outline(self, outline: Option<Outline>) -> Self {
        Self { outline, ..self }
    }
}

impl fmt::Debug for Sets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sets").field("count", &self.count).finish_non_exhaustive()
    }
}

/// What is wanted of a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepositoryOptions {
    /// The name of the database's configuration: a stanza or a server. `None`: all of them.
    pub stanza: Option<String>,
    /// Labels of the wanted sets; none: all of them.
    pub sets: Vec<String>,
    /// Of each stanza, only the newest set.
    pub latest: bool,
    /// The archived log is not read.
    pub no_log: bool,
    /// A file with the passphrase or key. Without it, the tool's own variables are asked.
    pub cipher_pass_file: Option<PathBuf>,
}

impl RepositoryOptions {
    /// True if a set of this label is wanted, as far as it was named.
    #[must_use]
    pub fn wants(&self, label: &str) -> bool {
        self.sets.is_empty() || self.sets.iter().any(|wanted| wanted == label)
    }
}

/// What part of a repository a target is.
#[derive(Debug, Clone)]
pub enum RepositoryPart {
    /// A backup set.
    Set(Arc<Backup>),
    /// The repository itself, with its log if that was read.
    Whole(Option<Arc<Log>>),
    /// Binary logs of MySQL or MariaDB, with how far they go once they were read.
    Binlogs(Option<Arc<Binlogs>>),
    /// Files that hold a backup, or several, of a folder of such.
    Media,
    /// The folder itself, with what its backups are to one another once they were read.
    Chains(Option<Arc<BackupChains>>),
}

/// What a tool's books say of a backup set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Backup {
    /// The tool.
    pub tool: &'static str,
    /// The set's name.
    pub label: String,
    /// Whether it needs other sets.
    #[serde(rename = "type")]
    pub kind: BackupKind,
    /// The label of the set that it builds on.
    pub prior: Option<String>,
    /// When it was begun: `2026-11-23T09:10:11Z`.
    pub started: Option<String>,
    /// When it was done.
    pub stopped: Option<String>,
    /// Where replay begins: `0/A00028`.
    pub from_lsn: Option<Lsn>,
    /// Up to where replay must come before the database is consistent.
    pub to_lsn: Option<Lsn>,
    /// The timeline that it was taken on.
    pub timeline: Option<u32>,
    /// The server's version: `15`.
    pub database_version: Option<String>,
    /// The cluster's number.
    pub system_identifier: Option<u64>,
    /// Files in the database.
    pub files: Option<u64>,
    /// Bytes that the set itself takes in the repository.
    pub repository_bytes: Option<u64>,
}

/// Whether a set needs others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackupKind {
    /// It stands alone.
    #[default]
    Full,
    /// It needs a full one.
    Differential,
    /// It needs the one before it.
    Incremental,
}

impl BackupKind {
    /// The word used in text and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Differential => "differential",
            Self::Incremental => "incremental",
        }
    }
}

/// A position in the log, written as servers do: `0/A00028`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Reads one as servers write it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (high, low) = text.split_once('/')?;
        let part = |text: &str| match text.len() {
            1..=8 if text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                u32::from_str_radix(text, 16).ok()
            }
            _ => None,
        };
        Some(Self(u64::from(part(high)?) << 32 | u64::from(part(low)?)))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl Serialize for Lsn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lsn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("no position in a log"))
    }
}

/// The archived log of a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// Segments that were read.
    pub segments: u64,
    /// Segments that are missing between others.
    pub gaps: Vec<LogGap>,
    /// What can be brought back.
    pub restorable: Vec<Restorable>,
}

/// What the names of the segments of a log tell. None of it says that anything is sound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LogOutline {
    /// The log's name, where there are several.
    pub name: String,
    /// Segments that are here.
    pub segments: u64,
    /// Bytes that they take.
    pub stored_bytes: u64,
    /// The first and the last.
    pub first: Option<String>,
    /// The last in the order of timelines.
    pub last: Option<String>,
    /// Segments that are missing between others.
    pub gaps: Vec<LogGap>,
    /// What can be brought back if every set and segment is sound; the last moment is not known.
    pub restorable: Vec<Restorable>,
    /// Sets that cannot be made consistent: a segment that they need is not here.
    pub lacking: Vec<String>,
    /// The tool calls a set done only when its log is here: what is lacking was lost.
    pub waits_for_log: bool,
    /// Sets whose books do not say which log they need.
    pub undetermined: Vec<String>,
    /// Why nothing follows from the names.
    pub unknown: Option<String>,
}

/// Segments that are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogGap {
    /// Their timeline.
    pub timeline: u32,
    /// The name of the first.
    pub first: String,
    /// The name of the last.
    pub last: String,
}

/// How far a set can be brought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restorable {
    /// The set's label.
    pub set: String,
    /// The timeline that is followed.
    pub timeline: u32,
    /// The earliest consistent position.
    pub from_lsn: Lsn,
    /// The last position.
    pub to_lsn: Lsn,
    /// The time of the earliest consistent position.
    pub from_time: Option<String>,
    /// The time of the last commit.
    pub to_time: Option<String>,
}

/// Binary logs of MySQL or MariaDB.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binlogs {
    /// Files that are here.
    pub files: u64,
    /// Files that are missing between others.
    pub gaps: Vec<BinlogGap>,
    /// Stretches in which every event is sound; of backups, how far each can be brought.
    pub reachable: Vec<Reachable>,
}

/// Files that are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinlogGap {
    /// The name of the first.
    pub first: String,
    /// The name of the last.
    pub last: String,
}

/// A stretch of binary logs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reachable {
    /// The backup that can be brought along it.
    pub set: Option<String>,
    /// Where it begins.
    pub from_file: String,
    /// The byte in that file.
    pub from_position: u64,
    /// Where its last transaction ends.
    pub to_file: String,
    /// The byte in that file.
    pub to_position: u64,
    /// The time of its first transaction; of a backup, `None`.
    pub from_time: Option<String>,
    /// The time of its last transaction; `None`: there is none.
    pub to_time: Option<String>,
}

impl Binlogs {
    /// How far they go, for people.
    #[must_use]
    pub fn in_words(&self) -> String {
        const SHOWN_MAX: usize = 3;
        let way = |it: &Reachable| {
            let to = it.to_time.as_deref().unwrap_or("no later transaction");
            match (&it.set, &it.from_time) {
                (Some(set), _) => format!("{set} to {to}"),
                (None, Some(from)) => format!("{from} to {to}"),
                (None, None) => to.to_owned(),
            }
        };
        let mut words = match self.files {
            1 => "1 binary log".to_owned(),
            files => format!("{files} binary logs"),
        };
        let is_of_backups = self.reachable.iter().any(|it| it.set.is_some());
        words.push_str(match (self.reachable.is_empty(), is_of_backups) {
            (true, _) => ", without a transaction",
            (false, true) => "; can be brought: ",
            (false, false) => ", transactions ",
        });
        let ways: Vec<_> = self.reachable.iter().take(SHOWN_MAX).map(way).collect();
        words.push_str(&ways.join("; "));
        if self.reachable.len() > SHOWN_MAX {
            words.push_str("; and more");
        }
        words
    }
}

/// The stretches of time in all moments of which something can be brought back, oldest first. That two
/// ways meet follows from positions in the log: in an idle database the last commit is long before the end.
/// `None` where the times of a way are not known.
#[must_use]
pub fn spans(restorable: &[Restorable]) -> Option<Vec<(&str, &str)>> {
    let way = |it: &Restorable| (it.from_lsn, it.to_lsn);
    let mut ways: Vec<&Restorable> = restorable.iter().collect();
    ways.sort_by_key(|it| way(it));
    let mut spans: Vec<(&str, &str)> = Vec::new();
    let mut reached = Lsn(0);
    for one in ways {
        let (from, to) = (one.from_time.as_deref()?, one.to_time.as_deref()?);
        match spans.last_mut().filter(|_| one.from_lsn <= reached) {
            Some(last) => last.1 = last.1.max(to),
            None => spans.push((from, to)),
        }
        reached = reached.max(one.to_lsn);
    }
    Some(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_written_as_servers_do() {
        assert_eq!(Lsn::parse("1/A00028"), Some(Lsn(0x1_00A0_0028)));
        assert_eq!(Lsn(0x1_00A0_0028).to_string(), "1/A00028");
        for text in ["", "/", "1", "1/", "1/123456789", "x/1", "-1/1", "+1/1"] {
            assert_eq!(Lsn::parse(text), None, "{text}");
        }
    }
}
