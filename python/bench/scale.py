"""What one core, one stream and one executor do, and whether 1/1000 of a petabyte takes what they foretell.

    python python/bench/scale.py --program target/release/pagewarden --folder /data/scale

Needs the wheel, PySpark 4, PostgreSQL and versitygw (`cargo xtask servers 18 versitygw`). Makes a
PostgreSQL cluster of about 16 MB for each unit of `--scale` and keeps three backups of it: plain
files, tar files compressed by gzip, and a pack. All are read from the page cache: what is measured is the
processor and the network's waiting, not a disk. What is compared runs in turns, in one run.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time
from multiprocessing import Process, Queue

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests"))
import servers  # noqa: E402
import sparks  # noqa: E402
import stores  # noqa: E402

import pagewarden  # noqa: E402
import pagewarden.spark as spark_side  # noqa: E402

MIB, TIB = 1 << 20, 1 << 40
FORMS = ("plain", "gzip", "pack")
#: About 16 MB for each 100,000; gzip makes a third of it.
ROWS = """CREATE TABLE orders AS SELECT i AS number, md5(i::text) AS code, i % 5000 AS customer,
    repeat(md5((i % 1000)::text), 2) AS note, now() AS made FROM generate_series(1, {count}) AS i"""


# What is checked.


def size(path):
    """Bytes of the files at and below a path."""
    if path.is_file():
        return path.stat().st_size
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())


def backups(folder, scale, program):
    """The three backups of one cluster, by form; made unless they are there."""
    made = {"plain": folder / "plain", "gzip": folder / "gzip", "pack": folder / "backup.pwk"}
    if not all(path.exists() for path in made.values()):
        server = servers.Postgres(servers.programs())
        try:
            url = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "ann"]
            # A checkpoint while a backup is taken removes log that it wants.
            server.run("psql", *url, "-c", "ALTER SYSTEM SET wal_keep_size = '8GB'", "postgres")
            server.run("psql", *url, "-c", "SELECT pg_reload_conf()", "postgres")
            server.run("psql", *url, "-c", ROWS.format(count=scale * 100_000), "postgres")
            server.run("psql", *url, "-c", "CREATE INDEX ON orders (number)", "postgres")
            for form, options in (("plain", []), ("gzip", ["-Ft", "-z"])):
                place = server.folder / form
                place.mkdir()
                if user := servers.account():
                    os.chown(place, user["user"], user["group"])
                server.run("pg_basebackup", *url, "-c", "fast", "-X", "fetch", *options, "-D", place)
                shutil.rmtree(made[form], ignore_errors=True)
                shutil.move(place, made[form])
        finally:
            server.stop()
        subprocess.run([program, "pack", made["plain"], "-o", made["pack"], "--quiet"], check=True)
    return made


def linked(source, to):
    """A tree of which every file is a hard link: other names of the same bytes."""
    subprocess.run(["cp", "-al", source, to], check=True)


# How long it takes.


def run(*command, **environment):
    """Wall seconds, processor seconds and the report of `pagewarden ... --json`."""
    before = os.times()
    begin = time.monotonic()
    ended = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    wall, after = time.monotonic() - begin, os.times()
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, busy, ended.stdout


def in_turns(rounds, contenders):
    """What each of the contenders, by name, gives in each round; the order moves on, the first round is for practice."""
    given = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds + 1):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            one = contenders[name]()
            if number:
                given[name].append(one)
    return given


def ratio(over, under):
    """The median of the ratios within each round, the least and the most."""
    ratios = sorted(one / other for one, other in zip(over, under, strict=True))
    return f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"


def rates(walls, stored, holds):
    wall = statistics.median(walls)
    return f"{wall:.2f} s, {stored / MIB / wall:.0f} MiB/s stored, {holds / MIB / wall:.0f} MiB/s of the database"


# A network that waits.


def pump(source, sink, waits, seconds):
    """Carries answers; the first bytes of each wait."""
    buffer = bytearray(MIB)
    try:
        while count := source.recv_into(buffer):
            if waits.is_set():
                waits.clear()
                time.sleep(seconds)
            sink.sendall(memoryview(buffer)[:count])
    except OSError:
        pass
    shut(source, sink)


def shut(*sockets):
    for one in sockets:
        try:
            one.shutdown(2)
        except OSError:
            pass


def proxy(port, seconds, found):
    """Passes connections on to `port`; answers are late by that many seconds."""
    import socket
    import threading

    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    found.put(listener.getsockname()[1])
    while True:
        client = listener.accept()[0]
        server = socket.create_connection(("127.0.0.1", port))
        waits = threading.Event()
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def requests(client=client, server=server, waits=waits):
            # What a client sends is a request, whose answer is awaited.
            try:
                while data := client.recv(65536):
                    waits.set()
                    server.sendall(data)
            except OSError:
                pass
            shut(client, server)

        threading.Thread(target=requests, daemon=True).start()
        threading.Thread(target=pump, args=(server, client, waits, seconds), daemon=True).start()


def proxied(port, seconds):
    found = Queue()
    process = Process(target=proxy, args=(port, seconds, found), daemon=True)
    process.start()
    return process, f"http://127.0.0.1:{found.get()}"


# The measurements.


def one_core(program, made, holds, rounds):
    """One thread reads each form from memory."""
    contenders = {
        form: lambda path=path: run(program, "check", "--json", "--quiet", "--jobs", "1", path)[0]
        for form, path in made.items()
    }
    walls = in_turns(rounds, contenders)
    for form, path in made.items():
        print(f"one core, {form}: {rates(walls[form], size(path), holds)}", flush=True)
    return {form: size(made[form]) / statistics.median(walls[form]) for form in made}


def one_stream(program, made, holds, rounds, copies):
    """One thread reads objects of a store, with and without 50 ms before each answer."""
    store = stores.Store(stores.program())
    processes = []
    try:
        files = {}
        for number in range(copies):
            for form in ("gzip", "pack"):
                path = made[form]
                one = path if path.is_file() else path / "base.tar.gz"
                files[f"{form}/{number}/{one.name}"] = one
        store.put(files)
        endpoints = {}
        for name, seconds in (("none", 0.0), ("50 ms", 0.05)):
            process, endpoints[name] = proxied(store.port, seconds)
            processes.append(process)
        for form in ("gzip", "pack"):

            def check(endpoint, form=form):
                url = f"s3://bucket/{form}/"
                options = ["--json", "--quiet", "--jobs", "1", "--endpoint", endpoint]
                environment = {**store.environment, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
                return run(program, "check", url, *options, **environment)

            contenders = {name: lambda to=to: check(to) for name, to in endpoints.items()}
            given = in_turns(rounds, contenders)
            walls = {name: [one[0] for one in each] for name, each in given.items()}
            traffic = json.loads(given["none"][0][2].strip().splitlines()[-1]).get("storage")
            stored = copies * size(made[form])
            print(f"one stream, {form}: {rates(walls['none'], stored, copies * holds)}; {traffic}")
            print(f"  throughput with 50 ms: {ratio(walls['none'], walls['50 ms'])} of that without", flush=True)
    finally:
        for process in processes:
            process.kill()
        store.stop()


def rows(made, rounds, copies):
    """What rows cost beside the check of their unit, as an executor's Python makes both."""
    units = spark_side._plan([str(made["pack"])] * copies, {"jobs": 1}, MIB)
    shares, check = [], pagewarden.check
    for _ in range(rounds):
        checked = 0

        def timed(*paths, **options):
            nonlocal checked
            begin = time.process_time()
            report = check(*paths, **options)
            checked += time.process_time() - begin
            return report

        spark_side._check.check = timed
        begin = time.process_time()
        for unit in units:
            assert sum(batch.num_rows for batch in spark_side._batches(spark_side._rows(unit, {"jobs": 1}))) == 1
        shares.append(time.process_time() - begin - checked)
        shares[-1] /= checked
    spark_side._check.check = check
    shares.sort()
    print(f"rows of a unit: {statistics.median(shares):.5f} ({shares[0]:.5f} to {shares[-1]:.5f}) of its check", flush=True)


def executors(folder, made, rounds, units):
    """Two executors beside one, on units that are bound by the processor: gzip is expanded by one thread."""
    copies = folder / "units"
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir()
    for number in range(units):
        linked(made["gzip"], copies / f"{number:03}")
    walls = {1: [], 2: []}
    # A Spark of its own each time: it cannot change its executors.
    for number in range(rounds):
        for count in (1, 2) if number % 2 else (2, 1):
            spark = (
                sparks.builder(f"local-cluster[{count},1,1024]")
                .config("spark.executor.memory", "512m")
                .config("spark.ui.showConsoleProgress", "false")
                .getOrCreate()
            )
            try:
                # Executors and their Pythons are there before it counts.
                spark.range(0, 8, 1, 8).rdd.map(lambda one: time.sleep(1) or one).count()
                spark_side.summary(spark_side.check(spark, made["gzip"]))
                rows = spark_side.check(spark, copies, unit=1).cache()
                begin = time.monotonic()
                assert rows.count() == units
                walls[count].append(time.monotonic() - begin)
                assert spark_side.summary(rows) == "intact"
            finally:
                spark.stop()
    stored = units * size(made["gzip"])
    for count, each in walls.items():
        wall = statistics.median(each)
        print(f"{count} executors: {wall:.1f} s for {units} backups, {stored / MIB / wall:.0f} MiB/s stored")
    print(f"  two are {ratio(walls[1], walls[2])} times as fast as one", flush=True)
    shutil.rmtree(copies)


def thousandth(program, folder, made, total, rate):
    """So many bytes of plain backups in two parts, beside what one core foretells."""
    fleet = folder / "fleet"
    shutil.rmtree(fleet, ignore_errors=True)
    fleet.mkdir()
    each = size(made["plain"])
    count = -(-total // each)
    for number in range(count):
        linked(made["plain"], fleet / f"{number:04}")
    plan, results = folder / "plan.jsonl", [folder / "1.jsonl", folder / "2.jsonl"]
    planned = run(program, "plan", fleet, "-o", plan)[0]
    options = ["--quiet", "--jobs", "1", "--plan", plan]
    begin = time.monotonic()
    parts = [
        subprocess.Popen([program, "check", *options, "--part", f"{number}/2", "-o", out], stdout=subprocess.DEVNULL)
        for number, out in enumerate(results, 1)
    ]
    assert [part.wait() for part in parts] == [0, 0]
    wall = time.monotonic() - begin
    merged, _, report = run(program, "merge", "--json", plan, *results)
    report = json.loads(report.strip().splitlines()[-1])
    foretold = count * each / (2 * rate)
    print(
        f"{count * each / TIB:.3f} TiB in {count} backups: {wall:.1f} s in two parts, {foretold:.1f} s foretold, "
        f"{wall / foretold:.3f} times; plan {planned:.2f} s, merge {merged:.2f} s: {report['verdict']}",
        flush=True,
    )
    shutil.rmtree(fleet)


def main():
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--program", type=pathlib.Path, required=True)
    given.add_argument("--folder", type=pathlib.Path, required=True)
    given.add_argument("--scale", type=int, default=64)
    given.add_argument("--rounds", type=int, default=5)
    given.add_argument("--units", type=int, default=16, help="backups for executors")
    given.add_argument("--total", type=int, default=TIB, help="bytes of the last measurement")
    given.add_argument("--only", nargs="*", choices=("core", "stream", "rows", "executors", "thousandth"))
    given = given.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    folder, program = given.folder.resolve(), given.program.resolve()
    made = backups(folder, given.scale, program)
    holds = size(made["plain"])
    for form in FORMS:
        print(f"{form}: {size(made[form]) / MIB:.0f} MiB")

    def wants(name):
        return not given.only or name in given.only

    speeds = one_core(program, made, holds, given.rounds) if wants("core") or wants("thousandth") else {}
    if wants("stream"):
        one_stream(program, made, holds, given.rounds, 4)
    if wants("rows"):
        rows(made, given.rounds, 4)
    if wants("executors"):
        executors(folder, made, given.rounds, given.units)
    if wants("thousandth"):
        thousandth(program, folder, made, given.total, speeds["plain"])


if __name__ == "__main__":
    main()
