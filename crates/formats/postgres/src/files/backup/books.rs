//! What a base backup says of itself: in its label, its control file and its manifest.
//!
//! | question | answer |
//! | --- | --- |
//! | where replay begins | the label |
//! | where the database is consistent | the manifest's range of log (13 and later); of a standby's backup, its control file; else the log itself, in the record that ends the backup |
//! | which cluster, which timeline | the control file; the label's first segment, or the last range |

use std::sync::{Arc, OnceLock};

use crate::files::backup::label::Label;
use crate::files::backup::manifest::Manifest;
use crate::files::control::Control;
use crate::files::wal::span::{Span, Until};
use pagewarden_core::database::repository::{Backup, BackupKind, Lsn};

/// What is known of one backup, once it was read.
#[derive(Debug)]
pub(super) struct Books {
    /// What the report calls the backup.
    label: String,
    found: OnceLock<Result<Found, String>>,
}

/// What the books of a backup say.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) backup: Arc<Backup>,
    /// Where the backup began that an incremental one builds on.
    pub(super) prior_lsn: Option<u64>,
    /// Bytes in a segment of the log.
    pub(super) segment_bytes: u32,
}

impl Books {
    /// Nothing is known yet of the backup of this name.
    pub(super) fn of(label: String) -> Self {
        Self { label, found: OnceLock::new() }
    }

    /// The backup's name.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Takes what was read; only the first time counts.
    pub(super) fn learn(
        &self,
        label: Option<&str>,
        control: Option<&Control>,
        manifest: Option<&Manifest>,
    ) {
        self.found.get_or_init(|| self.found(label, control, manifest));
    }

    /// What was read, or why that says nothing.
    pub(super) fn get(&self) -> Result<&Found, String> {
        match self.found.get() {
            Some(Ok(found)) => Ok(found),
            Some(Err(why)) => Err(why.clone()),
            None => Err("it was not read to its end".to_owned()),
        }
    }

    /// The backup, if its books say what it is.
    pub(super) fn backup(&self) -> Option<Arc<Backup>> {
        self.get().ok().map(|found| Arc::clone(&found.backup))
    }

    fn found(
        &self,
        label: Option<&str>,
        control: Option<&Control>,
        manifest: Option<&Manifest>,
    ) -> Result<Found, String> {
        let text = label.ok_or("it has no backup_label: it is no base backup as it was taken")?;
        let control = control.ok_or("it has no control file that can be believed")?;
        let span = Span::of_copy(Some(text), control)?;
        let ranges = manifest.map(|manifest| manifest.wal_ranges.as_slice()).unwrap_or_default();
        let range = ranges.iter().max_by_key(|range| range.end_lsn);
        let by_control = match span.until {
            Until::Position(position) => Some(position),
            Until::EndOfBackup | Until::EndOfLog(_) => None,
        };
        let label = Label::parse(text.as_bytes());
        let kind = if label.is_incremental { BackupKind::Incremental } else { BackupKind::Full };
        let started = text.lines().find_map(|line| line.strip_prefix("START TIME: "));
        let backup = Backup {
            tool: if manifest.is_some() { "pg_basebackup" } else { "PostgreSQL" },
            label: self.label.clone(),
            kind,
            started: started.and_then(in_utc),
            from_lsn: Some(Lsn(span.begin)),
            to_lsn: range.map(|range| range.end_lsn).or(by_control).map(Lsn),
            timeline: Some(range.map_or(span.timeline, |range| range.timeline)),
            database_version: control.major().map(str::to_owned),
            system_identifier: Some(control.system_identifier),
            files: manifest.map(|manifest| manifest.files),
            ..Backup::default()
        };
        let backup = Arc::new(backup);
        let segment_bytes = control.wal_segment_bytes;
        Ok(Found { backup, prior_lsn: label.prior_lsn, segment_bytes })
    }
}

/// `2026-11-23 09:10:11 UTC` as `2026-11-23T09:10:11Z`. Names of other zones mean different times in
/// different places.
fn in_utc(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let (date, time, zone) = (words.next()?, words.next()?, words.next()?);
    matches!(zone, "UTC" | "GMT" | "Etc/UTC").then(|| format!("{date}T{time}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_label_counts_only_in_a_zone_that_is_the_same_everywhere() {
        let time = Some("2026-11-23T09:10:11Z".to_owned());
        assert_eq!(in_utc("2026-11-23 09:10:11 UTC"), time);
        assert_eq!(in_utc("2026-11-23 09:10:11 IST"), None);
        assert_eq!(in_utc("2026-11-23"), None);
    }

    #[test]
    fn books_that_are_lost_say_why_nothing_is_known() {
        let books = Books::of("a".to_owned());
        assert!(books.get().unwrap_err().contains("not read"));
        books.learn(None, None, None);
        assert!(books.get().unwrap_err().contains("backup_label"));
        assert!(books.backup().is_none());
    }
}
