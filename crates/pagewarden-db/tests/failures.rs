//! What cannot be looked at is said, and the rest is compared all the same.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pagewarden_db::compare::report::{Outcome, TableReport, Verdict, verdict};
use pagewarden_db::compare::{Watch, compare};
use pagewarden_db::engine::{self, Query, Range};
use pagewarden_db::error::Error;
use pagewarden_db::location::Location;
use pagewarden_db::table::{Form, TableName};

use crate::servers::{Database, KINDS, Kind, assert_equal, request, run};

fn three_tables(kind: Kind) -> Option<Database> {
    let database = Database::new(kind)?;
    for table in ["first", "middle", "zlast"] {
        database.run(&format!("CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, c varchar(20))"));
        database.run(&format!("INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')"));
    }
    Some(database)
}

fn table<'a>(outcome: &'a Outcome, name: &str) -> &'a TableReport {
    outcome.tables.iter().find(|table| table.table == name).unwrap()
}

fn assert_only_middle_failed(outcome: &Outcome, words: &str) {
    assert_eq!(verdict(outcome.tables.iter()), Verdict::Incomplete, "{outcome:#?}");
    for name in ["first", "zlast"] {
        assert_eq!(table(outcome, name).verdict(), Verdict::Equal, "{outcome:#?}");
    }
    let error = table(outcome, "middle").error.clone().unwrap();
    assert!(error.contains(words), "{error}");
}

#[test]
fn user_without_rights_on_a_table_compares_the_others() {
    if let Some(database) = three_tables(Kind::Postgres) {
        database.run("CREATE ROLE weak LOGIN; GRANT USAGE ON SCHEMA public TO weak; GRANT SELECT ON first, zlast TO weak");
        let mut request = request(&database, &database);
        request.target = database.location_of("weak");
        assert_only_middle_failed(&run(&request), "permission denied for table middle");
    }
    if let Some(database) = three_tables(Kind::Mariadb) {
        let name = database.location().database.unwrap();
        database.run(&format!(
            "CREATE USER weak@localhost; GRANT SELECT ON {name}.first TO weak@localhost; \
             GRANT SELECT ON {name}.zlast TO weak@localhost"
        ));
        let mut request = request(&database, &database);
        request.target = database.location_of("weak");
        assert_only_middle_failed(&run(&request), "the target has no such table");
    }
}

/// Columns that a user may not read are hidden from it, on both sides alike: no table that
/// has some may be called equal.
#[test]
fn user_without_rights_on_a_column_compares_the_other_tables() {
    for (kind, words) in [
        (Kind::Postgres, "permission denied for table middle"),
        (Kind::Mariadb, "hint: it needs SELECT on the table, not on some columns"),
    ] {
        let Some(database) = three_tables(kind) else { continue };
        match kind {
            Kind::Mariadb => {
                let name = database.location().database.unwrap();
                database.run(&format!(
                    "CREATE USER narrow@localhost; GRANT SELECT (id) ON {name}.middle TO narrow@localhost; \
                     GRANT SELECT ON {name}.first TO narrow@localhost; GRANT SELECT ON {name}.zlast TO narrow@localhost"
                ));
            }
            _ => database.run(
                "CREATE ROLE column_reader LOGIN; GRANT SELECT (id) ON middle TO column_reader; \
                 GRANT SELECT ON first, zlast TO column_reader",
            ),
        }
        let user = if kind == Kind::Mariadb { "narrow" } else { "column_reader" };
        let mut request = request(&database, &database);
        request.source = database.location_of(user);
        request.target = database.location_of(user);
        assert_only_middle_failed(&run(&request), words);
    }
}

/// Rows that a policy hides would be missing rows.
#[test]
fn row_level_security_is_refused_by_name() {
    let Some(database) = three_tables(Kind::Postgres) else { return };
    database.run(
        "CREATE ROLE narrow LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO narrow; \
         ALTER TABLE middle ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON middle USING (id < 2)",
    );
    let mut request = request(&database, &database);
    request.target = database.location_of("narrow");
    assert_only_middle_failed(&run(&request), "row-level security policy");
}

#[test]
fn table_dropped_meanwhile_is_said_and_the_others_are_compared() {
    for kind in KINDS {
        let (Some(source), Some(target)) = (three_tables(kind), three_tables(kind)) else {
            continue;
        };
        let began = Mutex::new(Vec::new());
        let watch = Watch {
            tell: &|_, _| Ok(()),
            advance: &|_| {},
            begin: &|name| {
                if name == "middle" {
                    target.run("DROP TABLE middle");
                }
                began.lock().unwrap().push(name.to_owned());
            },
        };
        let outcome = compare(&request(&source, &target), &watch, &mut |_| {}).unwrap();
        assert_only_middle_failed(&outcome, "there is no table middle");
        assert_eq!(*began.lock().unwrap(), ["first", "middle", "zlast"]);
    }
}

#[test]
fn table_of_one_side_only_is_incomplete_unless_it_is_excluded() {
    for kind in KINDS {
        let (Some(source), Some(target)) = (three_tables(kind), three_tables(kind)) else {
            continue;
        };
        target.run("CREATE TABLE surplus (id int)");
        let mut request = request(&source, &target);
        let outcome = run(&request);
        assert_eq!(verdict(outcome.tables.iter()), Verdict::Incomplete);
        assert!(table(&outcome, "surplus").error.as_ref().unwrap().contains("source has no"));
        request.excluded_tables = vec!["surplus".to_owned()];
        assert_equal(&run(&request));
        let mut back = crate::servers::request(&target, &source);
        assert_eq!(verdict(run(&back).tables.iter()), Verdict::Incomplete);
        back.tables = vec!["zlast".to_owned(), "first".to_owned(), "none".to_owned()];
        let outcome = run(&back);
        assert!(table(&outcome, "none").error.is_some());
        assert_eq!(outcome.tables.len(), 3);
    }
}

#[test]
fn columns_that_cannot_be_compared_are_listed() {
    for kind in [Kind::Postgres, Kind::Mariadb] {
        let (Some(source), Some(target)) = (Database::new(kind), Database::new(kind)) else {
            continue;
        };
        let bytes = if kind == Kind::Postgres { "bytea" } else { "blob" };
        source.run("CREATE TABLE t (id int PRIMARY KEY, a text, b int, gone int)");
        target.run(&format!("CREATE TABLE t (id int PRIMARY KEY, a {bytes}, b int, more int)"));
        let mut request = request(&source, &target);
        let outcome = run(&request);
        assert_eq!(verdict(outcome.tables.iter()), Verdict::Incomplete);
        let left: Vec<&str> =
            outcome.tables[0].not_compared.iter().map(|one| one.column.as_str()).collect();
        assert_eq!(left, ["a", "gone", "more"]);
        request.excluded_columns = vec!["a".to_owned(), "t.gone".to_owned(), "more".to_owned()];
        assert_equal(&run(&request));
        source.run("INSERT INTO t VALUES (1, NULL, 5, NULL)");
        target.run("INSERT INTO t VALUES (1, NULL, 6, NULL)");
        request.excluded_columns.clear();
        assert_eq!(verdict(run(&request).tables.iter()), Verdict::Different);
    }
}

/// The server throws us out in the middle of a table: the next ones have a new connection.
#[test]
fn broken_connection_costs_one_table() {
    let Some(database) = three_tables(Kind::Postgres) else { return };
    let name = database.location().database.unwrap();
    let thrown = AtomicBool::new(false);
    let watch = Watch {
        tell: &|_, _| Ok(()),
        advance: &|_| {},
        begin: &|table| {
            if table == "middle" && !thrown.swap(true, Ordering::Relaxed) {
                database.run(&format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE datname = '{name}' AND application_name = 'pagewarden'"
                ));
            }
        },
    };
    let outcome = compare(&request(&database, &database), &watch, &mut |_| {}).unwrap();
    assert_only_middle_failed(&outcome, "connection");
}

#[test]
fn nobody_there_is_an_error_with_the_place_and_without_the_password() {
    for url in [
        "postgres://ann:hunter2@127.0.0.1:1/shop",
        "mysql://ann:hunter2@127.0.0.1:1/shop",
        "sqlite:/nowhere/at/all.db",
        "postgres://ann:hunter2@/shop?socket=/nowhere",
        "mysql://ann:hunter2@/shop?socket=/nowhere",
    ] {
        let location = Location::parse(url).unwrap();
        let error = (engine::of(&location).unwrap().connect)(&location).err().unwrap();
        assert!(matches!(error, Error::Connect { .. }), "{error}");
        let text = format!("{error} {error:?}");
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("shop") || text.contains("all.db"), "{text}");
    }
}

#[test]
fn wrong_password_is_not_repeated() {
    let Some(database) = Database::new(Kind::Mariadb) else { return };
    let mut location = database.location_of("stranger");
    location.password = Some(pagewarden_db::secret::Secret::new("hunter2".to_owned()));
    let error = (engine::of(&location).unwrap().connect)(&location).err().unwrap();
    let text = format!("{error} {error:?}");
    assert!(text.contains("Access denied") && !text.contains("hunter2"), "{text}");
}

#[test]
fn wish_to_end_is_followed_and_nothing_is_called_equal() {
    for kind in KINDS {
        let Some(database) = Database::new(kind) else { continue };
        database.run("CREATE TABLE t (id int)");
        for _ in 0..3 {
            let rows: Vec<String> = (0..1000).map(|n| format!("({n})")).collect();
            database.run(&format!("INSERT INTO t VALUES {}", rows.join(", ")));
        }
        let seen = AtomicU64::new(0);
        let tell = |rows, _| {
            let seen = seen.fetch_add(rows, Ordering::Relaxed) + rows;
            if seen > 2000 { Err(Error::Stopped) } else { Ok(()) }
        };
        let watch = Watch { tell: &tell, begin: &|_| {}, advance: &|_| {} };
        let outcome = compare(&request(&database, &database), &watch, &mut |_| {}).unwrap();
        assert!(outcome.tables[0].stopped);
        assert_eq!(verdict(outcome.tables.iter()), Verdict::Incomplete);
    }
}

/// Several tables at a time, reported in their order all the same.
#[test]
fn tables_at_the_same_time_are_reported_in_order() {
    for kind in KINDS {
        let (Some(source), Some(target)) = (three_tables(kind), three_tables(kind)) else {
            continue;
        };
        for table in ["a", "n", "x", "zz"] {
            source.run(&format!("CREATE TABLE {table} (id int)"));
            target.run(&format!("CREATE TABLE {table} (id int)"));
        }
        target.run("UPDATE middle SET c = 'x' WHERE id = 2");
        let mut request = request(&source, &target);
        request.jobs = NonZero::new(4).unwrap();
        let outcome = run(&request);
        let names: Vec<&str> = outcome.tables.iter().map(|table| table.table.as_str()).collect();
        assert_eq!(names, ["a", "first", "middle", "n", "x", "zlast", "zz"]);
        let different: Vec<u64> = outcome.tables.iter().map(TableReport::different).collect();
        assert_eq!(different, [0, 0, 1, 0, 0, 0, 0]);
    }
}

/// A session that compares cannot write, even if a statement were to.
#[test]
fn sessions_only_read() {
    for (kind, next, words) in [
        (Kind::Postgres, "nextval('public.counter')", "read-only transaction"),
        (Kind::Mariadb, "NEXTVAL(counter)", "READ ONLY transaction"),
    ] {
        let Some(database) = three_tables(kind) else { continue };
        database.run("CREATE SEQUENCE counter");
        let mut connection = database.connect();
        let name = TableName { schema: None, name: "first".to_owned() };
        let mut table = connection.describe(&name).unwrap();
        table.engine = format!("(SELECT {next} AS id) t");
        let (range, columns) = (Range::default(), [(0, Form::Number)]);
        let query = Query::of(&table, &columns, &range);
        let error = connection.read(&query, &mut |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
