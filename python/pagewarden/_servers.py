"""Tables of live databases: compared with each other, and summed."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Union

from . import _pagewarden
from ._errors import error_of

Path = Union[str, "os.PathLike[str]"]
_log = logging.getLogger("pagewarden")
#: Rows that a repr shows.
_SHOWN = 5


def without_password(url: str) -> str:
    """A URL as messages show it."""
    url = re.sub(r"(?i)(password=)[^&]*", r"\1***", url)
    begin, mark, rest = url.partition("://")
    user, at, host = rest.rpartition("@")
    if not at:
        return url if "@" not in begin else begin.partition(":")[0]
    return f"{begin}://{user.partition(':')[0]}@{host}"


@dataclass(frozen=True)
class Difference:
    """A row that differs. The names are those of ``compare --json``."""

    #: The table's name in the source.
    table: str
    #: The columns that identify the row, with their values; all of it where there is no key.
    key: dict[str, Any]
    #: ``only_source``, ``only_target`` or ``changed``.
    kind: Literal["only_source", "only_target", "changed"]
    #: The columns that differ, if both sides have the row.
    columns: list[str] = field(default_factory=list)
    #: The values of the source, with ``show_values``: of the columns that differ, or of all.
    source: dict[str, Any] | None = None
    #: The values of the target, with ``show_values``.
    target: dict[str, Any] | None = None

    @property
    def side(self) -> str:
        """Which side has the row: ``source``, ``target`` or ``both``."""
        return {"only_source": "source", "only_target": "target"}.get(self.kind, "both")


class TableComparison:
    """What came of one table: the fields of ``compare --json`` as attributes."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    @property
    def table(self) -> str:
        """Its name in the source."""
        return self._fields["table"]

    @property
    def verdict(self) -> str:
        """``equal``, ``different`` or ``incomplete``."""
        return self._fields["verdict"]

    @property
    def equal(self) -> bool:
        """All of it was compared, and every row is on both sides with the same values."""
        return self.verdict == "equal"

    @property
    def rows_source(self) -> int:
        """The source's rows."""
        return self._fields["rows_source"]

    @property
    def rows_target(self) -> int:
        """The target's rows."""
        return self._fields["rows_target"]

    @property
    def only_source(self) -> int:
        """Rows that the target lacks."""
        return self._fields["only_source"]

    @property
    def only_target(self) -> int:
        """Rows that the source lacks."""
        return self._fields["only_target"]

    @property
    def changed(self) -> int:
        """Rows of both sides whose values differ."""
        return self._fields["changed"]

    @property
    def unresolved(self) -> int:
        """Rows that kept changing to the end."""
        return self._fields["unresolved"]

    @property
    def counts_at_least(self) -> bool:
        """There are more differences than were counted."""
        return self._fields["counts_at_least"]

    @property
    def not_compared(self) -> dict[str, str]:
        """Columns that were not compared, and why."""
        return self._fields["not_compared_because"]

    @property
    def error(self) -> str | None:
        """Why the table, or the rest of it, could not be compared."""
        return self._fields.get("error")

    @property
    def notes(self) -> list[str]:
        """What else there is to say."""
        return self._fields["notes"]

    @property
    def sql(self) -> list[str]:
        """Statements that would make the target equal, with ``sql=True``."""
        return self._fields.get("sql", [])

    @property
    def differences(self) -> list[Difference]:
        """Rows that differ, as many as were asked for."""
        return [Difference(table=self.table, **one) for one in self._fields["differences"]]

    def to_dict(self) -> dict[str, Any]:
        """The table's object of the JSON."""
        return self._fields

    def __repr__(self) -> str:
        return f"<pagewarden.TableComparison {self._line()}>"

    def _line(self) -> str:
        least = "at least " if self.counts_at_least else ""
        parts = [f"{self.rows_source:,} and {self.rows_target:,} rows"]
        for count, word in (
            (self.changed, "changed"),
            (self.only_source, "only in the source"),
            (self.only_target, "only in the target"),
            (self.unresolved, "unresolved"),
        ):
            if count:
                parts.append(f"{least}{count:,} {word}")
        if self.not_compared:
            parts.append(f"not compared: {', '.join(self.not_compared)}")
        if self.error:
            parts.append(self.error.splitlines()[0])
        return f"{self.table} {self.verdict}: {', '.join(parts)}"


class Comparison:
    """What a comparison found, in the words of ``pagewarden compare --json``."""

    def __init__(self, text: str) -> None:
        self._text = text.rstrip("\n")
        self._json: dict[str, Any] = json.loads(text)
        self._tables = [TableComparison(one) for one in self._json["tables"]]

    @property
    def verdict(self) -> str:
        """``equal``, ``different`` or ``incomplete``: the worst of all tables."""
        return self._json["verdict"]

    @property
    def equal(self) -> bool:
        """All was compared, and every row is on both sides with the same values."""
        return self.verdict == "equal"

    @property
    def tables(self) -> list[TableComparison]:
        """Each table, in the order in which they were compared."""
        return self._tables

    @property
    def differences(self) -> list[Difference]:
        """Rows that differ, of all tables, as many of each as were asked for."""
        return [one for table in self._tables for one in table.differences]

    @property
    def rows(self) -> int:
        """The source's rows."""
        return sum(table.rows_source for table in self._tables)

    @property
    def source(self) -> dict[str, str] | None:
        """The source's ``url``, without a password, and its ``server``."""
        return self._json["source"]

    @property
    def target(self) -> dict[str, str] | None:
        """The target's ``url``, without a password, and its ``server``."""
        return next(iter(self._json["targets"]), None)

    @property
    def not_compared(self) -> list[dict[str, Any]]:
        """What else the databases hold, of which nothing is compared: sequences and the like."""
        return self._json["not_compared"]

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self._json["seconds"]

    def to_json(self) -> str:
        """The object that ``pagewarden compare --json`` prints."""
        return self._text

    def __bool__(self) -> bool:
        raise TypeError("ask for .equal or .verdict: a comparison is neither true nor false")

    def __repr__(self) -> str:
        lines = [table._line() for table in self._tables]
        if len(lines) == 1:
            text = lines[0]
        else:
            count = sum(table.equal for table in self._tables)
            bad = [line for table, line in zip(self._tables, lines) if not table.equal]
            text = f"{self.verdict}: {count:,} of {len(lines):,} tables equal"
            text = "; ".join([text, *bad[:_SHOWN]])
        shown = [f"{one.kind} {_key(one.key)}" for one in self.differences[:_SHOWN]]
        more = len(self.differences) - len(shown)
        shown += [f"and {more:,} more"] if more > 0 else []
        return f"<pagewarden.Comparison {'; '.join([text, *shown])}>"


def _key(key: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in key.items())


@dataclass(frozen=True)
class TableChecksum:
    """The checksum of one table. The names are those of ``checksum --json``."""

    #: The database, without a password.
    url: str
    #: What the server calls itself.
    server: str
    table: str
    #: ``multiset`` is equal across engines if the rows are.
    strategy: str
    #: What ``accum`` and ``bitxor`` hash with.
    function: str | None = None
    #: How many rows there are; none if it failed.
    rows: int | None = None
    #: The sum; none of ``count``, or if it failed.
    checksum: str | None = None
    #: The table's size as the server has it, else that of the rows that were read.
    bytes: int | None = None
    #: The bytes of the rows that were read; none where the server summed them.
    bytes_read: int | None = None
    #: How long it took.
    seconds: float | None = None
    #: ``server`` or ``client``.
    computed_by: str | None = None
    #: What the sum does not see.
    warning: str | None = None
    #: Why there is none.
    error: str | None = None


class TableChecksums:
    """Checksums of tables, in the words of ``pagewarden checksum --json``."""

    def __init__(self, text: str) -> None:
        self._text = text.rstrip("\n")
        self._json: dict[str, Any] = json.loads(text)
        self._tables = [TableChecksum(**one) for one in self._json["tables"]]

    @property
    def verdict(self) -> str:
        """``complete`` or ``incomplete``."""
        return self._json["verdict"]

    @property
    def tables(self) -> list[TableChecksum]:
        """One for each table and strategy."""
        return self._tables

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self._json["seconds"]

    def __iter__(self) -> Iterator[TableChecksum]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __getitem__(self, table: str) -> TableChecksum:
        """The first checksum of a table of that name."""
        for one in self._tables:
            if one.table == table:
                return one
        raise KeyError(table)

    def to_json(self) -> str:
        """The object that ``pagewarden checksum --json`` prints."""
        return self._text

    def __repr__(self) -> str:
        sums = [
            f"{one.table} {one.rows:,} rows {one.checksum or ''}".rstrip()
            if one.rows is not None
            else f"{one.table} failed"
            for one in self._tables[:_SHOWN]
        ]
        more = len(self._tables) - len(sums)
        sums += [f"and {more:,} more"] if more > 0 else []
        return f"<pagewarden.TableChecksums {self.verdict}: {'; '.join(sums)}>"


def _names(names: str | Iterable[str], option: str) -> list[str]:
    """A list of names; one alone may stand for itself."""
    if isinstance(names, str):
        return [names]
    names = list(names)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"{option}: a name or a list of names")
    return names


def compare_options(
    table: str | Iterable[str] = (),
    exclude_table: str | Iterable[str] = (),
    exclude_column: str | Iterable[str] = (),
    key: str | Iterable[str] = (),
    snapshot: bool = False,
    mode: str = "auto",
    settle: float = 2.0,
    patience: float = 30.0,
    differences: int = 1000,
    show_values: bool = False,
    sql: bool = False,
    chunk_rows: int | None = None,
    state: Path | None = None,
    max_load: int | None = None,
    max_lag: float | None = None,
    sample: float | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    rate: int | None = None,
    password_file: Path | None = None,
    target_password_file: Path | None = None,
    endpoint: str | None = None,
    storage_option: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Options of a comparison as the extension takes them."""
    given = dict(locals())
    for name in ("table", "exclude_table", "exclude_column", "key"):
        given[name] = _names(given[name], name)
    given["storage_option"] = list((storage_option or {}).items())
    given["key"] = [one for name in given["key"] for one in name.split(",")]
    if seed is not None and sample is None:
        raise ValueError("seed: only with sample")
    if state is not None and (snapshot or sample is not None):
        raise ValueError("state: neither with snapshot nor with sample")
    if max_lag is not None and snapshot:
        raise ValueError("max_lag: not with snapshot")
    return given


def compare(
    source: str,
    target: str,
    *,
    progress: Callable[[int], object] | None = None,
    **options: Any,
) -> Comparison:
    """Proves the tables of two databases equal, or names the rows that differ. Reads only.

    ``source`` is the reference, and ``target`` what is compared with it: URLs as ``pagewarden compare``
    takes them: ``postgres://user@host/database``, ``mysql://...`` (MariaDB too), ``sqlite:PATH``,
    ``parquet:PATH`` (``parquet:s3://...`` too). Passwords come from the same places as there.

    Options are those of the program: ``table``, ``exclude_table``, ``exclude_column`` and ``key`` (a name
    or a list of them), ``snapshot``, ``mode``, ``settle``, ``patience`` and ``max_lag`` (seconds),
    ``differences`` (rows listed of a table), ``show_values``, ``sql``, ``chunk_rows``, ``state``,
    ``max_load``, ``sample`` (percent), ``seed``, ``jobs``, ``rate`` (bytes a second),
    ``password_file`` and ``target_password_file``; ``endpoint`` and ``storage_option`` as of :func:`check`.

    ``progress`` is called about ten times a second with the number of rows read so far; what it raises
    ends the run. Other Python threads run meanwhile, and Ctrl-C ends it.

    A difference is a result and no exception. Raises :class:`Error` if a database cannot be reached or
    there is no table to compare. What goes wrong with one table is in its ``error``, and the verdict is
    ``incomplete``.
    """
    shown = f"{without_password(source)} with {without_password(target)}"
    _log.debug("compares %s", shown)
    given = compare_options(**options)
    text, failed = _pagewarden.compare(source, target, given, progress)
    if text is None:
        raise error_of(*failed)
    found = Comparison(text)
    _log.info("%s: %s", shown, found.verdict)
    return found


def checksum(
    url: str,
    *tables: str,
    table: str | Iterable[str] = (),
    strategy: str | Iterable[str] = "multiset",
    function: str = "md5",
    snapshot: bool = False,
    jobs: int = 1,
    rate: int | None = None,
    password_file: Path | None = None,
    endpoint: str | None = None,
    storage_option: Mapping[str, str] | None = None,
    progress: Callable[[int], object] | None = None,
) -> TableChecksums:
    """Sums the rows of a database's tables; of all where none is named.

    The sums of the strategy ``multiset`` are equal if the rows are, whatever engine holds them and in
    whatever order. Options are those of ``pagewarden checksum`` (see :func:`compare` for ``progress``);
    the strategy ``replicate`` is left to the program, because it writes.

    Raises :class:`Error` if the database cannot be reached. A table that could not be summed has an
    ``error``, and the verdict is ``incomplete``.
    """
    given = {
        "table": [*tables, *_names(table, "table")],
        "strategy": _names(strategy, "strategy"),
        "function": function,
        "snapshot": snapshot,
        "jobs": jobs,
        "rate": rate,
        "password_file": password_file,
        "endpoint": endpoint,
        "storage_option": list((storage_option or {}).items()),
    }
    text, failed = _pagewarden.checksums(url, given, progress)
    if text is None:
        raise error_of(*failed)
    found = TableChecksums(text)
    _log.info("%s: %s", without_password(url), found.verdict)
    return found


__all__ = [
    "Comparison",
    "Difference",
    "TableChecksum",
    "TableChecksums",
    "TableComparison",
    "checksum",
    "compare",
]
