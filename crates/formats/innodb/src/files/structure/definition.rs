//! What the columns and indexes of a table are, as far as records need it: lengths, nulls, order.
//!
//! MySQL 8.0 and later keep it as JSON, compressed, in the table's own file (SDI; its root is named
//! on page 0); MariaDB and MySQL up to 5.7 in tables of the system tablespace (`SYS_COLUMNS`,
//! `SYS_INDEXES`, `SYS_FIELDS`): see [`super::dictionary`]. A record of SDI:
//!
//! ```text
//! offset  size  field
//!     -6     1  bytes of the JSON that are here, or two bytes, back to front; 64: it lies outside
//!      0     4  kind: 1 table, 2 tablespace
//!      4     8  number
//!     12    13  transaction, roll pointer
//!     25     4  bytes of the JSON
//!     29     4  the same, compressed by zlib
//!     33     -  that
//! ```
//!
//! Sources: `dict0sdi.cc`, `dd/types/column.h`, `dict0dict.cc` of MySQL 8.0; files of MySQL 9.7.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::Arc;

use flate2::read::ZlibDecoder;
use serde_json::Value;

use crate::files::structure::record;
use crate::page::fields::read_u32;
use crate::page::index::{DELETED, IndexPage};

/// How values of a column are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// As their bytes are.
    Bytes,
    /// As floating point numbers, little-endian, of four bytes or of eight.
    Float,
    /// By a collation that takes upper for lower case: spaces, digits and letters of ASCII are in the
    /// same order in all of those.
    Folded,
    /// By another collation.
    Unknown,
}

/// A field of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    /// The number of its column in the table.
    pub(super) column: usize,
    /// Its bytes, where they are always as many.
    pub(super) fixed: Option<usize>,
    /// It may have more than 255 bytes.
    pub(super) is_big: bool,
    pub(super) is_nullable: bool,
    pub(super) is_descending: bool,
    pub(super) order: Order,
    /// It has the first part of its column only.
    pub(super) is_prefix: bool,
    /// The version of the table in which its column was added; 0 at its beginning.
    pub(super) added: u64,
}

/// An index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) name: String,
    /// The number of the clustered index of its table; of that one its own.
    pub(super) clustered: u64,
    /// The first page.
    pub(super) root: u32,
    pub(super) fields: Vec<Field>,
    /// Its first fields that are in upper levels, too.
    pub(super) key_count: usize,
    /// Columns were removed or moved without the records.
    pub(super) is_altered: bool,
    /// Of MariaDB's tables with instant columns: the fields that records had before the first one.
    pub(super) first_count: Option<usize>,
    /// It has an entry for each row.
    pub(super) is_of_rows: bool,
    /// Its fields are columns that the rows have.
    pub(super) is_stored: bool,
}

impl Index {
    pub(super) fn is_clustered(&self, own: u64) -> bool {
        self.clustered == own
    }
}

/// Indexes by their numbers.
pub(super) type Indexes = HashMap<u64, Arc<Index>>;

/// How wide the characters of a collation are; `None` of one that is not known.
pub(super) fn has_wide_characters(collation: u64) -> Option<bool> {
    const NO_PAD: u64 = 1024;
    match collation {
        33 | 45 | 46 | 76 | 83 | 192..=215 | 223..=247 | 255..=323 | 576..=640 | 2048..=2559 => {
            Some(true)
        }
        3..=11
        | 14..=16
        | 20
        | 22
        | 23
        | 25..=27
        | 29..=32
        | 34
        | 36..=44
        | 47..=53
        | 57..=69
        | 71..=75
        | 77..=82
        | 89
        | 90
        | 92..=94 => Some(false),
        NO_PAD..2048 => has_wide_characters(collation.wrapping_sub(NO_PAD)),
        _ => None,
    }
}

/// True of collations by default, of letters of any case and, mostly, any accent.
pub(super) fn is_folded(collation: u64) -> bool {
    // latin1_swedish_ci, utf8 and utf8mb4: general_ci, unicode_ci, 0900_ai_ci, uca1400_ai_ci.
    matches!(collation, 8 | 33 | 45 | 192 | 224 | 255 | 2048 | 2304)
}

const BINARY: u64 = 63;
/// A kind of index.
const FULLTEXT: u64 = 4;
/// The longest JSON that is unpacked: a table of 1017 columns has a quarter of it.
const JSON_BYTES_MAX: u64 = 16 << 20;

/// What the SDI of a file says.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Of a table with partitions, those of all of them.
    pub(super) indexes: Indexes,
    /// The first partition, whose file has the SDI of all.
    pub(super) first_partition: Option<String>,
}

/// Adds what the SDI on such a page says.
pub(super) fn read_sdi(page: &IndexPage<'_>, outside: impl Fn(u32) -> Vec<u8>, to: &mut Told) {
    const KIND_TABLE: u32 = 1;
    const SIZE: usize = 29;
    const JSON: usize = 33;
    if page.level() != 0 {
        return;
    }
    for place in page.records().filter(|place| place.info & DELETED == 0) {
        let Some(begin) = page.bytes().get(place.origin..) else { continue };
        if read_u32(begin, 0) != KIND_TABLE {
            continue;
        }
        let rest = begin.get(JSON..).unwrap_or_default();
        let size = usize::try_from(read_u32(begin, SIZE)).unwrap_or(usize::MAX);
        let is_outside = record::is_sdi_outside(page, &place);
        let packed = match is_outside {
            // A reference has the page behind the tablespace.
            true => outside(read_u32(rest, 4)),
            false => rest.get(..size).unwrap_or_default().to_vec(),
        };
        let mut text = Vec::new();
        let is_whole =
            ZlibDecoder::new(&packed[..]).take(JSON_BYTES_MAX).read_to_end(&mut text).is_ok();
        if let Some(json) = serde_json::from_slice::<Value>(&text).ok().filter(|_| is_whole) {
            let _ = of_json(&json, to);
        }
    }
}

fn value_of(data: &Value, wanted: &str) -> Option<u64> {
    let mut pairs = data.as_str()?.split(';').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == wanted)?.1.parse().ok()
}

fn of_json(json: &Value, to: &mut Told) -> Option<()> {
    /// Of full-text search: the columns that the server adds are in the records, and not here.
    const HIDDEN_BY_ENGINE: u64 = 3;
    let table = json.get("dd_object")?;
    if table["hidden"] == HIDDEN_BY_ENGINE {
        return None;
    }
    let first_partition = table["partitions"].as_array().and_then(|all| all.first());
    to.first_partition = first_partition.and_then(|it| it["name"].as_str()).map(ToOwned::to_owned);
    let columns = table.get("columns")?.as_array()?;
    let fields: Vec<_> = (0_usize..).zip(columns).map(|(at, it)| column(at, it)).collect();
    let is_altered_by = |column: &Value| {
        let data = column["se_private_data"].as_str().unwrap_or_default();
        data.contains("version_dropped")
    };
    let place = |column: &Value| value_of(&column["se_private_data"], "physical_pos");
    let is_altered = columns.iter().any(is_altered_by)
        || value_of(&table["se_private_data"], "instant_col").is_some();
    let indexes = table.get("indexes")?.as_array()?;
    // The numbers of documents may be a column that is not told: seen in a table of MySQL 8.0.
    let is_altered = is_altered || indexes.iter().any(|index| index["type"] == FULLTEXT);
    let places = std::iter::once(indexes.iter().collect::<Vec<_>>())
        .chain(partitions(&table["partitions"]).into_iter().map(|it| it.iter().collect()));
    for those in places {
        let data = |at: usize, word| value_of(&those.get(at)?["se_private_data"], word);
        let Some(clustered) = data(0, "id") else { continue };
        for (at, index) in (0_usize..).zip(indexes) {
            let (Some(id), Some(root)) = (data(at, "id"), data(at, "root")) else { continue };
            let read = of_index(index, &fields, columns);
            if let Some(read) = read {
                let root = u32::try_from(root).ok()?;
                // Fields are in the order of the records, unless columns were put between others.
                let elements = index["elements"].as_array().into_iter().flatten();
                let columns = elements.filter_map(|it| {
                    columns.get(usize::try_from(it["column_opx"].as_u64()?).ok()?)
                });
                let is_in_order = columns.filter_map(place).is_sorted();
                let is_altered = (is_altered || !is_in_order) && at == 0;
                to.indexes.insert(id, Arc::new(Index { clustered, root, is_altered, ..read }));
            }
        }
    }
    Some(())
}

/// The lists of indexes of all partitions, those inside others too.
fn partitions(those: &Value) -> Vec<&Vec<Value>> {
    const DEPTH: usize = 2;
    let mut found = Vec::new();
    let mut level: Vec<&Value> = those.as_array().into_iter().flatten().collect();
    for _ in 0..DEPTH {
        found.extend(level.iter().filter_map(|it| it["indexes"].as_array()));
        level = level.iter().filter_map(|it| it["subpartitions"].as_array()).flatten().collect();
    }
    found
}

fn of_index(index: &Value, fields: &[Option<Field>], columns: &[Value]) -> Option<Index> {
    const DESCENDING: u64 = 3;
    const SPATIAL: u64 = 5;
    const ALL: u64 = u32::MAX as u64;
    let kind = index["type"].as_u64()?;
    if matches!(kind, FULLTEXT | SPATIAL) {
        return None;
    }
    let mut own = Vec::new();
    let mut key_count = None;
    let (mut is_of_rows, mut is_stored) = (true, true);
    for element in index["elements"].as_array()? {
        let at = usize::try_from(element["column_opx"].as_u64()?).ok()?;
        let column = columns.get(at)?;
        if column["name"] == "DB_TRX_ID" {
            key_count = Some(own.len());
        }
        is_of_rows &= !column["options"].as_str().unwrap_or_default().contains("is_array=1");
        is_stored &= column["is_virtual"] == false;
        let mut field = fields.get(at)?.clone()?;
        let length = element["length"].as_u64()?;
        let bytes = column["char_length"].as_u64()?;
        let is_text = matches!(column["type"].as_u64()?, 16 | 24..=30);
        if length < ALL && is_text && length < bytes {
            field.is_prefix = true;
            let part = usize::try_from(length).ok()?;
            field.fixed = field.fixed.map(|whole| whole.min(part));
        }
        field.is_descending = element["order"].as_u64()? == DESCENDING;
        own.push(field);
    }
    let key_count = key_count.unwrap_or(own.len());
    Some(Index {
        name: index["name"].as_str()?.to_owned(),
        clustered: 0,
        root: 0,
        fields: own,
        key_count,
        is_altered: false,
        first_count: None,
        is_of_rows,
        is_stored,
    })
}

fn column(number: usize, column: &Value) -> Option<Field> {
    let word = |name: &str| column[name].as_u64();
    let (kind, length) = (word("type")?, word("char_length")?);
    let collation = word("collation_id")?;
    // Fractions of seconds.
    let fraction = word("datetime_precision").unwrap_or(0).div_ceil(2);
    let by_name = match column["name"].as_str()? {
        "DB_TRX_ID" | "DB_ROW_ID" => Some(6),
        "DB_ROLL_PTR" => Some(7),
        _ => None,
    };
    let values = u64::try_from(column["elements"].as_array().map_or(0, Vec::len)).ok()?;
    let fixed = by_name.map_or_else(
        || {
            match kind {
                2 | 14 => Some(1),
                3 => Some(2),
                10 | 11 | 15 => Some(3),
                4 | 5 => Some(4),
                6 | 9 => Some(8),
                18 => Some(fraction.saturating_add(4)),
                19 => Some(fraction.saturating_add(5)),
                20 => Some(fraction.saturating_add(3)),
                17 => Some(length.div_ceil(8)),
                21 => decimal_bytes(word("numeric_precision")?, word("numeric_scale")?),
                22 => Some(if values < 256 { 1 } else { 2 }),
                23 => Some(match values.div_ceil(8) {
                    5.. => 8,
                    bytes => bytes,
                }),
                29 => (!has_wide_characters(collation)?).then_some(length),
                _ => None,
            }
            .into()
        },
        |bytes| Some(Some(bytes)),
    )?;
    let is_text = matches!(kind, 16 | 24..=29);
    let is_known = fixed.is_some() || matches!(kind, 16 | 24..=32);
    let order = match kind {
        _ if is_text && is_folded(collation) => Order::Folded,
        _ if is_text && collation != BINARY => Order::Unknown,
        30..=32 | 1 | 7 | 8 | 12 | 13 => Order::Unknown,
        5 | 6 => Order::Float,
        _ => Order::Bytes,
    };
    is_known.then_some(Field {
        column: number,
        fixed: fixed.map(usize::try_from).transpose().ok()?,
        is_big: length > 255 || matches!(kind, 24..=28 | 30..=32),
        is_nullable: column["is_nullable"] == true,
        is_descending: false,
        order,
        is_prefix: false,
        added: value_of(&column["se_private_data"], "version_added").unwrap_or(0),
    })
}

/// Nine digits take four bytes, fewer as many as they need.
fn decimal_bytes(precision: u64, scale: u64) -> Option<u64> {
    const DIGITS: u64 = 9;
    const BYTES: [u64; 9] = [0, 1, 1, 2, 2, 3, 3, 4, 4];
    let part = |digits: u64| {
        let rest = BYTES.get(usize::try_from(digits % DIGITS).ok()?)?;
        (digits / DIGITS).checked_mul(4)?.checked_add(*rest)
    };
    part(precision.checked_sub(scale)?)?.checked_add(part(scale)?)
}
