//! Tables that are read: as the servers send them where that is enough, and in other ways
//! where it is not.

use std::sync::atomic::{AtomicU64, Ordering};

use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::report::Outcome;
use pagewarden_db::compare::{Watch, compare};

use crate::servers::{Database, KINDS, Kind, assert_equal, only, request};

const ROWS: u64 = 70;

/// Compares by reading, and says how many rows were read.
fn read(source: &Database, target: &Database) -> (Outcome, u64) {
    let mut request = request(source, target);
    request.options.mode = Mode::Stream;
    let rows = AtomicU64::new(0);
    let tell = |more, _| {
        rows.fetch_add(more, Ordering::Relaxed);
        Ok(())
    };
    let watch = Watch { tell: &tell, begin: &|_| {}, advance: &|_| {} };
    let outcome = compare(&request, &watch, &mut |_| {}).unwrap();
    (outcome, rows.into_inner())
}

fn table(kind: Kind, order: &str) -> Option<Database> {
    let database = Database::new(kind)?;
    let amount = if kind == Kind::Postgres { "numeric" } else { "decimal(10, 3)" };
    database.run(&format!(
        "CREATE TABLE t (id int NOT NULL PRIMARY KEY, amount {amount}, word varchar(20))"
    ));
    let mut rows: Vec<String> = (0..ROWS).map(|id| format!("({id}, {id}.50, 'w{id}')")).collect();
    if order == "DESC" {
        rows.reverse();
    }
    database.run(&format!("INSERT INTO t VALUES {}", rows.join(", ")));
    Some(database)
}

/// Equal tables are read once, whoever they belong to.
#[test]
fn equal_tables_are_read_once() {
    for source in KINDS {
        for target in KINDS {
            let (Some(one), Some(other)) = (table(source, "ASC"), table(target, "ASC")) else {
                continue;
            };
            let (outcome, rows) = read(&one, &other);
            assert_equal(&outcome);
            assert_eq!(rows, 2 * ROWS, "{source:?} {target:?}");
        }
    }
}

/// The same numbers with other digits, in another order of the rows: equal, and it is not
/// tried again and again to see that by the bytes.
#[test]
fn equal_values_in_other_bytes_and_order_are_equal() {
    let (Some(one), Some(other)) = (table(Kind::Postgres, "ASC"), table(Kind::Postgres, "DESC"))
    else {
        return;
    };
    other.run("UPDATE t SET amount = amount::numeric(10, 5)");
    let (outcome, rows) = read(&one, &other);
    assert_equal(&outcome);
    assert_eq!(only(&outcome).rows_source, ROWS);
    // Two parts of seven rows at most, and their rows once more.
    assert!(rows > 2 * ROWS && rows <= 2 * ROWS + 2 * 2 * 7, "{rows}");
}

/// What differs is named in each of these ways, and nothing else is.
#[test]
fn what_differs_is_named_where_the_bytes_of_all_rows_do() {
    for order in ["ASC", "DESC"] {
        let (Some(one), Some(other)) = (table(Kind::Postgres, "ASC"), table(Kind::Postgres, order))
        else {
            return;
        };
        for digits in [2, 5] {
            other.run(&format!(
                "UPDATE t SET amount = amount::numeric(10, {digits});
                 UPDATE t SET word = 'changed' WHERE id IN (3, 50); DELETE FROM t WHERE id = 20"
            ));
            let (outcome, _) = read(&one, &other);
            let report = only(&outcome);
            let counts = (report.changed, report.only_source, report.only_target);
            assert_eq!(counts, (2, 1, 0), "{order} {digits} {report:#?}");
            assert!(report.differences.iter().all(|one| one.columns.len() < 2), "{report:#?}");
        }
    }
}
