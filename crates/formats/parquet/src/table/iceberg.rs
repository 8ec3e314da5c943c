//! The metadata of an Iceberg table: JSON that names a list of manifests for each snapshot, and manifests
//! that name data files; both in Avro.
//!
//! | | |
//! |---|---|
//! | `metadata/00003-....metadata.json`, `v3.metadata.json` | a state of the table; a catalogue says which one is current: here it is the one with the greatest number, or that of `version-hint.text`, and those that follow it without a gap |
//! | `manifest-list` of a snapshot | `manifest_path`, `manifest_length` |
//! | a manifest | `status` (2: deleted), `data_file`: `content` (0: rows, 1: positions of deleted rows, 2: values of deleted rows), `file_path`, `file_format`, `record_count`, `file_size_in_bytes` |
//!
//! Paths are whole URLs. Those that begin with the table's `location` are below the folder, wherever
//! that has gone since.
//!
//! Source: the specification of Apache Iceberg, versions 1 to 3; tried on tables of pyiceberg 0.12
//! and of the Spark runtime 1.10.0.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use self::schema::Schema;
use super::avro::records;
use super::deleted::{Deletions, Vector};
use super::elsewhere::{find_named, usual};
use super::{BOOK_BYTES_MAX, Books, Content, Form, Named, inside};
use pagewarden_core::database::Step;
use pagewarden_core::source::store::{Listed, StorePath, expecting, is_not_read};
use pagewarden_core::verdict::{Finding, Kind, Severity, Unread};
use pagewarden_core::words::grouped;

pub(super) mod deletes;
pub(super) mod equality;
mod schema;

pub(super) const METADATA: &str = "metadata";
const ENDING: &str = ".metadata.json";
const HINT: &str = "version-hint.text";
/// Status of an entry.
const DELETED: i64 = 2;
/// Contents of a file.
const DATA: i64 = 0;
const POSITIONS: i64 = 1;
const VALUES: i64 = 2;

/// True if a state is among what is in the folder of the metadata, or the list of a snapshot.
pub(super) fn is_among(listed: &[Listed]) -> bool {
    let is_list = |one: &Listed| one.name.starts_with("snap-") && one.name.ends_with(".avro");
    !states(listed).is_empty() || listed.iter().any(is_list)
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
        let plain = name.strip_suffix(".gz").filter(|name| name.ends_with(ENDING));
        let Some(stem) = plain.unwrap_or(name).strip_suffix(ENDING) else { continue };
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
    let hinted = hint.and_then(|hint| {
        // The hint is written behind the state, and may be lost: those that follow it count.
        let known = states.iter().skip_while(|((number, _), _)| *number != hint);
        let followed =
            known.zip(hint..=u64::MAX).take_while(|(((number, _), _), next)| number == next);
        followed.last().map(|(state, _)| state)
    });
    let Some((_, place)) = hinted.or_else(|| states.last_key_value()) else {
        let why = format!("it has no {ENDING} file: what is current is not known");
        books.unread(METADATA, &why);
        return Ok(books);
    };
    let name = place.to_string_lossy().into_owned();
    books.state = format!("by {name}");
    // One that is named but older than all that are there was removed in time; the hint lagged behind.
    let newest = states.last_key_value().map_or(0, |((number, _), _)| *number);
    if let Some(hint) = hint.filter(|hint| *hint > newest) {
        let detail = format!(
            "{HINT} names state {hint} of the table, which is not there: the newest is {newest}, and what was \
             committed since is lost"
        );
        books.say(&format!("{METADATA}/v{hint}{ENDING}"), Kind::Missing, detail);
    }
    let Some(content) = books.read(folder, place) else { return Ok(books) };
    // The ending that Iceberg's Java library writes now, and the one that it wrote earlier.
    let content = if name.ends_with(&format!(".gz{ENDING}")) || name.ends_with(".gz") {
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
    let schema = Schema::of(metadata);
    books.columns = schema.columns();
    let current = metadata.get("current-snapshot-id").and_then(Value::as_i64);
    location.clone_into(&mut books.location);
    let (seen, vectors) = (HashSet::new(), Vec::new());
    let mut reading = Reading { folder, location, schema, seen, vectors };
    let snapshots = metadata.get("snapshots").and_then(Value::as_array);
    let is_current = |snapshot: &&Value| {
        current.is_some() && snapshot.get("snapshot-id").and_then(Value::as_i64) == current
    };
    let all = || snapshots.into_iter().flatten();
    match (all().find(is_current), current) {
        (Some(snapshot), _) => {
            reading.take(snapshot, true, &mut books);
            reading.attach(&mut books);
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
    let is_data = |file: &&Named| matches!(file.content, Content::Parquet | Content::Other);
    let data = || books.files.iter().filter(is_data);
    let files = super::to_u64(data().count());
    let rows = data().try_fold(0_u64, |sum, file| sum.checked_add(file.rows?));
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

/// A place below the folder of the table, which has that location in its books; or the URL, by the name that
/// its store has here.
fn place_of(location: &str, url: &str) -> Result<PathBuf, String> {
    let (path, root) = (usual(url), usual(location));
    let below = path.strip_prefix(root.trim_end_matches('/'));
    let below = below.and_then(|rest| rest.strip_prefix('/')).and_then(inside);
    below.ok_or_else(|| path.into_owned())
}

struct Reading<'a> {
    folder: &'a StorePath,
    location: &'a str,
    schema: Schema,
    /// Manifests that were read: snapshots share them.
    seen: HashSet<String>,
    /// Deletion vectors of the current snapshot.
    vectors: Vec<Deleting>,
}

/// A deletion vector: the file that it is in, with its length, and when it was added.
struct Deleting {
    place: Result<PathBuf, String>,
    bytes: Option<u64>,
    sequence: i64,
    vector: Vector,
}

impl Reading<'_> {
    /// The files of a snapshot: those of the current one are to be tested, those of others are known.
    fn take(&mut self, snapshot: &Value, is_current: bool, books: &mut Books) {
        if let Some(list) = snapshot.get("manifest-list").and_then(Value::as_str) {
            let manifests = self.records(list, None, "manifest_path", is_current, books);
            let (folder, location) = (self.folder, self.location);
            let expect = |manifest: &Value| {
                let path = manifest.get("manifest_path").and_then(Value::as_str);
                let place = path.map(|path| find_named(folder, &place_of(location, path)));
                if let Some(Ok(place)) = place {
                    place.expect(manifest.get("manifest_length").and_then(Value::as_u64));
                }
            };
            for manifest in expecting(manifests, expect) {
                if let Some(path) = manifest.get("manifest_path").and_then(Value::as_str) {
                    self.manifest(path, &manifest, is_current, books);
                }
            }
        }
        // As tables of version 1 may have them.
        let manifests = snapshot.get("manifests").and_then(Value::as_array);
        for path in manifests.into_iter().flatten().filter_map(Value::as_str) {
            self.manifest(path, &Value::Null, is_current, books);
        }
    }

    /// A manifest, and what the list says of it, if there is one.
    fn manifest(&mut self, path: &str, listed: &Value, is_current: bool, books: &mut Books) {
        if !self.seen.insert(path.to_owned()) {
            return;
        }
        let length = listed.get("manifest_length").and_then(Value::as_u64);
        let sequence = listed.get("sequence_number").and_then(Value::as_i64);
        let spec = listed.get("partition_spec_id").and_then(Value::as_i64).unwrap_or(0);
        for entry in self.records(path, length, "data_file", is_current, books) {
            let Some(file) = entry.get("data_file") else { continue };
            let Some(url) = file.get("file_path").and_then(Value::as_str) else { continue };
            let place = place_of(self.location, url);
            let is_deleted = entry.get("status").and_then(Value::as_i64) == Some(DELETED);
            if !is_current || is_deleted {
                books.others.extend(place.ok());
                continue;
            }
            // Entries that were added with their manifest have its number.
            let own = entry.get("sequence_number").and_then(Value::as_i64);
            let sequence = own.or(sequence).unwrap_or(0);
            self.entry(file, place, (sequence, spec), books);
        }
    }

    /// A file that the current snapshot names.
    fn entry(
        &mut self,
        file: &Value,
        place: Result<PathBuf, String>,
        (sequence, spec): (i64, i64),
        books: &mut Books,
    ) {
        let number = |name: &str| file.get(name).and_then(Value::as_u64);
        let format = file.get("file_format").and_then(Value::as_str).unwrap_or_default();
        let bytes = number("file_size_in_bytes");
        let is_data = file.get("content").and_then(Value::as_i64).unwrap_or(0) == DATA;
        if !is_data && format.eq_ignore_ascii_case("puffin") {
            match deletes::vector(file, &place) {
                Some(vector) => self.vectors.push(Deleting { place, bytes, sequence, vector }),
                None => {
                    let name =
                        place.as_ref().map_or_else(String::clone, |it| it.display().to_string());
                    let detail = "a manifest does not say which deletion vector of it is meant";
                    books.say(&name, Kind::Structure, detail.to_owned());
                }
            }
            return;
        }
        let is_parquet = format.eq_ignore_ascii_case("parquet");
        let content = match file.get("content").and_then(Value::as_i64).unwrap_or(DATA) {
            DATA if is_parquet => Content::Parquet,
            POSITIONS if is_parquet => Content::Deletes,
            VALUES if is_parquet => Content::DeletedValues(equality::columns(file, books)),
            DATA => Content::Other,
            _ => {
                books.beyond_files.push(format!(
                    "rows of it are deleted by files of {format}, which are not read here"
                ));
                Content::Other
            }
        };
        let mut named = Named::new(place, bytes, content);
        named.rows = number("record_count");
        named.sequence = sequence;
        let partition = file.get("partition").unwrap_or(&Value::Null);
        named.partition = self.schema.partition(spec, partition);
        match self.schema.values(spec, partition) {
            Ok(values) => named.values = values,
            Err(why) => books.beyond_files.push(why),
        }
        books.files.push(named);
    }

    /// Puts the deletion vectors to the files whose rows they delete.
    fn attach(&mut self, books: &mut Books) {
        let mut files = BTreeMap::<_, (Option<u64>, Vec<Vector>)>::new();
        let index = deletes::index(books);
        for Deleting { place, bytes, sequence, mut vector } in self.vectors.drain(..) {
            let of = index.get(&place_of(self.location, &vector.of));
            let of = of.and_then(|of| books.files.get_mut(*of));
            if let Some(of) = of.filter(|of| of.sequence <= sequence) {
                vector.rows = of.rows;
                let deletions = Deletions::of_vector(vector.clone(), self.folder);
                if of.deleted.replace(deletions).is_some() {
                    let why = format!("{} has two deletion vectors", vector.of);
                    books.beyond_files.push(why);
                }
            }
            let file = files.entry(place).or_insert_with(|| (bytes, Vec::new()));
            file.1.push(vector);
        }
        for (place, (bytes, vectors)) in files {
            let content = Content::Vectors(Form::Iceberg, vectors);
            books.files.push(Named::new(place, bytes, content));
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
        let named = place_of(self.location, url);
        let Ok(found) = find_named(self.folder, &named) else {
            if is_needed {
                let why = "it is in another store than the folder of the table: the files that it names \
                           were not looked at";
                books.unread(url, why);
            }
            return Vec::new();
        };
        let place = named.unwrap_or_else(PathBuf::from);
        if !is_needed {
            let content = super::book(&found);
            if let Some(error) = content.as_ref().err().filter(|error| is_not_read(error)) {
                let name = place.to_string_lossy();
                books.steps.push(Step::Unread(Unread::of_file(name, error.to_string())));
                books.are_others_unknown = true;
            }
            books.others.insert(place);
            return content.ok().and_then(|it| records(&it).ok()).unwrap_or_default();
        }
        let Some(content) = books.take(&place, super::book(&found)) else { return Vec::new() };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_below_the_location_whatever_the_store_is_called() {
        for (location, url, place) in [
            ("s3://b/t", "s3://b/t/data/a.parquet", Ok("data/a.parquet")),
            ("s3a://b/t/", "s3://b/t/data/a.parquet", Ok("data/a.parquet")),
            ("s3://b/t", "s3n://b/t/data/a.parquet", Ok("data/a.parquet")),
            ("s3://b/t", "gs://b/t/data/a.parquet", Err("gs://b/t/data/a.parquet")),
            ("s3://b/t", "s3a://b/tt/a.parquet", Err("s3://b/tt/a.parquet")),
            ("s3://b/t", "s3://b/t/../a.parquet", Err("s3://b/t/../a.parquet")),
            ("file:///lake/t", "file:/lake/t/a.parquet", Ok("a.parquet")),
            ("/lake/t", "file:///lake/t/a.parquet", Ok("a.parquet")),
        ] {
            let expected = place.map(PathBuf::from).map_err(str::to_owned);
            assert_eq!(place_of(location, url), expected, "{location} {url}");
        }
    }
}
