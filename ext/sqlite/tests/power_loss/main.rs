//! A loss of power at any moment, with writes that were not synced lost, out of order, and torn at
//! sectors. Every state of the disk that comes of it is opened without the extension and with it:
//! what SQLite alone survives, it must survive with the extension, with the same rows and without an
//! alarm; what was committed is there wherever SQLite promises it; `pagewarden check` calls nothing
//! damaged before recovery and finds nothing after it.
//!
//! One thing is different. With `synchronous=NORMAL` SQLite may play back a torn rollback journal
//! (its documentation says so), since its own sum looks at every 200th byte. Where that tears a page
//! in a place that SQLite does not look at, it goes on and the extension does not. So an alarm counts
//! as right there if the file has a page that never was written so.
//!
//! `PAGEWARDEN_POWER_LOSSES` sets how many states for each way of writing. A failure prints its
//! seed and moment.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test that cannot go on must stop"
)]

mod checking;
mod disk;
mod io_errors;
mod random;
mod recorder;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use disk::{Disk, Files, Op};
use pagewarden::verdict::{Finding, Severity};
use random::Random;
use rusqlite::{Connection, OpenFlags};

const NAME: &str = "/x.db";
const LOSSES: usize = 60;

/// A way of writing.
#[derive(Debug, Clone, Copy)]
struct Way {
    journal: &'static str,
    synchronous: &'static str,
    page_bytes: u32,
    setting: &'static str,
    /// SQLite promises that nothing committed is lost.
    is_durable: bool,
}

impl Way {
    fn may_play_back_torn_pages(self) -> bool {
        self.synchronous == "NORMAL" && self.journal != "WAL"
    }
}

const fn way(journal: &'static str, synchronous: &'static str, is_durable: bool) -> Way {
    Way { journal, synchronous, page_bytes: 1024, setting: "CHECKSUM", is_durable }
}

/// In the modes DELETE and FULL the journal's end may not be on disk yet when COMMIT returns.
const WAYS: [Way; 10] = [
    way("DELETE", "EXTRA", true),
    Way { page_bytes: 4096, ..way("DELETE", "FULL", false) },
    way("DELETE", "NORMAL", false),
    way("TRUNCATE", "FULL", true),
    Way { setting: "TORN_PAGE_DETECTION", ..way("TRUNCATE", "NORMAL", false) },
    way("PERSIST", "FULL", true),
    Way { page_bytes: 512, ..way("PERSIST", "NORMAL", false) },
    way("WAL", "FULL", true),
    Way { page_bytes: 4096, setting: "TORN_PAGE_DETECTION", ..way("WAL", "FULL", true) },
    way("WAL", "NORMAL", false),
];

fn connect(vfs: &str, more: &str) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(format!("file:{NAME}?vfs={vfs}{more}"), flags)
}

/// What is in the database, in a line; the first number is the last transaction's.
fn content(db: &Connection) -> rusqlite::Result<String> {
    db.query_row(
        "SELECT (SELECT max(n) FROM done) || ' ' || count(*) || ' ' || total(a * length(b)) || ' '
             || coalesce(max(b), '') || ' ' || coalesce(min(b), '') || ' '
             || (SELECT count(*) FROM t INDEXED BY i WHERE b > 'F') FROM t",
        [],
        |row| row.get(0),
    )
}

fn integrity(db: &Connection) -> rusqlite::Result<String> {
    db.query_row("PRAGMA integrity_check(3)", [], |row| row.get(0))
}

/// Text that is not the same for two numbers, and is for one.
fn text(random: &mut Random, bytes: u64) -> String {
    let mut text = String::new();
    while text.len() < usize::try_from(bytes).expect("small") {
        let number = random.below(u64::MAX >> 31).wrapping_mul(0x9e37_79b9_7f4a);
        write!(text, "{number:016X}").expect("memory");
    }
    text
}

/// A life of transactions; what is in the database after each.
fn live(db: &Connection, way: Way, seed: u64) -> Vec<String> {
    let mut random = Random(seed);
    let run = |sql: &str| db.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    run(&format!(
        "PRAGMA page_size={}; PRAGMA auto_vacuum={}; PRAGMA journal_mode={}; \
         PRAGMA synchronous={}; PRAGMA cache_size=6; PRAGMA temp_store=MEMORY; \
         PRAGMA wal_autocheckpoint=12; PRAGMA page_verify={};
         CREATE TABLE done(n); INSERT INTO done VALUES(0);
         CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE INDEX i ON t(b);",
        way.page_bytes,
        seed % 3,
        way.journal,
        way.synchronous,
        way.setting,
    ));
    let mut contents = vec![content(db).expect("rows")];
    recorder::record(Op::Committed(0));
    for number in 1..=40 {
        run(&format!("BEGIN; UPDATE done SET n={number}"));
        for _ in 0..=random.below(4) {
            let (key, bytes) = (random.below(60), 20 + random.below(1500));
            match random.below(9) {
                0..=3 => {
                    let text = text(&mut random, bytes);
                    run(&format!("INSERT OR REPLACE INTO t VALUES({key}, '{text}')"));
                }
                4 => run(&format!("DELETE FROM t WHERE a BETWEEN {key} AND {}", key + 6)),
                5 => {
                    let text = text(&mut random, 150);
                    run(&format!("UPDATE t SET b='{text}' || a WHERE a % 5 = {}", key % 5));
                }
                6 => run(&format!(
                    "SAVEPOINT s; UPDATE t SET b=b || 'x{bytes}'; ROLLBACK TO s; RELEASE s"
                )),
                7 => run("CREATE TABLE IF NOT EXISTS u AS SELECT * FROM t"),
                _ => run("DROP TABLE IF EXISTS u"),
            }
        }
        run("COMMIT");
        recorder::record(Op::Committed(number));
        contents.push(content(db).expect("rows"));
        match number % 20 {
            7 => run("VACUUM"),
            13 => run("BEGIN; UPDATE done SET n=-1; DELETE FROM t; ROLLBACK"),
            17 => {
                // Not where a second program that reads would be in the way.
                let _: i64 = db
                    .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
                    .expect("an answer");
            }
            _ => {}
        }
    }
    contents
}

/// How often a page failed in this process.
fn alarms() -> i64 {
    let db = Connection::open_in_memory().expect("memory");
    let count = "SELECT coalesce(sum(error_count), 0) FROM pagewarden_suspect_pages";
    db.query_row(count, [], |row| row.get(0)).expect("a number")
}

/// What comes of opening `files`: what is in the database, or why that cannot be said.
fn opened(files: &Files, vfs: &str) -> Result<String, String> {
    recorder::set_files(files.clone());
    let read = || {
        let db = connect(vfs, "")?;
        let found = (content(&db)?, integrity(&db)?);
        if vfs == "pagewarden" {
            let _: i64 = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
            assert_eq!((content(&db)?, integrity(&db)?), found, "after a checkpoint");
        }
        Ok(found)
    };
    let before = alarms();
    let read = read();
    let alarms = alarms() - before;
    match read.map_err(|error: rusqlite::Error| error.to_string())? {
        (content, integrity) if integrity == "ok" => {
            assert_eq!(alarms, 0, "pages failed, and were read: {content}");
            Ok(content)
        }
        (_, integrity) => Err(integrity),
    }
}

/// What a state must be like.
struct Promise<'a> {
    /// After each transaction.
    contents: &'a [String],
    /// The last one that the program was told of, where SQLite promises to keep it.
    committed: usize,
    /// What was done before.
    ops: &'a [Op],
    may_play_back_torn_pages: bool,
    /// The transactions that make the tables may be undone as well.
    may_undo_all: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Survived,
    /// SQLite alone reads past a page that is torn.
    Alarm,
    /// What SQLite alone makes of it.
    Lost(String),
}

/// Opens one state both ways.
fn outcome(files: &Files, promise: &Promise<'_>, what: &str) -> Outcome {
    let before = checking::check(files, NAME);
    let plain = opened(files, "recorder");
    let recovered = recorder::files();
    let number = match &plain {
        Ok(content) => promise.contents.iter().rposition(|known| known == content),
        Err(words) if promise.may_undo_all && words.starts_with("no such ") => Some(0),
        Err(_) => None,
    };
    // What SQLite makes of a torn journal may be damage, and `check` sees it before it is made.
    let will_be_lost = promise.may_play_back_torn_pages && number.is_none();
    let damage = &before.damage;
    assert!(will_be_lost || damage.is_empty(), "{what}, before recovery: {damage:?}");
    let Some(number) = number else {
        // SQLite lost it, not we; still nothing here may panic.
        let _ = opened(files, "pagewarden");
        return Outcome::Lost(format!("{what}: SQLite alone finds {plain:?}"));
    };
    assert!(number >= promise.committed, "{what}: SQLite alone lost a transaction: {number}");
    let ours = opened(files, "pagewarden");
    if promise.may_play_back_torn_pages
        && ours.is_err()
        && has_page_never_written(&recovered, promise)
    {
        return Outcome::Alarm;
    }
    assert!(ours == plain, "{what}: {ours:?}");
    let after = checking::check(&recorder::files(), NAME);
    // What is left on pages that are free is thrown away.
    let is_notice = |finding: &Finding| finding.severity == Severity::Notice;
    assert!(after.findings.iter().all(is_notice), "{what}, after recovery: {:?}", after.findings);
    Outcome::Survived
}

fn has_page_never_written(files: &Files, promise: &Promise<'_>) -> bool {
    let file = &files[NAME];
    let page_bytes = match u16::from_be_bytes([file[16], file[17]]) {
        1 => 65_536,
        bytes => usize::from(bytes),
    };
    let written: HashSet<(usize, &[u8])> = promise
        .ops
        .iter()
        .filter_map(|op| match op {
            Op::Write { name, at, bytes } if name == NAME => Some((*at, bytes.as_slice())),
            _ => None,
        })
        .collect();
    (0..)
        .zip(file.chunks(page_bytes))
        .any(|(index, page)| !written.contains(&(index * page_bytes, page)))
}

fn losses() -> usize {
    let count = std::env::var("PAGEWARDEN_POWER_LOSSES").ok();
    count.map_or(LOSSES, |count| count.parse().expect("PAGEWARDEN_POWER_LOSSES is a number"))
}

/// Alarms are counted for the process, so one test runs at a time.
fn begin() -> MutexGuard<'static, ()> {
    static ONCE: Once = Once::new();
    static TURN: Mutex<()> = Mutex::new(());
    ONCE.call_once(|| {
        recorder::register();
        pagewarden_sqlite::register().expect("the VFS");
    });
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn power_loss_at_any_moment_leaves_what_sqlite_alone_would_keep() {
    let _turn = begin();
    let mut total = 0;
    for (index, way) in WAYS.into_iter().enumerate() {
        let seed = 0x10ad_0001 + u64::try_from(index).expect("small");
        recorder::set_files(Files::new());
        let db = connect("pagewarden", "").expect("a database");
        let contents = live(&db, way, seed);
        let ops = recorder::ops();
        drop(db);
        let begin = ops.iter().position(|op| matches!(op, Op::Committed(_))).expect("a commit");
        let mut random = Random(seed ^ 0xdead);
        let (mut lost, mut alarms) = (0, 0);
        let mut moments: Vec<usize> =
            (0..losses()).map(|_| begin + 1 + random.index(ops.len() - begin)).collect();
        moments.sort_unstable();
        let mut disk = Disk::default();
        let mut done = 0;
        for moment in moments {
            ops[done..moment].iter().for_each(|op| disk.apply(op));
            done = moment;
            let files = disk.without_power(&mut random);
            let what = format!("{way:?}, seed {seed:#x}, before operation {moment}");
            let committed = if way.is_durable { disk.committed } else { 0 };
            let promise = Promise {
                contents: &contents,
                committed,
                ops: &ops,
                may_play_back_torn_pages: way.may_play_back_torn_pages(),
                may_undo_all: !way.is_durable,
            };
            match outcome(&files, &promise, &what) {
                Outcome::Survived => {}
                Outcome::Alarm => alarms += 1,
                Outcome::Lost(words) => {
                    assert!(way.may_play_back_torn_pages(), "{words}");
                    lost += 1;
                }
            }
        }
        eprintln!(
            "{} {} {} {}: {} states; SQLite alone loses {lost}, and reads past a torn page in {alarms}",
            way.journal,
            way.synchronous,
            way.page_bytes,
            way.setting,
            losses()
        );
        total += lost + alarms;
    }
    assert!(total * 20 < WAYS.len() * losses(), "SQLite alone survives nearly all: {total}");
}

/// The VACUUM that gives a database its markers: after a loss of power it has them or has not.
#[test]
fn power_loss_while_markers_are_added_leaves_the_old_content() {
    let _turn = begin();
    for (index, journal) in ["DELETE", "TRUNCATE", "PERSIST", "WAL"].into_iter().enumerate() {
        let seed = 0x10ad_1001 + u64::try_from(index).expect("small");
        recorder::set_files(Files::new());
        let db = connect("recorder", "").expect("a database");
        let way = Way { journal, synchronous: "FULL", ..WAYS[0] };
        let contents = live(&db, way, seed);
        drop(db);
        let begin = recorder::files();
        recorder::set_files(begin.clone());
        let db = connect("pagewarden", "").expect("a database");
        db.execute_batch(&format!(
            "PRAGMA journal_mode={journal}; PRAGMA synchronous=FULL; PRAGMA cache_size=6; \
             PRAGMA temp_store=MEMORY; PRAGMA page_verify=CHECKSUM; VACUUM; \
             UPDATE t SET b=b; PRAGMA wal_checkpoint;"
        ))
        .expect("markers");
        let ops = recorder::ops();
        drop(db);
        let mut random = Random(seed ^ 0xbeef);
        let last = contents.last().expect("one").clone();
        let promise = Promise {
            contents: &[last],
            committed: 0,
            ops: &ops,
            may_play_back_torn_pages: false,
            may_undo_all: false,
        };
        let mut moments: Vec<usize> = (0..losses()).map(|_| random.index(ops.len() + 1)).collect();
        moments.sort_unstable();
        let mut disk = Disk::new(&begin);
        let mut done = 0;
        for moment in moments {
            ops[done..moment].iter().for_each(|op| disk.apply(op));
            done = moment;
            let files = disk.without_power(&mut random);
            let what = format!("{journal}, seed {seed:#x}, before operation {moment}");
            assert_eq!(outcome(&files, &promise, &what), Outcome::Survived);
        }
    }
}

/// The power goes again while the first loss is recovered from.
#[test]
fn power_loss_in_recovery_leaves_what_the_first_one_left() {
    let _turn = begin();
    for (index, way) in WAYS.into_iter().enumerate().filter(|(_, way)| way.is_durable) {
        let seed = 0x10ad_2001 + u64::try_from(index).expect("small");
        recorder::set_files(Files::new());
        let db = connect("pagewarden", "").expect("a database");
        let contents = live(&db, way, seed);
        let ops = recorder::ops();
        drop(db);
        let begin = ops.iter().position(|op| matches!(op, Op::Committed(_))).expect("a commit");
        let mut random = Random(seed ^ 0xfeed);
        for round in 0..losses() / 10 {
            let moment = begin + 1 + random.index(ops.len() - begin);
            let mut disk = Disk::default();
            ops[..moment].iter().for_each(|op| disk.apply(op));
            let committed = disk.committed;
            let files = disk.without_power(&mut random);
            opened(&files, "pagewarden").expect("a recovery");
            let recovery = recorder::ops();
            let mut disk = Disk::new(&files);
            let end = random.index(recovery.len() + 1);
            recovery[..end].iter().for_each(|op| disk.apply(op));
            let again = disk.without_power(&mut random);
            let what = format!("{way:?}, seed {seed:#x}, round {round}: {moment}, then {end}");
            let promise = Promise {
                contents: &contents,
                committed,
                ops: &ops,
                may_play_back_torn_pages: false,
                may_undo_all: false,
            };
            assert_eq!(outcome(&again, &promise, &what), Outcome::Survived);
        }
    }
}
