//! Where a reading of a table stands: rows of some columns, one after the other, a batch at a time.
//!
//! Pages are tested before they are decoded, and an error of the decoder is damage.

use std::path::PathBuf;

use pagewarden_format_parquet::files::content::Obstacle;
use pagewarden_format_parquet::files::decoder::{ValuesFile, guarded};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, FixedLenByteArray, Int96};
use parquet::errors::ParquetError;

use super::folder::Folder;
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
    /// The next value.
    at: usize,
}

impl Chunk {
    fn fill(&mut self, count: usize) -> Result<(), String> {
        self.values.clear();
        self.levels.clear();
        self.at = 0;
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

    /// Moves to a row of the batch.
    fn seek(&mut self, row: usize) {
        let before = self.levels.get(..row).unwrap_or_default();
        let nulls = before.iter().filter(|level| **level == 0).count();
        self.at = row - nulls;
    }

    fn is_null(&self, row: usize) -> bool {
        self.levels.get(row).is_some_and(|level| *level == 0)
    }

    /// Appends the value of a row, which is the next; false if its bytes do not mean what they should.
    fn append(&mut self, row: usize, form: &Form, out: &mut Row) -> bool {
        if self.is_null(row) {
            out.null();
            return true;
        }
        let at = self.at;
        self.at += 1;
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
        if self.is_null(row) {
            return None;
        }
        let at = self.at;
        self.at += 1;
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

/// A row group that is being read.
struct Group {
    chunks: Vec<Option<Chunk>>,
    /// Rows that were not decoded yet.
    left: u64,
}

/// Where a reading stands.
pub(super) struct Cursor {
    /// Which columns, by their places in the table.
    pub columns: Vec<usize>,
    file: usize,
    open: Option<ValuesFile>,
    next_group: usize,
    group: Option<Group>,
    /// The number of the batch's first row in the table, and its rows.
    batch: (u64, usize),
    /// The next row in the batch.
    at: usize,
}

impl Cursor {
    /// Before the first row.
    pub fn new(columns: Vec<usize>) -> Self {
        Self { columns, file: 0, open: None, next_group: 0, group: None, batch: (0, 0), at: 0 }
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
                let at = usize::try_from(distance).unwrap_or(0);
                if at != self.at {
                    self.at = at;
                    let chunks = self.group.iter_mut().flat_map(|group| &mut group.chunks);
                    chunks.flatten().for_each(|chunk| chunk.seek(at));
                }
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
        if let Some(group) = &mut self.group {
            let count = rows.min(group.left);
            if count == group.left {
                self.group = None;
            } else {
                group.left -= count;
                let number = usize::try_from(count).unwrap_or(usize::MAX);
                let mut chunks = group.chunks.iter_mut().flatten();
                let skipped = chunks.try_for_each(|chunk| chunk.skip(number));
                skipped.map_err(|why| damaged(folder, self.file, why))?;
            }
            self.batch.0 += count;
            return Ok(());
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
        let footer = self.open.as_ref().map(|open| open.content.footer());
        let group = footer.and_then(|footer| footer.groups.get(self.next_group));
        let count = group.map(|group| group.rows);
        match count {
            Some(count) if count <= rows => {
                self.next_group += 1;
                self.batch.0 += count;
            }
            Some(_) => self.group = self.next_group(folder)?,
            None => self.end_file(),
        }
        Ok(())
    }

    /// Opens the file in which the next row is, unless it is open.
    fn open(&mut self, folder: &Folder) -> Result<(), Trouble> {
        if self.open.is_none()
            && let Some(file) = folder.files.get(self.file)
        {
            self.next_group = 0;
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
                let mut chunks = group.chunks.iter_mut().flatten();
                let filled = chunks.try_for_each(|chunk| chunk.fill(number));
                filled.map_err(|why| damaged(folder, self.file, why))?;
                group.left -= count;
                self.batch = (self.batch.0 + self.batch.1 as u64, number);
                self.at = 0;
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
            let count = self.open.as_ref().map_or(0, |open| open.content.footer().groups.len());
            if self.next_group >= count {
                if !self.open.as_ref().is_some_and(|open| open.content.is_as_opened()) {
                    let why = "it was written to while it was compared".to_owned();
                    return Err(refused(folder, self.file, Obstacle::Unsupported(why)));
                }
                self.end_file();
                continue;
            }
            self.group = self.next_group(folder)?;
        }
    }

    fn next_group(&mut self, folder: &Folder) -> Result<Option<Group>, Trouble> {
        let number = self.next_group;
        self.next_group += 1;
        let places = folder.files.get(self.file).map(|file| &file.places);
        let Some((open, places)) = self.open.as_ref().zip(places) else { return Ok(None) };
        let groups = &open.content.footer().groups;
        let left = groups.get(number).map_or(0, |group| group.rows);
        let mut chunks = Vec::new();
        for column in &self.columns {
            let place = places.get(*column).copied().flatten();
            let Some(place) = place else {
                chunks.push(None);
                continue;
            };
            let fail = |obstacle| refused(folder, self.file, obstacle);
            let may_be_null = open.schema.column(place.leaf).max_def_level() > 0;
            let reader = open.column(number, place.leaf).map_err(fail)?;
            chunks.push(Some(Chunk {
                kind: place.kind,
                values: Values::of(&reader),
                reader,
                levels: Vec::new(),
                may_be_null,
                at: 0,
            }));
        }
        Ok(Some(Group { chunks, left }))
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
        let row = self.at;
        self.at += 1;
        let chunks = self.group.iter_mut().flat_map(|group| &mut group.chunks);
        for (chunk, (_, form)) in chunks.zip(columns) {
            let Some(chunk) = chunk else {
                out.null();
                continue;
            };
            if !chunk.append(row, form, out) {
                let why = "a value has a length that its type does not have".to_owned();
                return Err(damaged(folder, self.file, why));
            }
        }
        Ok(())
    }

    /// The next row's values as whole numbers of their units, and goes past it; none if one is NULL.
    pub fn take_whole(&mut self, key: &mut Vec<i128>) -> Option<()> {
        key.clear();
        let row = self.at;
        self.at += 1;
        for chunk in self.group.iter_mut().flat_map(|group| &mut group.chunks) {
            key.push(chunk.as_mut()?.whole(row)?);
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn rows_are_gone_back_to_from_within_a_batch_and_not_from_behind_the_last_one() {
        let golden = "../../fixtures/parquet/pyarrow-26.0.1/plain.parquet";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(golden);
        let folder = Folder::open(&path.as_path().into()).unwrap();
        let mut cursor = Cursor::new(vec![0]);
        let (mut keys, mut key) = (Vec::new(), Vec::new());
        while cursor.has_next(&folder).unwrap() {
            cursor.take_whole(&mut key).unwrap();
            keys.push(key.clone());
        }
        let rows = folder.rows();
        assert_eq!((keys.len() as u64, cursor.row()), (rows, rows));
        assert!(keys.len() > BATCH_ROWS && keys.iter().is_sorted());
        for begin in [0, rows - 9] {
            assert!(!cursor.may_go_to(begin), "{begin}");
            let mut other = Cursor::new(vec![0]);
            for row in [rows - 1, begin.max(rows - rows % BATCH_ROWS as u64)] {
                other.go_to(&folder, row).unwrap();
                assert!(other.has_next(&folder).unwrap());
                other.take_whole(&mut key).unwrap();
                assert_eq!(Some(&key), keys.get(usize::try_from(row).unwrap()), "{row}");
            }
        }
    }
}
