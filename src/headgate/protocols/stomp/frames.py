"""Frames of STOMP 1.0 to 1.2.

    command LF, header lines `name:value` LF, an empty line, the body, NUL; between frames any number of line feeds

A line may end with CR LF. With a header `content-length` the body may hold NUL. In names and values of headers `\\n`,
`\\c`, `\\\\` stand for a line feed, a colon, a backslash (from 1.1), and `\\r` for a carriage return (from 1.2); frames
that open a connection are not escaped. Of equal names the first counts. Text is UTF-8; other bytes become
surrogate escapes.

Source: the STOMP specifications, versions 1.0, 1.1 and 1.2.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping

import msgspec

from headgate.errors import RemoteProtocolError

MAX_HEADERS = 100
MAX_HEADER_BYTES = 65_536
"""Of a frame's command and headers."""

CONTENT_LENGTH = "content-length"


class Version(enum.StrEnum):
    """Versions of the protocol, the older first."""

    V1_0 = "1.0"
    V1_1 = "1.1"
    V1_2 = "1.2"


class Frame(msgspec.Struct, frozen=True):
    """A frame of any command."""

    command: str
    headers: dict[str, str]
    body: bytes = b""


_UNESCAPED_FRAMES = frozenset({"CONNECT", "STOMP", "CONNECTED"})
_HEADERS_END = re.compile(rb"\n\r?\n")
_LINE_FEEDS = re.compile(rb"(?:\r?\n)*")
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_ESCAPES: dict[Version, dict[str, str]] = {
    Version.V1_0: {},
    Version.V1_1: {"n": "\n", "c": ":", "\\": "\\"},
    Version.V1_2: {"n": "\n", "c": ":", "\\": "\\", "r": "\r"},
}


class FrameReader:
    """Bytes in, frames out. `version`, and `max_body_bytes`, the limit of a body, count for the frames to come."""

    __slots__ = ("_buffer", "_frame", "_length", "_searched", "max_body_bytes", "version")

    def __init__(self, *, max_body_bytes: int) -> None:
        self.version = Version.V1_0
        self.max_body_bytes = max_body_bytes
        self._buffer = bytearray()
        self._searched = 0
        """The number of bytes already searched without finding the end."""
        self._frame: tuple[str, dict[str, str]] | None = None
        """The frame whose body is still incomplete."""
        self._length: int | None = None

    def add(self, data: bytes | memoryview) -> None:
        """More bytes."""
        self._buffer += data

    def clear(self) -> None:
        """Drop the unread bytes."""
        self._buffer.clear()
        self._frame = None

    def next(self) -> Frame | None:
        """The next whole frame; None if more bytes are needed. Raises RemoteProtocolError for an invalid one."""
        if self._frame is None and not self._read_headers():
            return None
        return self._read_body()

    def _read_headers(self) -> bool:
        buffer = self._buffer
        feeds = _LINE_FEEDS.match(buffer)
        if feeds is not None and feeds.end():
            del buffer[: feeds.end()]
            self._searched = 0
        end = _HEADERS_END.search(buffer, max(0, self._searched - 2))
        if end is None:
            self._searched = len(buffer)
            if len(buffer) > MAX_HEADER_BYTES:
                raise RemoteProtocolError(f"headers of more than {MAX_HEADER_BYTES} bytes")
            return False
        if end.start() > MAX_HEADER_BYTES:
            raise RemoteProtocolError(f"headers of more than {MAX_HEADER_BYTES} bytes")
        lines = [_text(line.removesuffix(b"\r")) for line in bytes(buffer[: end.start()]).split(b"\n")]
        command = lines[0]
        headers = self._headers(command, lines[1:])
        del buffer[: end.end()]
        self._searched = 0
        self._length = self._content_length(headers)
        self._frame = (command, headers)
        return True

    def _headers(self, command: str, lines: list[str]) -> dict[str, str]:
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise RemoteProtocolError(f"a header without value: {line[:60]!r}")
            if self.version is Version.V1_0:
                value = value.lstrip(" ")
            if command not in _UNESCAPED_FRAMES:
                name, value = self._unescaped(name), self._unescaped(value)
            headers.setdefault(name, value)
            if len(headers) > MAX_HEADERS:
                raise RemoteProtocolError(f"more than {MAX_HEADERS} headers")
        return headers

    def _unescaped(self, text: str) -> str:
        if "\\" not in text or self.version is Version.V1_0:
            return text
        escapes = _ESCAPES[self.version]

        def replaced(match: re.Match[str]) -> str:
            if match[1] not in escapes:
                raise RemoteProtocolError(f"undefined escape {match[0]!r} in a header")
            return escapes[match[1]]

        return _ESCAPE.sub(replaced, text)

    def _content_length(self, headers: Mapping[str, str]) -> int | None:
        text = headers.get(CONTENT_LENGTH)
        if text is None:
            return None
        digits = text.strip()
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
            raise RemoteProtocolError(f"{CONTENT_LENGTH} is {text[:60]!r}; expected a number of bytes")
        self._check_size(int(digits))
        return int(digits)

    def _check_size(self, size: int) -> None:
        if size > self.max_body_bytes:
            raise RemoteProtocolError(f"a body of more than {self.max_body_bytes} bytes")

    def _read_body(self) -> Frame | None:
        assert self._frame is not None
        buffer = self._buffer
        if self._length is None:
            stop = buffer.find(0, self._searched)
            if stop < 0:
                self._searched = len(buffer)
                self._check_size(len(buffer))
                return None
            self._check_size(stop)
        else:
            stop = self._length
            if len(buffer) <= stop:
                return None
            if buffer[stop]:
                raise RemoteProtocolError(f"no NUL behind a body of {stop} bytes, found {buffer[stop]:#04x}")
        body = bytes(buffer[:stop])
        del buffer[: stop + 1]
        command, headers = self._frame
        self._frame = None
        self._searched = 0
        return Frame(command, headers, body)


def _text(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogateescape")


_OUTGOING: dict[Version, dict[int, str]] = {
    # 1.0 has no escapes; line ends would end the header, so they are written as 1.2 does.
    Version.V1_0: {ord("\n"): "\\n", ord("\r"): "\\r"},
    Version.V1_1: {ord("\n"): "\\n", ord(":"): "\\c", ord("\\"): "\\\\"},
    Version.V1_2: {ord("\n"): "\\n", ord(":"): "\\c", ord("\\"): "\\\\", ord("\r"): "\\r"},
}


def encode_frame(command: str, headers: Iterable[tuple[str, str]], body: bytes, version: Version) -> bytes:
    """A frame with its content length, and a line feed behind it."""
    lines = _lines(headers, {} if command in _UNESCAPED_FRAMES else _OUTGOING[version])
    return join_frame(command.encode(), lines, body)


def encode_headers(headers: Iterable[tuple[str, str]], version: Version) -> bytes:
    """The lines of headers, for frames that `join_frame` makes."""
    return _lines(headers, _OUTGOING[version])


def join_frame(command: bytes, lines: bytes, body: bytes) -> bytes:
    """A frame of encoded headers; the content length comes after them, and a line feed behind the frame."""
    if not body:
        return b"%b\n%b\n\x00\n" % (command, lines)
    return b"%b\n%b%b:%d\n\n%b\x00\n" % (command, lines, CONTENT_LENGTH.encode(), len(body), body)


def _lines(headers: Iterable[tuple[str, str]], escapes: Mapping[int, str]) -> bytes:
    lines = [f"{_escaped(name, escapes)}:{_escaped(value, escapes)}\n" for name, value in headers]
    return "".join(lines).encode("utf-8", "surrogateescape")


def _escaped(text: str, escapes: Mapping[int, str]) -> str:
    # Line ends are not printable. Most texts have nothing to escape, and three looks cost less than one translation.
    if text.isprintable() and ":" not in text and "\\" not in text:
        return text
    return text.translate(escapes)
