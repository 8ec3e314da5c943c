"""A real object store for the tests: versitygw, which speaks S3 and tests signatures."""

import os
import pathlib
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program():
    """That of `cargo xtask servers versitygw`, if it is there."""
    servers = pathlib.Path(os.environ.get("PAGEWARDEN_SERVERS", ROOT / "target" / "servers"))
    found = servers / "versitygw" / "bin" / "versitygw"
    return found if found.exists() else None


class Store:
    """A store on a port of this machine, with the bucket `bucket`."""

    key, secret = "canarykey", "canarysecret12"

    def __init__(self, path):
        self.folder = tempfile.TemporaryDirectory(prefix="pagewarden-store-")
        root = pathlib.Path(self.folder.name, "root")
        root.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.environment = {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret}
        environment = {**os.environ, "ROOT_ACCESS_KEY": self.key, "ROOT_SECRET_KEY": self.secret}
        command = [path, "--quiet", "--port", f"127.0.0.1:{self.port}", "posix", root]
        silent = subprocess.DEVNULL
        self.process = subprocess.Popen(command, env=environment, stdin=silent, stdout=silent, stderr=silent)
        try:
            self._wait()
            self._curl("-X", "PUT", f"{self.endpoint}/bucket")
        except BaseException:
            self.stop()
            raise

    def _wait(self):
        end = time.monotonic() + 60
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                assert self.process.poll() is None and time.monotonic() < end, "it does not answer"
                time.sleep(0.05)

    def _curl(self, *arguments):
        command = ["curl", "-sS", "--fail-with-body", "-o", "/dev/null"]
        command += ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{self.key}:{self.secret}"]
        command += ["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr

    def put(self, files):
        """Puts files there, by their keys."""
        lines = [
            f'url = "{self.endpoint}/bucket/{key}"\nupload-file = "{path}"\noutput = "/dev/null"\n'
            for key, path in files.items()
        ]
        listed = pathlib.Path(self.folder.name, "list")
        listed.write_text("".join(lines))
        self._curl("-K", listed)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()
