//! A target that is behind a source which is being written to.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pagewarden_db::compare::report::Verdict;

use crate::servers::{Database, Kind, only, request, run};

const ROWS: u32 = 300;
const LAG: Duration = Duration::from_millis(300);

fn filled(kind: Kind) -> Option<Database> {
    let database = Database::new(kind)?;
    database.run("CREATE TABLE t (id int NOT NULL PRIMARY KEY, n int, c varchar(20))");
    let rows: Vec<String> = (0..ROWS).map(|id| format!("({id}, 0, 'c')")).collect();
    database.run(&format!("INSERT INTO t VALUES {}", rows.join(", ")));
    Some(database)
}

/// Ends the changes, also where the test fails: its threads are waited for.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Changes arrive at the target late; what was planted there stays. Never is a change that
/// is on its way called a difference, and never are tables called equal that are not.
#[test]
fn lag_is_no_difference_and_differences_are_found_under_writes() {
    let (Some(source), Some(target)) = (filled(Kind::Postgres), filled(Kind::Mariadb)) else {
        return;
    };
    // On a busy machine the source waits, so that the target is behind by no more than it settles in.
    let (changes, arriving) = mpsc::sync_channel::<(Instant, String)>(32);
    let (ended, applied) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut n: u32 = 0;
            while !ended.load(Ordering::Relaxed) {
                n += 1;
                // Rows are taken in turn, so that none is changed all the time; new ones come.
                let id = n * 7 % ROWS;
                let sql = format!(
                    "UPDATE t SET n = {n} WHERE id = {id} AND id <> 42; INSERT INTO t VALUES ({}, {n}, 'new');",
                    ROWS + n
                );
                source.run(&sql);
                changes.send((Instant::now(), sql)).unwrap();
            }
            drop(changes);
        });
        let _ends = Ends(&ended);
        let (target, applied) = (&target, &applied);
        scope.spawn(move || {
            for (made, sql) in arriving {
                thread::sleep(LAG.saturating_sub(made.elapsed()));
                target.run(&sql);
                applied.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut request = request(&source, target);
        request.options.settle = LAG * 5;
        request.options.patience = Duration::from_secs(20);
        request.options.chunk_rows = Some(50);
        let mut looked_again = 0;
        for _ in 0..2 {
            let begin = Instant::now();
            let outcome = run(&request);
            let report = only(&outcome);
            assert_eq!(report.different(), 0, "{report:#?}");
            looked_again += u32::from(begin.elapsed() > request.options.settle);
        }
        assert!(looked_again > 0, "nothing was on its way: the test shows nothing");
        target.run("UPDATE t SET c = 'wrong' WHERE id = 42");
        let outcome = run(&request);
        let report = only(&outcome);
        assert_eq!((report.verdict(), report.different()), (Verdict::Different, 1), "{report:#?}");
        assert_eq!(report.differences[0].columns, ["c"]);
    });
    assert!(applied.load(Ordering::Relaxed) > 5);
}

/// With `--snapshot` each side is read as it was at one moment, whatever is written since.
#[test]
fn snapshot_does_not_see_what_comes_later() {
    for kind in [Kind::Postgres, Kind::Mariadb] {
        let Some(database) = filled(kind) else { continue };
        let mut connection = database.connect();
        connection.freeze().unwrap();
        let name = connection.tables().unwrap()[0].clone();
        let table = connection.describe(&name).unwrap();
        database.run("DELETE FROM t WHERE id < 10");
        assert_eq!(connection.count(&table).unwrap(), u64::from(ROWS));
    }
}
