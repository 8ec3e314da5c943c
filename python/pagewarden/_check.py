"""The functions of the module."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any, Union

from . import _pagewarden
from ._errors import IncompleteWarning, error_of
from ._report import Report

Path = Union[str, "os.PathLike[str]"]
_log = logging.getLogger("pagewarden")


def _given(
    format: str | None = None,
    wal: Path | None = None,
    keyring: Path | None = None,
    base: Iterable[Path] = (),
    stanza: str | None = None,
    set: Iterable[str] = (),
    latest: bool = False,
    no_log: bool = False,
    cipher_pass_file: Path | None = None,
    settle: float | None = None,
    no_witness: bool = False,
    structure: bool = False,
    accept_unverifiable: bool = False,
    jobs: int | None = None,
    rate: int | None = None,
    endpoint: str | None = None,
    storage_option: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Options as the extension takes them. They are those of ``pagewarden check``."""
    if isinstance(set, str) or isinstance(base, (str, os.PathLike)):
        raise TypeError("set and base are lists")
    given = {**locals(), "base": list(base), "set": list(set)}
    given["storage_option"] = list((storage_option or {}).items())
    return given


def _paths(paths: tuple[Path, ...]) -> list[Path]:
    if not paths:
        raise TypeError("name at least one path")
    for path in paths:
        # pathlib makes one slash of the two in an address.
        if isinstance(path, PurePath) and re.match(r"(s3|gs|az|https?):/[^/]", str(path)):
            raise ValueError(f"{path}: give an address as text, not as a path of pathlib")
    return list(paths)


def _run(
    paths: tuple[Path, ...],
    made: str,
    progress: Callable[[int], object] | None,
    options: dict[str, Any],
) -> _pagewarden.Checked:
    makes = {name: name == made for name in ("report", "findings", "pages")}
    _log.debug("checks %s", ", ".join(str(path) for path in paths))
    checked = _pagewarden.run(_paths(paths), _given(**options), makes, progress)
    for kind, path, message in checked.failed:
        if checked.opened == 0:
            raise error_of(kind, path, message)
        _log.warning("%s", message)
    _log.info("%s: %s", ", ".join(str(path) for path in paths), checked.verdict)
    return checked


def check(
    *paths: Path, progress: Callable[[int], object] | None = None, **options: Any
) -> Report:
    """Verifies every page of databases: data directories, database files, backups, packs.

    Options are those of ``pagewarden check``: ``format``, ``wal``, ``keyring``, ``base``, ``stanza``,
    ``set``, ``latest``, ``no_log``, ``cipher_pass_file``, ``settle`` (seconds), ``no_witness``,
    ``structure``, ``accept_unverifiable``, ``jobs`` (threads), ``rate`` (bytes a second), and for paths
    in object storage (``s3://``, ``gs://``, ``az://``, as text) ``endpoint`` and ``storage_option`` (a
    dictionary); credentials come from the clouds' variables and files.
    ``progress`` is called about ten times a second with the number of bytes read so far; what it
    raises ends the run. Other Python threads run meanwhile, and Ctrl-C ends it.

    Raises :class:`Error` if none of the paths could be opened. If some could, the others are in
    ``Report.failed``, and the verdict is ``incomplete`` or worse.
    """
    checked = _run(paths, "report", progress, options)
    return Report(checked.json or "", checked.picture or "")


class _Table:
    """A table that Arrow libraries take by ``__arrow_c_stream__``, any number of times."""

    def __init__(self, checked: _pagewarden.Checked) -> None:
        self._checked = checked

    @property
    def verdict(self) -> str:
        """The worst of all targets. Only with ``intact`` nothing is wrong and all was tested."""
        return self._checked.verdict

    def __len__(self) -> int:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<pagewarden.{type(self).__name__} {self.verdict}: {len(self):,} rows>"


class Findings(_Table):
    """What is wrong, a row for each finding. Columns: those of :class:`Finding`."""

    def __len__(self) -> int:
        return self._checked.findings_rows()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._checked.findings_stream()


class Pages(_Table):
    """Pages by what they count as, a row for each run of pages that count as the same.

    Columns: ``path`` (of the target), ``file``, ``first_page`` (null where it has no number),
    ``pages`` (how many), ``offset`` and ``bytes`` (in the file), ``standing`` (``ok``, ``empty``,
    ``unprotected``, ``unverifiable``, ``undecided``, ``suspect``, ``damaged``; or ``unread``, which
    is in no count).
    """

    def __len__(self) -> int:
        return self._checked.pages_rows()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._checked.pages_stream()


def _told(checked: _pagewarden.Checked) -> None:
    if checked.verdict == "incomplete" or checked.failed:
        text = "not everything could be looked at; pagewarden.check says what"
        warnings.warn(text, IncompleteWarning, stacklevel=3)


def findings(
    *paths: Path, progress: Callable[[int], object] | None = None, **options: Any
) -> Findings:
    """Checks as :func:`check` does, and gives what is wrong as an Arrow table.

    Warns with :class:`IncompleteWarning` if not everything could be looked at: no row then does not
    mean that nothing is wrong.
    """
    checked = _run(paths, "findings", progress, options)
    _told(checked)
    return Findings(checked)


def pages(
    *paths: Path, progress: Callable[[int], object] | None = None, **options: Any
) -> Pages:
    """Checks as :func:`check` does, and gives what pages count as, as an Arrow table."""
    checked = _run(paths, "pages", progress, options)
    _told(checked)
    return Pages(checked)
