"""Which message is meant: by offset, by id of any type, by a filter; and what is said where none or several are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import headgate
from brokers import SetClock
from headgate.derived.lookup import LOOKUP_FILES, declare_lookup
from headgate.errors import (
    ConfigError,
    FilterError,
    PreconditionFailedError,
    ResourceNotFoundError,
    StreamNotFoundError,
)
from headgate.log import Stream, StreamArguments, Writer, stream_folder
from headgate.message import Message
from headgate.trace import Question, Selector, ask, streams_of
from headgate.trace.search import MOST_ID_CHARACTERS, MOST_LISTED
from log_streams import quick_folder
from questions import LabClock, asked

UUID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
IDS = ["a", "b", 77, UUID, b"raw", "b", None, str(uuid.UUID(int=5)), 2**63, 2**64 - 1, b"\xff\x00"]


def message(identity: object, **properties: object) -> bytes:
    return Message(b"b", message_id=identity, application_properties=properties or None).encode()


def stream_of(root: Path, messages: list[bytes], *, name: str = "orders", **arguments: int) -> Stream:
    """A stream with these messages, each in a chunk of its own."""
    folder = stream_folder(root, name)
    stream = Stream.create(folder, name=name, now_ms=0, arguments=StreamArguments(**arguments))
    with Writer.open(stream, now_ms=0) as writer:
        for number, each in enumerate(messages):
            writer.append([(each, None)], now_ms=number)
    return Stream.open(folder)


@pytest.fixture
def root() -> Iterator[Path]:
    with quick_folder() as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        *(("a", 0), ("77", 2), (str(UUID), 3), (UUID.hex, 3), (IDS[7], 7), (str(2**63), 8), (str(2**64 - 1), 9)),
        *((b"raw".hex(), 4), (b"\xff\x00".hex(), 10)),
    ],
)
def test_ids_of_every_type_are_found(root: Path, text: str, offset: int) -> None:
    stream_of(root, [message(each) for each in IDS])
    found = asked(root, SetClock(), id=text)
    assert found.message is not None
    assert found.message.offset == offset
    assert found.consumers == ()


def test_an_id_is_found_up_to_a_length_and_a_longer_one_is_refused_as_an_id(root: Path) -> None:
    longest = "x" * MOST_ID_CHARACTERS
    stream_of(root, [message(longest)])
    found = asked(root, SetClock(), id=longest).message
    assert found is not None
    with pytest.raises(ConfigError, match="id: found 4001 characters"):
        asked(root, SetClock(), id=longest + "x")


def test_the_digits_of_a_binary_id_mean_no_text_of_the_same_bytes(root: Path) -> None:
    stream_of(root, [message("raw")])
    with pytest.raises(ResourceNotFoundError):
        asked(root, SetClock(), id=b"raw".hex())


def test_an_ambiguous_id_lists_its_messages_and_no_more_than_some(root: Path) -> None:
    stream_of(root, [message(each) for each in IDS])
    with pytest.raises(PreconditionFailedError, match=r"2 messages .*: 5 \(.*\), 1 \("):
        asked(root, SetClock(), id="b")
    stream_of(root, [message("x")] * (MOST_LISTED + 5), name="many")
    with pytest.raises(PreconditionFailedError, match="at least") as error:
        asked(root, SetClock(), "many", id="x")
    assert error.value.reason.count("(1970") == MOST_LISTED


def test_a_message_that_is_not_there_says_how_much_was_searched(root: Path) -> None:
    stream_of(root, [message(each) for each in IDS])
    for by in ({"id": "zzz"}, {"id": str(uuid.UUID(int=9))}, {"where": "x = 7"}):
        with pytest.raises(ResourceNotFoundError, match=f"all offsets .*, {len(IDS)} from 0 on"):
            asked(root, SetClock(), **by)


def test_a_filter_finds_the_message_that_it_selects_alone(root: Path) -> None:
    stream_of(root, [message(None, size=size) for size in range(9)])
    found = asked(root, SetClock(), where="size > 7")
    assert (found.message.offset if found.message else None, found.search.messages_examined) == (8, 9)
    with pytest.raises(FilterError):
        asked(root, SetClock(), where="size >")


def test_a_lookup_field_spares_reading_and_is_named(root: Path) -> None:
    each = 5_000
    stream = stream_of(root, [], max_segment_chunks=2)
    with Writer.open(stream, now_ms=0) as writer:
        for first in range(0, 4 * each, each):
            writer.append([(message(f"m-{first + number}"), None) for number in range(each)], now_ms=0)
    declare_lookup(stream, ["properties.message_id"])
    assert list(LOOKUP_FILES.build(stream, now_ms=0))
    found = asked(root, SetClock(), id=f"m-{each + 17}")
    assert found.message is not None and found.message.offset == each + 17
    assert found.search.using == ("lookup",)
    # The newest segment has no file: it is read, and of the others one block.
    assert found.search.messages_examined < 3 * each


def test_looking_ends_after_its_time_and_says_so(root: Path) -> None:
    stream_of(root, [message(each) for each in IDS])
    question = Question("orders", Selector(id="a"), budget_s=0.0)
    with pytest.raises(ResourceNotFoundError, match="the time was over"):
        ask(question, streams_of("orders", root), root, clock=LabClock(SetClock()))


def test_progress_reaches_the_number_of_messages(root: Path) -> None:
    stream_of(root, [message(each) for each in IDS], max_segment_chunks=1)
    told: list[tuple[int, int]] = []
    headgate.why("orders", id="a", root=root, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(IDS), len(IDS))
    assert 0 < told[0][0] < len(IDS)


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        ({}, "found none"),
        ({"id": "a", "offset": 1}, "found id and offset"),
        ({"offset": -1}, "expected 0 or more"),
        ({"offset": 1, "language": "rocketmq"}, "without `where`"),
    ],
)
def test_a_question_names_its_message_in_one_way(root: Path, by: dict[str, object], reason: str) -> None:
    stream_of(root, [message("a")])
    with pytest.raises(ConfigError, match=reason):
        headgate.why("orders", root=root, **by)  # type: ignore[arg-type]


def test_a_missing_stream_is_named_with_near_ones(root: Path) -> None:
    stream_of(root, [message("a")])
    with pytest.raises(StreamNotFoundError, match="orders"):
        headgate.why("order", offset=0, root=root)
