//! `PRAGMA page_verify_guard`: programs without this VFS can read the database, and not write to it.
//!
//! What the guard is, is in [`crate::first`]. It is changed in a transaction of SQLite's own that
//! writes page 1 and nothing else, so that a crash leaves it as it was or as it is to be, and other
//! connections see page 1 anew.

use std::ffi::CStr;

use rusqlite::{Connection, ffi};

use crate::database::{Layout, ROOM};
use crate::pragma::{self, Host};

/// True if the pragma is this one.
pub fn is_asked(name: &str) -> bool {
    name.eq_ignore_ascii_case("page_verify_guard")
}

/// What the pragma answers, or why it cannot be done. Calls SQLite, which calls into the file again: no
/// reference to its state is held.
pub fn answer(host: Host, argument: Option<&str>) -> Result<String, String> {
    let schema = pragma::schema(host).ok_or("the connection does not know this database")?;
    pragma::read_something(host.db, &schema);
    let wanted = argument.map(pragma::is_yes);
    let guard = host.with(|database| database.first.guard)?;
    match wanted {
        None => return Ok(u8::from(guard).to_string()),
        Some(wanted) if wanted == guard => {}
        Some(wanted) => set(host, &schema, wanted)?,
    }
    Ok(u8::from(wanted.unwrap_or(guard)).to_string())
}

fn set(host: Host, schema: &CStr, wanted: bool) -> Result<(), String> {
    // SAFETY: the connection is open: it is the one that asks.
    if unsafe { ffi::sqlite3_get_autocommit(host.db) } == 0 {
        return Err("page_verify_guard cannot be changed inside a transaction".to_owned());
    }
    if pragma::is_read_only(host.db, schema) {
        return Err("the guard cannot be written: the database is read-only".to_owned());
    }
    let room = host.with(|database| match database.layout {
        Layout::Marked { room, .. } => Some(room),
        Layout::Plain | Layout::Official => None,
    })?;
    match room {
        Some(ROOM) => {}
        Some(_) => {
            return Err(
                "16 reserved bytes on each page are too few for the guard: pagewarden protect \
                        --mode checksum --guard gives the database 24"
                    .to_owned(),
            );
        }
        None => {
            return Err(
                "only a database with markers has a guard: PRAGMA page_verify = CHECKSUM and \
                        VACUUM it first, or pagewarden protect --mode checksum --guard"
                    .to_owned(),
            );
        }
    }
    host.with(|database| database.next_guard = Some(wanted))?;
    let result = write_first_page(host, schema);
    host.with(|database| {
        database.next_guard = None;
        if result.is_ok() {
            database.first.guard = wanted;
        }
    })?;
    result.map_err(|error| format!("the guard could not be written: {error}"))
}

/// Writes page 1 as it is, in a transaction.
fn write_first_page(host: Host, schema: &CStr) -> rusqlite::Result<()> {
    // SAFETY: the connection is open, and this one does not close it: it is not the owner.
    let connection = unsafe { Connection::from_handle(host.db) }?;
    let name = schema.to_string_lossy().replace('"', "\"\"");
    let version = format!("PRAGMA \"{name}\".user_version");
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let written = connection
        .query_row(&version, [], |row| row.get::<_, i32>(0))
        .and_then(|same| connection.execute_batch(&format!("{version} = {same}; COMMIT")));
    if written.is_err() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    written
}
