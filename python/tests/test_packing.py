"""Packs made by the module."""

import doctest
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

import pytest
from test_servers import program

import pagewarden
from pagewarden import _packing


@pytest.fixture
def shop(tmp_path):
    """A SQLite database of 12 MB that hardly becomes smaller."""
    path = tmp_path / "source" / "shop.sqlite"
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("create table item (id integer primary key, picture blob)")
    connection.executemany("insert into item (picture) values (?)", ((os.urandom(3000),) for _ in range(4000)))
    connection.commit()
    connection.close()
    return path


def is_whole(pack, folder):
    """Every file of the folder is in the pack, with its bytes."""
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in pathlib.Path(folder).rglob("*")
        if path.is_file()
    }
    return {name: pack.read(name) for name in pack.files} == found


def without_times(text):
    """The object without what no two runs have alike; the pack has the seconds in it, too."""
    found = json.loads(text)
    for part in (found, found["packed"], found["check"], *found["check"]["targets"]):
        for name in ("seconds", "mib_per_second", "output", "prediction", "stored_bytes"):
            part.pop(name, None)
    return found


def test_a_pack_holds_the_very_bytes(tmp_path, shop):
    told = []
    out = tmp_path / "shop.pwk"
    packed = pagewarden.pack(shop, out, progress=told.append, jobs=2)
    assert packed.path == str(out) and packed.verdict == "unprotected" and packed.files == 1
    assert packed.bytes == shop.stat().st_size and packed.stored_bytes == out.stat().st_size
    assert told == sorted(told) and told[-1] == packed.bytes and packed.seconds > 0
    assert packed.report.pages["total"] == packed.bytes // 4096 and packed.base is None
    assert repr(packed).startswith(f"<pagewarden.Packed {out}: unprotected, 1 files, ")
    pack = pagewarden.read(out)
    assert pack.root == packed.root and pack.read("shop.sqlite") == shop.read_bytes()
    assert pagewarden.check(out).verdict == "intact"
    # It is not written over.
    with pytest.raises(pagewarden.Error, match="it exists") as raised:
        pagewarden.pack(shop, out)
    assert raised.value.kind == "refused"


def test_the_pack_is_that_of_the_program(tmp_path, shop):
    if program() is None:
        pytest.skip("there is no program pagewarden: cargo build")
    options = ["--profile", "scan", "--codec", "zstd", "--level", "1", "--json", "-q"]
    command = [program(), "pack", str(shop), "-o", str(tmp_path / "one.pwk"), *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    found = pagewarden.pack(shop, tmp_path / "other.pwk", profile="scan", codec="zstd", level=1)
    assert without_times(found.to_json()) == without_times(ended.stdout)
    assert abs(found.stored_bytes - (tmp_path / "one.pwk").stat().st_size) < 100


def test_a_cluster_is_packed_and_a_running_one_refused(tmp_path, postgres):
    postgres.sql("create table goods as select i, repeat('x', 100) from generate_series(1, 5000) i; checkpoint")
    data = postgres.folder / "data"
    with pytest.raises(pagewarden.Error, match="a server runs on it") as raised:
        pagewarden.pack(data, tmp_path / "live.pwk")
    assert raised.value.kind == "in_use" and not (tmp_path / "live.pwk").exists()
    # All of it can be read all the same.
    read = pagewarden.pack(data, to="null:")
    # From PostgreSQL 18 on there are checksums unless they are not wanted.
    assert read.verdict == pagewarden.check(data).verdict and read.verdict in ("intact", "unprotected")
    assert read.pages > 1000 and read.bytes > 8192 * read.pages
    # One at rest.
    other = postgres.resting("resting")
    packed = pagewarden.pack(other, tmp_path / "cluster.pwk", profile="oltp")
    assert packed.verdict == "intact" and packed.report.pages["damaged"] == 0
    pack = pagewarden.read(packed.path)
    assert is_whole(pack, other) and "pg_notify" in pack and packed.bytes > 2 * packed.stored_bytes
    # What has changed since.
    (other / "base" / "1" / "note").write_bytes(b"a file that no page format knows" * 100)
    delta = pagewarden.pack(other, tmp_path / "delta.pwk", base=packed.path)
    assert delta.base == packed.root and delta.stored_bytes < packed.stored_bytes / 5
    assert is_whole(pagewarden.read(delta.path, base=[packed.path]), other)
    assert pagewarden.pack(other, to="null:").bytes == delta.bytes


def test_what_is_damaged_is_not_packed_unless_that_is_said(tmp_path, damaged):
    out = tmp_path / "damaged.pwk"
    with pytest.raises(pagewarden.NotPackedError) as raised:
        pagewarden.pack(damaged, out)
    assert (raised.value.kind, raised.value.path) == ("damaged", str(damaged))
    assert [one.page for one in raised.value.report.findings] == [5, 6, 9]
    assert sorted(os.listdir(tmp_path)) == ["damaged.sqlite"]
    packed = pagewarden.pack(damaged, out, keep_damaged=True)
    assert packed.verdict == "damaged" and packed.report.pages["damaged"] == 3
    assert pagewarden.read(out).read("damaged.sqlite") == damaged.read_bytes()
    read = pagewarden.pack(damaged, to="null:")
    assert read.verdict == "damaged" and "damaged" in repr(read)


def test_what_cannot_be_opened_or_written_is_an_error_with_its_kind(tmp_path, sound, shop):
    (tmp_path / "text").write_text("nothing that a database would begin with" * 200)
    for source, output, kind in (
        (tmp_path / "none", tmp_path / "a.pwk", "not_found"),
        (tmp_path / "text", tmp_path / "a.pwk", "unrecognised"),
        (sound, tmp_path / "none" / "a.pwk", "not_found"),
        (shop.parent, shop.parent / "a.pwk", "refused"),
        (sound, "/proc/a.pwk", None),
    ):
        with pytest.raises(pagewarden.Error) as raised:
            pagewarden.pack(source, output)
        assert kind in (raised.value.kind, None), raised.value
        assert not os.path.exists(output)
    with pytest.raises(pagewarden.NotFoundError):
        pagewarden.pack(sound, tmp_path / "a.pwk", base=tmp_path / "none")
    for wrong in ({"level": 0}, {"jobs": 0}, {"rate": 0}, {"profile": "x"}, {"codec": "x"}, {"format": "x"}):
        with pytest.raises(ValueError):
            pagewarden.pack(sound, tmp_path / "a.pwk", **wrong)
    for wrong in ({}, {"output": tmp_path / "a.pwk", "to": "null:"}, {"to": "null:", "level": 3}):
        with pytest.raises(TypeError):
            pagewarden.pack(sound, **wrong)
    for wrong in ({"to": "x"}, {"output": pathlib.Path("s3://bucket/a")}):
        with pytest.raises(ValueError):
            pagewarden.pack(sound, **wrong)
    with pytest.raises(ValueError):
        pagewarden.pack("-", tmp_path / "a.pwk")


def test_a_full_device_leaves_nothing(tmp_path, shop):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no small device can be made: it takes root")
    try:
        with pytest.raises(pagewarden.Error) as raised:
            pagewarden.pack(shop, small / "shop.pwk")
        assert raised.value.kind == "no_space" and " are free in " in str(raised.value)
        # It seemed to fit, and did not.
        filled = shop.parent / "zeroes"
        filled.mkdir()
        connection = sqlite3.connect(filled / "it")
        connection.execute("create table t (x)")
        connection.execute("insert into t values (zeroblob(60000000))")
        connection.executemany("insert into t values (?)", ((os.urandom(90000),) for _ in range(60)))
        connection.commit()
        connection.close()
        (small / "filling").write_bytes(bytes(1 << 20))
        with pytest.raises(pagewarden.Error) as raised:
            pagewarden.pack(filled / "it", small / "shop.pwk")
        assert raised.value.kind == "no_space", raised.value
        assert os.listdir(small) == ["filling"]
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_what_is_ended_leaves_no_part_of_a_pack(tmp_path, shop):
    class Enough(Exception):
        pass

    def raises(_):
        raise Enough

    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(Enough):
        pagewarden.pack(shop, out / "shop.pwk", rate=4 << 20, progress=raises)
    assert os.listdir(out) == []
    seen = []

    def interrupt():
        time.sleep(0.4)
        seen.extend(os.listdir(out))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        pagewarden.pack(shop, out / "shop.pwk", rate=4 << 20)
    # This thread ran beside it, and there was something to be removed.
    assert len(seen) == 1 and seen[0].startswith(".pagewarden-")
    assert os.listdir(out) == []


def test_no_file_stays_open(tmp_path, sound, damaged):
    def open_files():
        return len(os.listdir("/proc/self/fd"))

    def some(times, begin):
        for number in range(begin, begin + times):
            pagewarden.pack(sound, tmp_path / f"{number}.pwk")
            with pytest.raises(pagewarden.NotPackedError):
                pagewarden.pack(damaged, tmp_path / "damaged.pwk")
        return open_files()

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("the system does not say which files are open")
    assert some(5, 5) == some(5, 0)


def test_the_example_of_the_description_is_right():
    failed, tried = doctest.testmod(_packing)
    assert tried > 5 and failed == 0
