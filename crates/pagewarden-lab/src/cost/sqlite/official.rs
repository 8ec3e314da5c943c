//! SQLite's own checksum VFS (`ext/misc/cksumvfs.c`), which comes as a library
//! to be loaded.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, ffi};

/// What it registers itself as.
pub const NAME: &str = "cksmvfs";
const ENTRY: &str = "sqlite3_cksumvfs_init";
/// It is at work in databases with exactly this number of reserved bytes.
const RESERVE: c_int = 8;

/// Loads the library. The VFS stays, as the default of this process; loaded
/// again, it would become its own parent.
///
/// # Errors
/// It cannot be loaded.
pub fn load(library: &Path) -> Result<()> {
    let any = Connection::open_in_memory()?;
    // SAFETY: the user who names the library vouches for it, as with every extension that SQLite loads;
    // no SQL of others runs on this connection while it may load more.
    let loaded = unsafe {
        any.load_extension_enable()?;
        any.load_extension(library, Some(ENTRY))
    };
    loaded.with_context(|| format!("cannot load {}", library.display()))
}

/// Gives a database that is still empty the reserved bytes.
///
/// # Errors
/// SQLite refuses.
pub fn reserve(database: &Connection) -> Result<()> {
    let mut bytes = RESERVE;
    // SAFETY: the connection is open; SQLite reads and writes one int behind the pointer, which
    // outlives the call, and a null name is the main database.
    let code = unsafe {
        ffi::sqlite3_file_control(
            database.handle(),
            std::ptr::null(),
            ffi::SQLITE_FCNTL_RESERVE_BYTES,
            std::ptr::from_mut(&mut bytes).cast(),
        )
    };
    ensure!(code == ffi::SQLITE_OK, "SQLite does not reserve bytes: {code}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte 20 of the file says how many bytes are reserved.
    #[test]
    fn new_database_gets_its_reserved_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new.db");
        let database = Connection::open(&path).unwrap();
        reserve(&database).unwrap();
        database.execute_batch("CREATE TABLE t (a)").unwrap();
        drop(database);
        assert_eq!(std::fs::read(&path).unwrap()[20], 8);
    }

    #[test]
    fn missing_library_is_named() {
        let error = load(Path::new("/nowhere/cksumvfs.so")).unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere/cksumvfs.so"), "{error:#}");
    }
}
