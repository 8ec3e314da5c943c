//! `PRAGMA page_verify`, `PRAGMA page_verify_ignore` and `PRAGMA page_verify_suspects`.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::time::{Duration, Instant};

use pagewarden::formats::sqlite::checksum::page_verify::Mode;
use rusqlite::{Connection, ffi};

use crate::database::{Database, Layout, ROOM};
use crate::{suspects, vfs};

/// The lock that a checkpoint holds, among those of the wal-index.
pub const CHECKPOINT_LOCK: c_int = 1;

/// How long a change of the setting waits for other processes.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// What a pragma answers: a row, or an error.
pub type Answer = Result<Row, String>;

/// A row that a pragma answers.
#[derive(Debug)]
pub struct Row {
    pub words: String,
    /// First the connection must be asked to leave room for markers.
    pub needs_reserve: bool,
}

impl Row {
    fn new(words: impl Into<String>) -> Self {
        Self { words: words.into(), needs_reserve: false }
    }
}

/// True if the pragma is the one that tells or changes the setting.
pub fn is_setting(name: &str) -> bool {
    name.eq_ignore_ascii_case(SETTING)
}

const SETTING: &str = "page_verify";

/// The connection that has a file open, and the file as it knows it.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    pub db: *mut ffi::sqlite3,
    pub file: *mut ffi::sqlite3_file,
}

impl Host {
    /// Does something with the file's state, which must not call SQLite.
    ///
    /// # Errors
    ///
    /// In words: the file is none of this VFS.
    pub fn with<T>(self, work: impl FnOnce(&mut Database) -> T) -> Result<T, String> {
        // SAFETY: the file is open: a pragma is asked of it. No other reference to its state lives now.
        let database = unsafe { vfs::database_of(self.file) };
        database.map(work).ok_or_else(|| "this is no file of the pagewarden VFS".to_owned())
    }
}

/// Said where a setting was asked for that there is not.
pub fn no_mode(word: &str) -> String {
    format!("{SETTING} is NONE, TORN_PAGE_DETECTION or CHECKSUM, not {word}")
}

/// Answers a pragma; `None` if it is not one of this VFS.
pub fn answer(
    database: &mut Database,
    host: Option<Host>,
    name: &str,
    argument: Option<&str>,
) -> Option<Answer> {
    if is_setting(name) {
        Some(match argument {
            // So that what is answered for a database without a page comes true.
            None => setting(database)
                .map(|setting| Row { words: setting.to_owned(), needs_reserve: is_new(database) }),
            Some(word) => match Mode::of_name(word) {
                Some(mode) => set(database, host, mode),
                None => Err(no_mode(word)),
            },
        })
    } else if name.eq_ignore_ascii_case("page_verify_ignore") {
        if let Some(word) = argument {
            database.ignores = is_yes(word);
        }
        Some(Ok(Row::new(u8::from(database.ignores).to_string())))
    } else if name.eq_ignore_ascii_case("page_verify_suspects") {
        // A pragma and not the table alone: where page 1 fails, SQLite prepares no statement.
        Some(Ok(Row::new(suspects::described(&database.path))))
    } else if name.eq_ignore_ascii_case("page_size") && argument.is_some() {
        if let Err(code) = database.see() {
            return Some(Err(unreadable(code)));
        }
        // A VACUUM would write pages of the new size in pieces of the old one. Programs that ask for the
        // size that there is, as many do each time they open a database, ask for nothing.
        let is_other = page_size_of(argument).is_some_and(|bytes| bytes != database.page_size);
        (database.layout != Layout::Plain && is_other).then(|| {
            Err("the page size of a protected database cannot be changed in place: VACUUM INTO a \
                 new one"
                .to_owned())
        })
    } else {
        None
    }
}

/// The page size that a word means to SQLite, which reads digits up to the first other sign and passes over
/// what can be none.
fn page_size_of(word: Option<&str>) -> Option<usize> {
    let word = word?.trim_start();
    let end = word.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(word.len());
    let bytes: usize = word.get(..end)?.parse().ok()?;
    (bytes.is_power_of_two() && (512..=65_536).contains(&bytes)).then_some(bytes)
}

/// A word for yes, as SQLite takes it.
pub fn is_yes(word: &str) -> bool {
    ["1", "on", "true", "yes"].iter().any(|yes| word.trim().eq_ignore_ascii_case(yes))
}

fn is_empty(database: &Database) -> bool {
    database.file.size() == Ok(0)
}

fn is_new(database: &Database) -> bool {
    database.layout == Layout::Plain && is_empty(database)
}

fn setting(database: &mut Database) -> Result<&'static str, String> {
    let seen =
        if database.lock < ffi::SQLITE_LOCK_RESERVED { database.look() } else { database.see() };
    seen.map_err(unreadable)?;
    Ok(match database.layout {
        Layout::Marked { setting, .. } => setting.name(),
        Layout::Official => Mode::Checksum.name(),
        Layout::Plain if is_empty(database) => database.initial.name(),
        Layout::Plain => Mode::None.name(),
    })
}

fn unreadable(code: c_int) -> String {
    format!("page 1 cannot be read: error {code} of SQLite")
}

fn set(database: &mut Database, host: Option<Host>, mode: Mode) -> Answer {
    let is_in_transaction = match host {
        // SAFETY: the connection is open: it is the one that asks. With an exclusive locking mode
        // it has its lock outside of transactions too.
        Some(host) => unsafe { ffi::sqlite3_get_autocommit(host.db) == 0 },
        None => database.lock >= ffi::SQLITE_LOCK_RESERVED,
    };
    if is_in_transaction {
        return Err("page_verify cannot be changed inside a transaction".to_owned());
    }
    database.look().map_err(unreadable)?;
    match database.layout {
        Layout::Official if mode == Mode::Checksum => Ok(Row::new(mode.name())),
        Layout::Official => {
            Err("8 reserved bytes hold the official checksum and no mode: VACUUM INTO a database \
                 with 24"
                .to_owned())
        }
        Layout::Plain => {
            database.initial = mode;
            let words = match (is_empty(database), mode) {
                (true, _) => mode.name().to_owned(),
                (false, Mode::None) => return Ok(Row::new(mode.name())),
                (false, _) => format!("NONE, and after VACUUM {}", mode.name()),
            };
            Ok(Row { words, needs_reserve: true })
        }
        Layout::Marked { .. } => match set_when_free(database, mode) {
            ffi::SQLITE_OK => Ok(Row::new(mode.name())),
            ffi::SQLITE_BUSY => Err("the database is in use: try again".to_owned()),
            ffi::SQLITE_IOERR_DATA => Err("page 1 is damaged".to_owned()),
            other => Err(format!("the setting could not be written (error {other})")),
        },
    }
}

/// Others hold their locks for moments only.
fn set_when_free(database: &mut Database, mode: Mode) -> c_int {
    let begin = Instant::now();
    loop {
        let result = if database.has_shm {
            set_in_wal_mode(database, mode)
        } else {
            set_under_lock(database, mode)
        };
        if result != ffi::SQLITE_BUSY || begin.elapsed() > PATIENCE {
            return result;
        }
        std::thread::sleep(PAUSE);
    }
}

/// In WAL mode, only a checkpoint writes the main file.
fn set_in_wal_mode(database: &mut Database, mode: Mode) -> c_int {
    let exclusive = ffi::SQLITE_SHM_EXCLUSIVE;
    let result = database.file.shm_lock(CHECKPOINT_LOCK, 1, ffi::SQLITE_SHM_LOCK | exclusive);
    if result != ffi::SQLITE_OK {
        return result;
    }
    let result = database.write_setting(mode);
    database.file.shm_lock(CHECKPOINT_LOCK, 1, ffi::SQLITE_SHM_UNLOCK | exclusive);
    result
}

fn set_under_lock(database: &mut Database, mode: Mode) -> c_int {
    let before = database.lock;
    let levels = [ffi::SQLITE_LOCK_SHARED, ffi::SQLITE_LOCK_RESERVED, ffi::SQLITE_LOCK_EXCLUSIVE];
    let mut result = ffi::SQLITE_OK;
    for level in levels.into_iter().filter(|level| *level > before) {
        result = database.file.lock(level);
        if result != ffi::SQLITE_OK {
            break;
        }
    }
    if result == ffi::SQLITE_OK {
        result = database.write_setting(mode);
    }
    database.file.unlock(before);
    result
}

/// The name by which `host.db` knows the file. Calls SQLite, which calls into the file again.
pub fn schema(host: Host) -> Option<CString> {
    // SAFETY: the connection is open, and this one does not close it: it is not the owner.
    let connection = unsafe { Connection::from_handle(host.db) }.ok()?;
    let mut statement = connection.prepare("PRAGMA database_list").ok()?;
    let names: Vec<String> =
        statement.query_map([], |row| row.get(1)).ok()?.filter_map(Result::ok).collect();
    names
        .into_iter()
        .filter_map(|name| CString::new(name).ok())
        .find(|name| file_of(host.db, name) == host.file)
}

/// Has SQLite look at the file, as any reader does; what comes of it does not matter. In WAL mode
/// this opens the wal-index, which has the lock that a change of the setting needs.
pub fn read_something(db: *mut ffi::sqlite3, schema: &CStr) {
    // SAFETY: as in `schema`.
    let Ok(connection) = (unsafe { Connection::from_handle(db) }) else { return };
    let name = schema.to_string_lossy().replace('"', "\"\"");
    let _ = connection.query_row(
        &format!("SELECT 1 FROM \"{name}\".sqlite_master LIMIT 1"),
        [],
        |_| Ok(()),
    );
}

/// True if SQLite writes nothing to this database: its file cannot be written, or is immutable.
pub fn is_read_only(db: *mut ffi::sqlite3, schema: &CStr) -> bool {
    // SAFETY: the connection is open.
    unsafe { ffi::sqlite3_db_readonly(db, schema.as_ptr()) == 1 }
}

/// The file of this VFS that `db` has open as `schema`, also where another VFS is laid over this one.
pub fn file_of(db: *mut ffi::sqlite3, schema: &CStr) -> *mut ffi::sqlite3_file {
    let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
    // SAFETY: this operation writes one pointer; files of other VFSs do not know it.
    unsafe {
        ffi::sqlite3_file_control(
            db,
            schema.as_ptr(),
            vfs::OWN_FILE,
            (&raw mut file).cast::<c_void>(),
        );
    }
    file
}

/// Asks the connection to leave room for markers on each page, from the next VACUUM on, or from the
/// first page of an empty database. Calls into the file again.
pub fn reserve_in(db: *mut ffi::sqlite3, schema: &CStr) -> bool {
    let mut bytes = c_int::from(ROOM.bytes());
    // SAFETY: this operation reads and writes one integer.
    let result = unsafe {
        ffi::sqlite3_file_control(
            db,
            schema.as_ptr(),
            ffi::SQLITE_FCNTL_RESERVE_BYTES,
            (&raw mut bytes).cast::<c_void>(),
        )
    };
    result == ffi::SQLITE_OK
}
