//! Tables of PostgreSQL that are read from their pages: the rows that the server would send,
//! at one moment, and what is compared by them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::report::{Difference, Outcome};
use pagewarden_db::compare::state::State;
use pagewarden_db::compare::{Course, Watch, compare_on_course};
use pagewarden_db::engine::postgres::heap::Rows;
use pagewarden_db::engine::postgres::heap::tuple::{Attribute, Kind, Layout, Width};
use pagewarden_db::engine::{Connection, Query, Range};
use pagewarden_db::error::{Error, Result};
use pagewarden_db::location::Location;
use pagewarden_db::row::number::plain;
use pagewarden_db::table::{Form, Table};
use pagewarden_scratch::postgres;

use crate::replicas;
use crate::servers::{Database, Kind as Engine, asked, assert_equal, only, request, run};

/// A database of PostgreSQL with the extension.
fn database() -> Option<Database> {
    let database = Database::new(Engine::Postgres)?;
    database.run("CREATE EXTENSION pageinspect");
    Some(database)
}

/// The only table, its key first.
fn table(connection: &mut dyn Connection) -> (Table, Vec<(usize, Form)>) {
    let names = connection.tables().unwrap();
    let [name] = names.as_slice() else { panic!("{names:?}") };
    let table = connection.describe(name).unwrap();
    let columns = table.columns.iter().enumerate();
    let columns = columns.map(|(place, column)| (place, column.form.clone())).collect();
    (table, columns)
}

/// All rows as they are sent, sorted by their bytes.
fn sent(connection: &mut dyn Connection) -> Vec<Vec<u8>> {
    let (table, columns) = table(connection);
    let everything = Range::default();
    let mut rows = Vec::new();
    let query = Query::of(&table, &columns, &everything);
    let mut keep = |row: &[u8]| {
        rows.push(row.to_vec());
        Ok(())
    };
    connection.read_as_sent(&query, &mut keep).unwrap();
    rows.sort();
    rows
}

/// The same by a skim, which must say the key that is in the row.
fn skimmed(connection: &mut dyn Connection) -> Result<Vec<Vec<u8>>> {
    let (table, columns) = table(connection);
    let everything = Range::default();
    let mut rows = Vec::new();
    let query = Query::of(&table, &columns, &everything);
    connection.skim(&query, &mut |key, row| {
        assert_eq!(i32::from_be_bytes(row[6..10].try_into().unwrap()), i32::try_from(key).unwrap());
        rows.push(row.to_vec());
        Ok(())
    })?;
    rows.sort();
    Ok(rows)
}

fn skims(connection: &mut dyn Connection) -> Option<[i64; 2]> {
    let (table, columns) = table(connection);
    connection.skims(&Query::of(&table, &columns, &Range::default())).unwrap()
}

/// The rows of `t` from its pages without a server's help, and the blocks that need it.
fn from_pages(database: &Database, in_recovery: bool) -> (Vec<Vec<u8>>, Vec<usize>) {
    let (table, _) = table(database.connect().as_mut());
    let mut attributes = Vec::new();
    let mut wanted = vec![None; table.columns.len()];
    let described = database.ask(
        "SELECT attname, attlen, attalign, atthasmissing FROM pg_attribute \
         WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum",
    );
    for (at, line) in described.lines().enumerate() {
        let [name, length, align, has_missing] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let width = Width::of(length.parse().unwrap()).unwrap();
        let align = match align {
            "c" => 1,
            "s" => 2,
            "i" => 4,
            _ => 8,
        };
        attributes.push(Attribute { width, align, has_missing: has_missing == "t" });
        if let Some(place) = table.columns.iter().position(|column| column.name == name) {
            wanted[place] = Some((at, Kind::of(&table.columns[place].wire).unwrap()));
        }
    }
    let wanted = wanted.into_iter().map(Option::unwrap).collect();
    let mut rows = Rows::new(Layout::new(attributes, wanted).unwrap(), in_recovery);
    let pages = database.ask(
        "SELECT encode(get_raw_page('t', 'main', b), 'hex') \
         FROM generate_series(0, pg_relation_size('t') / 8192 - 1) b",
    );
    let (mut found, mut doubtful) = (Vec::new(), Vec::new());
    for (block, page) in pages.lines().enumerate() {
        let byte = |at: usize| u8::from_str_radix(&page[at..at + 2], 16).unwrap();
        let page: Vec<u8> = (0..page.len()).step_by(2).map(byte).collect();
        match rows.of(&page) {
            Some(rows) => found.extend(rows.map(<[u8]>::to_vec)),
            None => doubtful.push(block),
        }
    }
    found.sort();
    (found, doubtful)
}

/// Every type that is read from pages, with its extremes.
const TYPES: &str = "CREATE TABLE t (id int PRIMARY KEY, gone text, flag bool, letter \"char\", \
    small int2, big int8, number numeric, real4 float4, real8 float8, day date, clock time, \
    moment timestamp, moment_tz timestamptz, mark uuid, name name, words text, short varchar(9), \
    fixed char(7), bytes bytea, doc json, last int2);
    INSERT INTO t VALUES
    (1, 'x', true, 'a', -32768, 9223372036854775807, 0, '-0', 'NaN', 'infinity', '00:00', '-infinity', 'infinity', 'ffffffff-ffff-ffff-ffff-ffffffffffff', repeat('n', 63), '', '', '', '', '{}', 1),
    (2, NULL, false, '', 32767, -9223372036854775808, 'NaN', 'inf', '-inf', '-infinity', '24:00', '294276-12-31 23:59:59.999999', '4713-01-01 BC', '00000000-0000-0000-0000-000000000000', '', '\u{e4}\u{20ac}\u{1f600}', '\u{df}', 'a', '\\x00ff', '[1, 2]', 2),
    (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (4, '', NULL, 'z', NULL, 1, 'Infinity', NULL, 1e-300, NULL, NULL, '2000-01-01', NULL, NULL, NULL, NULL, 'only', NULL, NULL, NULL, 4);
    INSERT INTO t (id, number) SELECT 100 + n, (n - 40) * 7.31::numeric FROM generate_series(1, 80) n;
    INSERT INTO t (id, number) SELECT 200 + row_number() OVER (), v FROM unnest(ARRAY[
        '-Infinity', '0.00', '-0.000', '1e100', '-1e-100', '1e9999', '1e-9999', '0.1', '10000', '99999999',
        '-12345.6789', '0.00001', '123456789012345678901234567890.123456789', repeat('9', 1000), '1e-1000',
        '0.0001', '1.0000', '2e20', '-1e257', '1e-260', '1e63', '1e-64', '1e252', '1e256'] ::numeric[]) v;
    INSERT INTO t (id, gone, words, bytes, last) SELECT 300 + n, repeat('g', n), repeat('w', n), repeat('b', 260 - n)::bytea, n
        FROM generate_series(1, 259) n;
    INSERT INTO t (id, words) VALUES (600, repeat('pglz makes it short. ', 500)), (601, repeat('a', 100000));";

/// The bytes are those that the server sends, for every type, alignment and compression.
#[test]
fn rows_on_pages_are_those_that_are_sent() {
    let Some(database) = database() else { return };
    database.run(TYPES);
    database.run(
        "ALTER TABLE t ALTER words SET COMPRESSION lz4;
         INSERT INTO t (id, words, doc) VALUES (602, repeat('lz4 makes it short, too. ', 500), '{\"a\":1}'),
           (603, repeat('b', 100000), NULL);",
    );
    check(&database);
}

/// The same once columns were dropped and added.
#[test]
fn columns_that_came_and_went_are_known() {
    let Some(database) = database() else { return };
    database.run(TYPES);
    database.run(
        "ALTER TABLE t DROP gone, DROP clock; ALTER TABLE t ADD late text, ADD later int8;
         INSERT INTO t (id, late, later) VALUES (700, 'here', 1), (701, NULL, 2), (702, 'x', NULL);",
    );
    check(&database);
}

fn check(database: &Database) {
    database.run("VACUUM t");
    let (pages, doubtful) = from_pages(database, false);
    assert_eq!(doubtful, [] as [usize; 0]);
    let mut connection = database.connect();
    assert_eq!(pages, sent(connection.as_mut()));
    assert_eq!(pages, skimmed(connection.as_mut()).unwrap());
    // A standby does not trust what VACUUM says of a page, but what is frozen.
    let (_, doubtful) = from_pages(database, true);
    assert!(!doubtful.is_empty());
    database.run("VACUUM (FREEZE) t");
    assert_eq!(from_pages(database, true), (pages, Vec::new()));
}

/// What does not lie on its page, or is not for all to see, the server is asked for.
#[test]
fn what_is_in_doubt_is_asked_for() {
    let Some(database) = database() else { return };
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, words text, n int) WITH (autovacuum_enabled = off, fillfactor = 70);
         INSERT INTO t SELECT n, 'word ' || n, n FROM generate_series(1, 3000) n; VACUUM t;",
    );
    assert_eq!(skims(database.connect().as_mut()), Some([1, 3000]));
    for change in [
        "UPDATE t SET n = -n WHERE id % 400 = 0",
        "DELETE FROM t WHERE id BETWEEN 700 AND 720",
        "BEGIN; DELETE FROM t WHERE id < 300; INSERT INTO t VALUES (9000, 'never', 1); ROLLBACK",
        "SELECT FROM t WHERE id = 1500 FOR UPDATE",
        "ALTER TABLE t ADD late int DEFAULT 7",
        "VACUUM t",
        "ALTER TABLE t ALTER words SET STORAGE EXTERNAL",
        "UPDATE t SET words = repeat('far away ', 1000) WHERE id = 2000",
        "VACUUM t",
        "TRUNCATE t",
    ] {
        database.run(change);
        let mut connection = database.connect();
        let rows = sent(connection.as_mut());
        assert_eq!(skimmed(connection.as_mut()).unwrap(), rows, "{change}");
        connection.freeze().unwrap();
        assert_eq!(skimmed(connection.as_mut()).unwrap(), rows, "{change}");
        assert_eq!(sent(connection.as_mut()), rows, "the view has ended: {change}");
    }
}

/// Tables that are not for us to take apart.
#[test]
fn tables_that_cannot_be_skimmed_are_left_alone() {
    let Some(without) = Database::new(Engine::Postgres) else { return };
    let fill = "INSERT INTO t (id) SELECT generate_series(1, 3000); VACUUM t";
    without.run(&format!("CREATE TABLE t (id int PRIMARY KEY); {fill}"));
    assert_eq!(skims(without.connect().as_mut()), None);
    without.run("CREATE EXTENSION pageinspect");
    assert_eq!(skims(without.connect().as_mut()), Some([1, 3000]));
    without.run("CREATE ROLE ordinary LOGIN; GRANT SELECT ON t TO ordinary");
    let location = without.location_of("ordinary");
    let mut ordinary = (pagewarden_db::engine::of(&location).unwrap().connect)(&location).unwrap();
    assert_eq!(skims(ordinary.as_mut()), None);
    drop(ordinary);
    without.run("DROP OWNED BY ordinary; DROP ROLE ordinary");
    for column in ["l int[]", "j jsonb", "v int GENERATED ALWAYS AS (id) STORED, w interval"] {
        let Some(database) = database() else { return };
        database.run(&format!("CREATE TABLE t (id int PRIMARY KEY, {column}); {fill}"));
        assert_eq!(skims(database.connect().as_mut()), None, "{column}");
    }
    for (table, fill) in [
        // Nothing is known to be seen by all.
        ("id int PRIMARY KEY", "INSERT INTO t (id) SELECT generate_series(1, 3000)"),
        ("id numeric PRIMARY KEY", fill),
        ("id int PRIMARY KEY", ""),
    ] {
        let Some(database) = database() else { return };
        database.run(&format!("CREATE TABLE t ({table}) WITH (autovacuum_enabled = off); {fill}"));
        assert_eq!(skims(database.connect().as_mut()), None, "{table}");
    }
}

/// Quotes, backslashes and dots, in the names of the extension's schema, the table and its key.
#[test]
fn odd_names_are_names() {
    let Some(database) = Database::new(Engine::Postgres) else { return };
    database.run(
        r#"CREATE SCHEMA "o'd""d\. s"; CREATE EXTENSION pageinspect SCHEMA "o'd""d\. s";
        CREATE TABLE "o'd""d\. t" ("k'e""y\" int PRIMARY KEY, "select" text);
        INSERT INTO "o'd""d\. t" SELECT n, n FROM generate_series(1, 3000) n;
        VACUUM "o'd""d\. t"; DELETE FROM "o'd""d\. t" WHERE "select" = '1500'"#,
    );
    let mut connection = database.connect();
    assert_eq!(skims(connection.as_mut()), Some([1, 3000]));
    let rows = skimmed(connection.as_mut()).unwrap();
    assert_eq!((rows.len(), rows), (2999, sent(connection.as_mut())));
}

/// Ends what others do, also where a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whatever others do meanwhile, a skim sees one moment: amounts that move between rows, and
/// rows that move between pages, are there once.
#[test]
fn skim_sees_one_moment() {
    const ACCOUNTS: usize = 4000;
    let Some(database) = database() else { return };
    database.run(&format!(
        "CREATE TABLE t (id int PRIMARY KEY, amount int8, filler text) WITH (fillfactor = 80);
         INSERT INTO t SELECT n, 1000, repeat('f', n % 300) FROM generate_series(1, {ACCOUNTS}) n;
         VACUUM t;"
    ));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let until_stopped = |sql: String| {
            let (stop, database) = (&stop, &database);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    database.run(&sql);
                }
            });
        };
        // Few rows at a time, so that most pages stay as they are.
        until_stopped(format!(
            "SET default_transaction_isolation = 'read committed';
             DO $$ DECLARE one int; other int; BEGIN FOR turn IN 1..50 LOOP
               one := 1 + random() * {}; other := 1 + random() * {};
               UPDATE t SET amount = amount - 7, filler = repeat('g', (random() * 300)::int) WHERE id = one;
               UPDATE t SET amount = amount + 7 WHERE id = other;
               COMMIT; END LOOP; END $$",
            ACCOUNTS - 1,
            ACCOUNTS - 1
        ));
        until_stopped("VACUUM t; SELECT pg_sleep(0.01)".to_owned());
        let _at_the_end = Stop(&stop);
        let mut connection = database.connect();
        let mut views = BTreeMap::new();
        for _ in 0..60 {
            let rows = skimmed(connection.as_mut()).unwrap();
            let amount = |row: &Vec<u8>| i64::from_be_bytes(row[14..22].try_into().unwrap());
            let total: i64 = rows.iter().map(amount).sum();
            let mut keys: Vec<&[u8]> = rows.iter().map(|row| &row[6..10]).collect();
            keys.dedup();
            *views.entry((rows.len(), keys.len(), total)).or_insert(0) += 1;
        }
        let expected = (ACCOUNTS, ACCOUNTS, 1000 * i64::try_from(ACCOUNTS).unwrap());
        assert_eq!(views, BTreeMap::from([(expected, 60)]));
    });
}

/// A standby replays what VACUUM and FREEZE did on the primary while its snapshots last.
#[test]
fn skim_of_a_standby_sees_one_moment() {
    let Some(installation) = postgres::Installation::for_test("15").unwrap() else { return };
    let [primary, standby] = &replicas::standby(&installation);
    primary
        .psql(
            "CREATE EXTENSION pageinspect; DROP TABLE t;
             CREATE TABLE t (id int PRIMARY KEY, amount int8, filler text) WITH (fillfactor = 80);
             INSERT INTO t SELECT n, 1000, repeat('f', n % 300) FROM generate_series(1, 4000) n;",
        )
        .unwrap();
    primary.psql("VACUUM (FREEZE) t").unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let transfers = "DO $$ DECLARE one int; other int; BEGIN FOR turn IN 1..50 LOOP
                     one := 1 + random() * 3999; other := 1 + random() * 3999;
                     UPDATE t SET amount = amount - 7, filler = repeat('g', (random() * 300)::int) WHERE id = one;
                     UPDATE t SET amount = amount + 7 WHERE id = other;
                     COMMIT; END LOOP; END $$";
                primary.psql(transfers).unwrap();
                primary.psql("VACUUM (FREEZE) t").unwrap();
            }
        });
        let _at_the_end = Stop(&stop);
        let location = Location::parse(&standby.url("postgres")).unwrap();
        let connect = pagewarden_db::engine::of(&location).unwrap().connect;
        let begin = Instant::now();
        let mut connection = connect(&location).unwrap();
        while standby.psql("SELECT count(*) > 100 FROM t WHERE amount <> 1000").ok().as_deref()
            != Some("t")
        {
            assert!(begin.elapsed() < Duration::from_secs(60), "{}", standby.log());
            assert!(!writer.is_finished());
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(skims(connection.as_mut()), Some([1, 4000]));
        for _ in 0..40 {
            let rows = skimmed(connection.as_mut()).unwrap();
            let amount = |row: &Vec<u8>| i64::from_be_bytes(row[14..22].try_into().unwrap());
            assert_eq!((rows.len(), rows.iter().map(amount).sum::<i64>()), (4000, 4_000_000));
        }
    });
}

/// Two databases with a table that is worth a sweep.
fn large() -> Option<[Database; 2]> {
    let pair = [database()?, database()?];
    for (database, order) in pair.iter().zip(["ASC", "DESC"]) {
        database.run(&format!(
            "CREATE TABLE t (id int PRIMARY KEY, word text, amount numeric(10, 2));
             INSERT INTO t SELECT n * 3, 'word ' || n, n / 7.0 FROM generate_series(1, 120000) n
             ORDER BY n {order}; VACUUM ANALYZE t;"
        ));
    }
    Some(pair)
}

fn compared([source, target]: &[Database; 2]) -> Outcome {
    let mut request = request(source, target);
    request.options.chunk_rows = None;
    request.options.mode = Mode::Stream;
    run(&request)
}

#[test]
fn large_tables_are_swept_and_what_differs_is_named() {
    let Some(pair) = large() else { return };
    let outcome = compared(&pair);
    assert_equal(&outcome);
    let report = only(&outcome);
    assert_eq!((report.rows_source, report.rows_target), (120_000, 120_000));
    assert!(report.mode_because.contains("pageinspect"), "{}", report.mode_because);
    pair[1].run(
        "UPDATE t SET amount = amount + 0.01 WHERE id = 3; DELETE FROM t WHERE id = 180000;
         INSERT INTO t VALUES (180001, 'more', 1), (-5, 'before', 1), (999999, 'behind', 1);
         UPDATE t SET word = 'word 99999' WHERE id = 299994;
         UPDATE t SET word = 'word 99998' WHERE id = 299997;",
    );
    // Pages that are no longer for all to see, and such as are again.
    for after in ["", "VACUUM t"] {
        pair[1].run(after);
        let outcome = compared(&pair);
        let report = only(&outcome);
        assert!(report.mode_because.contains("pageinspect"), "{}", report.mode_because);
        assert_eq!((report.changed, report.only_source, report.only_target), (3, 1, 3));
        assert_eq!((report.rows_source, report.rows_target), (120_000, 120_002));
        let key = |row: &Difference| plain(&row.key[0].1.payload).unwrap();
        let mut keys: Vec<String> = report.differences.iter().map(key).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["-5", "180000", "180001", "299994", "299997", "3", "999999"]);
    }
    // The same numbers in other bytes.
    pair[1].run("TRUNCATE t; ALTER TABLE t ALTER amount TYPE numeric");
    let copy = "SELECT n * 3, 'word ' || n, (n / 7.0)::numeric(10, 2)::numeric(12, 4) FROM generate_series(1, 120000) n";
    pair[1].run(&format!("INSERT INTO t {copy}; VACUUM ANALYZE t"));
    let outcome = compared(&pair);
    assert_equal(&outcome);
    assert_eq!(only(&outcome).rows_target, 120_000);
}

/// A run that was ended behind a sweep sweeps again what is left, and comes to the same.
#[test]
fn interrupted_sweeps_come_to_the_same_result() {
    let Some(pair) = large() else { return };
    pair[1].run("UPDATE t SET amount = amount + 1 WHERE id IN (3, 171717, 359997)");
    let mut request = request(&pair[0], &pair[1]);
    request.options.chunk_rows = None;
    request.options.mode = Mode::Stream;
    let folder = tempfile::tempdir().unwrap();
    let run_for = |rows_max: u64| {
        let state = State::open(&folder.path().join("state"), &asked(&request)).unwrap();
        let course = Course { state: Some(&state), ..Course::default() };
        let read = AtomicU64::new(0);
        let tell = |rows, _| match read.fetch_add(rows, Ordering::Relaxed) + rows > rows_max {
            true => Err(Error::Stopped),
            false => Ok(()),
        };
        let watch = Watch { tell: &tell, begin: &|_| {}, advance: &|_| {} };
        compare_on_course(&request, &course, &watch, &mut |_| {}).unwrap()
    };
    let (mut outcome, mut resumed) = (run_for(1000), Vec::new());
    for turn in 1..100 {
        if !only(&outcome).stopped {
            break;
        }
        resumed.push(only(&outcome).chunks_resumed);
        outcome = run_for(240_000 + turn * 10_000);
    }
    let report = only(&outcome);
    assert!(resumed.last() > Some(&0) && resumed.len() > 2, "{resumed:?}");
    assert_eq!((report.changed, report.only_source, report.only_target), (3, 0, 0));
    assert_eq!((report.rows_source, report.rows_target), (120_000, 120_000));
}

/// An enumeration that is called like a type of the server's own.
#[test]
fn types_are_known_by_more_than_their_names() {
    let Some(pair) = database().zip(database()) else { return };
    for (database, labels) in [(&pair.0, "'one', 'two'"), (&pair.1, "'two', 'one'")] {
        database.run(&format!(
            "CREATE TYPE public.int4 AS ENUM ({labels});
             CREATE TABLE t (id integer PRIMARY KEY, label public.int4);
             INSERT INTO t VALUES (1, 'one'), (2, 'two')"
        ));
    }
    assert_equal(&run(&request(&pair.0, &pair.1)));
    pair.1.run("UPDATE t SET label = 'one'");
    assert_eq!(only(&run(&request(&pair.0, &pair.1))).changed, 1);
}
