"""DataFrames summed by executors, and compared with tables of a real PostgreSQL."""

import datetime
import decimal
import math

import pytest

import pagewarden

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
import pagewarden.spark  # noqa: E402
from pagewarden import _lake  # noqa: E402

UTC = datetime.timezone.utc
TYPES = (
    "id int, small smallint, big bigint, price decimal(20,4), wide decimal(38,10), day date, "
    "clock timestamp_ntz, moment timestamp, words string, code string, raw binary, ok boolean, "
    "f4 float, f8 double"
)
KINDS = """
    create table kinds (id int primary key, small smallint, big bigint, price numeric(12,2),
        wide numeric(38,10), day date, clock timestamp, moment timestamptz, words text,
        code varchar(40), raw bytea, ok boolean, f4 real, f8 double precision);
    insert into kinds values
    (1, -32768, -9223372036854775808, 12.50, 1234567890123456789012345678.0123456789, '2024-02-29',
        '2024-03-10 02:30:00.000001', '2024-03-10 02:30:00.123456+00', 'Grüße', 'a ', '\\x00ff', true,
        0.1, 0.1),
    (2, 32767, 9223372036854775807, -0.01, -0.0000000001, '1900-01-01', '1969-12-31 23:59:59.999999',
        '1969-12-31 23:59:59.999999+00', '', '', '', false, '-0', '-0'),
    (3, 0, 0, 0, 0, '1969-12-31', '2024-11-03 01:30:00', '2024-11-03 05:30:00+00', 'NULL', '~',
        '\\x5c', null, 'NaN', 'NaN'),
    (4, null, null, null, null, null, null, null, null, null, null, null, null, null),
    (5, 10, 100, 1000, 10000, '9999-12-31', '9999-12-31 23:59:59', '2038-01-19 03:14:08+00',
        'it''s "quoted"', E'tab\\tand\\nline', '\\x01', true, 'Infinity', '-Infinity'),
    (6, 1, 1, 1.1, 1.1, '2000-01-01', '2000-01-01', '2000-01-01+00', ' blanks ', 'x', '\\x02', false,
        16777216, 1e300);
"""


def at(text):
    return datetime.datetime.fromisoformat(text)


def kinds():
    one = decimal.Decimal
    return [
        (1, -32768, -(1 << 63), one("12.50"), one("1234567890123456789012345678.0123456789"),
         datetime.date(2024, 2, 29), at("2024-03-10 02:30:00.000001"), at("2024-03-10 02:30:00.123456+00:00"),
         "Grüße", "a ", b"\x00\xff", True, 0.1, 0.1),
        (2, 32767, (1 << 63) - 1, one("-0.01"), one("-0.0000000001"), datetime.date(1900, 1, 1),
         at("1969-12-31 23:59:59.999999"), at("1969-12-31 23:59:59.999999+00:00"), "", "", b"", False,
         -0.0, -0.0),
        (3, 0, 0, one(0), one(0), datetime.date(1969, 12, 31), at("2024-11-03 01:30:00"),
         at("2024-11-03 05:30:00+00:00"), "NULL", "~", b"\\", None, math.nan, math.nan),
        (4, *[None] * 13),
        (5, 10, 100, one(1000), one(10000), datetime.date(9999, 12, 31), at("9999-12-31 23:59:59"),
         at("2038-01-19 03:14:08+00:00"), "it's \"quoted\"", "tab\tand\nline", b"\x01", True, math.inf,
         -math.inf),
        (6, 1, 1, one("1.1"), one("1.1"), datetime.date(2000, 1, 1), at("2000-01-01 00:00:00"),
         at("2000-01-01 00:00:00+00:00"), " blanks ", "x", b"\x02", False, 16777216.0, 1e300),
    ]


def kind_names():
    return [column.split()[0] for column in TYPES.replace("(20,4)", "").replace("(38,10)", "").split(",")]


@pytest.fixture(scope="module")
def tables(postgres):
    """Databases of the server with tables of their own."""
    postgres.sql("create database lake")
    postgres.sql(KINDS, "lake")
    postgres.sql(
        "create table numbers(id bigint primary key, words text);"
        "insert into numbers select n, 'row ' || n from generate_series(1, 20000) n;"
        "create table words(word text primary key, n int);"
        "insert into words select 'w' || n, n from generate_series(1, 500) n;"
        "create table keyless(a int, b text);"
        "insert into keyless values (1, 'x'), (1, 'x'), (2, 'y');"
        "create table hollow(id int primary key, x text);"
        "create table padded(id int primary key, c char(5));"
        "insert into padded values (1, 'ab'), (2, 'abcde'), (3, null);",
        "lake",
    )
    return postgres


def url(tables, table):
    return tables.url("lake", table=table)


def numbers(spark, words="concat('row ', id)", rows="true"):
    return spark.range(1, 20001).selectExpr("id", f"{words} as words").where(rows)


def test_every_type_has_the_sum_that_the_database_gives(spark, tables):
    df = spark.createDataFrame(kinds(), TYPES)
    expected = pagewarden.checksum(tables.url("lake"), "kinds")["kinds"]
    rows, checksum = pagewarden.spark.checksum(df)
    assert (rows, checksum) == (6, expected.checksum)
    # Neither the order nor the number of parts counts, nor upper case in names.
    other = df.repartition(5, "id").select(*df.columns[::-1]).withColumnRenamed("words", "Words")
    assert pagewarden.spark.checksum(other) == (rows, checksum)
    found = pagewarden.spark.compare(df, url(tables, "kinds"))
    assert found.equal, found
    assert found.target["server"].startswith("Spark ")


@pytest.mark.parametrize("column", range(1, 14))
def test_one_changed_value_of_any_type_is_named(spark, tables, column):
    changes = {
        "small": 2, "big": 2, "price": decimal.Decimal("1.1001"), "wide": decimal.Decimal("1.1000000001"),
        "day": datetime.date(2000, 1, 2), "clock": at("2000-01-01 00:00:00.000001"),
        "moment": at("2000-01-01 00:00:00.000001+00:00"), "words": " blanks", "code": "X", "raw": b"\x03",
        "ok": None, "f4": 16777218.0, "f8": 1.0000000000000002e300,
    }
    rows = kinds()
    name, value = list(changes.items())[column - 1]
    rows[5] = (*rows[5][:column], value, *rows[5][column + 1 :])
    df = spark.createDataFrame(rows, TYPES)
    found = pagewarden.spark.compare(df, url(tables, "kinds"), settle=0)
    assert [(row.key, row.kind, row.columns) for row in found.differences] == [({"id": 6}, "changed", [name])]
    sums = pagewarden.checksum(tables.url("lake"), "kinds")["kinds"]
    assert pagewarden.spark.checksum(df) != (sums.rows, sums.checksum)


def test_a_clock_without_a_zone_is_not_a_moment(spark, tables):
    """A Spark timestamp is a moment. The same hands of a clock in New York are another one."""
    df = spark.createDataFrame(kinds(), TYPES).selectExpr(
        *("cast(clock as timestamp) as clock" if name == "clock" else name for name in kind_names())
    )
    found = pagewarden.spark.compare(df, url(tables, "kinds"), settle=0)
    assert found.verdict == "different"
    assert {tuple(row.columns) for row in found.differences} == {("clock",)}


def test_only_ranges_that_differ_are_fetched(spark, tables, monkeypatch):
    fetched = []
    rows = _lake._rows

    def spy(df, task, spans):
        pieces = rows(df, task, spans)
        fetched.append((spans, sum(map(len, pieces))))
        return pieces

    monkeypatch.setattr(_lake, "_rows", spy)
    assert pagewarden.spark.compare(numbers(spark), url(tables, "numbers")).equal
    assert fetched == []
    # One changed, one missing, one more before the first.
    df = numbers(spark, "if(id = 7000, 'new', concat('row ', id))", "id <> 19999")
    df = df.union(spark.sql("select bigint(-3), 'more'"))
    found = pagewarden.spark.compare(df, url(tables, "numbers"), settle=0, show_values=True)
    [table] = found.tables
    assert (table.rows_source, table.rows_target) == (20000, 20000)
    assert [(row.key["id"], row.kind) for row in found.differences] == [
        (-3, "only_target"), (7000, "changed"), (19999, "only_source")
    ]
    changed = found.differences[1]
    assert (changed.source, changed.target) == ({"words": "row 7000"}, {"words": "new"})
    [(spans, length)] = fetched
    assert 1 <= len(spans) <= 3
    assert 0 < length < 20000 * 20 / 2
    assert pagewarden.spark.checksum(df).rows == 20000


def test_doubled_rows_are_seen(spark, tables):
    df = numbers(spark)
    doubled = df.union(df.where("id = 5"))
    found = pagewarden.spark.compare(doubled, url(tables, "numbers"), settle=0)
    assert [(row.key, row.kind) for row in found.differences] == [({"id": 5}, "only_target")]
    assert found.tables[0].rows_target == 20001


def test_keys_that_are_no_numbers(spark, tables):
    df = spark.range(1, 501).selectExpr("concat('w', id) as word", "int(id) as n")
    assert pagewarden.spark.compare(df, url(tables, "words")).equal
    other = df.selectExpr("word", "if(n = 3, 4, n) as n").where("n <> 9")
    found = pagewarden.spark.compare(other, url(tables, "words"), settle=0)
    assert [(row.key, row.kind) for row in found.differences] == [
        ({"word": "w3"}, "changed"), ({"word": "w9"}, "only_source")
    ]
    # Of two columns, in any order of names; and a number that is not the table's key.
    assert pagewarden.spark.compare(df, url(tables, "words"), key="n").equal
    found = pagewarden.spark.compare(other, url(tables, "words"), key=["n", "word"], settle=0)
    assert found.tables[0].only_source == 2 and found.tables[0].only_target == 1
    found = pagewarden.spark.compare(df, url(tables, "words"), key="nothing")
    assert found.verdict == "incomplete" and "no column nothing" in found.tables[0].error
    keyless = spark.createDataFrame([(1, "x"), (2, "y"), (1, "x")], "a int, b string")
    assert pagewarden.spark.compare(keyless, url(tables, "keyless")).equal
    found = pagewarden.spark.compare(keyless.distinct(), url(tables, "keyless"), settle=0)
    assert [(row.key, row.kind) for row in found.differences] == [({"a": 1, "b": "x"}, "only_source")]


def test_keys_that_are_null_are_in_no_range(spark, tables):
    df = numbers(spark).selectExpr("if(id = 1, null, id) as id", "words")
    found = pagewarden.spark.compare(df, url(tables, "numbers"), settle=0)
    named = {(row.key["id"], row.kind) for row in found.differences}
    assert named == {(None, "only_target"), (1, "only_source")}


def test_tables_without_rows(spark, tables):
    df = spark.createDataFrame([], "id int, x string")
    assert pagewarden.spark.checksum(df) == (0, "0" * 32)
    assert pagewarden.spark.compare(df, url(tables, "hollow")).equal
    found = pagewarden.spark.compare(df.selectExpr("bigint(id) as id", "x as words"), url(tables, "numbers"),
                                     settle=0, differences=3)
    assert found.tables[0].only_source == 20000 and len(found.differences) == 3
    found = pagewarden.spark.compare(df.union(spark.sql("select 1, 'x'")), url(tables, "hollow"), settle=0)
    assert [(row.key, row.side) for row in found.differences] == [({"id": 1}, "target")]


def test_blanks_at_the_end_of_char_are_of_the_type(spark, tables):
    spark.sql("create table padded(id int, c char(5)) using parquet")
    spark.sql("insert into padded values (1, 'ab'), (2, 'abcde'), (3, null)")
    df = spark.table("padded")
    assert df.where("id = 1").collect()[0]["c"] == "ab   "
    assert pagewarden.spark.compare(df, url(tables, "padded")).equal
    assert pagewarden.spark.checksum(df).checksum == pagewarden.checksum(tables.url("lake"), "padded")["padded"].checksum
    # As text they count.
    found = pagewarden.spark.compare(df.selectExpr("id", "c || '' as c"), url(tables, "padded"), settle=0)
    assert [row.key for row in found.differences] == [{"id": 1}]


@pytest.mark.parametrize(
    "nested",
    ["array(1)", "map('a', 1)", "struct(1 as a)", "interval '1' day", "interval '1' month"],
)
def test_values_without_a_form_are_never_called_equal(spark, tables, nested):
    df = numbers(spark).selectExpr("id", "words", f"{nested} as more")
    with pytest.raises(pagewarden.Error, match="the column more") as raised:
        pagewarden.spark.checksum(df)
    assert raised.value.kind == "unsupported"
    with pytest.raises(pagewarden.Error):
        pagewarden.spark.checksum(df.where("false"))
    found = pagewarden.spark.compare(df, url(tables, "numbers"))
    assert found.verdict == "incomplete" and list(found.tables[0].not_compared) == ["more"]
    assert pagewarden.spark.compare(df, url(tables, "numbers"), exclude_column="more").equal
    # In the place of a column that the table has.
    other = numbers(spark).selectExpr("id", f"{nested} as words")
    found = pagewarden.spark.compare(other, url(tables, "numbers"))
    assert found.verdict == "incomplete" and list(found.tables[0].not_compared) == ["words"]


def test_what_cannot_be_reached_or_is_not_there(spark, tables):
    df = numbers(spark)
    with pytest.raises(pagewarden.Error) as raised:
        pagewarden.spark.compare(df, tables.url("lake", password="wrong-hunter2"), table="numbers")
    assert raised.value.kind == "connect" and "hunter2" not in str(raised.value) + repr(raised.value)
    with pytest.raises(pagewarden.Error, match="name the table"):
        pagewarden.spark.compare(df, tables.url("lake"))
    with pytest.raises(pagewarden.Error, match="no table none"):
        pagewarden.spark.compare(df, tables.url("lake"), table="none")
    found = pagewarden.spark.compare(df, tables.url("lake"), table="numbers", snapshot=True)
    assert found.equal and "hunter2" not in found.to_json()


def test_executors_that_fail_are_no_verdict(spark, tables):
    df = numbers(spark, "if(id = 9, raise_error('broken'), concat('row ', id))")
    found = pagewarden.spark.compare(df, url(tables, "numbers"))
    assert found.verdict == "incomplete" and not found.equal
    assert "broken" in found.tables[0].error


def test_progress_may_end_it(spark, tables):
    def progress(rows):
        raise KeyError("enough")

    with pytest.raises(KeyError):
        pagewarden.spark.compare(numbers(spark), url(tables, "numbers"), progress=progress, rate=1 << 18)
    # The next is not harmed.
    assert pagewarden.spark.compare(numbers(spark), url(tables, "numbers")).equal


def test_files_of_the_lake_beside_the_dataframe(spark, tmp_path):
    path = str(tmp_path / "numbers.parquet")
    numbers(spark).write.parquet(path)
    df = spark.read.parquet(path)
    assert pagewarden.spark.compare(df, f"parquet:{path}", key="id").equal
    sums = pagewarden.checksum(f"parquet:{path}").tables[0]
    assert pagewarden.spark.checksum(df) == (sums.rows, sums.checksum)
    found = pagewarden.spark.compare(df.where("id <> 4"), f"parquet:{path}", key="id", settle=0)
    assert [(row.key, row.kind) for row in found.differences] == [({"id": 4}, "only_source")]
