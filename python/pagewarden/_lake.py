"""Rows of a Spark DataFrame, summed by its executors, and held against a table of a database."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from . import _pagewarden
from ._errors import Error, error_of
from ._servers import Comparison, Path, compare_options

#: What values of Spark's types are.
_KINDS = {
    "boolean": "number",
    "byte": "whole",
    "short": "whole",
    "integer": "whole",
    "long": "whole",
    "float": "number",
    "double": "number",
    "decimal": "decimal",
    "string": "text",
    "char": "text",
    "varchar": "text",
    "binary": "bytes",
    "date": "date",
    "time": "time",
    "timestamp": "moment",
    "timestamp_ntz": "moment",
    "void": "null",
}
#: Where Spark keeps that a column of text was declared as char(n).
_CHAR = "__CHAR_VARCHAR_TYPE_STRING"
#: More conditions than this cost more than they spare.
_CONDITIONS_MAX = 200
#: Tasks that join what all others have summed.
_JOINERS = 4


class Checksum(NamedTuple):
    """The rows of a DataFrame, and their sum, as ``pagewarden checksum`` prints it."""

    rows: int
    checksum: str


def _declared(df: DataFrame) -> list[tuple[str, str, str, bool]]:
    """Name, type, kind of values and whether it may be null, of each column."""

    def one(field: Any) -> tuple[str, str, str, bool]:
        kind = _KINDS.get(field.dataType.typeName(), "other")
        return field.name, field.dataType.simpleString(), kind, field.nullable

    return [one(field) for field in df.schema.fields]


def _select(df: DataFrame, places: Iterable[int]) -> DataFrame:
    """Columns by their places, whatever they are called."""
    named = df.toDF(*(f"c{place}" for place in range(len(df.columns))))
    fields = df.schema.fields

    def one(place: int) -> Any:
        column = F.col(f"c{place}")
        if (fields[place].metadata or {}).get(_CHAR, "").startswith("char("):
            # Blanks at the end of char(n) are of the type, not of the value.
            return F.rtrim(column).alias(f"c{place}")
        return column

    return named.select(*(one(place) for place in places))


def _batch(pieces: list[bytes]) -> pyarrow.RecordBatch:
    return pyarrow.RecordBatch.from_arrays([pyarrow.array(pieces, pyarrow.binary())], ["piece"])


def _sums(df: DataFrame, task: str) -> list[bytes]:
    """What executors have summed."""

    def add(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        worker = _pagewarden.Worker(task)
        for batch in batches:
            worker.add(batch)
        yield _batch([worker.sums()])

    def join(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        worker = _pagewarden.Worker(task)
        for batch in batches:
            for piece in batch.column(0):
                worker.join(piece.as_py())
        yield _batch([worker.sums()])

    places = [place for place, _ in json.loads(task)["columns"]]
    summed = _select(df, places).mapInArrow(add, "piece binary")
    # The driver gets a few sums, however many tasks there were.
    joined = summed.repartition(_JOINERS).mapInArrow(join, "piece binary")
    return [bytes(row[0]) for row in joined.collect()]


def _rows(
    df: DataFrame, task: str, spans: list[tuple[int | None, int | None]] | None
) -> list[bytes]:
    """The rows of some parts, in canonical form. ``spans`` are the ranges of the key of these parts."""

    def wanted(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        worker = _pagewarden.Worker(task)
        for batch in batches:
            if pieces := worker.wanted(batch):
                yield _batch(pieces)

    places = [place for place, _ in json.loads(task)["columns"]]
    frame = _select(df, places)
    if spans is not None and len(spans) <= _CONDITIONS_MAX:
        # Executors look at each row again: this only spares reading what is in no range.
        key = F.col(f"c{places[0]}")
        condition = F.lit(False)
        for after, upto in spans:
            above = F.lit(True) if after is None else key > F.lit(after)
            below = F.lit(True) if upto is None else key <= F.lit(upto)
            condition = condition | (above & below)
        frame = frame.where(condition)
    return [bytes(row[0]) for row in frame.mapInArrow(wanted, "piece binary").collect()]


def _span(df: DataFrame, place: int) -> tuple[int, int, int, int] | None:
    """The first and the last number of a column, the rows, and those without a number."""
    frame, name = _select(df, [place]), f"c{place}"
    found = frame.agg(F.min(name), F.max(name), F.count(F.lit(1)), F.count(name)).collect()[0]
    first, last, rows, numbers = found
    return None if first is None else (first, last, rows, rows - numbers)


def checksum(df: DataFrame) -> Checksum:
    """Sums the rows of a DataFrame on its executors.

    The result is ``(rows, checksum)``: those that ``pagewarden checksum`` (and
    :func:`pagewarden.checksum`) gives for a table with the same rows, whatever engine holds it, and in
    whatever order and however many parts they come. Columns must have the same names, without regard to
    case. ``pyarrow`` and ``pagewarden`` must be installed on the executors.

    Raises :class:`pagewarden.Error` if a column has no form in which values are compared: lists, maps,
    structures, intervals, variants. Leave it out: ``df.drop("it")``.
    """
    try:
        _, task = _pagewarden.whole_task(_declared(df))
    except (TypeError, ValueError) as error:
        raise Error(str(error), "unsupported") from None
    joined = _pagewarden.Worker(task)
    for sums in _sums(df, task):
        joined.join(sums)
    return Checksum(*joined.total())


def _said(error: Exception) -> str:
    """What an exception of Spark says, without the traces of its machines."""
    text = str(error)
    # The cause stands last, and may stand in one line with what it has caused.
    causes = [cause for cause in re.split(r"[\w.$]*(?:Error|Exception): ", text)[1:] if cause.strip()]
    cause = (causes[-1] if causes else text).strip().splitlines()
    return cause[0] if cause else type(error).__name__


class _Table:
    """What the comparison asks of a DataFrame. Its jobs are a group, which can be ended."""

    def __init__(self, df: DataFrame) -> None:
        self.df = df
        self.group = f"pagewarden-{uuid.uuid4()}"
        # None on Spark Connect, where there are no groups.
        self.context = getattr(df.sparkSession, "_sc", None)

    def run(self, work: Callable[[], Any]) -> Any:
        try:
            if self.context is not None:
                self.context.setJobGroup(self.group, "pagewarden compares", True)
            return work()
        except Exception as error:
            raise RuntimeError(_said(error)) from None

    def interrupt(self) -> None:
        if self.context is not None:
            self.context.cancelJobGroup(self.group)

    def given(self) -> dict[str, Any]:
        """It as the extension takes it."""
        return {
            "title": f"Spark {self.df.sparkSession.version}",
            "name": "dataframe",
            "columns": _declared(self.df),
            "span": lambda place: self.run(lambda: _span(self.df, place)),
            "sums": lambda task: self.run(lambda: _sums(self.df, task)),
            "rows": lambda task, spans: self.run(lambda: _rows(self.df, task, spans)),
        }


def compare(
    df: DataFrame,
    url: str,
    *,
    table: str | None = None,
    key: str | Iterable[str] = (),
    exclude_column: str | Iterable[str] = (),
    snapshot: bool = False,
    settle: float = 2.0,
    patience: float = 30.0,
    differences: int = 1000,
    show_values: bool = False,
    rate: int | None = None,
    password_file: Path | None = None,
    progress: Callable[[int], object] | None = None,
) -> Comparison:
    """Proves a DataFrame equal to a table of a database, or names the rows that differ.

    The table is the source, the DataFrame the target: a row ``only_source`` is missing in the
    DataFrame. ``url`` is that of the database, as :func:`pagewarden.compare` takes it, and so are the
    options; ``table`` names the table, unless the URL does by ``?table=``.

    The driver reads the table once, and executors sum the DataFrame meanwhile, part by part: by ranges
    of the key if that is one whole number and the table's primary key, else by a hash of the key, or of
    the row where there is none. Of parts whose sums are not alike both sides are read again, and their
    rows held against each other; those of the DataFrame come from executors in canonical form.

    Spark computes the DataFrame again for each of these steps: it should be a table at one version, or
    persisted. See :func:`checksum` for what must be installed.
    """
    options = compare_options(
        table=[] if table is None else [table],
        key=key,
        exclude_column=exclude_column,
        snapshot=snapshot,
        mode="stream",
        settle=settle,
        patience=patience,
        differences=differences,
        show_values=show_values,
        rate=rate,
        password_file=password_file,
    )
    rows = _Table(df)
    text, failed = _pagewarden.compare_elsewhere(
        url, rows.given(), options, progress, rows.interrupt
    )
    if text is None:
        raise error_of(*failed)
    return Comparison(text)
