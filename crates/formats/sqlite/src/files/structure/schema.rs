//! The rows of `sqlite_schema`: which tables and indexes there are, and where they begin.
//!
//! | column | |
//! |---|---|
//! | type | `table`, `index`, `view` or `trigger` |
//! | name | |
//! | tbl_name | the table that it is of |
//! | rootpage | an integer; 0 for what has no b-tree |
//! | sql | the statement that made it; NULL for indexes that a constraint made |
//!
//! A row that SQLite does not take for one of these makes it refuse the whole database. Facts from
//! SQLite's public documentation (`fileformat2.html`, 2.6).

#![deny(clippy::arithmetic_side_effects)]

use std::sync::Arc;

use super::sql;
use super::tree::{Entry, Visitor};
use crate::page::btree::TreeKind;
use crate::page::record::{self, Value};

/// Longer rows are not kept.
const ROW_BYTES_MAX: usize = 1 << 20;
/// All rows together.
const SCHEMA_BYTES_MAX: usize = 16 << 20;

/// A table or an index with a b-tree.
#[derive(Debug, Clone)]
pub struct Object {
    /// It is a table, not an index.
    pub is_table: bool,
    /// Its name.
    pub name: Arc<str>,
    /// The table that it is of.
    pub table: Arc<str>,
    /// Its first page.
    pub root: u32,
    /// The statement that made it.
    pub sql: Option<String>,
    /// The page with its row.
    pub page: u32,
}

impl Object {
    /// The kind of its b-tree, where the schema says for sure.
    #[must_use]
    pub fn kind(&self) -> Option<TreeKind> {
        if !self.is_table {
            return Some(TreeKind::Index);
        }
        match sql::is_without_rowid(self.sql.as_deref()?)? {
            true => Some(TreeKind::Index),
            false => Some(TreeKind::Table),
        }
    }
}

/// The schema, gathered row by row.
#[derive(Debug)]
pub struct Schema {
    /// In the order of their rows.
    pub objects: Vec<Object>,
    /// Rows were left out, because there are too many.
    pub is_cut: bool,
    encoding: u32,
    bytes: usize,
}

impl Schema {
    /// Of a database with this text encoding.
    #[must_use]
    pub fn new(encoding: u32) -> Self {
        Self { objects: Vec::new(), is_cut: false, encoding, bytes: 0 }
    }

    fn text(&self, value: Option<&Value<'_>>) -> Option<String> {
        let Some(Value::Text(bytes)) = value else { return None };
        Some(decode(bytes, self.encoding))
    }

    fn take(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        let values: Vec<_> = record::values(entry.record).take(5).collect();
        let name = self.text(values.get(1)).ok_or("a row of the schema without a name")?;
        let root = match values.get(3) {
            Some(Value::Integer(root)) => *root,
            _ => return Err(format!("the schema's row of {name} has no root page")),
        };
        let sql = self.text(values.get(4));
        let is_statement =
            |sql: &str| sql.get(..2).is_some_and(|begin| begin.eq_ignore_ascii_case("CR"));
        if sql.as_deref().is_some_and(|sql| !sql.is_empty() && !is_statement(sql)) {
            return Err(format!("the schema's row of {name} holds no CREATE statement"));
        }
        let kind = self.text(values.first()).unwrap_or_default();
        let is_table = kind == "table";
        if !is_table && kind != "index" {
            let is_known = kind == "view" || kind == "trigger";
            return if is_known {
                Ok(())
            } else {
                Err(format!("the schema's row of {name} is of no known type"))
            };
        }
        let root = u32::try_from(root).map_err(|_| format!("the root page of {name} is {root}"))?;
        if root == 0 {
            // Virtual tables have none.
            return Ok(());
        }
        let table = self.text(values.get(2)).unwrap_or_default();
        self.bytes = self.bytes.saturating_add(entry.record.len()).saturating_add(100);
        if self.bytes > SCHEMA_BYTES_MAX {
            self.is_cut = true;
            return Ok(());
        }
        let (name, table) = (name.into(), table.into());
        self.objects.push(Object { is_table, name, table, root, sql, page: entry.page });
        Ok(())
    }
}

impl Visitor for Schema {
    fn record_bytes(&self) -> usize {
        ROW_BYTES_MAX
    }

    fn see(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        record::walk_header(entry.record, entry.payload_bytes, |_| {})?;
        if u64::try_from(entry.record.len()) != Ok(entry.payload_bytes) {
            self.is_cut = true;
            return Ok(());
        }
        self.take(entry)
    }
}

/// Text in one of SQLite's encodings: 1 UTF-8, 2 and 3 UTF-16, little- and big-endian.
#[must_use]
pub fn decode(bytes: &[u8], encoding: u32) -> String {
    let (pairs, _) = bytes.as_chunks::<2>();
    let units = |of: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = pairs.iter().map(|pair| of(*pair)).collect();
        String::from_utf16_lossy(&units)
    };
    match encoding {
        2 => units(u16::from_le_bytes),
        3 => units(u16::from_be_bytes),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}
