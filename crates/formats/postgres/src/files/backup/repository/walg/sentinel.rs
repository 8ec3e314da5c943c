//! The books of a WAL-G backup: `NAME_backup_stop_sentinel.json`, without which a backup is none, and
//! `NAME/files_metadata.json`, which says what a delta holds and what it takes from the set before it.
//!
//! Both are plain JSON, also of an encrypted backup, without a sum: a byte that changes a number in them
//! is not detected. Source: `backup_sentinel_dto.go` and `files_metadata.go` of WAL-G.

use std::collections::HashMap;
use std::io::{self, BufReader, Read as _};

use serde::Deserialize;

use pagewarden_core::source::store::StorePath;

/// What a sentinel's name ends with.
pub(super) const ENDING: &str = "_backup_stop_sentinel.json";
/// The list of files in a backup's folder.
pub(super) const FILES: &str = "files_metadata.json";

/// A sentinel has a few kilobytes, and one line for each tablespace.
const SENTINEL_BYTES_MAX: u64 = 16 << 20;
/// Some hundred bytes for each file.
const FILES_BYTES_MAX: u64 = 1 << 30;

/// What is read of a sentinel; a field that is not there is not known.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Sentinel {
    #[serde(rename = "LSN")]
    pub(super) lsn: Option<u64>,
    #[serde(rename = "FinishLSN")]
    pub(super) finish_lsn: Option<u64>,
    pub(super) delta_from: Option<String>,
    pub(super) pg_version: Option<u64>,
    pub(super) system_identifier: Option<u64>,
    pub(super) start_time: Option<String>,
    pub(super) finish_time: Option<String>,
    pub(super) files_metadata_disabled: Option<bool>,
}

/// What is read of the list of files.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Files {
    pub(super) files: HashMap<String, FileEntry>,
    pub(super) tar_file_sets: HashMap<String, Vec<String>>,
}

/// One file or folder of the database.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct FileEntry {
    /// Its member holds changed pages only.
    pub(super) is_incremented: bool,
    /// It is as in the set before.
    pub(super) is_skipped: bool,
    /// Blocks that failed when the backup was taken.
    pub(super) corrupt_blocks: Option<CorruptBlocks>,
}

/// What `backup-push --verify` noted.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct CorruptBlocks {
    pub(super) corrupt_blocks_count: u64,
    pub(super) some_corrupt_blocks: Vec<u64>,
}

impl Sentinel {
    /// Reads one.
    ///
    /// # Errors
    /// See [`BooksError`].
    pub(super) fn read(place: &StorePath) -> Result<Self, BooksError> {
        let sentinel: Self = read(place, SENTINEL_BYTES_MAX)?;
        match sentinel.lsn {
            Some(_) => Ok(sentinel),
            None => Err(BooksError::Wrong("it names no LSN".to_owned())),
        }
    }

    /// The server's version as people say it.
    pub(super) fn major(&self) -> Option<String> {
        let number = self.pg_version?;
        Some(match number {
            100_000.. => (number / 10_000).to_string(),
            _ => format!("{}.{}", number / 10_000, number / 100 % 100),
        })
    }
}

impl Files {
    /// Reads one, with the names of files below the data directory.
    ///
    /// # Errors
    /// See [`BooksError`].
    pub(super) fn read(place: &StorePath) -> Result<Self, BooksError> {
        let Self { files, tar_file_sets } = read(place, FILES_BYTES_MAX)?;
        let relative = |name: String| name.trim_start_matches('/').to_owned();
        let files = files.into_iter().map(|(name, entry)| (relative(name), entry)).collect();
        let sets = tar_file_sets.into_iter();
        let sets = sets.map(|(tar, names)| (tar, names.into_iter().map(relative).collect()));
        Ok(Self { files, tar_file_sets: sets.collect() })
    }
}

/// Why nothing can be taken from one.
#[derive(Debug)]
pub(super) enum BooksError {
    /// It is not there.
    Missing,
    /// It could not be read.
    Unread(io::Error),
    /// It is no such file.
    Wrong(String),
}

fn read<T: for<'a> Deserialize<'a>>(place: &StorePath, bytes_max: u64) -> Result<T, BooksError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => BooksError::Missing,
        _ => BooksError::Unread(error),
    };
    let file = place.open().map_err(failed)?;
    if file.length().map_err(failed)? > bytes_max {
        return Err(BooksError::Wrong(format!("it is longer than {bytes_max} bytes")));
    }
    serde_json::from_reader(BufReader::new(file.take(bytes_max))).map_err(|error| {
        match error.io_error_kind() {
            Some(_) => BooksError::Unread(error.into()),
            None => BooksError::Wrong(error.to_string()),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn books_are_read_and_what_is_not_known_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, r#"{"LSN":5,"DeltaFrom":"b","PgVersion":90624,"New":[1]}"#).unwrap();
        let sentinel = Sentinel::read(&StorePath::local(&path)).unwrap();
        assert_eq!((sentinel.lsn, sentinel.delta_from.as_deref()), (Some(5), Some("b")));
        assert_eq!(sentinel.major().as_deref(), Some("9.6"));
        fs::write(
            &path,
            r#"{"Files":{"/base/1/2":{"IsIncremented":true,"MTime":"x"}},
                "TarFileSets":{"part_001.tar.br":["/base/1/2"]},"DatabasesByNames":{"a":{"oid":1}}}"#,
        )
        .unwrap();
        let files = Files::read(&StorePath::local(&path)).unwrap();
        assert!(files.files["base/1/2"].is_incremented && !files.files["base/1/2"].is_skipped);
        assert_eq!(files.tar_file_sets["part_001.tar.br"], ["base/1/2"]);
    }

    #[test]
    fn what_is_no_json_is_wrong_and_what_is_not_there_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        assert!(matches!(Sentinel::read(&StorePath::local(&path)), Err(BooksError::Missing)));
        for text in ["", "{", "[]", r#"{"LSN":-1}"#, &"[".repeat(100_000)] {
            fs::write(&path, text).unwrap();
            assert!(
                matches!(Sentinel::read(&StorePath::local(&path)), Err(BooksError::Wrong(_))),
                "{text:.20}"
            );
        }
    }
}
