//! Checkpoints of a Delta table: the whole state at a version, as rows that are actions.
//!
//! | `_delta_log/` | |
//! |---|---|
//! | `N.checkpoint.parquet` | all of version N |
//! | `N.checkpoint.0000000001.0000000003.parquet` | the first of three parts of it |
//! | `N.checkpoint.UUID.json`, `.parquet` | all of it, or with the names of files that hold the rest |
//! | `_sidecars/UUID.parquet` | such a file |
//!
//! A row is what a line of a version is: `add.path` of a checkpoint is `path` in the object `add` of a line.
//! Only the columns are read that say which files are current.
//!
//! Source: "Checkpoints" in `PROTOCOL.md` of Delta Lake; tried on tables of its Spark connector 4.0.0 and of
//! delta-rs 1.6.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use serde_json::{Map, Value};

use super::LOG;
use crate::files::content::Obstacle;
use crate::files::decoder::{ValuesFile, guarded};
use pagewarden_core::source::store::StorePath;

/// Where the rest of a checkpoint is.
const SIDECARS: &str = "_sidecars";
/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 1024;
/// The columns that are read, each a value in a row.
const COLUMNS: [&str; 18] = [
    "add.path",
    "add.size",
    "add.stats",
    "add.stats_parsed.numRecords",
    "add.deletionVector.storageType",
    "add.deletionVector.pathOrInlineDv",
    "add.deletionVector.offset",
    "add.deletionVector.sizeInBytes",
    "add.deletionVector.cardinality",
    "remove.path",
    "remove.deletionVector.storageType",
    "remove.deletionVector.pathOrInlineDv",
    "remove.deletionVector.offset",
    "remove.deletionVector.sizeInBytes",
    "remove.deletionVector.cardinality",
    "metaData.schemaString",
    "sidecar.path",
    "sidecar.sizeInBytes",
];
/// Those that are several values in a row, by what their names begin with.
const LISTS: [&str; 3] =
    ["metaData.partitionColumns.", "metaData.configuration.", "add.partitionValues."];
/// Those of them that are maps.
const MAPS: [&str; 2] = ["/metaData/configuration", "/add/partitionValues"];

/// The files of one version's checkpoint.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    /// Each of them is all of it.
    whole: Vec<PathBuf>,
    /// By how many there should be, and which of them it is.
    parts: BTreeMap<u64, BTreeMap<u64, PathBuf>>,
}

impl Checkpoint {
    /// Takes a file in, by what comes behind its version.
    pub fn add(&mut self, place: PathBuf, rest: &str) {
        let words: Vec<_> = rest.split('.').filter(|word| !word.is_empty()).collect();
        match words.as_slice() {
            ["checkpoint", "parquet"] | ["checkpoint", _, "parquet" | "json"] => {
                self.whole.push(place);
                // A store lists in any order.
                self.whole.sort();
            }
            ["checkpoint", part, of, "parquet"] => {
                if let (Ok(part), Ok(of)) = (part.parse(), of.parse()) {
                    self.parts.entry(of).or_default().insert(part, place);
                }
            }
            _ => {}
        }
    }

    /// The files of it, if all are there.
    pub fn files(&self) -> Option<Vec<PathBuf>> {
        if let Some(whole) = self.whole.first() {
            return Some(vec![whole.clone()]);
        }
        let is_all =
            |(of, parts): &(&u64, &BTreeMap<u64, PathBuf>)| (1..=**of).eq(parts.keys().copied());
        self.parts.iter().find(is_all).map(|(_, parts)| parts.values().cloned().collect())
    }
}

/// A file that holds a part of a checkpoint, with its length where that is said.
pub(super) fn sidecar(action: &Value) -> Option<(PathBuf, Option<u64>)> {
    let sidecar = action.get("sidecar")?;
    let path = Path::new(sidecar.get("path")?.as_str()?);
    // Some writers name it with its folders, or with where it is in all.
    let place = Path::new(LOG).join(SIDECARS).join(path.file_name()?);
    Some((place, sidecar.get("sizeInBytes").and_then(Value::as_u64)))
}

/// Hands on the actions of a file, in its order.
///
/// # Errors
/// It cannot be read, or its values are no actions.
pub(super) fn actions(place: &StorePath, take: &mut impl FnMut(&Value)) -> Result<(), Obstacle> {
    let file = ValuesFile::open(place)?;
    let footer = file.content.footer();
    for (number, group) in footer.groups.iter().enumerate() {
        let mut columns = Vec::new();
        for (leaf, entry) in footer.leaves.iter().enumerate() {
            let is_wanted = COLUMNS.contains(&&*entry.name)
                || LISTS.iter().any(|list| entry.name.starts_with(list));
            if is_wanted {
                columns.push(Column {
                    name: entry.name.split('.').map(str::to_owned).collect(),
                    reader: file.column(number, leaf)?,
                    full: file.schema.column(leaf).max_def_level(),
                    is_list: file.schema.column(leaf).max_rep_level() > 0,
                });
            }
        }
        let mut left = usize::try_from(group.rows).unwrap_or(usize::MAX);
        while left > 0 {
            let count = left.min(BATCH_ROWS);
            let mut rows = vec![Value::Object(Map::new()); count];
            for column in &mut columns {
                column.read(&mut rows).map_err(Obstacle::Damaged)?;
            }
            for row in &mut rows {
                join_maps(row);
                take(row);
            }
            left = left.saturating_sub(count);
        }
    }
    Ok(())
}

/// Makes maps of their keys and values.
fn join_maps(row: &mut Value) {
    for map in MAPS {
        let Some(map) = row.pointer_mut(map) else { continue };
        let list =
            |name: &str| map.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let pairs = list("key").into_iter().zip(list("value"));
        let pairs = pairs.filter_map(|(key, value)| Some((key.as_str()?.to_owned(), value)));
        *map = Value::Object(pairs.collect());
    }
}

/// Definition and repetition levels, where a column has them.
type Levels<'a> = (Option<&'a mut Vec<i16>>, Option<&'a mut Vec<i16>>);

/// The values of the next rows, and how many rows they are.
fn records<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    count: usize,
    (definitions, repetitions): Levels<'_>,
) -> Result<(Vec<T::T>, usize), String> {
    let mut values = Vec::new();
    let read = guarded(|| reader.read_records(count, definitions, repetitions, &mut values))?;
    Ok((values, read.0))
}

/// A column of a row group.
struct Column {
    name: Vec<String>,
    reader: ColumnReader,
    /// The level of a value that is there.
    full: i16,
    is_list: bool,
}

impl Column {
    /// Puts its values of the next rows into them.
    fn read(&mut self, rows: &mut [Value]) -> Result<(), String> {
        let (mut definitions, mut repetitions) = (Vec::new(), Vec::new());
        let (values, read) = self.decode(rows.len(), &mut definitions, &mut repetitions)?;
        let is_all = read == rows.len()
            && (self.is_list || definitions.len() == rows.len() || self.full == 0)
            && (!self.is_list || definitions.len() == repetitions.len());
        if !is_all {
            return Err(format!(
                "{}: {read} rows where there should be {}",
                self.name(),
                rows.len()
            ));
        }
        if self.full == 0 {
            definitions = vec![0; values.len()];
        }
        let mut values = values.into_iter();
        let mut rows = rows.iter_mut();
        let mut row = None;
        for (at, definition) in definitions.iter().enumerate() {
            if !self.is_list || repetitions.get(at) == Some(&0) {
                row = rows.next();
            }
            let value = match definition.checked_sub(self.full) {
                Some(0) => values.next(),
                // An entry of a map without a value: each key has one.
                Some(-1) if self.is_list => Some(Value::Null),
                _ => continue,
            };
            let (Some(row), Some(value)) = (row.as_deref_mut(), value) else {
                return Err(format!("{}: fewer values than there should be", self.name()));
            };
            self.put(row, value);
        }
        Ok(())
    }

    fn name(&self) -> String {
        self.name.join(".")
    }

    fn decode(
        &mut self,
        count: usize,
        definitions: &mut Vec<i16>,
        repetitions: &mut Vec<i16>,
    ) -> Result<(Vec<Value>, usize), String> {
        let levels = ((self.full > 0).then_some(definitions), self.is_list.then_some(repetitions));
        match &mut self.reader {
            ColumnReader::ByteArrayColumnReader(reader) => {
                let (values, read) = records(reader, count, levels)?;
                let text = |value: &ByteArray| {
                    value.as_utf8().map(Value::from).map_err(|_| "a text is none".to_owned())
                };
                Ok((values.iter().map(text).collect::<Result<_, _>>()?, read))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                let (values, read) = records(reader, count, levels)?;
                Ok((values.into_iter().map(Value::from).collect(), read))
            }
            ColumnReader::Int32ColumnReader(reader) => {
                let (values, read) = records(reader, count, levels)?;
                Ok((values.into_iter().map(Value::from).collect(), read))
            }
            _ => Err(format!("{}: values of another type", self.name.join("."))),
        }
    }

    /// Puts a value where it belongs in an action: `add.path` into `path` of `add`; one of a list into
    /// the list `metaData.partitionColumns`, and one of a map into the list of its keys or its values.
    fn put(&self, row: &mut Value, value: Value) {
        let depth = if self.is_list { 2 } else { self.name.len() };
        let mut at = row;
        for name in self.name.iter().take(depth) {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            let Value::Object(map) = at else { return };
            at = map.entry(name.as_str()).or_insert(Value::Null);
        }
        if !self.is_list {
            *at = value;
            return;
        }
        let is_of_map = self.name.last().filter(|name| ["key", "value"].contains(&name.as_str()));
        if let Some(name) = is_of_map {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            let Value::Object(map) = at else { return };
            at = map.entry(name.as_str()).or_insert(Value::Null);
        }
        match at {
            Value::Array(list) => list.push(value),
            _ => *at = Value::Array(vec![value]),
        }
    }
}
