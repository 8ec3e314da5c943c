//! Columns and indexes by the dictionary in the system tablespace, of MariaDB and of MySQL up to 5.7.
//!
//! | table | fields, without transaction and roll pointer (2, 3) |
//! |---|---|
//! | `SYS_COLUMNS` | 0 table, 1 position (above 65,535: virtual), 4 name, 5 main type, 6 precise type, 7 bytes |
//! | `SYS_INDEXES` | 0 table, 1 number, 4 name, 5 number of fields, 6 kind: 1 clustered, 32 full text, 64 spatial, 7 tablespace, 8 root |
//! | `SYS_FIELDS` | 0 index, 1 position; or position << 16, descending << 15, bytes of the part; 4 column |
//!
//! Of the precise type 256 says not null, 1024 binary, from 65,536 on there is the collation.
//!
//! Source: `dict0load.cc`, `dict0mem.h`, `data0type.h` of MariaDB 10.11.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use crate::files::structure::definition::{
    Field, Index, Indexes, Order, has_wide_characters, is_folded,
};
use crate::files::tables::{
    COLUMNS_OF_TABLES, FIELDS_OF_INDEXES, INDEXES_OF_TABLES, Record, Unasked, each,
};
use crate::page::fields::read_u64;

const VIRTUAL: u32 = 1 << 16;
const CLUSTERED: u32 = 1;
const NOT_TREES: u32 = 32 | 64;

struct Column {
    table: u64,
    position: u32,
    name: Vec<u8>,
    kind: u32,
    precise: u32,
    bytes: u32,
}

struct OfIndex {
    table: u64,
    number: u64,
    name: Vec<u8>,
    kind: u32,
    space: u32,
    root: u32,
}

fn long(record: &Record<'_>, field: usize) -> Option<u64> {
    record.field(field).filter(|bytes| bytes.len() == 8).map(|bytes| read_u64(bytes, 0))
}

/// The indexes of all tables in the dictionary whose first file is in this folder, by tablespace.
pub(super) fn indexes(folder: &Path) -> Result<HashMap<u32, Indexes>, Unasked> {
    let columns = each(folder, None, COLUMNS_OF_TABLES, |record| {
        Some(Column {
            table: long(record, 0)?,
            position: record.number(1)?,
            name: record.field(4)?.to_vec(),
            kind: record.number(5)?,
            precise: record.number(6)?,
            bytes: record.number(7)?,
        })
    })?;
    let indexes = each(folder, None, INDEXES_OF_TABLES, |record| {
        Some(OfIndex {
            table: long(record, 0)?,
            number: long(record, 1)?,
            name: record.field(4)?.to_vec(),
            kind: record.number(6)?,
            space: record.number(7)?,
            root: record.number(8)?,
        })
    })?;
    let fields = each(folder, None, FIELDS_OF_INDEXES, |record| {
        Some((long(record, 0)?, record.number(1)?, record.field(4)?.to_vec()))
    })?;
    let mut of_tables: HashMap<u64, Vec<Column>> = HashMap::new();
    columns.into_iter().for_each(|it| of_tables.entry(it.table).or_default().push(it));
    let mut places: HashMap<u64, BTreeMap<u32, Vec<u8>>> = HashMap::new();
    for (index, place, name) in fields {
        places.entry(index).or_default().insert(place, name);
    }
    let of_indexes: HashMap<u64, BTreeMap<u32, (u32, Vec<u8>)>> =
        places.into_iter().map(|(index, fields)| (index, in_order(fields))).collect();
    let mut found: HashMap<u32, Indexes> = HashMap::new();
    for clustered in indexes.iter().filter(|index| index.kind & CLUSTERED != 0) {
        let Some(columns) = of_tables.get(&clustered.table) else { continue };
        let own = |number: u64| of_indexes.get(&number).into_iter().flat_map(BTreeMap::values);
        let keys: Option<Vec<_>> =
            own(clustered.number).map(|(part, name)| field(columns, name, *part)).collect();
        let Some(keys) = keys else { continue };
        let Some(first) = of_clustered(clustered, columns, keys.clone()) else { continue };
        let key: Vec<_> = first.fields.iter().take(first.key_count).cloned().collect();
        for other in indexes.iter().filter(|it| it.table == clustered.table) {
            if other.kind & (CLUSTERED | NOT_TREES) != 0 || !other.name.is_ascii() {
                continue;
            }
            let those: Option<Vec<_>> =
                own(other.number).map(|(part, name)| field(columns, name, *part)).collect();
            let Some(mut those) = those.filter(|those| !those.is_empty()) else { continue };
            for of_key in &key {
                if !those.iter().any(|it| it.column == of_key.column && !it.is_prefix) {
                    those.push(of_key.clone());
                }
            }
            let is_virtual = |it: &Field| it.column >= VIRTUAL as usize;
            let index = Index {
                name: String::from_utf8_lossy(&other.name).into_owned(),
                clustered: clustered.number,
                root: other.root,
                key_count: those.len(),
                is_altered: false,
                first_count: None,
                is_of_rows: true,
                is_stored: !those.iter().any(is_virtual),
                fields: those,
            };
            found.entry(other.space).or_default().insert(other.number, Arc::new(index));
        }
        found.entry(clustered.space).or_default().insert(clustered.number, Arc::new(first));
    }
    Ok(found)
}

/// The fields of an index in their order, with their parts.
fn in_order(places: BTreeMap<u32, Vec<u8>>) -> BTreeMap<u32, (u32, Vec<u8>)> {
    const LOW: u32 = 0xFFFF;
    // The first field has 0 for its position: what else is there is its part.
    let is_first_a_part = !places.contains_key(&0);
    let field = |(place, name): (u32, Vec<u8>)| match place {
        ..=LOW if is_first_a_part => (0, (place, name)),
        ..=LOW => (place, (0, name)),
        _ => (place >> 16, (place & LOW, name)),
    };
    places.into_iter().map(field).collect()
}

/// The columns that a server adds: row number, transaction, roll pointer.
const OWN: [(usize, usize); 3] = [(usize::MAX, 6), (usize::MAX - 1, 6), (usize::MAX - 2, 7)];

fn of_clustered(index: &OfIndex, columns: &[Column], mut fields: Vec<Field>) -> Option<Index> {
    let own = |(column, bytes): (usize, usize)| Field {
        column,
        fixed: Some(bytes),
        is_big: false,
        is_nullable: false,
        is_descending: false,
        order: Order::Bytes,
        is_prefix: false,
        added: 0,
    };
    let [row, transaction, roll] = OWN;
    if fields.is_empty() {
        fields.push(own(row));
    }
    let key_count = fields.len();
    fields.extend([own(transaction), own(roll)]);
    let mut rest: Vec<_> = columns.iter().filter(|it| it.position < VIRTUAL).collect();
    rest.sort_by_key(|column| column.position);
    for column in rest {
        let position = usize::try_from(column.position).ok()?;
        if !fields.iter().any(|it| it.column == position && !it.is_prefix) {
            fields.push(field(columns, &column.name, 0)?);
        }
    }
    Some(Index {
        name: "PRIMARY".to_owned(),
        clustered: index.number,
        root: index.root,
        fields,
        key_count,
        is_altered: false,
        first_count: None,
        is_of_rows: true,
        is_stored: true,
    })
}

fn field(columns: &[Column], name: &[u8], part: u32) -> Option<Field> {
    const NOT_NULL: u32 = 256;
    const DESCENDING: u32 = 1 << 15;
    const BINARY: u32 = 63;
    let column = columns.iter().find(|column| column.name == name)?;
    let bytes = usize::try_from(column.bytes).ok()?;
    let collation = column.precise >> 16 & 0x7FFF;
    let text = if is_folded(u64::from(collation)) { Order::Folded } else { Order::Unknown };
    let (is_fixed, order) = match column.kind {
        // Characters of variable and of fixed length of the first collation, which has one byte each.
        1 | 12 if collation == BINARY => (false, Order::Bytes),
        1 | 12 => (false, text),
        2 => (true, text),
        3 | 6 | 8 => (true, Order::Bytes),
        4 => (false, Order::Bytes),
        5 if collation == BINARY => (false, Order::Bytes),
        5 | 14 | 11 => (false, Order::Unknown),
        9 | 10 => (true, Order::Float),
        13 => (!has_wide_characters(u64::from(collation))?, text),
        _ => return None,
    };
    let part_bytes = usize::try_from(part & !DESCENDING).ok()?;
    let is_prefix = part_bytes != 0;
    let fixed = if is_prefix { part_bytes.min(bytes) } else { bytes };
    Some(Field {
        column: usize::try_from(column.position).ok()?,
        fixed: is_fixed.then_some(fixed),
        // By the column, of a part of it, too; and of what may lie outside.
        is_big: bytes > 255 || matches!(column.kind, 5 | 14),
        is_nullable: column.precise & NOT_NULL == 0,
        is_descending: part & DESCENDING != 0,
        order,
        is_prefix,
        added: 0,
    })
}
