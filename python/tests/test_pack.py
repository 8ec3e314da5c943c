"""Packs of the program, read."""

import io
import os
import subprocess

import pytest
from test_servers import program

import pagewarden


@pytest.fixture
def packed(tmp_path, sound):
    if program() is None:
        pytest.skip("there is no program pagewarden: cargo build")
    out = tmp_path / "sound.pwk"
    subprocess.run([program(), "pack", str(sound), "-o", str(out)], check=True, capture_output=True)
    return out


def test_files_of_a_pack_are_those_that_were_packed(packed, sound):
    data = open(sound, "rb").read()
    pack = pagewarden.read(packed)
    [entry] = pack.entries
    assert pack.files == [entry.name] and entry.bytes == len(data) and len(entry.hash) == 64
    assert entry.name in pack and "other" not in pack and len(pack) == 1 and list(pack) == [entry]
    assert pack.read(entry.name) == data
    assert len(pack.root) == 64 and pack.report["command"] in ("pack", "check")
    assert repr(pack) == f"<pagewarden.Pack {packed}: 1 files, {len(data):,} bytes>"
    with pack.open(entry.name) as one, pack.open(entry.name) as other:
        assert other.read() == data
        one.seek(-512, io.SEEK_END)
        assert one.read() == data[-512:] and one.read() == b""
        one.seek(100)
        assert (one.read(7), one.tell()) == (data[100:107], 107)
        with pytest.raises(ValueError):
            one.seek(-1)
    with pytest.raises(ValueError):
        one.read()


def test_what_is_no_pack_or_damaged_is_an_exception_with_its_kind(packed, sound, tmp_path):
    for path, kind in ((sound, "unrecognised"), (tmp_path / "none", "not_found")):
        with pytest.raises(pagewarden.Error) as raised:
            pagewarden.read(path)
        assert (raised.value.kind, raised.value.path) == (kind, str(path))
    with pytest.raises(pagewarden.NotFoundError):
        pagewarden.read(packed).open("other")
    with pytest.raises(TypeError):
        pagewarden.read(packed, base="one")
    data = packed.read_bytes()
    cut = tmp_path / "cut.pwk"
    cut.write_bytes(data[:-1])
    with pytest.raises(pagewarden.Error) as raised:
        pagewarden.read(cut)
    assert raised.value.kind == "damaged"


def test_no_wrong_byte_is_ever_read(packed, sound, tmp_path):
    data, right = packed.read_bytes(), open(sound, "rb").read()
    path, kinds = tmp_path / "wrong.pwk", set()
    for at in range(0, len(data), max(1, len(data) // 200)):
        changed = bytearray(data)
        changed[at] ^= 1
        path.write_bytes(changed)
        try:
            pack = pagewarden.read(path)
            assert pack.read(pack.files[0]) == right
        except pagewarden.Error as error:
            kinds.add(error.kind)
    assert "damaged" in kinds


def test_a_delta_needs_its_base(packed, sound, tmp_path):
    changed = bytearray(open(sound, "rb").read())
    other = tmp_path / "more" / os.path.basename(sound)
    other.parent.mkdir()
    other.write_bytes(changed)
    delta = tmp_path / "delta.pwk"
    made = subprocess.run([program(), "pack", str(other), "-o", str(delta), "--base", str(packed)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    with pytest.raises(pagewarden.Error) as raised:
        pagewarden.read(delta)
    assert raised.value.kind == "refused"
    pack = pagewarden.read(delta, base=[packed])
    assert pack.read(pack.files[0]) == bytes(changed)
