//! A comparison that is ended again and again comes to the result of one that is not.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pagewarden_db::compare::map::PartState;
use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::report::{Outcome, TableReport, Verdict, verdict};
use pagewarden_db::compare::state::State;
use pagewarden_db::compare::{Course, Request, Watch, compare_on_course};
use pagewarden_db::error::Error;
use tempfile::TempDir;

use crate::servers::{Database, KINDS, Kind, asked, assert_equal, request, run};

const ROWS: u32 = 1000;

/// A table by ranges and one by buckets.
fn filled(kind: Kind) -> Option<Database> {
    let database = Database::new(kind)?;
    for (table, key) in [("numbers", "id"), ("words", "word")] {
        database.run(&format!(
            "CREATE TABLE {table} (id int NOT NULL, word varchar(50) NOT NULL, note varchar(50), PRIMARY KEY ({key}))"
        ));
        let rows: Vec<String> = (0..ROWS).map(|id| format!("({id}, 'w{id}', 'note')")).collect();
        database.run(&format!("INSERT INTO {table} VALUES {}", rows.join(", ")));
    }
    Some(database)
}

fn plant(target: &Database) {
    for table in ["numbers", "words"] {
        target.run(&format!("UPDATE {table} SET note = NULL WHERE id IN (3, 4, 500, 998)"));
        target.run(&format!("DELETE FROM {table} WHERE id IN (100, 700)"));
        target.run(&format!("INSERT INTO {table} VALUES (2000, 'new', NULL)"));
    }
}

/// Runs until `rows_max` rows were read, and says how many were.
fn run_for(request: &Request, folder: &TempDir, rows_max: u64) -> (Outcome, u64) {
    let state = State::open(&folder.path().join("state"), &asked(request)).unwrap();
    let course = Course { state: Some(&state), ..Course::default() };
    let read = AtomicU64::new(0);
    let tell = |rows, _| {
        let read = read.fetch_add(rows, Ordering::Relaxed) + rows;
        if read > rows_max { Err(Error::Stopped) } else { Ok(()) }
    };
    let watch = Watch { tell: &tell, begin: &|_| {}, advance: &|_| {} };
    let outcome = compare_on_course(request, &course, &watch, &mut |_| {}).unwrap();
    (outcome, read.into_inner())
}

/// What must be the same, however often it was interrupted.
fn result(outcome: &Outcome) -> Vec<String> {
    let tables = outcome.tables.iter().map(|table| {
        format!(
            "{} {:?} {} {} {} {} {} {} {} {} {:?} {:?} {:?}",
            table.table,
            table.verdict(),
            table.rows_source,
            table.rows_target,
            table.changed,
            table.only_source,
            table.only_target,
            table.unresolved,
            table.chunks,
            table.bytes,
            table.differences,
            table.diagnosis,
            (&table.error, table.mode, &table.mode_because, &table.map),
        )
    });
    tables.collect()
}

/// Runs again and again, each time for `rows` rows more, and comes to what one run found.
fn assert_the_same_in_steps(request: &Request, rows: u64) -> Outcome {
    let expected = run(request);
    let folder = tempfile::tempdir().unwrap();
    let mut runs = 0;
    let last = loop {
        runs += 1;
        // A table of buckets is read as a whole several times, so each run gets further.
        let (outcome, _) = run_for(request, &folder, runs * rows);
        if !outcome.tables.iter().any(|table| table.stopped) {
            break outcome;
        }
        assert!(runs < 50, "it does not come to an end");
    };
    assert!(runs > 1, "nothing was interrupted");
    assert_eq!(result(&last), result(&expected));
    let (again, read) = run_for(request, &folder, 0);
    assert_eq!((result(&again), read), (result(&expected), 0));
    for table in &again.tables {
        assert_eq!(table.chunks_resumed, table.chunks);
        assert_eq!(table.notes, ["an earlier run has finished it: nothing is read again"]);
    }
    expected
}

#[test]
fn interrupted_runs_come_to_the_same_result() {
    for kind in KINDS {
        let (Some(source), Some(target)) = (filled(kind), filled(kind)) else { continue };
        for table in ["a", "b"] {
            // Without a key and equal: servers sum it as a whole.
            let rows = format!("INSERT INTO {table} SELECT id, note FROM numbers");
            for database in [&source, &target] {
                database.run(&format!("CREATE TABLE {table} (id int, note varchar(50)); {rows}"));
            }
        }
        plant(&target);
        for (_, mode) in Mode::ALL {
            let mut request = request(&source, &target);
            request.options.mode = *mode;
            let outcome = assert_the_same_in_steps(&request, 700);
            assert_eq!(verdict(outcome.tables.iter()), Verdict::Different);
            let marked: Vec<bool> = outcome.tables.iter().map(is_marked).collect();
            assert_eq!(marked, [false, false, true, true], "{kind:?} {mode:?}");
        }
    }
}

fn is_marked(table: &TableReport) -> bool {
    table.map.tiles().iter().any(|tile| tile.state == PartState::Different)
}

/// Parts that differ are cut into smaller ones, of which some are left to be read.
#[test]
fn interrupted_runs_go_on_with_the_parts_that_smaller_sums_have_left() {
    for kind in KINDS {
        let (Some(source), Some(target)) = (Database::new(kind), Database::new(kind)) else {
            continue;
        };
        let rows: Vec<String> = (0..9000).map(|id| format!("({id}, 'n{id}')")).collect();
        for database in [&source, &target] {
            database.run("CREATE TABLE t (id int NOT NULL PRIMARY KEY, note varchar(50))");
            database.run(&format!("INSERT INTO t VALUES {}", rows.join(", ")));
        }
        target.run("UPDATE t SET note = 'x' WHERE id IN (1, 2, 2500, 8999)");
        target.run("DELETE FROM t WHERE id = 1500; INSERT INTO t VALUES (-5, NULL), (9500, NULL)");
        let mut request = request(&source, &target);
        request.options.mode = Mode::Pushdown;
        request.options.chunk_rows = Some(3000);
        let outcome = assert_the_same_in_steps(&request, 2000);
        let table = &outcome.tables[0];
        assert_eq!((table.mode, table.bytes), (Mode::Pushdown, 0), "{}", table.mode_because);
        assert_eq!((table.changed, table.only_source, table.only_target), (4, 1, 2));
    }
}

/// What `auto` has measured is not measured again: the figures are those of the first run.
#[test]
fn chosen_mode_of_a_table_is_kept() {
    let Some(source) = Database::new(Kind::Postgres) else { return };
    source.run("CREATE TABLE t (id int PRIMARY KEY, word text)");
    source.run("INSERT INTO t SELECT n, 'w' || n FROM generate_series(1, 9000) n");
    let mut request = request(&source, &source);
    request.options.mode = Mode::Auto;
    request.options.chunk_rows = Some(1500);
    let folder = tempfile::tempdir().unwrap();
    // Three ways of two sides and two parts, and a part more.
    let (first, _) = run_for(&request, &folder, 1500 * (3 * 2 * 2 + 2));
    let first = &first.tables[0];
    assert!(first.stopped && first.chunks < 6, "{first:#?}");
    assert!(first.mode_because.contains("measured: stream "), "{first:#?}");
    let (outcome, _) = run_for(&request, &folder, u64::MAX);
    let table = &outcome.tables[0];
    assert_eq!((table.verdict(), table.chunks), (Verdict::Equal, 8));
    assert_eq!((table.mode, &table.mode_because), (first.mode, &first.mode_because));
    request.options.mode = Mode::Stream;
    let error = State::open(&folder.path().join("state"), &asked(&request)).unwrap_err();
    assert!(error.to_string().contains("not the same are --mode"), "{error}");
}

/// A table whose definition is another begins anew and says so; the others go on.
#[test]
fn altered_table_begins_anew_and_says_so() {
    for kind in KINDS {
        let (Some(source), Some(target)) = (filled(kind), filled(kind)) else { continue };
        let request = request(&source, &target);
        let folder = tempfile::tempdir().unwrap();
        assert_equal(&run_for(&request, &folder, u64::MAX).0);
        for database in [&source, &target] {
            database.run("ALTER TABLE numbers ADD COLUMN more int");
        }
        target.run("UPDATE numbers SET more = 1 WHERE id = 7");
        let (outcome, _) = run_for(&request, &folder, u64::MAX);
        let [numbers, words] = &outcome.tables[..] else { panic!("{outcome:#?}") };
        assert_eq!((numbers.changed, numbers.rows_source, numbers.chunks_resumed), (1, 1000, 0));
        assert!(numbers.notes[0].contains("definition has changed"), "{:?}", numbers.notes);
        assert_eq!(words.verdict(), Verdict::Equal);
        assert!(words.notes[0].contains("nothing is read again"), "{:?}", words.notes);
    }
}

/// What was unresolved is looked at again by the next run; what was settled is not.
#[test]
fn unresolved_rows_are_looked_at_again() {
    for kind in KINDS {
        let (Some(source), Some(target)) = (filled(kind), filled(kind)) else { continue };
        target.run("UPDATE numbers SET note = 'late' WHERE id = 5");
        target.run("DELETE FROM words WHERE id = 700");
        let mut request = request(&source, &target);
        // Longer than patience: nothing stands still for so long.
        request.options.settle = std::time::Duration::from_millis(200);
        request.options.patience = std::time::Duration::ZERO;
        let folder = tempfile::tempdir().unwrap();
        let (is_hot, changes) = (AtomicBool::new(false), AtomicU64::new(0));
        let turns = Mutex::new(());
        let tell = |_, _| {
            // In short parts, no statement runs on the source while this is called.
            if is_hot.load(Ordering::Relaxed) {
                let _turn = turns.lock().unwrap();
                let n = changes.fetch_add(1, Ordering::Relaxed);
                source.run(&format!("UPDATE numbers SET note = 'hot{n}' WHERE id = 5"));
            }
            Ok(())
        };
        let begin = |table: &str| is_hot.store(table == "numbers", Ordering::Relaxed);
        {
            let state = State::open(&folder.path().join("state"), &asked(&request)).unwrap();
            let course = Course { state: Some(&state), ..Course::default() };
            let watch = Watch { tell: &tell, begin: &begin, advance: &|_| {} };
            request.options.chunk_rows = Some(500);
            let outcome = compare_on_course(&request, &course, &watch, &mut |_| {}).unwrap();
            let unresolved: Vec<u64> = outcome.tables.iter().map(|one| one.unresolved).collect();
            assert_eq!(unresolved, [1, 0], "{outcome:#?}");
            assert_eq!(outcome.tables[1].only_source, 1);
        }
        source.run("UPDATE numbers SET note = 'late' WHERE id = 5");
        let (outcome, _) = run_for(&request, &folder, u64::MAX);
        let numbers = &outcome.tables[0];
        assert_eq!(
            (numbers.verdict(), numbers.rows_source),
            (Verdict::Equal, 1000),
            "{numbers:#?}"
        );
        assert_eq!(outcome.tables[1].only_source, 1);
    }
}
