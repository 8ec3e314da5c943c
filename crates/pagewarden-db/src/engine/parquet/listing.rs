//! The Parquet files below a folder that no table's books describe, and what the names of its folders
//! say: `day=2024-02-29/` is a column `day`, as Hive, Spark and others write it.
//!
//! The types of such columns are in no file: a value is read as one of the column that it is compared
//! with. `__HIVE_DEFAULT_PARTITION__` is NULL, and `%20` is a space. A column of that name in the files is
//! not read: the folders' names count, as in those programs.

use std::fs;
use std::io;

use pagewarden::source::store::{Seen, StorePath};
use pagewarden_format_parquet::files::content::Obstacle;
use pagewarden_format_parquet::table::{BookValue, SnapshotFile, TableColumn, decoded};

use super::constant::OF_FOLDER;

/// Folders in a folder.
const DEPTH_MAX: usize = 32;
/// The value of a folder whose rows have none.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// Files, and the columns that the names of their folders make.
pub(super) struct Listing {
    pub files: Vec<SnapshotFile>,
    pub partitions: Vec<TableColumn>,
}

impl Listing {
    /// A single file.
    pub fn of_file(place: StorePath) -> Self {
        Self { files: vec![file(place, Vec::new())], partitions: Vec::new() }
    }

    /// The Parquet files below a folder, in the order of their names.
    pub fn below(folder: &StorePath) -> Result<Self, Obstacle> {
        let mut files = Vec::new();
        list(folder, &mut Vec::new(), 0, &mut files)?;
        files.sort_by(|one, other| one.place.path().cmp(other.place.path()));
        let Some(first) = files.first() else {
            return Err(Obstacle::Unsupported("there is no Parquet file in it".to_owned()));
        };
        let names = |file: &SnapshotFile| -> Vec<String> {
            file.values.iter().map(|(name, _)| name.clone()).collect()
        };
        let columns = names(first);
        if let Some(other) = files.iter().find(|file| names(file) != columns) {
            return Err(Obstacle::Unsupported(format!(
                "the folders of {} make other columns ({}) than those of {} ({})",
                other.place.path().display(),
                names(other).join(", "),
                first.place.path().display(),
                columns.join(", ")
            )));
        }
        let partitions = columns.into_iter().map(|name| TableColumn {
            kind: Some(OF_FOLDER.to_owned()),
            in_files: name.clone(),
            name,
            id: None,
            other_names: Vec::new(),
            may_be_in_books: true,
        });
        let partitions = partitions.collect();
        Ok(Self { files, partitions })
    }
}

/// A file of which no table says anything.
fn file(place: StorePath, values: Vec<(String, BookValue)>) -> SnapshotFile {
    SnapshotFile { place, bytes: None, rows: None, deleted: None, values }
}

/// What is in a folder, and whether it is a folder. Links of this machine are followed, and names need
/// not be text.
fn entries(folder: &StorePath) -> io::Result<Vec<(StorePath, bool)>> {
    let Some(path) = folder.local_path() else {
        let listed = folder.list()?.into_iter();
        return Ok(listed.map(|it| (folder.join(&it.name), it.seen == Seen::Folder)).collect());
    };
    let entry = |entry: io::Result<fs::DirEntry>| {
        let path = entry?.path();
        let is_folder = fs::metadata(&path)?.is_dir();
        Ok((StorePath::local(path), is_folder))
    };
    fs::read_dir(path)?.map(entry).collect()
}

/// `values` are those of the folders on the way.
fn list(
    folder: &StorePath,
    values: &mut Vec<(String, BookValue)>,
    depth: usize,
    files: &mut Vec<SnapshotFile>,
) -> Result<(), Obstacle> {
    for (place, is_folder) in entries(folder)? {
        let path = place.path();
        let name = path.file_name().unwrap_or_default();
        let text = name.to_string_lossy();
        // Markers of writers, and files that are not finished.
        let is_value = is_folder && text.starts_with('_') && text.contains('=');
        if text.starts_with(['_', '.']) && !is_value {
            continue;
        }
        if is_folder {
            if depth >= DEPTH_MAX {
                return Err(Obstacle::Unsupported(format!("{}: too deep", path.display())));
            }
            let value = match (text.split_once('='), name.to_str()) {
                (None, _) => None,
                (Some(pair), Some(_)) => Some(value_of(pair, &text, values)?),
                (Some(_), None) => {
                    return Err(Obstacle::Unsupported(format!(
                        "{}: the name is that of a value, and no text",
                        path.display()
                    )));
                }
            };
            let before = values.len();
            values.extend(value);
            list(&place, values, depth.saturating_add(1), files)?;
            values.truncate(before);
        } else if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("parquet")) {
            files.push(file(place, values.clone()));
        }
    }
    Ok(())
}

/// The column that the name of a folder makes, and its value in all files below.
fn value_of(
    (name, value): (&str, &str),
    text: &str,
    above: &[(String, BookValue)],
) -> Result<(String, BookValue), Obstacle> {
    let name = decoded(name);
    let why = match (name.is_empty() || value.is_empty(), above.iter().any(|(it, _)| *it == name)) {
        (true, _) => "has no column or no value before or behind the =",
        (_, true) => "makes a column that a folder above it makes, too",
        _ if value == NULL => return Ok((name, BookValue::Null)),
        _ => return Ok((name, BookValue::Text(decoded(value)))),
    };
    Err(Obstacle::Unsupported(format!("the name of its folder {text} {why}")))
}
