//! The log of a Delta table: `_delta_log/`, a file of JSON lines for each version.
//!
//! | | |
//! |---|---|
//! | `00000000000000000007.json` | what version 7 added and removed |
//! | `00000000000000000007.checkpoint.parquet` | all files of version 7, so that earlier ones may be deleted |
//! | `{"add": {"path", "size", "stats"}}` | a file; `stats` is JSON in a string, with `numRecords` |
//! | `{"add": {"deletionVector"}}` | which of its rows are deleted |
//! | `{"remove": {"path"}}` | a file that is there still, until it is vacuumed |
//! | `_last_checkpoint` | the newest checkpoint, at which programs begin: it must be there |
//! | `00000000000000000007.crc` | how many files version 7 has, and how many bytes they are: programs refuse others |
//!
//! Programs begin at the newest checkpoint. Where all versions before it are there as well, both ways must lead to
//! the same files.
//!
//! Source: `PROTOCOL.md` of Delta Lake; tried on tables of delta-rs 1.6 and of its Spark connector 4.0.0.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use self::checkpoint::Checkpoint;
use super::deleted::{Deletions, Stored, Vector};
use super::{BookValue, Books, Content, Form, Named, TableColumn, decoded, inside};
use crate::files::content::Obstacle;
use pagewarden_core::database::Step;
use pagewarden_core::source::store::{Listed, StorePath, expecting};
use pagewarden_core::verdict::{Finding, Kind, Note, Severity};
use pagewarden_core::words::{counted, grouped};

mod checkpoint;
pub(super) mod vector;

pub(super) const LOG: &str = "_delta_log";
/// Names the newest checkpoint.
const HINT: &str = "_last_checkpoint";
const DIGITS: usize = 20;
/// The actions of versions and checkpoints that the protocol knows.
const ACTIONS: [&str; 10] = [
    "add",
    "remove",
    "metaData",
    "protocol",
    "txn",
    "commitInfo",
    "cdc",
    "domainMetadata",
    "checkpointMetadata",
    "sidecar",
];

/// The newest file of the log.
#[must_use]
pub(super) fn newest(listed: &[Listed]) -> Option<PathBuf> {
    let versions = Versions::of(listed);
    let commit = versions.commits.last().copied();
    // A checkpoint comes after its version, and others may then be deleted.
    match versions.checkpoint() {
        Some((version, files)) if Some(version) >= commit => files.into_iter().next(),
        _ => commit.map(commit_of),
    }
}

fn commit_of(version: u64) -> PathBuf {
    Path::new(LOG).join(format!("{version:020}.json"))
}

/// Which versions the log has.
#[derive(Default)]
struct Versions {
    commits: BTreeSet<u64>,
    /// Those of which the log has a sum.
    summed: BTreeSet<u64>,
    checkpoints: BTreeMap<u64, Checkpoint>,
}

impl Versions {
    fn of(listed: &[Listed]) -> Self {
        let mut versions = Self::default();
        for Listed { name, .. } in listed {
            let Some((number, rest)) = name.split_at_checked(DIGITS) else { continue };
            let Ok(number) = number.parse() else { continue };
            if rest == ".json" {
                versions.commits.insert(number);
            } else if rest == ".crc" {
                versions.summed.insert(number);
            } else if rest.starts_with(".checkpoint.") {
                let place = Path::new(LOG).join(name);
                versions.checkpoints.entry(number).or_default().add(place, rest);
            }
        }
        versions
    }

    /// The newest checkpoint of which all files are there: its version, and they.
    fn checkpoint(&self) -> Option<(u64, Vec<PathBuf>)> {
        let mut newest = self.checkpoints.iter().rev();
        newest.find_map(|(version, checkpoint)| Some((*version, checkpoint.files()?)))
    }

    fn has_all_until(&self, last: u64) -> bool {
        // No number of commits is that great, unless one is named so.
        u64::try_from(self.commits.range(..=last).count()).ok() == last.checked_add(1)
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
    let mut log = Log {
        folder,
        books: Books::default(),
        files: Files::new(),
        has_protocol: false,
        has_description: false,
    };
    log.books.engine = "Delta table";
    let checkpoint = versions.checkpoint();
    let (from, files) = checkpoint.as_ref().map(|(version, files)| (*version, files)).unzip();
    let last = versions.commits.last().copied().max(from).unwrap_or(0);
    log.books.state = format!("version {last}");
    log.look_at_hint(&versions);
    if versions.commits.is_empty() && from.is_none() {
        let why =
            "it has no version of the table: the first one was never finished, or the log is lost";
        log.books.unread(LOG, why);
        return Ok(log.end());
    }
    let begin = match from {
        Some(from) if !versions.has_all_until(from) => {
            let state = files.and_then(|files| log.state_of(from, files));
            log.files = state.unwrap_or_default();
            from.saturating_add(1)
        }
        _ => 0,
    };
    // One is enough: what is wrong before it is wrong then.
    let summed = versions.summed.range(begin.saturating_sub(1)..=last).next_back().copied();
    if summed.is_some_and(|version| version < begin) {
        log.sum(summed);
    }
    let expect = |version: &u64| folder.join(commit_of(*version)).expect(None);
    for version in expecting(begin..=last, expect) {
        let place = commit_of(version);
        if !versions.commits.contains(&version) {
            let gone = (version..=last).take_while(|it| !versions.commits.contains(it)).count();
            let detail = format!(
                "gone: {} of the table, from this one on; no checkpoint takes their place, so that it is \
                 not known which files are current",
                counted(u64::try_from(gone).unwrap_or(u64::MAX), "version")
            );
            log.books.say(&place.to_string_lossy(), Kind::Missing, detail);
            break;
        }
        log.read_commit(&place);
        if version == 0 {
            log.look_at_begin(&place);
        }
        if let Some(files) = files.filter(|_| from == Some(version)) {
            log.compare_with(version, files);
        }
        log.sum(summed.filter(|summed| *summed == version));
    }
    Ok(log.end())
}

/// The files of a state, each with what the log says of it.
type Files = BTreeMap<Key, Value>;

/// The log as far as it is read.
struct Log<'a> {
    folder: &'a StorePath,
    books: Books,
    files: Files,
    has_protocol: bool,
    has_description: bool,
}

impl Log<'_> {
    /// The checkpoint that readers are led to must be there: a checkpoint goes once a newer one is named.
    fn look_at_hint(&mut self, versions: &Versions) {
        let hinted = || {
            let hint = super::book(&self.folder.join(LOG).join(HINT)).ok()?;
            serde_json::from_slice::<Value>(&hint).ok()?.get("version")?.as_u64()
        };
        let is_there = |versions: &Versions, version| {
            versions.checkpoints.get(&version).is_some_and(|it| it.files().is_some())
        };
        let Some(version) = hinted().filter(|version| !is_there(versions, *version)) else {
            return;
        };
        // A newer one may have been written since the log was listed.
        let again = self.folder.join(LOG).list_again().map(|listed| Versions::of(&listed));
        let is_gone = again.is_ok_and(|again| !is_there(&again, version));
        if is_gone && hinted() == Some(version) {
            let detail = format!(
                "{HINT} names this checkpoint, and it is gone: readers may refuse the table"
            );
            let name = format!("{LOG}/{version:020}.checkpoint.parquet");
            self.books.say(&name, Kind::Missing, detail);
        }
    }

    /// Goes on by a version that was listed.
    fn read_commit(&mut self, place: &Path) {
        let is_listed = |name: &OsStr| {
            let listed = self.folder.join(LOG).list_again().unwrap_or_default();
            listed.iter().any(|one| OsStr::new(&one.name) == name)
        };
        match super::book(&self.folder.join(place)) {
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && !place.file_name().is_some_and(is_listed) =>
            {
                let why = "it went while the log was read: check the table again";
                self.books.unread(&place.to_string_lossy(), why);
            }
            read => {
                if let Some(content) = self.books.take(place, read) {
                    self.take_commit(&content, place);
                }
            }
        }
    }

    /// What one version adds and removes.
    fn take_commit(&mut self, content: &[u8], place: &Path) {
        let name = place.to_string_lossy();
        let mut actions = Vec::new();
        for (line, number) in content.split(|byte| *byte == b'\n').zip(1_u64..) {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let action = serde_json::from_slice::<Value>(line).ok().filter(Value::is_object);
            match action.filter(is_whole) {
                Some(action) => actions.push(action),
                None => {
                    let detail =
                        format!("line {number} of this version of the table cannot be read");
                    self.books.say(&name, Kind::Header, detail);
                }
            }
        }
        if actions.is_empty() {
            // A write that was lost: programs write at least who wrote the version.
            let detail =
                "this version of the table is empty: what it added and removed is not known";
            self.books.say(&name, Kind::Structure, detail.to_owned());
        }
        let unknown = actions.iter().filter_map(Value::as_object).flat_map(|action| action.keys());
        if let Some(unknown) = unknown.into_iter().find(|key| !ACTIONS.contains(&key.as_str())) {
            let text = format!(
                "this version has an action that is not known here, {unknown:?}: what it does was not \
                 tested"
            );
            let note = Note { file: name.into_owned(), text };
            self.books.steps.push(Step::Untested(note, 1));
        }
        // A version may remove a file and add it again, with another deletion vector.
        actions.iter().for_each(|action| self.take(action));
        actions.iter().for_each(|action| take_addition(action, &mut self.files));
    }

    /// What an action says but for what it adds.
    fn take(&mut self, action: &Value) {
        self.has_protocol |= action.get("protocol").is_some();
        self.has_description |= action.get("metaData").is_some();
        take_removal(action, &mut self.files, &mut self.books);
    }

    /// A table says at its begin how it is to be read, and which columns it has.
    fn look_at_begin(&mut self, place: &Path) {
        let name = place.to_string_lossy();
        if !self.has_protocol {
            let detail =
                "the table does not say by which protocol it is to be read: programs refuse it";
            self.books.say(&name, Kind::Structure, detail.to_owned());
        }
        if !self.has_description {
            let detail = "the table does not say which columns it has: programs refuse it";
            self.books.say(&name, Kind::Structure, detail.to_owned());
        }
    }

    /// The state that a checkpoint holds; `None`, and it is said why, if it cannot be read.
    fn state_of(&mut self, version: u64, files: &[PathBuf]) -> Option<Files> {
        let mut state = Files::new();
        let mut sidecars = Vec::new();
        let mut is_described = false;
        for place in files {
            let read = self.rows_of(place, None, &mut |action, books| {
                is_described |= action.get("metaData").is_some();
                sidecars.extend(checkpoint::sidecar(action));
                take_removal(action, &mut state, books);
                take_addition(action, &mut state);
            });
            self.say_of(version, place, read)?;
        }
        for (place, bytes) in sidecars {
            let read = self.rows_of(&place, bytes, &mut |action, books| {
                take_removal(action, &mut state, books);
                take_addition(action, &mut state);
            });
            self.say_of(version, &place, read)?;
        }
        if !is_described {
            let why = "it does not say which columns the table has";
            self.say_of(version, files.first()?, Err(Obstacle::Damaged(why.to_owned())))?;
        }
        Some(state)
    }

    /// Hands on the actions of a file of a checkpoint, which is one of those that the state needs.
    fn rows_of(
        &mut self,
        place: &Path,
        bytes: Option<u64>,
        take: &mut dyn FnMut(&Value, &mut Books),
    ) -> Result<(), Obstacle> {
        if place.extension() == Some(OsStr::new("json")) {
            let content = super::book(&self.folder.join(place))?;
            for line in content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let action = serde_json::from_slice(line);
                let action = action.map_err(|_| Obstacle::Damaged("a line is no JSON".to_owned()));
                take(&action?, &mut self.books);
            }
            return Ok(());
        }
        let content = Content::Parquet;
        self.books.own.push(Named::new(Ok(place.to_owned()), bytes, content));
        let books = &mut self.books;
        checkpoint::actions(&self.folder.join(place), &mut |action| take(action, books))
    }

    /// Says why a checkpoint could not be read.
    fn say_of(&mut self, version: u64, place: &Path, read: Result<(), Obstacle>) -> Option<()> {
        let name = place.to_string_lossy();
        match read {
            Ok(()) => return Some(()),
            // It is among the files of the state, and is missed there.
            Err(Obstacle::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                self.books.is_partial = true;
            }
            Err(Obstacle::Io(error)) => self.books.unread(&name, &error.to_string()),
            Err(Obstacle::Unsupported(why)) => self.books.unread(&name, &why),
            Err(Obstacle::Damaged(why)) => {
                let detail = format!("the checkpoint of version {version} cannot be read: {why}");
                self.books.say(&name, Kind::Structure, detail);
            }
        }
        None
    }

    /// Programs that begin at a checkpoint must see what its version is by the versions before it.
    fn compare_with(&mut self, version: u64, files: &[PathBuf]) {
        let was_partial = self.books.is_partial;
        let Some(state) = self.state_of(version, files) else {
            // All files are known without it.
            self.books.is_partial = was_partial;
            return;
        };
        if was_partial {
            return;
        }
        let differs = |a: &Files, b: &Files| {
            a.keys().find(|key| !b.contains_key(*key)).map(|(path, _)| path.clone())
        };
        let (more, fewer) = (differs(&state, &self.files), differs(&self.files, &state));
        let Some(path) = more.as_ref().or(fewer.as_ref()) else { return };
        let (has, lacks) = if more.is_some() { ("has", "have not") } else { ("lacks", "have") };
        let detail = format!(
            "the checkpoint of version {version} {has} {path}, which versions 0 to {version} {lacks}: \
             what the table holds depends on where a program begins"
        );
        let name = files.first().map(|place| place.to_string_lossy()).unwrap_or_default();
        self.books.say(&name, Kind::Structure, detail);
        self.books.is_partial = was_partial;
    }

    /// Compares the state with the sum that the log has of its version.
    fn sum(&mut self, version: Option<u64>) {
        let Some(version) = version.filter(|_| !self.books.is_partial) else { return };
        let place = Path::new(LOG).join(format!("{version:020}.crc"));
        let name = place.to_string_lossy();
        let sum = match super::book(&self.folder.join(&place)) {
            Ok(sum) => sum,
            // Old ones are deleted at any time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.books.unread(&name, &error.to_string()),
        };
        let sum = serde_json::from_slice::<Value>(&sum).unwrap_or_default();
        let [files, bytes] = ["numFiles", "tableSizeBytes"].map(|it| sum.get(it)?.as_u64());
        let (Some(files), Some(bytes)) = (files, bytes) else {
            let detail = "it says nothing that can be read: programs do without it";
            let finding =
                Finding::of_file(&name, Severity::Notice, Kind::Header, detail.to_owned());
            return self.books.steps.push(Step::Finding(finding));
        };
        let sizes = self.files.values().filter_map(|add| add.get("size")?.as_u64());
        let found = (super::to_u64(self.files.len()), sizes.fold(0, u64::saturating_add));
        if found != (files, bytes) {
            let detail = format!(
                "version {version} has {} of {} bytes by the log, and {} of {} by this sum of it",
                counted(found.0, "file"),
                grouped(found.1),
                counted(files, "file"),
                grouped(bytes)
            );
            self.books.say(&name, Kind::Checksum, detail);
        }
    }

    /// The books, with the files of the state that was reached.
    fn end(mut self) -> Books {
        let mut vectors = BTreeMap::<Result<PathBuf, String>, Vec<Vector>>::new();
        for ((name, key), add) in &self.files {
            let path = decoded(name);
            let stats = add.get("stats").and_then(Value::as_str).unwrap_or_default();
            let stats = serde_json::from_str::<Value>(stats).unwrap_or_default();
            let parsed = add.get("stats_parsed").and_then(|stats| stats.get("numRecords"));
            let rows = stats.get("numRecords").or(parsed).and_then(Value::as_u64);
            let mut deleted = None;
            if let Some(vector) = add.get("deletionVector").filter(|_| key.is_some()) {
                match vector::of(vector, &path, rows) {
                    Ok(vector) => {
                        deleted = Some(Deletions::of_vector(vector.clone(), self.folder));
                        if let Some(place) = look_at(&vector, &mut self.books) {
                            vectors.entry(place).or_default().push(vector);
                        }
                    }
                    Err(why) => {
                        let detail = format!("the deletion vector of {path} cannot be read: {why}");
                        self.books.say(LOG, Kind::Structure, detail);
                    }
                }
            }
            let place = inside(&path).filter(|_| !is_url(name)).ok_or(path);
            let bytes = add.get("size").and_then(Value::as_u64);
            let file = Named::new(place, bytes, Content::Parquet);
            let values = add.get("partitionValues").map(values).unwrap_or_default();
            self.books.files.push(Named { rows, deleted, values, ..file });
        }
        for (place, of_file) in vectors {
            let content = Content::Vectors(Form::Delta, of_file);
            self.books.files.push(Named::new(place, None, content));
        }
        self.books
    }
}

/// Tests a deletion vector that is in the log; or says in which file it is.
fn look_at(vector: &Vector, books: &mut Books) -> Option<Result<PathBuf, String>> {
    match &vector.stored {
        Stored::Inline(data) => {
            if let Err(fault) = vector.judge(data) {
                books.steps.push(Step::Finding(vector.finding(LOG, fault)));
            }
            None
        }
        Stored::File(place) => Some(Ok(place.clone())),
        Stored::Elsewhere(url) => Some(Err(url.clone())),
    }
}

/// The values of the columns by which a file is put into a folder.
fn values(values: &Value) -> Vec<(String, BookValue)> {
    let value = |(name, value): (&String, &Value)| {
        // The protocol has both for NULL.
        let text = value.as_str().filter(|text| !text.is_empty());
        (name.clone(), text.map_or(BookValue::Null, |text| BookValue::Text(text.to_owned())))
    };
    values.as_object().into_iter().flatten().map(value).collect()
}

/// True if an action has what it must: which file it adds or removes, versions, a schema.
fn is_whole(action: &Value) -> bool {
    let is_named = |name: &str| action.get(name).is_none_or(|file| key_of(file).is_some());
    // Readers refuse a table whose log lacks what the protocol requires.
    let is_added = action.get("add").is_none_or(|add| {
        let has = |name: &str, is: fn(&Value) -> bool| add.get(name).is_some_and(is);
        has("size", Value::is_number)
            && has("modificationTime", Value::is_number)
            && has("dataChange", Value::is_boolean)
            && has("partitionValues", Value::is_object)
    });
    let versions = action.get("protocol").map(|protocol| {
        ["minReaderVersion", "minWriterVersion"].map(|it| protocol.get(it).and_then(Value::as_u64))
    });
    let is_protocol = versions.is_none_or(|all| all.iter().all(|it| it.is_some_and(|it| it > 0)));
    let schema = action.get("metaData").map(|it| it.get("schemaString").and_then(Value::as_str));
    let is_schema = |text: &str| {
        let schema = serde_json::from_str::<Value>(text).ok();
        schema.is_some_and(|schema| schema.get("fields").is_some_and(Value::is_array))
    };
    let is_file = is_named("add") && is_added && is_named("remove");
    is_file && is_protocol && schema.is_none_or(|text| text.is_some_and(is_schema))
}

fn take_removal(action: &Value, files: &mut Files, books: &mut Books) {
    if let Some(described) = action.get("metaData") {
        take_description(described, books);
    }
    if let Some(key) = action.get("remove").and_then(key_of) {
        books.others.extend(inside(&decoded(&key.0)));
        files.remove(&key);
    }
}

fn take_addition(action: &Value, files: &mut Files) {
    if let Some(add) = action.get("add")
        && let Some(key) = key_of(add)
    {
        files.insert(key, add.clone());
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
    let settings = described.get("configuration");
    let mapping = settings.and_then(|it| it.get("delta.columnMapping.mode")?.as_str());
    let column = |field: &Value| {
        let name = field.get("name")?.as_str()?;
        let mapped = |key: &str| field.get("metadata")?.get(key);
        let in_files = mapping
            .filter(|mode| *mode != "none")
            .map_or(Some(name), |_| mapped("delta.columnMapping.physicalName")?.as_str())?;
        let id = mapping
            .filter(|mode| *mode == "id")
            .map_or(Some(None), |_| mapped("delta.columnMapping.id")?.as_i64().map(Some))?;
        let is_partition = is_partition(name);
        Some(TableColumn {
            name: name.to_owned(),
            in_files: in_files.to_owned(),
            id,
            other_names: Vec::new(),
            may_be_in_books: is_partition,
            kind: field
                .get("type")
                .filter(|_| is_partition)
                .and_then(Value::as_str)
                .map(str::to_owned),
        })
    };
    let fields = schema.get("fields").and_then(Value::as_array);
    let columns: Option<Vec<_>> = fields.into_iter().flatten().map(column).collect();
    books.beyond_files.clear();
    if columns.is_none() || mapping.is_some_and(|mode| !["none", "name", "id"].contains(&mode)) {
        let why = "what its columns are called in its files (column mapping) cannot be read";
        books.beyond_files.push(why.to_owned());
    }
    books.columns = columns.unwrap_or_default();
}

fn key_of(action: &Value) -> Option<Key> {
    let path = action.get("path").and_then(Value::as_str)?;
    Some((path.to_owned(), action.get("deletionVector").and_then(vector::key_of)))
}

/// True for `file:/a` and `s3://b/a`, as clones of other tables have them.
fn is_url(path: &str) -> bool {
    let scheme = path.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        scheme.starts_with(|it: char| it.is_ascii_alphabetic())
            && scheme.chars().all(|it| it.is_ascii_alphanumeric() || "+-.".contains(it))
    })
}
