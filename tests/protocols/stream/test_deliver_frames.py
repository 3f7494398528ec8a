"""Deliver frames for chunks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunks import encode_chunk
from headgate.errors import RemoteProtocolError
from headgate.log.format import ChunkHeader
from headgate.protocols.stream import deliver_frames
from headgate.protocols.stream.deliver_frames import Deliver, decode_deliver, encode_deliver


def test_a_chunk_goes_out_without_its_bloom_filter_and_trailer() -> None:
    stored = encode_chunk([b"one", b"two"], [b"a", None], filter_size_bytes=16, trailer=b"trailer")
    header = ChunkHeader.decode(stored[:48], path="", position=0)
    assert (header.bloom_length, header.trailer_length) == (16, 7)
    pieces = encode_deliver(
        9,
        np.frombuffer(stored, dtype=np.uint8),
        header_starts=np.array([0]),
        data_starts=np.array([48 + 16]),
        data_lengths=np.array([header.data_length]),
        committed_chunk_id=77,
        version=1,
    )
    frame = b"".join(pieces)
    assert bytes(frame[:9]) == bytes.fromhex("0000004300080001") + b"\x09"
    assert bytes(frame[9:57]) == stored[:48]
    assert bytes(frame[57:]) == stored[64 : 64 + header.data_length]
    assert decode_deliver(bytes(frame[4:])) == Deliver(9, None, bytes(frame[9:]))


@given(st.lists(st.binary(max_size=30), max_size=7), st.integers(0, 255), st.sampled_from([1, 2]))
def test_the_kernel_and_views_give_what_python_writes(datas: list[bytes], number: int, version: int) -> None:
    chunks = [encode_chunk([data], [None], filter_size_bytes=16) for data in datas]
    starts = np.cumsum([0] + [len(chunk) + 5 for chunk in chunks])[:-1].astype(np.int64)
    data = np.frombuffer(b"".join(chunk + b"gap.." for chunk in chunks), dtype=np.uint8)
    written = []
    for kernel_from, views_from in ((0, 2**40), (2**40, 2**40), (0, 0)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(deliver_frames, "_KERNEL_FROM_CHUNKS", kernel_from)
            patch.setattr(deliver_frames, "_VIEWS_FROM_BYTES", views_from)
            frames = encode_deliver(
                number,
                data,
                header_starts=starts,
                data_starts=starts + 48,
                data_lengths=np.array([len(chunk) - 48 for chunk in chunks], dtype=np.int64),
                committed_chunk_id=2**40,
                version=version,
            )
            written.append(b"".join(frames))
    assert written[0] == written[1] == written[2]
    read = []
    rest = written[0]
    while rest:
        size = int.from_bytes(rest[:4], "big")
        read.append(decode_deliver(rest[4 : 4 + size]))
        rest = rest[4 + size :]
    assert read == [Deliver(number, 2**40 if version == 2 else None, chunk) for chunk in chunks]


@pytest.mark.parametrize(
    "body",
    [
        "0008 0001",
        "0008 0003 00" + "00" * 60,
        "0008 0001 00" + "00" * 47,
        "0008 0001 00" + "00" * 49,
        "0008 0002 00" + "00" * 55,
    ],
)
def test_a_delivery_that_is_not_exactly_one_chunk_is_refused(body: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_deliver(bytes.fromhex(body))
