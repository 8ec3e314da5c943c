"""Tables that Arrow libraries take."""

import json

import pytest

import pagewarden

pyarrow = pytest.importorskip("pyarrow")


def test_findings_are_the_rows_of_the_report(damaged):
    expected = [one.to_dict() for one in pagewarden.check(damaged).findings]
    findings = pagewarden.findings(damaged)
    table = pyarrow.table(findings)
    assert table.to_pylist() == expected
    assert len(findings) == 3 and findings.verdict == "damaged"
    assert table.schema.field("page").type == pyarrow.uint64()
    # A stream is made anew each time.
    assert pyarrow.table(findings) == table
    assert pyarrow.RecordBatchReader.from_stream(findings).read_all() == table


def test_a_sound_database_has_an_empty_table_with_columns(sound):
    findings = pagewarden.findings(sound)
    table = pyarrow.table(findings)
    assert (table.num_rows, findings.verdict) == (0, "intact")
    assert table.column_names[:3] == ["path", "file", "page"]


def test_pages_add_up_to_the_counts_of_the_report(damaged, sound):
    report = pagewarden.check(damaged, sound)
    table = pyarrow.table(pagewarden.pages(damaged, sound))
    sums = {}
    for row in table.to_pylist():
        sums[row["standing"]] = sums.get(row["standing"], 0) + row["pages"]
    assert sums == {k: v for k, v in report.pages.items() if v and k != "total"}
    rows = [row for row in table.to_pylist() if row["path"] == str(damaged)]
    bad = [(row["first_page"], row["pages"], row["offset"]) for row in rows if row["standing"] == "damaged"]
    assert bad == [(5, 2, 4 * 512), (9, 1, 8 * 512)]
    # Without a gap.
    assert rows[0]["offset"] == 0
    for one, next in zip(rows, rows[1:]):
        assert one["offset"] + one["bytes"] == next["offset"]


def test_other_libraries_take_them_too(damaged):
    taken = 0
    try:
        import polars
    except ImportError:
        pass
    else:
        assert polars.DataFrame(pagewarden.findings(damaged))["page"].to_list() == [5, 6, 9]
        taken += 1
    try:
        import duckdb
    except ImportError:
        pass
    else:
        findings = pagewarden.findings(damaged)
        assert duckdb.sql("select page from findings").fetchall() == [(5,), (6,), (9,)]
        assert len(findings) == 3
        taken += 1
    if taken == 0:
        pytest.skip("neither polars nor duckdb is installed")


def test_rows_are_json(damaged):
    json.dumps(pyarrow.table(pagewarden.findings(damaged)).to_pylist())
