//! A folder that is a table of Delta Lake or Iceberg: the files that its current state names, each a
//! Parquet file with a known length and number of rows.
//!
//! | | |
//! |---|---|
//! | a file that the current state names is not there | damage: `missing` |
//! | it has another length or number of rows | damage |
//! | its pages | as those of any Parquet file |
//! | the table's own books cannot be read | damage |
//! | files in the folder that no state names | a notice: a writer that was ended leaves them |
//! | files of a form, or in a place, that is not read here | the verdict is `incomplete` |
//!
//! A table changes by new files, which its books then name: the state is that of when it was opened.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use crate::FORMAT;
use crate::files::content::Obstacle;
use crate::files::{FileSteps, ReadOptions, open_file};
use pagewarden_core::database::{Description, Evidence, OpenOptions, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::store::{Listed, Seen, StorePath, StoredFile, expecting, is_not_read};
use pagewarden_core::verdict::{Finding, Kind, Note, Severity, Unread};
use pagewarden_core::words::{bytes, counted, grouped};

use self::deleted::{Deletions, Vector};
use self::delta::vector;
use self::elsewhere::below;
use self::iceberg::{deletes, equality};

mod avro;
pub mod deleted;
mod delta;
mod elsewhere;
mod iceberg;
#[cfg(test)]
mod tests;

/// A book of a table with a million files has some hundred mebibytes.
const BOOK_BYTES_MAX: u64 = 1 << 30;
/// Folders in a folder, of partitions.
const DEPTH_MAX: usize = 32;
/// Names of files that nothing names, for an example.
const EXAMPLES: usize = 3;
const HINT: &str =
    "restore the file from a copy, or go back to a state of the table that does not need it";

/// What the books of a table say.
#[derive(Debug, Default)]
struct Books {
    engine: &'static str,
    /// `version 7`.
    state: String,
    /// The files of the current state.
    files: Vec<Named>,
    /// Files that the books themselves consist of, where they have pages.
    own: Vec<Named>,
    /// Files of earlier states, or that belong to the books.
    others: HashSet<PathBuf>,
    /// What is to be said of the books themselves.
    steps: Vec<Step>,
    /// The current state is not known for sure: nothing is said of files that nothing names.
    is_partial: bool,
    /// Files of earlier states are not all known: nothing is said of files that nothing names.
    are_others_unknown: bool,
    /// The columns of the current state, where the books say them.
    columns: Vec<TableColumn>,
    /// Why its rows cannot be read from its files.
    beyond_files: Vec<String>,
    /// With what the names of its files begin, in tables that name them by whole URLs.
    location: String,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumn {
    /// What the table calls it.
    pub name: String,
    /// What its files call it.
    pub in_files: String,
    /// Its number in the files, in tables that find columns by number.
    pub id: Option<i64>,
    /// What files may call it that have no numbers, in tables that find columns by number.
    pub other_names: Vec<String>,
    /// Files may leave it out, and its values are not NULL then: they are in the books, and not known.
    pub may_be_in_books: bool,
    /// Its type, as Delta calls it, where the books have [its values](SnapshotFile::values).
    pub kind: Option<String>,
}

/// A value that a column has in all rows of a file, as the books of the table have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BookValue {
    /// NULL.
    Null,
    /// As Delta's log has it.
    Text(String),
    /// Days since 1970 of a date, microseconds since then of a moment.
    Since1970(i64),
}

/// The rows of a table: those of some files, and of nothing else.
#[derive(Debug)]
pub struct Snapshot {
    /// `Delta table`, `Iceberg table`.
    pub engine: &'static str,
    /// `version 7`.
    pub state: String,
    /// Its columns.
    pub columns: Vec<TableColumn>,
    /// Its files.
    pub files: Vec<SnapshotFile>,
}

/// A file of a snapshot.
#[derive(Debug)]
pub struct SnapshotFile {
    /// Where it is.
    pub place: StorePath,
    /// Its length, as the table says.
    pub bytes: Option<u64>,
    /// Its rows, as the table says, with those that are deleted.
    pub rows: Option<u64>,
    /// Which of its rows are deleted.
    pub deleted: Option<Deletions>,
    /// Values that columns have in all of its rows, by the names of the columns in files. Where columns
    /// are found by number, those that the file has are not meant.
    pub values: Vec<(String, BookValue)>,
}

/// A file that the current state names.
#[derive(Debug, Clone)]
struct Named {
    /// Below the folder of the table; or, if it is elsewhere, as it is named.
    place: Result<PathBuf, String>,
    bytes: Option<u64>,
    rows: Option<u64>,
    content: Content,
    deleted: Option<Deletions>,
    values: Vec<(String, BookValue)>,
    /// When it was added, in tables in which later files delete rows of earlier ones.
    sequence: i64,
    /// The partition that it is of, in such tables; none where there are no partitions.
    partition: Option<String>,
}

impl Named {
    fn new(place: Result<PathBuf, String>, bytes: Option<u64>, content: Content) -> Self {
        let (rows, deleted, values, sequence, partition) = (None, None, Vec::new(), 0, None);
        Self { place, bytes, rows, content, deleted, values, sequence, partition }
    }
}

/// What is in a file that the current state names.
#[derive(Debug, Clone)]
enum Content {
    /// Rows of the table.
    Parquet,
    /// Which rows of other files are deleted, as rows of Parquet.
    Deletes,
    /// The same by the values that they have in some columns, which have these numbers.
    DeletedValues(Vec<i64>),
    /// Which rows of other files are deleted, as bitmaps: those of Delta, or of Iceberg.
    Vectors(Form, Vec<Vector>),
    /// Something that is not read here.
    Other,
}

/// The forms of books.
#[derive(Debug, Clone, Copy)]
enum Form {
    Delta,
    Iceberg,
}

impl Form {
    /// That of a folder; `None` if it is no table.
    ///
    /// # Errors
    /// The store did not say.
    fn of(folder: &StorePath) -> io::Result<Option<Self>> {
        for form in [Self::Delta, Self::Iceberg] {
            let listed = match folder.join(form.mark()).list() {
                Err(error) if is_not_read(&error) => return Err(error),
                // There is none, or it may not be listed.
                listed => listed.ok(),
            };
            if listed.is_some_and(|listed| form.is_among(&listed)) {
                return Ok(Some(form));
            }
        }
        Ok(None)
    }

    /// The folder of the books.
    fn mark(self) -> &'static str {
        match self {
            Self::Delta => delta::LOG,
            Self::Iceberg => iceberg::METADATA,
        }
    }

    /// True if what is in that folder is of a table, even if no state of it is left.
    fn is_among(self, listed: &[Listed]) -> bool {
        match self {
            // Nothing else has a folder of that name.
            Self::Delta => true,
            Self::Iceberg => iceberg::is_among(listed),
        }
    }

    fn read(self, folder: &StorePath) -> io::Result<Books> {
        let mut books = match self {
            Self::Delta => delta::read(folder),
            Self::Iceberg => iceberg::read(folder),
        }?;
        for named in &mut books.files {
            if let Some(below) = named.place.as_ref().err().and_then(|url| below(folder, url)) {
                named.place = Ok(below);
            }
        }
        Ok(books)
    }

    /// Reads which rows are deleted by files, after the books.
    fn delete(self, folder: &StorePath, books: &mut Books) -> Result<(), Obstacle> {
        match self {
            Self::Delta => Ok(()),
            Self::Iceberg => {
                deletes::read(folder, books)?;
                equality::read(folder, books)
            }
        }
    }

    /// The newest of the books: another one, if the table has changed.
    fn newest(self, listed: &[Listed]) -> Option<PathBuf> {
        match self {
            Self::Delta => delta::newest(listed),
            Self::Iceberg => iceberg::newest(listed),
        }
    }
}

/// True if the folder has the books of a table.
///
/// # Errors
/// The store did not say.
pub fn is_table(folder: &StorePath) -> io::Result<bool> {
    Form::of(folder).map(|form| form.is_some())
}

/// What says that a folder of a store is a table.
pub(crate) fn folder_mark(folder: &StorePath, listed: &[Listed]) -> Option<String> {
    let has = |form: &Form| {
        let is_listed = listed.iter().any(|one| one.name == form.mark());
        is_listed && folder.join(form.mark()).list().is_ok_and(|listed| form.is_among(&listed))
    };
    [Form::Delta, Form::Iceberg].iter().find(|form| has(form)).map(|form| form.mark().to_owned())
}

/// The current rows of a folder that [`is_table`].
///
/// # Errors
/// Its books cannot be read, or are damaged, or its rows cannot be read from its files: there are files of
/// another form, or elsewhere.
pub fn snapshot(folder: &StorePath) -> Result<Snapshot, Obstacle> {
    let form = Form::of(folder)?.ok_or(io::ErrorKind::NotFound).map_err(io::Error::from)?;
    let mut books = form.read(folder)?;
    for step in std::mem::take(&mut books.steps) {
        match step {
            Step::Finding(finding) if finding.severity == Severity::Damage => {
                let detail = finding.detail.unwrap_or_default();
                return Err(Obstacle::Damaged(format!("{}: {detail}", finding.place.file)));
            }
            Step::Unread(unread) => {
                return Err(Obstacle::Unsupported(format!("{}: {}", unread.file, unread.error)));
            }
            Step::Untested(note, _) => return Err(Obstacle::Unsupported(note.text)),
            _ => {}
        }
    }
    if let Some(why) = books.beyond_files.pop() {
        return Err(Obstacle::Unsupported(why));
    }
    form.delete(folder, &mut books)?;
    let mut files = Vec::new();
    for named in books.files {
        let is_of_rows = matches!(named.content, Content::Parquet | Content::Other);
        if !is_of_rows {
            continue;
        }
        let place = named.find(folder)?;
        if !matches!(named.content, Content::Parquet) {
            let name = named.name();
            return Err(Obstacle::Unsupported(format!("{name} is not a Parquet file")));
        }
        let Named { bytes, rows, deleted, values, .. } = named;
        files.push(SnapshotFile { place, bytes, rows, deleted, values });
    }
    if books.columns.is_empty() {
        let why = "the books of the table do not say which columns it has";
        return Err(Obstacle::Unsupported(why.to_owned()));
    }
    Ok(Snapshot { engine: books.engine, state: books.state, columns: books.columns, files })
}

/// Opens a folder that [`is_table`].
///
/// # Errors
/// Its books cannot be listed.
pub fn open(folder: &StorePath, options: &OpenOptions) -> Result<Target, Error> {
    let failed = |source| Error::io("list", folder.path(), source);
    let form = Form::of(folder).map_err(failed)?;
    let form = form.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    // By the list from which the books are read.
    let listed = folder.join(form.mark()).list().map_err(failed)?;
    let newest = form.newest(&listed);
    let mut books = form.read(folder).map_err(failed)?;
    say_orphans(folder, &mut books);
    let files = to_u64(books.files.len());
    let length = books.files.iter().filter_map(|file| file.bytes).fold(0, u64::saturating_add);
    let description = Description {
        part: None,
        path: folder.path().to_owned(),
        format: FORMAT.name,
        engine: books.engine.to_owned(),
        page_size: 0,
        setting: None,
        state: format!("{}, {} ({})", books.state, counted(files, "file"), bytes(length)),
        evidence: Evidence {
            tested_by: "each file that the current state names: that it is there, its length, its rows, \
                        and its pages as those of any Parquet file; deletion vectors by their CRC",
            unseen: "an older state of the whole table; damage in the values of pages without a CRC \
                     that still expands; statistics",
        },
        live: false,
        epoch: None,
    };
    let root = folder.clone();
    let files = expecting(books.own.into_iter().chain(books.files), move |named: &Named| {
        if let Ok(place) = named.find(&root) {
            place.expect(named.bytes);
        }
    });
    let steps = TableSteps {
        folder: folder.clone(),
        form,
        newest,
        ready: books.steps.into(),
        files: Box::new(files),
        current: None,
        expands_all: options.structure,
        untested: 0,
        is_over: false,
    };
    Ok(Target { description, steps: Box::new(steps), woken: None })
}

/// What is to be said of the files of a table, one after another.
struct TableSteps {
    folder: StorePath,
    form: Form,
    /// The newest book when the table was opened.
    newest: Option<PathBuf>,
    ready: VecDeque<Step>,
    files: Box<dyn Iterator<Item = Named> + Send>,
    current: Option<FileSteps>,
    expands_all: bool,
    /// Files of another form than Parquet.
    untested: u64,
    is_over: bool,
}

impl Iterator for TableSteps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            if let Some(step) = self.current.as_mut().and_then(Iterator::next) {
                return Some(step);
            }
            self.current = None;
            match self.files.next() {
                Some(named) => self.open(&named),
                None if self.is_over => return None,
                None => self.end(),
            }
        }
    }
}

impl TableSteps {
    fn open(&mut self, named: &Named) {
        let name = named.name();
        let Ok(place) = named.find(&self.folder) else {
            let why = "it is in another store than the folder of the table: check it there";
            return self.ready.push_back(Step::Unread(Unread::of_file(name, why)));
        };
        let opened = open_file(&place).and_then(|file| Ok((file.length()?, file)));
        let (length, file) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(why) = self.change() {
                    return self.ready.push_back(Step::Unread(Unread::of_file(name, why)));
                }
                let detail = "the current state of the table names it, and it is not there";
                return self.say(&name, Kind::Missing, detail.to_owned());
            }
            Err(error) => {
                let unread = Unread::of_file(name, error.to_string());
                return self.ready.push_back(Step::Unread(unread));
            }
        };
        if let Some(expected) = named.bytes.filter(|expected| *expected != length) {
            let kind = if length < expected { Kind::Truncated } else { Kind::Structure };
            let detail =
                format!("it has {} bytes, the table says {}", grouped(length), grouped(expected));
            self.say(&name, kind, detail);
        }
        match &named.content {
            Content::Parquet | Content::Deletes | Content::DeletedValues(_) => {
                self.begin(named, name, &place, file);
            }
            Content::Vectors(form, vectors) => self.test(*form, vectors, &name, &file),
            Content::Other => self.untested = self.untested.saturating_add(1),
        }
    }

    /// Tests what deletes rows of other files.
    fn test(&mut self, form: Form, vectors: &[Vector], name: &str, file: &StoredFile) {
        let mut test = || {
            let fault = match form {
                Form::Delta => vector::look_at(file)?,
                Form::Iceberg => deletes::look_at(file, vectors)?,
            };
            if let Some(detail) = fault {
                self.say(name, Kind::Header, detail);
            }
            for vector in vectors {
                if let Err(fault) = vector.test(file)? {
                    self.ready.push_back(Step::Finding(vector.finding(name, fault)));
                }
            }
            Ok::<_, io::Error>(())
        };
        if let Err(error) = test() {
            self.ready.push_back(Step::Unread(Unread::of_file(name, error.to_string())));
        }
    }

    /// Begins with the pages of a Parquet file.
    fn begin(&mut self, named: &Named, name: String, place: &StorePath, file: StoredFile) {
        let path = place.path().to_owned();
        let is_local = place.local_path().is_some();
        let options = ReadOptions { is_local, expands_all: self.expands_all };
        match FileSteps::new(name.clone(), path, file, options) {
            Ok(steps) => {
                let rows = steps.rows().zip(named.rows).filter(|(rows, named)| rows != named);
                if let Some((rows, expected)) = rows {
                    let detail = format!(
                        "it has {} rows, the table says {}",
                        grouped(rows),
                        grouped(expected)
                    );
                    self.say(&name, Kind::Structure, detail);
                }
                self.current = Some(steps);
            }
            Err(error) => {
                self.ready.push_back(Step::Unread(Unread::of_file(name, error.to_string())));
            }
        }
    }

    /// Why a file that is gone may be none of the current state by now.
    fn change(&self) -> Option<&'static str> {
        match self.folder.join(self.form.mark()).list_again() {
            Ok(listed) if self.form.newest(&listed) == self.newest => None,
            Ok(_) => Some("it is gone, and the table has another state by now: check it again"),
            Err(_) => {
                Some("it is gone, and whether the table has another state by now is not known")
            }
        }
    }

    fn say(&mut self, name: &str, kind: Kind, detail: String) {
        let finding = Finding::of_file(name, Severity::Damage, kind, detail).with_hint(HINT);
        self.ready.push_back(Step::Finding(finding));
    }

    fn end(&mut self) {
        self.is_over = true;
        if self.untested > 0 {
            let files = counted(self.untested, "file");
            let text = format!(
                "{files} of the current state are no Parquet files: only that they are there, with \
                 their length, was tested"
            );
            self.ready.push_back(Step::Untested(Note { file: String::new(), text }, self.untested));
        }
    }
}

/// `%20` is a space: names in paths are often written as in URLs.
#[must_use]
pub fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((byte, more)) = rest.split_first() {
        rest = more;
        let digits = more.first_chunk::<2>().filter(|it| it.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
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

/// The content of a book of the table.
fn book(place: &StorePath) -> io::Result<Vec<u8>> {
    let file = open_file(place)?;
    let length = file.length()?;
    if length > BOOK_BYTES_MAX {
        return Err(io::Error::other("no file of a length that such files have"));
    }
    let mut content = vec![0; usize::try_from(length).unwrap_or(0)];
    let count = file.read_fully(&mut content, 0)?;
    content.truncate(count);
    Ok(content)
}

impl Books {
    /// Something wrong with the books.
    fn say(&mut self, name: &str, kind: Kind, detail: String) {
        let finding = Finding::of_file(name, Severity::Damage, kind, detail).with_hint(HINT);
        self.steps.push(Step::Finding(finding));
        self.is_partial = true;
    }

    /// Something that could not be looked at.
    fn unread(&mut self, name: &str, why: &str) {
        self.steps.push(Step::Unread(Unread::of_file(name, why)));
        self.is_partial = true;
    }

    /// A book that must be there; `None`, and it is said why, if it cannot be read.
    fn read(&mut self, folder: &StorePath, place: &Path) -> Option<Vec<u8>> {
        self.take(place, book(&folder.join(place)))
    }

    /// The same of one that was read.
    fn take(&mut self, place: &Path, read: io::Result<Vec<u8>>) -> Option<Vec<u8>> {
        let name = place.to_string_lossy();
        self.others.insert(place.to_owned());
        match read {
            Ok(content) => Some(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let detail = "the table needs it, and it is not there; the files that it names are not \
                              known";
                self.say(&name, Kind::Missing, detail.to_owned());
                None
            }
            Err(error) => {
                self.unread(&name, &error.to_string());
                None
            }
        }
    }
}

/// Says which Parquet files are in the folder that no state of the table names.
fn say_orphans(folder: &StorePath, books: &mut Books) {
    let mut found = BTreeSet::new();
    list(folder, Path::new(""), 0, &mut found, books);
    let named: HashSet<&PathBuf> =
        books.files.iter().filter_map(|file| file.place.as_ref().ok()).collect();
    let is_orphan = |place: &&PathBuf| !named.contains(place) && !books.others.contains(*place);
    let orphans: Vec<_> = found.iter().filter(is_orphan).cloned().collect();
    if books.is_partial {
        // They may be of the part that is not known: as files by themselves.
        let unknown = orphans.into_iter();
        books.files.extend(unknown.map(|place| Named::new(Ok(place), None, Content::Parquet)));
        return;
    }
    if let Some(first) = orphans.first().filter(|_| !books.are_others_unknown) {
        let names = orphans.iter().take(EXAMPLES).map(|place| place.to_string_lossy());
        let names: Vec<_> = names.collect();
        let detail = format!(
            "{} in the folder that no state of the table names, such as {}: they were not tested",
            counted(to_u64(orphans.len()), "Parquet file"),
            names.join(", ")
        );
        let name = first.to_string_lossy();
        let finding = Finding::of_file(&name, Severity::Notice, Kind::Structure, detail);
        books.steps.push(Step::Finding(finding));
    }
}

/// The Parquet files below a folder but for those in hidden ones, and those of the books. A folder that
/// cannot be listed is unread; the files in it that the table names are opened all the same.
fn list(
    folder: &StorePath,
    below: &Path,
    depth: usize,
    found: &mut BTreeSet<PathBuf>,
    books: &mut Books,
) {
    let listed = match folder.join(below).list() {
        Ok(listed) => listed,
        Err(error) => {
            let unread = Unread::of_file(below.to_string_lossy(), error.to_string());
            books.are_others_unknown = true;
            return books.steps.push(Step::Unread(unread));
        }
    };
    for Listed { name, seen } in listed {
        let place = below.join(&name);
        if name.starts_with(['_', '.']) {
            continue;
        }
        let is_parquet = place.extension().is_some_and(|it| it.eq_ignore_ascii_case("parquet"));
        match seen {
            Seen::Folder if depth < DEPTH_MAX => {
                list(folder, &place, depth.saturating_add(1), found, books);
            }
            Seen::File(_) if is_parquet => drop(found.insert(place)),
            _ => {}
        }
    }
}

/// A path below the folder of a table, without a way out of it.
fn inside(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    let is_plain = |part: std::path::Component<'_>| matches!(part, std::path::Component::Normal(_));
    (!text.is_empty() && path.components().all(is_plain)).then(|| path.to_owned())
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
