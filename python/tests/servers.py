"""A PostgreSQL of their own for the tests, found where the other tests of the project find it."""

import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSIONS = ("18", "17", "16", "15", "14")


def account():
    """The ordinary user that the server runs as if we are root, which it refuses."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    return {"user": 65534, "group": 65534, "extra_groups": []}


def programs():
    """The newest server: of PAGEWARDEN_SERVERS or target/servers, else Debian's."""
    servers = pathlib.Path(os.environ.get("PAGEWARDEN_SERVERS", ROOT / "target" / "servers"))
    for version in VERSIONS:
        for place in (servers / version, pathlib.Path("/usr/lib/postgresql") / version):
            if (place / "bin" / "initdb").exists() and (place / "bin" / "psql").exists():
                return place
    return None


class Postgres:
    """A server on a port of this machine, whose user `ann` needs a password."""

    password = "hunter2"

    def __init__(self, place):
        self.place = place
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pagewarden-python-"))
        os.chmod(self.folder, 0o755)
        data = self.folder / "data"
        data.mkdir()
        if user := account():
            os.chown(data, user["user"], user["group"])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        secret = self.folder / "secret"
        secret.write_text(self.password)
        self.run("initdb", "-D", data, "-U", "ann", "-A", "scram-sha-256", f"--pwfile={secret}",
                 "-E", "UTF8", "--locale=C", "--no-sync")
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        self.run("pg_ctl", "-D", data, "-w", "-l", data / "log", "-o", options, "start")

    def run(self, program, *arguments, **options):
        environment = {name: value for name, value in os.environ.items() if name[:2] != "PG"}
        environment.update(LC_ALL="C", TZ="UTC", PGPASSWORD=self.password)
        if (self.place / "lib").exists():
            environment["LD_LIBRARY_PATH"] = str(self.place / "lib")
        command = [self.place / "bin" / program, *arguments]
        # A server that stays would keep a pipe open.
        with open(self.folder / "output", "w+b") as output:
            ended = subprocess.run(command, env=environment, cwd="/", stdout=output,
                                   stderr=output, **account(), **options)
            output.seek(0)
            text = output.read().decode()
        assert ended.returncode == 0, text
        return text

    def sql(self, text, database="postgres"):
        return self.run("psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "ann", "-d", database,
                        "-v", "ON_ERROR_STOP=1", "-q", "-At", "-f", "-", input=text.encode())

    def url(self, database="postgres", password=None, table=None):
        place = f"postgres://ann:{password or self.password}@127.0.0.1:{self.port}/{database}"
        return f"{place}?table={table}" if table else place

    def stop(self):
        try:
            self.run("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "stop")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
