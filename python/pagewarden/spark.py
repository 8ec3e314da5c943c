"""Databases checked by an Apache Spark cluster (PySpark 3.5 and 4): one row a unit and one a finding.
DataFrames summed, and compared with tables of databases.

    >>> import pagewarden.spark
    >>> rows = pagewarden.spark.check(spark, "/backups")  # doctest: +SKIP
    >>> pagewarden.spark.summary(rows)  # doctest: +SKIP
    'intact'

The driver lists what is below the paths and cuts it into units, each one or more whole databases;
executors check them. Paths must be readable on the driver and on every executor, under the same names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
except ImportError:
    # PySpark 3.5 has no data sources in Python.
    DataSource = DataSourceReader = InputPartition = object

from . import _check, _pagewarden
from ._check import _given
from ._errors import Error
from ._lake import Checksum, checksum, compare

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Checksum", "UNIT_BYTES", "check", "checksum", "compare", "register", "summary"]

#: Databases that follow one another are one unit up to this size.
UNIT_BYTES = 128 << 20

_SCHEMA = """
    plan string, unit bigint, units bigint, row string, path string, verdict string,
    pages_total bigint, pages_ok bigint, pages_empty bigint, pages_unprotected bigint,
    pages_unverifiable bigint, pages_undecided bigint, pages_suspect bigint, pages_damaged bigint,
    bytes bigint, seconds double, unread bigint, failed bigint, error string,
    file string, page bigint, offset bigint, severity string, kind string,
    database string, object string, stored string, computed string, detail string, hint string
"""
_COLUMNS = [column.split()[0] for column in _SCHEMA.split(",")]
_BOOLEANS = ("latest", "no_log", "no_witness", "structure", "accept_unverifiable")
_TEXTS = ("format", "wal", "keyring", "stanza", "cipher_pass_file", "endpoint")
_NUMBERS = {"settle": float, "jobs": int, "rate": int}
_LISTS = ("base", "set")


@dataclass
class _Unit(InputPartition):
    """Subjects, each a list of paths, that one task checks."""

    plan: str
    number: int
    of: int
    subjects: list[list[str]]


def _options(options: Any) -> dict[str, Any]:
    """Options of ``pagewarden check`` from those of Spark, which are text."""
    given: dict[str, Any] = {}
    for name, text in options.items():
        name = name.lower()
        if name in _BOOLEANS:
            if text.lower() not in ("true", "false"):
                raise ValueError(f"{name}: true or false, not {text!r}")
            given[name] = text.lower() == "true"
        elif name in _TEXTS:
            given[name] = text
        elif name in _NUMBERS:
            given[name] = _NUMBERS[name](text)
        elif name in _LISTS:
            given[name] = _list(text)
        elif name == "storage_option":
            given[name] = {str(key): str(value) for key, value in json.loads(text).items()}
        elif name not in ("path", "paths", "unit"):
            raise ValueError(f"there is no option {name}")
    # One core is one task; more threads would take those of other tasks.
    given.setdefault("jobs", 1)
    return given


def _list(text: str) -> list[str]:
    """A JSON list, or one name."""
    return [str(one) for one in json.loads(text)] if text.startswith("[") else [text]


def _plan(paths: list[str], options: dict[str, Any], unit_bytes: int) -> list[_Unit]:
    """What is below the paths, in units."""
    units = _pagewarden.plan_units(paths, _given(**options), unit_bytes)
    units = [[[str(path) for path in subject] for subject in unit] for unit in units]
    # Spark may ask for the partitions more than once; the same units have the same name.
    plan = hashlib.sha256(json.dumps([units, options]).encode()).hexdigest()[:32]
    return [_Unit(plan, number, len(units), unit) for number, unit in enumerate(units)]


def _rows(unit: _Unit, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Checks a unit: its findings, and at the end its own row."""
    common = {"plan": unit.plan, "unit": unit.number, "units": unit.of}
    total: dict[str, Any] = dict.fromkeys(_COLUMNS[6:14], 0)
    total.update(bytes=0, seconds=0.0, unread=0, failed=0)
    verdicts, errors = [], []
    for subject in unit.subjects:
        try:
            report = _check.check(*subject, **options)
        except Error as error:
            verdicts.append("incomplete")
            errors.append(str(error))
            total["failed"] += 1
            continue
        verdicts.append(report.verdict)
        for name, count in report.pages.items():
            total[f"pages_{name}"] += count
        total["bytes"] += report.bytes
        total["seconds"] += report.seconds
        total["unread"] += len(report.unread)
        total["failed"] += len(report.failed)
        errors += [one["error"] for one in report.failed]
        for finding in report.findings:
            yield {**common, "row": "finding", **finding.to_dict()}
    path = unit.subjects[0][0]
    error = "; ".join(errors) or None
    yield {**common, **total, "row": "unit", "path": path, "verdict": _worst(verdicts), "error": error}


#: Rows in a batch: a finding takes about half a kilobyte.
_BATCH_ROWS = 4096


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[pyarrow.RecordBatch]:
    """The rows as Spark takes them from Arrow."""
    import pyarrow

    types = {"string": pyarrow.string(), "bigint": pyarrow.int64(), "double": pyarrow.float64()}
    columns = (column.split() for column in _SCHEMA.split(","))
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns])
    held: list[dict[str, Any]] = []
    for row in rows:
        held.append(row)
        if len(held) == _BATCH_ROWS:
            yield pyarrow.RecordBatch.from_pylist(held, schema)
            held = []
    if held:
        yield pyarrow.RecordBatch.from_pylist(held, schema)


def check(
    spark: SparkSession, *paths: str | PathLike[str], unit: int = UNIT_BYTES, **options: Any
) -> DataFrame:
    """Checks what lies below the paths: a DataFrame with one row a unit and one a finding.

    It is what the data source gives (see :func:`register`), on PySpark 3.5 too. The options are
    those of :func:`pagewarden.check`; each task takes one thread (``jobs``). Databases that follow
    one another are one unit up to ``unit`` bytes. What is there is listed at once; it is checked when
    Spark needs the rows, each time that it needs them.
    """
    if not paths:
        raise ValueError("name what is to be checked")
    # One core is one task; more threads would take those of other tasks.
    options.setdefault("jobs", 1)
    units = _plan([fspath(path) for path in paths], options, unit)

    def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _batches(_rows(units[number], options))

    # A task for each, as a unit takes seconds.
    numbers = spark.range(0, len(units), 1, max(1, len(units)))
    return numbers.mapInArrow(run, _SCHEMA)


class _Reader(DataSourceReader):
    # Without `pushFilters`: PySpark 4.3 hands the reader with the filters of one query to the next one of the
    # same DataFrame, which then lacks units.
    def __init__(self, options: Any) -> None:
        options = {name.lower(): text for name, text in dict(options).items()}
        self.options = _options(options)
        text = options.get("paths") or options.get("path")
        if not text:
            raise ValueError('name what is to be checked: .option("paths", "/backups")')
        self.paths = _list(text)
        self.unit_bytes = int(options.get("unit", UNIT_BYTES))

    def partitions(self) -> list[_Unit]:
        return _plan(self.paths, self.options, self.unit_bytes)

    def read(self, partition: _Unit) -> Iterator[pyarrow.RecordBatch]:
        yield from _batches(_rows(partition, self.options))


class _Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "pagewarden"

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: Any) -> _Reader:
        return _Reader(self.options)


def register(spark: SparkSession) -> None:
    """Makes ``spark.read.format("pagewarden")`` known to a session."""
    if DataSource is object:
        raise NotImplementedError(
            "PySpark 4 is needed for data sources in Python; pagewarden.spark.check does without"
        )
    spark.dataSource.register(_Source)


_ORDER = ("damaged", "incomplete", "suspect", "unprotected", "intact")


def _worst(verdicts: list[str]) -> str:
    return min(verdicts, key=_ORDER.index, default="incomplete")


def summary(rows: DataFrame) -> str:
    """The verdict on all rows of one plan, read back from where they were written or checked now.

    Each unit must have exactly one row of its own, and as many pages as its counts add up to; else
    it is ``incomplete``, or ``damaged`` where any row shows damage.
    """
    units = rows.where("row = 'unit'").select("plan", "unit", "units", *_COLUMNS[5:14]).collect()
    damage = rows.where("row = 'finding' and severity = 'damage'").limit(1).count()
    verdicts = [unit["verdict"] for unit in units]
    if damage:
        verdicts.append("damaged")
    numbers = sorted(unit["unit"] for unit in units)
    plans = {(unit["plan"], unit["units"]) for unit in units}
    is_whole = len(plans) == 1 and numbers == list(range(next(iter(plans))[1]))
    counts = _COLUMNS[7:14]
    adds_up = all(unit["pages_total"] == sum(unit[name] for name in counts) for unit in units)
    if not (is_whole and adds_up):
        verdicts.append("incomplete")
    return _worst(verdicts)
