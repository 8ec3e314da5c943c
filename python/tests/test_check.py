"""Reports, exceptions, threads and signals."""

import contextlib
import json
import logging
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest

import pagewarden


def test_sound_database_is_intact(sound):
    report = pagewarden.check(sound)
    assert report.verdict == "intact"
    assert report.findings == []
    size = os.path.getsize(sound)
    assert report.pages["total"] == size // 512
    assert report.pages["ok"] + report.pages["empty"] == report.pages["total"]
    assert report.bytes == size
    assert report.seconds > 0


def test_findings_have_the_names_and_values_of_the_json(damaged):
    report = pagewarden.check(damaged)
    assert report.verdict == "damaged"
    [target] = json.loads(report.to_json())["targets"]
    assert [one.page for one in report.findings] == [5, 6, 9]
    assert len(target["findings"]) == 3
    for one, expected in zip(report.findings, target["findings"]):
        for name, value in expected.items():
            assert getattr(one, name) == value
        assert one.path == str(damaged)
        assert one.severity == "damage"
        assert one.to_dict()["page"] == one.page
    assert report.pages["damaged"] == 3


def test_reports_are_read_well_in_a_notebook(damaged, sound):
    text = repr(pagewarden.check(damaged))
    assert text.startswith("<pagewarden.Report damaged: ") and "3 damaged" in text
    html = pagewarden.check(damaged, sound)._repr_html_()
    assert "<svg" in html and "<td>damage</td>" in html and "3 findings" in html


def test_hostile_names_do_not_get_into_a_notebook(tmp_path, damaged):
    path = tmp_path / "<script>alert(1)<"
    path.write_bytes(damaged.read_bytes())
    html = pagewarden.check(path)._repr_html_()
    assert "<script>" not in html


def test_what_cannot_be_opened_is_an_exception_with_its_kind(tmp_path, sound):
    with pytest.raises(pagewarden.NotFoundError) as raised:
        pagewarden.check(tmp_path / "none")
    assert raised.value.kind == "not_found"
    assert raised.value.path == str(tmp_path / "none")
    assert isinstance(raised.value, FileNotFoundError)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (again.kind, again.path, str(again)) == ("not_found", raised.value.path, str(raised.value))
    strange = tmp_path / "strange"
    strange.write_text("no database")
    with pytest.raises(pagewarden.UnrecognisedError) as raised:
        pagewarden.check(strange)
    assert "hint: " in str(raised.value)
    with pytest.raises(pagewarden.Error):
        pagewarden.findings(strange)


def test_one_of_several_that_cannot_be_opened_makes_it_incomplete(tmp_path, sound, caplog):
    with caplog.at_level(logging.WARNING, logger="pagewarden"):
        report = pagewarden.check(sound, tmp_path / "none")
    assert report.verdict == "incomplete"
    assert [one["path"] for one in report.failed] == [str(tmp_path / "none")]
    assert "none" in caplog.text
    with pytest.warns(pagewarden.IncompleteWarning):
        findings = pagewarden.findings(sound, tmp_path / "none")
    assert findings.verdict == "incomplete"


def test_wrong_options_are_refused(sound):
    with pytest.raises(TypeError):
        pagewarden.check()
    with pytest.raises(TypeError):
        pagewarden.check(sound, no_such_option=True)
    with pytest.raises(TypeError):
        pagewarden.check(sound, set="20261123")
    for options in ({"format": "oracle"}, {"jobs": 0}, {"rate": 0}, {"settle": -1.0}):
        with pytest.raises(ValueError):
            pagewarden.check(sound, **options)
    assert "sqlite" in pagewarden.FORMATS


def test_options_reach_the_check(damaged):
    assert pagewarden.check(damaged, format="sqlite", jobs=1, rate=1 << 30).verdict == "damaged"
    with pytest.raises(pagewarden.Error):
        pagewarden.check(damaged, format="duckdb")


def test_progress_is_reported_and_what_it_raises_ends_the_run(sound):
    told = []
    pagewarden.check(sound, progress=told.append)
    assert told[-1] == os.path.getsize(sound)

    class Enough(Exception):
        pass

    def enough(_):
        raise Enough

    with pytest.raises(Enough):
        pagewarden.check(sound, progress=enough)


def test_other_threads_run_meanwhile(damaged):
    results = []
    work = lambda: results.append(pagewarden.check(damaged).verdict)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert results == ["damaged"] * 4


SLOW = """
import os, signal, sys, threading, pagewarden
begun = threading.Event()
def interrupt():
    begun.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    # Without an end to it this takes two minutes.
    pagewarden.check(sys.argv[1], rate=1 << 20, progress=lambda _: begun.set())
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_a_check(tmp_path):
    path = tmp_path / "large.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table t (b)")
        connection.execute("insert into t values (zeroblob(120 << 20))")
    program = [sys.executable, "-c", SLOW, str(path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_nothing_is_written_to_what_is_checked(damaged):
    before = (damaged.read_bytes(), damaged.stat().st_mtime_ns, sorted(damaged.parent.iterdir()))
    pagewarden.check(damaged)
    pagewarden.pages(damaged)
    after = (damaged.read_bytes(), damaged.stat().st_mtime_ns, sorted(damaged.parent.iterdir()))
    assert after == before


def test_a_folder_of_databases_is_checked_as_the_program_does(tmp_path, sound, damaged):
    report = pagewarden.check(tmp_path)
    assert sorted(target["path"] for target in report.targets) == [str(damaged), str(sound)]
    assert report.verdict == "damaged"
    program = os.environ.get("PAGEWARDEN_PROGRAM")
    if program:
        done = subprocess.run([program, "check", "--json", tmp_path], capture_output=True, text=True)
        timeless = lambda text: json.loads(
            text, object_hook=lambda it: {k: v for k, v in it.items() if k not in TIMES}
        )
        assert timeless(report.to_json()) == timeless(done.stdout)


TIMES = ("seconds", "mib_per_second")


def test_signals_of_the_caller_are_left_alone(sound):
    before = signal.getsignal(signal.SIGINT)
    pagewarden.check(sound)
    assert signal.getsignal(signal.SIGINT) is before
