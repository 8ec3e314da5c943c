"""The wheel as users have it: installed, on databases and on a damaged one."""

import sqlite3
import subprocess
import sys

import pytest

import pagewarden_sqlite


def filled(path):
    with pagewarden_sqlite.connect(path) as db:
        db.execute("CREATE TABLE t(a INTEGER PRIMARY KEY, b)")
        db.executemany("INSERT INTO t(b) VALUES (?)", [("x" * 500,)] * 1000)
    db.close()


def test_new_database_is_protected(tmp_path):
    path = tmp_path / "app.db"
    filled(path)
    db = pagewarden_sqlite.connect(path)
    assert db.execute("PRAGMA page_verify").fetchone() == ("CHECKSUM",)
    assert db.execute("SELECT count(*) FROM t").fetchone() == (1000,)
    assert path.read_bytes()[20] == 24


def test_damaged_page_is_an_error_and_is_named(tmp_path):
    path = tmp_path / "app.db"
    filled(path)
    data = bytearray(path.read_bytes())
    data[9 * 4096 + 100] ^= 1
    path.write_bytes(data)
    db = pagewarden_sqlite.connect(path)
    with pytest.raises(sqlite3.OperationalError):
        db.execute("SELECT sum(length(b)) FROM t").fetchone()
    said = db.execute("PRAGMA page_verify_suspects").fetchone()[0]
    assert "10" in said and "bit" in said


def test_other_programs_can_be_kept_from_writing(tmp_path):
    path = tmp_path / "app.db"
    filled(path)
    db = pagewarden_sqlite.connect(path)
    assert db.execute("PRAGMA page_verify_guard = 1").fetchone() == ("1",)
    db.close()
    plain = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('DELETE FROM t')"
    refused = subprocess.run(
        [sys.executable, "-c", plain, str(path)], capture_output=True, text=True, check=False
    )
    assert "readonly" in refused.stderr


def test_a_python_without_extensions_has_a_way_in(tmp_path):
    """As it is where `sqlite3` was built without them: the way that needs none, in a process of its own."""
    script = """
import sqlite3, sys
import pagewarden_sqlite
pagewarden_sqlite._load_without_extensions()
db = sqlite3.connect(sys.argv[1])
db.execute("CREATE TABLE t(a)")
print(db.execute("PRAGMA page_verify").fetchone()[0])
"""
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "x.db")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "CHECKSUM\n", result.stderr
