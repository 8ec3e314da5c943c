//! The footer of a Parquet file: which columns there are, and where their chunks are.
//!
//! | at the end of the file | bytes | |
//! |---|---|---|
//! | the footer | | a structure of Thrift, `FileMetaData`, without a sum |
//! | its length | 4 | the lowest byte first; behind a signed footer, that counts its 28 bytes too |
//! | `PAR1` | 4 | `PARE` if the footer is encrypted |
//!
//! Sources: `parquet.thrift` and `Encryption.md` of Apache Parquet; tried on files of the writers that
//! `docs/parquet.md` names.

#![deny(clippy::arithmetic_side_effects)]

use std::sync::Arc;

use crate::thrift::{Read, Reader, ThriftError, Wire};

/// A signature behind a footer that is signed and not encrypted: 12 bytes of nonce and 16 of tag.
const SIGNATURE_BYTES: usize = 28;
/// The physical type whose values all have the length that the schema says.
const FIXED_LENGTH: i32 = 7;
/// Columns inside each other.
const DEPTH_MAX: usize = 256;

/// What a footer says.
#[derive(Debug, Clone, Default)]
pub struct Footer {
    /// Rows in the file.
    pub rows: u64,
    /// The program that wrote the file, as it calls itself; empty if it does not.
    pub writer: String,
    /// The columns that hold values, in order.
    pub leaves: Vec<Leaf>,
    /// The row groups, in order.
    pub groups: Vec<RowGroup>,
    /// Columns may be encrypted.
    pub has_encryption: bool,
    /// The schema that Arrow's writers put beside that of Parquet can be none.
    pub arrow_schema_is_wrong: bool,
}

/// A column that holds values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Its name, with those it is in: `a.list.element`.
    pub name: Arc<str>,
    /// The number of its physical type.
    pub kind: i32,
    /// The greatest repetition level, above 0 if a row may have none or several values; and the greatest
    /// definition level.
    pub levels: [u64; 2],
    /// Bytes of each value, if all have as many.
    pub width: Option<u64>,
}

/// A row group.
#[derive(Debug, Clone, Default)]
pub struct RowGroup {
    /// Its rows.
    pub rows: u64,
    /// A chunk for each leaf.
    pub chunks: Vec<ChunkEntry>,
}

/// Where the chunk of a column is.
#[derive(Debug, Clone, Default)]
pub struct ChunkEntry {
    /// In another file.
    pub elsewhere: Option<String>,
    /// What it holds; `None` if that is encrypted with a key of the column's own.
    pub column: Option<Column>,
    /// Its pages are encrypted.
    pub is_encrypted: bool,
    /// Where its offset index is, and how long.
    pub offset_index: Option<Place>,
    /// Where its column index is, and how long.
    pub column_index: Option<Place>,
}

/// A range of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// Its first byte.
    pub begin: u64,
    /// Its length.
    pub bytes: u64,
}

impl Place {
    /// One past its last byte.
    #[must_use]
    pub fn end(self) -> u64 {
        self.begin.saturating_add(self.bytes)
    }
}

/// What a footer says of a column chunk.
#[derive(Debug, Clone, Default)]
pub struct Column {
    /// The number of its physical type.
    pub kind: i32,
    /// The number of its codec.
    pub codec: i32,
    /// The names that lead to it.
    pub path: Vec<String>,
    /// Values with nulls, in all data pages.
    pub values: u64,
    /// Bytes of all pages with their headers.
    pub stored_bytes: u64,
    /// The same if they were not compressed.
    pub expanded_bytes: u64,
    /// Its first data page.
    pub data_offset: u64,
    /// Its dictionary.
    pub dictionary_offset: Option<u64>,
    /// Its Bloom filter, with its length where that is said.
    pub bloom_offset: Option<u64>,
    /// The length of the Bloom filter.
    pub bloom_bytes: Option<u64>,
    /// How many repetition levels, and definition levels, are counted in it; 0 if none are.
    pub counted_levels: [u64; 2],
}

impl Column {
    /// Its first page. Some writers say 0 where there is no dictionary, others where there is no
    /// data page.
    #[must_use]
    pub fn begin(&self) -> u64 {
        let offsets = [self.dictionary_offset.unwrap_or(0), self.data_offset];
        offsets.into_iter().filter(|offset| *offset > 0).min().unwrap_or(0)
    }
}

impl Footer {
    /// Reads it.
    ///
    /// # Errors
    /// [`ThriftError`]; no writer writes such a footer.
    pub fn read(bytes: &[u8]) -> Read<Self> {
        let mut reader = Reader::new(bytes);
        let reader = &mut reader;
        let mut footer = Self::default();
        let (mut schema, mut rows, mut groups, mut version) = (None, None, None, None);
        let mut last = 0;
        while let Some(field) = reader.field(&mut last)? {
            match field {
                (1, Wire::Int) => version = Some(reader.number_of_32_bits()?),
                (2, Wire::List) => schema = Some(elements(reader)?),
                (3, Wire::Long) => rows = Some(reader.size()?),
                (4, Wire::List) => groups = Some(structures(reader, row_group)?),
                (5, Wire::List) => footer.arrow_schema_is_wrong = !arrow_schema(reader)?,
                (6, Wire::Bytes) => footer.writer = text(reader.bytes()?),
                (8, Wire::Structure) => {
                    footer.has_encryption = true;
                    reader.skip(Wire::Structure)?;
                }
                (_, wire) if wire.is_number() => reader.skip(wire)?,
                (1..=6 | 8, _) => {
                    return Err(ThriftError::Malformed("a field of another type"));
                }
                (_, wire) => reader.skip(wire)?,
            }
        }
        let rest = bytes.len().saturating_sub(reader.position());
        if rest != if footer.has_encryption { SIGNATURE_BYTES } else { 0 } && rest != 0 {
            return Err(ThriftError::Malformed("more bytes behind its end"));
        }
        version.ok_or(ThriftError::Malformed("no version"))?;
        footer.rows = rows.ok_or(ThriftError::Malformed("no number of rows"))?;
        footer.groups = groups.ok_or(ThriftError::Malformed("no row groups"))?;
        let schema = schema.ok_or(ThriftError::Malformed("no schema"))?;
        footer.leaves =
            leaves(&schema).ok_or(ThriftError::Malformed("a schema that is no tree"))?;
        Ok(footer)
    }

    /// The chunk of a column in a row group, for people.
    #[must_use]
    pub fn name_of(&self, group: usize, leaf: usize) -> String {
        let name = self.leaves.get(leaf).map_or("?", |leaf| &leaf.name);
        format!("row group {group}, column {name}")
    }

    /// What contradicts itself in it: no reader is sure to read such a file.
    #[must_use]
    pub fn contradictions(&self) -> Vec<String> {
        let mut said = Vec::new();
        let sum = self.groups.iter().try_fold(0_u64, |sum, group| sum.checked_add(group.rows));
        // `_common_metadata` of fastparquet has the rows of other files; old versions of parquet-rs
        // never said how many there are.
        if sum != Some(self.rows) && sum != Some(0) && self.rows != 0 {
            said.push(format!(
                "the file has {} rows by its footer, its row groups have {}",
                self.rows,
                sum.map_or("too many".to_owned(), |sum| sum.to_string())
            ));
        }
        if self.arrow_schema_is_wrong {
            said.push("the schema of Arrow in its metadata is no base64".to_owned());
        }
        for (number, group) in self.groups.iter().enumerate() {
            if group.chunks.len() != self.leaves.len() {
                said.push(format!(
                    "row group {number} has {} column chunks, the schema has {} columns",
                    group.chunks.len(),
                    self.leaves.len()
                ));
                continue;
            }
            for (index, (chunk, leaf)) in group.chunks.iter().zip(&self.leaves).enumerate() {
                let Some(column) = &chunk.column else { continue };
                let name = || self.name_of(number, index);
                if column.path.join(".") != *leaf.name {
                    said.push(format!("{}: its chunk is of {}", name(), column.path.join(".")));
                }
                if column.kind != leaf.kind {
                    said.push(format!("{}: its chunk is of another type", name()));
                }
                if leaf.levels[0] == 0 && column.values != group.rows {
                    said.push(format!(
                        "{}: {} values for {} rows",
                        name(),
                        column.values,
                        group.rows
                    ));
                }
                let mut counted = column.counted_levels.iter().zip(leaf.levels);
                if counted.any(|(counted, most)| *counted > 0 && *counted != most.saturating_add(1))
                {
                    said.push(format!(
                        "{}: the counts of its levels are not those of its place in the schema",
                        name()
                    ));
                }
            }
        }
        said
    }
}

/// Whether the schema that Arrow's writers keep beside that of Parquet can be one: readers of Arrow
/// open no file in which it cannot.
fn arrow_schema(reader: &mut Reader<'_>) -> Read<bool> {
    let entries = structures(reader, |reader| {
        let (mut is_schema, mut is_base64, mut is_named, mut last) = (false, true, false, 0);
        while let Some(field) = reader.field(&mut last)? {
            match field {
                (1, Wire::Bytes) => {
                    is_schema = reader.bytes()? == b"ARROW:schema";
                    is_named = true;
                }
                (2, Wire::Bytes) => is_base64 = may_be_base64(reader.bytes()?),
                (1 | 2, _) => return Err(ThriftError::Malformed("a field of another type")),
                (_, wire) => reader.skip(wire)?,
            }
        }
        is_named.then_some(!is_schema || is_base64).ok_or(LACKS)
    })?;
    Ok(entries.into_iter().all(|is_right| is_right))
}

fn may_be_base64(value: &[u8]) -> bool {
    let end = value.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last.saturating_add(1));
    let (digits, padding) = value.split_at(end);
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    digits.iter().all(is_digit) && padding.len() <= 2
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn structures<T>(reader: &mut Reader<'_>, one: fn(&mut Reader<'_>) -> Read<T>) -> Read<Vec<T>> {
    let count = reader.structures()?;
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(one(reader)?);
    }
    Ok(list)
}

/// What a structure lacks that `parquet.thrift` requires: readers that are made from it refuse the file.
const LACKS: ThriftError = ThriftError::Malformed("a structure that lacks what each has");
const TRUTH: &[Wire] = &[Wire::True, Wire::False];
/// `PageEncodingStats`.
const ENCODING_STATS: Needs = &[(1, &[Wire::Int]), (2, &[Wire::Int]), (3, &[Wire::Int])];
/// `SortingColumn`.
const SORTING: Needs = &[(1, &[Wire::Int]), (2, TRUTH), (3, TRUTH)];
/// `KeyValue`.
const KEY_VALUE: Needs = &[(1, &[Wire::Bytes])];
/// `DecimalType`.
const DECIMAL: Needs = &[(1, &[Wire::Int]), (2, &[Wire::Int])];
/// `TimeType` and `TimestampType`.
const TIME: Needs = &[(1, TRUTH), (2, &[Wire::Structure])];
/// `IntType`.
const INTEGER: Needs = &[(1, &[Wire::Byte]), (2, TRUTH)];

/// Fields that a structure must have, by their numbers, and what each may be.
type Needs = &'static [(i16, &'static [Wire])];

/// Passes over a structure, which must have these fields.
fn complete(reader: &mut Reader<'_>, needs: Needs) -> Read<()> {
    let mut missing = needs.to_vec();
    let mut last = 0;
    while let Some((number, wire)) = reader.field(&mut last)? {
        missing.retain(|(needed, wires)| *needed != number || !wires.contains(&wire));
        reader.skip(wire)?;
    }
    missing.is_empty().then_some(()).ok_or(LACKS)
}

/// The same for each structure of a list.
fn all_complete(reader: &mut Reader<'_>, needs: Needs) -> Read<()> {
    (0..reader.structures()?).try_for_each(|_| complete(reader, needs))
}

/// What the values of a column mean.
fn logical_type(reader: &mut Reader<'_>) -> Read<()> {
    let mut last = 0;
    while let Some(field) = reader.field(&mut last)? {
        match field {
            (5, Wire::Structure) => complete(reader, DECIMAL)?,
            (7 | 8, Wire::Structure) => complete(reader, TIME)?,
            (10, Wire::Structure) => complete(reader, INTEGER)?,
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(())
}

/// An element of the schema, which is a tree in the order of its nodes.
#[derive(Default)]
struct Element {
    name: String,
    kind: Option<i32>,
    /// Bytes of each value, if it is said.
    length: i32,
    /// 0 required, 1 optional, 2 repeated.
    repetition: i32,
    children: u64,
}

fn elements(reader: &mut Reader<'_>) -> Read<Vec<Element>> {
    structures(reader, |reader| {
        let mut element = Element::default();
        let (mut is_named, mut last) = (false, 0);
        while let Some(field) = reader.field(&mut last)? {
            match field {
                (1, Wire::Int) => element.kind = Some(reader.number_of_32_bits()?),
                (2, Wire::Int) => element.length = reader.number_of_32_bits()?,
                (3, Wire::Int) => element.repetition = reader.number_of_32_bits()?,
                (4, Wire::Bytes) => {
                    element.name = text(reader.bytes()?);
                    is_named = true;
                }
                (5, Wire::Int) => element.children = reader.size()?,
                (10, Wire::Structure) => logical_type(reader)?,
                (_, wire) if wire.is_number() => reader.skip(wire)?,
                (1 | 3..=5, _) => return Err(ThriftError::Malformed("a field of another type")),
                (_, wire) => reader.skip(wire)?,
            }
        }
        let (kinds, repetitions) = (0..=7, 0..=2);
        let is_known = element.kind.is_none_or(|kind| kinds.contains(&kind));
        if !is_named || !is_known || !repetitions.contains(&element.repetition) {
            return Err(ThriftError::Malformed("a column of no type"));
        }
        if element.kind == Some(FIXED_LENGTH) && element.length <= 0 {
            return Err(ThriftError::Malformed("values of a fixed length, which is none"));
        }
        Ok(element)
    })
}

fn leaves(schema: &[Element]) -> Option<Vec<Leaf>> {
    let (root, elements) = schema.split_first()?;
    // The groups that are open: their names, their levels, and how many children are to come.
    let mut open: Vec<(&str, [u64; 2], u64)> = vec![("", [0, 0], root.children)];
    let mut leaves = Vec::new();
    for element in elements {
        while open.last().is_some_and(|(_, _, left)| *left == 0) {
            open.pop();
        }
        let (_, [repetition, definition], left) = open.last_mut()?;
        let levels = [
            repetition.saturating_add(u64::from(element.repetition == 2)),
            definition.saturating_add(u64::from(element.repetition > 0)),
        ];
        *left = left.checked_sub(1)?;
        match element.kind {
            Some(kind) => {
                let names = open.iter().skip(1).map(|(name, _, _)| *name);
                let names: Vec<_> = names.chain([element.name.as_str()]).collect();
                let width = width(kind, element.length);
                leaves.push(Leaf { name: names.join(".").into(), kind, levels, width });
            }
            None if open.len() >= DEPTH_MAX => return None,
            None => open.push((&element.name, levels, element.children)),
        }
    }
    open.iter().all(|(_, _, left)| *left == 0).then_some(leaves)
}

/// Bytes of a value of a physical type.
fn width(kind: i32, length: i32) -> Option<u64> {
    match kind {
        1 | 4 => Some(4),
        2 | 5 => Some(8),
        3 => Some(12),
        FIXED_LENGTH => u64::try_from(length).ok(),
        _ => None,
    }
}

fn row_group(reader: &mut Reader<'_>) -> Read<RowGroup> {
    let (mut chunks, mut rows, mut bytes) = (None, None, None);
    let mut last = 0;
    while let Some(field) = reader.field(&mut last)? {
        match field {
            (1, Wire::List) => chunks = Some(structures(reader, chunk)?),
            // Some writers say 0, or count otherwise; none leaves it out.
            (2, Wire::Long) => bytes = Some(reader.number()?),
            (3, Wire::Long) => rows = Some(reader.size()?),
            (4, Wire::List) => all_complete(reader, SORTING)?,
            (_, wire) if wire.is_number() => reader.skip(wire)?,
            (1..=3, _) => return Err(ThriftError::Malformed("a field of another type")),
            (_, wire) => reader.skip(wire)?,
        }
    }
    match (chunks, rows, bytes) {
        (Some(chunks), Some(rows), Some(_)) => Ok(RowGroup { rows, chunks }),
        _ => Err(ThriftError::Malformed("a row group without columns or rows")),
    }
}

fn chunk(reader: &mut Reader<'_>) -> Read<ChunkEntry> {
    let mut chunk = ChunkEntry::default();
    let (mut offset_index, mut column_index) = ((None, None), (None, None));
    let mut last = 0;
    while let Some(field) = reader.field(&mut last)? {
        match field {
            (1, Wire::Bytes) => chunk.elsewhere = Some(text(reader.bytes()?)),
            (3, Wire::Structure) => chunk.column = Some(column(reader)?),
            (4, Wire::Long) => offset_index.0 = Some(reader.size()?),
            (5, Wire::Int) => offset_index.1 = Some(reader.size()?),
            (6, Wire::Long) => column_index.0 = Some(reader.size()?),
            (7, Wire::Int) => column_index.1 = Some(reader.size()?),
            (8, Wire::Structure) => {
                chunk.is_encrypted = true;
                reader.skip(Wire::Structure)?;
            }
            (_, wire) if wire.is_number() => reader.skip(wire)?,
            (1 | 3..=8, _) => return Err(ThriftError::Malformed("a field of another type")),
            (_, wire) => reader.skip(wire)?,
        }
    }
    let place = |(begin, bytes): (Option<u64>, Option<u64>)| {
        Some(Place { begin: begin?, bytes: bytes? }).filter(|place| place.bytes > 0)
    };
    chunk.offset_index = place(offset_index);
    chunk.column_index = place(column_index);
    if chunk.column.is_none() && !chunk.is_encrypted {
        return Err(ThriftError::Malformed("a column chunk that is nowhere"));
    }
    Ok(chunk)
}

fn column(reader: &mut Reader<'_>) -> Read<Column> {
    let mut column = Column::default();
    let (mut kind, mut codec, mut values, mut stored, mut expanded, mut data) =
        (None, None, None, None, None, None);
    let (mut encodings, mut path) = (None, None);
    let mut last = 0;
    while let Some(field) = reader.field(&mut last)? {
        match field {
            (1, Wire::Int) => kind = Some(reader.number_of_32_bits()?),
            (2, Wire::List) => encodings = Some(numbers(reader)?),
            (3, Wire::List) => {
                column.path = names(reader)?;
                path = Some(());
            }
            (4, Wire::Int) => codec = Some(reader.number_of_32_bits()?),
            (5, Wire::Long) => values = Some(reader.size()?),
            (6, Wire::Long) => expanded = Some(reader.size()?),
            (7, Wire::Long) => stored = Some(reader.size()?),
            (8, Wire::List) => all_complete(reader, KEY_VALUE)?,
            (9, Wire::Long) => data = Some(reader.size()?),
            (12, wire @ Wire::Structure) => reader.skip(wire)?,
            (13, Wire::List) => all_complete(reader, ENCODING_STATS)?,
            (16, Wire::Structure) => column.counted_levels = counted_levels(reader)?,
            (11, Wire::Long) => column.dictionary_offset = u64::try_from(reader.number()?).ok(),
            (14, Wire::Long) => column.bloom_offset = Some(reader.size()?),
            (15, Wire::Int) => column.bloom_bytes = Some(reader.size()?),
            (_, wire) if wire.is_number() => reader.skip(wire)?,
            (1..=9 | 11..=13 | 16, _) => {
                return Err(ThriftError::Malformed("a field of another type"));
            }
            // Dremio wrote something else under the number of a Bloom filter, before there were any.
            (_, wire) => reader.skip(wire)?,
        }
    }
    let needed = (|| {
        column.kind = kind?;
        column.codec = codec?;
        column.values = values?;
        column.stored_bytes = stored?;
        column.expanded_bytes = expanded?;
        column.data_offset = data?;
        encodings.and(path)
    })();
    needed.ok_or(ThriftError::Malformed("a column chunk that lacks what each has"))?;
    Ok(column)
}

/// How many levels are counted in `SizeStatistics`.
fn counted_levels(reader: &mut Reader<'_>) -> Read<[u64; 2]> {
    let (mut counted, mut last) = ([0, 0], 0);
    while let Some(field) = reader.field(&mut last)? {
        let count = match field {
            (2, Wire::List) => &mut counted[0],
            (3, Wire::List) => &mut counted[1],
            (_, wire) => {
                reader.skip(wire)?;
                continue;
            }
        };
        let (levels, wire) = reader.list()?;
        *count = levels;
        (0..levels).try_for_each(|_| reader.skip(wire))?;
    }
    Ok(counted)
}

/// Passes over a list of numbers.
fn numbers(reader: &mut Reader<'_>) -> Read<()> {
    let (count, wire) = reader.list()?;
    if count > 0 && wire != Wire::Int {
        return Err(ThriftError::Malformed("a list of something else"));
    }
    (0..count).try_for_each(|_| reader.number_of_32_bits().map(drop))
}

fn names(reader: &mut Reader<'_>) -> Read<Vec<String>> {
    let (count, wire) = reader.list()?;
    if count > 0 && wire != Wire::Bytes {
        return Err(ThriftError::Malformed("a list of something else"));
    }
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(text(reader.bytes()?));
    }
    Ok(names)
}
