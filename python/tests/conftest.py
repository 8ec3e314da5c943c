"""Databases for the tests: golden files of the project, sound and damaged."""

import os
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
import servers  # noqa: E402
import sparks  # noqa: E402

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures"
GOLDEN = FIXTURES / "sqlite" / "3.40.1" / "cksumvfs-512.db"


@pytest.fixture
def sound(tmp_path):
    """A SQLite database of which every page carries a sum."""
    return shutil.copy(GOLDEN, tmp_path / "sound.sqlite")


@pytest.fixture
def damaged(tmp_path):
    """The same with one wrong byte in each of three pages, two of them side by side."""
    path = tmp_path / "damaged.sqlite"
    data = bytearray(GOLDEN.read_bytes())
    for page in (5, 6, 9):
        data[(page - 1) * 512 + 300] ^= 0x10
    path.write_bytes(data)
    return path


def place_of(name, place, how):
    """Where the programs of a server are; the test is skipped, or fails where they are asked for."""
    if place is None:
        words = f"there is no {name}: cargo xtask servers {how}"
        if name in os.environ.get("PAGEWARDEN_REQUIRE", ""):
            pytest.fail(f"PAGEWARDEN_REQUIRE asks for it, and {words}")
        pytest.skip(words)
    return place


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL of its own."""
    server = servers.Postgres(place_of("postgres", servers.programs(), "18"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mysql():
    """A MySQL of its own."""
    server = servers.Mysql(place_of("mysql", servers.Mysql.programs(), "mysql"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """A real Spark of two cores, whose clock is not that of UTC."""
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("there is no Java")
    session = (
        sparks.builder("local[2]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield session
    session.stop()
