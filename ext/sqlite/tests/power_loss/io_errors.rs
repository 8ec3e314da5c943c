//! A call to the system that fails: one read, write, sync or question for a file's length, or all
//! from there on. Every call of a life of transactions fails once. What SQLite was told is on disk
//! must be there, with its markers, and the extension must not take the file for another one because
//! it could not look.

use rusqlite::Connection;

use crate::disk::Files;
use crate::recorder::{Fault, has_fault_ahead, set_fault};
use crate::{NAME, WAYS, Way, begin, checking, connect, content, integrity, losses, recorder};

const TRANSACTIONS: usize = 6;
/// With as many losses of power as this for each way, every call fails; with fewer, some do.
const STEP_BY_LOSSES: usize = 600;

/// What the number `number` does to the database.
fn transaction(number: usize) -> String {
    let key = number * 7 % 20;
    format!(
        "BEGIN; UPDATE done SET n={number};
         INSERT OR REPLACE INTO t VALUES({key}, printf('%.*c', {bytes}, 'a' || {number}));
         UPDATE t SET b=substr(b, 2) || {number} WHERE a % 3 = {third};
         DELETE FROM t WHERE a = {gone}; COMMIT",
        bytes = 300 + number * 211 % 1500,
        third = number % 3,
        gone = (key + 10) % 20,
    )
}

fn settings(way: Way) -> String {
    format!(
        "PRAGMA journal_mode={}; PRAGMA synchronous={}; PRAGMA cache_size=6; \
         PRAGMA temp_store=MEMORY; PRAGMA wal_autocheckpoint=8;",
        way.journal, way.synchronous
    )
}

/// A database with its markers, closed; what is in it.
fn make(way: Way) -> String {
    recorder::set_files(Files::new());
    let db = connect("pagewarden", "").unwrap();
    db.execute_batch(&format!(
        "PRAGMA page_size={}; {} PRAGMA page_verify={};
         CREATE TABLE done(n); INSERT INTO done VALUES(0);
         CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE INDEX i ON t(b);
         WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < 19)
             INSERT INTO t SELECT n, printf('%.*c', 400 + n * 37, 'x' || n) FROM c;",
        way.page_bytes,
        settings(way),
        way.setting
    ))
    .unwrap();
    content(&db).unwrap()
}

/// What is in the database after each transaction, if nothing fails.
fn contents(way: Way) -> Vec<String> {
    let mut contents = vec![make(way)];
    let db = connect("pagewarden", "").unwrap();
    db.execute_batch(&settings(way)).unwrap();
    for number in 1..=TRANSACTIONS {
        db.execute_batch(&transaction(number)).unwrap();
        contents.push(content(&db).unwrap());
    }
    contents
}

/// The last transaction that is in the database, if that can be read.
fn last(db: &Connection) -> rusqlite::Result<usize> {
    let last: i64 = db.query_row("SELECT n FROM done", [], |row| row.get(0))?;
    Ok(usize::try_from(last).unwrap())
}

/// Does all transactions, each until SQLite says that it is done or has failed three times; gives
/// the number of the last one that SQLite said is done.
fn live(way: Way) -> usize {
    let mut done = 0;
    let Ok(db) = connect("pagewarden", "") else { return done };
    if db.execute_batch(&settings(way)).is_err() && db.execute_batch(&settings(way)).is_err() {
        return done;
    }
    for number in 1..=TRANSACTIONS {
        for _ in 0..3 {
            match db.execute_batch(&transaction(number)) {
                Ok(()) => {
                    done = number;
                    break;
                }
                Err(_) => {
                    // SQLite may have rolled it back by itself.
                    let _ = db.execute_batch("ROLLBACK");
                    // It may have come to be before the error did.
                    if last(&db).is_ok_and(|last| last == number) {
                        break;
                    }
                }
            }
        }
        if !db.is_autocommit() {
            break;
        }
        // One that never came to be: those after it would build on something else.
        if done != number && !last(&db).is_ok_and(|last| last == number) {
            break;
        }
    }
    done
}

/// Lets the call after `calls_before` others fail; false if there are fewer.
fn one_fault(way: Way, contents: &[String], fault: Fault) -> bool {
    make(way);
    set_fault(Some(fault));
    let done = live(way);
    let was_ahead = has_fault_ahead();
    set_fault(None);
    let what = format!("{way:?}, {fault:?}, {done} done");
    let db = connect("pagewarden", "").unwrap();
    let found = content(&db).unwrap_or_else(|error| panic!("{what}: {error}"));
    let number = contents.iter().position(|known| *known == found);
    let number = number.unwrap_or_else(|| panic!("{what}: {found}"));
    assert!(number >= done, "{what}: only {number} are there");
    assert_eq!(integrity(&db).unwrap(), "ok", "{what}");
    let setting: String = db.query_row("PRAGMA page_verify", [], |row| row.get(0)).unwrap();
    assert_eq!(setting, way.setting, "{what}");
    // Every page in the file, also those that are in the log, or free.
    let _: i64 = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    drop(db);
    let checked = checking::check(&recorder::files(), NAME);
    assert!(checked.damage.is_empty(), "{what}: {:?}", checked.damage);
    !was_ahead
}

#[test]
fn a_call_that_fails_leaves_what_was_committed_with_its_markers() {
    let _turn = begin();
    for way in [WAYS[0], WAYS[3], WAYS[5], WAYS[7]] {
        let contents = contents(way);
        let step = (STEP_BY_LOSSES / losses()).max(1);
        let mut calls = 0;
        for is_lasting in [false, true] {
            // Not the same ones where only some are tried.
            calls = usize::from(is_lasting) * step / 2;
            while one_fault(way, &contents, Fault { calls_before: calls, is_lasting }) {
                calls += step;
            }
            assert!(calls > 100, "{way:?}: only {calls} calls were there to fail");
        }
        eprintln!(
            "{} {}: one call in {step} of {calls} failed, once and for good",
            way.journal, way.setting
        );
    }
}
