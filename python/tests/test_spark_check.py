"""Checks on a real Spark of two cores, without a data source: PySpark 3.5 has none."""

import shutil

import pytest

import pagewarden

pytest.importorskip("pyspark")
import pagewarden.spark  # noqa: E402


def test_rows_are_what_a_check_says(spark, tmp_path, damaged, sound):
    for name in ("a", "b", "c"):
        shutil.copy(sound, tmp_path / f"{name}.sqlite")
    report = pagewarden.check(tmp_path)
    rows = pagewarden.spark.check(spark, tmp_path, unit=1).cache()
    units = [row.asDict() for row in rows.where("row = 'unit'").collect()]
    assert sorted(row["path"] for row in units) == sorted(target["path"] for target in report.targets)
    for name, count in report.pages.items():
        assert sum(row[f"pages_{name}"] for row in units) == count
    found = [row.asDict() for row in rows.where("row = 'finding'").orderBy("page").collect()]
    assert [(row["file"], row["page"], row["kind"], row["computed"]) for row in found] == [
        (one.file, one.page, one.kind, one.computed) for one in report.findings
    ]
    assert pagewarden.spark.summary(rows) == report.verdict == "damaged"
    assert pagewarden.spark.summary(rows.where("unit > 0")) in ("incomplete", "damaged")
    # One unit of all.
    assert pagewarden.spark.check(spark, str(tmp_path)).where("row = 'unit'").count() == 1


def test_what_cannot_be_opened_is_a_row(spark, tmp_path, sound):
    shutil.copy(sound, tmp_path / "a.sqlite")
    (tmp_path / "strange.sqlite").write_bytes(b"none")
    rows = pagewarden.spark.check(spark, tmp_path, unit=1)
    assert pagewarden.spark.summary(rows) == "incomplete"
    with pytest.raises(TypeError, match="nonsense"):
        pagewarden.spark.check(spark, tmp_path, nonsense=1)
    with pytest.raises(ValueError, match="name what"):
        pagewarden.spark.check(spark)


def test_more_findings_than_a_batch_has(spark, tmp_path, sound):
    data = bytearray(open(sound, "rb").read())
    pages = len(data) // 512
    for page in range(1, pages):
        data[page * 512 + 300] ^= 1
    for number in range(4500 // pages + 1):
        (tmp_path / f"{number}.sqlite").write_bytes(data)
    expected = len(pagewarden.check(tmp_path).findings)
    assert expected > 4096
    rows = pagewarden.spark.check(spark, tmp_path).cache()
    assert rows.where("row = 'finding'").count() == expected
    assert rows.where("row = 'unit'").count() == 1
