//! Parquet: a file, a folder of files, or the current state of a Delta or Iceberg table, as one table.
//!
//! It has no key of its own. Where its rows are in the order of a key that the other side has, ranges
//! of the key are ranges of rows, and are read one after the other by a cursor that stays where it
//! was. Where they are not, the whole is read.
//!
//! Only what the pages hold is compared: pages are tested as `check` tests them, decoded by the
//! `parquet` crate, and each value written in its canonical form.

mod constant;
mod cursor;
mod folder;
mod kind;
mod listing;
mod order;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use pagewarden::source::store::StorePath;
use pagewarden_format_parquet::files::content::Obstacle;

use super::statement::{Dialect, quoted};
use super::{Connection, Engine, Query, Range, Sink};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::row::{Row, Value, hex_text};
use crate::table::{Column, Form, Table, TableName};
use cursor::{Cursor, Trouble};
use folder::Folder;
use order::Order;

/// Parquet.
pub const ENGINE: Engine = Engine {
    scheme: "parquet",
    title: "Parquet",
    connect,
    dialect: &AsDuckdb,
    replicate: None,
    is_one_table: true,
};

/// Statements as programs write them that read Parquet by SQL.
#[derive(Debug)]
struct AsDuckdb;

impl Dialect for AsDuckdb {
    fn name(&self, name: &str) -> String {
        quoted(name, '"')
    }

    fn text(&self, text: &str) -> String {
        quoted(text, '\'')
    }

    fn bytes(&self, bytes: &[u8]) -> String {
        format!("from_hex('{}')", hex_text(bytes))
    }

    fn has_row_values(&self) -> bool {
        true
    }

    fn same(&self, one: &str, other: &str) -> String {
        format!("{one} IS NOT DISTINCT FROM {other}")
    }
}

/// Readings that are kept: of the key, and of the columns that are compared.
const CURSORS_MAX: usize = 3;

struct Parquet {
    place: String,
    server: String,
    folder: Folder,
    order: Option<Order>,
    /// Where readings stand, the one that was used last at the end.
    cursors: Vec<Cursor>,
}

fn connect(location: &Location) -> Result<Box<dyn Connection>> {
    let place = location.to_string();
    let path = PathBuf::from(location.database.clone().unwrap_or_default());
    let whole = location.stored.clone().unwrap_or_else(|| StorePath::local(&path));
    let folder = Folder::open(&whole).map_err(|trouble| match trouble {
        (_, Obstacle::Io(error)) if whole.look().is_err() => {
            Error::Connect { place: place.clone(), reason: error.to_string() }
        }
        trouble => refused(&place, &path, trouble),
    })?;
    let server = folder.title.clone();
    Ok(Box::new(Parquet { place, server, folder, order: None, cursors: Vec::new() }))
}

/// Why it cannot be read, in words.
fn refused(place: &str, whole: &Path, (path, obstacle): Trouble) -> Error {
    let name = match path.strip_prefix(whole) {
        Ok(below) if below.as_os_str().is_empty() => String::new(),
        Ok(below) => format!("{}: ", below.display()),
        Err(_) => format!("{}: ", path.display()),
    };
    let reason = match obstacle {
        Obstacle::Io(error) => format!("{name}{error}"),
        Obstacle::Unsupported(why) => format!("{name}{why}"),
        Obstacle::Damaged(why) => format!(
            "{name}damaged: {why}\nhint: pagewarden check {} names what is damaged",
            whole.display()
        ),
    };
    Error::Refused { place: place.to_owned(), reason }
}

impl Parquet {
    fn fail(&self, trouble: Trouble) -> Error {
        let whole = self.place.strip_prefix("parquet:").unwrap_or_default();
        refused(&self.place, Path::new(whole), trouble)
    }

    /// A reading of some columns that can go to a row: one that is kept, or a new one.
    fn cursor(&mut self, columns: &[usize], row: u64) -> Cursor {
        let fits = |cursor: &Cursor| cursor.columns == columns && cursor.may_go_to(row);
        match self.cursors.iter().rposition(fits) {
            Some(index) => self.cursors.remove(index),
            None => Cursor::new(columns.to_vec()),
        }
    }

    fn keep(&mut self, cursor: Cursor) {
        // A reading that went on from where another one stood takes its place.
        self.cursors.retain(|kept| kept.columns != cursor.columns);
        if self.cursors.len() >= CURSORS_MAX {
            self.cursors.remove(0);
        }
        self.cursors.push(cursor);
    }

    /// The rows of a range: from the first up to, and without, the second.
    fn rows_of(&mut self, range: &Range) -> Result<(u64, u64)> {
        let all = self.folder.rows();
        if range.after.is_none() && range.upto.is_none() {
            return Ok((0, all));
        }
        let Some(order) = self.order.take_if(|order| order.key == range.key) else {
            let reason = "its rows are not in the order of the key, so that it has no ranges";
            return Err(Error::Unsupported(format!("{}: {reason}", self.place)));
        };
        let mut cursor = self.cursor(&order.key, u64::MAX);
        let mut rows = |bound: &Option<Vec<Value>>, none: u64| {
            let Some(values) = bound else { return Ok(none) };
            match order.bound(values) {
                Some(bound) => order.rows_upto(&self.folder, &mut cursor, &bound),
                None => Ok(none),
            }
        };
        let found = rows(&range.after, 0).and_then(|begin| Ok((begin, rows(&range.upto, all)?)));
        self.keep(cursor);
        self.order = Some(order);
        let (begin, end) = found.map_err(|trouble| self.fail(trouble))?;
        Ok((begin, end.max(begin)))
    }

    fn column(&self, place: usize) -> Option<&Column> {
        self.folder.columns.get(place)
    }

    /// What cannot be read is refused by its name.
    fn can_read(&self, columns: &[(usize, Form)]) -> Result<()> {
        for (place, _) in columns {
            let Some(column) = self.column(*place) else { continue };
            if matches!(column.form, Form::Opaque(_)) {
                return Err(Error::Unsupported(format!(
                    "{}: the column {} ({}) has no form in which values of all engines are \
                     compared\nhint: leave it out: --exclude-column {}",
                    self.place, column.name, column.declared, column.name
                )));
            }
        }
        Ok(())
    }
}

impl Connection for Parquet {
    fn server(&self) -> &str {
        &self.server
    }

    fn freeze(&mut self) -> Result<()> {
        // Files that change end the reading, and a table's state is that of when it was opened.
        Ok(())
    }

    fn tables(&mut self) -> Result<Vec<TableName>> {
        Ok(vec![TableName { schema: None, name: self.folder.name.clone() }])
    }

    fn describe(&mut self, name: &TableName) -> Result<Table> {
        if name.name != self.folder.name || name.schema.is_some() {
            return Err(Error::NoTable { place: self.place.clone(), table: name.clone() });
        }
        Ok(Table {
            name: name.clone(),
            columns: self.folder.columns.clone(),
            key: Vec::new(),
            engine: self.folder.state.clone(),
            bytes: Some(self.folder.bytes()),
            rows_estimated: Some(self.folder.rows()),
        })
    }

    fn put_in_order(&mut self, table: &mut Table, key: &[usize]) -> Result<bool> {
        if self.order.as_ref().is_none_or(|order| order.key != key) {
            self.cursors.clear();
            self.order = None;
            let found = Order::find(&mut self.folder, key);
            self.order = found.map_err(|trouble| self.fail(trouble))?;
        }
        if self.order.is_none() {
            return Ok(false);
        }
        table.key = key.to_vec();
        for place in key {
            if let Some(column) = table.columns.get_mut(*place) {
                column.nullable = false;
            }
        }
        Ok(true)
    }

    fn count(&mut self, _table: &Table) -> Result<u64> {
        Ok(self.folder.rows())
    }

    fn read(&mut self, query: &Query<'_>, sink: &mut Sink<'_>) -> Result<()> {
        self.can_read(query.columns)?;
        let has_order = self.order.as_ref().is_some_and(|order| order.key == query.range.key);
        if query.ordered && !query.range.key.is_empty() && !has_order {
            let reason = "its rows are not in the order of the key";
            return Err(Error::Unsupported(format!("{}: {reason}", self.place)));
        }
        let (begin, end) = self.rows_of(query.range)?;
        let begin = begin.saturating_add(query.offset);
        let end = query.limit.map_or(end, |limit| end.min(begin.saturating_add(limit)));
        if begin >= end {
            return Ok(());
        }
        let columns: Vec<usize> = query.columns.iter().map(|(place, _)| *place).collect();
        let mut cursor = self.cursor(&columns, begin);
        let folder = &self.folder;
        let mut out = Row::new();
        cursor.go_to(folder, begin).map_err(|trouble| self.fail(trouble))?;
        while cursor.row() < end {
            let next = cursor.has_next(folder).and_then(|is_there| {
                if is_there {
                    cursor.take(folder, query.columns, &mut out)?;
                }
                Ok(is_there)
            });
            if !next.map_err(|trouble| self.fail(trouble))? {
                let why = "fewer rows are there than its footers say".to_owned();
                return Err(self.fail((PathBuf::new(), Obstacle::Damaged(why))));
            }
            sink(&out)?;
        }
        self.keep(cursor);
        Ok(())
    }

    fn native(&mut self, _table: &Table) -> Result<String> {
        Err(Error::Unsupported("Parquet has no checksum of tables of its own".to_owned()))
    }
}
