//! The log of a Delta table: `_delta_log/`, a file of JSON lines for each version.
//!
//! | | |
//! |---|---|
//! | `00000000000000000007.json` | what version 7 added and removed |
//! | `00000000000000000007.checkpoint.parquet` | all files of version 7, so that earlier ones may be deleted |
//! | `{"add": {"path", "size", "stats"}}` | a file; `stats` is JSON in a string, with `numRecords` |
//! | `{"remove": {"path"}}` | a file that is there still, until it is vacuumed |
//!
//! Checkpoints are verified as files, and their content is not read: a table whose first versions are
//! deleted is `incomplete`.
//!
//! Source: `PROTOCOL.md` of Delta Lake; tried on tables of delta-rs 1.6.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Books, Named, TableColumn, inside};
use pagewarden_core::database::Step;
use pagewarden_core::source::store::{Listed, StorePath, expecting};
use pagewarden_core::verdict::{Kind, Note};

pub(super) const LOG: &str = "_delta_log";
const DIGITS: usize = 20;

/// True if a version is among what is in the folder of the log.
#[must_use]
pub(super) fn is_among(listed: &[Listed]) -> bool {
    let versions = Versions::of(listed);
    !versions.commits.is_empty() || !versions.checkpoints.is_empty()
}

/// The newest version.
#[must_use]
pub(super) fn newest(listed: &[Listed]) -> Option<PathBuf> {
    Versions::of(listed).commits.last().copied().map(commit_of)
}

fn commit_of(version: u64) -> PathBuf {
    Path::new(LOG).join(format!("{version:020}.json"))
}

/// Which versions the log has.
#[derive(Default)]
struct Versions {
    commits: BTreeSet<u64>,
    checkpoints: BTreeMap<u64, Vec<PathBuf>>,
}

impl Versions {
    fn of(listed: &[Listed]) -> Self {
        let mut versions = Self::default();
        for Listed { name, .. } in listed {
            let Some((number, rest)) = name.split_at_checked(DIGITS) else { continue };
            let Ok(number) = number.parse() else { continue };
            if rest == ".json" {
                versions.commits.insert(number);
            } else if rest.starts_with(".checkpoint.") {
                let place = Path::new(LOG).join(name);
                versions.checkpoints.entry(number).or_default().push(place);
            }
        }
        // A store lists in any order.
        versions.checkpoints.values_mut().for_each(|places| places.sort());
        versions
    }

    /// The first commit that must be read: all versions from there on are needed. With the
    /// checkpoint before it, where that is not the first version of all.
    fn begin(&self) -> (u64, Option<u64>) {
        let last = self.commits.last().copied().unwrap_or(0);
        let mut begin = last;
        while let Some(before) = begin.checked_sub(1).filter(|it| self.commits.contains(it)) {
            begin = before;
        }
        if begin == 0 && self.commits.contains(&0) {
            return (0, None);
        }
        match self.checkpoints.last_key_value() {
            Some((checkpoint, _)) => (checkpoint.saturating_add(1), Some(*checkpoint)),
            None => (0, None),
        }
    }
}

/// A file by its path and its deletion vector, if it has one.
type Key = (String, Option<String>);

/// What the log says.
///
/// # Errors
/// It cannot be listed.
pub(super) fn read(folder: &StorePath) -> io::Result<Books> {
    let versions = Versions::of(&folder.join(LOG).list()?);
    let mut books = Books { engine: "Delta table", ..Books::default() };
    let (begin, checkpoint) = versions.begin();
    let newest = checkpoint.unwrap_or(0);
    let last = versions.commits.last().copied().unwrap_or(0).max(newest);
    books.state = format!("version {last}");
    let mut files = BTreeMap::new();
    let expect = |version: &u64| folder.join(commit_of(*version)).expect(None);
    for version in expecting(begin..=last, expect) {
        let place = commit_of(version);
        if !versions.commits.contains(&version) {
            let gone = (version..=last).take_while(|it| !versions.commits.contains(it)).count();
            let detail = format!(
                "{gone} versions of the table from this one on are gone, and no checkpoint takes their \
                 place: which files are current is not known"
            );
            books.say(&place.to_string_lossy(), Kind::Missing, detail);
            break;
        }
        if let Some(content) = books.read(folder, &place) {
            take_commit(&content, &place, &mut files, &mut books);
        }
    }
    if let Some(version) = checkpoint {
        let text = format!(
            "versions up to {version} are in a checkpoint, whose content is not read here: which files \
             are current is not known for sure. All that are there were tested, but for those that later \
             versions removed"
        );
        let note = Note { file: LOG.to_owned(), text };
        books.steps.push(Step::Untested(note, 1));
        books.is_partial = true;
    }
    let checkpoints = versions.checkpoints.last_key_value().map(|(_, places)| places.as_slice());
    let checkpoints = checkpoints.unwrap_or_default().iter();
    let parquet = checkpoints.filter(|it| it.extension() == Some(OsStr::new("parquet")));
    books.files.extend(parquet.map(|place| Named {
        place: Ok(place.clone()),
        bytes: None,
        rows: None,
        is_parquet: true,
    }));
    let vectors = files.keys().filter(|(_, vector)| vector.is_some()).count();
    if vectors > 0 {
        let text = format!(
            "{vectors} files have deletion vectors, which are not read here: which of their rows are \
             deleted was not tested"
        );
        books.steps.push(Step::Untested(Note { file: LOG.to_owned(), text }, 1));
    }
    books.files.extend(files.into_values());
    Ok(books)
}

/// What one version adds and removes.
fn take_commit(content: &[u8], place: &Path, files: &mut BTreeMap<Key, Named>, books: &mut Books) {
    let mut added = Vec::new();
    for (line, number) in content.split(|byte| *byte == b'\n').zip(1_u64..) {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let action = serde_json::from_slice::<Value>(line).ok();
        let is_object = action.as_ref().is_some_and(Value::is_object);
        let Some(action) = action.filter(|_| is_object) else {
            let detail = format!("line {number} of this version of the table cannot be read");
            books.say(&place.to_string_lossy(), Kind::Header, detail);
            continue;
        };
        if let Some(described) = action.get("metaData") {
            take_description(described, books);
        } else if let Some(removed) = action.get("remove") {
            if let Some(key) = key_of(removed) {
                if let Some(inside) = inside(&decoded(&key.0)) {
                    books.others.insert(inside);
                }
                files.remove(&key);
            }
        } else if let Some(add) = action.get("add") {
            match key_of(add) {
                Some(key) => added.push((key, add.clone())),
                None => {
                    let detail =
                        format!("line {number} of this version adds a file without a path");
                    books.say(&place.to_string_lossy(), Kind::Header, detail);
                }
            }
        }
    }
    // A version may remove a file and add it again, with another deletion vector.
    for (key, add) in added {
        let path = decoded(&key.0);
        let stats = add.get("stats").and_then(Value::as_str).unwrap_or_default();
        let stats = serde_json::from_str::<Value>(stats).unwrap_or_default();
        let named = Named {
            place: inside(&path).ok_or(path),
            bytes: add.get("size").and_then(Value::as_u64),
            rows: stats.get("numRecords").and_then(Value::as_u64),
            is_parquet: true,
        };
        files.insert(key, named);
    }
}

/// What the newest description says of the columns.
fn take_description(described: &Value, books: &mut Books) {
    let partitions = described.get("partitionColumns").and_then(Value::as_array);
    let is_partition = |name: &str| {
        partitions.is_some_and(|names| names.iter().any(|it| it.as_str() == Some(name)))
    };
    let schema = described.get("schemaString").and_then(Value::as_str).unwrap_or_default();
    let schema = serde_json::from_str::<Value>(schema).unwrap_or_default();
    let fields = schema.get("fields").and_then(Value::as_array);
    let names = fields.into_iter().flatten().filter_map(|it| it.get("name")?.as_str());
    books.columns = names
        .map(|name| TableColumn {
            name: name.to_owned(),
            id: None,
            may_be_in_books: is_partition(name),
        })
        .collect();
    books.beyond_files.clear();
    let settings = described.get("configuration");
    let mapping = settings.and_then(|it| it.get("delta.columnMapping.mode")?.as_str());
    if let Some(mode) = mapping.filter(|mode| *mode != "none") {
        books.beyond_files.push(format!(
            "its columns have other names in its files (column mapping by {mode}), which is not read \
             here"
        ));
    }
}

fn key_of(action: &Value) -> Option<Key> {
    let path = action.get("path").and_then(Value::as_str)?;
    let vector = action.get("deletionVector").filter(|vector| vector.is_object());
    Some((path.to_owned(), vector.map(Value::to_string)))
}

/// `%20` is a space: paths in the log are those of URLs.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((byte, more)) = rest.split_first() {
        rest = more;
        let digits = more.first_chunk::<2>().and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(code) if *byte == b'%' => {
                bytes.push(code);
                rest = more.get(2..).unwrap_or_default();
            }
            _ => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
