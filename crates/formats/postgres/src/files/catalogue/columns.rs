//! Columns of tables and indexes, and how a btree index orders them: `pg_attribute`,
//! `pg_index` and `pg_opclass` of one database.
//!
//! ```text
//! pg_attribute   12-13  14-15   16    17    18   width
//! attrelid           0      0    0     0     0      4
//! atttypid          68     68   68    68    68      4
//! attlen            76     76   72    72    72      2
//! attnum            78     78   74    74    74      2
//! attalign          94     93   87    87    83      1
//! atthasmissing     97     98   92    92    88      1
//! attcollation     108    108  104   100    96      4
//!
//! pg_index       12-14  15-18   width
//! indnatts           8      8      2
//! indnkeyatts       10     10      2
//! indisunique       12     12      1
//! indnullsnotdistinct -    13      1
//! indkey            24     24   4-byte varlena header, 20 bytes of array header, then 2 bytes each
//! indcollation  behind it, aligned to 4: the same with 4 bytes each
//! indclass      behind it: the same
//! indoption     behind it: 2 bytes each; 1 descending, 2 nulls first
//! indexprs          18     19   attribute, from 0: null for an index of columns alone
//! indpred           19     20   attribute, from 0: null for one of all rows
//!
//! pg_opclass     12-18   width
//! oid                0      4
//! opcfamily         80      4
//! opcintype         84      4
//! ```
//!
//! Sources: `src/include/catalog/pg_attribute.h`, `pg_index.h`, `pg_opclass.h` of each version;
//! those of 15 and 18 were compared with what servers say. A version of whose `pg_attribute`
//! the row of its own `attcollation` is not found as it must be is not read.

use std::collections::{HashMap, HashSet};
use std::ops::{Range, RangeInclusive};

use crate::files::catalogue::pages::Gaps;
use crate::files::catalogue::relations::{Certainty, Relation, Relations};
use crate::files::catalogue::transactions::Moment;
use crate::files::catalogue::tuple::Tuple;
use crate::files::catalogue::{Catalogue, Database, PG_INDEX};
use crate::files::control::u32_at;
use crate::files::witness::tid::u16_at;

const PG_ATTRIBUTE: u32 = 1249;
const PG_OPCLASS: u32 = 2616;
/// The type `oid`.
const OID: u32 = 26;
/// Columns of one database that are kept: 20 bytes each.
const COLUMNS_MAX: usize = 1 << 23;
/// Columns whose older rows have a value that is kept: less than a page each.
const LATE_MAX: usize = 1 << 14;
/// `INDEX_MAX_KEYS`.
const KEYS_MAX: u16 = 32;

/// A column of a table or of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The oid of its relation.
    pub relation: u32,
    /// The oid of its type; 0 if it was dropped.
    pub type_oid: u32,
    /// The oid of its collation; 0 for none.
    pub collation: u32,
    /// Bytes of a value; -1 for a length before it, -2 for a zero behind it.
    pub bytes: i16,
    /// From 1.
    pub number: i16,
    /// `c`, `s`, `i` or `d`: multiples of 1, 2, 4 or 8.
    pub align: u8,
    /// Rows that were there before it have a value that stands in the catalogue.
    pub has_late_value: bool,
}

/// The row of `pg_attribute` about a column of which older rows have a value that stands here: the last
/// attribute, `attmissingval`, an array of one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateColumn {
    /// Its attributes.
    pub data: Box<[u8]>,
    /// Where those begin that may be null.
    pub begin: usize,
    /// Width and alignment of those of them that are not null, as in [`Column`].
    pub present: Vec<(i16, u8)>,
}

struct ColumnLayout {
    versions: RangeInclusive<u32>,
    /// Up to the collation.
    attributes: u16,
    bytes: usize,
    align: usize,
    late: usize,
    collation: usize,
}

#[rustfmt::skip]
const LAYOUTS: &[ColumnLayout] = &[
    ColumnLayout { versions: 12..=13, attributes: 21, bytes: 76, align: 94, late: 97, collation: 108 },
    ColumnLayout { versions: 14..=15, attributes: 22, bytes: 76, align: 93, late: 98, collation: 108 },
    ColumnLayout { versions: 16..=16, attributes: 22, bytes: 72, align: 87, late: 92, collation: 104 },
    ColumnLayout { versions: 17..=17, attributes: 21, bytes: 72, align: 87, late: 92, collation: 100 },
    ColumnLayout { versions: 18..=18, attributes: 20, bytes: 72, align: 83, late: 88, collation: 96 },
];

/// Attributes of `pg_attribute` that may be null, the last ones: since 17 `attstattarget`, then `attacl`,
/// `attoptions`, `attfdwoptions` and `attmissingval`. The elements of `attacl` are of 8 bytes since 16.
fn nullable(major: u32) -> &'static [(i16, u8)] {
    match major {
        ..=15 => &[(-1, b'i'), (-1, b'i'), (-1, b'i'), (-1, b'd')],
        16 => &[(-1, b'd'), (-1, b'i'), (-1, b'i'), (-1, b'd')],
        17.. => &[(2, b's'), (-1, b'd'), (-1, b'i'), (-1, b'i'), (-1, b'd')],
    }
}

/// What an index is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexShape {
    /// The oid of the index.
    pub index: u32,
    /// The columns of the table; 0 for an expression.
    pub columns: Vec<i16>,
    /// How many of them are keys; the others are only kept.
    pub key_count: usize,
    /// No two rows have one key.
    pub is_unique: bool,
    /// Nor do two without a value.
    pub nulls_are_equal: bool,
    /// Of each key: its collation, its operator class, 1 for descending and 2 for nulls first.
    pub keys: Vec<KeyShape>,
    /// It has rows that fulfil a condition alone.
    pub is_partial: bool,
    /// A key is computed.
    pub is_expression: bool,
}

impl IndexShape {
    /// True if this key, counted from 0, is computed.
    #[must_use]
    pub fn is_computed(&self, key: usize) -> bool {
        self.columns.get(key) == Some(&0)
    }
}

/// How a key of an index is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyShape {
    /// The oid of its collation; 0 for none.
    pub collation: u32,
    /// The oids of its operator family and of the type that its operator class takes.
    pub family: u32,
    /// See `family`.
    pub input: u32,
    /// Great values come first.
    pub is_descending: bool,
    /// What has no value comes first.
    pub nulls_first: bool,
}

/// The columns and indexes of one database.
#[derive(Debug, Default)]
pub struct Shapes {
    /// By relation and number.
    columns: Vec<Column>,
    indexes: HashMap<u32, IndexShape>,
    late: HashMap<(u32, i16), LateColumn>,
    /// Relations with a row that may or may not count.
    doubtful: HashSet<u32>,
}

impl Shapes {
    /// All columns of a relation, in order, from number 1 on without a gap; `None` if they are
    /// not known for sure.
    #[must_use]
    pub fn columns(&self, relation: u32) -> Option<&[Column]> {
        if self.doubtful.contains(&relation) {
            return None;
        }
        let begin = self.columns.partition_point(|column| column.relation < relation);
        let rest = self.columns.get(begin..)?;
        let count = rest.partition_point(|column| column.relation == relation);
        let columns = rest.get(..count)?;
        let in_order = (1_i16..).zip(columns).all(|(number, column)| column.number == number);
        in_order.then_some(columns)
    }

    /// The value that rows have that are older than this column, as it is stored.
    #[must_use]
    pub fn late(&self, column: &Column) -> Option<&LateColumn> {
        self.late.get(&(column.relation, column.number))
    }

    /// The shape of an index; `None` if it is not known for sure.
    #[must_use]
    pub fn index(&self, index: u32) -> Option<&IndexShape> {
        self.indexes.get(&index).filter(|_| !self.doubtful.contains(&index))
    }
}

impl Catalogue {
    /// The columns and indexes of a database; why not, in words, if they cannot be read whole.
    ///
    /// # Errors
    /// A version whose layout is not known, or a catalogue with gaps.
    pub fn shapes(
        &self,
        database: &Database,
        relations: &Relations,
        moment: Moment,
    ) -> Result<Shapes, String> {
        let layout = LAYOUTS.iter().find(|layout| layout.versions.contains(&self.major));
        let layout = layout.ok_or("the columns of this version are not known")?;
        let mut shapes = Shapes::default();
        let mut gaps = Gaps::default();
        let mut transactions = self.transactions(moment);
        let mut read = |oid: u32, each: &mut dyn FnMut(&Tuple<'_>, bool)| {
            let relation = relations.by_oid(oid).ok_or("a catalogue is not listed")?;
            let path = self.file_of(relation, database.oid);
            self.rows(&path, moment, &mut transactions, &mut gaps, |_, tuple, certainty| {
                each(tuple, certainty == Certainty::InDoubt);
            });
            Ok::<(), String>(())
        };
        let mut is_known = false;
        read(PG_ATTRIBUTE, &mut |tuple, in_doubt| {
            let Some(column) = Column::read(tuple, layout) else { return };
            if in_doubt {
                shapes.doubtful.insert(column.relation);
            } else if column.number > 0 && shapes.columns.len() < COLUMNS_MAX {
                is_known |= is_own_collation(&column, tuple, layout);
                if column.has_late_value && shapes.late.len() < LATE_MAX {
                    let late = LateColumn::read(tuple, layout, self.major);
                    shapes.late.extend(late.map(|late| ((column.relation, column.number), late)));
                }
                shapes.columns.push(column);
            }
        })?;
        let mut classes: HashMap<u32, (u32, u32)> = HashMap::new();
        read(PG_OPCLASS, &mut |tuple, in_doubt| {
            let class = tuple
                .fixed(7)
                .filter(|_| !in_doubt)
                .and_then(|data| Some((u32_at(data, 0)?, (u32_at(data, 80)?, u32_at(data, 84)?))));
            classes.extend(class);
        })?;
        read(PG_INDEX, &mut |tuple, in_doubt| {
            let Some(shape) = IndexShape::read(tuple, self.major, &classes) else { return };
            if in_doubt {
                shapes.doubtful.insert(shape.index);
            } else {
                shapes.indexes.insert(shape.index, shape);
            }
        })?;
        if let Some(gap) = gaps.listed.first() {
            return Err(gap.to_string());
        }
        if !is_known || shapes.columns.len() >= COLUMNS_MAX {
            return Err("pg_attribute is not as it must be".to_owned());
        }
        shapes.columns.sort_unstable_by_key(|column| (column.relation, column.number));
        Ok(shapes)
    }

    /// The first file of a relation of this database.
    #[must_use]
    pub fn file_of(&self, relation: &Relation, database: u32) -> std::path::PathBuf {
        self.folder(relation.tablespace, database).join(relation.number.to_string())
    }

    /// How many blocks a relation has, by the lengths of its files.
    #[must_use]
    pub fn block_count(&self, relation: &Relation, database: u32) -> u64 {
        let first = self.file_of(relation, database);
        let mut bytes = 0_u64;
        let mut path = first.clone();
        for segment in 1_u32.. {
            let Ok(found) = std::fs::symlink_metadata(&path) else { break };
            bytes = bytes.saturating_add(found.len());
            path = first.with_extension(segment.to_string());
        }
        bytes.div_ceil(self.shape.page_size.max(1) as u64)
    }

    /// Calls `each` for every sound page of a relation, in order; false if there are others
    /// than those and pages that are all zero.
    pub fn each_page(
        &self,
        relation: &Relation,
        database: u32,
        each: impl FnMut(u32, &[u8]),
    ) -> bool {
        self.each_page_of(relation, database, 0..u32::MAX, each)
    }

    /// The same for some of its blocks.
    pub fn each_page_of(
        &self,
        relation: &Relation,
        database: u32,
        blocks: Range<u32>,
        each: impl FnMut(u32, &[u8]),
    ) -> bool {
        let mut gaps = Gaps::default();
        let path = self.file_of(relation, database);
        self.shape.read_blocks(&path, blocks, Moment::AtRest, &mut gaps, each);
        gaps.count == gaps.zero_pages
    }
}

impl Column {
    fn read(tuple: &Tuple<'_>, layout: &ColumnLayout) -> Option<Self> {
        let data = tuple.fixed(layout.attributes)?;
        Some(Self {
            relation: u32_at(data, 0)?,
            type_oid: u32_at(data, 68)?,
            collation: u32_at(data, layout.collation)?,
            bytes: u16_at(data, layout.bytes).cast_signed(),
            number: u16_at(data, layout.bytes.checked_add(2)?).cast_signed(),
            align: *data.get(layout.align)?,
            has_late_value: *data.get(layout.late)? != 0,
        })
    }
}

impl LateColumn {
    fn read(tuple: &Tuple<'_>, layout: &ColumnLayout, major: u32) -> Option<Self> {
        let data = tuple.fixed(layout.attributes)?;
        let nullable = (layout.attributes..tuple.attributes()).zip(nullable(major));
        let present: Vec<_> =
            nullable.filter(|(index, _)| !tuple.is_null(*index)).map(|(_, shape)| *shape).collect();
        let is_last_there = tuple.attributes().checked_sub(1).is_some_and(|at| !tuple.is_null(at));
        let is_known = usize::from(tuple.attributes().checked_sub(layout.attributes)?)
            == self::nullable(major).len();
        (is_known && is_last_there).then(|| Self {
            data: data.into(),
            begin: layout.collation.saturating_add(4),
            present,
        })
    }
}

/// True for the row of `pg_attribute` about its own `attcollation`, if that is as we read it.
fn is_own_collation(column: &Column, tuple: &Tuple<'_>, layout: &ColumnLayout) -> bool {
    const NAME: &[u8] = b"attcollation\0";
    let name = tuple.data().get(4..).and_then(|rest| rest.get(..NAME.len()));
    column.relation == PG_ATTRIBUTE
        && name == Some(NAME)
        && (column.type_oid, column.bytes, column.align) == (OID, 4, b'i')
        && u16::try_from(column.number) == Ok(layout.attributes)
}

impl IndexShape {
    fn read(tuple: &Tuple<'_>, major: u32, classes: &HashMap<u32, (u32, u32)>) -> Option<Self> {
        let late = u16::from(major >= 15);
        let expressions = late.checked_add(18)?;
        let data = tuple.fixed(expressions)?;
        let count = u16_at(data, 8);
        let key_count = u16_at(data, 10);
        if count > KEYS_MAX || key_count > count {
            return None;
        }
        let (count, key_count) = (usize::from(count), usize::from(key_count));
        let mut at = 24;
        let (columns, collations) = (array(data, &mut at)?, array(data, &mut at)?);
        let (operators, options) = (array(data, &mut at)?, array(data, &mut at)?);
        let key = |index: usize| {
            let oid = |bytes: &[u8]| u32_at(bytes, index.checked_mul(4)?);
            let option = u16_at(options, index.checked_mul(2)?);
            let (family, input) = classes.get(&oid(operators)?).copied().unwrap_or((0, 0));
            Some(KeyShape {
                collation: oid(collations)?,
                family,
                input,
                is_descending: option & 1 != 0,
                nulls_first: option & 2 != 0,
            })
        };
        let columns: Vec<i16> = columns
            .chunks_exact(2)
            .take(count)
            .map(|column| u16_at(column, 0).cast_signed())
            .collect();
        Some(Self {
            index: u32_at(data, 0)?,
            is_expression: columns.contains(&0) || !tuple.is_null(expressions),
            columns,
            key_count,
            is_unique: *data.get(12)? != 0,
            nulls_are_equal: major >= 15 && *data.get(13)? != 0,
            keys: (0..key_count).map(key).collect::<Option<_>>()?,
            is_partial: !tuple.is_null(expressions.checked_add(1)?),
        })
    }
}

/// The elements of an array with one dimension (`int2vector`, `oidvector`) that begins here,
/// aligned to 4; moves on behind it.
fn array<'a>(data: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    const HEADER: usize = 24;
    let begin = at.checked_next_multiple_of(4)?;
    // Never short, never compressed: the types are stored plain.
    let bytes = usize::try_from(u32_at(data, begin)? >> 2).ok()?;
    let end = begin.checked_add(bytes)?;
    *at = end;
    data.get(begin.checked_add(HEADER)?..end)
}
