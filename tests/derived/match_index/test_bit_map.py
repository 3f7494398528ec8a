"""RocketMQ's filter bit map: parameters, hashes, positions and arrays, as recorded from the original."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.derived.match_index import BitMapParameters, has_positions, low_hash
from headgate.errors import ConfigError
from recordings import lines_of

ROWS = lines_of("rocketmq_bloom")


def rows(kind: str) -> list[dict]:
    found = [row for row in ROWS if row["kind"] == kind]
    assert found
    return found


def parameters(row: dict) -> BitMapParameters:
    return BitMapParameters.of(expected_consumers=row["n"], max_error_rate_percent=row["f"])


def test_parameters() -> None:
    for row in rows("params"):
        assert parameters(row) == BitMapParameters(row["k"], row["m"])
    for row in rows("params_error"):
        with pytest.raises(ConfigError) as refused:
            parameters(row)
        assert str(refused.value) == row["error"].rpartition(": ")[2]
    with pytest.raises(ConfigError, match="n must be at most"):
        parameters({"f": 20, "n": 10**400})


def test_hashes_and_positions() -> None:
    for row in rows("hash"):
        assert f"{low_hash(row['s']):016x}" == row["murmur3_128_low64_hex"]
    for row in rows("pos"):
        assert list(parameters(row).positions(row["s"])) == row["pos"]


def test_arrays() -> None:
    for row in rows("bitsarray"):
        array = np.frombuffer(bytes.fromhex(row["bytes_hex"]), dtype=np.uint8)[None, :]
        found = [place for place in range(row["bit_length"]) if has_positions(array, [place])[0]]
        assert found == sorted(set(row["set"]))
    for row in rows("bits"):
        bits = parameters(row)
        asked = np.frombuffer(bytes.fromhex(row["bytes_hex"]), dtype=np.uint8)[None, :]
        strings = [each["s"] for each in rows("pos") if (each["f"], each["n"]) == (row["f"], row["n"])]
        assert [text for text in strings if has_positions(asked, bits.positions(text))[0]] == row["hits"]
