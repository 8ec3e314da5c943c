//! SQL Server's PAGE_VERIFY for SQLite, as a VFS: see `docs/sqlite-vfs.md`.
//!
//! Loaded as an extension (`sqlite3_extension_init`), or linked into a program, which calls
//! [`register`] once. Then databases are opened as `file:x.db?vfs=pagewarden`. Loaded by
//! `sqlite3_pagewarden_default_init`, or after [`register_as_default`], the VFS is the default, and
//! databases that are opened by a plain path use it too.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use rusqlite::{Connection, ffi};

mod database;
mod first;
mod frames;
mod free_pages;
mod guard;
mod heal;
mod held;
mod journal;
mod packed;
mod parent;
mod pragma;
#[cfg(feature = "bundled")]
pub mod protect;
mod suspects;
mod vfs;
mod wal;

/// Makes the VFS known to SQLite, and gives every connection from now on the table
/// `pagewarden_suspect_pages`. More than one call does no harm.
///
/// # Errors
///
/// SQLite's own, when it cannot register a VFS.
pub fn register() -> rusqlite::Result<()> {
    let error = |code| rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
    vfs::register().map_err(error)?;
    #[cfg(feature = "loadable")]
    let set_up = {
        let set_up = set_up as *const ();
        // SAFETY: SQLite declares the parameter without arguments, and calls it with those of an
        // extension's entry, which `set_up` has.
        unsafe { std::mem::transmute::<*const (), unsafe extern "C" fn()>(set_up) }
    };
    // SAFETY: the function only registers.
    match unsafe { ffi::sqlite3_auto_extension(Some(set_up)) } {
        ffi::SQLITE_OK => Ok(()),
        code => Err(error(code)),
    }
}

/// As [`register`], and makes the VFS the default of this process: databases that are opened from now
/// on without naming a VFS use it. Connections that are open keep the VFS that they have.
///
/// # Errors
///
/// SQLite's own, when it cannot register a VFS.
pub fn register_as_default() -> rusqlite::Result<()> {
    register()?;
    let result = vfs::make_default();
    result.map_err(|code| rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
}

/// Opens a database that is only read: a plain one, or the only one in a pack. Its pages are verified
/// as they are read.
///
/// # Errors
///
/// SQLite's own: it cannot be opened. What is wrong with a pack stands in SQLite's error log.
#[cfg(feature = "bundled")]
pub fn open_read_only(path: &std::path::Path) -> rusqlite::Result<Connection> {
    register()?;
    let flags =
        rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags_and_vfs(path, flags, vfs::NAME)
}

/// Sets a new connection up.
unsafe extern "C" fn set_up(
    db: *mut ffi::sqlite3,
    _message: *mut *mut c_char,
    _api: *const ffi::sqlite3_api_routines,
) -> c_int {
    vfs::reserve_in_new(db);
    // SAFETY: the connection is open, and stays SQLite's: this value does not own it.
    let result = unsafe { Connection::from_handle(db) }
        .and_then(|connection| suspects::create_module(&connection));
    result.map_or(ffi::SQLITE_ERROR, |()| ffi::SQLITE_OK)
}

/// What SQLite calls when it loads the extension.
///
/// # Safety
///
/// Only SQLite calls this.
#[cfg(feature = "loadable")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    db: *mut ffi::sqlite3,
    message: *mut *mut c_char,
    api: *mut ffi::sqlite3_api_routines,
) -> c_int {
    let init = |connection| set_up_process(&connection, is_default_wanted()?);
    // SAFETY: the arguments are SQLite's own.
    unsafe { Connection::extension_init2(db, message, api, init) }
}

/// The entry point that makes the VFS the default one:
/// `.load libpagewarden_sqlite sqlite3_pagewarden_default_init`.
///
/// # Safety
///
/// Only SQLite calls this.
#[cfg(feature = "loadable")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_pagewarden_default_init(
    db: *mut ffi::sqlite3,
    message: *mut *mut c_char,
    api: *mut ffi::sqlite3_api_routines,
) -> c_int {
    let init = |connection| set_up_process(&connection, true);
    // SAFETY: the arguments are SQLite's own.
    unsafe { Connection::extension_init2(db, message, api, init) }
}

/// What both entry points do. True: a VFS cannot go away while files are open, so the library stays
/// when the connection that loaded it is closed.
#[cfg(feature = "loadable")]
fn set_up_process(connection: &Connection, is_default: bool) -> rusqlite::Result<bool> {
    if is_default { register_as_default() } else { register() }?;
    suspects::create_module(connection)?;
    Ok(true)
}

/// What the environment says, for programs that load an extension by its file's name only.
#[cfg(feature = "loadable")]
fn is_default_wanted() -> rusqlite::Result<bool> {
    const VARIABLE: &str = "PAGEWARDEN_SQLITE_DEFAULT";
    match std::env::var_os(VARIABLE) {
        None => Ok(false),
        Some(word) if word.is_empty() || word == "0" => Ok(false),
        Some(word) if word == "1" => Ok(true),
        Some(word) => {
            let words = format!("{VARIABLE} is 0 or 1, not {}", word.to_string_lossy());
            Err(rusqlite::Error::ModuleError(words))
        }
    }
}

/// A line in SQLite's error log.
fn log(code: c_int, message: &str) {
    let Ok(message) = CString::new(message) else { return };
    // SAFETY: the format takes one string.
    unsafe { ffi::sqlite3_log(code, c"%s".as_ptr(), message.as_ptr()) };
}

/// A string in SQLite's memory, which SQLite frees; null where there is no memory.
fn allocated(text: &str) -> *mut c_char {
    let Ok(text) = CString::new(text) else { return ptr::null_mut() };
    let bytes = text.as_bytes_with_nul();
    let Ok(count) = c_int::try_from(bytes.len()) else { return ptr::null_mut() };
    // SAFETY: SQLite's allocator; the copy is as long as what was asked for.
    unsafe {
        let memory = ffi::sqlite3_malloc(count).cast::<u8>();
        if !memory.is_null() {
            ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len());
        }
        memory.cast()
    }
}
