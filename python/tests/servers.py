"""A PostgreSQL and a MySQL of their own for the tests, found where the other tests of the project find it."""

import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile
import time

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

    def resting(self, name):
        """A cluster with checksums in which no server was ever started."""
        data = self.folder / name
        data.mkdir()
        if user := account():
            os.chown(data, user["user"], user["group"])
        self.run("initdb", "-D", data, "-U", "ann", "-k", "-E", "UTF8", "--locale=C", "--no-sync")
        return data

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


class Mysql:
    """A MySQL of `cargo xtask servers mysql`, by the loader beside it, reached by a socket and a port."""

    password = "hunter2"

    @staticmethod
    def programs():
        """Where its programs are, if they are there."""
        servers = pathlib.Path(os.environ.get("PAGEWARDEN_SERVERS", ROOT / "target" / "servers"))
        place = servers / "mysql"
        whole = all((place / name).is_file() for name in ("usr/sbin/mysqld", "usr/bin/mysql"))
        return place if whole else None

    def __init__(self, place):
        self.place = place
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pagewarden-mysql-"))
        if user := account():
            os.chown(self.folder, user["user"], user["group"])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.socket = self.folder / "socket"
        self.log = self.folder / "log"
        self.server = None
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self):
        subprocess.run(self._server("--initialize-insecure"), check=True, **self._with(self.log))
        options = [f"--socket={self.socket}", f"--pid-file={self.folder / 'pid'}", f"--port={self.port}",
                   "--bind-address=127.0.0.1", "--skip-log-bin", "--mysqlx=0",
                   "--innodb-buffer-pool-size=16M", "--performance-schema=OFF"]
        self.server = subprocess.Popen(self._server(*options), **self._with(self.log))
        end = time.monotonic() + 120
        while self._client("SELECT 1").returncode != 0:
            text = self.log.read_text(errors="replace")
            assert self.server.poll() is None and time.monotonic() < end, text
            time.sleep(0.1)
        self.sql(f"CREATE USER ann@'127.0.0.1' IDENTIFIED BY '{self.password}';"
                 "GRANT ALL ON *.* TO ann@'127.0.0.1'; CREATE DATABASE shop;")

    def _command(self, program, *arguments):
        libraries = self.place / "usr/lib/x86_64-linux-gnu"
        private = self.place / "usr/lib/mysql/private"
        return [libraries / "ld-linux-x86-64.so.2", "--library-path", f"{libraries}:{private}",
                self.place / program, "--no-defaults", *arguments]

    def _server(self, *arguments):
        root = self.place / "usr"
        return self._command("usr/sbin/mysqld", f"--datadir={self.folder / 'data'}", f"--basedir={root}",
                             f"--lc-messages-dir={root / 'share/mysql'}", "--secure-file-priv=NULL",
                             f"--tmpdir={self.folder}", *arguments)

    def _with(self, output):
        environment = {name: value for name, value in os.environ.items() if name[:5] != "MYSQL"}
        environment.update(LC_ALL="C", TZ="UTC")
        return {"env": environment, "cwd": self.folder, "stdin": subprocess.DEVNULL,
                "stdout": open(output, "ab"), "stderr": subprocess.STDOUT, **account()}

    def _client(self, text, database=None):
        options = ["--user=root", "--batch", "--skip-column-names", f"--socket={self.socket}",
                   "--default-character-set=utf8mb4"]
        options += [database] if database else []
        return subprocess.run(self._command("usr/bin/mysql", *options), input=text.encode(), cwd="/",
                              capture_output=True, **account())

    def sql(self, text, database=None):
        ended = self._client(text, database)
        assert ended.returncode == 0, ended.stderr.decode()
        return ended.stdout.decode().rstrip("\n")

    def url(self, database="shop", password=None):
        return f"mysql://ann:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def stop(self):
        if self.server is not None:
            self.server.kill()
            self.server.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
