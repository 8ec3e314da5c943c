//! `PRAGMA page_verify_heal`: pages that a program without this VFS wrote are stamped again.
//!
//! What must be true of the database first is judged by the code of `pagewarden protect --heal`, on a
//! copy that is taken under the lock that is held to the end. What is then written are the reserved bytes
//! of the pages that fail, and nothing else: no row is touched, so no journal is needed.
//!
//! | step | what a kill or a power failure leaves |
//! | --- | --- |
//! | SQLite's lock; in WAL mode the log is brought into the file, and no checkpoint comes in between | the database as it was |
//! | a copy is judged | the same, and a copy in the folder for temporary files |
//! | markers of all pages but page 1, synced | some pages pass and page 1 fails: the same pragma goes on |
//! | the marker of page 1, synced, and all is read back | the database, healed |
//!
//! Page 1 comes last since a database of which it passes was, in rollback mode, written by no other
//! program: then nothing is healed.

use std::ffi::CStr;
use std::io::{self, Write as _};

use pagewarden::formats::sqlite::protect::{Healing, examine};
use pagewarden::verdict::PageNo;
use rusqlite::{Connection, ffi};

use crate::database::{Database, Layout};
use crate::pragma::{self, CHECKPOINT_LOCK, Host};
use crate::suspects;

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;
/// What the copy is called where the database has no name.
const NAMELESS: &str = "database";

const IN_USE: &str = "another connection uses the database: try again when it does not, or stop the programs \
                      that use it, and pagewarden protect --mode checksum --heal";
const NO_MARKERS: &str = "its pages carry no markers: PRAGMA page_verify = CHECKSUM; VACUUM gives it some, or \
                          pagewarden protect --mode checksum";
const NOT_POWER_SAFE: &str = "what is written next to other bytes may take them along in a power failure here \
                              (psow=0): leave that out, or use pagewarden protect --mode checksum --heal";

/// True if the pragma is this one.
pub fn is_asked(name: &str) -> bool {
    name.eq_ignore_ascii_case("page_verify_heal")
}

/// What the pragma answers, or why nothing was done. Calls SQLite, which calls into the file again: no
/// reference to its state is held.
pub fn answer(host: Host, argument: Option<&str>) -> Result<String, String> {
    let is_dry = match argument {
        None => false,
        Some(word) if word.trim().eq_ignore_ascii_case("dry_run") => true,
        Some(word) => {
            return Err(format!("page_verify_heal takes nothing, or dry_run, and not {word}"));
        }
    };
    let schema = pragma::schema(host).ok_or("the connection does not know this database")?;
    // SAFETY: the connection is open: it is the one that asks.
    if unsafe { ffi::sqlite3_get_autocommit(host.db) } == 0 {
        return Err("page_verify_heal cannot be done inside a transaction".to_owned());
    }
    if pragma::is_read_only(host.db, &schema) {
        return Err("no page can be stamped: the database is read-only".to_owned());
    }
    // From here on SQLite reads what fails, too.
    host.with(|database| database.heals = true)?;
    let healed = heal_alone(host, &schema, is_dry);
    host.with(|database| database.heals = false)?;
    healed
}

/// Takes the locks, heals, and gives them back.
fn heal_alone(host: Host, schema: &CStr, is_dry: bool) -> Result<String, String> {
    // SAFETY: the connection is open, and this one does not close it: it is not the owner.
    let connection = unsafe { Connection::from_handle(host.db) }.map_err(in_words)?;
    let name = schema.to_string_lossy().replace('"', "\"\"");
    // In rollback mode this does nothing.
    let sql = format!("PRAGMA \"{name}\".wal_checkpoint(TRUNCATE)");
    let busy: i64 = connection.query_row(&sql, [], |row| row.get(0)).map_err(in_words)?;
    if busy != 0 {
        return Err(IN_USE.to_owned());
    }
    connection.execute_batch("BEGIN EXCLUSIVE").map_err(in_words)?;
    let healed = host.with(|database| heal_without_checkpoints(database, is_dry));
    // Nothing was changed that SQLite knows of.
    let ended = connection.execute_batch("COMMIT").map_err(in_words);
    if ended.is_err() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    healed?.and_then(|words| ended.map(|()| words))
}

fn in_words(error: rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
            IN_USE.to_owned()
        }
        _ => format!("no page is stamped again: SQLite says: {error}"),
    }
}

/// In WAL mode SQLite's lock keeps out writers of the log, and this one those that bring it into the file.
fn heal_without_checkpoints(database: &mut Database, is_dry: bool) -> Result<String, String> {
    if !database.has_shm {
        return heal(database, is_dry);
    }
    let exclusive = ffi::SQLITE_SHM_EXCLUSIVE;
    let file = database.file;
    match file.shm_lock(CHECKPOINT_LOCK, 1, ffi::SQLITE_SHM_LOCK | exclusive) {
        ffi::SQLITE_OK => {}
        _ => return Err(IN_USE.to_owned()),
    }
    let healed = heal(database, is_dry);
    file.shm_lock(CHECKPOINT_LOCK, 1, ffi::SQLITE_SHM_UNLOCK | exclusive);
    healed
}

/// No other program writes to the file, or reads it in rollback mode.
fn heal(database: &mut Database, is_dry: bool) -> Result<String, String> {
    if database.wal.as_ref().map_or(database.has_shm, |wal| !wal.is_empty()) {
        return Err(IN_USE.to_owned());
    }
    database.look().map_err(unreadable)?;
    match database.layout {
        Layout::Marked { .. } => {}
        Layout::Plain | Layout::Official => return Err(NO_MARKERS.to_owned()),
    }
    if database.file.device_characteristics() & ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE == 0 {
        return Err(NOT_POWER_SAFE.to_owned());
    }
    let name = std::path::Path::new(&database.path).file_name();
    let name = name.map_or(NAMELESS.into(), |name| name.to_string_lossy());
    let judged =
        examine(&name, |copy| database.copy_to(copy)).map_err(|error| error.to_string())?;
    let (mut pages, mut lines) = match judged {
        Healing::Not(why) => return Err(why),
        Healing::Pages { pages, lines } => (pages, lines),
    };
    if !is_dry {
        database.stamp_again(&mut pages)?;
        suspects::forget(&database.path, &pages);
    }
    lines.push(match (pages.len(), is_dry) {
        (0, _) => "every page passes: nothing to stamp".to_owned(),
        (1, false) => "1 page stamped again".to_owned(),
        (count, false) => format!("{count} pages stamped again"),
        (1, true) => "1 page would be stamped again".to_owned(),
        (count, true) => format!("{count} pages would be stamped again"),
    });
    Ok(lines.join("\n"))
}

fn unreadable(code: i32) -> String {
    format!("no page is stamped again: error {code} of SQLite where the file was read")
}

impl Database {
    /// Writes the file as it is into `copy`, past this VFS.
    fn copy_to(&self, copy: &mut std::fs::File) -> io::Result<()> {
        let failed = |code: i32| io::Error::other(format!("error {code} of SQLite"));
        let mut left = usize::try_from(self.file.size().map_err(failed)?).unwrap_or(usize::MAX);
        let mut buffer = vec![0; COPY_BYTES.min(left)];
        let mut offset = 0_i64;
        while left > 0 {
            let bytes = buffer.get_mut(..COPY_BYTES.min(left)).unwrap_or_default();
            match self.file.read(bytes, offset) {
                ffi::SQLITE_OK => {}
                error => return Err(failed(error)),
            }
            copy.write_all(bytes)?;
            left = left.saturating_sub(bytes.len());
            offset = offset.saturating_add(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        }
        Ok(())
    }

    /// Gives these pages new markers: page 1 last, when the others are on the disk. Of `pages` stay those
    /// that failed until now.
    fn stamp_again(&mut self, pages: &mut Vec<PageNo>) -> Result<(), String> {
        let mut page = vec![0; self.page_size];
        let numbers = pages.iter().filter_map(|page| u32::try_from(page.0).ok());
        let numbers: Vec<u32> = numbers.filter(|number| !self.is_lock_page(*number)).collect();
        let mut stamped = Vec::new();
        for number in numbers.iter().copied().filter(|number| *number != 1) {
            if self.stamp_one(&mut page, number)? {
                stamped.push(number);
            }
        }
        self.to_disk()?;
        if numbers.contains(&1) && self.stamp_one(&mut page, 1)? {
            stamped.push(1);
            self.to_disk()?;
        }
        for number in stamped.iter().copied() {
            self.read_raw(&mut page, number)?;
            if !self.passes(&page, number) {
                return Err(format!(
                    "page {number} does not read back as it was written: check the device"
                ));
            }
        }
        stamped.sort_unstable();
        *pages = stamped.into_iter().map(|number| PageNo(number.into())).collect();
        self.look().map_err(unreadable)
    }

    /// Stamps one page, of which only the reserved bytes are written. False if it passes as it is.
    fn stamp_one(&self, page: &mut [u8], number: u32) -> Result<bool, String> {
        self.read_raw(page, number)?;
        if self.passes(page, number) {
            return Ok(false);
        }
        let Layout::Marked { room, .. } = self.layout else { return Ok(false) };
        self.stamp(page, number, self.layout);
        let begin = page.len().saturating_sub(room.bytes().into());
        let at = self.offset(number).saturating_add(i64::try_from(begin).unwrap_or(i64::MAX));
        match self.file.write(page.get(begin..).unwrap_or_default(), at) {
            ffi::SQLITE_OK => Ok(true),
            error => Err(unwritten(error)),
        }
    }

    fn read_raw(&self, page: &mut [u8], number: u32) -> Result<(), String> {
        match self.file.read(page, self.offset(number)) {
            ffi::SQLITE_OK => Ok(()),
            error => Err(unreadable(error)),
        }
    }

    fn to_disk(&self) -> Result<(), String> {
        match self.file.sync(ffi::SQLITE_SYNC_NORMAL) {
            ffi::SQLITE_OK => Ok(()),
            error => Err(unwritten(error)),
        }
    }
}

fn unwritten(code: i32) -> String {
    format!(
        "error {code} of SQLite where markers were written: rows are as they were; ask for it again when \
         the disk is well"
    )
}
