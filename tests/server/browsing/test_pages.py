"""Bounded reads: every message that passes exactly once over all pages, in time, past what is remote or damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.clock import SystemClock
from headgate.errors import ConfigError, CorruptChunkError
from headgate.evaluate import Filter
from headgate.log import OffsetSpecification, Stream, Writer
from headgate.message import Message
from headgate.scan import OnCorrupt, ScanRequest
from headgate.server.browsing import Budget, Page, browse, pages
from log_streams import damage_chunk
from remote_streams import move, new_stream

CHUNKS, IN_CHUNK = 20, 10
TOTAL = CHUNKS * IN_CHUNK
AMPLE = Budget(rows=500, seconds=60.0, messages=10**9)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    stream = Stream.create(tmp_path / "s", name="orders", now_ms=0)
    with Writer.open(stream, now_ms=0) as writer:
        for chunk in range(CHUNKS):
            numbers = range(chunk * IN_CHUNK, (chunk + 1) * IN_CHUNK)
            messages = [Message(b"b", application_properties={"n": number % 7}).encode() for number in numbers]
            writer.append([(message, None) for message in messages], now_ms=1_000 * chunk)
    return stream


def page_of(stream: Stream, start: str | int = "first", budget: Budget = AMPLE, **request: Any) -> Page:
    place = OffsetSpecification.parse(str(start))
    return browse(stream, ScanRequest(**request), place, budget, now_ms=10**9, clock=SystemClock())


def all_pages(stream: Stream, budget: Budget, **request: Any) -> Iterator[Page]:
    page = page_of(stream, "first", budget, **request)
    yield page
    while not page.is_end:
        before = page.end_offset
        page = page_of(stream, before, budget, **request)
        assert page.end_offset > before or page.is_end
        yield page


def offsets(page: Page) -> list[int]:
    return [row["offset"] for row in page.messages]


@pytest.mark.parametrize("rows", [1, 7, IN_CHUNK, TOTAL])
def test_pages_have_every_match_once_whatever_their_size(stream: Stream, rows: int) -> None:
    found = list(all_pages(stream, Budget(rows, 60.0, 10**9), filter=Filter.parse("n = 3")))
    assert [offset for page in found for offset in offsets(page)] == [n for n in range(TOTAL) if n % 7 == 3]
    assert all(len(page.messages) == rows for page in found[:-1]) and found[-1].is_end


def test_a_page_that_ends_with_the_stream_says_so(stream: Stream) -> None:
    page = page_of(stream, TOTAL - 5, Budget(5, 60.0, 10**9))
    assert (len(page.messages), page.is_end, page.end_offset) == (5, True, TOTAL)
    assert page_of(stream, "next").is_end and page_of(stream, TOTAL).messages == []
    with pytest.raises(ConfigError, match="behind the end"):
        page_of(stream, TOTAL + 1)


def test_a_rare_message_is_found_over_several_pages(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    # A look goes over one chunk.
    monkeypatch.setattr("headgate.scan.cursor.WINDOW_BYTES", 1)
    for budget in (Budget(500, 0.0, 10**9), Budget(500, 60.0, 1)):
        found = list(all_pages(stream, budget, filter=Filter.parse(f"n = 3 AND n = {TOTAL}")))
        assert len(found) > 2 and sum(page.counters.messages_decided for page in found) == TOTAL
        assert not any(page.messages for page in found)


def test_a_page_is_limited_in_bytes_and_never_empty_for_it(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES", 1)
    assert [offset for page in all_pages(stream, AMPLE) for offset in offsets(page)] == list(range(TOTAL))


def test_filter_values_are_those_of_the_source_that_was_declared_meanwhile(tmp_path: Path) -> None:
    source = "application_properties.color"
    opened = Stream.create(tmp_path / "t", name="colors", now_ms=0, filter_source=source)
    with Writer.open(opened, now_ms=0) as writer:
        red = Message(b"", application_properties={"color": "red"}).encode()
        writer.append([(red, b"red")], now_ms=0, filter_source=source)
        assert [row["filter_value"] for row in page_of(opened).messages] == ["red"]


def test_places_are_those_of_the_log(stream: Stream) -> None:
    assert offsets(page_of(stream, "last"))[0] == TOTAL - IN_CHUNK
    assert offsets(page_of(stream, "1970-01-01T00:00:05Z"))[0] == 5 * IN_CHUNK


def test_damage_ends_a_page_at_its_offset_and_can_be_passed_over(stream: Stream) -> None:
    damage_chunk(stream, 3, 60)
    page = page_of(stream)
    assert offsets(page) == list(range(3 * IN_CHUNK)) and isinstance(page.error, CorruptChunkError)
    again = page_of(stream, page.end_offset)
    assert (again.messages, again.end_offset) == ([], 3 * IN_CHUNK) and again.error is not None
    skipped = page_of(stream, on_corrupt=OnCorrupt.SKIP)
    assert len(skipped.messages) == TOTAL - IN_CHUNK and skipped.counters.chunks_corrupt == 1


@pytest.mark.usefixtures("remote_cache")
def test_segments_in_object_storage_are_read_as_others(tmp_path: Path) -> None:
    with new_stream(tmp_path / "s", f"file://{tmp_path}/remote", parts=8) as writer:
        before = offsets(page_of(writer.stream))
        assert move(writer) > 0
        assert offsets(page_of(writer.stream)) == before and len(before) == 80
