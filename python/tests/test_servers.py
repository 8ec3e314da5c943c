"""Tables of databases compared and summed, as the program does it."""

import json
import logging
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest

import pagewarden


def database(path, rows=100, change=lambda connection: None, wide=1):
    with sqlite3.connect(path) as connection:
        connection.execute("create table t(id integer primary key, x text)")
        values = ((number, str(number) * wide) for number in range(rows))
        connection.executemany("insert into t values (?, ?)", values)
        change(connection)
    connection.close()
    return f"sqlite:{path}"


@pytest.fixture
def one(tmp_path):
    return database(tmp_path / "one.db")


def test_equal_databases_are_equal(tmp_path, one):
    other = database(tmp_path / "other.db")
    found = pagewarden.compare(one, other)
    assert found.equal and found.verdict == "equal" and found.differences == []
    [table] = found.tables
    assert (table.table, table.rows_source, table.rows_target) == ("t", 100, 100)
    assert found.rows == 100 and found.seconds > 0
    assert repr(found) == "<pagewarden.Comparison t equal: 100 and 100 rows>"
    assert found.source["url"] == one and found.target["url"] == other
    with pytest.raises(TypeError):
        bool(found)


def test_rows_that_differ_are_named_with_their_side(tmp_path, one):
    def change(connection):
        connection.execute("update t set x = 'new' where id = 7")
        connection.execute("delete from t where id = 9")
        connection.execute("insert into t values (1000, 'more')")

    other = database(tmp_path / "other.db", change=change)
    found = pagewarden.compare(one, other, settle=0, show_values=True, sql=True)
    assert not found.equal and found.verdict == "different"
    named = [(row.table, row.key, row.kind, row.side, row.columns) for row in found.differences]
    assert named == [
        ("t", {"id": 7}, "changed", "both", ["x"]),
        ("t", {"id": 9}, "only_source", "source", []),
        ("t", {"id": 1000}, "only_target", "target", []),
    ]
    changed = found.differences[0]
    assert (changed.source, changed.target) == ({"x": "7"}, {"x": "new"})
    [table] = found.tables
    assert (table.changed, table.only_source, table.only_target) == (1, 1, 1)
    assert len(table.sql) == 3 and all("t" in text for text in table.sql)
    for words in ("1 changed", "1 only in the source", "changed id=7"):
        assert words in repr(found)
    # Values are the affair of those who ask for them.
    hidden = pagewarden.compare(one, other, settle=0)
    assert "new" not in hidden.to_json() and hidden.differences[0].target is None


def without_times(text):
    found = json.loads(text)
    for part in (found, *found["tables"]):
        part.pop("seconds", None)
    return found


def program():
    named = os.environ.get("PAGEWARDEN_PROGRAM")
    built = pathlib.Path(__file__).resolve().parents[2] / "target" / "debug" / "pagewarden"
    return named or (str(built) if built.exists() else shutil.which("pagewarden"))


def test_the_object_is_that_of_the_program(tmp_path, one):
    if program() is None:
        pytest.skip("there is no program pagewarden: cargo build")

    def change(connection):
        connection.execute("update t set x = 'new' where id = 7")

    def run(*arguments):
        ended = subprocess.run([program(), *arguments, "--json"], capture_output=True, text=True)
        return without_times(ended.stdout)

    other = database(tmp_path / "other.db", change=change)
    found = pagewarden.compare(one, other, settle=0, show_values=True, key="id")
    expected = run("compare", one, other, "--settle", "0s", "--show-values", "--key", "id")
    assert without_times(found.to_json()) == expected
    sums = pagewarden.checksum(one, strategy=["count", "multiset", "bitxor"])
    expected = run("checksum", one, "--strategy", "count,multiset,bitxor")
    assert without_times(sums.to_json()) == expected


def test_checksums_are_equal_if_the_rows_are(tmp_path, one):
    other = database(tmp_path / "other.db")
    changed = database(tmp_path / "changed.db", change=lambda it: it.execute("update t set x = 1 where id = 3"))
    sums = pagewarden.checksum(one)
    assert sums.verdict == "complete" and len(sums) == 1
    assert (sums["t"].rows, sums["t"].strategy) == (100, "multiset")
    assert sums["t"].checksum == pagewarden.checksum(other, "t")["t"].checksum
    assert sums["t"].checksum != pagewarden.checksum(changed, table="t")["t"].checksum
    assert sums["t"].checksum in repr(sums) and "100 rows" in repr(sums)
    assert [one.strategy for one in pagewarden.checksum(one, strategy=["count", "accum"])] == ["count", "accum"]
    with pytest.raises(KeyError):
        sums["none"]


def test_what_cannot_be_summed_or_compared_is_said(tmp_path, one):
    found = pagewarden.compare(one, database(tmp_path / "other.db"), key="nothing")
    assert found.verdict == "incomplete" and not found.equal
    assert "no column nothing" in found.tables[0].error and "nothing" in repr(found)
    sums = pagewarden.checksum(one, "none")
    assert sums.verdict == "incomplete" and "none" in sums["none"].error
    assert "failed" in repr(sums)


def test_tables_without_rows_are_equal_and_sum_to_nothing(tmp_path):
    urls = [database(tmp_path / name, rows=0) for name in ("a.db", "b.db")]
    found = pagewarden.compare(*urls)
    assert found.equal and found.rows == 0
    assert pagewarden.checksum(urls[0])["t"].checksum == "0" * 32


def test_wrong_options_are_refused(one):
    for options in (
        {"mode": "magic"}, {"settle": -1}, {"jobs": 0}, {"sample": 0}, {"chunk_rows": 0},
        {"rate": 0}, {"seed": 1}, {"max_lag": float("nan")}, {"state": "f", "snapshot": True},
    ):
        with pytest.raises(ValueError):
            pagewarden.compare(one, one, **options)
    for options in ({"nonsense": 1}, {"key": [1]}):
        with pytest.raises(TypeError):
            pagewarden.compare(one, one, **options)
    for options in ({"strategy": "replicate"}, {"strategy": "x"}, {"function": "x"}, {"jobs": 0}):
        with pytest.raises(ValueError):
            pagewarden.checksum(one, **options)


def test_what_cannot_be_reached_is_an_exception_with_its_kind(tmp_path, one):
    nowhere = f"sqlite:{tmp_path / 'nowhere.db'}"
    for work in (lambda: pagewarden.compare(one, nowhere), lambda: pagewarden.checksum(nowhere)):
        with pytest.raises(pagewarden.Error) as raised:
            work()
        assert (raised.value.kind, raised.value.path) == ("connect", nowhere)
    for url in ("oracle:hunter2", "nothing", "mysql://ann:hunter2@x:port/"):
        with pytest.raises(pagewarden.Error) as raised:
            pagewarden.checksum(url)
        assert raised.value.kind == "address" and "hunter2" not in str(raised.value)
    empty = f"sqlite:{tmp_path / 'empty.db'}"
    sqlite3.connect(tmp_path / "empty.db").execute("vacuum")
    with pytest.raises(pagewarden.NotFoundError):
        pagewarden.compare(empty, empty)


def test_progress_may_end_a_comparison_and_other_threads_run(tmp_path):
    urls = [database(tmp_path / name, rows=200_000, wide=4) for name in ("a.db", "b.db")]
    told, other = [], threading.Event()

    def progress(rows):
        told.append(rows)
        threading.Thread(target=other.set).start()
        raise KeyError("enough")

    with pytest.raises(KeyError):
        pagewarden.compare(*urls, progress=progress, rate=1 << 20)
    assert told and other.wait(10)


def test_ctrl_c_ends_a_comparison(tmp_path):
    urls = [database(tmp_path / name, rows=200_000, wide=4) for name in ("a.db", "b.db")]
    code = (
        "import sys, pagewarden\n"
        "try: pagewarden.compare(*sys.argv[1:], rate=1 << 18, progress=lambda rows: print('read', flush=True))\n"
        "except KeyboardInterrupt: print('ended')\n"
    )
    run = subprocess.Popen([sys.executable, "-c", code, *urls], stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "read\n"
    run.send_signal(signal.SIGINT)
    assert run.communicate(timeout=30)[0].endswith("ended\n")


def test_postgres_is_compared_with_sqlite_and_no_password_is_shown(postgres, tmp_path, caplog):
    postgres.sql("create table t(id bigint primary key, x text);"
                 "insert into t select n, n::text from generate_series(0, 99) n;")
    other = database(tmp_path / "other.db")
    caplog.set_level(logging.DEBUG, "pagewarden")
    found = pagewarden.compare(postgres.url(), other, table="t")
    assert found.equal, found
    sums = pagewarden.checksum(postgres.url(), "t")
    assert sums["t"].checksum == pagewarden.checksum(other)["t"].checksum
    shown = [repr(found), found.to_json(), repr(sums), sums.to_json(), caplog.text]
    for work in (
        lambda: pagewarden.compare(postgres.url(password="wrong-hunter2"), other),
        lambda: pagewarden.compare(other, postgres.url(password="wrong-hunter2")),
        lambda: pagewarden.checksum(postgres.url(password="wrong-hunter2")),
    ):
        with pytest.raises(pagewarden.Error) as raised:
            work()
        assert raised.value.kind == "connect"
        shown += [str(raised.value), repr(raised.value), raised.value.path]
    assert "127.0.0.1" in caplog.text
    assert not [text for text in shown if "hunter2" in text]
