//! Rows that keep changing are watched until they are settled, or the caller ends it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use pagewarden_db::compare::map::PartState;
use pagewarden_db::compare::report::{Outcome, Verdict};
use pagewarden_db::compare::{Course, Watch, compare_on_course};
use pagewarden_db::error::Error;

use crate::servers::{Database, KINDS, Kind, only, request};

fn filled(kind: Kind) -> Option<Database> {
    let database = Database::new(kind)?;
    database.run("CREATE TABLE t (id int NOT NULL PRIMARY KEY, n int)");
    database.run("INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)");
    Some(database)
}

/// Compares while a row changes, up to the moment when all has been read once; then does
/// `and_then`, and says how often the table was reported and what was said.
fn watched(
    source: &Database,
    target: &Database,
    ends: bool,
    and_then: &dyn Fn(),
) -> (Outcome, usize, Vec<String>) {
    let (is_hot, count) = (AtomicBool::new(true), AtomicU32::new(0));
    let notes = Mutex::new(Vec::new());
    let note = |text: &str| notes.lock().unwrap().push(text.to_owned());
    let turns = Mutex::new(());
    let tell = |_, _| {
        if is_hot.load(Ordering::Relaxed) {
            // Both sides tell at the same time.
            let _turn = turns.lock().unwrap();
            let n = count.fetch_add(1, Ordering::Relaxed) + 1;
            source.run(&format!("UPDATE t SET n = {n} WHERE id = 2"));
        } else if ends {
            return Err(Error::Stopped);
        }
        Ok(())
    };
    let mut request = request(source, target);
    request.options.patience = Duration::from_millis(300);
    let course = Course { watch: true, note: Some(&note), ..Course::default() };
    let mut reported = Vec::new();
    let watch = Watch { tell: &tell, begin: &|_| {}, advance: &|_| {} };
    let outcome = compare_on_course(&request, &course, &watch, &mut |report| {
        if reported.is_empty() {
            is_hot.store(false, Ordering::Relaxed);
            and_then();
        }
        reported.push(report.unresolved);
    })
    .unwrap();
    assert_eq!(reported[0], 1, "{outcome:#?}");
    (outcome, reported.len(), notes.into_inner().unwrap())
}

#[test]
fn watched_row_becomes_equal_or_different() {
    for kind in KINDS {
        let (Some(source), Some(target)) = (filled(kind), filled(kind)) else { continue };
        let arrive = || {
            source.run("UPDATE t SET n = -1 WHERE id = 2");
            target.run("UPDATE t SET n = -1 WHERE id = 2");
        };
        let (outcome, reported, notes) = watched(&source, &target, false, &arrive);
        let report = only(&outcome);
        assert_eq!((report.verdict(), report.unresolved), (Verdict::Equal, 0), "{report:#?}");
        assert_eq!(report.map.tiles()[0].state, PartState::Equal);
        assert_eq!((reported, outcome.stopped), (2, false));
        assert_eq!(notes, ["t: of 1 unresolved rows 0 differ, 1 are equal, 0 are left"]);
        let lose = || target.run("UPDATE t SET n = -5 WHERE id = 2");
        let (outcome, reported, notes) = watched(&source, &target, false, &lose);
        let report = only(&outcome);
        assert_eq!((report.verdict(), report.changed), (Verdict::Different, 1), "{report:#?}");
        assert_eq!(report.map.tiles()[0].state, PartState::Different);
        assert_eq!((report.differences.len(), report.diagnosis.len(), reported), (1, 1, 2));
        assert_eq!(notes, ["t: of 1 unresolved rows 1 differ, 0 are equal, 0 are left"]);
    }
}

#[test]
fn watching_can_be_ended() {
    for kind in KINDS {
        let (Some(source), Some(target)) = (filled(kind), filled(kind)) else { continue };
        let (outcome, _, _) = watched(&source, &target, true, &|| {});
        let report = only(&outcome);
        assert_eq!((report.verdict(), report.unresolved), (Verdict::Incomplete, 1));
        assert_eq!(report.map.tiles()[0].state, PartState::Unresolved);
        assert!(outcome.stopped && !report.stopped);
    }
}
