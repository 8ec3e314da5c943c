"""Packs that are read: their files as files of Python."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Union

from . import _pagewarden
from ._errors import error_of

Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class PackEntry:
    """A file or a folder of a pack."""

    #: Relative to what was packed.
    name: str
    #: Bytes in it; none of a folder.
    bytes: int | None
    #: The BLAKE3 hash of them, as ``b3sum`` prints it.
    hash: str | None
    #: The lowest twelve bits of ``st_mode``.
    mode: int

    @property
    def is_folder(self) -> bool:
        """It is a folder."""
        return self.bytes is None


class _File(io.RawIOBase):
    """A file of a pack. Every block is tested by its CRC when it is read."""

    def __init__(self, packed: _pagewarden.Packed, place: int, entry: PackEntry) -> None:
        self._packed = packed
        self._place = place
        self._length = entry.bytes or 0
        self._at = 0
        self.name = entry.name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        if base + offset < 0:
            raise ValueError("before the begin of the file")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self.closed:
            raise ValueError("the file is closed")
        view = memoryview(buffer).cast("B")
        data = _said(self._packed.read_at, self._place, self._at, len(view))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def _said(call: Any, *arguments: Any) -> Any:
    """Calls the extension; what it raises is raised with its kind."""
    try:
        return call(*arguments)
    except RuntimeError as error:
        if len(error.args) != 3:
            raise
        raise error_of(*error.args) from None


class Pack:
    """An opened pack: ``pagewarden.read``."""

    def __init__(self, path: Path, base: Iterable[Path] = ()) -> None:
        self._path = os.fspath(path)
        self._packed = _said(_pagewarden.open_pack, path, list(base))
        self._entries = [
            PackEntry(os.fspath(name), *rest) for name, *rest in self._packed.entries()
        ]
        self._places = {entry.name: place for place, entry in enumerate(self._entries)}

    @property
    def root(self) -> str:
        """The hash of all names, modes and bytes: who knows it knows the pack."""
        return self._packed.root()

    @property
    def entries(self) -> list[PackEntry]:
        """Folders and files, folders before what is in them."""
        return self._entries

    @property
    def files(self) -> list[str]:
        """The names of the files."""
        return [entry.name for entry in self._entries if not entry.is_folder]

    @property
    def report(self) -> dict[str, Any]:
        """The report of the check that was made while packing, as of ``pagewarden check --json``."""
        return json.loads(_said(self._packed.report))

    def open(self, name: str) -> io.BufferedReader:
        """A file of the pack as a binary file with ``seek``; any number may be open at a time."""
        return io.BufferedReader(self._raw(name))

    def read(self, name: str) -> bytes:
        """All bytes of a file."""
        return self._raw(name).readall()

    def _raw(self, name: str) -> _File:
        place = self._places.get(os.fspath(name))
        if place is None or self._entries[place].is_folder:
            raise error_of("not_found", self._path, f"{self._path}: there is no file {name} in it")
        return _File(self._packed, place, self._entries[place])

    def __iter__(self) -> Iterator[PackEntry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __repr__(self) -> str:
        total = sum(entry.bytes or 0 for entry in self._entries)
        return f"<pagewarden.Pack {self._path}: {len(self.files):,} files, {total:,} bytes>"


def read(path: Path, *, base: Iterable[Path] = ()) -> Pack:
    """Opens a pack that ``pagewarden pack`` wrote, to read its files without unpacking them.

    ``base`` are the packs that a delta builds on, each on the next. Every block is tested when it is read: a damaged one
    is a :class:`pagewarden.Error` of the kind ``damaged``, and so is a pack that was cut.
    """
    if isinstance(base, (str, os.PathLike)):
        raise TypeError("base is a list")
    return Pack(path, base)
