//! What the rows of four catalogues say, in every version.
//!
//! Offsets into the attributes, by version; those of 9.6 to 11 have their oid in
//! the header of the row, where they have one.
//!
//! ```text
//! pg_class       9.6-11  12-17   18   width
//! oid                 -      0    0      4
//! relname             0      4    4     64
//! relnamespace       64     68   68      4
//! relam              80     84   84      4
//! relfilenode        84     88   88      4
//! reltablespace      88     92   92      4
//! relpages           92     96   96      4
//! reltoastrelid     104    108  112      4
//! relisshared       109    113  117      1
//! relpersistence    110    114  118      1
//! relkind           111    115  119      1
//! relnatts          112    116  120      2
//! relfrozenxid  *   132    132  136      4   (* 128 up to 10)
//! relminmxid    *   136    136  140      4   (* 132 up to 10)
//!
//! pg_database    9.6-11  12-14   15-16  17-18  width
//! oid                 -      0      0      0      4
//! datname             0      4      4      4     64
//! datistemplate     200    204     77     77      1
//! datallowconn      201    205     78     78      1
//! datconnlimit      204    208     80     80      4
//! datfrozenxid      212    216     84     84      4
//! datminmxid        216    220     88     88      4
//! dattablespace     220    224     92     92      4
//!
//! pg_index       9.6-10  11-14  15-18   width   (no oid)
//! indexrelid          0      0      0      4
//! indrelid            4      4      4      4
//! indisvalid         15     17     18      1
//! indisready         17     19     20      1
//! indislive          18     20     21      1
//!
//! pg_namespace   9.6-11  12-18   width
//! oid                 -      0      4
//! nspname             0      4     64
//! ```
//!
//! Sources: `src/include/catalog/pg_class.h`, `pg_database.h`, `pg_index.h` and
//! `pg_namespace.h` of each version; every column is compared with what servers
//! of all these versions say, in `tests/catalogue.rs`.

use std::ops::RangeInclusive;

use crate::files::catalogue::tuple::Tuple;
use crate::files::control::u32_at;
use crate::files::witness::tid::u16_at;

/// `NAMEDATALEN` in every build that is distributed.
const NAME_BYTES: usize = 64;

/// A column of the tables above: where it stands, in rows of some versions.
struct ClassLayout {
    versions: RangeInclusive<u32>,
    /// Attributes up to the last one wanted.
    attributes: u16,
    name: usize,
    namespace: usize,
    method: usize,
    number: usize,
    tablespace: usize,
    pages: usize,
    toast: usize,
    shared: usize,
    persistence: usize,
    kind: usize,
    /// `relnatts` stands right behind the kind, and `relminmxid` behind this.
    frozen: usize,
}

#[rustfmt::skip]
const CLASS: &[ClassLayout] = &[
    ClassLayout {
        versions: 9..=10, attributes: 16, name: 0, namespace: 64, method: 80, number: 84, tablespace: 88,
        pages: 92, toast: 104, shared: 109, persistence: 110, kind: 111, frozen: 128,
    },
    ClassLayout {
        versions: 11..=11, attributes: 16, name: 0, namespace: 64, method: 80, number: 84, tablespace: 88,
        pages: 92, toast: 104, shared: 109, persistence: 110, kind: 111, frozen: 132,
    },
    ClassLayout {
        versions: 12..=17, attributes: 17, name: 4, namespace: 68, method: 84, number: 88, tablespace: 92,
        pages: 96, toast: 108, shared: 113, persistence: 114, kind: 115, frozen: 132,
    },
    ClassLayout {
        versions: 18..=18, attributes: 18, name: 4, namespace: 68, method: 84, number: 88, tablespace: 92,
        pages: 96, toast: 112, shared: 117, persistence: 118, kind: 119, frozen: 136,
    },
];

struct DatabaseLayout {
    versions: RangeInclusive<u32>,
    attributes: u16,
    name: usize,
    template: usize,
    connections: usize,
    limit: usize,
    tablespace: usize,
}

#[rustfmt::skip]
const DATABASE: &[DatabaseLayout] = &[
    DatabaseLayout { versions: 9..=11, attributes: 12, name: 0, template: 200, connections: 201, limit: 204, tablespace: 220 },
    DatabaseLayout { versions: 12..=14, attributes: 13, name: 4, template: 204, connections: 205, limit: 208, tablespace: 224 },
    DatabaseLayout { versions: 15..=16, attributes: 11, name: 4, template: 77, connections: 78, limit: 80, tablespace: 92 },
    DatabaseLayout { versions: 17..=18, attributes: 12, name: 4, template: 77, connections: 78, limit: 80, tablespace: 92 },
];

struct IndexLayout {
    versions: RangeInclusive<u32>,
    attributes: u16,
    valid: usize,
    ready: usize,
    live: usize,
}

#[rustfmt::skip]
const INDEX: &[IndexLayout] = &[
    IndexLayout { versions: 9..=10, attributes: 11, valid: 15, ready: 17, live: 18 },
    IndexLayout { versions: 11..=14, attributes: 12, valid: 17, ready: 19, live: 20 },
    IndexLayout { versions: 15..=18, attributes: 13, valid: 18, ready: 20, live: 21 },
];

/// A row of `pg_class`.
#[derive(Debug, Clone, Copy)]
pub struct ClassRow<'a> {
    /// The relation's oid.
    pub oid: u32,
    /// Its name, in the encoding of the database.
    pub name: &'a [u8],
    /// The oid of its schema.
    pub namespace: u32,
    /// The oid of its access method; 0 if it has none, as tables up to 11.
    pub method: u32,
    /// Its file number; 0 if it has no file, or the map names it.
    pub number: u32,
    /// The oid of its tablespace; 0 for the default one of the database.
    pub tablespace: u32,
    /// Pages when it was last counted.
    pub pages: u32,
    /// The oid of its TOAST table, or 0.
    pub toast: u32,
    /// True for relations of the whole cluster.
    pub is_shared: bool,
    /// `p` permanent, `u` unlogged, `t` temporary.
    pub persistence: u8,
    /// `r` table, `i` index, `S` sequence, `t` TOAST, `m` materialised view ...
    pub kind: u8,
    /// Columns, those that were dropped among them.
    pub columns: u16,
    /// The oldest transaction and the oldest multixact in rows that are not frozen; 0
    /// where there are no rows.
    pub frozen: (u32, u32),
}

impl<'a> ClassRow<'a> {
    /// Reads a row; `None` if no server of this version writes such a row.
    #[must_use]
    pub fn read(tuple: &Tuple<'a>, major: u32) -> Option<Self> {
        let layout = CLASS.iter().find(|layout| layout.versions.contains(&major))?;
        let data = tuple.fixed(layout.attributes)?;
        Some(Self {
            oid: oid(tuple, data, major)?,
            name: name_at(data, layout.name)?,
            namespace: u32_at(data, layout.namespace)?,
            method: u32_at(data, layout.method)?,
            number: u32_at(data, layout.number)?,
            tablespace: u32_at(data, layout.tablespace)?,
            pages: u32_at(data, layout.pages)?,
            toast: u32_at(data, layout.toast)?,
            is_shared: bool_at(data, layout.shared)?,
            persistence: *data.get(layout.persistence)?,
            kind: *data.get(layout.kind)?,
            columns: u16_at(data, layout.kind.checked_add(1)?),
            frozen: (u32_at(data, layout.frozen)?, u32_at(data, layout.frozen.checked_add(4)?)?),
        })
    }
}

/// A row of `pg_database`.
#[derive(Debug, Clone, Copy)]
pub struct DatabaseRow<'a> {
    /// The database's oid.
    pub oid: u32,
    /// Its name, in whatever encoding it was made.
    pub name: &'a [u8],
    /// True if anyone may copy it.
    pub is_template: bool,
    /// False if no user may connect.
    pub allows_connections: bool,
    /// How many users may connect: -1 any number, -2 none ever again, since DROP
    /// DATABASE was interrupted.
    pub connection_limit: i32,
    /// The oid of its default tablespace.
    pub tablespace: u32,
    /// The oldest transaction and the oldest multixact that it still holds.
    pub frozen: (u32, u32),
}

impl<'a> DatabaseRow<'a> {
    /// Reads a row; `None` if no server of this version writes such a row.
    #[must_use]
    pub fn read(tuple: &Tuple<'a>, major: u32) -> Option<Self> {
        let layout = DATABASE.iter().find(|layout| layout.versions.contains(&major))?;
        let data = tuple.fixed(layout.attributes)?;
        Some(Self {
            oid: oid(tuple, data, major)?,
            name: name_at(data, layout.name)?,
            is_template: bool_at(data, layout.template)?,
            allows_connections: bool_at(data, layout.connections)?,
            connection_limit: u32_at(data, layout.limit)?.cast_signed(),
            // Both stand right before it.
            frozen: (
                u32_at(data, layout.tablespace.checked_sub(8)?)?,
                u32_at(data, layout.tablespace.checked_sub(4)?)?,
            ),
            tablespace: u32_at(data, layout.tablespace)?,
        })
    }
}

/// A row of `pg_index`.
#[derive(Debug, Clone, Copy)]
pub struct IndexRow {
    /// The index's oid.
    pub index: u32,
    /// The oid of its table.
    pub table: u32,
    /// Queries may use it.
    pub is_valid: bool,
    /// Writers maintain it.
    pub is_ready: bool,
    /// It is not being dropped.
    pub is_live: bool,
}

impl IndexRow {
    /// Reads a row; `None` if no server of this version writes such a row.
    #[must_use]
    pub fn read(tuple: &Tuple<'_>, major: u32) -> Option<Self> {
        let layout = INDEX.iter().find(|layout| layout.versions.contains(&major))?;
        let data = tuple.fixed(layout.attributes)?;
        Some(Self {
            index: u32_at(data, 0)?,
            table: u32_at(data, 4)?,
            is_valid: bool_at(data, layout.valid)?,
            is_ready: bool_at(data, layout.ready)?,
            is_live: bool_at(data, layout.live)?,
        })
    }
}

/// A row of `pg_namespace`.
#[derive(Debug, Clone, Copy)]
pub struct NamespaceRow<'a> {
    /// The schema's oid.
    pub oid: u32,
    /// Its name.
    pub name: &'a [u8],
}

impl<'a> NamespaceRow<'a> {
    /// Reads a row; `None` if no server of this version writes such a row.
    #[must_use]
    pub fn read(tuple: &Tuple<'a>, major: u32) -> Option<Self> {
        let before = oid_attributes(major);
        let data = tuple.fixed(before.saturating_add(1))?;
        let name = name_at(data, usize::from(before) * 4)?;
        Some(Self { oid: oid(tuple, data, major)?, name })
    }
}

/// How many attributes the oid is.
fn oid_attributes(major: u32) -> u16 {
    if major < 12 { 0 } else { 1 }
}

fn oid(tuple: &Tuple<'_>, data: &[u8], major: u32) -> Option<u32> {
    let oid = if oid_attributes(major) == 0 { tuple.header_oid() } else { u32_at(data, 0) };
    oid.filter(|oid| *oid != 0)
}

/// A name up to its first zero byte, which it must have.
fn name_at(data: &[u8], at: usize) -> Option<&[u8]> {
    let field = data.get(at..)?.get(..NAME_BYTES)?;
    let length = field.iter().position(|byte| *byte == 0)?;
    field.get(..length)
}

fn bool_at(data: &[u8], at: usize) -> Option<bool> {
    match data.get(at)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}
