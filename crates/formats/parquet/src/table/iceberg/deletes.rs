//! Deleted rows of an Iceberg table: deletion vectors in Puffin files, and Parquet files of positions.
//!
//! A Puffin file has blobs, of which the manifests name each by its place; then this footer:
//!
//! | | |
//! |---|---|
//! | 4 bytes | `PFA1`, with which the file begins too |
//! | the payload | JSON: `blobs`, each with `type`, `offset`, `length` |
//! | 4 bytes, the lowest first | length of the payload |
//! | 4 bytes | bit 0: the payload is compressed |
//! | 4 bytes | `PFA1` |
//!
//! A file of positions has the columns `file_path` and `pos`. It deletes rows of files that were not
//! added after it, and none of a file that has a deletion vector.
//!
//! Source: the specifications of Apache Iceberg ("Row-level Deletes") and Puffin.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;

use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use serde_json::Value;

use super::place_of;
use crate::files::content::Obstacle;
use crate::files::decoder::{ValuesFile, guarded};
use crate::table::deleted::{BYTES_MAX, DeletedRows, Deletions, Stored, Vector, WORD_BYTES};
use crate::table::elsewhere::below;
use crate::table::{Books, Content, Named, to_u64};
use pagewarden_core::source::store::{StorePath, StoredFile};

const MARK: &[u8; 4] = b"PFA1";
/// Length of the payload, flags, mark.
const END_BYTES: usize = 12;
const IS_COMPRESSED: u8 = 1;
/// One of a million blobs has some hundred mebibytes.
const PAYLOAD_BYTES_MAX: u64 = 1 << 30;
/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;

/// The deletion vector that an entry of a manifest names, of a file at a place; `None` if it says none.
pub(super) fn vector(file: &Value, place: &Result<PathBuf, String>) -> Option<Vector> {
    let number = |name: &str| file.get(name).and_then(Value::as_u64);
    let text = |name: &str| file.get(name).and_then(Value::as_str);
    let bytes = usize::try_from(number("content_size_in_bytes")?).ok()?;
    let bytes = bytes.checked_sub(2 * WORD_BYTES).filter(|bytes| *bytes <= BYTES_MAX)?;
    Some(Vector {
        stored: match place {
            Ok(place) => Stored::File(place.clone()),
            Err(url) => Stored::Elsewhere(url.clone()),
        },
        offset: number("content_offset")?,
        bytes,
        deleted: number("record_count")?,
        of: text("referenced_data_file")?.to_owned(),
        rows: None,
    })
}

/// What is wrong with a Puffin file beside its vectors, for people.
///
/// # Errors
/// It cannot be read.
pub(in crate::table) fn look_at(
    file: &StoredFile,
    vectors: &[Vector],
) -> io::Result<Option<String>> {
    let length = file.length()?;
    let (mut begin, mut end) = ([0; 4], [0; END_BYTES]);
    let bytes = file.read_fully(&mut begin, 0)?;
    let Some(end_begin) = length.checked_sub(to_u64(END_BYTES)) else {
        return Ok(Some("it is too short for a Puffin file".to_owned()));
    };
    let end_bytes = file.read_fully(&mut end, end_begin)?;
    let [a, b, c, d, flags, _, _, _, mark @ ..] = end;
    if (bytes, end_bytes) != (4, END_BYTES) || &begin != MARK || &mark != MARK {
        return Ok(Some("it does not begin and end as a Puffin file".to_owned()));
    }
    let payload_bytes = u64::from(u32::from_le_bytes([a, b, c, d]));
    let payload_begin = end_begin.checked_sub(payload_bytes).filter(|begin| *begin >= 8);
    let Some(payload_begin) = payload_begin.filter(|_| payload_bytes <= PAYLOAD_BYTES_MAX) else {
        return Ok(Some("its footer has a length that it cannot have".to_owned()));
    };
    if flags & IS_COMPRESSED != 0 {
        return Ok(None);
    }
    let mut payload = vec![0; usize::try_from(payload_bytes).unwrap_or(0)];
    let count = file.read_fully(&mut payload, payload_begin)?;
    payload.truncate(count);
    let payload = serde_json::from_slice::<Value>(&payload).ok();
    let blobs = payload.as_ref().and_then(|payload| payload.get("blobs")?.as_array());
    let Some(blobs) = blobs else { return Ok(Some("its footer cannot be read".to_owned())) };
    let place = |blob: &Value| {
        let number = |name: &str| blob.get(name).and_then(Value::as_u64);
        Some((number("offset")?, number("length")?))
    };
    let places: HashSet<_> = blobs.iter().filter_map(place).collect();
    let has = |vector: &&Vector| {
        let whole = vector.bytes.saturating_add(2 * WORD_BYTES);
        places.contains(&(vector.offset, to_u64(whole)))
    };
    let lost = vectors.iter().find(|vector| !has(vector));
    Ok(lost.map(|vector| {
        format!("its footer has no blob where the table has the deletion vector of {}", vector.of)
    }))
}

/// Files by their places.
pub(super) fn index(books: &Books) -> HashMap<Result<PathBuf, String>, usize> {
    let files = books.files.iter().zip(0_usize..);
    let data = files.filter(|(file, _)| matches!(file.content, Content::Parquet));
    data.map(|(file, index)| (file.place.clone(), index)).collect()
}

/// Reads which rows the files of positions delete.
///
/// # Errors
/// One cannot be read, or is damaged.
pub(in crate::table) fn read(folder: &StorePath, books: &mut Books) -> Result<(), Obstacle> {
    let mut deleted = HashMap::<usize, DeletedRows>::new();
    let index = index(books);
    for named in books.files.iter().filter(|named| matches!(named.content, Content::Deletes)) {
        let (name, file) = opened(folder, named)?;
        // Most name one file again and again.
        let mut last: (Vec<u8>, Option<usize>) = (Vec::new(), None);
        let mut take = |path: &[u8], row: u64| {
            if last.0 != path {
                let of = place_of(&books.location, &String::from_utf8_lossy(path))
                    .or_else(|url| below(folder, &url).ok_or(url));
                let of = index.get(&of).copied();
                let applies = |of: &usize| {
                    let file = books.files.get(*of);
                    file.is_some_and(|it| it.sequence <= named.sequence && it.deleted.is_none())
                };
                last = (path.to_vec(), of.filter(applies));
            }
            if let Some(of) = last.1 {
                deleted.entry(of).or_default().insert(row);
            }
        };
        positions(&file, &mut take).map_err(|obstacle| obstacle.at(&name))?;
    }
    for (of, rows) in deleted {
        if let Some(file) = books.files.get_mut(of) {
            file.deleted = Some(Deletions::of_rows(rows));
        }
    }
    Ok(())
}

/// Opens a file that the books name, which must have as many rows as they say; with its name.
///
/// # Errors
/// It cannot be read, or is damaged, or is in another store than the table.
pub(super) fn opened(folder: &StorePath, named: &Named) -> Result<(String, ValuesFile), Obstacle> {
    let (name, place) = (named.name(), named.find(folder)?);
    let file = ValuesFile::open(&place).map_err(|obstacle| obstacle.at(&name))?;
    let rows = file.content.footer().rows;
    if named.rows.is_some_and(|expected| expected != rows) {
        let why = "it has another number of rows than the table says";
        return Err(Obstacle::Damaged(why.to_owned()).at(&name));
    }
    Ok((name, file))
}

/// Hands on each row of a file of positions: a path, and the number of a row.
fn positions(file: &ValuesFile, take: &mut dyn FnMut(&[u8], u64)) -> Result<(), Obstacle> {
    let footer = file.content.footer();
    let leaf = |name: &str| {
        let place = footer.leaves.iter().position(|leaf| *leaf.name == *name);
        place.ok_or_else(|| Obstacle::Damaged(format!("it has no column {name}")))
    };
    let (path, position) = (leaf("file_path")?, leaf("pos")?);
    for (group, number) in footer.groups.iter().zip(0_usize..) {
        let readers = (file.column(number, path)?, file.column(number, position)?);
        let (
            ColumnReader::ByteArrayColumnReader(mut paths),
            ColumnReader::Int64ColumnReader(mut rows),
        ) = readers
        else {
            return Err(Obstacle::Damaged("its columns have other types".to_owned()));
        };
        // Both are never NULL, but a writer may have called them so.
        let [of_path, of_row] =
            [path, position].map(|leaf| file.schema.column(leaf).max_def_level() > 0);
        let mut left = group.rows;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(BATCH_ROWS).min(BATCH_ROWS);
            let (mut names, mut numbers) = (Vec::<ByteArray>::new(), Vec::new());
            let (mut levels, mut other) = (Vec::new(), Vec::new());
            let read = guarded(|| {
                paths.read_records(count, of_path.then_some(&mut levels), None, &mut names)?;
                rows.read_records(count, of_row.then_some(&mut other), None, &mut numbers)
            });
            read.map_err(Obstacle::Damaged)?;
            if names.len() != count || numbers.len() != count {
                return Err(Obstacle::Damaged("it has fewer values than rows".to_owned()));
            }
            for (name, number) in names.iter().zip(&numbers) {
                let row = u64::try_from(*number);
                let row =
                    row.map_err(|_| Obstacle::Damaged("a row before the first".to_owned()))?;
                take(name.data(), row);
            }
            left = left.saturating_sub(to_u64(count));
        }
    }
    Ok(())
}
