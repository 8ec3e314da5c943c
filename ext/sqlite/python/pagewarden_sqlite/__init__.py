"""SQLite databases whose every page is verified when it is read.

>>> import pagewarden_sqlite
>>> db = pagewarden_sqlite.connect("app.db")
>>> db.execute("PRAGMA page_verify").fetchone()
('CHECKSUM',)

What the pragmas do, and how such databases live beside other programs, is in the book of Pagewarden:
``docs/sqlite-vfs.md``.
"""

from __future__ import annotations

import ctypes
import sqlite3
from pathlib import Path
from typing import Any

__all__ = ["connect", "extension", "load"]

#: Where the extension lies, for programs that load it themselves: without ``.so``, as SQLite takes it.
extension = str(Path(__file__).with_name("libpagewarden_sqlite"))

_ENTRY = "sqlite3_pagewarden_default_init"
_is_loaded = False


def load(connection: sqlite3.Connection | None = None) -> None:
    """Makes the VFS the default of this process, once; later calls do nothing.

    Databases that are opened from then on are verified, and new ones are protected. Connections that
    are open keep the VFS that they have, also ``connection``, which is only a way in: without one, a
    connection to a database in memory is made for it.

    Raises ``RuntimeError`` if this Python's SQLite lets no extension in.
    """
    global _is_loaded
    if _is_loaded:
        return
    through = connection or sqlite3.connect(":memory:")
    try:
        if hasattr(through, "enable_load_extension"):
            _load_as_extension(through)
        else:
            _load_without_extensions()
    finally:
        if connection is None:
            through.close()
    _is_loaded = True


def connect(database: Any, *arguments: Any, **named: Any) -> sqlite3.Connection:
    """As ``sqlite3.connect``, with every page verified; a pack is opened by its path, read-only."""
    load()
    return sqlite3.connect(database, *arguments, **named)


def _load_as_extension(connection: sqlite3.Connection) -> None:
    connection.enable_load_extension(True)
    try:
        # `Connection.load_extension` takes no name of an entry before Python 3.12.
        connection.execute("SELECT load_extension(?, ?)", (extension, _ENTRY)).close()
    finally:
        connection.enable_load_extension(False)


def _load_without_extensions() -> None:
    """Python's ``sqlite3`` cannot load extensions, but the SQLite below it runs one at the start of
    a connection if it is asked by its own function, in this process."""
    entry = getattr(ctypes.CDLL(extension + ".so"), _ENTRY)
    for name in _libraries():
        try:
            library = ctypes.CDLL(name)
            start, end = library.sqlite3_auto_extension, library.sqlite3_cancel_auto_extension
        except (OSError, AttributeError):
            continue
        if start(entry) == 0:
            try:
                sqlite3.connect(":memory:").close()
            finally:
                end(entry)
            if _has_vfs(library):
                return
    raise RuntimeError(
        "this Python's SQLite lets no extension in: use a Python whose sqlite3 module has "
        "enable_load_extension, or apsw"
    )


def _libraries() -> list[str]:
    """The libraries that may hold the SQLite of the module ``sqlite3``: those that it has loaded."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if line.count(" /")}
    return sorted(path for path in paths if "sqlite3" in Path(path).name)


def _has_vfs(library: ctypes.CDLL) -> bool:
    library.sqlite3_vfs_find.restype = ctypes.c_void_p
    return bool(library.sqlite3_vfs_find(b"pagewarden"))
