//! The metadata of an Iceberg table: JSON that names a list of manifests for each snapshot, and manifests
//! that name data files; both in Avro.
//!
//! | | |
//! |---|---|
//! | `metadata/00003-....metadata.json`, `v3.metadata.json` | a state of the table; a catalogue says which one is current: here it is the one with the greatest number, or that of `version-hint.text` |
//! | `manifest-list` of a snapshot | `manifest_path`, `manifest_length` |
//! | a manifest | `status` (2: deleted), `data_file`: `file_path`, `file_format`, `record_count`, `file_size_in_bytes` |
//!
//! Paths are whole URLs. Those that begin with the table's `location` are below the folder, wherever
//! that has gone since.
//!
//! Source: the specification of Apache Iceberg, versions 1 to 3; tried on tables of pyiceberg 0.12.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::avro::records;
use super::{BOOK_BYTES_MAX, Books, Content, Named, TableColumn, inside};
use pagewarden_core::database::Step;
use pagewarden_core::source::store::{Listed, StorePath, expecting, is_not_read};
use pagewarden_core::verdict::{Finding, Kind, Severity, Unread};
use pagewarden_core::words::grouped;

pub(super) const METADATA: &str = "metadata";
const ENDING: &str = ".metadata.json";
const HINT: &str = "version-hint.text";
const DELETED: i64 = 2;

/// True if a state is among what is in the folder of the metadata.
pub(super) fn is_among(listed: &[Listed]) -> bool {
    !states(listed).is_empty()
}

/// The newest state.
#[must_use]
pub(super) fn newest(listed: &[Listed]) -> Option<PathBuf> {
    states(listed).pop_last().map(|(_, place)| place)
}

/// The states of the table, by their numbers.
fn states(listed: &[Listed]) -> BTreeMap<(u64, String), PathBuf> {
    let mut states = BTreeMap::new();
    for Listed { name, .. } in listed {
        let Some(stem) = name.strip_suffix(ENDING) else { continue };
        let digits = stem.trim_start_matches('v').split(['-', '.']).next().unwrap_or_default();
        let Ok(number) = digits.parse() else { continue };
        states.insert((number, name.clone()), Path::new(METADATA).join(name));
    }
    states
}

/// The number of the current state, where the folder says it.
fn hinted(folder: &StorePath, books: &mut Books) -> Option<u64> {
    match super::book(&folder.join(METADATA).join(HINT)) {
        Ok(hint) => String::from_utf8(hint).ok()?.trim().parse().ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            let name = Path::new(METADATA).join(HINT);
            books.unread(&name.to_string_lossy(), &error.to_string());
            None
        }
    }
}

/// What the metadata says.
///
/// # Errors
/// It cannot be listed.
pub(super) fn read(folder: &StorePath) -> io::Result<Books> {
    let mut books = Books { engine: "Iceberg table", ..Books::default() };
    let states = states(&folder.join(METADATA).list()?);
    let hint = hinted(folder, &mut books);
    let hinted = hint.and_then(|hint| states.iter().find(|((number, _), _)| *number == hint));
    let Some((_, place)) = hinted.or_else(|| states.last_key_value()) else { return Ok(books) };
    let name = place.to_string_lossy().into_owned();
    books.state = format!("by {name}");
    let Some(content) = books.read(folder, place) else { return Ok(books) };
    let content = if name.ends_with(&format!(".gz{ENDING}")) {
        let mut plain = Vec::new();
        let reader = flate2::read::MultiGzDecoder::new(content.as_slice());
        reader.take(BOOK_BYTES_MAX).read_to_end(&mut plain).map(|_| plain)
    } else {
        Ok(content)
    };
    let metadata = content.ok().and_then(|json| serde_json::from_slice::<Value>(&json).ok());
    let location = metadata.as_ref().and_then(|it| it.get("location")).and_then(Value::as_str);
    let (Some(metadata), Some(location)) = (&metadata, location) else {
        books.say(&name, Kind::Header, "the metadata of the table cannot be read".to_owned());
        return Ok(books);
    };
    books.columns = columns(metadata);
    let current = metadata.get("current-snapshot-id").and_then(Value::as_i64);
    let mut reading = Reading { folder, location, seen: HashSet::new() };
    let snapshots = metadata.get("snapshots").and_then(Value::as_array);
    let is_current = |snapshot: &&Value| {
        current.is_some() && snapshot.get("snapshot-id").and_then(Value::as_i64) == current
    };
    let all = || snapshots.into_iter().flatten();
    match (all().find(is_current), current) {
        (Some(snapshot), _) => {
            reading.take(snapshot, true, &mut books);
            look_at_totals(snapshot, &name, &mut books);
        }
        // Without a snapshot it has no rows.
        (None, None | Some(-1)) => books.state.push_str(", without a snapshot"),
        (None, Some(_)) => {
            let detail = "the metadata names a current snapshot that it does not describe";
            books.say(&name, Kind::Header, detail.to_owned());
        }
    }
    for snapshot in all().filter(|snapshot| !is_current(snapshot)) {
        reading.take(snapshot, false, &mut books);
    }
    Ok(books)
}

/// Compares what a snapshot says of all of its files with its lists.
fn look_at_totals(snapshot: &Value, name: &str, books: &mut Books) {
    let total = |total: &str| {
        let text = snapshot.get("summary")?.get(total)?;
        text.as_str().and_then(|text| text.parse::<u64>().ok()).or_else(|| text.as_u64())
    };
    if books.is_partial || !books.beyond_files.is_empty() {
        return;
    }
    let files = super::to_u64(books.files.len());
    let rows = books.files.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.rows?));
    for (what, said, found) in [
        ("files of data", total("total-data-files"), Some(files)),
        ("rows", total("total-records"), rows),
    ] {
        if let (Some(said), Some(found)) = (said, found)
            && said != found
        {
            let detail = format!(
                "the current snapshot has {} {what} by its summary, and {} by its lists: one of them is \
                 of another snapshot",
                grouped(said),
                grouped(found)
            );
            let finding = Finding::of_file(name, Severity::Suspect, Kind::Structure, detail);
            books.steps.push(Step::Finding(finding));
        }
    }
}

/// The columns of the current schema.
fn columns(metadata: &Value) -> Vec<TableColumn> {
    let id_of = |it: &Value, name: &str| it.get(name).and_then(Value::as_i64);
    let wanted = id_of(metadata, "current-schema-id");
    let schemas = metadata.get("schemas").and_then(Value::as_array);
    let current = schemas.into_iter().flatten().find(|it| id_of(it, "schema-id") == wanted);
    let schema = current.or_else(|| metadata.get("schema"));
    let specs = metadata.get("partition-specs").and_then(Value::as_array);
    let lists = specs.into_iter().flatten().filter_map(|it| it.get("fields"));
    let parts = lists.chain(metadata.get("partition-spec")).filter_map(Value::as_array).flatten();
    let partitions: HashSet<i64> = parts.filter_map(|it| id_of(it, "source-id")).collect();
    let fields = schema.and_then(|it| it.get("fields")).and_then(Value::as_array);
    let column = |field: &Value| {
        let id = id_of(field, "id")?;
        let has_default = field.get("initial-default").is_some_and(|it| !it.is_null());
        Some(TableColumn {
            name: field.get("name")?.as_str()?.to_owned(),
            id: Some(id),
            may_be_in_books: has_default || partitions.contains(&id),
        })
    };
    fields.into_iter().flatten().filter_map(column).collect()
}

/// A place below the folder of the table, which has that location in its books; or the URL.
fn place_of(location: &str, url: &str) -> Result<PathBuf, String> {
    let plain = |url: &str| url.strip_prefix("file:").map(|it| it.replacen("///", "/", 1));
    let (path, root) = (plain(url), plain(location));
    let path = path.as_deref().unwrap_or(url);
    let root = root.as_deref().unwrap_or(location).trim_end_matches('/');
    let below = path.strip_prefix(root).and_then(|rest| rest.strip_prefix('/'));
    below.and_then(inside).ok_or_else(|| url.to_owned())
}

struct Reading<'a> {
    folder: &'a StorePath,
    location: &'a str,
    /// Manifests that were read: snapshots share them.
    seen: HashSet<String>,
}

impl Reading<'_> {
    /// The files of a snapshot: those of the current one are to be tested, those of others are known.
    fn take(&mut self, snapshot: &Value, is_current: bool, books: &mut Books) {
        if let Some(list) = snapshot.get("manifest-list").and_then(Value::as_str) {
            let manifests = self.records(list, None, "manifest_path", is_current, books);
            let (folder, location) = (self.folder, self.location);
            let expect = |manifest: &Value| {
                let path = manifest.get("manifest_path").and_then(Value::as_str);
                if let Some(Ok(place)) = path.map(|path| place_of(location, path)) {
                    let length = manifest.get("manifest_length").and_then(Value::as_u64);
                    folder.join(place).expect(length);
                }
            };
            for manifest in expecting(manifests, expect) {
                let length = manifest.get("manifest_length").and_then(Value::as_u64);
                if let Some(path) = manifest.get("manifest_path").and_then(Value::as_str) {
                    self.manifest(path, length, is_current, books);
                }
            }
        }
        // As tables of version 1 may have them.
        let manifests = snapshot.get("manifests").and_then(Value::as_array);
        for path in manifests.into_iter().flatten().filter_map(Value::as_str) {
            self.manifest(path, None, is_current, books);
        }
    }

    fn manifest(&mut self, path: &str, length: Option<u64>, is_current: bool, books: &mut Books) {
        if !self.seen.insert(path.to_owned()) {
            return;
        }
        for entry in self.records(path, length, "data_file", is_current, books) {
            let Some(file) = entry.get("data_file") else { continue };
            let Some(url) = file.get("file_path").and_then(Value::as_str) else { continue };
            let place = place_of(self.location, url);
            let is_deleted = entry.get("status").and_then(Value::as_i64) == Some(DELETED);
            if !is_current || is_deleted {
                books.others.extend(place.ok());
                continue;
            }
            if file.get("content").and_then(Value::as_i64).is_some_and(|content| content != 0) {
                books.beyond_files.push(
                    "rows of it are deleted by delete files or deletion vectors, which are not read \
                     here\nhint: compact the table (rewrite_data_files), or compare by a program \
                     that reads them"
                        .to_owned(),
                );
            }
            let format = file.get("file_format").and_then(Value::as_str).unwrap_or_default();
            books.files.push(Named {
                place,
                bytes: file.get("file_size_in_bytes").and_then(Value::as_u64),
                rows: file.get("record_count").and_then(Value::as_u64),
                content: match format.eq_ignore_ascii_case("parquet") {
                    true => Content::Parquet,
                    false => Content::Other,
                },
            });
        }
    }

    /// The records of a list or a manifest, which have that field. Only those that the current snapshot
    /// needs must be there.
    fn records(
        &self,
        url: &str,
        length: Option<u64>,
        field: &str,
        is_needed: bool,
        books: &mut Books,
    ) -> Vec<Value> {
        let place = match place_of(self.location, url) {
            Ok(place) => place,
            Err(url) => {
                if is_needed {
                    let why = "it is not in the folder of the table: the files that it names were not \
                               looked at";
                    books.unread(&url, why);
                }
                return Vec::new();
            }
        };
        if !is_needed {
            let content = super::book(&self.folder.join(&place));
            if let Some(error) = content.as_ref().err().filter(|error| is_not_read(error)) {
                let name = place.to_string_lossy();
                books.steps.push(Step::Unread(Unread::of_file(name, error.to_string())));
                books.are_others_unknown = true;
            }
            books.others.insert(place);
            return content.ok().and_then(|it| records(&it).ok()).unwrap_or_default();
        }
        let Some(content) = books.read(self.folder, &place) else { return Vec::new() };
        let name = place.to_string_lossy();
        let found = super::to_u64(content.len());
        if let Some(expected) = length.filter(|expected| *expected != found) {
            let kind = if found < expected { Kind::Truncated } else { Kind::Structure };
            books.say(&name, kind, format!("it has {found} bytes, the table says {expected}"));
        }
        let of_kind = records(&content).map_err(str::to_owned).and_then(|records| {
            match records.iter().all(|record| record.get(field).is_some_and(|it| !it.is_null())) {
                true => Ok(records),
                false => Err(format!("its records are others: they have no {field}")),
            }
        });
        match of_kind {
            Ok(records) => records,
            Err(why) => {
                let detail =
                    format!("it cannot be read: {why}; the files that it names are not known");
                books.say(&name, Kind::Header, detail);
                Vec::new()
            }
        }
    }
}
