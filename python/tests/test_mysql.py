"""Tables of a real MySQL compared and summed: with one another, with PostgreSQL, with DataFrames."""

import sqlite3

import pytest

import pagewarden

ROWS = 3000
TYPES = """
    create table {table} (
        id bigint primary key, small smallint, price decimal(12, 4), weight double, name varchar(80),
        note text, raw varbinary(20), day date, moment datetime(6), big bigint unsigned, flag tinyint(1)
    );
    set session cte_max_recursion_depth = 100000;
    insert into {table}
        with recursive n (i) as (select 1 union all select i + 1 from n where i < {rows})
        select i, i % 300 - 100, i / 7, i / 3e0, concat('name ', i), if(i % 5, repeat('\\u00e9', i % 9), null),
               unhex(lpad(hex(i), 8, '0')), date '2020-01-01' + interval i day,
               timestamp '2021-02-03 04:05:06.7' + interval i second, 18446744073709551615 - i, i % 2
        from n;
""".replace("\\u00e9", "\u00e9")


@pytest.fixture(scope="module")
def shops(mysql):
    """Two databases with the same rows."""
    mysql.sql("create database other")
    for name in ("shop", "other"):
        mysql.sql(TYPES.format(table="item", rows=ROWS), name)
    return mysql.url("shop"), mysql.url("other")


def test_equal_tables_of_mysql_are_equal_and_each_change_is_named(mysql, shops):
    one, other = shops
    told = []
    found = pagewarden.compare(one, other, progress=told.append)
    assert found.equal, found
    [table] = found.tables
    assert (table.table, table.rows_source, table.rows_target, table.not_compared) == ("item", ROWS, ROWS, {})
    assert found.source["server"].startswith("MySQL 9") and told[-1] > 0
    assert mysql.password not in found.to_json() + repr(found)
    mysql.sql("update item set name = 'NAME 7' where id = 7; update item set raw = 0x00 where id = 8;"
              "delete from item where id = 9; insert into item (id) values (-1)", "other")
    found = pagewarden.compare(one, other, settle=0, show_values=True, sql=True)
    assert found.verdict == "different" and not found.equal
    named = sorted((row.key["id"], row.kind, tuple(row.columns or ())) for row in found.differences)
    assert named == [
        (-1, "only_target", ()),
        (7, "changed", ("name",)),
        (8, "changed", ("raw",)),
        (9, "only_source", ()),
    ]
    # The statements make them equal again.
    mysql.sql(";\n".join(text.rstrip(";") for text in found.tables[0].sql), "other")
    assert pagewarden.compare(one, other, settle=0).equal


def test_sums_of_mysql_are_those_of_the_same_rows_elsewhere(mysql, shops, postgres, tmp_path):
    rows = mysql.sql("select id, name from item order by id", "shop").splitlines()
    rows = [line.split("\t") for line in rows]
    mysql.sql("create table plain (id bigint primary key, name varchar(80)); "
              "insert into plain select id, name from item", "shop")
    path = tmp_path / "plain.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table plain (id integer primary key, name text)")
        connection.executemany("insert into plain values (?, ?)", rows)
    connection.close()
    values = ", ".join(f"({key}, '{name}')" for key, name in rows)
    postgres.sql(f"create table plain (id bigint primary key, name text); insert into plain values {values}")
    urls = (mysql.url("shop"), f"sqlite:{path}", postgres.url())
    sums = [pagewarden.checksum(url, "plain")["plain"] for url in urls]
    assert {(one.rows, one.checksum) for one in sums} == {(ROWS, sums[0].checksum)}
    for url in urls[1:]:
        assert pagewarden.compare(urls[0], url, table="plain").equal
    postgres.sql("update plain set name = 'x' where id = 77")
    found = pagewarden.compare(urls[0], urls[2], table="plain", settle=0)
    assert [(row.key, row.kind) for row in found.differences] == [({"id": 77}, "changed")]
    postgres.sql("drop table plain")
    # The engine's own sum, and those that it makes by statements.
    strategies = ["count", "native", "accum", "bitxor", "multiset"]
    several = pagewarden.checksum(urls[0], "plain", strategy=strategies, function="crc32")
    assert several.verdict == "complete" and [one.strategy for one in several] == strategies
    assert all(one.rows == ROWS for one in several)
    # This server has no MD5 any more: that is an error of one line, and the others stand.
    several = pagewarden.checksum(urls[0], "plain", strategy=["accum", "count"])
    assert several.verdict == "incomplete" and "no MD5()" in several["plain"].error
    assert [one.rows for one in several] == [None, ROWS]


def test_a_login_that_is_refused_is_an_error_and_a_table_that_is_not_there_a_result(mysql):
    for url, words in (
        (mysql.url(password="canary"), "Access denied"),
        (mysql.url("nothing"), "Unknown database 'nothing'"),
        (f"mysql://ann:canary@127.0.0.1:{mysql.port}/shop?socket=/nowhere", "No such file"),
    ):
        with pytest.raises(pagewarden.Error, match=words) as raised:
            pagewarden.checksum(url)
        assert raised.value.kind == "connect" and raised.value.path.startswith("mysql://ann@")
        assert "canary" not in str(raised.value) + raised.value.path
    found = pagewarden.compare(mysql.url(), mysql.url(), table="nothing")
    assert found.verdict == "incomplete" and "there is no table nothing" in found.tables[0].error


def test_spark_compares_a_frame_with_a_table_of_mysql(mysql, shops, spark):
    import pagewarden.spark

    columns = "id, small, name, day"
    mysql.sql(f"create table lean (primary key (id)) as select {columns} from item", "shop")
    lines = mysql.sql("select id, small, name from lean", "shop").splitlines()
    rows = [(int(key), int(small), name) for key, small, name in (line.split("\t") for line in lines)]
    frame = spark.createDataFrame(rows, "id bigint, small smallint, name string")
    frame = frame.selectExpr("id", "small", "name", "date_add(date'2020-01-01', cast(id as int)) as day")
    found = pagewarden.spark.compare(frame, mysql.url(), table="lean", key="id")
    assert found.equal, found
    count, checksum = pagewarden.spark.checksum(frame)
    [summed] = [one for one in pagewarden.checksum(mysql.url(), "lean")]
    assert (count, checksum) == (summed.rows, summed.checksum)
    mysql.sql("update lean set small = 5555 where id = 1234", "shop")
    found = pagewarden.spark.compare(frame, mysql.url(), table="lean", key="id", settle=0)
    assert [(row.key, row.kind, row.columns) for row in found.differences] == [({"id": 1234}, "changed", ["small"])]
