//! Rows of an Iceberg table that are deleted by their values: a file of deleted values has some columns of
//! the table, and deletes each row that has the same values in all of them. NULL is the same as NULL.
//!
//! | a file of deleted values | deletes rows of |
//! |---|---|
//! | of a partition | files of the same partition that were added before it |
//! | of no partition | all files that were added before it |
//!
//! Columns meet by their numbers; one that a file lacks is NULL in all of its rows. The key of each deleted
//! row is kept in memory.
//!
//! Source: "Equality Delete Files" and "Scan Planning" in the specification of Apache Iceberg; tried on
//! files of the Spark runtime 1.10.0.

use std::collections::{BTreeMap, HashMap};

use parquet::basic::{ConvertedType, LogicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{AsBytes, DataType};
use parquet::schema::types::ColumnDescriptor;
use serde_json::Value;

use super::deletes::opened;
use crate::files::content::Obstacle;
use crate::files::decoder::{ValuesFile, guarded};
use crate::table::deleted::{DeletedRows, Deletions};
use crate::table::{Books, Content, Named, TableColumn, to_u64};
use pagewarden_core::source::store::StorePath;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;

/// What files of deleted values have in common whose keys are looked up together: the numbers of their
/// columns, and the partition.
type Kind = (Vec<i64>, Option<String>);

/// Keys of deleted rows.
#[derive(Default)]
struct Keys {
    /// When the last file with each was added.
    of: HashMap<Vec<u8>, i64>,
    /// When the last file of all was.
    last: i64,
}

/// Reads which rows the files of deleted values delete, after all other deletions.
///
/// # Errors
/// A file cannot be read, or is damaged, or has columns that cannot be compared.
pub(in crate::table) fn read(folder: &StorePath, books: &mut Books) -> Result<(), Obstacle> {
    let mut deleted = BTreeMap::<Kind, Keys>::new();
    for named in &books.files {
        let Content::DeletedValues(columns) = &named.content else { continue };
        let (name, file) = opened(folder, named)?;
        let keys = deleted.entry((columns.clone(), named.partition.clone())).or_default();
        keys.last = named.sequence.max(keys.last);
        let mut take = |_, key: &[u8]| {
            let last = keys.of.entry(key.to_vec()).or_insert(named.sequence);
            *last = named.sequence.max(*last);
        };
        let lacks = |id| Err(Obstacle::Damaged(format!("it has no column with the number {id}")));
        keys_of(&file, columns, &lacks, &mut take).map_err(|it| it.at(&name))?;
    }
    if deleted.is_empty() {
        return Ok(());
    }
    let is_in_books = |it: &&TableColumn| it.may_be_in_books || it.kind.is_some();
    let in_books: Vec<i64> =
        books.columns.iter().filter(is_in_books).filter_map(|it| it.id).collect();
    for named in books.files.iter_mut().filter(|it| matches!(it.content, Content::Parquet)) {
        let applies = |((_, partition), keys): &(&Kind, &Keys)| {
            let is_here = partition.is_none() || *partition == named.partition;
            is_here && keys.last > named.sequence
        };
        let kinds: Vec<_> = deleted.iter().filter(applies).collect();
        if !kinds.is_empty() {
            delete(folder, named, &kinds, &in_books)?;
        }
    }
    Ok(())
}

/// The numbers of the columns that a file of deleted values has, as its manifest says.
pub(super) fn columns(file: &Value, books: &mut Books) -> Vec<i64> {
    let numbers = file.get("equality_ids").and_then(Value::as_array);
    let numbers: Vec<_> = numbers.into_iter().flatten().filter_map(Value::as_i64).collect();
    if numbers.is_empty() {
        let why = "rows of it are deleted by values of columns that its manifest does not name";
        books.beyond_files.push(why.to_owned());
    }
    numbers
}

/// Deletes rows of a file.
fn delete(
    folder: &StorePath,
    named: &mut Named,
    kinds: &[(&Kind, &Keys)],
    in_books: &[i64],
) -> Result<(), Obstacle> {
    let (name, file) = opened(folder, named)?;
    let mut rows = match &named.deleted {
        Some(deletions) => {
            let read = deletions.read(file.content.footer().rows);
            read.map_err(|it| it.at(&name))?.as_ref().clone()
        }
        None => DeletedRows::default(),
    };
    let has_numbers = file.schema.columns().iter().any(|it| id_of(it).is_some());
    let lacks = |id| match has_numbers && !in_books.contains(&id) {
        true => Ok(()),
        false => Err(Obstacle::Unsupported(format!(
            "rows of it are deleted by their values in the column with the number {id}, which it does \
             not have"
        ))),
    };
    for ((columns, _), keys) in kinds {
        let mut take = |row: u64, key: &[u8]| {
            if keys.of.get(key).is_some_and(|last| *last > named.sequence) {
                rows.insert(row);
            }
        };
        keys_of(&file, columns, &lacks, &mut take).map_err(|it| it.at(&name))?;
    }
    named.deleted = Some(Deletions::of_rows(rows));
    Ok(())
}

fn id_of(column: &ColumnDescriptor) -> Option<i64> {
    let info = column.self_type().get_basic_info();
    info.has_id().then(|| i64::from(info.id()))
}

/// The column with a number, which is not repeated.
fn leaf(file: &ValuesFile, id: i64) -> Option<usize> {
    let is_it = |column: &parquet::schema::types::ColumnDescPtr| {
        id_of(column) == Some(id) && column.max_rep_level() == 0
    };
    file.schema.columns().iter().position(is_it)
}

/// Hands on each row of a file: its number, and the values that it has in some columns, as bytes that are
/// equal if they are. A column that is not there is NULL, unless `lacks` says why it cannot be.
fn keys_of(
    file: &ValuesFile,
    columns: &[i64],
    lacks: &dyn Fn(i64) -> Result<(), Obstacle>,
    take: &mut dyn FnMut(u64, &[u8]),
) -> Result<(), Obstacle> {
    let found = columns.iter().map(|id| match leaf(file, *id) {
        Some(leaf) => Ok(Some(leaf)),
        None => lacks(*id).map(|()| None),
    });
    let leaves = found.collect::<Result<Vec<_>, _>>()?;
    let mut row: u64 = 0;
    for (group, number) in file.content.footer().groups.iter().zip(0_usize..) {
        let columns = leaves.iter().map(|leaf| {
            leaf.map(|leaf| Ok((file.schema.column(leaf), file.column(number, leaf)?))).transpose()
        });
        let mut columns = columns.collect::<Result<Vec<_>, Obstacle>>()?;
        let mut left = group.rows;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(BATCH_ROWS).min(BATCH_ROWS);
            let mut keys = vec![Vec::new(); count];
            for column in &mut columns {
                match column {
                    Some((descriptor, reader)) => append(descriptor, reader, &mut keys)?,
                    None => keys.iter_mut().for_each(|key| key.push(NULL)),
                }
            }
            for key in &keys {
                take(row, key);
                row = row.saturating_add(1);
            }
            left = left.saturating_sub(to_u64(count));
        }
    }
    Ok(())
}

/// What a value begins with in a key.
const NULL: u8 = 0;
const WHOLE: u8 = 1;
const FLOAT: u8 = 2;
const BYTES: u8 = 3;
const DECIMAL: u8 = 4;

/// Appends the next value of a column to each of the keys.
fn append(
    column: &ColumnDescriptor,
    reader: &mut ColumnReader,
    keys: &mut [Vec<u8>],
) -> Result<(), Obstacle> {
    let is_decimal = matches!(column.logical_type_ref(), Some(LogicalType::Decimal { .. }))
        || column.converted_type() == ConvertedType::DECIMAL;
    let whole = |key: &mut Vec<u8>, value: i64| match is_decimal {
        true => decimal(key, &value.to_be_bytes()),
        false => {
            key.push(WHOLE);
            key.extend(value.to_le_bytes());
        }
    };
    let bytes = |key: &mut Vec<u8>, value: &[u8]| match is_decimal {
        true => decimal(key, value),
        false => counted(key, BYTES, value),
    };
    let level = column.max_def_level();
    match reader {
        ColumnReader::BoolColumnReader(it) => {
            next(it, level, keys, |key, value| whole(key, i64::from(*value)))
        }
        ColumnReader::Int32ColumnReader(it) => {
            next(it, level, keys, |key, value| whole(key, i64::from(*value)))
        }
        ColumnReader::Int64ColumnReader(it) => {
            next(it, level, keys, |key, value| whole(key, *value))
        }
        ColumnReader::FloatColumnReader(it) => {
            next(it, level, keys, |key, value| float(key, f64::from(*value)))
        }
        ColumnReader::DoubleColumnReader(it) => {
            next(it, level, keys, |key, value| float(key, *value))
        }
        ColumnReader::ByteArrayColumnReader(it) => {
            next(it, level, keys, |key, value| bytes(key, value.as_bytes()))
        }
        ColumnReader::FixedLenByteArrayColumnReader(it) => {
            next(it, level, keys, |key, value| bytes(key, value.as_bytes()))
        }
        ColumnReader::Int96ColumnReader(_) => Err(Obstacle::Unsupported(
            "rows are deleted by moments of 96 bits, which are not compared here".to_owned(),
        )),
    }
}

/// Reads the next value for each of the keys.
fn next<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    level: i16,
    keys: &mut [Vec<u8>],
    push: impl Fn(&mut Vec<u8>, &T::T),
) -> Result<(), Obstacle> {
    let (mut values, mut levels) = (Vec::with_capacity(keys.len()), Vec::new());
    let read = guarded(|| {
        let (mut records, mut done) = (0, true);
        while records < keys.len() && done {
            let wanted = keys.len().saturating_sub(records);
            let (count, _, _) = reader.read_records(
                wanted,
                (level > 0).then_some(&mut levels),
                None,
                &mut values,
            )?;
            records = records.saturating_add(count);
            done = count > 0;
        }
        Ok(records)
    });
    let records = read.map_err(Obstacle::Damaged)?;
    let is_there = |row: usize| level == 0 || levels.get(row) == Some(&level);
    let mut values = values.iter();
    for (row, key) in keys.iter_mut().enumerate() {
        match (is_there(row), row < records) {
            (true, true) => match values.next() {
                Some(value) => push(key, value),
                None => return Err(Obstacle::Damaged("it has fewer values than rows".to_owned())),
            },
            (false, true) => key.push(NULL),
            (_, false) => {
                return Err(Obstacle::Damaged("it has fewer values than rows".to_owned()));
            }
        }
    }
    Ok(())
}

/// The bytes with their number before them.
fn counted(key: &mut Vec<u8>, mark: u8, value: &[u8]) {
    key.push(mark);
    key.extend(to_u64(value.len()).to_le_bytes());
    key.extend(value);
}

/// A number in as few bytes as hold it: the same number may be stored in more.
fn decimal(key: &mut Vec<u8>, value: &[u8]) {
    let mut least = value;
    while let [first @ (0 | 0xff), rest @ ..] = least
        && rest.first().is_some_and(|next| next >> 7 == first >> 7)
    {
        least = rest;
    }
    counted(key, DECIMAL, least);
}

/// A number that is the same whether it was stored in four bytes or in eight.
fn float(key: &mut Vec<u8>, value: f64) {
    key.push(FLOAT);
    let value = if value.is_nan() { f64::NAN } else { value };
    key.extend(value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_equal_in_any_number_of_bytes() {
        let key = |value: &[u8]| {
            let mut key = Vec::new();
            decimal(&mut key, value);
            key
        };
        for number in [0_i64, 1, -1, 127, 128, -128, -129, 255, 256, 1_000_000_007, i64::MIN] {
            let long = i128::from(number).to_be_bytes();
            assert_eq!(key(&number.to_be_bytes()), key(&long), "{number}");
            if let Ok(short) = i32::try_from(number) {
                assert_eq!(key(&short.to_be_bytes()), key(&long), "{number}");
            }
        }
        assert_ne!(key(&128_i64.to_be_bytes()), key(&(-128_i64).to_be_bytes()));
        assert_ne!(key(&[0xff]), key(&[0, 0xff]));
    }
}
