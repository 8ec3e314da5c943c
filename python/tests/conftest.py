"""Databases for the tests: golden files of the project, sound and damaged."""

import pathlib
import shutil

import pytest

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
