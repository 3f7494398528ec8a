from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import kernels
from headgate.log.checksums import first_mismatch


@pytest.fixture(params=["kernel", "standard library"])
def _engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "standard library":
        monkeypatch.setattr(kernels, "load", lambda _module: None)


@given(content=st.binary(max_size=700), start=st.integers(0, 20))
def test_the_checksum_of_any_bytes_is_that_of_the_standard_library(content: bytes, start: int) -> None:
    data = np.frombuffer(bytes(start) + content + bytes(8), dtype=np.uint8)
    starts, sizes = np.array([start]), np.array([len(content)])
    assert first_mismatch(data, starts, sizes, np.array([zlib.crc32(content)])) is None
    assert first_mismatch(data, starts, sizes, np.array([zlib.crc32(content) ^ 1])) == 0


@pytest.mark.usefixtures("_engine")
def test_the_first_of_several_wrong_ranges_is_named() -> None:
    data = np.arange(1000, dtype=np.int64).astype(np.uint8)
    starts, sizes = np.array([0, 100, 300, 600]), np.array([100, 200, 300, 64])
    expected = np.array([zlib.crc32(data[a : a + n].tobytes()) for a, n in zip(starts, sizes, strict=True)])
    assert first_mismatch(data, starts, sizes, expected) is None
    expected[[2, 3]] ^= 4
    assert first_mismatch(data, starts, sizes, expected) == 2
