//! Sums that servers make: what they must see, where they are no verdict, and how one of the
//! ways is chosen.

use pagewarden_db::compare::map::PartState;
use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::report::{Outcome, Verdict};
use pagewarden_db::engine::{Hashing, Query, Range};

use crate::servers::{Database, KINDS, Kind, assert_equal, only, request, run};

/// Two databases of a kind, or of two, with the same statements run in both.
fn pair(kinds: [Kind; 2], sql: &[&str]) -> Option<[Database; 2]> {
    let pair = [Database::new(kinds[0])?, Database::new(kinds[1])?];
    for database in &pair {
        sql.iter().for_each(|sql| database.run(sql));
    }
    Some(pair)
}

fn by(mode: Mode, [source, target]: &[Database; 2]) -> Outcome {
    let mut request = request(source, target);
    request.options.mode = mode;
    run(&request)
}

/// Fails unless all is equal in this way, and it was the way that was taken.
fn assert_equal_by(mode: Mode, pair: &[Database; 2]) {
    let outcome = by(mode, pair);
    assert_equal(&outcome);
    assert_eq!(only(&outcome).mode, mode, "{}", only(&outcome).mode_because);
    assert_eq!(only(&outcome).bytes, 0, "rows were read: the sums were no verdict");
}

/// What `hash_record_extended`, summed as it is, lets pass: the hash of a row is a sum over
/// its columns, so that values which change their places between rows cancel.
#[test]
fn native_sums_see_what_bare_hashes_miss() {
    let Some(pair) = pair(
        [Kind::Postgres, Kind::Postgres],
        &["CREATE TABLE t (id int PRIMARY KEY, a text, b text);
           INSERT INTO t SELECT n, 'a' || n, 'b' || n FROM generate_series(1, 40) n"],
    ) else {
        return;
    };
    assert_equal_by(Mode::Native, &pair);
    let bare = |database: &Database| {
        let mut connection = database.connect();
        let name = connection.tables().unwrap().remove(0);
        let table = connection.describe(&name).unwrap();
        connection.native(&table).unwrap()
    };
    let mut missed = 0;
    for id in (1..40).step_by(2) {
        let swap =
            format!("UPDATE t SET a = 'a' || ({} - id) WHERE id IN ({id}, {})", 2 * id + 1, id + 1);
        pair[1].run(&swap);
        missed += u32::from(bare(&pair[0]) == bare(&pair[1]));
        let outcome = by(Mode::Native, &pair);
        assert_eq!(only(&outcome).changed, 2, "{outcome:#?}");
        pair[1].run(&format!("UPDATE t SET a = 'a' || id WHERE id IN ({id}, {})", id + 1));
    }
    assert!(missed > 0, "bare hashes saw it all: what are the guards for?");
}

/// Values whose hashes PostgreSQL has alike, though they are not.
#[test]
fn native_sums_see_values_that_hash_alike() {
    let Some(pair) = pair(
        [Kind::Postgres, Kind::Postgres],
        &["CREATE TYPE mood AS ENUM ('sad', 'ok');
           CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
           CREATE TABLE t (id int PRIMARY KEY, i bigint, n numeric(10, 2), u numeric, j jsonb,
             k json, m mood, c text COLLATE blind, s interval, l int[], p char(5));
           INSERT INTO t VALUES (1, 1, 5, 'NaN', '[[1],2]', '{\"a\": 1}', 'ok', 'a', '1 month', '{1}', 'x')"],
    ) else {
        return;
    };
    // The other's type has another number.
    pair[1].run(
        "ALTER TYPE mood RENAME TO other; CREATE TYPE mood AS ENUM ('ok', 'sad');
        ALTER TABLE t ALTER m TYPE mood USING m::text::mood",
    );
    assert_equal_by(Mode::Native, &pair);
    for (column, value, back) in [
        ("i", "4294967296", "1"),
        ("n", "-5", "5"),
        ("u", "'Infinity'", "'NaN'"),
        ("j", "'[[1,2]]'", "'[[1],2]'"),
        ("j", "'[[-1],2]'", "'[[1],2]'"),
        ("c", "'A'", "'a'"),
        ("s", "'30 days'", "'1 month'"),
        ("l", "'{{1}}'", "'{1}'"),
    ] {
        pair[1].run(&format!("UPDATE t SET {column} = {value}"));
        let outcome = by(Mode::Native, &pair);
        assert_eq!(only(&outcome).verdict(), Verdict::Different, "{column}");
        assert_eq!(only(&outcome).differences[0].columns, [column]);
        pair[1].run(&format!("UPDATE t SET {column} = {back}"));
    }
    // What is equal and hashed in other words is read, and found equal.
    pair[1].run("UPDATE t SET k = '{ \"a\":1.0}'");
    assert_equal(&by(Mode::Native, &pair));
}

/// The same change in two columns, values that change their places within a row or between rows,
/// and NULL: a row's hash is an exclusive or, in which what is alike in two columns cancels.
#[test]
fn native_sums_see_what_is_alike_in_two_columns() {
    for (kind, one, other) in [
        ("int", "1", "2"),
        ("smallint", "0", "-1"),
        ("bigint", "-1", "4294967295"),
        ("bigint", "0", "4294967297"),
        ("oid", "0", "4294967295"),
        ("boolean", "false", "true"),
        // These two differ in one bit of their hashes, and so do those below.
        ("numeric", "5", "50000"),
        ("numeric(12, 2)", "5", "-5"),
        ("numeric(12, 2)", "'NaN'", "0"),
        ("numeric", "'NaN'", "'Infinity'"),
        ("numeric", "'-Infinity'", "'Infinity'"),
        ("float8", "0", "1"),
        ("float4", "0", "0.1"),
        ("float8", "'NaN'", "'Infinity'"),
        ("text", "''", "'a'"),
        ("varchar(5)", "'a'", "'a '"),
        ("char(5)", "''", "'a'"),
        ("name", "'a'", "'b'"),
        ("\"char\"", "'a'", "'b'"),
        ("bytea", "''", "'\\x00'"),
        ("date", "'2024-02-29'", "'infinity'"),
        ("date", "'-infinity'", "'infinity'"),
        ("time", "'00:00'", "'00:00:00.000001'"),
        ("timestamp", "'2000-01-01'", "'infinity'"),
        ("timestamptz", "'2000-01-01'", "'-infinity'"),
        (
            "uuid",
            "'00000000-0000-0000-0000-000000000000'",
            "'00000000-0000-0000-0000-000000000001'",
        ),
        ("interval", "'0'", "'1 month'"),
        ("number", "1", "2"),
    ] {
        let table = format!(
            "CREATE DOMAIN number AS int; CREATE TABLE t (id int PRIMARY KEY, a {kind}, b {kind} NOT NULL);
             INSERT INTO t VALUES (1, {one}, {one}), (2, {one}, {other}), (3, NULL, {one}), (4, {other}, {other})"
        );
        let Some(database) = Database::new(Kind::Postgres) else { return };
        database.run(&table);
        let mut connection = database.connect();
        let name = connection.tables().unwrap().remove(0);
        let described = connection.describe(&name).unwrap();
        let columns: Vec<_> =
            described.columns.iter().map(|column| column.form.clone()).enumerate().collect();
        let range = Range::default();
        let mut sums =
            || connection.sums(&Query::of(&described, &columns, &range), Hashing::Native).unwrap();
        let before = sums();
        assert!(before.is_whole());
        for change in [
            // In both columns, between the columns, between two rows, and of NULL.
            format!("UPDATE t SET a = {other}, b = {other} WHERE id = 1"),
            "UPDATE t SET a = b, b = a WHERE id = 2".to_owned(),
            format!(
                "UPDATE t SET b = CASE id WHEN 1 THEN {other}::{kind} ELSE {one} END WHERE id < 3"
            ),
            format!("UPDATE t SET a = {one} WHERE id = 3"),
            format!("UPDATE t SET a = {other} WHERE id = 3"),
            "UPDATE t SET a = NULL WHERE id = 4".to_owned(),
        ] {
            database.run(&change);
            assert_ne!(sums().lanes, before.lanes, "{kind}: {change}");
            let rows = table.split_once("VALUES").unwrap().1;
            database.run(&format!("TRUNCATE t; INSERT INTO t VALUES {rows}"));
            assert_eq!(sums(), before, "{kind}");
        }
    }
}

/// Why CHECKSUM TABLE is no verdict, and MariaDB has no native way.
#[test]
fn checksum_table_does_not_see_text_that_moves_between_columns() {
    let Some(pair) = pair(
        [Kind::Mariadb, Kind::Mariadb],
        &["CREATE TABLE t (id int PRIMARY KEY, a varchar(9), b varchar(9))"],
    ) else {
        return;
    };
    pair[0].run("INSERT INTO t VALUES (1, 'x0', 'y')");
    pair[1].run("INSERT INTO t VALUES (1, 'x', '0y')");
    let sums = pair.each_ref().map(|database| {
        let mut connection = database.connect();
        let name = connection.tables().unwrap().remove(0);
        let table = connection.describe(&name).unwrap();
        connection.native(&table).unwrap()
    });
    assert_eq!(sums[0], sums[1]);
    for mode in [Mode::Native, Mode::Pushdown] {
        let outcome = by(mode, &pair);
        assert_eq!(only(&outcome).changed, 1, "{mode:?}");
    }
    let outcome = by(Mode::Native, &pair);
    assert_eq!(only(&outcome).mode, Mode::Stream);
    assert!(only(&outcome).mode_because.contains("CHECKSUM TABLE"), "{outcome:?}");
}

/// Between all engines: sums alone prove tables equal, and a part that differs is narrowed
/// down until its rows can be named.
#[test]
fn pushdown_proves_tables_equal_without_reading_them_and_names_what_differs() {
    for source in KINDS {
        for target in KINDS {
            let Some(pair) = pair(
                [source, target],
                &[
                    "CREATE TABLE t (id int NOT NULL PRIMARY KEY, word varchar(20), amount decimal(10, 2))",
                ],
            ) else {
                continue;
            };
            let rows: Vec<String> =
                (0..3000).map(|id| format!("({}, 'w{id}', {id}.50)", id * 3)).collect();
            pair.iter()
                .for_each(|one| one.run(&format!("INSERT INTO t VALUES {}", rows.join(", "))));
            let mut request = request(&pair[0], &pair[1]);
            request.options.mode = Mode::Pushdown;
            request.options.chunk_rows = Some(2500);
            let outcome = run(&request);
            assert_equal(&outcome);
            let report = only(&outcome);
            assert_eq!((report.mode, report.bytes, report.chunks), (Mode::Pushdown, 0, 2));
            assert_eq!((report.rows_source, report.rows_target), (3000, 3000));
            pair[1].run(
                "UPDATE t SET amount = 7.05 WHERE id = 900; DELETE FROM t WHERE id = 901 * 3;
                INSERT INTO t VALUES (1, 'new', NULL)",
            );
            let outcome = run(&request);
            let report = only(&outcome);
            let counts = (report.changed, report.only_source, report.only_target);
            assert_eq!(counts, (1, 1, 1), "{source:?} {target:?} {report:#?}");
            let states: Vec<PartState> = report.map.tiles().iter().map(|tile| tile.state).collect();
            assert_eq!(states[0], PartState::Different);
            assert_eq!(states[1], PartState::Equal);
        }
    }
}

/// A row that is longer than the server's packets has no hash there: it is read.
#[test]
fn rows_longer_than_a_packet_are_read() {
    let Some(pair) = pair(
        [Kind::Mariadb, Kind::Mariadb],
        &["CREATE TABLE t (id int PRIMARY KEY, a longtext, b longtext);
           INSERT INTO t VALUES (1, REPEAT('a', 9000000), REPEAT('b', 9000000)), (2, 'a', 'b')"],
    ) else {
        return;
    };
    let outcome = by(Mode::Pushdown, &pair);
    assert_equal(&outcome);
    assert_eq!(only(&outcome).mode, Mode::Pushdown);
    pair[1].run("UPDATE t SET b = CONCAT(REPEAT('b', 8999999), 'c') WHERE id = 1");
    let outcome = by(Mode::Pushdown, &pair);
    assert_eq!(only(&outcome).changed, 1);
}

/// What has no text that both write goes by its rows, and that is said.
#[test]
fn what_cannot_be_pushed_down_is_read_and_said() {
    let Some(pair) = pair(
        [Kind::Postgres, Kind::Mariadb],
        &["CREATE TABLE t (id int PRIMARY KEY, doc json); INSERT INTO t VALUES (1, '{}')"],
    ) else {
        return;
    };
    for (mode, why) in [(Mode::Pushdown, "column doc is JSON"), (Mode::Native, "no native: ")] {
        let outcome = by(mode, &pair);
        assert_equal(&outcome);
        assert_eq!(only(&outcome).mode, Mode::Stream);
        assert!(only(&outcome).mode_because.contains(why), "{outcome:?}");
    }
}

/// `auto` measures where there is enough to measure, and says what came out.
#[test]
fn auto_measures_and_says_why() {
    let Some(pair) = pair(
        [Kind::Postgres, Kind::Postgres],
        &["CREATE TABLE t (id int PRIMARY KEY, word text);
           INSERT INTO t SELECT n, 'w' || n FROM generate_series(1, 5000) n"],
    ) else {
        return;
    };
    let mut request = request(&pair[0], &pair[1]);
    request.options.chunk_rows = Some(1500);
    let outcome = run(&request);
    assert_equal(&outcome);
    let because = &only(&outcome).mode_because;
    for word in ["measured: stream ", " native ", " pushdown ", " MiB/s"] {
        assert!(because.contains(word), "{because}");
    }
    request.options.chunk_rows = Some(7000);
    let outcome = run(&request);
    assert_eq!(only(&outcome).mode, Mode::Stream);
    assert!(only(&outcome).mode_because.contains("too small a table"), "{outcome:?}");
}
