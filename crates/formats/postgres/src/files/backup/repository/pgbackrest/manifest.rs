//! A set's manifest: which files the database has, and where their bytes lie.
//!
//! | key of a file | meaning | without it |
//! | --- | --- | --- |
//! | `size` | bytes of the file | must be there |
//! | `repo-size` | stored bytes | as `size` |
//! | `checksum` | SHA-1 of the file | an empty file |
//! | `rck` | SHA-1 of the stored bytes, a block map included | plain files of 2.45 |
//! | `reference` | the label in whose folder the stored bytes lie | the set's own |
//! | `bni`, `bno` | the bundle, and the offset in it (0) | not bundled |
//! | `bi` | bytes of a block / 8192 | not block incremental |
//! | `bim`, `bic` | bytes of the block map, and of a block's checksum (6) | |
//! | `checksum-page-error` | pages that failed when the backup was taken; ranges as lists | none |
//!
//! A manifest has as many lines as the database has files, so it is not kept: [`Manifest::read`] takes
//! from it what is needed at once, and [`Manifest::entries`] goes through the files once more.
//!
//! Source: `info/manifest/` of pgBackRest; manifests of 2.45 and 2.60.

use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;
use serde_json::Value;

use crate::files::backup::repository::pgbackrest::cipher::Passphrase;
use crate::files::backup::repository::pgbackrest::info::{InfoFault, InfoFile, Lines};
use crate::files::backup::repository::pgbackrest::stored::Codec;
use pagewarden_core::database::repository::{Backup, BackupKind, Lsn};

/// The section with the files.
const FILES: &str = "target:file";
/// What stands before the data directory's files.
const DATA: &str = "pg_data/";
/// The unit of `bi`.
const BLOCK_UNIT: u64 = 8192;
/// The tool's blocks have 352 KiB at most.
const BLOCK_UNITS_MAX: u64 = 2048;
/// Labels that one manifest may name: a chain of a year of daily backups has 366.
const REFERENCES_MAX: usize = 100_000;
/// Files with page errors, and ranges of them, past which the rest is not kept.
const PAGE_ERRORS_MAX: usize = 1_000_000;

/// The files that say what the others are, given first.
pub(super) const FIRST: [&str; 3] = ["global/pg_control", "backup_label", "PG_VERSION"];

/// Pages that failed when the backup was taken: first and last, counted over all segments.
pub(super) type PageRanges = Vec<(u64, u64)>;

/// What a manifest says, but for its files.
#[derive(Debug)]
pub(super) struct Manifest {
    file: InfoFile,
    /// For the report.
    pub(super) backup: Backup,
    /// The label that it says it is of.
    pub(super) label: String,
    /// The labels that block maps refer to by number.
    pub(super) references: Vec<String>,
    /// How stored files are compressed.
    pub(super) codec: Codec,
    /// Bundles and block incrementals are stored without magic bytes.
    pub(super) is_raw: bool,
    /// Taken while the server ran.
    pub(super) is_online: bool,
    /// Pages were tested when the backup was taken.
    pub(super) tests_pages: bool,
    /// Opens the set's files.
    pub(super) passphrase: Option<Passphrase>,
    /// Pages that failed then, by the file's name in the database.
    pub(super) page_errors: HashMap<String, PageRanges>,
    /// The entries of [`FIRST`].
    pub(super) first: Vec<Entry>,
    /// Names that decide whether the files of a cluster are all there.
    pub(super) names: Names,
}

/// See [`Manifest::names`].
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Folders below `base` and in tablespaces that hold relations.
    pub(super) databases: BTreeSet<String>,
    /// Small files of which each database has one.
    pub(super) small: BTreeSet<String>,
    /// Folders in which at least one file lies.
    pub(super) folders: BTreeSet<String>,
    /// Folders as they are listed.
    pub(super) paths: BTreeSet<String>,
}

/// One file of the database.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    /// Its name in the manifest: `pg_data/base/1/1259`.
    pub(super) stored_name: String,
    /// Its name in the database: `base/1/1259`.
    pub(super) name: String,
    /// See [`Fields`].
    pub(super) fields: Fields,
    /// Why the entry says nothing.
    pub(super) fault: Option<&'static str>,
}

/// What the manifest says of a file; see the module.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Fields {
    pub(super) size: Option<u64>,
    #[serde(rename = "repo-size")]
    repo_size: Option<u64>,
    pub(super) checksum: Option<String>,
    pub(super) rck: Option<String>,
    pub(super) reference: Option<String>,
    #[serde(rename = "bni")]
    pub(super) bundle: Option<u64>,
    #[serde(rename = "bno")]
    pub(super) bundle_offset: u64,
    bi: Option<u64>,
    #[serde(rename = "bim")]
    pub(super) map_bytes: Option<u64>,
    #[serde(rename = "bic")]
    pub(super) checksum_bytes: Option<usize>,
    #[serde(rename = "checksum-page-error")]
    page_errors: Option<Value>,
}

impl Entry {
    fn parse(key: &str, value: &str) -> Self {
        let name = key.strip_prefix(DATA).unwrap_or(key);
        let mut entry =
            Self { stored_name: key.to_owned(), name: name.to_owned(), ..Self::default() };
        match serde_json::from_str(value) {
            Ok(fields) => entry.fields = fields,
            Err(_) => entry.fault = Some("its entry in the manifest cannot be read"),
        }
        if entry.fault.is_none() {
            entry.fault = entry.objection();
        }
        entry
    }

    /// Numbers and names that no manifest has.
    fn objection(&self) -> Option<&'static str> {
        let Fields { size, bundle_offset, bi, map_bytes, checksum_bytes, .. } = self.fields;
        let is_path = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        if !self.stored_name.split('/').all(is_path) {
            return Some("a name that leads out of the set");
        }
        if self.fields.reference.as_deref().is_some_and(|label| !is_label(label)) {
            return Some("a reference that is no label");
        }
        if size.is_none() {
            return Some("its entry in the manifest has no size");
        }
        let limit = 1 << 60;
        let ends = bundle_offset.checked_add(self.stored_bytes());
        if size > Some(limit) || ends.is_none_or(|end| end > limit) {
            return Some("a size in the manifest that no file has");
        }
        if map_bytes.is_some_and(|bytes| bytes > self.stored_bytes())
            || checksum_bytes.is_some_and(|bytes| !(1..=16).contains(&bytes))
            || map_bytes.is_some()
                && !bi.is_some_and(|units| (1..=BLOCK_UNITS_MAX).contains(&units))
        {
            return Some("a block map in the manifest that no file has");
        }
        None
    }

    /// Bytes of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.fields.size.unwrap_or(0)
    }

    /// Bytes that are stored.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.fields.repo_size.or(self.fields.size).unwrap_or(0)
    }

    /// Bytes of a block, for a block incremental file.
    pub(super) fn block_bytes(&self) -> u64 {
        self.fields.bi.unwrap_or(1).saturating_mul(BLOCK_UNIT)
    }
}

/// A label is the name of a folder: `20261123-084605F`, `20261123-084605F_20261123-084609D`.
pub(super) fn is_label(text: &str) -> bool {
    let is_time = |text: &str| {
        text.split_once('-').is_some_and(|(day, time)| {
            let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            day.len() == 8 && time.len() == 6 && digits(day) && digits(time)
        })
    };
    match text.split_once('_') {
        None => text.strip_suffix('F').is_some_and(is_time),
        Some((full, rest)) => {
            full.strip_suffix('F').is_some_and(is_time)
                && rest.strip_suffix(['D', 'I']).is_some_and(is_time)
        }
    }
}

/// The entries of a manifest, one after the other.
pub(super) struct Entries(Lines);

impl Entries {
    /// The next one.
    ///
    /// # Errors
    /// See [`Lines::next_of`].
    pub(super) fn next_entry(&mut self) -> Result<Option<Entry>, InfoFault> {
        let line = self.0.next_of(FILES)?;
        Ok(line.map(|(key, value)| Entry::parse(&key, &value)))
    }
}

impl Manifest {
    /// Takes from a manifest what is needed at once.
    ///
    /// # Errors
    /// See [`InfoFile::read`].
    pub(super) fn read(file: &InfoFile) -> Result<Self, InfoFault> {
        let mut settings: HashMap<(String, String), Value> = HashMap::new();
        let mut manifest = Self {
            file: file.clone(),
            backup: Backup { tool: "pgBackRest", ..Backup::default() },
            label: String::new(),
            references: Vec::new(),
            codec: Codec::None,
            is_raw: false,
            is_online: true,
            tests_pages: false,
            passphrase: None,
            page_errors: HashMap::new(),
            first: Vec::new(),
            names: Names::default(),
        };
        let (mut files, mut ranges) = (0_u64, 0_usize);
        file.read(&mut |section, key, value| match section {
            FILES => {
                files = files.saturating_add(1);
                let name = key.strip_prefix(DATA).unwrap_or(key);
                manifest.names.add(name);
                if FIRST.contains(&name) {
                    manifest.first.push(Entry::parse(key, value));
                }
                if value.contains("checksum-page-error") && ranges < PAGE_ERRORS_MAX {
                    let errors = Entry::parse(key, value).fields.page_errors;
                    let errors = errors.map(|value| page_ranges(&value)).unwrap_or_default();
                    ranges = ranges.saturating_add(errors.len().max(1));
                    manifest.page_errors.insert(name.to_owned(), errors);
                }
            }
            "target:path" => {
                let name = key.strip_prefix(DATA).unwrap_or(key);
                manifest.names.add_path(name);
            }
            "backup" | "backup:db" | "backup:option" | "cipher" => {
                if let Ok(value) = serde_json::from_str(value) {
                    settings.insert((section.to_owned(), key.to_owned()), value);
                }
            }
            _ => {}
        })?;
        manifest.backup.files = Some(files);
        let first_of = |entry: &Entry| FIRST.iter().position(|name| *name == entry.name);
        manifest.first.sort_by_key(first_of);
        manifest.take_settings(&settings)?;
        Ok(manifest)
    }

    fn take_settings(
        &mut self,
        settings: &HashMap<(String, String), Value>,
    ) -> Result<(), InfoFault> {
        let get = |section: &str, key: &str| settings.get(&(section.to_owned(), key.to_owned()));
        let text = |section: &str, key: &str| get(section, key).and_then(Value::as_str);
        let truth = |section: &str, key: &str| get(section, key).and_then(Value::as_bool);
        let time = |key: &str| get("backup", key).and_then(Value::as_u64).map(utc);
        self.label = text("backup", "backup-label").unwrap_or_default().to_owned();
        self.backup.label.clone_from(&self.label);
        self.backup.kind = kind_named(text("backup", "backup-type").unwrap_or_default());
        self.backup.prior = text("backup", "backup-prior").map(str::to_owned);
        self.backup.started = time("backup-timestamp-start");
        self.backup.stopped = time("backup-timestamp-stop");
        self.backup.from_lsn = text("backup", "backup-lsn-start").and_then(Lsn::parse);
        self.backup.to_lsn = text("backup", "backup-lsn-stop").and_then(Lsn::parse);
        self.backup.timeline = text("backup", "backup-archive-start")
            .and_then(|segment| segment.get(..8))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.backup.database_version = text("backup:db", "db-version").map(str::to_owned);
        self.backup.system_identifier = get("backup:db", "db-system-id").and_then(Value::as_u64);
        self.references = match text("backup", "backup-reference") {
            Some(list) => list.split(',').take(REFERENCES_MAX).map(str::to_owned).collect(),
            None => vec![self.label.clone()],
        };
        if !self.references.iter().all(|label| is_label(label)) {
            return Err(InfoFault::Damaged("it refers to what is no label".to_owned()));
        }
        self.is_raw = truth("backup", "backup-bundle-raw").unwrap_or(false);
        self.is_online = truth("backup:option", "option-online").unwrap_or(true);
        self.tests_pages = truth("backup:option", "option-checksum-page").unwrap_or(false);
        let codec = text("backup:option", "option-compress-type").unwrap_or("none");
        self.codec = Codec::named(codec).ok_or_else(|| {
            InfoFault::Damaged(format!("a compression that is not known: {codec}"))
        })?;
        self.passphrase = text("cipher", "cipher-pass").map(Passphrase::new);
        Ok(())
    }

    /// All entries, in their order.
    ///
    /// # Errors
    /// The file cannot be read any more.
    pub(super) fn entries(&self) -> Result<Entries, InfoFault> {
        self.file.lines().map(Entries)
    }
}

impl Names {
    /// Folders past which a manifest is not asked.
    const NAMES_MAX: usize = 1_000_000;

    fn add(&mut self, name: &str) {
        let (folder, last) = name.rsplit_once('/').unwrap_or(("", name));
        if self.folders.len() < Self::NAMES_MAX && !self.folders.contains(folder) {
            self.folders.insert(folder.to_owned());
        }
        let is_small = matches!(last, "PG_VERSION" | "pg_filenode.map") || FIRST.contains(&name);
        if is_small && self.small.len() < Self::NAMES_MAX {
            self.small.insert(name.to_owned());
        }
        if last.starts_with(|c: char| c.is_ascii_digit())
            && folder.starts_with("base/")
            && self.databases.len() < Self::NAMES_MAX
            && !self.databases.contains(folder)
        {
            self.databases.insert(folder.to_owned());
        }
    }

    fn add_path(&mut self, name: &str) {
        if self.paths.len() < Self::NAMES_MAX {
            self.paths.insert(name.to_owned());
        }
    }
}

/// Numbers, and lists of a first and a last number.
fn page_ranges(value: &Value) -> PageRanges {
    let range = |value: &Value| match value {
        Value::Array(pair) => Some((pair.first()?.as_u64()?, pair.last()?.as_u64()?)),
        value => value.as_u64().map(|page| (page, page)),
    };
    let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(range).collect()
}

/// The kind of a backup by its name in info files and manifests.
pub(super) fn kind_named(name: &str) -> BackupKind {
    match name {
        "diff" => BackupKind::Differential,
        "incr" => BackupKind::Incremental,
        _ => BackupKind::Full,
    }
}

/// Seconds since 1970 as a date: `2026-11-23T09:10:11Z`.
fn utc(seconds: u64) -> String {
    let time = std::time::UNIX_EPOCH.checked_add(std::time::Duration::from_secs(seconds));
    let minutes = time.map(pagewarden_core::words::utc).unwrap_or_default();
    let minutes = minutes.trim_end_matches(" UTC").replacen(' ', "T", 1);
    format!("{minutes}:{:02}Z", seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_times() {
        for label in ["20261123-084605F", "20261123-084605F_20261123-084609D"] {
            assert!(is_label(label), "{label}");
        }
        for text in ["", "..", "latest", "20261123-084605", "20261123-084605F/..", "x_y"] {
            assert!(!is_label(text), "{text}");
        }
    }

    #[test]
    fn times_are_written_with_their_seconds() {
        assert_eq!(utc(1_795_425_063), "2026-11-23T09:11:03Z");
    }

    #[test]
    fn hostile_entries_are_refused() {
        let fault = |key: &str, value: &str| Entry::parse(key, value).fault;
        assert_eq!(fault("pg_data/base/1/1259", r#"{"size":8192,"bni":1,"unknown":[]}"#), None);
        for (key, value) in [
            ("pg_data/../../etc/passwd", r#"{"size":1}"#),
            ("/etc/passwd", r#"{"size":1}"#),
            ("pg_data/x", r#"{"size":1,"reference":"../x"}"#),
            ("pg_data/x", r#"{"size":-1}"#),
            ("pg_data/x", "{}"),
            ("pg_data/x", r#"{"size":1,"bni":1,"bno":18446744073709551615}"#),
            ("pg_data/x", r#"{"size":1,"repo-size":18446744073709551615}"#),
            ("pg_data/x", r#"{"size":8192,"bi":1,"bim":9000}"#),
            ("pg_data/x", r#"{"size":8192,"bi":0,"bim":9}"#),
            ("pg_data/x", r#"{"size":8192,"bi":1,"bim":9,"bic":0}"#),
            ("pg_data/x", "nonsense"),
        ] {
            assert!(fault(key, value).is_some(), "{key} {value}");
        }
    }

    #[test]
    fn page_errors_are_numbers_and_ranges() {
        let value = serde_json::json!([3, [5, 7], "x", []]);
        assert_eq!(page_ranges(&value), [(3, 3), (5, 7)]);
    }
}
