//! SQLite: files, read in process; also a database that lies in a pack.
//!
//! Values have types, columns merely prefer one. What a column's values are is read
//! from its declared type, by the words that people use; a value that is something
//! else is kept as it is, and so equals itself only.

use std::path::Path;

use pagewarden::pack::is_pack;
use rusqlite::types::ValueRef;
use rusqlite::{Connection as Database, OpenFlags};

use super::interrupt::Interrupt;
use super::statement::{Dialect, quoted, select};
use super::{Connection, Engine, Query, Sink};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::row::{Row, Tag, Value, hex_text};
use crate::table::{Column, Filled, Form, Table, TableName};

/// SQLite.
pub const ENGINE: Engine = Engine {
    scheme: "sqlite",
    title: "SQLite",
    connect,
    dialect: &SqliteDialect,
    replicate: None,
    is_one_table: false,
};

#[derive(Debug)]
struct SqliteDialect;

impl Dialect for SqliteDialect {
    fn name(&self, name: &str) -> String {
        quoted(name, '"')
    }

    fn text(&self, text: &str) -> String {
        quoted(text, '\'')
    }

    fn bytes(&self, bytes: &[u8]) -> String {
        format!("x'{}'", hex_text(bytes))
    }

    fn has_row_values(&self) -> bool {
        true
    }

    fn same(&self, one: &str, other: &str) -> String {
        format!("{one} IS {other}")
    }

    fn written(&self, _: &Column, value: &Value) -> Option<String> {
        // SQLite has no word for it.
        match (value.tag, value.payload.as_slice()) {
            (Tag::Number, b"inf") => Some("9e999".to_owned()),
            (Tag::Number, b"-inf") => Some("-9e999".to_owned()),
            _ => None,
        }
    }

    fn holds(&self, column: &Column, value: &Value, written: &str) -> Option<String> {
        let name = self.name(&column.name);
        match value.tag {
            // Texts of one moment are many.
            Tag::Time => {
                Some(self.same(&format!("julianday({name})"), &format!("julianday({written})")))
            }
            // So are those of one JSON, and there is no function that says so.
            Tag::Json => Some(format!("json_valid({name})")),
            _ => None,
        }
    }
}

struct Sqlite {
    database: Database,
    place: String,
    server: String,
}

/// How long a writer's lock is waited for.
const BUSY_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

fn connect(location: &Location) -> Result<Box<dyn Connection>> {
    let place = location.to_string();
    let path = location.database.clone().unwrap_or_default();
    let fail = |reason: String| Error::Connect { place: place.clone(), reason };
    if location.stored.is_some() {
        let why = "a SQLite database is compared on this machine only: copy it here first";
        return Err(fail(why.to_owned()));
    }
    if !Path::new(&path).is_file() {
        let hint = match path.contains('?') {
            true => "\nhint: the path of the file alone; a table is named with --table",
            false => "",
        };
        return Err(fail(format!("there is no such file{hint}")));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let database = match is_pack(Path::new(&path)) {
            true => pagewarden_sqlite::open_read_only(Path::new(&path))?,
            false => Database::open_with_flags(&path, flags)?,
        };
        database.busy_timeout(BUSY_LIMIT)?;
        database.execute_batch("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF;")?;
        // The first look at the file itself.
        database.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(database)
    };
    let database = open().map_err(|error: rusqlite::Error| {
        // To undo it writes, and nothing is written to what is looked at.
        let is_to_be_undone =
            error.sqlite_error_code() == Some(rusqlite::ErrorCode::ReadOnly) && has_journal(&path);
        fail(match is_to_be_undone {
            true => "its last transaction was interrupted, and is not undone yet\nhint: copy it with its \
                     -journal, open the copy once with a program that may write, and compare the copy"
                .to_owned(),
            false => error.to_string(),
        })
    })?;
    let server = format!("SQLite {}", rusqlite::version());
    Ok(Box::new(Sqlite { database, place, server }))
}

fn has_journal(path: &str) -> bool {
    Path::new(&format!("{path}-journal")).is_file()
}

impl Sqlite {
    fn fail(&self, error: &rusqlite::Error) -> Error {
        Error::Refused { place: self.place.clone(), reason: error.to_string() }
    }

    fn columns(
        &self,
        name: &TableName,
        has_rowid: bool,
    ) -> rusqlite::Result<(Vec<Column>, Vec<usize>)> {
        let sql = "SELECT name, type, \"notnull\", pk, hidden FROM pragma_table_xinfo(?1) WHERE hidden <> 1";
        let mut statement = self.database.prepare(sql)?;
        let mut rows = statement.query([&name.name])?;
        let mut columns = Vec::new();
        let mut key: Vec<(i64, usize)> = Vec::new();
        while let Some(row) = rows.next()? {
            let declared: String = row.get(1)?;
            let (form, exact) = form_of(&declared);
            let part_of_key: i64 = row.get(3)?;
            // Generated columns, which are not kept or are.
            let hidden: i64 = row.get(4)?;
            if part_of_key > 0 {
                key.push((part_of_key, columns.len()));
            }
            columns.push(Column {
                name: row.get(0)?,
                wire: String::new(),
                character_set: None,
                nullable: row.get::<_, i64>(2)? == 0 && (part_of_key == 0 || has_rowid),
                declared,
                form,
                exact,
                filled: if matches!(hidden, 2 | 3) { Filled::Made } else { Filled::Said },
            });
        }
        key.sort_unstable();
        let key: Vec<usize> = key.into_iter().map(|(_, place)| place).collect();
        // A key of one column that is called INTEGER is the row's number; else a key may be NULL.
        if let [place] = key.as_slice()
            && let Some(column) = columns.get_mut(*place)
            && column.declared.eq_ignore_ascii_case("INTEGER")
        {
            column.nullable = false;
        }
        Ok((columns, key))
    }
}

impl Connection for Sqlite {
    fn server(&self) -> &str {
        &self.server
    }

    fn freeze(&mut self) -> Result<()> {
        // The first reading within takes the snapshot.
        let begin = "BEGIN; SELECT count(*) FROM sqlite_schema;";
        self.database.execute_batch(begin).map_err(|error| self.fail(&error))
    }

    fn tables(&mut self) -> Result<Vec<TableName>> {
        let sql = "SELECT name FROM pragma_table_list WHERE schema = 'main' \
                   AND type IN ('table', 'virtual') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
                   ORDER BY name";
        let names = || -> rusqlite::Result<Vec<TableName>> {
            let mut statement = self.database.prepare(sql)?;
            let names = statement.query_map([], |row| row.get(0))?;
            names.map(|name| Ok(TableName { schema: None, name: name? })).collect()
        };
        names().map_err(|error| self.fail(&error))
    }

    fn describe(&mut self, name: &TableName) -> Result<Table> {
        let sql = "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?1";
        let without_rowid: Option<i64> =
            match self.database.query_row(sql, [&name.name], |row| row.get(0)) {
                Ok(answer) => Some(answer),
                Err(rusqlite::Error::QueryReturnedNoRows) => None,
                Err(error) => return Err(self.fail(&error)),
            };
        let Some(without_rowid) = without_rowid else {
            return Err(Error::NoTable { place: self.place.clone(), table: name.clone() });
        };
        let columns = self.columns(name, without_rowid == 0);
        let (columns, key) = columns.map_err(|error| self.fail(&error))?;
        Ok(Table {
            name: name.clone(),
            columns,
            key,
            engine: format!("main.{}", SqliteDialect.name(&name.name)),
            bytes: None,
            rows_estimated: None,
        })
    }

    fn count(&mut self, table: &Table) -> Result<u64> {
        let sql = format!("SELECT count(*) FROM {}", table.engine);
        let count: i64 = self
            .database
            .query_row(&sql, [], |row| row.get(0))
            .map_err(|error| self.fail(&error))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    fn read(&mut self, query: &Query<'_>, sink: &mut Sink<'_>) -> Result<()> {
        let sql = select(&SqliteDialect, query);
        let mut statement = self.database.prepare(&sql).map_err(|error| self.fail(&error))?;
        let mut rows = statement.query([]).map_err(|error| self.fail(&error))?;
        let mut out = Row::new();
        while let Some(row) = rows.next().map_err(|error| self.fail(&error))? {
            out.clear();
            for (index, (_, form)) in query.columns.iter().enumerate() {
                let value = row.get_ref(index).map_err(|error| self.fail(&error))?;
                append(&mut out, form, value);
            }
            sink(&out)?;
        }
        Ok(())
    }

    fn interrupt(&self) -> Option<Interrupt> {
        let handle = self.database.get_interrupt_handle();
        Some(Box::new(move || handle.interrupt()))
    }

    fn native(&mut self, _table: &Table) -> Result<String> {
        Err(Error::Unsupported("SQLite has no checksum of tables of its own".to_owned()))
    }
}

fn append(row: &mut Row, form: &Form, value: ValueRef<'_>) {
    // To SQLite JSON is a type of numbers, and "1e2" in such a column the number 100.
    match value {
        ValueRef::Null => row.null(),
        ValueRef::Integer(integer) if *form == Form::Json => {
            row.json(integer.to_string().as_bytes());
        }
        ValueRef::Real(real) if *form == Form::Json => row.json(format!("{real:e}").as_bytes()),
        ValueRef::Integer(integer) => row.integer(integer),
        ValueRef::Real(real) => row.float(real),
        ValueRef::Text(text) => form.append(row, Tag::Text, text),
        ValueRef::Blob(bytes) => form.append(row, Tag::Bytes, bytes),
    }
}

/// What a declared type says of the values, and whether they are whole numbers.
fn form_of(declared: &str) -> (Form, bool) {
    let declared = declared.to_ascii_uppercase();
    let has = |word: &str| declared.contains(word);
    // SQLite's own rule comes first: INT anywhere makes integers.
    if has("INT") && !has("INTERVAL") && !has("POINT") {
        (Form::Number, true)
    } else if has("CHAR") || has("CLOB") || has("TEXT") || has("STRING") {
        (Form::Text, false)
    } else if has("JSON") {
        (Form::Json, false)
    } else if has("UUID") {
        (Form::Uuid, false)
    } else if has("DATETIME") || has("TIMESTAMP") {
        (Form::Moment, false)
    } else if has("DATE") {
        (Form::Date, false)
    } else if has("TIME") {
        (Form::Time, false)
    } else if has("REAL") || has("FLOA") || has("DOUB") || has("NUM") || has("DEC") || has("BOOL") {
        (Form::Number, false)
    } else {
        (Form::Any, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_types_say_what_values_are() {
        for (declared, form) in [
            ("INTEGER", Form::Number),
            ("bigint unsigned", Form::Number),
            ("DECIMAL(12,2)", Form::Number),
            ("boolean", Form::Number),
            ("VARCHAR(20)", Form::Text),
            ("timestamp(6)", Form::Moment),
            ("DATE", Form::Date),
            ("jsonb", Form::Json),
            ("BLOB", Form::Any),
            ("", Form::Any),
        ] {
            assert_eq!(form_of(declared).0, form, "{declared}");
        }
    }
}
