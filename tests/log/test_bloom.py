from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.log import BloomMatcher, bloom_bytes
from headgate.log.bloom import bit_positions, false_positive_rate, fill_ratio

VALUES = st.sampled_from([b"", b"a", b"b", b"order.created", "日本".encode(), b"x" * 300]) | st.binary(max_size=30)
SIZES = st.sampled_from([16, 17, 64, 200, 255])


@given(st.lists(VALUES | st.none(), max_size=20), SIZES)
def test_a_chunk_passes_for_every_value_in_it(values: list[bytes | None], size: int) -> None:
    bloom = bloom_bytes(values, size)
    for value in values:
        assert BloomMatcher([value or b""], match_unfiltered=False).matches(bloom)
    if any(not value for value in values):
        assert BloomMatcher([b"something else"], match_unfiltered=True).matches(bloom)


@given(
    st.lists(st.tuples(st.lists(VALUES, max_size=6), SIZES), max_size=30), st.sets(VALUES, min_size=1), st.booleans()
)
def test_matching_many_chunks_of_any_sizes_equals_matching_each(
    chunks: list[tuple[list[bytes], int]], wanted: set[bytes], match_unfiltered: bool
) -> None:
    blooms = [bloom_bytes(values, size) for values, size in chunks]
    matcher = BloomMatcher(wanted, match_unfiltered=match_unfiltered)
    data = np.frombuffer(b"gap".join([b"", *blooms, b""]), dtype=np.uint8)
    lengths = np.array([len(bloom) for bloom in blooms], dtype=np.int64)
    positions = np.cumsum(lengths + 3) - lengths
    assert matcher.match_many(data, positions, lengths).tolist() == [matcher.matches(bloom) for bloom in blooms]


@pytest.mark.parametrize("chunks", [1, 63, 64, 200])
@pytest.mark.parametrize("match_unfiltered", [False, True])
def test_many_wanted_values_over_few_or_many_chunks_pass_the_same_chunks_as_one_by_one(
    chunks: int, match_unfiltered: bool
) -> None:
    blooms = [
        bloom_bytes([b"value %d" % (7 * number), None if number % 5 == 0 else b"x"], 16) for number in range(chunks)
    ]
    matcher = BloomMatcher([b"value %d" % number for number in range(0, 300, 3)], match_unfiltered=match_unfiltered)
    data = np.frombuffer(b"".join(blooms), dtype=np.uint8)
    found = matcher.match_many(data, np.arange(chunks) * 16, np.full(chunks, 16))
    assert found.tolist() == [matcher.matches(bloom) for bloom in blooms]
    assert chunks == 1 or 0 < found.sum() < chunks


def test_only_unfiltered_messages_leave_no_bloom_bytes() -> None:
    assert bloom_bytes([None, b"", None], 16) == b""
    assert bloom_bytes([], 16) == b""


def test_unfiltered_messages_beside_others_set_the_first_bit() -> None:
    assert bloom_bytes([b"AMER", None], 16)[0] & 0x80
    assert not bloom_bytes([b"AMER"], 16)[0] & 0x80


def test_a_chunk_without_bloom_bytes_is_skipped_unless_unfiltered_messages_are_wanted() -> None:
    assert not BloomMatcher(["AMER"], match_unfiltered=False).matches(b"")
    assert BloomMatcher(["AMER"], match_unfiltered=True).matches(b"")
    assert BloomMatcher([""], match_unfiltered=False).matches(b"")


def test_wanting_the_empty_value_is_wanting_unfiltered_messages() -> None:
    matcher = BloomMatcher(["", "AMER"], match_unfiltered=False)
    assert matcher.match_unfiltered
    assert matcher.values == (b"AMER",)
    assert matcher.matches(bloom_bytes([b"EMEA", None], 16))
    assert not matcher.matches(bloom_bytes([b"EMEA"], 255))


def test_a_matcher_survives_pickling() -> None:
    for matcher in (BloomMatcher(["a", ""], match_unfiltered=False), BloomMatcher([""], match_unfiltered=False)):
        copy = pickle.loads(pickle.dumps(matcher))
        assert (copy.values, copy.match_unfiltered) == (matcher.values, matcher.match_unfiltered)


def test_wanting_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="no filter value is wanted"):
        BloomMatcher([], match_unfiltered=True)


def test_bloom_bytes_outside_the_buffer_are_an_index_error() -> None:
    matcher = BloomMatcher(["a"], match_unfiltered=False)
    with pytest.raises(IndexError):
        matcher.match_many(np.zeros(20, dtype=np.uint8), np.array([10]), np.array([16]))


@pytest.mark.parametrize(("values", "size", "percent"), [(10, 16, 2), (30, 16, 14), (200, 128, 10)])
def test_false_positive_rates_are_those_of_the_documentation(values: int, size: int, percent: int) -> None:
    assert round(100 * false_positive_rate(values, size)) == percent


def test_the_estimated_rate_of_false_positives_is_the_observed_one() -> None:
    hits = 0
    for group in range(200):
        bloom = bloom_bytes([b"in-%d-%d" % (group, number) for number in range(30)], 16)
        hits += sum(
            BloomMatcher([b"out-%d-%d" % (group, number)], match_unfiltered=False).matches(bloom)
            for number in range(20)
        )
    assert hits / 4000 == pytest.approx(false_positive_rate(30, 16), abs=0.03)


def test_the_share_of_set_bits() -> None:
    assert fill_ratio(b"") == 0.0
    assert fill_ratio(b"\xf0\x00") == 0.25


@given(st.binary(min_size=1, max_size=60), SIZES)
def test_a_value_never_sets_the_bit_of_unfiltered_messages(value: bytes, size: int) -> None:
    first, second = bit_positions(value, size)
    assert 1 <= first < 8 * size
    assert 1 <= second < 8 * size
