//! Planted differences are found, counted and named, on every pair of engines.

use pagewarden_db::compare::repair;
use pagewarden_db::compare::report::{Kind as Difference, TableReport, Verdict};
use pagewarden_db::engine;
use pagewarden_db::row::number;

use crate::servers::{Database, KINDS, Kind, MODES, assert_equal, only, request, run};

const ROWS: u32 = 200;

/// A table of many rows, the same in every engine.
fn filled(kind: Kind, key: &str) -> Option<Database> {
    let database = Database::new(kind)?;
    let moment = if kind == Kind::Mariadb { "datetime" } else { "timestamp" };
    database.run(&format!(
        "CREATE TABLE t (id int NOT NULL, part int NOT NULL, word varchar(50) NOT NULL, note varchar(50), \
         at {moment}{key})"
    ));
    let rows: Vec<String> = (0..ROWS)
        .map(|id| {
            // Keys with gaps, and more of them in some places than in others.
            let (id, part) = (id / 3 * 10, id % 3);
            format!("({id}, {part}, 'w{id}.{part}', 'note', '2024-03-30 12:00:{part:02}')")
        })
        .collect();
    database.run(&format!("INSERT INTO t VALUES {}", rows.join(", ")));
    Some(database)
}

const COMPOSITE: &str = ", PRIMARY KEY (id, part)";
const TEXT: &str = ", PRIMARY KEY (word)";

fn pairs(key: &str) -> Vec<(Database, Database)> {
    let mut pairs = Vec::new();
    for source in KINDS {
        for target in KINDS {
            if let (Some(source), Some(target)) = (filled(source, key), filled(target, key)) {
                pairs.push((source, target));
            }
        }
    }
    pairs
}

fn plant(target: &Database) {
    target.run("UPDATE t SET note = 'other' WHERE id = 50 AND part = 1");
    target.run("DELETE FROM t WHERE id = 120 AND part = 2");
    target.run("INSERT INTO t VALUES (125, 0, 'extra', NULL, NULL)");
    target.run("UPDATE t SET note = NULL WHERE id = 660 AND part = 0");
}

fn ids(report: &TableReport, kind: Difference) -> Vec<String> {
    let of_kind = report.differences.iter().filter(|one| one.kind == kind);
    of_kind
        .map(|one| {
            let id = one.source.as_ref().or(one.target.as_ref()).unwrap();
            let place = report.columns.iter().position(|column| column == "id").unwrap();
            number::plain(&id[place].payload).unwrap()
        })
        .collect()
}

#[test]
fn planted_differences_are_named_by_any_key_or_none() {
    for key in [COMPOSITE, TEXT, ""] {
        for (source, target) in pairs(key) {
            let mut request = request(&source, &target);
            for mode in MODES {
                request.options.mode = mode;
                assert_equal(&run(&request));
            }
            plant(&target);
            for mode in MODES {
                request.options.mode = mode;
                let outcome = run(&request);
                let report = only(&outcome);
                let place = format!("{key}: {mode:?} {} {}\n{report:#?}", source.url, target.url);
                assert_eq!(report.verdict(), Verdict::Different, "{place}");
                assert_eq!(report.unresolved, 0, "{place}");
                assert_eq!((report.rows_source, report.rows_target), (200, 200), "{place}");
                if key.is_empty() {
                    // Without a key a changed row is another row.
                    assert_eq!(
                        (report.changed, report.only_source, report.only_target),
                        (0, 3, 3),
                        "{place}"
                    );
                } else {
                    assert_eq!(
                        (report.changed, report.only_source, report.only_target),
                        (2, 1, 1),
                        "{place}"
                    );
                    assert_eq!(ids(report, Difference::Changed), ["50", "660"], "{place}");
                    assert_eq!(ids(report, Difference::OnlySource), ["120"], "{place}");
                    assert_eq!(ids(report, Difference::OnlyTarget), ["125"], "{place}");
                    let changed =
                        report.differences.iter().find(|one| one.kind == Difference::Changed);
                    assert_eq!(changed.unwrap().columns, ["note"], "{place}");
                }
            }
        }
    }
}

/// The statements of `--sql`, run, make the target equal, in every engine's words.
#[test]
fn statements_make_the_target_equal() {
    for (source, target) in pairs(COMPOSITE) {
        plant(&target);
        target.run("UPDATE t SET word = 'it''s' WHERE id = 10 AND part = 0");
        source.run("UPDATE t SET word = 'a \"b\" `c`; --' WHERE id = 10 AND part = 0");
        let outcome = run(&request(&source, &target));
        let engine = engine::named(outcome.target_scheme).unwrap();
        let statements = repair::statements(engine.dialect, only(&outcome));
        assert_eq!(statements.len(), 5, "{statements:?}");
        target.run(&statements.join("\n"));
        assert_equal(&run(&request(&source, &target)));
    }
}

/// Values that a statement must say in words of its own, that are written in several ways or have no
/// comparison; and columns that the server fills.
#[test]
fn statements_say_values_as_their_columns_take_them() {
    const POSTGRES: [&str; 3] = [
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, f boolean, j json, d date,
             at timestamptz, p point, v int, g int GENERATED ALWAYS AS (v + 1) STORED);
         SET TIME ZONE 'America/New_York';
         INSERT INTO t (id, f, j, d, at, p, v) OVERRIDING SYSTEM VALUE VALUES
             (1, true, '{\"a\": [1, 2], \"b\": null}', '0044-03-15 BC', '2024-07-01 12:00+02', '(1,2)', 1),
             (2, false, '{}', 'infinity', '0001-01-01 00:00+00 BC', NULL, 2),
             (3, NULL, NULL, '12024-01-01', NULL, '(0,0)', NULL)",
        "INSERT INTO t (id, f, j, d, at, p, v) OVERRIDING SYSTEM VALUE VALUES
             (4, true, '[1,  2]', '4713-01-01 BC', '2024-01-01 12:00+02', '(3,4)', 9)",
        "UPDATE t SET f = false, v = 7 WHERE id = 1; UPDATE t SET j = '{\"z\": 1,  \"a\": 2}' WHERE id = 2;
         DELETE FROM t WHERE id = 3",
    ];
    const MARIADB: [&str; 3] = [
        "CREATE TABLE t (id int PRIMARY KEY, j json, at timestamp NULL, v int, g int AS (v + 1) VIRTUAL);
         SET time_zone = '-05:00';
         INSERT INTO t (id, j, at, v) VALUES (1, '{\"b\": 1,  \"a\": [1, 2]}', '2024-07-01 12:00:00', 1),
             (2, '{\"b\":1}', NULL, 2), (3, NULL, '2024-07-01 12:00:00', NULL)",
        "INSERT INTO t (id, j, at, v) VALUES (4, '[ ]', '2024-01-01 12:00:00', 9)",
        "UPDATE t SET v = 7 WHERE id = 1; UPDATE t SET j = '{\"z\": 1}' WHERE id = 2;
         DELETE FROM t WHERE id = 3",
    ];
    const SQLITE: [&str; 3] = [
        "CREATE TABLE t (id INTEGER PRIMARY KEY, at TIMESTAMP, j JSON, v INT, g INT AS (v + 1));
         INSERT INTO t (id, at, j, v) VALUES (1, '2024-01-01 10:00:00.700000', '{\"a\": 2}', 1),
             (2, '2024-01-01T10:00:00', '{}', 2), (3, NULL, NULL, NULL)",
        "INSERT INTO t (id, at, j, v) VALUES (4, '2024-01-01 10:00:00.000', '[ ]', 9)",
        "UPDATE t SET v = 7 WHERE id = 1; UPDATE t SET j = '{\"z\": 1}' WHERE id = 2;
         DELETE FROM t WHERE id = 3",
    ];
    for (kind, [both, more, other]) in
        [(Kind::Postgres, POSTGRES), (Kind::Mariadb, MARIADB), (Kind::Sqlite, SQLITE)]
    {
        let (Some(source), Some(target)) = (Database::new(kind), Database::new(kind)) else {
            continue;
        };
        source.run(both);
        target.run(both);
        assert_equal(&run(&request(&source, &target)));
        for statements in [more, other] {
            target.run(statements);
        }
        let outcome = run(&request(&source, &target));
        let engine = engine::named(outcome.target_scheme).unwrap();
        let statements = repair::statements(engine.dialect, only(&outcome));
        target.run(&statements.join("\n"));
        assert_equal(&run(&request(&source, &target)));
    }
}

/// Times that SQLite's own functions take for one are keys of two rows.
#[test]
fn statement_for_a_key_that_is_a_time_is_of_one_row() {
    let (Some(source), Some(target)) = (Database::new(Kind::Sqlite), Database::new(Kind::Sqlite))
    else {
        return;
    };
    let both = "CREATE TABLE t (at TIMESTAMP PRIMARY KEY NOT NULL, v INT);
        INSERT INTO t VALUES ('2024-01-01 10:00:00.0001', 1), ('2024-01-01 10:00:00.0002', 1)";
    source.run(both);
    target.run(both);
    target.run("INSERT INTO t VALUES ('2024-01-01 10:00:00.0003', 1)");
    source.run("UPDATE t SET v = 2 WHERE at LIKE '%.0001'");
    let outcome = run(&request(&source, &target));
    let engine = engine::named(outcome.target_scheme).unwrap();
    target.run(&repair::statements(engine.dialect, only(&outcome)).join("\n"));
    assert_equal(&run(&request(&source, &target)));
}

/// A row that has changed since is left alone.
#[test]
fn statements_are_guarded_by_what_they_expect() {
    let (Some(source), Some(target)) =
        (filled(Kind::Sqlite, COMPOSITE), filled(Kind::Sqlite, COMPOSITE))
    else {
        return;
    };
    target.run("UPDATE t SET note = 'other' WHERE id = 50 AND part = 1");
    let outcome = run(&request(&source, &target));
    let engine = engine::named(outcome.target_scheme).unwrap();
    let statements = repair::statements(engine.dialect, only(&outcome)).join("\n");
    target.run("UPDATE t SET note = 'newer' WHERE id = 50 AND part = 1");
    target.run(&statements);
    let database = rusqlite::Connection::open(target.path()).unwrap();
    let note: String = database
        .query_row("SELECT note FROM t WHERE id = 50 AND part = 1", [], |row| row.get(0))
        .unwrap();
    assert_eq!(note, "newer");
}

/// Where CRC-32 joined by exclusive or sees nothing: an even number of rows shifted alike,
/// and values swapped between rows.
#[test]
fn shifted_column_is_found_and_named() {
    for (source, target) in pairs(COMPOSITE) {
        let shifted = if target.url.starts_with("mysql") {
            "at - INTERVAL 10 MINUTE"
        } else if target.url.starts_with("postgres") {
            "at - INTERVAL '10 minutes'"
        } else {
            "datetime(at, '-10 minutes')"
        };
        target.run(&format!("UPDATE t SET at = {shifted}"));
        let outcome = run(&request(&source, &target));
        let report = only(&outcome);
        assert_eq!(report.changed, 200);
        assert_eq!(report.differences.len(), 100, "as many as were asked for");
        assert_eq!(report.diagnosis.len(), 1, "{:?}", report.diagnosis);
        let found = &report.diagnosis[0];
        assert_eq!(found.column, "at");
        assert_eq!(found.pattern.as_deref(), Some("shifted by -00:10:00"));
    }
}

#[test]
fn swapped_values_are_found() {
    let Some((source, target)) = pairs(COMPOSITE).into_iter().next() else { return };
    target.run("UPDATE t SET note = 'aaaa', word = 'xxxx' WHERE id = 30 AND part IN (0, 1)");
    source.run("UPDATE t SET note = 'aaaa', word = 'yyyy' WHERE id = 30 AND part IN (0, 1)");
    let outcome = run(&request(&source, &target));
    assert_eq!(only(&outcome).changed, 2);
}

/// Doubled rows cancel in an exclusive or; here they are counted.
#[test]
fn doubled_rows_of_a_table_without_a_key_are_counted() {
    for (source, target) in pairs("") {
        source.run("INSERT INTO t VALUES (7, 7, 'd', NULL, NULL), (7, 7, 'd', NULL, NULL)");
        target.run("INSERT INTO t VALUES (7, 7, 'd', NULL, NULL), (7, 7, 'd', NULL, NULL)");
        assert_equal(&run(&request(&source, &target)));
        source.run("INSERT INTO t VALUES (7, 7, 'd', NULL, NULL), (7, 7, 'd', NULL, NULL)");
        let outcome = run(&request(&source, &target));
        let report = only(&outcome);
        assert_eq!(
            (report.only_source, report.only_target, report.changed),
            (2, 0, 0),
            "{report:#?}"
        );
        assert_eq!(ids(report, Difference::OnlySource), ["7", "7"]);
    }
}

/// Rows that the target has beyond, between and before those of the source, many more
/// than a part has.
#[test]
fn many_more_rows_in_the_target_are_all_counted() {
    for (source, target) in pairs(COMPOSITE) {
        let rows: Vec<String> =
            (0..500).map(|n| format!("({}, 9, 'x', NULL, NULL)", n * 3 - 100)).collect();
        target.run(&format!("INSERT INTO t VALUES {}", rows.join(", ")));
        let outcome = run(&request(&source, &target));
        let report = only(&outcome);
        assert_eq!(
            (report.only_source, report.only_target, report.changed),
            (0, 500, 0),
            "{report:#?}"
        );
        let outcome = run(&request(&target, &source));
        assert_eq!(only(&outcome).only_source, 500);
    }
}
