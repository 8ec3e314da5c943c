"""Packs that are made: a database as one compressed, verified file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, overload

from . import _pagewarden
from ._check import _paths
from ._errors import NotPackedError, error_of
from ._report import Report

Path = Union[str, "os.PathLike[str]"]
_log = logging.getLogger("pagewarden")


class _Result:
    def __init__(self, text: str) -> None:
        self._text = text
        self._json: dict[str, Any] = json.loads(text)

    @property
    def verdict(self) -> str:
        """Of what was read: ``intact``, ``unprotected``, ``suspect``, ``incomplete`` or ``damaged``."""
        return self._json["verdict"]

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self._json["seconds"]

    def to_json(self) -> str:
        """The object that ``pagewarden pack --json`` prints."""
        return self._text


class Packed(_Result):
    """A pack that was made, in the words of ``pagewarden pack --json``."""

    @property
    def path(self) -> str:
        """Where it is."""
        return self._json["output"]

    @property
    def root(self) -> str:
        """The hash of all names, modes and bytes: who knows it knows the pack."""
        return self._json["packed"]["root"]

    @property
    def base(self) -> str | None:
        """The root of the pack that it builds on."""
        return self._json["packed"]["base"]

    @property
    def files(self) -> int:
        """How many files are in it."""
        return self._json["packed"]["files"]

    @property
    def bytes(self) -> int:
        """Bytes of these files."""
        return self._json["packed"]["bytes"]

    @property
    def stored_bytes(self) -> int:
        """Bytes of the pack."""
        return self._json["packed"]["stored_bytes"]

    @property
    def report(self) -> Report:
        """The report of the check that was made on the way. It is in the pack, too."""
        return Report(json.dumps(self._json["check"]))

    def __repr__(self) -> str:
        sizes = f"{self.files:,} files, {self.bytes:,} bytes in {self.stored_bytes:,}"
        return f"<pagewarden.Packed {self.path}: {self.verdict}, {sizes}>"


class Reading(_Result):
    """How fast all of a database was read, in the words of ``pagewarden pack --to null: --json``."""

    @property
    def pages(self) -> int:
        """Pages that were verified."""
        return self._json["pages"]

    @property
    def bytes(self) -> int:
        """Bytes that were read, of files without pages too."""
        return self._json["bytes"]

    @property
    def mib_per_second(self) -> float:
        """How fast."""
        return self._json["mib_per_second"]

    @property
    def cached_bytes(self) -> int | None:
        """Bytes that came out of the page cache; none where the system does not say."""
        return self._json["cached_bytes"]

    @property
    def pace(self) -> dict[str, Any]:
        """What set the pace: ``set_by`` is ``disk``, ``processor`` or another."""
        return self._json["pace"]

    def __repr__(self) -> str:
        return (
            f"<pagewarden.Reading {self.verdict}: {self.pages:,} pages, {self.bytes:,} bytes, "
            f"{self.mib_per_second:,.1f} MiB/s>"
        )


@overload
def pack(
    source: Path,
    output: Path,
    *,
    format: str | None = None,
    base: Path | None = None,
    tablespace: str | None = None,
    profile: str | None = None,
    codec: str | None = None,
    level: int | None = None,
    keep_damaged: bool = False,
    accept_unverifiable: bool = False,
    jobs: int | None = None,
    rate: int | None = None,
    endpoint: str | None = None,
    storage_option: Mapping[str, str] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Packed: ...
@overload
def pack(
    source: Path,
    *,
    to: Literal["null:"],
    format: str | None = None,
    accept_unverifiable: bool = False,
    jobs: int | None = None,
    rate: int | None = None,
    endpoint: str | None = None,
    storage_option: Mapping[str, str] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Reading: ...
def pack(
    source: Path,
    output: Path | None = None,
    *,
    to: str | None = None,
    format: str | None = None,
    base: Path | None = None,
    tablespace: str | None = None,
    profile: str | None = None,
    codec: str | None = None,
    level: int | None = None,
    keep_damaged: bool = False,
    accept_unverifiable: bool = False,
    jobs: int | None = None,
    rate: int | None = None,
    endpoint: str | None = None,
    storage_option: Mapping[str, str] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Packed | Reading:
    """Makes a pack, as ``pagewarden pack`` does: one compressed file of a database that no server uses.

    Every page is verified on the way. ``source`` is a data directory, a database file or a backup, or a
    file in object storage. ``output`` is a file that does not exist, or an object of ``s3://``, ``gs://``
    or ``az://``. It gets its name once all of it is there: whatever ends the run leaves no part of it.

        >>> import pagewarden, pathlib, sqlite3, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> with sqlite3.connect(folder / "shop.sqlite") as shop:
        ...     _ = shop.execute("create table item (name text)")
        >>> shop.close()
        >>> packed = pagewarden.pack(folder / "shop.sqlite", folder / "shop.pwk")
        >>> packed.verdict, packed.files
        ('unprotected', 1)
        >>> pagewarden.read(packed.path).files
        ['shop.sqlite']

    Options are those of the command: ``format``; ``base`` (an earlier pack: only what has changed is
    stored); ``tablespace``; ``profile`` (``oltp``, ``scan``, ``archive``); ``codec`` (``raw``, ``lz4``,
    ``zstd``) and ``level`` (1 to 22) instead of the profile's; ``keep_damaged``; ``accept_unverifiable``;
    ``jobs`` (threads); ``rate`` (bytes a second); ``endpoint`` and ``storage_option`` as of :func:`check`.

    With ``to="null:"`` instead of ``output`` all of the database, also of a live one, is read and verified,
    and nothing stored: the :class:`Reading` says how fast that was.

    ``progress`` is called about ten times a second with the number of bytes read so far; what it raises ends
    the run. Other Python threads run meanwhile, and Ctrl-C ends it.

    Raises :class:`NotPackedError`, which has the report, if the source is damaged or not all of it could be
    looked at; another :class:`Error` if it cannot be opened or the pack cannot be written.
    """
    if (output is None) == (to is None):
        raise TypeError('name an output, or to="null:"')
    if to not in (None, "null:"):
        raise ValueError('to: there is nothing else than "null:"')
    _paths(tuple(path for path in (source, output, base) if path is not None))
    if os.fspath(source) == "-":
        raise ValueError("source: name a path or an address")
    if to is not None:
        kept = {"base": base, "tablespace": tablespace, "profile": profile, "codec": codec, "level": level}
        wrong = [name for name, value in kept.items() if value is not None]
        wrong += ["keep_damaged"] if keep_damaged else []
        if wrong:
            raise TypeError(f"{', '.join(wrong)}: nothing is stored")
    options = {
        "format": format,
        "base": base,
        "tablespace": tablespace,
        "profile": profile,
        "codec": codec,
        "level": level,
        "keep_damaged": keep_damaged,
        "accept_unverifiable": accept_unverifiable,
        "jobs": jobs,
        "rate": rate,
        "endpoint": endpoint,
        "storage_option": list((storage_option or {}).items()),
    }
    _log.debug("packs %s", source)
    text, failed, left = _pagewarden.pack(source, output, options, progress)
    if left is not None:
        _log.warning("%s", left)
    if text is None:
        raise error_of(*(failed or ("io", os.fspath(source), "nothing came out")))
    if output is None:
        return Reading(text)
    packed = Packed(text)
    _log.info("%s: %s", source, packed.verdict)
    if json.loads(text)["packed"] is None:
        message = f"{os.fspath(source)}: no pack was made: the verdict is {packed.verdict}"
        raise NotPackedError(message, packed.verdict, os.fspath(source), packed.report)
    return packed
