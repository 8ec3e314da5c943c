"""The data source on a real Spark of two cores."""

import json
import shutil

import pytest

import pagewarden

pytest.importorskip("pyspark.sql.datasource")
import pagewarden.spark  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def registered(spark):
    pagewarden.spark.register(spark)


def read(spark, path, **options):
    reader = spark.read.format("pagewarden").option("paths", str(path)).options(**options)
    return reader.load()


def test_units_and_findings_are_what_a_check_says(spark, tmp_path, damaged, sound):
    for name in ("a", "b", "c"):
        shutil.copy(sound, tmp_path / f"{name}.sqlite")
    report = pagewarden.check(tmp_path)
    rows = [row.asDict() for row in read(spark, tmp_path, unit="1").collect()]
    units = [row for row in rows if row["row"] == "unit"]
    assert len(units) == len(report.targets) == 5
    assert sorted(row["path"] for row in units) == sorted(t["path"] for t in report.targets)
    for name, count in report.pages.items():
        assert sum(row[f"pages_{name}"] for row in units) == count
    found = [row for row in rows if row["row"] == "finding"]
    expected = [one.to_dict() for one in report.findings]
    assert [{name: row[name] for name in row if name in expected[0]} for row in found] == [
        {name: value for name, value in one.items() if name in found[0]} for one in expected
    ]
    # One unit of all.
    assert read(spark, tmp_path).where("row = 'unit'").count() == 1


def test_the_summary_is_never_better_than_its_rows(spark, tmp_path, sound, damaged):
    damaged.unlink()
    shutil.copy(sound, tmp_path / "other.sqlite")
    rows = read(spark, tmp_path, unit="1")
    assert pagewarden.spark.summary(rows) == "intact"
    assert pagewarden.spark.summary(rows.where("unit = 0")) == "incomplete"
    assert pagewarden.spark.summary(rows.where("unit < 0")) == "incomplete"
    assert pagewarden.spark.summary(rows.union(rows)) == "incomplete"
    (tmp_path / "strange.sqlite").write_bytes(b"none")
    assert pagewarden.spark.summary(read(spark, tmp_path, unit="1")) == "incomplete"
    data = bytearray(open(sound, "rb").read())
    data[4 * 512 + 300] ^= 1
    (tmp_path / "other.sqlite").write_bytes(data)
    rows = read(spark, tmp_path, unit="1")
    assert pagewarden.spark.summary(rows) == "damaged"
    assert pagewarden.spark.summary(rows.where("row = 'finding'")) == "damaged"


def test_wrong_options_are_refused(spark, sound):
    for options in ({"nonsense": "1"}, {"structure": "perhaps"}, {"jobs": "many"}):
        with pytest.raises(Exception, match="nonsense|perhaps|many"):
            read(spark, sound, **options).collect()
    assert read(spark, json.dumps([str(sound)]), format="sqlite").count() == 1
