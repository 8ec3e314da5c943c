//! Tables that are read: as the servers send them where that is enough, and in other ways
//! where it is not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::report::Outcome;
use pagewarden_db::compare::{Watch, compare};

use crate::servers::{Database, KINDS, Kind, assert_equal, only, request};

const ROWS: u64 = 70;

/// Compares by reading, and says how many rows were read.
fn read(source: &Database, target: &Database) -> (Outcome, u64) {
    read_in_parts(source, target, 7)
}

fn read_in_parts(source: &Database, target: &Database, chunk_rows: u64) -> (Outcome, u64) {
    let mut request = request(source, target);
    request.options.chunk_rows = Some(chunk_rows);
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

/// Equal tables are read once, whichever servers have them.
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

/// Two databases of one engine, filled by a statement each.
fn two(kind: Kind, of_source: &str, of_target: &str) -> Option<[Database; 2]> {
    let databases = [Database::new(kind)?, Database::new(kind)?];
    for (database, sql) in databases.iter().zip([of_source, of_target]) {
        database.run(sql);
    }
    Some(databases)
}

/// MariaDB keeps JSON as it was written.
#[test]
fn equal_json_in_other_bytes_is_equal() {
    let rows = |blank: &str| {
        let each = (0..ROWS).map(|id| format!("({id}, '{{\"a\":{blank}{id}}}')"));
        let each: Vec<String> = each.collect();
        format!(
            "CREATE TABLE t (id int PRIMARY KEY, doc json); INSERT INTO t VALUES {}",
            each.join(", ")
        )
    };
    let Some([one, other]) = two(Kind::Mariadb, &rows(""), &rows(" ")) else { return };
    let (outcome, rows) = read(&one, &other);
    assert_equal(&outcome);
    assert!(rows > 2 * ROWS && rows <= 2 * ROWS + 2 * 2 * 7, "{rows}");
}

/// -1 and the largest number of 64 bits are sent in the same bytes.
#[test]
fn same_bytes_of_other_types_are_other_values() {
    let table = |kind: &str, value: &str| {
        format!(
            "CREATE TABLE t (id int PRIMARY KEY, n {kind}); INSERT INTO t VALUES (1, {value}), (2, 5)"
        )
    };
    let tables = (table("bigint", "-1"), table("bigint unsigned", "18446744073709551615"));
    let Some([one, other]) = two(Kind::Mariadb, &tables.0, &tables.1) else { return };
    let (outcome, _) = read(&one, &other);
    let report = only(&outcome);
    assert_eq!((report.changed, report.only_source, report.only_target), (1, 0, 0), "{report:#?}");
    assert_eq!(report.differences[0].columns, ["n"]);
}

/// Text is what it says, not the bytes in which a server keeps it: the same text has other bytes
/// in another character set. Servers convert the text of some of these tables and send that of
/// others as it is, by one connection.
#[test]
fn same_text_in_another_character_set_is_equal_and_read_once() {
    let sets = ["utf8mb4", "utf8mb3", "latin1", "ucs2", "utf16", "cp1250", "utf8mb4"];
    let tables = |sets: &[&str]| {
        let each = sets.iter().enumerate().map(|(number, set)| {
            format!(
                "CREATE TABLE t{number} (id int PRIMARY KEY, \
                   smile varchar(20) CHARACTER SET utf8mb4, w varchar(20) CHARACTER SET {set}, \
                   e enum('\u{e9}') CHARACTER SET {set}, x text CHARACTER SET {set}); \
                 INSERT INTO t{number} VALUES (1, '\u{1f600}', '', '\u{e9}', NULL), \
                   (2, 'a', 'caf\u{e9}', NULL, 'th\u{e9}');"
            )
        });
        each.collect::<String>()
    };
    let mut others = sets;
    others.rotate_left(2);
    let Some([one, other]) = two(Kind::Mariadb, &tables(&sets), &tables(&others)) else { return };
    for (source, target) in [(&one, &other), (&other, &one)] {
        let (outcome, rows) = read(source, target);
        assert_equal(&outcome);
        assert_eq!(outcome.tables.len(), sets.len());
        assert_eq!(rows, 2 * 2 * sets.len() as u64);
    }
}

/// The same bytes say something else in another character set.
#[test]
fn same_bytes_in_another_character_set_are_other_text() {
    let tables = |sets: &[&str]| {
        let each = sets.iter().enumerate().map(|(number, set)| {
            format!(
                "CREATE TABLE t{number} (id int PRIMARY KEY, w varchar(20) CHARACTER SET {set}); \
                 INSERT INTO t{number} VALUES (1, _{set} x'c3a9');"
            )
        });
        each.collect::<String>()
    };
    let sets = ["utf8mb4", "latin1", "utf8mb3", "latin1"];
    let others = ["latin1", "utf8mb4", "latin1", "cp1250"];
    let Some([one, other]) = two(Kind::Mariadb, &tables(&sets), &tables(&others)) else { return };
    let (outcome, _) = read(&one, &other);
    assert_eq!(outcome.tables.len(), sets.len());
    for report in &outcome.tables {
        let counts = (report.changed, report.only_source, report.only_target);
        assert_eq!(counts, (1, 0, 0), "{report:#?}");
        assert_eq!(report.differences[0].columns, ["w"]);
    }
}

/// NULL, nothing, zero and text that moves between columns are not sent in the same bytes.
#[test]
fn every_change_of_a_row_changes_the_bytes_that_are_sent() {
    let table = |values: &str| {
        format!(
            "CREATE TABLE t (id int PRIMARY KEY, a varchar(20), b varchar(20), n tinyint, \
             r double, at datetime(6)); INSERT INTO t VALUES (1, {values})"
        )
    };
    let values = "'ab', 'c', 0, 0.5, '2024-01-02 03:04:05.5'";
    for (other, columns) in [
        ("'a', 'bc', 0, 0.5, '2024-01-02 03:04:05.5'", &["a", "b"][..]),
        ("'ab', NULL, 0, 0.5, '2024-01-02 03:04:05.5'", &["b"]),
        ("'ab', '', 0, 0.5, '2024-01-02 03:04:05.5'", &["b"]),
        ("'ab', 'c', NULL, 0.5, '2024-01-02 03:04:05.5'", &["n"]),
        ("'ab', 'c', 0, 0.5000000000000001, '2024-01-02 03:04:05.5'", &["r"]),
        ("'ab', 'c', 0, 0.5, '2024-01-02 03:04:05.500001'", &["at"]),
        ("'ab ', 'c', 0, 0.5, '2024-01-02 03:04:05.5'", &["a"]),
        ("'ab', 'C', 0, 0.5, '2024-01-02 03:04:05.5'", &["b"]),
    ] {
        let Some([one, other]) = two(Kind::Mariadb, &table(values), &table(other)) else { return };
        let (outcome, _) = read(&one, &other);
        let report = only(&outcome);
        assert_eq!(report.changed, 1, "{report:#?}");
        assert_eq!(report.differences[0].columns, columns);
    }
}

/// Rows that need more than one packet of the protocol, or more than one reading of the socket.
#[test]
fn long_rows_are_compared() {
    let table = |last: char| {
        format!(
            "CREATE TABLE t (id int PRIMARY KEY, a longtext, b longtext); \
             INSERT INTO t VALUES (1, 'x', 'y'), \
               (2, repeat('a', 9000000), concat(repeat('b', 9000000), '{last}')), (3, 'x', 'y')"
        )
    };
    let Some([one, other]) = two(Kind::Mariadb, &table('c'), &table('c')) else { return };
    let (outcome, rows) = read(&one, &other);
    assert_equal(&outcome);
    assert_eq!(rows, 6);
    other.run("UPDATE t SET b = concat(left(b, 9000000), 'd') WHERE id = 2");
    let (outcome, _) = read(&one, &other);
    let report = only(&outcome);
    assert_eq!((report.changed, report.rows_target), (1, 3), "{report:#?}");
    assert_eq!(report.differences[0].columns, ["b"]);
}

/// Numbers without gaps, with some, with large ones, and the ends of what a type holds: every row
/// is in one part.
#[test]
fn every_row_is_in_one_part_however_its_numbers_lie() {
    let mut ids: Vec<i64> = vec![i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX];
    ids.extend(-40..60);
    ids.extend((100..160).filter(|id| id % 5 > 0));
    ids.extend((0..20).map(|n| 1_000_000_009 * (n + 1)));
    ids.extend(5_000_000_000..5_000_000_035);
    let mut others: Vec<i64> = ids.iter().copied().filter(|id| ![-19, 158].contains(id)).collect();
    others.extend([60, 99, 5_000_000_035]);
    for kind in [Kind::Postgres, Kind::Mariadb] {
        let table = |ids: &[i64]| {
            let rows: Vec<String> = ids.iter().map(|id| format!("({id}, 'w{id}')")).collect();
            let rows = rows.join(", ");
            format!(
                "CREATE TABLE t (id bigint PRIMARY KEY, w varchar(30)); INSERT INTO t VALUES {rows}"
            )
        };
        let Some([one, other]) = two(kind, &table(&ids), &table(&others)) else { continue };
        for chunk_rows in [1, 7, 10, 1000] {
            let (outcome, _) = read_in_parts(&one, &other, chunk_rows);
            let report = only(&outcome);
            let counts = (report.changed, report.only_source, report.only_target);
            assert_eq!(counts, (0, 2, 3), "{kind:?} {chunk_rows} {report:#?}");
            assert_eq!(
                (report.rows_source, report.rows_target),
                (ids.len() as u64, others.len() as u64),
                "{kind:?} {chunk_rows}"
            );
        }
    }
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

/// PostgreSQL expects a fifth of the table from any range of a key of several columns, and would read all of
/// it for each where that costs less than the index.
#[test]
fn ranges_of_a_key_of_several_columns_are_read_by_its_index() {
    const KEYS: u64 = 40_000;
    let (Some(one), Some(other)) = (Database::new(Kind::Postgres), Database::new(Kind::Postgres))
    else {
        return;
    };
    for database in [&one, &other] {
        database.run(&format!(
            "CREATE TABLE t (a int, b int, word text, PRIMARY KEY (a, b));
             INSERT INTO t SELECT i / 4, i % 4, md5(i::text) FROM generate_series(1, {KEYS}) i ORDER BY 3;
             ANALYZE t;
             DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET random_page_cost = 1000', \
             current_database()); END $$"
        ));
    }
    let scans = |of: &str| -> u64 {
        let sql = format!("SELECT {of} FROM pg_stat_user_tables WHERE relname = 't'");
        one.ask(&sql).trim().parse().unwrap()
    };
    let (before, index) = (scans("seq_scan"), scans("idx_scan"));
    let (outcome, rows) = read_in_parts(&one, &other, 2000);
    assert_equal(&outcome);
    assert_eq!(rows, 2 * KEYS);
    // A server counts them when a session ends.
    let end = Instant::now() + Duration::from_secs(60);
    while scans("seq_scan") == before && scans("idx_scan") == index {
        assert!(Instant::now() < end, "nothing was counted");
        std::thread::sleep(Duration::from_millis(50));
    }
    let all = scans("seq_scan") - before;
    // Without a range all of it may be read, as to sum it once.
    assert!(all < 10, "the whole table was read {all} times");
}
