"""Two executors, one of which is killed in the middle: nothing is lost, and nothing counts twice.

Takes minutes: only where PAGEWARDEN_SPARK=1 asks for it.
"""

import os
import pathlib
import signal
import threading

import pytest
import sparks

import pagewarden

if os.environ.get("PAGEWARDEN_SPARK") != "1":
    pytest.skip("PAGEWARDEN_SPARK is not 1", allow_module_level=True)
pytest.importorskip("pyspark")

import pagewarden.spark  # noqa: E402


def parent(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rsplit(")", 1)[1].split()[1])


def is_below_this_process(pid):
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = parent(pid)
    return False


def executors():
    """The executors that this test started."""
    found = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            command = (process / "cmdline").read_text()
        except (OSError, UnicodeDecodeError):
            continue
        if "CoarseGrainedExecutorBackend" in command and is_below_this_process(int(process.name)):
            found.append(int(process.name))
    return found


def test_a_killed_executor_changes_nothing(tmp_path, sound):
    data = pathlib.Path(sound).read_bytes()
    databases = tmp_path / "databases"
    databases.mkdir()
    for number in range(40):
        changed = bytearray(data)
        if number % 8 == 3:
            changed[4 * 512 + 300] ^= 1
        (databases / f"{number:02}.sqlite").write_bytes(changed)
    report = pagewarden.check(databases)
    spark = (
        sparks.builder("local-cluster[2,1,1024]")
        .config("spark.executor.memory", "512m")
        .getOrCreate()
    )
    killed, ended = [], threading.Event()

    def kill_one():
        while not killed and not ended.wait(0.1):
            if len(running := executors()) >= 2:
                os.kill(running[0], signal.SIGKILL)
                killed.append(running[0])

    killer = threading.Thread(target=kill_one)
    try:
        pagewarden.spark.register(spark)
        # So slow that executors are there before the units are done.
        reader = spark.read.format("pagewarden").option("unit", "1").option("rate", "20480")
        killer.start()
        rows = [row.asDict() for row in reader.option("paths", str(databases)).load().collect()]
    finally:
        ended.set()
        killer.join()
        spark.stop()
    assert killed
    units = [row for row in rows if row["row"] == "unit"]
    assert sorted(row["unit"] for row in units) == list(range(40))
    assert sum(row["pages_total"] for row in units) == report.pages["total"]
    found = sorted((row["path"], row["page"]) for row in rows if row["row"] == "finding")
    assert found == [(one.path, one.page) for one in report.findings] and len(found) == 5
