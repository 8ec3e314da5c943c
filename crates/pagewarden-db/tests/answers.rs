//! The same values in every engine have the same sums, whatever the servers' defaults are.

use pagewarden_db::checksum::{Checksum, Function, Strategy, checksum};
use pagewarden_db::compare::Request;
use pagewarden_db::compare::mode::Mode;
use pagewarden_db::engine::{Hashing, Query, Range, Sums};
use pagewarden_db::row::{Tag, Value};
use pagewarden_db::table::{Form, TableName};

use crate::servers::{Database, KINDS, Kind, MODES, assert_equal, request, run};

/// The sums of the table below, in version 1 of the form of rows.
const KNOWN: &str = "342a1a83bd083d01a85ec39fa1205bbb";

/// The sums of the portable text of the rows that have one, in its version 1.
const KNOWN_PORTABLE: [i128; 2] = [178_770_514_440_149_912, 191_936_652_224_558_897];

/// id, flag, amount, ratio, rate, name, note, at, day, ident, raw (hexadecimal, in angles), doc.
const ROWS: &[&str] = &[
    "1, true, 12.50, 1.5, 0.5, 'plain', 'text', '2024-02-29 12:34:56', '2024-02-29', \
     '00112233-4455-6677-8899-aabbccddeeff', <00ff10>, '{\"b\": [1.0, 1e2], \"a\": null}'",
    "2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
    "3, false, 0.00, 0, 0, '', '~', '1970-01-01 00:00:00', '1970-01-01', \
     '00000000-0000-0000-0000-000000000000', <>, '[]'",
    "4, true, -0.05, -0e0, 1, 'x0', 'y', '2024-12-31 23:59:59.999999', '9999-12-31', NULL, <7e>, '\"~\"'",
    "5, true, 1, 1e15, 16777216, 'x', '0y', '1969-12-31 23:59:59.000001', '0001-01-01', NULL, <00>, '1e2'",
    "6, true, 100, 1e-5, 0.10000000149011612, 'abc  ', 'tab\t', '2038-01-19 03:14:08.5', '1582-10-04', \
     NULL, <c328a0a1>, '100'",
    "7, true, 9999999999.99, 1e300, 3.4028234663852886e38, NULL, '', '2000-01-01 00:00:00', '2000-02-29', \
     NULL, <ff>, '{\"k\": \"\\u00e9\"}'",
    "8, true, -9999999999.99, 0.30000000000000004, -1.5, '', NULL, NULL, NULL, NULL, NULL, '0.1'",
    "9, true, 0.1, 123456789012345680, 0.0010000000474974513, '\u{1F600}\u{4E2D}', 'back\u{5C}slash', NULL, NULL, NULL, NULL, '{}'",
    "10, true, 0.10, 2.2250738585072014e-308, 9.999999747378752e-5, 'it''s \"`', '\u{E9}\u{DF}', NULL, NULL, \
     'ffffffff-ffff-ffff-ffff-ffffffffffff', NULL, 'true'",
];

fn create(kind: Kind) -> &'static str {
    match kind {
        Kind::Postgres => {
            "CREATE TABLE answers (id bigint PRIMARY KEY, flag boolean, amount numeric(12, 2), \
             ratio double precision, rate real, name varchar(100), note text, at timestamp(6), \
             day date, ident uuid, raw bytea, doc jsonb)"
        }
        // Another order of columns, and other cases of names.
        Kind::Mariadb => {
            "CREATE TABLE answers (doc json, raw varbinary(100), ID bigint PRIMARY KEY, flag boolean, \
             amount decimal(12, 2), ratio double, rate float, name varchar(100) CHARACTER SET utf8mb4, \
             note text CHARACTER SET utf8mb4, at datetime(6), day date, ident uuid)"
        }
        Kind::Sqlite => {
            "CREATE TABLE answers (id INTEGER PRIMARY KEY, flag BOOLEAN, amount DECIMAL(12, 2), \
             ratio DOUBLE, rate REAL, name VARCHAR(100), note TEXT, at TIMESTAMP, day DATE, \
             ident UUID, raw BLOB, doc JSON)"
        }
    }
}

/// A row's values as an engine's statements write them.
fn values(kind: Kind, row: &str) -> String {
    match kind {
        Kind::Postgres => row.replace('<', "decode('").replace('>', "', 'hex')"),
        Kind::Sqlite => row.replace('<', "x'").replace('>', "'"),
        Kind::Mariadb => row.replace('<', "x'").replace('>', "'").replace('\\', "\\\\"),
    }
}

fn filled(kind: Kind) -> Option<Database> {
    let database = Database::new(kind)?;
    database.run(create(kind));
    let columns = "id, flag, amount, ratio, rate, name, note, at, day, ident, raw, doc";
    for row in ROWS {
        database.run(&format!("INSERT INTO answers ({columns}) VALUES ({})", values(kind, row)));
    }
    Some(database)
}

/// A comparison in one way.
fn by(mode: Mode, source: &Database, target: &Database) -> Request {
    let mut request = request(source, target);
    request.options.mode = mode;
    request
}

fn sum(database: &Database, strategy: Strategy, function: Function) -> Checksum {
    let mut connection = database.connect();
    let name = TableName { schema: None, name: "answers".to_owned() };
    let table = connection.describe(&name).unwrap();
    checksum(connection.as_mut(), &table, strategy, function, &|_, _| Ok(())).unwrap()
}

#[test]
fn every_engine_has_the_known_sum() {
    for database in KINDS.iter().filter_map(|kind| filled(*kind)) {
        let made = sum(&database, Strategy::Multiset, Function::Md5);
        assert_eq!(made.rows, ROWS.len() as u64);
        assert_eq!(made.value.as_deref(), Some(KNOWN), "{}", database.url);
    }
}

#[test]
fn every_pair_of_engines_is_equal_both_ways() {
    let databases: Vec<Database> = KINDS.iter().filter_map(|kind| filled(*kind)).collect();
    for source in &databases {
        for target in &databases {
            for (mode, frozen) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
                let mut request = request(source, target);
                request.options.frozen = frozen;
                request.options.mode = mode;
                let outcome = run(&request);
                assert_equal(&outcome);
                let table = &outcome.tables[0];
                assert_eq!((table.rows_source, table.rows_target), (10, 10));
                assert!(table.not_compared.is_empty(), "{table:?}");
            }
        }
    }
}

/// What a server's statement says of one row of the table, JSON left out.
fn portable(database: &Database, id: usize) -> Sums {
    let mut connection = database.connect();
    let name = TableName { schema: None, name: "answers".to_owned() };
    let table = connection.describe(&name).unwrap();
    let column = |place: usize| (place, table.columns[place].form.clone());
    let is_left = |place: &usize| table.columns[*place].name != "doc";
    let columns: Vec<(usize, Form)> =
        table.ordered().into_iter().filter(is_left).map(column).collect();
    // SQLite's bytes have no type: they get that of the other side.
    let columns: Vec<(usize, Form)> = columns
        .into_iter()
        .map(|(place, form)| (place, if form == Form::Any { Form::Bytes } else { form }))
        .collect();
    let key = |id: usize| vec![Value { tag: Tag::Number, payload: id.to_string().into_bytes() }];
    let after = (id > 1).then(|| key(id - 1));
    let range = Range { key: table.key.clone(), after, upto: (id < 10).then(|| key(id)) };
    connection.sums(&Query::of(&table, &columns, &range), Hashing::Portable).unwrap()
}

/// Servers sum the rows' portable text to the same numbers, and to those that we do; they report
/// rows with a value that has none.
#[test]
fn every_engine_sums_the_portable_text_alike() {
    let databases: Vec<(Kind, Database)> =
        KINDS.iter().filter_map(|kind| Some((*kind, filled(*kind)?))).collect();
    let mut all = [0, 0];
    for id in 1..=ROWS.len() {
        let sums: Vec<Sums> = databases.iter().map(|(_, one)| portable(one, id)).collect();
        // The others hold floats that engines write in different words.
        let has_text = matches!(id, 1..=4 | 8);
        for ((kind, _), sums) in databases.iter().zip(&sums) {
            assert_eq!((sums.rows, sums.hashed), (1, 1), "{kind:?} row {id}");
            // In process every float has a text.
            assert!(*kind == Kind::Sqlite || (sums.special == 0) == has_text, "{kind:?} row {id}");
        }
        if has_text {
            assert!(sums.windows(2).all(|pair| pair[0] == pair[1]), "row {id}: {sums:?}");
            all = [all[0] + sums[0].lanes[0], all[1] + sums[0].lanes[1]];
        }
    }
    assert_eq!(all, KNOWN_PORTABLE);
}

#[test]
fn every_strategy_counts_the_rows_and_sees_a_change() {
    for kind in KINDS {
        let Some(database) = filled(kind) else { continue };
        let mut strategies =
            vec![Strategy::Count, Strategy::Accum, Strategy::Bitxor, Strategy::Multiset];
        if kind != Kind::Sqlite {
            strategies.push(Strategy::Native);
        }
        let all = || -> Vec<Checksum> {
            let both = [Function::Crc32, Function::Md5];
            let made = strategies.iter().flat_map(|one| both.map(|function| (*one, function)));
            made.map(|(strategy, function)| sum(&database, strategy, function)).collect()
        };
        let before = all();
        let again = all();
        database.run("UPDATE answers SET name = 'plaim' WHERE id = 1");
        let after = all();
        for ((before, again), after) in before.iter().zip(&again).zip(&after) {
            assert_eq!(before.rows, 10);
            assert_eq!(before.value, again.value);
            assert_eq!(before.value.is_some(), after.value.is_some());
            assert!(before.value.is_none() || before.value != after.value, "{kind:?} {before:?}");
        }
    }
}

/// An empty table has a checksum too, by every strategy that has any.
#[test]
fn empty_tables_have_sums_of_zeros() {
    for kind in KINDS {
        let Some(database) = Database::new(kind) else { continue };
        database.run("CREATE TABLE answers (id int)");
        for strategy in [Strategy::Accum, Strategy::Bitxor, Strategy::Multiset] {
            let made = sum(&database, strategy, Function::Md5);
            assert_eq!((made.rows, made.value.as_deref()), (0, Some("0".repeat(32).as_str())));
        }
    }
}

/// 24 digits, in SQLite as text in a column that has no type.
#[test]
fn long_decimals_keep_every_digit() {
    let column = |kind| match kind {
        Kind::Postgres => "numeric(30, 6)",
        Kind::Mariadb => "decimal(30, 6)",
        Kind::Sqlite => "",
    };
    let databases: Vec<Database> = KINDS
        .iter()
        .filter_map(|kind| {
            let database = Database::new(*kind)?;
            database.run(&format!(
                "CREATE TABLE wide (id int PRIMARY KEY NOT NULL, d {})",
                column(*kind)
            ));
            database.run("INSERT INTO wide VALUES (1, '123456789012345678901234.123456')");
            database.run("INSERT INTO wide VALUES (2, '-0.000001')");
            Some(database)
        })
        .collect();
    for mode in MODES {
        for (source, target) in
            databases.iter().flat_map(|one| databases.iter().map(move |other| (one, other)))
        {
            assert_equal(&run(&by(mode, source, target)));
        }
    }
    if let [one, other, ..] = databases.as_slice() {
        other.run("UPDATE wide SET d = '123456789012345678901234.123457' WHERE id = 1");
        for mode in MODES {
            let outcome = run(&by(mode, one, other));
            assert_eq!(outcome.tables[0].changed, 1);
        }
    }
}

/// What only one engine has is never equal to something else.
#[test]
fn zero_dates_and_infinity_equal_themselves_only() {
    let (Some(postgres), Some(mariadb)) =
        (Database::new(Kind::Postgres), Database::new(Kind::Mariadb))
    else {
        return;
    };
    postgres.run("CREATE TABLE t (id int PRIMARY KEY, at timestamp, r float8, n numeric)");
    postgres.run("INSERT INTO t VALUES (1, 'infinity', 'NaN', 'NaN'), (2, '-infinity', 'inf', '-inf'), (3, '0044-03-15 BC', 1, 1),
         (4, '294276-12-31 23:59:59.999999', 1, 1), (5, '4713-01-01 00:00:00 BC', 1, 1)");
    mariadb.run("CREATE TABLE t (id int PRIMARY KEY, at datetime, r double, n decimal(10, 2))");
    mariadb.run("INSERT INTO t VALUES (1, '0000-00-00', NULL, NULL), (2, NULL, 0, 0), (3, '0044-03-15', 1, 1), (4, '9999-12-31', 1, 1),
         (5, '0001-01-01', 1, 1)");
    for mode in MODES {
        assert_equal(&run(&by(mode, &postgres, &postgres)));
        assert_equal(&run(&by(mode, &mariadb, &mariadb)));
        let outcome = run(&by(mode, &postgres, &mariadb));
        assert_eq!(outcome.tables[0].changed, 5, "{outcome:?}");
    }
}
