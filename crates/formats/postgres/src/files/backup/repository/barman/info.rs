//! `backup.info`: what Barman knows of a backup, as `key=value` lines.
//!
//! It is `base/ID/backup.info` up to Barman 3.4 and in clouds, `meta/ID-backup.info` in later versions.
//! Values are Python's: `None`, numbers, `[('name', 16385, '/place')]`. There is no sum. Source:
//! `barman/infofile.py`, and its own backups.

use std::collections::HashMap;
use std::io;

use pagewarden_core::database::repository::{Backup, BackupKind, Lsn};
use pagewarden_core::source::store::StorePath;

/// A line for each tablespace and for what was copied.
const INFO_BYTES_MAX: usize = 1 << 20;

/// What Barman says of a backup.
#[derive(Debug, Clone, Default)]
pub(super) struct Info {
    values: HashMap<String, String>,
}

/// How far a backup has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// It is complete, with its log or without.
    Done,
    /// Barman has not finished it, or has given up.
    Unfinished,
    /// A word that Barman does not write.
    Unknown,
}

impl Info {
    /// Reads one; `None` for a file that is no such one.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(place: &StorePath) -> io::Result<Option<Self>> {
        let bytes = place.first_bytes(INFO_BYTES_MAX)?;
        Ok(Self::parse(&String::from_utf8_lossy(&bytes)))
    }

    fn parse(text: &str) -> Option<Self> {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let values: HashMap<_, _> =
            lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let is_one = ["status", "begin_xlog", "server_name"];
        // One of them may be damaged.
        let count = is_one.iter().filter(|key| values.contains_key(**key)).count();
        (count >= 2).then_some(Self { values })
    }

    /// A value that is set.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str).filter(|value| !matches!(*value, "None" | ""))
    }

    /// How far it has come.
    pub(super) fn status(&self) -> Status {
        match self.get("status") {
            Some("DONE" | "WAITING_FOR_WALS") => Status::Done,
            Some("EMPTY" | "STARTED" | "FAILED" | "SYNCING") => Status::Unfinished,
            _ => Status::Unknown,
        }
    }

    /// The oids of its tablespaces.
    pub(super) fn tablespaces(&self) -> Vec<u32> {
        self.get("tablespaces").map(numbers).unwrap_or_default()
    }

    /// The set that it builds on.
    pub(super) fn parent(&self) -> Option<&str> {
        self.get("parent_backup_id")
    }

    /// What a report says of it.
    pub(super) fn backup(&self, tool: &'static str, label: &str, bytes: Option<u64>) -> Backup {
        let number = |key: &str| self.get(key).and_then(|text| text.parse::<u64>().ok());
        let text = |key: &str| self.get(key).map(|text| text.replacen(' ', "T", 1));
        let lsn = |key: &str| self.get(key).and_then(Lsn::parse);
        let version = number("version").map(|version| match version {
            100_000.. => (version / 10_000).to_string(),
            _ => format!("{}.{}", version / 10_000, version / 100 % 100),
        });
        Backup {
            tool,
            label: label.to_owned(),
            kind: match self.parent() {
                Some(_) => BackupKind::Incremental,
                None => BackupKind::Full,
            },
            prior: self.parent().map(str::to_owned),
            started: text("begin_time"),
            stopped: text("end_time"),
            from_lsn: lsn("begin_xlog"),
            to_lsn: lsn("end_xlog"),
            timeline: number("timeline").and_then(|number| u32::try_from(number).ok()),
            database_version: version,
            system_identifier: number("systemid"),
            files: None,
            repository_bytes: bytes,
        }
    }
}

/// The numbers of a Python literal that are in none of its strings.
fn numbers(literal: &str) -> Vec<u32> {
    let (mut found, mut digits) = (Vec::new(), String::new());
    let mut quote = None;
    let mut letters = literal.chars();
    while let Some(letter) = letters.next() {
        match quote {
            Some(_) if letter == '\\' => {
                letters.next();
            }
            Some(end) if letter == end => quote = None,
            Some(_) => {}
            None if matches!(letter, '\'' | '"') => quote = Some(letter),
            None if letter.is_ascii_digit() => digits.push(letter),
            None => {
                found.extend(digits.parse::<u32>().ok());
                digits.clear();
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_tool() {
        let text = "begin_time=2026-11-23 09:13:21.2+00:00\nbegin_xlog=0/3800028\nend_xlog=None\n\
            status=DONE\nsystemid=77\ntimeline=1\nversion=150018\nparent_backup_id=None\n\
            tablespaces=[('ts1', 16770, '/a b'), (\"it's 12\", 16771, '/c\\'1')]\nserver_name=demo\n";
        let info = Info::parse(text).unwrap();
        assert_eq!(info.status(), Status::Done);
        assert_eq!(info.tablespaces(), [16770, 16771]);
        let backup = info.backup("Barman", "x", None);
        assert_eq!(backup.started.as_deref(), Some("2026-11-23T09:13:21.2+00:00"));
        assert_eq!((backup.from_lsn, backup.to_lsn), (Some(Lsn(0x380_0028)), None));
        assert_eq!(backup.database_version.as_deref(), Some("15"));
        assert_eq!((backup.kind, backup.system_identifier), (BackupKind::Full, Some(77)));
    }

    #[test]
    fn other_files_are_none_and_unknown_words_are_no_status() {
        assert!(Info::parse("a=b\nstatus=DONE\n").is_none());
        let status = |word: &str| {
            Info::parse(&format!("status={word}\nbegin_xlog=None\n")).unwrap().status()
        };
        assert_eq!(status("FAILED"), Status::Unfinished);
        assert_eq!(status("DONF"), Status::Unknown);
        assert_eq!(status("WAITING_FOR_WALS"), Status::Done);
    }
}
