//! `compare --state`: the run after one that was killed at any moment resumes, and comes
//! to the result of one that was never killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::compares::{Databases, json, plain};
use crate::runner::{Outcome, Started, run};

/// A table by ranges, one by ranges of two columns, one by buckets.
const TABLES: &str = "CREATE TABLE a (id INTEGER PRIMARY KEY, word TEXT);
    INSERT INTO a SELECT value, 'word' || value FROM generate_series(1, 6000);
    CREATE TABLE b (x INTEGER NOT NULL, y INTEGER NOT NULL, word TEXT, PRIMARY KEY (x, y));
    INSERT INTO b SELECT value / 7, value, 'word' FROM generate_series(1, 6000);
    CREATE TABLE c (word TEXT NOT NULL PRIMARY KEY, n INTEGER) WITHOUT ROWID;
    INSERT INTO c SELECT 'w' || value, value FROM generate_series(1, 6000);";

const PLANTED: &str = "UPDATE a SET word = 'other' WHERE id % 500 = 3; DELETE FROM a WHERE id = 77;
    INSERT INTO a VALUES (9000, 'new'); UPDATE b SET word = NULL WHERE y IN (4, 5000);
    DELETE FROM c WHERE n % 1000 = 1;";

fn databases() -> Option<Databases> {
    Databases::of(&[("one", TABLES), ("two", &format!("{TABLES}{PLANTED}"))])
}

/// `compare` in small parts, slowly enough to be killed at any of them.
fn compare(databases: &Databases, words: &[&str]) -> Command {
    let mut command = plain();
    command.arg("compare");
    command.args(["one", "two"].map(|name| format!("sqlite:{}", databases.path(name))));
    command.args(["--settle", "20ms", "--chunk-rows", "60", "--rate", "1MiB/s"]).args(words);
    command
}

/// What must be the same, however often it was killed.
fn result(outcome: &Outcome) -> Value {
    let mut report = json(outcome);
    for table in report["tables"].as_array_mut().unwrap() {
        for time in ["seconds", "chunks_resumed", "notes", "paused_seconds"] {
            table.as_object_mut().unwrap().remove(time).unwrap();
        }
    }
    report.as_object_mut().unwrap().remove("seconds");
    report
}

/// Every part of every table is in the file once, and begins where the one before ends.
fn assert_no_part_is_missing_or_twice(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    let (mut next, mut settled) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        let line: Value = serde_json::from_str(line.split_once(' ').unwrap().1).unwrap();
        if let Some(chunk) = line.get("chunk") {
            let (table, chunk) = (chunk[0].as_u64().unwrap(), &chunk[1]);
            let begin = (0, Value::Null);
            let (number, after) = next.get(&table).unwrap_or(&begin);
            assert_eq!(
                (&chunk["number"], &chunk["after"]),
                (&Value::from(*number), after),
                "{line}"
            );
            next.insert(table, (*number + 1, chunk["upto"].clone()));
        }
        if let Some(part) = line.get("settled") {
            let times = settled.entry((part[0].to_string(), part[1].to_string())).or_insert(0);
            *times += 1;
            assert_eq!(*times, 1, "{line}");
        }
    }
    assert!(next.len() == 2 && next.values().all(|(_, upto)| upto.is_null()), "{next:?}");
}

/// Killed at moments all over its length, often twice in a row. `PAGEWARDEN_KILLS` says how
/// many runs are.
#[test]
fn killed_runs_come_to_the_same_result() {
    let Some(databases) = databases() else { return };
    let kills = std::env::var("PAGEWARDEN_KILLS").ok().and_then(|text| text.parse().ok());
    let kills: u32 = kills.unwrap_or(5);
    let whole = ["stream", "pushdown"].map(|mode| {
        let begin = Instant::now();
        let whole = run(&mut compare(&databases, &["--json", "--mode", mode]));
        assert_eq!(whole.status, Some(1), "{whole:?}");
        (mode, begin.elapsed(), result(&whole))
    });
    let mut chance = std::process::id().wrapping_mul(2_654_435_761);
    let (mut hit, mut resumed) = (0, 0);
    for (kill, (mode, length, expected)) in (0..kills).zip(whole.iter().cycle()) {
        let path = databases.folder.path().join(format!("state{kill}"));
        let state = path.to_string_lossy().into_owned();
        for _ in 0..=kill % 3 {
            chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let moment = length.mul_f64(f64::from(chance >> 8) / f64::from(1 << 24));
            let started =
                Started::spawn(&mut compare(&databases, &["--state", &state, "--mode", mode]));
            std::thread::sleep(moment);
            started.signal(rustix::process::Signal::KILL);
            hit += u32::from(started.wait().status.is_none());
        }
        let words = ["--state", &state, "--mode", mode, "--json"];
        let outcome = run(&mut compare(&databases, &words));
        assert_eq!(outcome.status, Some(1), "{outcome:?}");
        assert_eq!(result(&outcome), *expected, "{mode} after {hit} kills, {chance}");
        assert_no_part_is_missing_or_twice(&path);
        let report = json(&outcome);
        let tables = report["tables"].as_array().unwrap();
        resumed += tables.iter().filter_map(|table| table["chunks_resumed"].as_u64()).sum::<u64>();
    }
    assert!(hit >= kills / 2, "{hit} of {kills}: too fast to be killed");
    assert!(resumed > 0, "nothing was resumed");
}

#[test]
fn ended_run_says_how_it_goes_on_and_a_finished_one_that_it_is() {
    use std::os::unix::fs::PermissionsExt as _;

    let Some(databases) = databases() else { return };
    let state = databases.path("state");
    let started = Started::spawn(&mut compare(&databases, &["--state", &state, "--jobs", "1"]));
    std::thread::sleep(Duration::from_millis(400));
    started.signal(rustix::process::Signal::TERM);
    let outcome = started.wait();
    assert_eq!(outcome.status, Some(3), "{outcome:?}");
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o600);
    let outcome = run(&mut compare(&databases, &["--state", &state]));
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert!(outcome.stdout.contains("parts of an earlier run"), "{outcome:?}");
    let outcome = run(&mut compare(&databases, &["--state", &state]));
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert!(outcome.stdout.contains("nothing is read again"), "{outcome:?}");
    assert!(outcome.stderr.contains("was finished before"), "{outcome:?}");
    // Another comparison is refused, and so is a file that is something else.
    let words = ["--state", &state, "--table", "a", "--mode", "stream"];
    let outcome = run(&mut compare(&databases, &words));
    assert_eq!(outcome.status, Some(2));
    let error = "another comparison: not the same are --table, --mode";
    assert!(outcome.stderr.contains(error), "{outcome:?}");
    let before = fs::read(databases.path("one")).unwrap();
    let outcome = run(&mut compare(&databases, &["--state", &databases.path("one")]));
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("not the state of a comparison"), "{outcome:?}");
    assert_eq!(fs::read(databases.path("one")).unwrap(), before);
}

#[test]
fn sample_is_never_equal() {
    let Some(databases) = databases() else { return };
    databases.run(
        "two",
        "DELETE FROM a; INSERT INTO a SELECT value, 'word' || value FROM generate_series(1, 6000)",
    );
    let words = ["--json", "--table", "a", "--sample", "5%", "--seed", "7"];
    let outcome = run(&mut compare(&databases, &words));
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    let report = json(&outcome);
    let sample = &report["tables"][0]["sample"];
    assert_eq!((&report["verdict"], &sample["compared"]), (&"incomplete".into(), &300.into()));
    assert_eq!((&sample["confidence"], &sample["seed"]), (&0.95.into(), &7.into()));
    assert!(sample["not_equal_at_most"].as_u64().unwrap() < 60);
}
