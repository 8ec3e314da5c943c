//! What is read as one table: a file, the files of a folder (`listing`), or those of the current state of a Delta
//! or Iceberg table; and which columns they have.
//!
//! Files are opened when they are read, and must be then what they were when the table was opened.
//! Columns meet by their names, or in Iceberg tables by their numbers; one that a file lacks is NULL
//! in all of its rows, as the tables' own readers have it, unless the books of the table have its value.
//! Rows that the table deletes are no rows.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use pagewarden::source::store::{Seen, StorePath, expecting};
use pagewarden_format_parquet::files::content::Obstacle;
use pagewarden_format_parquet::files::decoder::ValuesFile;
use pagewarden_format_parquet::files::open_file;
use pagewarden_format_parquet::table::deleted::{DeletedRows, Deletions};
use pagewarden_format_parquet::table::{self, BookValue, SnapshotFile, TableColumn};
use parquet::basic::LogicalType;
use parquet::schema::types::SchemaDescriptor;

use super::constant::Constant;
use super::kind::Meaning;
use super::listing::Listing;
use crate::row::column::Kind;
use crate::table::{Column, Filled, Form};

/// A column in one file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Its number among the columns that hold values.
    pub leaf: usize,
    pub kind: Kind,
}

/// Where the values of a column of the table are, for one file.
#[derive(Debug)]
pub(super) enum Values {
    Column(Place),
    /// All are NULL.
    Null,
    /// All are this one.
    Constant(Constant),
}

/// A file of a table.
#[derive(Debug)]
pub(super) struct DataFile {
    pub place: StorePath,
    bytes: u64,
    modified: Option<SystemTime>,
    /// Its rows without those that are deleted.
    pub rows: u64,
    deleted: Option<Deletions>,
    /// For each column of the table.
    pub values: Vec<Values>,
}

/// A file that is open.
pub(super) struct OpenFile {
    pub file: ValuesFile,
    pub deleted: Option<Arc<DeletedRows>>,
}

impl DataFile {
    /// Opens it once more.
    pub fn open(&self) -> Result<OpenFile, Obstacle> {
        let open = ValuesFile::open(&self.place)?;
        let (bytes, modified) = look(&self.place)?;
        if (bytes, modified) != (self.bytes, self.modified) || open.content.bytes() != bytes {
            let why = "it was written to while it was compared";
            return Err(Obstacle::Unsupported(why.to_owned()));
        }
        let rows = open.content.footer().rows;
        let deleted = self.deleted.as_ref().map(|deleted| deleted.read(rows)).transpose()?;
        Ok(OpenFile { file: open, deleted })
    }
}

fn look(place: &StorePath) -> Result<(u64, Option<SystemTime>), Obstacle> {
    let file = open_file(place)?;
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
        let (title, version, wanted, files, partitions) =
            if !matches!(seen, Seen::File(_)) && table::is_table(whole).is_ok_and(|it| it) {
                let snapshot = table::snapshot(whole).map_err(at(whole))?;
                let title = format!("{} of Parquet", snapshot.engine);
                (title, snapshot.state, Some(snapshot.columns), snapshot.files, Vec::new())
            } else {
                let listing = match seen {
                    Seen::File(_) => Listing::of_file(whole.clone()),
                    _ => Listing::below(whole).map_err(at(whole))?,
                };
                ("Parquet".to_owned(), String::new(), None, listing.files, listing.partitions)
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
        let files = expecting(files, |file: &SnapshotFile| file.place.expect(file.bytes));
        for file in files {
            let place = file.place.clone();
            folder.take(file, wanted.as_deref(), &partitions).map_err(at(&place))?;
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

    /// Deletes rows of the only file.
    #[cfg(test)]
    pub fn delete(&mut self, rows: DeletedRows) {
        let deleted = Deletions::of_rows(rows);
        for file in &mut self.files {
            file.rows -= deleted.count(file.rows).unwrap();
            file.deleted = Some(deleted.clone());
        }
    }

    /// The columns of a file of a folder that is no table: the first one has those of all others.
    fn meet(&mut self, found: &[Found], partitions: &[TableColumn]) -> Result<(), Obstacle> {
        if self.files.is_empty() {
            let is_of_folder = |it: &&Found| partitions.iter().any(|column| column.name == it.name);
            let in_file = found.iter().filter(|it| !is_of_folder(it));
            let in_file = in_file.map(|it| column(it.name.clone(), &it.meaning));
            self.columns = in_file.chain(partitions.iter().map(column_without_file)).collect();
            return Ok(());
        }
        let missing = |found: &&Found| !self.columns.iter().any(|it| it.name == found.name);
        match found.iter().find(missing) {
            None => Ok(()),
            Some(extra) => Err(Obstacle::Unsupported(format!(
                "it has a column {} that other files of the folder lack",
                extra.name
            ))),
        }
    }

    fn take(
        &mut self,
        named: SnapshotFile,
        wanted: Option<&[TableColumn]>,
        partitions: &[TableColumn],
    ) -> Result<(), Obstacle> {
        let partition = |name: &str| partitions.iter().find(|column| column.name == name);
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
        if wanted.is_none() {
            self.meet(&found, partitions)?;
        }
        let has_numbers = found.iter().any(|found| found.id.is_some());
        let has_names = wanted.is_some_and(|all| all.iter().any(|it| !it.other_names.is_empty()));
        let mut values = Vec::new();
        for (number, column) in self.columns.iter_mut().enumerate() {
            let table_column = match wanted {
                Some(wanted) => wanted.get(number),
                None => partition(&column.name),
            };
            let id = table_column.and_then(|column| column.id);
            let name = table_column.map_or(&column.name, |column| &column.in_files);
            let here = found.iter().find(|found| match (id, table_column) {
                (Some(id), _) if has_numbers => found.id == Some(id),
                (Some(_), Some(column)) => column.other_names.contains(&found.name),
                _ => found.name == *name,
            });
            // Delta has no such column in its files; Iceberg means files that lack it.
            if (id.is_none() || here.is_none())
                && let Some((meaning, of_all)) = in_books(table_column, &named)
            {
                agree(column, &meaning)?;
                values.push(of_all);
                continue;
            }
            let Some(here) = here else {
                let is_known = id.is_none() || has_numbers || has_names;
                lacks(column, table_column, is_known)?;
                column.nullable = true;
                values.push(Values::Null);
                continue;
            };
            agree(column, &here.meaning)?;
            values.push(here.leaf.map_or(Values::Null, |leaf| {
                Values::Column(Place { leaf, kind: here.meaning.kind })
            }));
        }
        for (_, value) in named.values.iter().filter(|_| wanted.is_none()) {
            self.state.push_str(&format!(" {value:?}"));
        }
        let SnapshotFile { place, deleted, .. } = named;
        let rows = match &deleted {
            Some(deleted) => rows.saturating_sub(deleted.count(rows)?),
            None => rows,
        };
        let modified_text = modified.map(|it| format!("{it:?}")).unwrap_or_default();
        self.state.push_str(&format!(" {bytes} {rows} {modified_text}"));
        self.files.push(DataFile { place, bytes, modified, rows, deleted, values });
        Ok(())
    }
}

/// What a column is, and the value of all rows of a file, if the books of the table have it.
fn in_books(column: Option<&TableColumn>, file: &SnapshotFile) -> Option<(Meaning, Values)> {
    let TableColumn { in_files, kind, .. } = column?;
    let kind = kind.as_deref()?;
    let (_, value) = file.values.iter().find(|(name, _)| name == in_files)?;
    if *value == BookValue::Null {
        return Some((Meaning::of_nothing(), Values::Null));
    }
    let meaning = Constant::meaning(kind);
    let value = Constant::read(kind, value).map(Values::Constant);
    let place = file.place.path().to_string_lossy();
    Some(meaning.zip(value).unwrap_or_else(|| (Meaning::other(kind, &place), Values::Null)))
}

/// A file does not have a column, as far as its columns are known: is it NULL there?
fn lacks(
    column: &Column,
    table_column: Option<&TableColumn>,
    is_known: bool,
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
        Some(_) if !is_known => Err(Obstacle::Unsupported(
            "its columns have no numbers, by which the table knows them".to_owned(),
        )),
        Some(_) => Ok(()),
    }
}

/// All files of a table must mean the same by a column.
pub(super) fn agree(column: &mut Column, meaning: &Meaning) -> Result<(), Obstacle> {
    let Meaning { form, declared, .. } = meaning;
    if *form == Form::Any && column.form != Form::Any {
        // All of it is NULL there.
        return Ok(());
    }
    if column.form == Form::Any {
        // Of a table: known from the first file that has it.
        let name = column.name.clone();
        let nullable = column.nullable;
        *column = self::column(name, meaning);
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
    column.exact &= meaning.kind.is_exact();
    if column.wire != meaning.wire {
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
        filled: Filled::Said,
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
        filled: Filled::Said,
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
            Some(column) if column.logical_type_ref() == Some(&LogicalType::Unknown) => {
                (None, Meaning::of_nothing())
            }
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
