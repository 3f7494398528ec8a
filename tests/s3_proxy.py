"""A proxy before an S3 server for tests: it counts requests and bytes, and answers badly on command."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_BLOCK = 1 << 18
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "expect", "content-length"})


@dataclass(frozen=True, slots=True)
class Answer:
    """An error as S3 states it."""

    status: int
    code: str
    message: str

    @property
    def body(self) -> bytes:
        """The XML of the answer."""
        text = f"<Error><Code>{self.code}</Code><Message>{self.message}</Message><RequestId>proxy</RequestId></Error>"
        return b'<?xml version="1.0" encoding="UTF-8"?>\n' + text.encode()


SLOW_DOWN = Answer(503, "SlowDown", "Please reduce your request rate.")
EXPIRED_TOKEN = Answer(403, "ExpiredToken", "The provided token has expired.")
BUCKET_FULL = Answer(507, "XMinioStorageFull", "Storage backend has reached its minimum free drive threshold.")


@dataclass(slots=True)
class Exchange:
    """One request as it came, and how it was answered."""

    method: str
    path: str
    """With the query: `/bucket/key?uploads`"""
    range: str
    """The header `Range`, or empty."""
    uploaded: int
    """Bytes of the request's body."""
    status: int = 0
    downloaded: int = 0
    """Bytes of the answer's body, counted before they are sent: what a client has is counted."""


@dataclass(slots=True)
class Fault:
    """What is done to the requests that it is meant for; the others go through."""

    answer: Answer | None = None
    """Given in place of the server's; the server does not see the request."""
    delay_s: float = 0.0
    cut_after: int | None = None
    """The connection ends after this many bytes of the answer's body, which promised more."""
    methods: Sequence[str] = ()
    """All, where there is none."""
    path: str = ""
    """A regular expression that is found in the path."""
    times: int | None = None
    """How many requests it is still meant for; without an end if it is None."""

    def is_for(self, method: str, path: str) -> bool:
        """Whether the request is meant."""
        return self.times != 0 and (not self.methods or method in self.methods) and bool(re.search(self.path, path))


class S3Proxy:
    """Requests and bytes that went through, and the faults of the moment."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.endpoint = ""
        self._lock = threading.Lock()
        self._exchanges: list[Exchange] = []
        self._faults: list[Fault] = []

    @property
    def exchanges(self) -> list[Exchange]:
        """All that came since the last `forget`, in that order."""
        with self._lock:
            return list(self._exchanges)

    @property
    def requests(self) -> Counter[str]:
        """How many requests came, by method."""
        return Counter(exchange.method for exchange in self.exchanges)

    @property
    def uploaded(self) -> int:
        """Bytes of the bodies of all requests."""
        return sum(exchange.uploaded for exchange in self.exchanges)

    @property
    def downloaded(self) -> int:
        """Bytes of the bodies of all answers."""
        return sum(exchange.downloaded for exchange in self.exchanges)

    def forget(self) -> None:
        """Count from zero."""
        with self._lock:
            self._exchanges.clear()

    @contextlib.contextmanager
    def fault(self, fault: Fault) -> Iterator[Fault]:
        """The fault, as long as the block is in; the newest one that is meant for a request counts."""
        with self._lock:
            self._faults.insert(0, fault)
        try:
            yield fault
        finally:
            with self._lock:
                self._faults.remove(fault)

    def take_fault(self, method: str, path: str) -> Fault:
        """The fault of one request, which is counted; one without effect where none is meant."""
        with self._lock:
            for fault in self._faults:
                if fault.is_for(method, path):
                    fault.times = fault.times and fault.times - 1
                    return fault
        return Fault()

    def add(self, exchange: Exchange) -> None:
        """Count one."""
        with self._lock:
            self._exchanges.append(exchange)


@contextlib.contextmanager
def s3_proxy(server: str) -> Iterator[S3Proxy]:
    """A proxy before the server of that endpoint, until the end."""
    proxy = S3Proxy(server)
    listener = _Listener(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": proxy}))
    proxy.endpoint = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,), name="s3-proxy")
    thread.start()
    try:
        yield proxy
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


class _Listener(ThreadingHTTPServer):
    request_queue_size = 128
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that goes away is no failure of the test."""


class _Handler(BaseHTTPRequestHandler):
    proxy: S3Proxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        address = urlsplit(self.proxy.server)
        assert address.hostname is not None
        self._server = HTTPConnection(address.hostname, address.port)

    def finish(self) -> None:
        super().finish()
        self._server.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def _exchange(self) -> None:
        fault = self.proxy.take_fault(self.command, self.path)
        body = self._body()
        self._seen = Exchange(self.command, self.path, self.headers.get("Range", ""), len(body))
        self.proxy.add(self._seen)
        time.sleep(fault.delay_s)
        if fault.answer:
            self._refuse(fault.answer)
        else:
            self._forward(body, fault.cut_after)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _exchange  # noqa: N815 — the names that the base class calls

    def _body(self) -> bytes:
        """The request's body, without the chunks of HTTP."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(pieces)

    def _refuse(self, answer: Answer) -> None:
        self._seen.status = answer.status
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self._send(answer.body)

    def _forward(self, body: bytes, cut_after: int | None) -> None:
        """Ask the server as the client did, also with its `Host`, which the client has signed."""
        self._server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                self._server.putheader(name, value)
        if body or self.command in ("PUT", "POST"):
            self._server.putheader("Content-Length", str(len(body)))
        self._server.endheaders(body or None)
        with self._server.getresponse() as response:
            self._pass_on(response, cut_after)

    def _pass_on(self, response: HTTPResponse, cut_after: int | None) -> None:
        # A body whose length the server did not say is small: a list, an error.
        whole = response.read() if response.length is None else None
        length = response.headers.get("Content-Length", "0") if whole is None else str(len(whole))
        self._seen.status = response.status
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        for block in iter(lambda: response.read(_BLOCK), b"") if whole is None else [whole]:
            if cut_after is not None and self._seen.downloaded + len(block) > cut_after:
                self._send(block[: cut_after - self._seen.downloaded])
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self._send(block)

    def _send(self, block: bytes) -> None:
        self._seen.downloaded += len(block)
        self.wfile.write(block)
