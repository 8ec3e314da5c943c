//! Ten processes that write to one database and are all killed, again and again. Three of them are plain
//! programs: the same SQLite without the VFS.
//!
//! With the guard the three are refused. Without it they write, the pages that they wrote fail for those
//! with the VFS, and `protect --heal` brings the database back. Either way: no row is lost of a transaction whose commit
//! was reported, the database can be opened again, and `check` names each page that the VFS does not
//! pass.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use pagewarden::database;
use pagewarden::protect::{Options, Request, Wish};
use pagewarden::verdict::{Finding, Note, Protection, Unread};
use pagewarden::verify::{self, Sink, verify};
use rusqlite::{Connection, ErrorCode, OpenFlags};

const WRITERS: usize = 10;
const PLAIN_WRITERS: usize = 3;
const ROUNDS: usize = 4;
/// The variable that makes a writer of this program: the name of a database.
const NAME: &str = "PAGEWARDEN_TEST_WRITER";
const ROWS: usize = 400;

fn open(name: &str) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(name, flags)?;
    db.busy_timeout(Duration::from_secs(20))?;
    db.execute_batch("PRAGMA cache_size=8; PRAGMA synchronous=OFF; PRAGMA wal_autocheckpoint=30;")?;
    Ok(db)
}

/// Writes until it is killed, and says what was committed, and what came instead. It opens the
/// database anew now and then: the last one that closes a log brings it into the file.
#[test]
#[ignore = "one of the ten processes of the test below"]
fn writer() {
    let Ok(name) = env::var(NAME) else { return };
    pagewarden_sqlite::register().unwrap();
    let id = u64::from(std::process::id());
    let mut out = std::io::stdout();
    let mut number = 0_u64;
    loop {
        let said = match open(&name) {
            Ok(db) => (0..40).try_for_each(|_| {
                number += 1;
                let row = id * 1_000_000 + number;
                write(&db, row)?;
                writeln!(out, "done {row}").unwrap();
                Ok(())
            }),
            Err(error) => Err(error),
        };
        if let Err(error) = said {
            writeln!(out, "error {:?}", error.sqlite_error_code()).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn write(db: &Connection, row: u64) -> rusqlite::Result<()> {
    db.execute_batch(&format!(
        "BEGIN IMMEDIATE; UPDATE t SET b=hex(randomblob(90)) WHERE a%37={}; \
         INSERT INTO done VALUES({row}); COMMIT",
        row % 37
    ))
    .inspect_err(|_| {
        let _ = db.execute_batch("ROLLBACK");
    })
}

fn fill(path: &Path, mode: &str, guard: bool) {
    let db = Connection::open_with_flags(
        format!("file:{}?vfs=pagewarden", path.display()),
        OpenFlags::default(),
    )
    .unwrap();
    db.execute_batch(&format!(
        "PRAGMA page_size=1024; PRAGMA journal_mode={mode};
         CREATE TABLE done(n INTEGER PRIMARY KEY); CREATE TABLE t(a INTEGER PRIMARY KEY, b);
         CREATE INDEX i ON t(b);
         WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<{ROWS})
         INSERT INTO t SELECT v, hex(randomblob(90)) FROM n;
         PRAGMA page_verify_guard={};",
        u8::from(guard)
    ))
    .unwrap();
}

/// What ten writers said until they were killed: first those with the VFS.
fn round(folder: &Path, path: &Path, milliseconds: u64) -> Vec<String> {
    let spawn = |writer: usize| -> Child {
        let vfs = if writer < PLAIN_WRITERS { "unix" } else { "pagewarden" };
        let said = File::create(folder.join(writer.to_string())).unwrap();
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "writers::writer", "--ignored", "--nocapture"])
            .env(NAME, format!("file:{}?vfs={vfs}", path.display()))
            .stdin(Stdio::null())
            .stdout(said)
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut writers: Vec<Child> = (0..WRITERS).map(spawn).collect();
    thread::sleep(Duration::from_millis(milliseconds));
    for writer in &mut writers {
        writer.kill().unwrap();
    }
    for writer in &mut writers {
        writer.wait().unwrap();
    }
    let said = |writer: usize| fs::read_to_string(folder.join(writer.to_string())).unwrap();
    (0..WRITERS).map(said).collect()
}

/// The rows whose commit was reported, in whole lines.
fn committed(said: &str) -> impl Iterator<Item = u64> {
    said.split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n')?.strip_prefix("done ")?.parse().ok())
}

#[derive(Default)]
struct Findings(BTreeSet<u64>);

impl Sink for Findings {
    fn finding(&mut self, finding: &Finding) -> std::io::Result<()> {
        self.0.extend(finding.place.page.map(|page| page.0));
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> std::io::Result<()> {
        panic!("{unread:?}")
    }

    fn note(&mut self, _: &Note) -> std::io::Result<()> {
        Ok(())
    }
}

/// The pages that `check` names.
fn named(path: &Path) -> BTreeSet<u64> {
    let mut findings = Findings::default();
    let target = database::open(path, None).unwrap();
    verify(target, &verify::Options::default(), &(), &mut findings).unwrap();
    findings.0
}

/// The pages that the VFS does not pass when all is read.
fn failing(path: &Path) -> BTreeSet<u64> {
    // Before any other statement: where page 1 fails, only these run.
    let name = format!("file:{}?vfs=pagewarden", path.display());
    let db = Connection::open_with_flags(name, OpenFlags::default()).unwrap();
    db.execute_batch("PRAGMA page_verify_ignore=1").unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    let path = path.canonicalize().unwrap();
    let sql = "SELECT page_id FROM pagewarden_suspect_pages WHERE file = ?1";
    let mut pages = db.prepare(sql).unwrap();
    let pages = pages.query_map([path.to_string_lossy()], |row| row.get::<_, i64>(0)).unwrap();
    pages.map(|page| u64::try_from(page.unwrap()).unwrap()).collect()
}

fn heal(path: &Path) {
    let request = Request { heal: true, ..Request::new(path, Wish::Mode(Protection::Checksum)) };
    let engine = pagewarden_sqlite::protect::ENGINE;
    let outcome = (engine.run)(&request, &Options::default(), &()).unwrap();
    assert_eq!(outcome.after, Protection::Checksum, "{outcome:?}");
    assert_eq!(outcome.findings, Vec::new());
}

#[test]
fn ten_killed_writers_of_which_three_are_plain_lose_nothing() {
    pagewarden_sqlite::register().unwrap();
    for (mode, guard) in [("DELETE", true), ("WAL", true), ("DELETE", false), ("WAL", false)] {
        let folder = tempfile::tempdir().unwrap();
        let mut path = folder.path().join("x.db");
        fill(&path, mode, guard);
        let (mut rows, mut plain_rows, mut refused, mut wounds) = (BTreeSet::new(), 0, 0, 0);
        for number in 0..ROUNDS {
            let what = format!("{mode}, guard {guard}, round {number}");
            // Which pages failed is remembered by the name of the file.
            let next = folder.path().join(format!("x{number}.db"));
            fs::rename(&path, &next).unwrap();
            path = next;
            let said = round(folder.path(), &path, 700 + 130 * number as u64);
            for (writer, said) in said.iter().enumerate() {
                let before = rows.len();
                rows.extend(committed(said));
                if writer < PLAIN_WRITERS {
                    plain_rows += rows.len() - before;
                    let code = format!("error {:?}", Some(ErrorCode::ReadOnly));
                    refused += said.lines().filter(|line| **line == code).count();
                }
            }
            // The log and the journal first: what they hold is in no file yet.
            let failing = failing(&path);
            let named = named(&path);
            let left: Vec<_> = failing.difference(&named).collect();
            assert!(left.is_empty(), "{what}: {left:?} of {} and {}", failing.len(), named.len());
            wounds += failing.len();
            if guard {
                assert!(named.is_empty(), "{what}: {named:?}");
            } else {
                heal(&path);
            }
            let db = open(&format!("file:{}?vfs=pagewarden", path.display())).unwrap();
            let sound: String =
                db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(sound, "ok", "{what}");
            let mut done = db.prepare("SELECT n FROM done").unwrap();
            let there: BTreeSet<u64> = done
                .query_map([], |row| row.get::<_, i64>(0))
                .unwrap()
                .map(|row| u64::try_from(row.unwrap()).unwrap())
                .collect();
            let lost: Vec<_> = rows.difference(&there).collect();
            assert!(lost.is_empty(), "{what}: {lost:?}");
            drop(done);
            drop(db);
            assert!(self::named(&path).is_empty(), "{what}");
            for rest in ["-wal", "-journal"] {
                let rest = path.with_extension(format!("db{rest}"));
                assert!(fs::metadata(&rest).map_or(0, |rest| rest.len()) == 0, "{what}: {rest:?}");
            }
        }
        eprintln!(
            "{mode}, guard {guard}: {} rows, {plain_rows} of plain programs, {refused} refused, \
             {wounds} pages failed",
            rows.len()
        );
        // Without the guard those with the VFS are refused from the first page on that a plain one wrote.
        assert!(!rows.is_empty());
        assert_eq!(guard, plain_rows == 0, "{mode}: {plain_rows}");
        assert_eq!(guard, refused > 0, "{mode}: {refused}");
        // In WAL mode the VFS may be the one that brings in what the plain programs wrote.
        assert!(if guard { wounds == 0 } else { wounds > 0 || mode == "WAL" }, "{mode}: {wounds}");
    }
}
