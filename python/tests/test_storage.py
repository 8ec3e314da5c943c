"""Databases in object storage: a small server that speaks as much of S3 as a reader needs."""

import http.server
import json
import pathlib
import re
import sqlite3
import threading
import urllib.parse
from xml.sax.saxutils import escape

import pytest

import pagewarden

PACK = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "pack" / "1" / "shop.pwk"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        key = urllib.parse.unquote(url.path).removeprefix("/bucket").lstrip("/")
        if "list-type=2" in url.query:
            return self.list(dict(urllib.parse.parse_qsl(url.query)))
        if self.server.refuses and self.server.refuses in key:
            return self.answer(503)
        data = self.server.objects.get(key)
        if data is None:
            return self.answer(404)
        headers = {"ETag": f'"{hash(data)}"', "Last_Modified": "Sat, 28 Nov 2026 10:00:00 GMT"}
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if self.command == "HEAD" or not part:
            return self.answer(200, data, **headers)
        begin, end = int(part[1]), min(int(part[2]) + 1, len(data))
        headers["Content_Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
        self.answer(206, data[begin:end], **headers)

    do_HEAD = do_GET

    def list(self, query):
        prefix, folders, files = query.get("prefix", ""), {}, []
        for key, data in sorted(self.server.objects.items()):
            if not key.startswith(prefix):
                continue
            folder, slash, _ = key[len(prefix) :].partition("/")
            if slash:
                folders[prefix + folder + slash] = True
            else:
                files.append((key, data))
        text = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>&quot;{hash(data)}"
            "&quot;</ETag><LastModified>2026-11-28T10:00:00.000Z</LastModified></Contents>"
            for key, data in files
        )
        for folder in folders:
            text += f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{text}</ListBucketResult>"
        self.answer(200, text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A bucket with 40 databases, of which one of each kind is damaged, and other things."""
    path = tmp_path / "it"
    database = sqlite3.connect(path)
    database.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1), (2);")
    database.close()
    objects = {"fleet/README": b"nothing of interest"}
    for number in range(20):
        for name, data in (("packs/{:02}.pwk", PACK), ("customers/{:02}/data", path)):
            data = bytearray(data.read_bytes())
            if number == 7:
                data[len(data) // 2] ^= 0xFF
            objects["fleet/" + name.format(number)] = bytes(data)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.objects, server.refuses = objects, None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "canary-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-secret")
    server.given = {
        "endpoint": f"http://127.0.0.1:{server.server_port}",
        "storage_option": {"retries": "0"},
    }
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def disk(server, tmp_path):
    """The same on a disk."""
    for key, data in server.objects.items():
        path = tmp_path / "disk" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "disk" / "fleet"


def found(report, root):
    return [
        {**one.to_dict(), "path": one.path.removeprefix(root)} for one in report.findings
    ]


def test_what_is_in_a_bucket_is_what_is_on_a_disk(server, disk):
    there = pagewarden.check("s3://bucket/fleet", **server.given)
    here = pagewarden.check(disk)
    assert len(there.targets) == len(here.targets) == 40
    assert there.verdict == here.verdict == "damaged"
    assert there.pages == here.pages
    assert found(there, "s3://bucket/fleet") == found(here, str(disk)) != []
    storage = json.loads(there.to_json())["storage"]
    assert storage["requests"] >= 40 and storage["bytes"] > 0
    assert "canary" not in there.to_json() + repr(there)


def test_what_the_store_does_not_give_is_never_good(server):
    server.refuses = "packs/03"
    report = pagewarden.check("s3://bucket/fleet/packs", **server.given)
    assert [one["path"] for one in report.failed] == ["s3://bucket/fleet/packs/03.pwk"]
    assert report.verdict == "damaged"
    server.refuses = "customers/03"
    with pytest.raises(pagewarden.Error, match="could not be found out"):
        pagewarden.check("s3://bucket/fleet", **server.given)
    with pytest.raises(ValueError, match="as text"):
        pagewarden.check(pathlib.Path("s3://bucket/fleet"), **server.given)
    with pytest.raises(ValueError, match="secret"):
        given = {"storage_option": {"secret_access_key": "canary"}}
        pagewarden.check("s3://bucket/fleet", **given)


def test_spark_reads_a_bucket(server, spark, disk):
    pytest.importorskip("pyspark.sql.datasource")
    import pagewarden.spark

    pagewarden.spark.register(spark)
    reader = spark.read.format("pagewarden").option("paths", "s3://bucket/fleet")
    reader = reader.option("endpoint", server.given["endpoint"]).option("unit", "65536")
    # Workers have the environment that the JVM began with, which has no credentials.
    settings = {**server.given["storage_option"], "skip_signature": "true"}
    rows = reader.option("storage_option", json.dumps(settings)).load()
    rows = rows.localCheckpoint()
    assert pagewarden.spark.summary(rows) == "damaged"
    paths = [row["path"] for row in rows.where("row = 'finding'").collect()]
    here = [one.path for one in pagewarden.check(disk).findings]
    root = str(disk)
    assert sorted(paths) == sorted(path.replace(root, "s3://bucket/fleet") for path in here)
    assert rows.where("row = 'unit'").count() > 1


def test_table_in_a_bucket_equals_the_same_table_of_a_database(server, tmp_path):
    golden = PACK.parents[2] / "parquet" / "delta-spark-4.0.0" / "parts"
    for path in golden.rglob("*"):
        if path.is_file():
            key = f"lake/parts/{path.relative_to(golden).as_posix()}"
            server.objects[key] = path.read_bytes()
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("CREATE TABLE parts (id INTEGER PRIMARY KEY, word TEXT, kind INTEGER)")
    left = (id for id in range(3, 900) if id % 100 != 7 and not (id >= 600 and id % 2 == 1))
    rows = [(id, "x" if id == 450 else f"w{id}", id % 2) for id in left]
    database.executemany("INSERT INTO parts VALUES (?, ?, ?)", rows)
    database.commit()
    urls = f"sqlite:{tmp_path / 'shop.db'}", "parquet:s3://bucket/lake/parts"
    compared = pagewarden.compare(*urls, **server.given)
    assert compared.equal and compared.rows == len(rows) == 741
    there = pagewarden.checksum(urls[1], **server.given)
    assert there["parts"].checksum == pagewarden.checksum(f"parquet:{golden}")["parts"].checksum
    database.execute("UPDATE parts SET word = 'y' WHERE id = 451")
    database.commit()
    compared = pagewarden.compare(*reversed(urls), settle=0.01, **server.given)
    assert [(one.kind, one.key) for one in compared.differences] == [("changed", {"id": 451})]
    server.refuses = "_delta_log"
    with pytest.raises(pagewarden.Error) as refused:
        pagewarden.compare(*urls, **server.given)
    assert "canary" not in str(refused.value)
