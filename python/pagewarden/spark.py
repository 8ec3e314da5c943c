"""Databases checked by an Apache Spark cluster (PySpark 4): one row a unit and one a finding.
DataFrames summed, and compared with tables of databases (PySpark 3.5 and 4).

    >>> import pagewarden.spark
    >>> pagewarden.spark.register(spark)  # doctest: +SKIP
    >>> rows = spark.read.format("pagewarden").option("paths", "/backups").load()  # doctest: +SKIP
    >>> pagewarden.spark.summary(rows)  # doctest: +SKIP
    'intact'

The driver lists what is below the paths and cuts it into units, each one or more whole databases;
executors check them. Paths must be readable on the driver and on every executor, under the same names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
except ImportError:
    # PySpark 3.5 has no data sources in Python.
    DataSource = DataSourceReader = InputPartition = object

from . import _pagewarden
from ._check import _given, check
from ._errors import Error
from ._lake import Checksum, checksum, compare

__all__ = ["Checksum", "UNIT_BYTES", "checksum", "compare", "register", "summary"]

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


class _Unit(InputPartition):
    """Subjects, each a list of paths, that one task checks."""

    def __init__(self, plan: str, number: int, of: int, subjects: list[list[str]]) -> None:
        super().__init__(number)
        self.plan = plan
        self.number = number
        self.of = of
        self.subjects = subjects


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


class _Reader(DataSourceReader):
    def __init__(self, options: Any) -> None:
        options = {name.lower(): text for name, text in dict(options).items()}
        self.options = _options(options)
        text = options.get("paths") or options.get("path")
        if not text:
            raise ValueError('name what is to be checked: .option("paths", "/backups")')
        self.paths = _list(text)
        self.unit_bytes = int(options.get("unit", UNIT_BYTES))

    def partitions(self) -> list[_Unit]:
        units = _pagewarden.plan_units(self.paths, _given(**self.options), self.unit_bytes)
        units = [[[str(path) for path in subject] for subject in unit] for unit in units]
        # Spark may ask for the partitions more than once; the same units have the same name.
        plan = hashlib.sha256(json.dumps([units, self.options]).encode()).hexdigest()[:32]
        return [_Unit(plan, number, len(units), unit) for number, unit in enumerate(units)]

    def read(self, partition: _Unit) -> Iterator[tuple]:
        common = {"plan": partition.plan, "unit": partition.number, "units": partition.of}
        total: dict[str, Any] = dict.fromkeys(_COLUMNS[6:14], 0)
        total.update(bytes=0, seconds=0.0, unread=0, failed=0)
        verdicts, errors = [], []
        for subject in partition.subjects:
            try:
                report = check(*subject, **self.options)
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
                yield _row({**common, "row": "finding", **finding.to_dict()})
        path = partition.subjects[0][0]
        error = "; ".join(errors) or None
        verdict = _worst(verdicts)
        yield _row({**common, **total, "row": "unit", "path": path, "verdict": verdict, "error": error})


def _row(values: dict[str, Any]) -> tuple:
    return tuple(values.get(name) for name in _COLUMNS)


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
        raise NotImplementedError("PySpark 4 is needed for data sources in Python")
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
