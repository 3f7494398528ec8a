"""Followers: all matches are counted exactly once, whatever is shown of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.clock import SystemClock
from headgate.errors import ConfigError, CorruptChunkError, StreamNotFoundError
from headgate.evaluate import Filter
from headgate.log import OffsetSpecification, Stream, Writer
from headgate.message import Message
from headgate.scan import ScanRequest
from headgate.server.browsing import Follower, Turn, follow
from log_streams import damage_chunk

RED = ScanRequest(filter=Filter.parse("color = 'red'"))


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with Writer.open(Stream.create(tmp_path / "s", name="orders", now_ms=0), now_ms=0) as writer:
        yield writer


def publish(writer: Writer, count: int, color: str = "red", body: bytes = b"") -> None:
    message = Message(body, application_properties={"color": color}).encode()
    writer.append([(message, None)] * count, now_ms=0)


def follower_of(writer: Writer, start: str = "next", request: ScanRequest = RED) -> Follower:
    return Follower(writer.stream, request, OffsetSpecification.parse(start), now_ms=0)


def turn_of(follower: Follower, budget_s: float = 60.0) -> Turn:
    return follower.turn(SystemClock(), budget_s)


def test_few_matches_are_all_shown_and_none_twice(writer: Writer) -> None:
    publish(writer, 5)
    follower = follower_of(writer, "3")
    seen = []
    for count in (0, 3, follow.MOST_SHOWN):
        publish(writer, count)
        publish(writer, 7, "blue")
        turn = turn_of(follower)
        assert turn.matched == len(turn.messages)
        seen += [row["offset"] for row in turn.messages]
    assert seen == [3, 4, *range(12, 15), *range(22, 22 + follow.MOST_SHOWN)]
    assert turn_of(follower).matched == 0
    follower.close()


@settings(max_examples=15, deadline=None)
@given(counts=st.lists(st.integers(1, 700), min_size=1, max_size=4), color=st.sampled_from(["red", "blue"]))
def test_a_sample_counts_exactly_what_was_published(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], color: str
) -> None:
    stream = Stream.create(tmp_path_factory.mktemp("sample") / "s", name="orders", now_ms=0)
    with Writer.open(stream, now_ms=0) as writer:
        follower = follower_of(writer)
        matched = 0
        for count in counts:
            publish(writer, count, color)
            publish(writer, 1)
            turn = turn_of(follower)
            matched += turn.matched
            offsets = [row["offset"] for row in turn.messages]
            assert len(offsets) <= follow.MOST_SHOWN and sorted(set(offsets)) == offsets
            assert len(offsets) > follow.MOST_SHOWN // 2 or len(offsets) == turn.matched
        assert matched == len(counts) + (sum(counts) if color == "red" else 0)
        follower.close()


def test_a_sample_is_spread_evenly_over_all_that_a_turn_reads(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    # A look goes over one chunk.
    monkeypatch.setattr("headgate.scan.cursor.WINDOW_BYTES", 1)
    for count in (33, 90, 7, 150, 61):
        publish(writer, count)
    turn = turn_of(follower := follower_of(writer, "first"))
    assert [row["offset"] for row in turn.messages] == list(range(0, turn.matched, 4))
    follower.close()


def test_what_a_stream_declares_later_spares_reading_too(tmp_path: Path) -> None:
    source = "application_properties.color"
    stream = Stream.create(tmp_path / "s", name="orders", now_ms=0, filter_source=source)
    blue = Message(b"", application_properties={"color": "blue"}).encode()
    red = Message(b"", application_properties={"color": "red"}).encode()
    with Writer.open(stream, now_ms=0) as writer:
        follower = follower_of(writer)
        for count in range(3):
            writer.append([(red, b"red")], now_ms=0, filter_source=source)
            writer.append([(blue, b"blue")] * 10, now_ms=0, filter_source=source)
            turn = turn_of(follower)
            assert turn.matched == 1 and turn.counters.chunks_examined == 2 * (count + 1)
            assert turn.counters.messages_matched == count + 1
            assert turn.messages[0]["filter_value"] == "red"
        assert turn.counters.chunks_skipped == 2
        follower.close()


def test_what_is_shown_is_limited_in_bytes(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "SHOWN_BYTES", 2_000)
    follower = follower_of(writer)
    publish(writer, 20, body=b"x" * 300)
    turn = turn_of(follower)
    assert turn.matched == 20 and 2 <= len(turn.messages) <= 6
    publish(writer, 1, body=b"x" * 9_000)
    assert len(turn_of(follower).messages) == 1
    follower.close()


def test_a_turn_ends_in_time_and_the_next_goes_on(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    # A look goes over one chunk.
    monkeypatch.setattr("headgate.scan.cursor.WINDOW_BYTES", 1)
    for _ in range(4):
        publish(writer, 10)
    follower = follower_of(writer, "first")
    turns = [turn_of(follower, 0.0) for _ in range(4)]
    assert [turn.matched for turn in turns] == [10] * 4 and turns[-1].next_offset == 40
    follower.close()


def test_damage_and_deletion_end_it(writer: Writer) -> None:
    for _ in range(3):
        publish(writer, 10)
    damage_chunk(writer.stream, 1, 60)
    follower = follower_of(writer, "first")
    assert turn_of(follower, 0.0).matched == 10
    with pytest.raises(CorruptChunkError):
        turn_of(follower)
    with pytest.raises(ConfigError, match="behind the end"):
        follower_of(writer, "31")
    gone = follower_of(writer)
    writer.close()
    shutil.rmtree(writer.stream.path)
    with pytest.raises(StreamNotFoundError):
        turn_of(gone)
    follower.close()
    gone.close()


def test_a_closed_follower_reads_nothing(writer: Writer) -> None:
    publish(writer, 1)
    follower = follower_of(writer, "first")
    follower.close()
    assert turn_of(follower).matched == 0
