//! The ledger: what was verified when, with what result. One SQLite file, in WAL mode, with a
//! version.
//!
//! What is in it survives a kill at any moment: a claim is committed after the pages were judged.
//! [`claims`] has the claims and the files they are about, [`findings`] what is wrong, [`passes`]
//! the history and what follows from all of it.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pagewarden::system::OpenOptionsExt as _;
use pagewarden::system::fs::OFlags;

use anyhow::{Context as _, Result, bail, ensure};
use rusqlite::{
    Connection, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior, params,
};

use crate::config::{EVERY, Subject};
use crate::state::Held;

pub mod claims;
pub mod findings;
pub mod passes;
pub mod tiles;

/// The version of the schema, in `user_version`.
const VERSION: i64 = 3;
/// Marks the file as a ledger, in `application_id`: "PWgl".
const APPLICATION: i64 = 0x5057_676c;
const FILE: &str = "ledger.sqlite";
/// What version 2 has more.
const SCHEMA_2: &str = include_str!("schema_2.sql");
/// What version 3 has more.
const SCHEMA_3: &str = include_str!("schema_3.sql");
/// Statements that are kept prepared: those of a page of a thousand targets, and more.
const STATEMENTS: usize = 64;
/// How long a reader waits for a writer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a writer that waits for another one tries again, and how often at most: a minute.
const TRY_EVERY: Duration = Duration::from_millis(5);
const TRIES_MAX: i32 = 12_000;

/// A writer of this process waits for another one.
static IS_AWAITED: AtomicBool = AtomicBool::new(false);

/// True if a writer has waited since this was asked last. Who writes for long then commits, and leaves
/// it the time to begin.
pub(crate) fn is_awaited() -> bool {
    IS_AWAITED.swap(false, Ordering::Relaxed)
}

/// Longer than a waiting writer needs to begin.
pub(crate) const ROOM: Duration = Duration::from_millis(15);

fn wait_for_writer(tries: i32) -> bool {
    IS_AWAITED.store(true, Ordering::Relaxed);
    thread::sleep(TRY_EVERY);
    tries < TRIES_MAX
}

/// The number of a target in the ledger.
pub type TargetId = i64;

/// The ledger, open.
#[derive(Debug)]
pub struct Ledger {
    pub(crate) db: Connection,
}

impl Ledger {
    /// Opens it to write, and makes it if there is none.
    ///
    /// # Errors
    /// It cannot be written, or is of another version, or no ledger.
    pub fn open(state: &Held) -> Result<Self> {
        let path = state.folder().join(FILE);
        let shown = path.display();
        // Made here, so that SQLite finds it with this mode, and gives it to the files beside it.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let made = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&path);
        made.with_context(|| format!("cannot write the ledger {shown}"))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&path, flags)
            .with_context(|| format!("cannot open the ledger {shown}"))?;
        db.busy_handler(Some(wait_for_writer))?;
        let prepare = || -> Result<()> {
            db.pragma_update(None, "journal_mode", "WAL")?;
            db.pragma_update(None, "synchronous", "NORMAL")?;
            db.pragma_update(None, "foreign_keys", true)?;
            match version(&db)? {
                (0, 0) => {
                    let tables: i64 =
                        db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
                    ensure!(tables == 0, "it is a SQLite database of another program");
                    let (first, second) = (include_str!("schema.sql"), SCHEMA_2);
                    db.execute_batch(&format!(
                        "BEGIN IMMEDIATE; {first} {second} {SCHEMA_3} \
                         PRAGMA application_id = {APPLICATION}; \
                         PRAGMA user_version = {VERSION}; COMMIT;"
                    ))?;
                }
                (APPLICATION, 1) => db.execute_batch(&format!(
                    "BEGIN IMMEDIATE; {SCHEMA_2} {SCHEMA_3} PRAGMA user_version = {VERSION}; COMMIT;"
                ))?,
                (APPLICATION, 2) => db.execute_batch(&format!(
                    "BEGIN IMMEDIATE; {SCHEMA_3} PRAGMA user_version = {VERSION}; COMMIT;"
                ))?,
                found => check_version(found)?,
            }
            Ok(())
        };
        prepare().with_context(|| format!("cannot write the ledger {shown}"))?;
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(Self { db })
    }

    /// Opens it to read, as it is at this moment: a run that goes on is not seen. `None` if there is none
    /// yet.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        let shown = path.display();
        match fs::metadata(&path) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot open the ledger {shown}"));
            }
        }
        let open = |immutable: bool| -> Result<Connection> {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
                | OpenFlags::SQLITE_OPEN_NO_MUTEX
                | OpenFlags::SQLITE_OPEN_URI;
            let name = uri(&path, immutable);
            let db = Connection::open_with_flags(name, flags)?;
            db.busy_timeout(PATIENCE)?;
            match version(&db)? {
                // A run makes it at this moment.
                (0, 0) => bail!("it is empty\nhint: run pagewarden scrub once"),
                // What later versions have more is not asked for by who only reads.
                (APPLICATION, 1 | 2) => {}
                found => check_version(found)?,
            }
            Ok(db)
        };
        // A reader who may not write cannot use the log of the ledger. Without one there is nothing in it.
        let has_log =
            fs::metadata(folder.join(format!("{FILE}-wal"))).is_ok_and(|log| log.len() > 0);
        let db = open(false).or_else(|error| if has_log { Err(error) } else { open(true) });
        let db = db.with_context(|| format!("cannot read the ledger {shown}"))?;
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        // Of thousands of questions, each would lock the ledger and unlock it.
        db.execute_batch("BEGIN").with_context(|| format!("cannot read the ledger {shown}"))?;
        Ok(Some(Self { db }))
    }

    /// What distinguishes this ledger from others.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn identity(&self) -> Result<String> {
        let sql = "SELECT value FROM memory WHERE key = 'ledger'";
        self.db.query_row(sql, [], |row| row.get(0)).context("cannot read the ledger")
    }

    /// The target of that name, entered if it is new.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn enter(&mut self, subject: &Subject, now: i64) -> Result<TargetId> {
        let path = subject.path().to_string_lossy();
        // To begin at once is no promise.
        let every = Some(int(subject.every.as_secs())).filter(|every| *every > 0);
        let id = self.db.query_row(
            "INSERT INTO target (name, path, every_seconds, added_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (name) DO UPDATE SET path = ?2, every_seconds = coalesce(?5, every_seconds)
             RETURNING id",
            params![subject.name, path, every.unwrap_or(int(EVERY.as_secs())), now, every],
            |row| row.get(0),
        );
        id.context("cannot write the ledger")
    }

    /// The target of that name.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn target(&self, name: &str) -> Result<Option<TargetId>> {
        let mut statement = self.db.prepare_cached("SELECT id FROM target WHERE name = ?1")?;
        statement.query_row([name], |row| row.get(0)).optional().context("cannot read the ledger")
    }

    /// All targets by name.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn targets(&self) -> Result<Vec<(TargetId, String)>> {
        let mut statement = self.db.prepare("SELECT id, name FROM target ORDER BY name")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<Result<_, _>>().context("cannot read the ledger")
    }

    /// Begins to write; undone if it is dropped. At once, and not with the first change: a transaction
    /// that has read before another writer has written can write no more.
    pub(crate) fn writing(&self) -> Result<Transaction<'_>> {
        Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate)
            .context("cannot write the ledger")
    }

    /// Writes down that a target could not be looked at.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn failed(&mut self, target: TargetId, error: &str, now: i64) -> Result<()> {
        let set = "UPDATE target SET error = ?2, attempt_at = ?3 WHERE id = ?1";
        self.db.execute(set, params![target, error, now]).context("cannot write the ledger")?;
        Ok(())
    }
}

fn uri(path: &Path, immutable: bool) -> String {
    use pagewarden::system::OsStrExt as _;
    use std::fmt::Write as _;
    let mut name = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                name.push(char::from(*byte));
            }
            _ => {
                let _ = write!(name, "%{byte:02x}");
            }
        }
    }
    name.push_str(if immutable { "?immutable=1" } else { "?mode=ro" });
    name
}

fn version(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    let pragma = |name: &str| db.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0));
    Ok((pragma("application_id")?, pragma("user_version")?))
}

fn check_version((application, version): (i64, i64)) -> Result<()> {
    ensure!(application == APPLICATION, "it is a SQLite database of another program");
    ensure!(
        version == VERSION,
        "its version is {version}, and this program knows {VERSION}\n\
         hint: use the pagewarden that made it, or another folder with --state"
    );
    Ok(())
}

/// An integer as SQLite has it.
pub(crate) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// An integer that is never negative.
pub(crate) fn uint(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A ledger in a folder of its own, with one target.
    pub(crate) fn ledger() -> (tempfile::TempDir, Held, Ledger, TargetId) {
        let folder = tempfile::tempdir().unwrap();
        let held = Held::lock(folder.path(), "test", &[]).unwrap();
        let mut ledger = Ledger::open(&held).unwrap();
        let target = ledger.enter(&Subject::of_path(Path::new("/data")), 1000).unwrap();
        (folder, held, ledger, target)
    }

    #[test]
    fn ledger_is_entered_once_and_found_again() {
        let (folder, held, mut ledger, target) = ledger();
        assert_eq!(ledger.enter(&Subject::of_path(Path::new("/data")), 2000).unwrap(), target);
        drop(ledger);
        let ledger = Ledger::open(&held).unwrap();
        assert_eq!(ledger.target("/data").unwrap(), Some(target));
        drop(ledger);
        let ledger = Ledger::read(folder.path()).unwrap().unwrap();
        assert_eq!(ledger.targets().unwrap(), [(target, "/data".to_owned())]);
    }

    #[test]
    fn ledger_of_another_program_or_version_is_refused() {
        let (_folder, held, ledger, _) = ledger();
        ledger.db.pragma_update(None, "user_version", 99).unwrap();
        drop(ledger);
        let error = format!("{:#}", Ledger::open(&held).unwrap_err());
        assert!(error.contains("its version is 99"), "{error}");
        let path = held.folder().join(FILE);
        fs::remove_file(&path).unwrap();
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
        assert!(Ledger::open(&held).is_err() && Ledger::read(held.folder()).is_err());
        fs::write(&path, "no database, but long enough for SQLite to look at it").unwrap();
        assert!(Ledger::open(&held).is_err());
    }

    #[test]
    fn ledger_of_the_first_version_is_read_and_brought_up() {
        let (folder, held, ledger, target) = ledger();
        drop(ledger);
        let path = folder.path().join(FILE);
        fs::remove_file(&path).unwrap();
        let old = Connection::open(&path).unwrap();
        old.execute_batch(include_str!("schema.sql")).unwrap();
        old.pragma_update(None, "application_id", APPLICATION).unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        old.execute_batch(
            "INSERT INTO target (name, path, every_seconds, added_at) VALUES ('/data', '/data', 9, 1);
             INSERT INTO finding (target, member, file, kind, severity, is_own, body, first_at, last_at,
                last_run, closed_at, closed_by)
             VALUES (1, '', 'a', 'torn', 'damage', 1, '{}', 1, 1, 1, NULL, NULL),
                    (1, '', 'b', 'torn', 'damage', 1, '{}', 1, 1, 1, 2, 'x');",
        )
        .unwrap();
        drop(old);
        let read = Ledger::read(folder.path()).unwrap().unwrap();
        assert_eq!(read.open_counts(target).unwrap().damage, 1);
        drop(read);
        let ledger = Ledger::open(&held).unwrap();
        assert_eq!(ledger.target("/data").unwrap(), Some(target));
        // What was closed before anything was reported is no news.
        let untold = "SELECT count(*) FROM finding WHERE told IS NULL";
        let untold: i64 = ledger.db.query_row(untold, [], |row| row.get(0)).unwrap();
        assert_eq!(untold, 1);
        let identity = ledger.identity().unwrap();
        drop(ledger);
        assert_eq!(Ledger::open(&held).unwrap().identity().unwrap(), identity);
    }

    #[test]
    fn writers_of_one_process_wait_for_each_other() {
        let (_folder, held, ledger, _) = ledger();
        let mut other = Ledger::open(&held).unwrap();
        ledger.db.execute_batch("BEGIN IMMEDIATE").unwrap();
        let writer = thread::spawn(move || other.failed(1, "x", 1).map(|()| other));
        while !is_awaited() {
            thread::sleep(TRY_EVERY);
        }
        ledger.db.execute_batch("COMMIT").unwrap();
        writer.join().unwrap().unwrap();
    }

    #[test]
    fn names_in_addresses_are_escaped() {
        assert_eq!(uri(Path::new("/a b?c#%"), false), "file:/a%20b%3fc%23%25?mode=ro");
    }
}
