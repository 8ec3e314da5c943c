//! A part of a table, and what is said of all of it.

use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::report::{Outcome, Verdict};
use pagewarden_db::compare::sample::Sample;
use pagewarden_db::compare::{Course, Request, Watch, compare_on_course};

use crate::servers::{Database, KINDS, Kind, only, request};

const ROWS: u32 = 6000;

fn filled(kind: Kind, key: &str) -> Option<Database> {
    let database = Database::new(kind)?;
    database.run(&format!(
        "CREATE TABLE t (id int NOT NULL, part int NOT NULL, word varchar(20) NOT NULL, c int, PRIMARY KEY ({key}))"
    ));
    for from in (0..ROWS).step_by(1000) {
        let rows: Vec<String> =
            (from..from + 1000).map(|n| format!("({}, {}, 'w{n}', 0)", n / 100, n)).collect();
        database.run(&format!("INSERT INTO t VALUES {}", rows.join(", ")));
    }
    Some(database)
}

fn sampled(request: &Request, share: f64, seed: u64) -> Outcome {
    let course = Course { sample: Some(Sample { share, seed }), ..Course::default() };
    let watch = Watch { tell: &|_, _| Ok(()), begin: &|_| {}, advance: &|_| {} };
    compare_on_course(request, &course, &watch, &mut |_| {}).unwrap()
}

fn pair(kind: Kind, key: &str) -> Option<(Database, Database, Request)> {
    let (source, target) = (filled(kind, key)?, filled(kind, key)?);
    let mut request = request(&source, &target);
    request.options.chunk_rows = None;
    Some((source, target, request))
}

/// Never is a part called equal for the whole; all parts together are.
#[test]
fn sample_of_equal_tables_is_incomplete_and_says_how_sure_it_is() {
    for kind in KINDS {
        let Some((_source, _target, request)) = pair(kind, "part") else { continue };
        let outcome = sampled(&request, 0.05, 1);
        let report = only(&outcome);
        assert_eq!((report.verdict(), &report.error), (Verdict::Incomplete, &None), "{report:#?}");
        let sample = report.sample.unwrap();
        assert_eq!((sample.blocks, sample.compared, sample.not_equal), (6000, 300, 0));
        // The rule of three: 3 / 300 of 6000 blocks, a little less without repetition.
        assert!((50..60).contains(&sample.at_most), "{sample:?}");
        // One row falls into each block.
        assert_eq!((report.rows_source, report.rows_target), (300, 300));
    }
}

/// A key of several columns: blocks are of its first.
#[test]
fn all_blocks_are_all_rows() {
    for kind in KINDS {
        let Some((_source, target, request)) = pair(kind, "id, part") else { continue };
        target.run("INSERT INTO t VALUES (-7, 0, 'before', 1), (1000, 0, 'behind', 1)");
        target.run("UPDATE t SET c = 1 WHERE part = 3210");
        let outcome = sampled(&request, 1.0, 1);
        let report = only(&outcome);
        assert_eq!((report.changed, report.only_target), (1, 2), "{report:#?}");
        assert_eq!((report.rows_source, report.rows_target), (6000, 6002));
        let sample = report.sample.unwrap();
        assert_eq!((sample.blocks, sample.compared, sample.not_equal), (1008, 1008, 3));
        assert_eq!(sample.at_most, 3);
        target.run("DELETE FROM t WHERE id IN (-7, 1000); UPDATE t SET c = 0");
        assert_eq!(only(&sampled(&request, 1.0, 2)).verdict(), Verdict::Equal);
        let part = sampled(&request, 0.5, 2);
        assert_eq!(only(&part).verdict(), Verdict::Incomplete);
        assert_eq!(only(&part).rows_source, 3000);
    }
}

#[test]
fn what_a_sample_finds_is_named_and_raises_the_bound() {
    for kind in KINDS {
        let Some((_source, target, request)) = pair(kind, "id, part") else { continue };
        // Ten of sixty blocks. With one seed in twenty, the bound may be too low.
        target.run("UPDATE t SET c = 1 WHERE id < 10");
        let mut changed = Vec::new();
        for (_, mode) in Mode::ALL {
            let mut request = request.clone();
            request.options.mode = *mode;
            let outcome = sampled(&request, 0.5, 4);
            let report = only(&outcome);
            let sample = report.sample.unwrap();
            assert_eq!(report.verdict(), Verdict::Different);
            assert_eq!(report.changed, sample.not_equal * 100, "{mode:?}");
            assert!(sample.not_equal <= 10 && sample.at_most >= 10, "{sample:?}");
            if *mode == Mode::Pushdown {
                assert_eq!((report.mode, report.bytes), (Mode::Pushdown, 0));
            }
            changed.push(report.changed);
        }
        assert!(changed.iter().all(|count| *count == changed[0]), "the same seed: {changed:?}");
    }
}

#[test]
fn tables_that_cannot_be_cut_are_not_sampled() {
    for kind in KINDS {
        let Some((source, target, request)) = pair(kind, "word") else { continue };
        let outcome = sampled(&request, 0.5, 1);
        let error = only(&outcome).error.clone().unwrap();
        assert!(error.contains("can be sampled"), "{error}");
        // A small table is compared wholly.
        for database in [&source, &target] {
            database.run("DROP TABLE t; CREATE TABLE t (id int NOT NULL PRIMARY KEY, c int)");
            database.run("INSERT INTO t VALUES (1, 1), (2, 2)");
        }
        let outcome = sampled(&request, 0.01, 1);
        assert_eq!((only(&outcome).verdict(), only(&outcome).sample), (Verdict::Equal, None));
    }
}
