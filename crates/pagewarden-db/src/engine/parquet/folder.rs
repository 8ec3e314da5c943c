//! What is read as one table: a file, the files of a folder, or those of the current state of a Delta
//! or Iceberg table; and which columns they have.
//!
//! Files are opened when they are read, and must be then what they were when the table was opened.
//! Columns meet by their names, or in Iceberg tables by their numbers; one that a file lacks is NULL
//! in all of its rows, as the tables' own readers have it.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use pagewarden::source::store::{Seen, StorePath, expecting};
use pagewarden_format_parquet::files::content::Obstacle;
use pagewarden_format_parquet::files::decoder::ValuesFile;
use pagewarden_format_parquet::table::{self, TableColumn};
use parquet::schema::types::SchemaDescriptor;

use super::kind::Meaning;
use crate::row::column::Kind;
use crate::table::{Column, Form};

/// Folders in a folder.
const DEPTH_MAX: usize = 32;

/// A column in one file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Its number among the columns that hold values.
    pub leaf: usize,
    pub kind: Kind,
}

/// A file of a table.
#[derive(Debug)]
pub(super) struct DataFile {
    pub place: StorePath,
    bytes: u64,
    modified: Option<SystemTime>,
    pub rows: u64,
    /// For each column of the table, where it is; none if the file lacks it.
    pub places: Vec<Option<Place>>,
}

impl DataFile {
    /// Opens it once more.
    pub fn open(&self) -> Result<ValuesFile, Obstacle> {
        let open = ValuesFile::open(&self.place)?;
        let (bytes, modified) = look(&self.place)?;
        if (bytes, modified) != (self.bytes, self.modified) || open.content.bytes() != bytes {
            let why = "it was written to while it was compared";
            return Err(Obstacle::Unsupported(why.to_owned()));
        }
        Ok(open)
    }
}

fn look(place: &StorePath) -> Result<(u64, Option<SystemTime>), Obstacle> {
    let file = place.open()?;
    Ok((file.length()?, file.modified()))
}

/// What is read as one table.
#[derive(Debug)]
pub(super) struct Folder {
    /// Its name.
    pub name: String,
    /// `Parquet`, `Delta table`.
    pub title: String,
    /// For a run that is resumed: equal if nothing has changed.
    pub state: String,
    pub columns: Vec<Column>,
    pub files: Vec<DataFile>,
}

/// A column in a file, as its schema has it.
struct Found {
    name: String,
    id: Option<i64>,
    leaf: Option<usize>,
    meaning: Meaning,
}

impl Folder {
    /// Opens what is at a place.
    pub fn open(whole: &StorePath) -> Result<Self, (PathBuf, Obstacle)> {
        let at = |place: &StorePath| {
            let path = place.path().to_owned();
            move |obstacle: Obstacle| (path, obstacle)
        };
        let seen = whole.look().map_err(|error| at(whole)(error.into()))?;
        let (title, version, wanted, files) = if matches!(seen, Seen::File(_)) {
            let file = NamedFile { place: whole.clone(), bytes: None, rows: None };
            ("Parquet".to_owned(), String::new(), None, vec![file])
        } else if table::is_table(whole).is_ok_and(|it| it) {
            let snapshot = table::snapshot(whole).map_err(at(whole))?;
            let files = snapshot.files.into_iter();
            let files = files.map(|file| NamedFile {
                place: file.place,
                bytes: file.bytes,
                rows: file.rows,
            });
            let title = format!("{} of Parquet", snapshot.engine);
            (title, snapshot.state, Some(snapshot.columns), files.collect())
        } else {
            let files = listed(whole).map_err(at(whole))?;
            ("Parquet".to_owned(), String::new(), None, files)
        };
        let mut folder = Self {
            name: name_of(whole),
            title,
            state: format!("{} {version}", whole.path().display()),
            columns: Vec::new(),
            files: Vec::new(),
        };
        if let Some(wanted) = &wanted {
            folder.columns = wanted.iter().map(column_without_file).collect();
        }
        let files = expecting(files, |file: &NamedFile| file.place.expect(file.bytes));
        for file in files {
            folder.take(&file, wanted.as_deref()).map_err(at(&file.place))?;
        }
        Ok(folder)
    }

    /// All rows.
    pub fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    fn take(&mut self, named: &NamedFile, wanted: Option<&[TableColumn]>) -> Result<(), Obstacle> {
        let (bytes, modified) = look(&named.place)?;
        let open = ValuesFile::open(&named.place)?;
        let rows = open.content.footer().rows;
        for (what, expected, found) in [("bytes", named.bytes, bytes), ("rows", named.rows, rows)] {
            if let Some(expected) = expected.filter(|expected| *expected != found) {
                let why = format!("it has {found} {what}, the table says {expected}");
                return Err(Obstacle::Damaged(why));
            }
        }
        let found = columns_of(&open.schema, &named.place.path().to_string_lossy());
        let is_first = self.files.is_empty();
        if wanted.is_none() && is_first {
            self.columns = found.iter().map(|it| column(it.name.clone(), &it.meaning)).collect();
        }
        if wanted.is_none() && !is_first {
            let missing = |found: &&Found| !self.columns.iter().any(|it| it.name == found.name);
            if let Some(extra) = found.iter().find(missing) {
                return Err(Obstacle::Unsupported(format!(
                    "it has a column {} that other files of the folder lack",
                    extra.name
                )));
            }
        }
        let mut places = Vec::new();
        for (number, column) in self.columns.iter_mut().enumerate() {
            let table_column = wanted.and_then(|wanted| wanted.get(number));
            let id = table_column.and_then(|column| column.id);
            let here = found.iter().find(|found| match id {
                Some(id) => found.id == Some(id),
                None => found.name == column.name,
            });
            let Some(here) = here else {
                lacks(column, table_column, id, &found)?;
                column.nullable = true;
                places.push(None);
                continue;
            };
            agree(column, here)?;
            places.push(here.leaf.map(|leaf| Place { leaf, kind: here.meaning.kind }));
        }
        let modified_text = modified.map(|it| format!("{it:?}")).unwrap_or_default();
        self.state.push_str(&format!(" {bytes} {rows} {modified_text}"));
        self.files.push(DataFile { place: named.place.clone(), bytes, modified, rows, places });
        Ok(())
    }
}

/// A file does not have a column: is it NULL there?
fn lacks(
    column: &Column,
    table_column: Option<&TableColumn>,
    id: Option<i64>,
    found: &[Found],
) -> Result<(), Obstacle> {
    let name = &column.name;
    match table_column {
        None => Err(Obstacle::Unsupported(format!(
            "it has no column {name}, which other files of the folder have"
        ))),
        Some(table_column) if table_column.may_be_in_books => Err(Obstacle::Unsupported(format!(
            "it has no column {name}: its values are in the books of the table (a column of \
                 partitions, or one with a default), which is not read here"
        ))),
        Some(_) if id.is_some() && found.iter().all(|found| found.id.is_none()) => {
            Err(Obstacle::Unsupported(
                "its columns have no numbers, by which the table knows them".to_owned(),
            ))
        }
        Some(_) => Ok(()),
    }
}

/// All files of a table must mean the same by a column.
fn agree(column: &mut Column, here: &Found) -> Result<(), Obstacle> {
    let Meaning { form, declared, .. } = &here.meaning;
    if column.form == Form::Any {
        // Of a table: known from the first file that has it.
        let name = column.name.clone();
        let nullable = column.nullable;
        *column = self::column(name, &here.meaning);
        column.nullable |= nullable;
        return Ok(());
    }
    let is_opaque = |form: &Form| matches!(form, Form::Opaque(_));
    if column.form != *form && !(is_opaque(&column.form) && is_opaque(form)) {
        return Err(Obstacle::Unsupported(format!(
            "its column {} is {declared}, in other files {}",
            column.name, column.declared
        )));
    }
    column.exact &= here.meaning.kind.is_exact();
    if column.wire != here.meaning.wire {
        column.wire = String::new();
    }
    Ok(())
}

fn column(name: String, meaning: &Meaning) -> Column {
    Column {
        name,
        declared: meaning.declared.clone(),
        form: meaning.form.clone(),
        wire: meaning.wire.to_owned(),
        character_set: None,
        // Whether there are nulls is known once a key was gone through.
        nullable: true,
        exact: meaning.kind.is_exact(),
    }
}

/// A column of a table, of which no file was looked at.
fn column_without_file(column: &TableColumn) -> Column {
    Column {
        name: column.name.clone(),
        declared: "NULL".to_owned(),
        form: Form::Any,
        wire: String::new(),
        character_set: None,
        nullable: true,
        exact: false,
    }
}

/// The columns of a file: those of its outermost level.
fn columns_of(schema: &Arc<SchemaDescriptor>, place: &str) -> Vec<Found> {
    let root = schema.root_schema();
    let mut leaf = 0;
    let mut found = Vec::new();
    for field in root.get_fields() {
        let name = field.name().to_owned();
        let info = field.get_basic_info();
        let id = info.has_id().then(|| i64::from(info.id()));
        let count = leaves_of(field);
        let column = schema.columns().get(leaf);
        let plain = column.filter(|column| {
            field.is_primitive() && column.max_rep_level() == 0 && column.max_def_level() <= 1
        });
        let (at, meaning) = match plain {
            Some(column) => (Some(leaf), Meaning::of_column(column, place)),
            None => {
                let word = match (field.is_primitive(), count) {
                    (true, _) | (false, 1) => "list",
                    _ => "nested",
                };
                (None, Meaning::other(word, place))
            }
        };
        found.push(Found { name, id, leaf: at, meaning });
        leaf += count;
    }
    found
}

fn leaves_of(field: &parquet::schema::types::Type) -> usize {
    match field.is_primitive() {
        true => 1,
        false => field.get_fields().iter().map(|field| leaves_of(field)).sum(),
    }
}

/// A file, and what a table says of it.
struct NamedFile {
    place: StorePath,
    bytes: Option<u64>,
    rows: Option<u64>,
}

/// The Parquet files below a folder, in the order of their names.
fn listed(folder: &StorePath) -> Result<Vec<NamedFile>, Obstacle> {
    let mut places = Vec::new();
    list(folder, 0, &mut places)?;
    places.sort_by(|one, other| one.path().cmp(other.path()));
    if places.is_empty() {
        return Err(Obstacle::Unsupported("there is no Parquet file in it".to_owned()));
    }
    Ok(places.into_iter().map(|place| NamedFile { place, bytes: None, rows: None }).collect())
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

fn list(folder: &StorePath, depth: usize, places: &mut Vec<StorePath>) -> Result<(), Obstacle> {
    for (place, is_folder) in entries(folder)? {
        let path = place.path();
        let text = path.file_name().unwrap_or_default().to_string_lossy();
        // Markers of writers, and files that are not finished.
        if text.starts_with(['_', '.']) {
            continue;
        }
        if is_folder && text.contains('=') {
            return Err(Obstacle::Unsupported(format!(
                "the name of its folder {text} is a value of a column, which is not read here"
            )));
        }
        if is_folder {
            if depth >= DEPTH_MAX {
                return Err(Obstacle::Unsupported(format!("{}: too deep", path.display())));
            }
            list(&place, depth + 1, places)?;
        } else if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("parquet")) {
            places.push(place);
        }
    }
    Ok(())
}

/// What the table is called: the file without its ending, or the folder.
fn name_of(place: &StorePath) -> String {
    let path = place.path();
    let whole = place.canonical().unwrap_or_else(|_| place.clone());
    let named = path.file_name().or_else(|| whole.path().file_name());
    let name = named.unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    match name.rsplit_once('.') {
        Some((stem, ending)) if ending.eq_ignore_ascii_case("parquet") => stem.to_owned(),
        _ => name,
    }
}
