"""Frames of STOMP: escapes by version, bodies with and without length, line ends, limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import RemoteProtocolError
from headgate.protocols.stomp.frames import MAX_HEADER_BYTES, Frame, FrameReader, Version, encode_frame


def read(data: bytes, *, version: Version = Version.V1_2, size: int | None = None, limit: int = 1000) -> list[Frame]:
    """All frames of the bytes, given in pieces of `size`."""
    reader = FrameReader(max_body_bytes=limit)
    reader.version = version
    frames = []
    step = size or max(1, len(data))
    for at in range(0, len(data), step):
        reader.add(data[at : at + step])
        while (frame := reader.next()) is not None:
            frames.append(frame)
    return frames


FRAMES = (
    b"SEND\ndestination:/queue/orders\ncontent-length:5\n\na\0b\0c\0\n\n"
    b"SEND\r\ndestination:/queue/orders\r\n\r\nno length\0\r\n"
    b"UNSUBSCRIBE\nid:1\n\n\0SEND\n\n\0\n"
)


@pytest.mark.parametrize("size", [None, 1, 2, 3, 7])
def test_frames_are_the_same_in_any_cut(size):
    assert read(FRAMES, size=size) == [
        Frame("SEND", {"destination": "/queue/orders", "content-length": "5"}, b"a\0b\0c"),
        Frame("SEND", {"destination": "/queue/orders"}, b"no length"),
        Frame("UNSUBSCRIBE", {"id": "1"}),
        Frame("SEND", {}),
    ]


@pytest.mark.parametrize(
    ("version", "line", "expected"),
    [
        (Version.V1_0, r"a:x\n\c\\", r"x\n\c\\"),
        (Version.V1_0, "a:   x ", "x "),
        (Version.V1_1, r"a:x\n\c\\", "x\n:\\"),
        (Version.V1_1, "a: x", " x"),
        (Version.V1_2, r"a:\r\n", "\r\n"),
        (Version.V1_2, r"a:\\n", r"\n"),
        (Version.V1_2, "a:b:c", "b:c"),
        (Version.V1_2, "a:é", "é"),
    ],
)
def test_headers_are_unescaped_by_version(version, line, expected):
    [frame] = read(f"SEND\n{line}\n\n\0".encode(), version=version)
    assert frame.headers == {"a": expected}


def test_frames_that_open_a_connection_are_not_escaped():
    [frame] = read(b"CONNECT\npasscode:a\\nb\n\n\0")
    assert frame.headers == {"passcode": "a\\nb"}


@pytest.mark.parametrize(
    ("version", "line"),
    [(Version.V1_1, r"a:\r"), (Version.V1_1, r"a:\t"), (Version.V1_2, "a:\\"), (Version.V1_2, r"\x:b")],
)
def test_undefined_escapes_are_refused(version, line):
    with pytest.raises(RemoteProtocolError, match="undefined escape"):
        read(f"SEND\n{line}\n\n\0".encode(), version=version)


def test_of_equal_names_the_first_counts():
    assert read(b"SEND\na:1\na:2\n\n\0")[0].headers == {"a": "1"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"SEND\nno colon\n\n\0", "a header without value"),
        (b"SEND\ncontent-length:x\n\n\0", "content-length is 'x'"),
        (b"SEND\ncontent-length:-1\n\n\0", "content-length is '-1'"),
        (b"SEND\ncontent-length:2\n\nabc\0", "no NUL behind a body of 2 bytes, found 0x63"),
        (b"SEND\ncontent-length:1001\n\n", "a body of more than 1000 bytes"),
        (b"SEND\n\n" + b"x" * 1001, "a body of more than 1000 bytes"),
        (b"SEND\n" + b"".join(b"h%d:x\n" % number for number in range(101)) + b"\n\0", "more than 100 headers"),
        (b"x" * (MAX_HEADER_BYTES + 1), "headers of more than"),
        (b"SEND\na:" + b"x" * MAX_HEADER_BYTES + b"\n\n\0", "headers of more than"),
    ],
)
def test_what_is_no_frame_is_refused(data, reason):
    with pytest.raises(RemoteProtocolError, match=reason):
        read(data)


_texts = st.text(max_size=12) | st.sampled_from((":", "\n", "\r", "\\", "a:b\\c\nd\re", " x "))


@given(
    st.sampled_from(("SEND", "MESSAGE")),
    st.dictionaries(_texts.filter(lambda name: name != "content-length"), _texts, max_size=5),
    st.binary(max_size=50),
    st.integers(1, 10),
)
def test_what_is_written_is_what_is_read(command, headers, body, size):
    encoded = encode_frame(command, headers.items(), body, Version.V1_2)
    [frame] = read(encoded, size=size)
    length = {"content-length": str(len(body))} if body else {}
    assert frame == Frame(command, {**headers, **length}, body)


@pytest.mark.parametrize("version", list(Version))
def test_a_value_never_ends_its_header(version):
    encoded = encode_frame("MESSAGE", [("a", "x\nforged:y\r\n\n\0")], b"", version)
    assert encoded.count(b"\n") == 4
    # NUL is allowed inside of a header: only the one behind the empty line ends the frame.
    [frame] = read(encoded, version=version)
    assert list(frame.headers) == ["a"]


@given(st.binary(max_size=100), st.sampled_from(list(Version)), st.integers(1, 100))
def test_any_bytes_are_frames_or_refused_in_any_cut(octets, version, size):
    def outcome(step):
        try:
            return read(octets, version=version, size=step, limit=50)
        except RemoteProtocolError:
            return "refused"

    assert outcome(size) == outcome(None)
