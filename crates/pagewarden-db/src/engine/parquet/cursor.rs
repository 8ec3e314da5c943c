//! Where a reading of a table stands: rows of some columns, one after the other, a batch at a time.
//!
//! Pages are tested before they are decoded, and an error of the decoder is damage.

use std::path::PathBuf;

use pagewarden_format_parquet::files::content::{ContentFile, Obstacle};
use pagewarden_format_parquet::files::decoder::guarded;
use pagewarden_format_parquet::table::deleted::DeletedRows;
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, FixedLenByteArray, Int96};
use parquet::errors::ParquetError;

use super::constant::Constant;
use super::folder::{Folder, OpenFile, Values as Place};
use super::kind::append_old_moment;
use crate::row::Row;
use crate::row::column::{Kind, append_bytes, append_whole, two_complement};
use crate::table::Form;

/// Rows that are decoded at a time.
pub(super) const BATCH_ROWS: usize = 1024;

/// Why a table cannot be read further: the file, and what is wrong with it.
pub(super) type Trouble = (PathBuf, Obstacle);

/// Values of a batch without the nulls.
enum Values {
    Booleans(Vec<bool>),
    Short(Vec<i32>),
    Long(Vec<i64>),
    Old(Vec<Int96>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
    Fixed(Vec<FixedLenByteArray>),
}

impl Values {
    fn of(reader: &ColumnReader) -> Self {
        match reader {
            ColumnReader::BoolColumnReader(_) => Self::Booleans(Vec::new()),
            ColumnReader::Int32ColumnReader(_) => Self::Short(Vec::new()),
            ColumnReader::Int64ColumnReader(_) => Self::Long(Vec::new()),
            ColumnReader::Int96ColumnReader(_) => Self::Old(Vec::new()),
            ColumnReader::FloatColumnReader(_) => Self::Float(Vec::new()),
            ColumnReader::DoubleColumnReader(_) => Self::Double(Vec::new()),
            ColumnReader::ByteArrayColumnReader(_) => Self::Bytes(Vec::new()),
            ColumnReader::FixedLenByteArrayColumnReader(_) => Self::Fixed(Vec::new()),
        }
    }

    fn clear(&mut self) {
        match self {
            Self::Booleans(values) => values.clear(),
            Self::Short(values) => values.clear(),
            Self::Long(values) => values.clear(),
            Self::Old(values) => values.clear(),
            Self::Float(values) => values.clear(),
            Self::Double(values) => values.clear(),
            Self::Bytes(values) => values.clear(),
            Self::Fixed(values) => values.clear(),
        }
    }
}

/// A column of a row group.
struct Chunk {
    kind: Kind,
    reader: ColumnReader,
    values: Values,
    /// Whether each row of the batch has a value; empty if all have.
    levels: Vec<i16>,
    may_be_null: bool,
    /// The next row of the batch, and its value.
    next: usize,
    at: usize,
}

impl Chunk {
    fn fill(&mut self, count: usize) -> Result<(), String> {
        self.values.clear();
        self.levels.clear();
        (self.next, self.at) = (0, 0);
        let levels = self.may_be_null.then_some(&mut self.levels);
        let (reader, values) = (&mut self.reader, &mut self.values);
        let read = guarded(|| match (reader, values) {
            (ColumnReader::BoolColumnReader(reader), Values::Booleans(values)) => {
                reader.read_records(count, levels, None, values)
            }
            (ColumnReader::Int32ColumnReader(reader), Values::Short(values)) => {
                reader.read_records(count, levels, None, values)
            }
            (ColumnReader::Int64ColumnReader(reader), Values::Long(values)) => {
                reader.read_records(count, levels, None, values)
            }
            (ColumnReader::Int96ColumnReader(reader), Values::Old(values)) => {
                reader.read_records(count, levels, None, values)
            }
            (ColumnReader::FloatColumnReader(reader), Values::Float(values)) => {
                reader.read_records(count, levels, None, values)
            }
            (ColumnReader::DoubleColumnReader(reader), Values::Double(values)) => {
                reader.read_records(count, levels, None, values)
            }
            (ColumnReader::ByteArrayColumnReader(reader), Values::Bytes(values)) => {
                reader.read_records(count, levels, None, values)
            }
            (ColumnReader::FixedLenByteArrayColumnReader(reader), Values::Fixed(values)) => {
                reader.read_records(count, levels, None, values)
            }
            _ => Err(ParquetError::General("values of another type".to_owned())),
        })?;
        match read.0 == count && (self.levels.is_empty() || self.levels.len() == count) {
            true => Ok(()),
            false => Err(format!("{} rows where there should be {count}", read.0)),
        }
    }

    fn skip(&mut self, count: usize) -> Result<(), String> {
        let reader = &mut self.reader;
        let skipped = guarded(|| match reader {
            ColumnReader::BoolColumnReader(reader) => reader.skip_records(count),
            ColumnReader::Int32ColumnReader(reader) => reader.skip_records(count),
            ColumnReader::Int64ColumnReader(reader) => reader.skip_records(count),
            ColumnReader::Int96ColumnReader(reader) => reader.skip_records(count),
            ColumnReader::FloatColumnReader(reader) => reader.skip_records(count),
            ColumnReader::DoubleColumnReader(reader) => reader.skip_records(count),
            ColumnReader::ByteArrayColumnReader(reader) => reader.skip_records(count),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => reader.skip_records(count),
        })?;
        match skipped == count {
            true => Ok(()),
            false => Err(format!("{skipped} rows where there should be {count}")),
        }
    }

    /// Goes past a row of the batch: the number of its value, or none if it is NULL.
    fn pass(&mut self, row: usize) -> Option<usize> {
        if row < self.next {
            (self.next, self.at) = (0, 0);
        }
        let between = row - self.next;
        let levels = self.levels.get(self.next..row).unwrap_or_default();
        self.at += between - levels.iter().filter(|level| **level == 0).count();
        self.next = row + 1;
        if self.levels.get(row).is_some_and(|level| *level == 0) {
            return None;
        }
        self.at += 1;
        Some(self.at - 1)
    }

    /// Appends the value of a row; false if its bytes do not mean what they should.
    fn append(&mut self, row: usize, form: &Form, out: &mut Row) -> bool {
        let Some(at) = self.pass(row) else {
            out.null();
            return true;
        };
        let kind = self.kind;
        let done = match &self.values {
            Values::Booleans(values) => values.get(at).map(|value| out.unsigned(u64::from(*value))),
            Values::Short(values) => {
                values.get(at).map(|value| append_whole(out, kind, widened(kind, *value)))
            }
            Values::Long(values) => values.get(at).map(|value| append_whole(out, kind, *value)),
            Values::Old(values) => values.get(at).map(|value| append_old_moment(out, value)),
            Values::Float(values) => values.get(at).map(|value| out.float(f64::from(*value))),
            Values::Double(values) => values.get(at).map(|value| out.float(*value)),
            Values::Bytes(values) => {
                let value = values.get(at).map(ByteArray::data);
                value.filter(|value| append_bytes(out, kind, form, value)).map(|_| ())
            }
            Values::Fixed(values) => {
                let value = values.get(at).map(|value| value.data());
                value.filter(|value| append_bytes(out, kind, form, value)).map(|_| ())
            }
        };
        done.is_some()
    }

    /// The value of a row as a whole number of its unit.
    fn whole(&mut self, row: usize) -> Option<i128> {
        let at = self.pass(row)?;
        match &self.values {
            Values::Short(values) => values.get(at).map(|it| widened(self.kind, *it).into()),
            Values::Long(values) if self.kind == Kind::Unsigned => {
                values.get(at).map(|value| i128::from(value.cast_unsigned()))
            }
            Values::Long(values) => values.get(at).map(|value| i128::from(*value)),
            Values::Bytes(values) => two_complement(values.get(at)?.data()),
            Values::Fixed(values) => two_complement(values.get(at)?.data()),
            _ => None,
        }
    }
}

/// A number of 32 bits, which may be without a sign.
fn widened(kind: Kind, value: i32) -> i64 {
    match kind {
        Kind::Unsigned => i64::from(value.cast_unsigned()),
        _ => i64::from(value),
    }
}

/// A column of a row group, or what takes its place.
enum Cells {
    Chunk(Box<Chunk>),
    Null,
    Constant(Constant),
}

/// A row group that is being read.
struct Group {
    columns: Vec<Cells>,
    /// Rows that were not decoded yet, with those that are deleted.
    left: u64,
}

impl Group {
    fn chunks(&mut self) -> impl Iterator<Item = &mut Chunk> {
        self.columns.iter_mut().filter_map(|cells| match cells {
            Cells::Chunk(chunk) => Some(&mut **chunk),
            Cells::Null | Cells::Constant(_) => None,
        })
    }
}

/// Where a reading stands. Rows that are deleted have no number.
pub(super) struct Cursor {
    /// Which columns, by their places in the table.
    pub columns: Vec<usize>,
    file: usize,
    open: Option<OpenFile>,
    next_group: usize,
    group: Option<Group>,
    /// How many rows of the file were gone past, with those that are deleted.
    passed: u64,
    /// The number of the batch's first row in the table, and its rows.
    batch: (u64, usize),
    /// Where they are among what was decoded; empty if no row of it is deleted.
    rows: Vec<usize>,
    /// The next row in the batch.
    at: usize,
}

impl Cursor {
    /// Before the first row.
    pub fn new(columns: Vec<usize>) -> Self {
        Self {
            columns,
            file: 0,
            open: None,
            next_group: 0,
            group: None,
            passed: 0,
            batch: (0, 0),
            rows: Vec::new(),
            at: 0,
        }
    }

    /// The number of the next row.
    pub fn row(&self) -> u64 {
        self.batch.0 + self.at as u64
    }

    /// True if it can go to a row without beginning anew.
    pub fn may_go_to(&self, row: u64) -> bool {
        row >= self.batch.0
    }

    /// Goes to a row that it [may go to](Self::may_go_to).
    pub fn go_to(&mut self, folder: &Folder, row: u64) -> Result<(), Trouble> {
        loop {
            let (first, count) = self.batch;
            let distance = row.saturating_sub(first);
            if distance < count as u64 {
                self.at = usize::try_from(distance).unwrap_or(0);
                return Ok(());
            }
            let end = first + count as u64;
            // A batch begins a little before the row: a search for a key comes back there.
            let begin = row - row % BATCH_ROWS as u64;
            if begin > end {
                self.batch = (end, 0);
                self.at = 0;
                self.pass(folder, begin - end)?;
            } else if row == end {
                self.at = count;
                return Ok(());
            } else {
                self.at = count;
                if !self.fill(folder)? {
                    return Ok(());
                }
            }
        }
    }

    /// Goes past rows that were not decoded: of this row group, or of the files that follow.
    fn pass(&mut self, folder: &Folder, rows: u64) -> Result<(), Trouble> {
        if let Some(left) = self.group.as_ref().map(|group| group.left) {
            let of_left = self.not_deleted(left);
            if of_left <= rows {
                self.group = None;
                self.passed += left;
                self.batch.0 += of_left;
                return Ok(());
            }
            // Of these, some may be deleted: then there are more to go past.
            let count = rows.min(left);
            self.batch.0 += self.not_deleted(count);
            self.passed += count;
            let Some(group) = &mut self.group else { return Ok(()) };
            group.left -= count;
            let number = usize::try_from(count).unwrap_or(usize::MAX);
            let skipped = group.chunks().try_for_each(|chunk| chunk.skip(number));
            return skipped.map_err(|why| damaged(folder, self.file, why));
        }
        let Some(file) = folder.files.get(self.file) else {
            // Behind the last row: there is nothing to go to.
            self.batch.0 += rows;
            return Ok(());
        };
        if self.open.is_none() && rows >= file.rows {
            self.file += 1;
            self.batch.0 += file.rows;
            return Ok(());
        }
        // Whole row groups are passed by their number of rows.
        self.open(folder)?;
        let footer = self.open.as_ref().map(|open| open.file.content.footer());
        let group = footer.and_then(|footer| footer.groups.get(self.next_group));
        let count = group.map(|group| group.rows);
        match count {
            Some(count) if self.not_deleted(count) <= rows => {
                self.next_group += 1;
                self.batch.0 += self.not_deleted(count);
                self.passed += count;
            }
            Some(_) => self.group = self.next_group(folder)?,
            None => self.end_file(),
        }
        Ok(())
    }

    /// How many of the next rows of the file are not deleted.
    fn not_deleted(&self, rows: u64) -> u64 {
        let deleted = self
            .deleted()
            .map_or(0, |deleted| deleted.count(self.passed..self.passed.saturating_add(rows)));
        rows - deleted
    }

    fn deleted(&self) -> Option<&DeletedRows> {
        self.open.as_ref()?.deleted.as_deref()
    }

    /// Opens the file in which the next row is, unless it is open.
    fn open(&mut self, folder: &Folder) -> Result<(), Trouble> {
        if self.open.is_none()
            && let Some(file) = folder.files.get(self.file)
        {
            (self.next_group, self.passed) = (0, 0);
            let open = file.open().map_err(|obstacle| (file.place.path().to_owned(), obstacle))?;
            self.open = Some(open);
        }
        Ok(())
    }

    fn end_file(&mut self) {
        self.open = None;
        self.file += 1;
    }

    /// Makes a batch that has a row; false behind the last row.
    fn fill(&mut self, folder: &Folder) -> Result<bool, Trouble> {
        loop {
            if let Some(group) = &mut self.group
                && group.left > 0
            {
                let count = group.left.min(BATCH_ROWS as u64);
                let number = usize::try_from(count).unwrap_or(BATCH_ROWS);
                let filled = group.chunks().try_for_each(|chunk| chunk.fill(number));
                filled.map_err(|why| damaged(folder, self.file, why))?;
                group.left -= count;
                let rows = self.find_rows(number);
                self.passed += count;
                self.batch = (self.batch.0 + self.batch.1 as u64, rows);
                self.at = 0;
                if rows == 0 {
                    continue;
                }
                return Ok(true);
            }
            // The batch goes with the group that it is of: there is no way back to it.
            self.batch = (self.batch.0 + self.batch.1 as u64, 0);
            self.at = 0;
            self.group = None;
            if self.file >= folder.files.len() {
                return Ok(false);
            }
            self.open(folder)?;
            let content = self.open.as_ref().map(|open| &open.file.content);
            let count = content.map_or(0, |content| content.footer().groups.len());
            if self.next_group >= count {
                if !content.is_some_and(ContentFile::is_as_opened) {
                    let why = "it was written to while it was compared".to_owned();
                    return Err(refused(folder, self.file, Obstacle::Unsupported(why)));
                }
                self.end_file();
                continue;
            }
            self.group = self.next_group(folder)?;
        }
    }

    /// Finds the rows that are not deleted among those that were decoded: how many there are.
    fn find_rows(&mut self, count: usize) -> usize {
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        let first = self.passed;
        let deleted = self.deleted().filter(|it| it.count(first..first + count as u64) > 0);
        if let Some(deleted) = deleted {
            rows.extend((0..count).filter(|row| !deleted.contains(first + *row as u64)));
        }
        let found = if deleted.is_some() { rows.len() } else { count };
        self.rows = rows;
        found
    }

    fn next_group(&mut self, folder: &Folder) -> Result<Option<Group>, Trouble> {
        let number = self.next_group;
        self.next_group += 1;
        let values = folder.files.get(self.file).map(|file| &file.values);
        let file = self.open.as_ref().map(|open| &open.file);
        let Some((file, values)) = file.zip(values) else { return Ok(None) };
        let groups = &file.content.footer().groups;
        let left = groups.get(number).map_or(0, |group| group.rows);
        let mut columns = Vec::new();
        for column in &self.columns {
            let place = match values.get(*column) {
                Some(Place::Column(place)) => place,
                Some(Place::Constant(value)) => {
                    columns.push(Cells::Constant(value.clone()));
                    continue;
                }
                Some(Place::Null) | None => {
                    columns.push(Cells::Null);
                    continue;
                }
            };
            let fail = |obstacle| refused(folder, self.file, obstacle);
            let may_be_null = file.schema.column(place.leaf).max_def_level() > 0;
            let reader = file.column(number, place.leaf).map_err(fail)?;
            columns.push(Cells::Chunk(Box::new(Chunk {
                kind: place.kind,
                values: Values::of(&reader),
                reader,
                levels: Vec::new(),
                may_be_null,
                next: 0,
                at: 0,
            })));
        }
        Ok(Some(Group { columns, left }))
    }

    /// Goes past the next row: where it is among what was decoded.
    fn step(&mut self) -> usize {
        let at = self.at;
        self.at += 1;
        self.rows.get(at).copied().unwrap_or(at)
    }

    /// True if there is a next row.
    pub fn has_next(&mut self, folder: &Folder) -> Result<bool, Trouble> {
        Ok(self.at < self.batch.1 || self.fill(folder)?)
    }

    /// Writes the next row, which [there is](Self::has_next), and goes past it.
    pub fn take(
        &mut self,
        folder: &Folder,
        columns: &[(usize, Form)],
        out: &mut Row,
    ) -> Result<(), Trouble> {
        out.clear();
        let row = self.step();
        let cells = self.group.iter_mut().flat_map(|group| &mut group.columns);
        for (cells, (_, form)) in cells.zip(columns) {
            let is_done = match cells {
                Cells::Chunk(chunk) => chunk.append(row, form, out),
                Cells::Constant(value) => value.append(form, out),
                Cells::Null => {
                    out.null();
                    true
                }
            };
            if !is_done {
                let why = "a value has a length that its type does not have".to_owned();
                return Err(damaged(folder, self.file, why));
            }
        }
        Ok(())
    }

    /// The next row's values as whole numbers of their units, and goes past it; none if one is NULL.
    pub fn take_whole(&mut self, key: &mut Vec<i128>) -> Option<()> {
        key.clear();
        let row = self.step();
        for cells in self.group.iter_mut().flat_map(|group| &mut group.columns) {
            let Cells::Chunk(chunk) = cells else { return None };
            key.push(chunk.whole(row)?);
        }
        Some(())
    }
}

fn refused(folder: &Folder, file: usize, obstacle: Obstacle) -> Trouble {
    let path = folder.files.get(file).map(|file| file.place.path().to_owned());
    (path.unwrap_or_default(), obstacle)
}

fn damaged(folder: &Folder, file: usize, why: String) -> Trouble {
    refused(folder, file, Obstacle::Damaged(why))
}
