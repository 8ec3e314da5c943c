"""200 backups and packs in a real object store, 5 of them damaged: Spark, a plan in parts and a plain
check find the same, to the byte.

Takes minutes: only where PAGEWARDEN_SPARK=1 asks for it.
"""

import json
import os
import pathlib
import random
import shutil
import sqlite3
import subprocess
import sys
import tarfile

import pytest
import stores
from test_servers import program

import pagewarden

if os.environ.get("PAGEWARDEN_SPARK") != "1":
    pytest.skip("PAGEWARDEN_SPARK is not 1", allow_module_level=True)
pytest.importorskip("pyspark.sql.datasource")

FLEET = "s3://bucket/fleet"
PARTS = 4
#: Base backups, each of a whole cluster; the others are packs.
BACKUPS = 8
#: In a process of its own: what executors have for credentials is in the environment that the JVM began with.
SPARK = """
import json, sys
sys.path.insert(0, sys.argv[1])
import sparks
import pagewarden.spark

spark = sparks.builder("local[2]").getOrCreate()
pagewarden.spark.register(spark)
reader = spark.read.format("pagewarden").option("paths", sys.argv[2]).option("endpoint", sys.argv[3])
rows = reader.option("unit", sys.argv[4]).load().localCheckpoint()
found = [row.asDict() for row in rows.collect()]
print(json.dumps({"verdict": pagewarden.spark.summary(rows), "rows": found}))
spark.stop()
"""


@pytest.fixture
def store(monkeypatch):
    path = stores.program()
    if path is None or shutil.which("curl") is None:
        if "stores" in os.environ.get("PAGEWARDEN_REQUIRE", ""):
            pytest.fail("PAGEWARDEN_REQUIRE asks for stores: cargo xtask servers versitygw")
        pytest.skip("there is no versitygw: cargo xtask servers versitygw")
    store = stores.Store(path)
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    yield store
    store.stop()


def flipped(path, out, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    out.write_bytes(data)
    return out


def backups(folder, postgres):
    """A base backup in an archive, one with a wrong byte in a table and one that is cut."""
    data = postgres.resting("fleet")

    def archive(name):
        with tarfile.open(folder / name, "w:gz", compresslevel=1) as out:
            out.add(data, arcname=".")
        return folder / name

    sound = archive("sound.tar.gz")
    table = data / "base" / "1" / "1255"
    flipped(table, table, 8192 * 7 + 4000)
    wounded = archive("wounded.tar.gz")
    cut = folder / "cut.tar.gz"
    cut.write_bytes(sound.read_bytes()[:-200_000])
    return sound, wounded, cut


def packs(folder):
    """Packs of ten shops."""
    made = []
    for number in range(10):
        place = folder / f"shop{number}.sqlite"
        chance = random.Random(number)
        connection = sqlite3.connect(place)
        connection.execute("create table item (id integer primary key, note text)")
        notes = ((chance.randbytes(40).hex(),) for _ in range(2000 + 100 * number))
        connection.executemany("insert into item (note) values (?)", notes)
        connection.commit()
        connection.close()
        made.append(pathlib.Path(pagewarden.pack(place, folder / f"{number}.pwk").path))
    return made


def fill(store, folder, postgres):
    """Returns the names of those that are damaged: of an archive, the folder of the backup that it is of."""
    sound, wounded, cut = backups(folder, postgres)
    shops = packs(folder)
    files = {f"fleet/backups/{number:03}/base.tar.gz": sound for number in range(BACKUPS)}
    files |= {f"fleet/packs/{number:03}.pwk": shops[number % 10] for number in range(200 - BACKUPS)}
    damaged = {
        "fleet/backups/003/base.tar.gz": wounded,
        "fleet/backups/006/base.tar.gz": cut,
        "fleet/packs/003.pwk": flipped(shops[3], folder / "a", 5000),
        "fleet/packs/077.pwk": flipped(shops[7], folder / "b", shops[7].stat().st_size // 2),
        "fleet/packs/179.pwk": flipped(shops[9], folder / "c", 90_000),
    }
    files |= damaged
    assert len(files) == 200
    store.put(files)
    return {key.removesuffix("/base.tar.gz") for key in damaged}


def by_program(store, *arguments):
    ended = subprocess.run([program(), *arguments], capture_output=True, text=True)
    assert store.secret not in ended.stdout + ended.stderr
    return ended


def as_bytes(findings):
    """Findings in one order, as bytes."""
    return "\n".join(sorted(json.dumps(one, sort_keys=True) for one in findings)).encode()


def of_report(report, names=None):
    found = [{"path": target["path"], **one} for target in report["targets"] for one in target["findings"]]
    return as_bytes([{name: one.get(name) for name in names} for one in found] if names else found)


def counts(report):
    return {target["path"]: (target["verdict"], target["pages"], len(target["unread"])) for target in report["targets"]}


def test_five_of_two_hundred_are_found_by_all(store, tmp_path, postgres):
    if program() is None:
        pytest.skip("there is no program pagewarden: cargo build")
    damaged = fill(store, tmp_path, postgres)

    whole = by_program(store, "check", "--json", "-q", "--endpoint", store.endpoint, FLEET)
    assert whole.returncode == 1, whole.stderr
    whole = json.loads(whole.stdout)
    assert whole["verdict"] == "damaged" and len(whole["targets"]) == 200
    found = {target["path"] for target in whole["targets"] if target["verdict"] not in ("intact", "unprotected")}
    assert found == {f"s3://bucket/{key}" for key in damaged}, found

    # In parts, by processes that have nothing but the plan.
    plan = str(tmp_path / "plan")
    planned = by_program(store, "plan", "-q", "--unit", "2MiB", "--endpoint", store.endpoint, FLEET, "-o", plan)
    assert planned.returncode == 0, planned.stderr
    results = [str(tmp_path / f"part{number}") for number in range(PARTS)]
    parts = []
    for number, result in enumerate(results, 1):
        part = ["--plan", plan, "--part", f"{number}/{PARTS}", "-o", result]
        parts.append(by_program(store, "check", "-q", "--endpoint", store.endpoint, *part).returncode)
    assert 1 in parts and set(parts) <= {0, 1, 2}
    merged = by_program(store, "merge", "--json", plan, *results)
    assert merged.returncode == 1, merged.stderr
    merged = json.loads(merged.stdout)
    assert merged["verdict"] == whole["verdict"] and counts(merged) == counts(whole)
    assert of_report(merged) == of_report(whole) != b""

    # By executors of Spark.
    here = os.path.dirname(__file__)
    command = [sys.executable, "-c", SPARK, here, FLEET, store.endpoint, str(2 << 20)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert store.secret not in ended.stdout + ended.stderr
    spark = json.loads(ended.stdout.splitlines()[-1])
    assert spark["verdict"] == "damaged"
    rows = spark["rows"]
    names = ["path", "file", "page", "offset", "severity", "kind", "database", "object", "stored", "computed", "detail", "hint"]
    findings = [{name: row[name] for name in names} for row in rows if row["row"] == "finding"]
    assert as_bytes(findings) == of_report(whole, names)
    units = [row for row in rows if row["row"] == "unit"]
    assert len(units) > 10
    for name in ("total", "ok", "damaged"):
        assert sum(unit[f"pages_{name}"] for unit in units) == sum(target["pages"][name] for target in whole["targets"])
    assert sum(unit["unread"] for unit in units) == sum(len(target["unread"]) for target in whole["targets"])
