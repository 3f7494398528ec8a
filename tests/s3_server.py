"""A real S3 server for tests: versitygw, which keeps each object as a file of a folder."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.fs as pf
import pytest

from waiting import eventually

PROGRAM = Path(sys.prefix) / ".s3-server" / "versitygw"
"""Where `make s3-server` puts the server."""

REGION = "us-east-1"
ACCESS_KEY = "headgate"
SECRET_KEY = "secret-of-headgate"
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server and how to ask it."""

    endpoint: str
    """`http://host:port`"""
    objects: Path
    """A bucket is a folder in here, an object is a file in that."""
    pid: int
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def environment(self, endpoint: str | None = None) -> Mapping[str, str]:
        """The variables from which clients take the credentials, and where they connect: a proxy, if it is given."""
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def filesystem(self, endpoint: str | None = None, **more: Any) -> pf.S3FileSystem:
        """The server for pyarrow, or the proxy before it; `more` are arguments of S3FileSystem."""
        return pf.S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            endpoint_override=endpoint or self.endpoint,
            region=REGION,
            **more,
        )

    def new_bucket(self) -> str:
        """The name of a new, empty bucket."""
        name = f"bucket-{next(self._numbers)}"
        self.filesystem(allow_bucket_creation=True).create_dir(name)
        return name


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """A server over that folder, until the end; the test is skipped where the server was not installed."""
    if not PROGRAM.exists():
        pytest.skip("versitygw is not installed: `make s3-server` needs go and its module registry")
    objects = folder / "objects"
    shutil.rmtree(objects, ignore_errors=True)
    objects.mkdir(parents=True)
    port = _free_port()
    # Without --keep-alive: with it versitygw 1.8.0 now and then answers an upload of a client by 400.
    command = [str(PROGRAM), "--port", f"127.0.0.1:{port}", "--region", REGION, "--quiet"]
    keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    with (folder / "s3-server.log").open("wb") as log:
        process = subprocess.Popen([*command, "posix", str(objects)], env=keys, stdout=log, stderr=subprocess.STDOUT)
    try:
        eventually(
            lambda: process.poll() is not None or _listens(port),
            lambda: f"versitygw does not listen on {port}:\n{(folder / 's3-server.log').read_text()[-4000:]}",
        )
        assert process.poll() is None, (folder / "s3-server.log").read_text()[-4000:]
        yield S3Server(f"http://127.0.0.1:{port}", objects, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    """A port that nothing listened on: versitygw takes 0 but does not say which port it was given."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False
