//! Parquet beside databases of all engines: files of the Python packages `pyarrow` and `duckdb`, tables
//! of `deltalake` and `pyiceberg`, where they are installed (`PAGEWARDEN_PARQUET` names the Python to
//! use; `PAGEWARDEN_REQUIRE=parquet` forbids skipping).

use std::fs;
use std::path::Path;

use pagewarden_db::compare::Request;
use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::report::{Kind as Difference, Outcome, TableReport, Verdict, verdict};
use pagewarden_db::location::Location;
use pagewarden_db::row::number;
use pagewarden_scratch::python::files_of;

use crate::servers::{Database, KINDS, Kind, assert_equal, only, request, run};

fn asked(source: &str, target: &Path, is_reverse: bool) -> Request {
    let sqlite = Database::new(Kind::Sqlite).unwrap();
    let [source, target] = [source.to_owned(), format!("parquet:{}", target.display())]
        .map(|url| Location::parse(&url));
    let (source, target) = (source.unwrap(), target.unwrap());
    let (source, target) = if is_reverse { (target, source) } else { (source, target) };
    Request { source, target, ..request(&sqlite, &sqlite) }
}

fn keys(report: &TableReport, kind: Difference) -> Vec<String> {
    let place = report.columns.iter().position(|column| column == "id").unwrap();
    let of_kind = report.differences.iter().filter(|one| one.kind == kind);
    of_kind
        .map(|one| {
            let row = one.source.as_ref().or(one.target.as_ref()).unwrap();
            number::plain(&row[place].payload).unwrap()
        })
        .collect()
}

/// The same 3,000 rows in files of several writers and settings, and as statements.
const SHOP: &str = r#"
import sys, datetime, decimal, pyarrow, pyarrow.parquet as parquet, duckdb
root = sys.argv[1]
rows = []
for at in range(3000):
    id = at * 3 - 1500
    rows.append((
        id,
        None if at % 11 == 0 else (at * 7919) % 100003 - 50000,
        decimal.Decimal((at * 37) % 2000001 - 1000000) / 100,
        ["", "plain", "\u00e4\u6f22\U0001F600", None, "it''s"][at % 5],
        datetime.datetime(1899, 12, 31, 23, 59, 59, 999999) + datetime.timedelta(hours=at * 13, microseconds=at),
        datetime.date(1, 1, 1) + datetime.timedelta(days=at * 1217),
        (at - 1500) / 7.0,
    ))
columns = ["id", "n", "price", "word", "moment", "day", "ratio"]
types = [pyarrow.int32(), pyarrow.int64(), pyarrow.decimal128(12, 2), pyarrow.string(),
         pyarrow.timestamp("us"), pyarrow.date32(), pyarrow.float64()]
schema = pyarrow.schema(list(zip(columns, types)))
def table(rows):
    plain = [tuple(v.replace("''", "'") if isinstance(v, str) else v for v in row) for row in rows]
    return pyarrow.table([pyarrow.array(values, kind) for values, kind in zip(zip(*plain), types)], schema=schema)
whole = table(rows)
parquet.write_table(whole, f"{root}/snappy.parquet")
parquet.write_table(whole, f"{root}/second.parquet", data_page_version="2.0", compression="zstd",
    use_dictionary=False, row_group_size=700, data_page_size=900, write_page_checksum=True,
    column_encoding={"id": "DELTA_BINARY_PACKED", "word": "DELTA_BYTE_ARRAY", "ratio": "BYTE_STREAM_SPLIT"})
parquet.write_table(whole, f"{root}/gzip.parquet", compression="gzip", use_deprecated_int96_timestamps=False,
    store_decimal_as_integer=True, row_group_size=1000)
parquet.write_table(whole.take(pyarrow.array([(at * 1009) % 3000 for at in range(3000)])), f"{root}/shuffled.parquet",
    compression="lz4")
c = duckdb.connect()
c.execute("create table t as select * from whole")
c.execute(f"copy t to '{root}/duck.parquet' (format parquet, row_group_size 2048)")
import os
os.mkdir(f"{root}/folder")
for part, begin in enumerate([2000, 0, 1000]):
    parquet.write_table(whole.slice(begin, 1000), f"{root}/folder/part-{part}.parquet", compression="brotli")
def literal(value):
    if value is None: return "NULL"
    if isinstance(value, (int, float, decimal.Decimal)): return repr(value) if isinstance(value, float) else str(value)
    if isinstance(value, datetime.datetime): return f"'{value.isoformat(sep=' ')}'"
    return f"'{value}'"
with open(f"{root}/rows.sql", "w") as out:
    for begin in range(0, 3000, 500):
        values = ", ".join("(" + ", ".join(map(literal, row)) + ")" for row in rows[begin:begin + 500])
        out.write(f"INSERT INTO t VALUES {values};\n")
"#;

const FILES: [&str; 6] = [
    "snappy.parquet",
    "second.parquet",
    "gzip.parquet",
    "shuffled.parquet",
    "duck.parquet",
    "folder",
];

fn shop(kind: Kind, folder: &Path) -> Option<Database> {
    let database = Database::new(kind)?;
    let moment = if kind == Kind::Mariadb { "datetime(6)" } else { "timestamp" };
    let text = if kind == Kind::Mariadb { " CHARACTER SET utf8mb4" } else { "" };
    let double = if kind == Kind::Postgres { "double precision" } else { "double" };
    database.run(&format!(
        "CREATE TABLE t (id int NOT NULL PRIMARY KEY, n bigint, price decimal(12,2), \
         word varchar(20){text}, moment {moment}, day date, ratio {double})"
    ));
    database.run(&fs::read_to_string(folder.join("rows.sql")).unwrap());
    Some(database)
}

#[test]
fn files_of_all_writers_equal_the_table_that_they_were_made_of() {
    let Some(folder) = files_of("parquet", SHOP) else { return };
    for kind in KINDS {
        let Some(database) = shop(kind, folder.path()) else { continue };
        for file in FILES {
            for is_reverse in [false, true] {
                let mut request = asked(&database.url, &folder.path().join(file), is_reverse);
                request.tables = vec!["t".to_owned()];
                request.options.chunk_rows = Some(400);
                let outcome = run(&request);
                assert_equal(&outcome);
                let report = only(&outcome);
                assert_eq!(
                    (report.rows_source, report.rows_target),
                    (3000, 3000),
                    "{kind:?} {file}"
                );
                // What is in the order of the key is gone through in ranges of it.
                let has_ranges = file != "shuffled.parquet";
                assert_eq!(report.chunks < 100, has_ranges, "{kind:?} {file}: {}", report.chunks);
            }
        }
    }
}

#[test]
fn rows_that_differ_from_a_file_are_named_by_their_key() {
    let Some(folder) = files_of("parquet", SHOP) else { return };
    for kind in KINDS {
        let Some(database) = shop(kind, folder.path()) else { continue };
        database.run("UPDATE t SET word = 'Plain' WHERE id = 1503");
        database.run("UPDATE t SET n = NULL WHERE id = -1497");
        database.run("DELETE FROM t WHERE id = 7497");
        database.run("INSERT INTO t VALUES (1, 1, 1, 'x', NULL, NULL, 1)");
        for file in FILES {
            for mode in [Mode::Stream, Mode::Auto] {
                let mut request = asked(&database.url, &folder.path().join(file), false);
                request.tables = vec!["t".to_owned()];
                request.options.mode = mode;
                let outcome = run(&request);
                assert_eq!(verdict(outcome.tables.iter()), Verdict::Different, "{kind:?} {file}");
                let report = only(&outcome);
                let mut changed = keys(report, Difference::Changed);
                changed.sort();
                assert_eq!(changed, ["-1497", "1503"], "{kind:?} {file}");
                assert_eq!(keys(report, Difference::OnlySource), ["1"], "{kind:?} {file}");
                assert_eq!(keys(report, Difference::OnlyTarget), ["7497"], "{kind:?} {file}");
            }
        }
    }
}

/// Rows of a table without a key are identified by the columns that are named.
#[test]
fn named_key_identifies_rows_of_a_table_without_one() {
    let Some(folder) = files_of("parquet", SHOP) else { return };
    let Some(database) = shop(Kind::Sqlite, folder.path()) else { return };
    database.run("CREATE TABLE u AS SELECT * FROM t; UPDATE u SET n = 5 WHERE id = 9");
    database.run("DROP TABLE t");
    // The types of the columns are gone with it.
    database.run(
        "CREATE TABLE t (id int, n bigint, price decimal(12,2), word text, moment timestamp, \
                  day date, ratio double); INSERT INTO t SELECT * FROM u; DROP TABLE u",
    );
    let mut request = asked(&database.url, &folder.path().join("snappy.parquet"), false);
    request.tables = vec!["t".to_owned()];
    assert!(keys(only(&run(&request)), Difference::Changed).is_empty());
    request.key = vec!["ID".to_owned()];
    assert_eq!(keys(only(&run(&request)), Difference::Changed), ["9"]);
    request.key = vec!["nothing".to_owned()];
    assert!(only(&run(&request)).error.as_ref().unwrap().contains("no column nothing"));
}

/// Of the values that only PostgreSQL has beside it; a row that stands twice counts twice.
const EDGES: &str = r#"
import sys, datetime, decimal, uuid, pyarrow, pyarrow.parquet as parquet
root = sys.argv[1]
utc = datetime.timezone.utc
D = decimal.Decimal
T = pyarrow.table({
    "id": pyarrow.array([1, 2, 3, 4, 4], pyarrow.int64()),
    "small": pyarrow.array([-32768, 32767, 0, None, None], pyarrow.int16()),
    "positive": pyarrow.array([4294967295, 0, 1, None, None], pyarrow.uint32()),
    "flag": pyarrow.array([True, False, None, True, True], pyarrow.bool_()),
    "f": pyarrow.array([float("nan"), float("inf"), -0.0, 0.1, 0.1], pyarrow.float32()),
    "d": pyarrow.array([float("-inf"), 1e300, 5e-324, -0.0, -0.0], pyarrow.float64()),
    "huge": pyarrow.array([D("-" + "9" * 38), D("1" + "0" * 37), D(0), None, None], pyarrow.decimal128(38, 0)),
    "larger": pyarrow.array([D("-" + "9" * 50 + ".5"), D("0.1"), D(0), None, None], pyarrow.decimal256(60, 1)),
    "milli": pyarrow.array([datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999000), datetime.datetime(1969, 12, 31, 23, 59, 59, 1000), None, None], pyarrow.timestamp("ms")),
    "zoned": pyarrow.array([datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, utc), datetime.datetime(1, 1, 1, tzinfo=utc), datetime.datetime(2024, 2, 29, tzinfo=utc), None, None], pyarrow.timestamp("us", "UTC")),
    "nano": pyarrow.array([-1000, 1, 0, None, None], pyarrow.int64()).cast(pyarrow.timestamp("ns")),
    "hour": pyarrow.array([datetime.time(23, 59, 59, 999999), datetime.time(0), datetime.time(12, 0, 1), None, None], pyarrow.time64("us")),
    "day": pyarrow.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(1969, 12, 31), None, None], pyarrow.date32()),
    "raw": pyarrow.array([b"", b"\x00\xff", b"abc", None, None], pyarrow.binary()),
    "fixed": pyarrow.array([b"\x00" * 4, b"abcd", b"\xff" * 4, None, None], pyarrow.binary(4)),
    "word": pyarrow.array(["", "\u00e9\u00df\U0001F600", "a ", None, None], pyarrow.string()),
    "kind": pyarrow.array(["a", "b", "a", None, None]).dictionary_encode(),
    "data": pyarrow.array(['{"b": 1, "a": [1.50, null]}', "null", "1e2", None, None], pyarrow.string()),
    "u": pyarrow.array([uuid.UUID(int=1).bytes, uuid.UUID(int=2**128 - 1).bytes, uuid.UUID(int=0).bytes, None, None], pyarrow.binary(16)),
    "nothing": pyarrow.nulls(5, pyarrow.int32()),
})
parquet.write_table(T, f"{root}/edges.parquet", version="2.6")
parquet.write_table(T, f"{root}/crc.parquet", version="2.6", write_page_checksum=True, compression="none")
parquet.write_table(T.append_column("list", pyarrow.array([[1], [2], [], None, None])), f"{root}/list.parquet")
"#;

const EDGE_TABLE: &str = r#"CREATE TABLE edges (id bigint, small smallint, positive bigint, flag boolean, f real,
    d double precision, huge numeric, larger numeric, milli timestamp, zoned timestamptz, nano timestamp, hour time,
    day date, raw bytea, fixed bytea, word text, kind varchar(5), data jsonb, u uuid, nothing int);
INSERT INTO edges VALUES
    (1, -32768, 4294967295, true, 'NaN', '-infinity', -99999999999999999999999999999999999999,
     -99999999999999999999999999999999999999999999999999.5, '0001-01-01', '1969-12-31 23:59:59.999999Z',
     '1969-12-31 23:59:59.999999', '23:59:59.999999', '0001-01-01', '', '\x00000000', '', 'a',
     '{"a": [1.5, null], "b": 1.0}', '00000000-0000-0000-0000-000000000001', NULL),
    (2, 32767, 0, false, 'infinity', 1e300, 10000000000000000000000000000000000000, 0.10,
     '9999-12-31 23:59:59.999', '0001-01-01 00:00:00Z', '1970-01-01', '00:00', '9999-12-31', '\x00ff',
     '\x61626364', E'\u00e9\u00df\U0001F600', 'b', 'null', 'ffffffff-ffff-ffff-ffff-ffffffffffff', NULL),
    (3, 0, 1, NULL, 0, 5e-324, 0, 0, '1969-12-31 23:59:59.001', '2024-02-29 00:00:00Z', '1970-01-01', '12:00:01',
     '1969-12-31', '\x616263', '\xffffffff', 'a ', 'a', '100', '00000000-0000-0000-0000-000000000000', NULL),
    (4, NULL, NULL, true, 0.1, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (4, NULL, NULL, true, 0.1, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);"#;

#[test]
fn values_at_the_edges_of_their_types_are_equal_and_nanoseconds_are_not_cut() {
    let Some(folder) = files_of("parquet", EDGES) else { return };
    let Some(database) = Database::new(Kind::Postgres) else { return };
    database.run(&format!("SET datestyle = 'ISO'; {EDGE_TABLE}"));
    let mut request = asked(&database.url, &folder.path().join("edges.parquet"), false);
    request.key = vec!["id".to_owned()];
    let outcome = run(&request);
    let report = only(&outcome);
    assert_eq!((&report.error, &report.not_compared[..]), (&None, &[][..]));
    // A nanosecond that PostgreSQL cannot hold.
    assert_eq!(keys(report, Difference::Changed), ["2"], "{:?}", report.differences);
    request.excluded_columns = vec!["nano".to_owned()];
    assert_equal(&run(&request));
    assert_eq!(only(&run(&request)).rows_target, 5);
    for (statement, back) in [
        ("UPDATE edges SET f = 0 WHERE id = 1", "UPDATE edges SET f = 'NaN' WHERE id = 1"),
        ("UPDATE edges SET raw = NULL WHERE id = 1", "UPDATE edges SET raw = '' WHERE id = 1"),
        ("UPDATE edges SET word = NULL WHERE id = 1", "UPDATE edges SET word = '' WHERE id = 1"),
        ("UPDATE edges SET word = 'a' WHERE id = 3", "UPDATE edges SET word = 'a ' WHERE id = 3"),
        (
            "UPDATE edges SET huge = huge + 1 WHERE id = 1",
            "UPDATE edges SET huge = huge - 1 WHERE id = 1",
        ),
        (
            "UPDATE edges SET zoned = zoned + '1 us' WHERE id = 1",
            "UPDATE edges SET zoned = zoned - '1 us'::interval WHERE id = 1",
        ),
        (
            "UPDATE edges SET nothing = 0 WHERE id = 2",
            "UPDATE edges SET nothing = NULL WHERE id = 2",
        ),
    ] {
        database.run(statement);
        let outcome = run(&request);
        let expected = statement.rsplit(' ').next().unwrap();
        assert_eq!(keys(only(&outcome), Difference::Changed), [expected], "{statement}");
        database.run(back);
    }
    // One of two equal rows is gone.
    database.run("DELETE FROM edges WHERE ctid = (SELECT max(ctid) FROM edges WHERE id = 4)");
    assert_eq!(verdict(run(&request).tables.iter()), Verdict::Different);
}

#[test]
fn column_without_a_form_is_listed_as_not_compared() {
    let Some(folder) = files_of("parquet", EDGES) else { return };
    let Some(database) = Database::new(Kind::Postgres) else { return };
    database.run(&format!("SET datestyle = 'ISO'; {EDGE_TABLE}"));
    database.run("ALTER TABLE edges ADD list int[]; ALTER TABLE edges DROP nano");
    let mut request = asked(&database.url, &folder.path().join("list.parquet"), false);
    request.tables = vec!["edges".to_owned()];
    request.excluded_columns = vec!["nano".to_owned()];
    let outcome = run(&request);
    assert_eq!(verdict(outcome.tables.iter()), Verdict::Incomplete);
    assert_eq!(only(&outcome).not_compared[0].column, "list");
    assert!(only(&outcome).differences.is_empty() || only(&outcome).key_count == 0);
}

/// Each byte of a file in turn is another one. What pages with a CRC hold cannot become equal to
/// anything else, and nothing ends the program.
#[test]
fn damaged_file_is_refused_or_differs_and_is_never_wrongly_equal() {
    let Some(folder) = files_of("parquet", EDGES) else { return };
    let good = fs::read(folder.path().join("crc.parquet")).unwrap();
    let sound = folder.path().join("sound.parquet");
    fs::write(&sound, &good).unwrap();
    let path = folder.path().join("wounded.parquet");
    let mut counts = [0, 0, 0];
    for at in (0..good.len()).step_by(7) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, &bytes).unwrap();
        let mut request = asked(&format!("parquet:{}", sound.display()), &path, false);
        request.options.frozen = true;
        match compared(&request) {
            Ok(outcome) => match verdict(outcome.tables.iter()) {
                // In names, statistics or other words that say nothing of values.
                Verdict::Equal => counts[0] += 1,
                Verdict::Different => counts[1] += 1,
                Verdict::Incomplete => counts[2] += 1,
            },
            Err(_) => counts[2] += 1,
        }
    }
    let [equal, different, incomplete] = counts;
    eprintln!("{equal} equal, {different} different, {incomplete} refused");
    assert!(incomplete > different && incomplete > 0);
    for length in [0, 3, 12, good.len() / 2, good.len() - 1] {
        fs::write(&path, &good[..length]).unwrap();
        let request = asked(&format!("parquet:{}", sound.display()), &path, false);
        assert!(compared(&request).is_err(), "{length}");
    }
}

/// A file whose pages have no CRC: what the decoder meets then is nothing that a writer wrote.
#[test]
fn wounds_of_pages_without_a_crc_end_no_program() {
    let Some(folder) = files_of("parquet", SHOP) else { return };
    let good = fs::read(folder.path().join("snappy.parquet")).unwrap();
    let path = folder.path().join("wounded.parquet");
    let sound = format!("parquet:{}", folder.path().join("snappy.parquet").display());
    let mut equal = 0;
    for at in (4..good.len() - 8).step_by(good.len() / 150) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x41;
        fs::write(&path, &bytes).unwrap();
        let mut request = asked(&sound, &path, false);
        request.options.frozen = true;
        let is_equal = |outcome: &Outcome| verdict(outcome.tables.iter()) == Verdict::Equal;
        equal += usize::from(compared(&request).is_ok_and(|outcome| is_equal(&outcome)));
    }
    assert!(equal < 20, "{equal} of 150 without effect");
}

fn compared(request: &Request) -> pagewarden_db::error::Result<Outcome> {
    let watch =
        pagewarden_db::compare::Watch { tell: &|_, _| Ok(()), begin: &|_| {}, advance: &|_| {} };
    pagewarden_db::compare::compare(request, &watch, &mut |_| {})
}

const TABLES: &str = r#"
import sys, deltalake, pyarrow, pyarrow.parquet as parquet
from pyiceberg.catalog.sql import SqlCatalog
root = sys.argv[1]
goods = pyarrow.table({"id": list(range(5000)), "kind": [at % 3 for at in range(5000)]})
delta = f"{root}/delta"
for step in range(4):
    deltalake.write_deltalake(delta, goods.slice(step * 1250, 1250), mode="append")
deltalake.DeltaTable(delta).delete("id < 100")
deltalake.DeltaTable(delta).create_checkpoint()
import glob, os, shutil
cleaned = f"{root}/cleaned"
shutil.copytree(delta, cleaned)
for version in glob.glob(f"{cleaned}/_delta_log/*.json"):
    os.remove(version)
parts = f"{root}/parts"
deltalake.write_deltalake(parts, goods, partition_by=["kind"])
catalog = SqlCatalog("shop", uri="sqlite://", warehouse=f"file://{root}")
catalog.create_namespace("shop")
for version in ("1", "2"):
    table = catalog.create_table("shop.t" + version, schema=goods.schema,
        location=f"file://{root}/iceberg{version}", properties={"format-version": version})
    for step in range(5):
        table.append(goods.slice(step * 1000, 1000))
    table.delete("id < 100")
    with table.update_schema() as update:
        update.rename_column("kind", "sort")
        from pyiceberg.types import LongType
        update.add_column("more", LongType())
os.makedirs(f"{root}/hive/kind=1")
parquet.write_table(goods, f"{root}/hive/kind=1/a.parquet")
"#;

#[test]
fn tables_of_delta_and_iceberg_are_read_as_their_current_state() {
    let Some(folder) = files_of("parquet", TABLES) else { return };
    let database = Database::new(Kind::Sqlite).unwrap();
    database.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, kind int);
         WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 4999)
         INSERT INTO t SELECT i, i % 3 FROM n",
    );
    let asked = |name: &str| {
        let mut request = asked(&database.url, &folder.path().join(name), false);
        request.tables = vec!["t".to_owned()];
        request
    };
    // A column that is only in the names of folders, and in the log.
    let mut whole = asked("parts");
    whole.tables = vec!["u".to_owned()];
    database.run(
        "CREATE TABLE u (id INTEGER PRIMARY KEY, kind int);
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 4999)
         INSERT INTO u SELECT i, i % 3 FROM n",
    );
    assert_equal(&run(&whole));
    database.run("UPDATE u SET kind = 2 WHERE id = 4321");
    assert_eq!(keys(only(&run(&whole)), Difference::Changed), ["4321"]);
    // By all versions, and by a checkpoint alone.
    assert_equal(&run(&asked("delta")));
    assert_equal(&run(&asked("cleaned")));
    // A renamed column, and one that no file has.
    database.run("ALTER TABLE t RENAME kind TO sort; ALTER TABLE t ADD more bigint");
    for name in ["iceberg1", "iceberg2"] {
        assert_equal(&run(&asked(name)));
    }
    database.run("UPDATE t SET more = 1 WHERE id = 4321");
    let outcome = run(&asked("iceberg2"));
    assert_eq!(keys(only(&outcome), Difference::Changed), ["4321"], "{outcome:#?}");
    let error = compared(&asked("hive")).unwrap_err().to_string();
    assert!(error.contains("kind=1"), "{error}");
    // A file of the current state is gone.
    let files = fs::read_dir(folder.path().join("delta")).unwrap();
    for file in files.map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        fs::remove_file(file).unwrap();
    }
    assert!(compared(&asked("delta")).is_err());
}
