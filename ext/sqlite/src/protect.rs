//! SQLite's part in `pagewarden protect`: locks, `VACUUM INTO`, and reading rows. The
//! rest is in [`pagewarden::formats::sqlite::protect`].
//!
//! Databases are opened through the VFS of this crate, which verifies every page of
//! one that has markers or sums, and sets them where a checkpoint writes.

use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pagewarden::Error;
use pagewarden::formats::sqlite::protect::{self, Held, Hold, Library};
use pagewarden::protect::{Engine, Feature, Options, Outcome, Request};
use pagewarden::system::OsStrExt as _;
use pagewarden::verify::Progress;
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Rows, ffi};

/// The line for a registry of engines.
pub const ENGINE: Engine = Engine {
    name: protect::NAME,
    summary: protect::SUMMARY,
    has_setting: true,
    modes: protect::MODES,
    features: &[Feature::Heal, Feature::Guard],
    probe: protect::is_database,
    run,
};

/// How long another program's moment of work is waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// Steps of SQLite's machine between two looks at whether to go on.
const STEPS: c_int = 4096;
/// Bytes of rows between two looks.
const WATCHED_BYTES: u64 = 1 << 20;
/// Faults that are asked for, and told.
const FAULTS_MAX: usize = 10;
/// What `PRAGMA integrity_check` says of rows that break a constraint. That is no
/// damage: SQLite lets it come about, by ALTER TABLE and by its options.
const BROKEN_CONSTRAINTS: [&str; 3] =
    ["NULL value in ", " value in ", "CHECK constraint failed in "];

fn run(request: &Request, options: &Options, progress: &dyn Progress) -> Result<Outcome, Error> {
    crate::register().map_err(|error| refused(&request.path, error))?;
    protect::run(request, options, progress, &Linked)
}

/// The SQLite that is linked into this program.
struct Linked;

impl Library for Linked {
    fn hold(&self, path: &Path, how: Hold, heals: bool) -> Result<Box<dyn Held>, Error> {
        let parameters = match how {
            Hold::Alone => "vfs=pagewarden&mode=rw",
            Hold::Reading => "vfs=pagewarden&mode=ro",
        };
        let hold = || -> rusqlite::Result<_> {
            let connection = open(path, parameters)?;
            connection.busy_timeout(PATIENCE)?;
            if heals {
                pragma(&connection, "page_verify_ignore = 1")?;
            }
            // What is locked stays so. In write-ahead log mode, where this must be the
            // first statement, there is then no shared memory, and no second process.
            pragma(&connection, "main.locking_mode = EXCLUSIVE")?;
            pragma(&connection, "cell_size_check = ON")?;
            if how == Hold::Alone {
                connection.execute_batch("BEGIN EXCLUSIVE")?;
            }
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
            if how == Hold::Alone {
                connection.execute_batch("COMMIT")?;
            }
            Ok(connection)
        };
        let connection = hold().map_err(|error| refused(path, error))?;
        Ok(Box::new(Database { connection, path: path.to_owned() }))
    }
}

/// A database that is held.
struct Database {
    connection: Connection,
    path: PathBuf,
}

impl Held for Database {
    fn checkpoint(&mut self) -> Result<(), Error> {
        let checkpoint = || {
            pragma(&self.connection, "main.synchronous = FULL")?;
            let sql = "PRAGMA main.wal_checkpoint(TRUNCATE)";
            self.connection.query_row(sql, [], |row| row.get::<_, i64>(0))
        };
        match checkpoint().map_err(|error| refused(&self.path, error))? {
            0 => Ok(()),
            _ => Err(in_use(&self.path)),
        }
    }

    fn leave_log(&mut self) -> Result<(), Error> {
        let set = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        set.map(drop).map_err(|error| refused(&self.path, error))
    }

    fn write_to(
        &mut self,
        copy: &Path,
        reserved_bytes: u8,
        watch: &dyn Fn(u64) -> bool,
    ) -> Result<bool, Error> {
        let write = || {
            // The copy is synced as a whole, later.
            pragma(&self.connection, "main.synchronous = OFF")?;
            let _watched = Watched::begin(&self.connection, &watch);
            // Not our VFS: see `pagewarden::formats::sqlite::protect`.
            let name = uri(copy, &format!("vfs=unix&reserve={reserved_bytes}"));
            self.connection.execute("VACUUM main INTO ?1", [name])
        };
        match write() {
            Ok(_) => Ok(watch(0)),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                Ok(false)
            }
            Err(error) => Err(refused(&self.path, error)),
        }
    }

    fn compare(&mut self, copy: &Path, watch: &dyn Fn(u64) -> bool) -> Result<Vec<String>, Error> {
        let compare = || -> rusqlite::Result<_> {
            // No other program has it open, and nothing is to be made beside it.
            let copy = open(copy, "vfs=pagewarden&mode=ro&immutable=1")?;
            let _watched = Watched::begin(&copy, &watch);
            let mut faults = structure_faults(&copy)?;
            let _watched = Watched::begin(&self.connection, &watch);
            faults.extend(row_faults(&self.connection, &copy, watch)?);
            Ok(faults)
        };
        match compare() {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                Ok(Vec::new())
            }
            compared => compared.map_err(|error| refused(copy, error)),
        }
    }
}

fn open(path: &Path, parameters: &str) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(uri(path, parameters), flags)
}

/// The name of a file, whatever its bytes are.
fn uri(path: &Path, parameters: &str) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri.push('?');
    uri.push_str(parameters);
    uri
}

/// Sets something; what SQLite answers does not matter.
fn pragma(connection: &Connection, setting: &str) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("PRAGMA {setting}"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// SQLite's error, as it concerns a database that was named.
fn refused(path: &Path, error: rusqlite::Error) -> Error {
    let words = error.to_string();
    let hint = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => return in_use(path),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "it and its folder must be writable; --copy-to makes a changed copy elsewhere"
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "it is damaged: restore it from a backup, or save what is readable with the sqlite3 shell's .recover, into a new file"
        }
        Some(ErrorCode::DiskFull) => "a copy of the whole database is made beside it: make room",
        Some(ErrorCode::Unknown) if words.starts_with("no such ") => {
            "the program that defines this must do it: open it there with vfs=pagewarden, PRAGMA page_verify = CHECKSUM, VACUUM"
        }
        _ => "nothing was changed",
    };
    Error::refused(path, format!("SQLite says: {words}"), hint)
}

fn in_use(path: &Path) -> Error {
    Error::in_use(path, "another program is using it", "stop the programs that use it")
}

/// Looks now and then, while SQLite works, whether it is to go on.
struct Watched<'a> {
    connection: &'a Connection,
}

type Watch<'w> = &'w dyn Fn(u64) -> bool;

impl<'a> Watched<'a> {
    fn begin(connection: &'a Connection, watch: &'a Watch<'_>) -> Self {
        let watch = std::ptr::from_ref(watch).cast_mut().cast::<c_void>();
        // SAFETY: the handle is open. SQLite calls back with `watch`, which outlives
        // this value, and no more once it is dropped.
        unsafe {
            ffi::sqlite3_progress_handler(connection.handle(), STEPS, Some(look), watch);
        }
        Self { connection }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is open; without a function none is called.
        unsafe {
            ffi::sqlite3_progress_handler(self.connection.handle(), 0, None, std::ptr::null_mut());
        }
    }
}

unsafe extern "C" fn look(watch: *mut c_void) -> c_int {
    // SAFETY: set by `Watched::begin`, and alive as long as that is.
    let watch = unsafe { &*watch.cast::<Watch<'_>>() };
    c_int::from(!watch(0))
}

fn structure_faults(copy: &Connection) -> rusqlite::Result<Vec<String>> {
    pragma(copy, "ignore_check_constraints = ON")?;
    let mut statement = copy.prepare("PRAGMA integrity_check")?;
    let mut rows = statement.query([])?;
    let mut faults = Vec::new();
    while let Some(row) = rows.next()? {
        let words: String = row.get(0)?;
        let is_constraint = BROKEN_CONSTRAINTS.iter().any(|text| words.contains(text));
        if words != "ok" && !is_constraint && faults.len() < FAULTS_MAX {
            faults.push(words);
        }
    }
    Ok(faults)
}

/// The objects of a schema, but for where they are: type, name, table, statement.
fn objects(connection: &Connection) -> rusqlite::Result<Vec<[Option<String>; 4]>> {
    let sql = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name, sql";
    let mut statement = connection.prepare(sql)?;
    let rows =
        statement.query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?]))?;
    rows.collect()
}

fn row_faults(
    old: &Connection,
    new: &Connection,
    watch: Watch<'_>,
) -> rusqlite::Result<Vec<String>> {
    if objects(old)? != objects(new)? {
        return Ok(vec!["the copy has another schema".to_owned()]);
    }
    let mut faults = Vec::new();
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 ORDER BY name";
    let mut statement = old.prepare(sql)?;
    let names = statement.query_map([], |row| row.get(0))?;
    for name in names.collect::<rusqlite::Result<Vec<String>>>()? {
        let sql = reading(old, &name)?;
        let (mut old, mut new) = (old.prepare(&sql)?, new.prepare(&sql)?);
        let columns = old.column_count();
        let (old, new) = (old.query([])?, new.query([])?);
        if let Some(row) = first_difference(old, new, columns, watch)? {
            faults.push(format!("the copy differs in row {row} of table {name}"));
        }
    }
    Ok(faults)
}

/// The statement that reads a table's rows in the order in which they lie, with their
/// rowids, and without columns that are computed when they are read.
fn reading(connection: &Connection, table: &str) -> rusqlite::Result<String> {
    let sql = "SELECT wr FROM pragma_table_list(?1) WHERE schema = 'main'";
    let is_without_rowid: bool = connection.query_row(sql, [table], |row| row.get(0))?;
    let sql = "SELECT name, hidden FROM pragma_table_xinfo(?1, 'main')";
    let mut statement = connection.prepare(sql)?;
    let columns = statement.query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let columns: Vec<(String, i64)> = columns.collect::<rusqlite::Result<_>>()?;
    let is_taken =
        |name: &&str| columns.iter().any(|(column, _)| column.eq_ignore_ascii_case(name));
    // A name that is a column's does not mean the rowid.
    let rowid = ["rowid", "_rowid_", "oid"].into_iter().find(|name| !is_taken(name));
    let mut names: Vec<String> =
        rowid.filter(|_| !is_without_rowid).map(str::to_owned).into_iter().collect();
    const VIRTUAL: i64 = 2;
    names.extend(
        columns.iter().filter(|(_, hidden)| *hidden != VIRTUAL).map(|(name, _)| quoted(name)),
    );
    Ok(format!("SELECT {} FROM main.{} NOT INDEXED", names.join(", "), quoted(table)))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The number of the first row in which the two differ, from 1.
fn first_difference(
    mut old: Rows<'_>,
    mut new: Rows<'_>,
    columns: usize,
    watch: Watch<'_>,
) -> rusqlite::Result<Option<u64>> {
    let mut unwatched = 0_u64;
    for number in 1.. {
        let (old, new) = match (old.next()?, new.next()?) {
            (None, None) => break,
            (Some(old), Some(new)) => (old, new),
            _ => return Ok(Some(number)),
        };
        for column in 0..columns {
            let (old, new) = (old.get_ref(column)?, new.get_ref(column)?);
            if !is_same(old, new) {
                return Ok(Some(number));
            }
            unwatched = unwatched.saturating_add(bytes_of(old));
        }
        if unwatched > WATCHED_BYTES && !watch(std::mem::take(&mut unwatched)) {
            break;
        }
    }
    watch(unwatched);
    Ok(None)
}

fn is_same(old: ValueRef<'_>, new: ValueRef<'_>) -> bool {
    match (old, new) {
        (ValueRef::Real(old), ValueRef::Real(new)) => old.to_bits() == new.to_bits(),
        _ => old == new,
    }
}

/// What was read of both.
fn bytes_of(value: ValueRef<'_>) -> u64 {
    let bytes = match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => size_of::<i64>(),
    };
    (bytes as u64).saturating_mul(2)
}
