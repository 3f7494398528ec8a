"""Postings: what is written, when it is believed, and what becomes of it."""

from __future__ import annotations

import errno
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headgate.errors import RuleNotFoundError, StorageFullError, StreamLockedError
from headgate.log import Stream, StreamArguments, Writer, list_streams, stream_folder
from headgate.message import Message
from headgate.topic import Rule, RuleHistory, Subscription, SubscriptionSettings, postings_folder
from headgate.topic.decisions import Decider, Postings, block, postings, rule_states
from headgate.topic.journal import JOURNAL_NAME
from log_streams import FailingFiles, Killed, killed_process, quick_folder, read_messages
from topic_oracle import NO_MESSAGE, Expected
from topic_streams import editing, new_topic, publish

RED, BLUE = (Message(b"b", application_properties={"color": color}).encode() for color in ("red", "blue"))
BODIES = [RED, BLUE, NO_MESSAGE, RED, BLUE, BLUE, RED, RED] * 6
SUBSCRIPTIONS = (
    Subscription("red", (Rule("r", "color = 'red'"), Rule("act", "1=1", "SET seen = 1")), dead_letter_on_errors=True),
    Subscription("all"),
    Subscription("blue", (Rule("b", correlation={"properties": {"color": "blue"}}),)),
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "BLOCK_OFFSETS", 16)


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as name:
        yield Path(name)


def topic_with(root: Path, *subscriptions: Subscription, name: str = "orders") -> Stream:
    stream = new_topic(root, name)
    with editing(stream) as editor:
        for each in subscriptions:
            editor.create_subscription(each, now_ms=0)
    return stream


def decide_all(decider: Decider) -> int:
    """Decide until nothing is left; how many messages were decided."""
    decided = 0
    while True:
        step = decider.step(10, now_ms=0)
        decided += step.stop - step.start
        if step.is_done:
            return decided


def expected_of(stream: Stream) -> Expected:
    """What the reference says of all messages by the rules that are in force at the end."""
    expected = Expected()
    with editing(stream) as editor:
        for offset, data in read_messages(stream):
            expected.add(editor.topic, offset, data)
    return expected


@pytest.fixture
def decided(folder: Path) -> Stream:
    """A topic of three blocks that are decided and written."""
    stream = topic_with(folder, *SUBSCRIPTIONS)
    publish(stream, *BODIES)
    with Decider.open(stream, now_ms=0) as decider:
        assert decide_all(decider) == 48
    return stream


def decided_again(stream: Stream) -> int:
    """How many messages a new decider decides; what it has then is right."""
    with Decider.open(stream, now_ms=0) as decider:
        found = decide_all(decider)
        expected_of(stream).check(decider.postings)
        assert decider.next_offset == stream.next_offset()
    return found


def test_what_was_written_is_not_decided_again(decided: Stream) -> None:
    assert decided_again(decided) == 0
    with Postings.open(decided) as found:
        expected_of(decided).check(found)
        assert found.counts()[1:4].tolist() == [24 + 42, 42, 18]
        assert found.decided_until(0) == 48


def test_only_the_open_block_is_decided_again(decided: Stream) -> None:
    publish(decided, RED, BLUE)
    assert decided_again(decided) == 2
    assert decided_again(decided) == 2


def test_a_reader_sees_later_blocks_when_it_looks_again(decided: Stream) -> None:
    with Postings.open(decided) as found:
        publish(decided, *[RED] * 20)
        with Decider.open(decided, now_ms=0) as decider:
            decide_all(decider)
            assert found.decided_until(0) == 48
            found.refresh()
            assert found.decided_until(0) == 64
            assert decider.postings.decided_until(0) == 68


@pytest.mark.parametrize("names", [("red", "all"), ("all",), ("red",), ("blue",)])
def test_session_ids_are_those_that_copies_have(folder: Path, names: tuple[str, ...]) -> None:
    by_session = SubscriptionSettings(requires_session=True)
    stream = topic_with(
        folder, *(replace(each, settings=by_session) if each.name in names else each for each in SUBSCRIPTIONS)
    )
    with editing(stream) as editor:
        editor.add_rule("red", Rule("name", "color = 'red'", "SET sys.SessionId = 'of ' + color"), now_ms=0)
    bodies = [
        Message(b"b", properties={"group-id": session}, application_properties={"color": color}).encode()
        for session, color in zip(["a", None, "b", "c", "a"] * 8, ["red", "blue", "red", "green"] * 10, strict=True)
    ]
    with Decider.open(stream, now_ms=0) as decider:
        for start in range(0, 40, 2):
            publish(stream, *bodies[start : start + 2])
            decide_all(decider)
            expected_of(stream).check(decider.postings)
    assert decided_again(stream) == 8


def test_postings_say_where_each_message_lies(decided: Stream) -> None:
    (segment,) = decided.segments()
    raw = segment.segment_path.read_bytes()
    with Postings.open(decided) as found:
        for offset, data in read_messages(decided):
            (entry,) = found.entries(np.array([offset]))
            if data == NO_MESSAGE:
                assert (entry["position"], entry["crc"]) == (0, 0)
                continue
            start = int(entry["position"])
            whole = raw[start : start + 4 + len(data)]
            assert whole[4:] == data and zlib.crc32(whole) == entry["crc"]


def test_settings_are_no_rules_and_nothing_is_decided_again(decided: Stream) -> None:
    everything = {
        "lock_ms": 5_000,
        "max_delivery_count": 3,
        "backoff_ms": [1_000],
        "default_time_to_live_ms": 1,
        "dead_letter_on_expiration": True,
        "status": "disabled",
        "auto_delete_on_idle_ms": 60_000,
        "user_metadata": "ours",
        "kept": {"EnableBatchedOperations": "true"},
    }
    assert {*everything, "requires_session", "forward_dead_letters_to"} == {*SubscriptionSettings.__struct_fields__}
    publish(decided, RED)
    with Decider.open(decided, now_ms=0) as decider, editing(decided) as editor:
        decide_all(decider)
        before = decider.postings.states.within(0, 1 << 40)
        for name, value in everything.items():
            editor.change_subscription("red", {"settings": {name: value}}, now_ms=0)
        decider.postings.follow_rules()
        assert decider.postings.history.subscription("red").settings.changed(everything) == (
            decider.postings.history.subscription("red").settings
        )
        assert decider.postings.states.within(0, 1 << 40) == before
        # Not even of the open block.
        assert decide_all(decider) == 0
    # As another topic would have had them from the beginning.
    root = decided.path.parent.parent / "second"
    new_topic(root, "other")

    def states(name: str, **given: object) -> tuple[rule_states.RuleState, ...]:
        settings = SubscriptionSettings.of(given)
        stream = topic_with(root, *(replace(each, settings=settings) for each in SUBSCRIPTIONS), name=name)
        return rule_states.RuleStates(RuleHistory.load(stream)).within(0, 1)

    assert states("forwarding", forward_dead_letters_to="other") == before[:1]
    # Session ids are among what is decided.
    assert states("by-session", requires_session=True) != before[:1]
    assert decided_again(decided) == 1


def made_by_another_program(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rule_states, block, postings):
        monkeypatch.setattr(module, "EVALUATOR", "0/0")


def of_another_stream(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = stream.path.parent.parent / "other"
    other = topic_with(settings, *SUBSCRIPTIONS)
    publish(other, *BODIES)
    shutil.rmtree(postings_folder(stream))
    with Decider.open(other, now_ms=0) as decider:
        decide_all(decider)
    shutil.copytree(postings_folder(other), postings_folder(stream))


def by_other_rules(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    other = topic_with(stream.path.parent.parent / "other", *reversed(SUBSCRIPTIONS))
    shutil.copy(other.path / JOURNAL_NAME, stream.path / JOURNAL_NAME)


def of_other_chunks(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    root = stream.path.parent.parent / "other"
    made = Stream.create(stream_folder(root, "orders"), name="orders", now_ms=0, identity=stream.identity)
    publish(made, *reversed(BODIES))
    for path in made.path.iterdir():
        if path.suffix in (".segment", ".index"):
            shutil.copy(path, stream.path / path.name)


@pytest.mark.parametrize("change", [made_by_another_program, of_another_stream, by_other_rules, of_other_chunks])
def test_foreign_postings_are_made_again(
    decided: Stream, change: Callable[[Stream, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(decided, monkeypatch)
    with Decider.open(decided, now_ms=0) as decider:
        assert decider.postings.first_at_or_after(2, 0) in (None, (0, 0)) or decider.postings.decided_until(0) == 0
    assert decided_again(decided) == 48
    assert decided_again(decided) == 0


def test_postings_of_other_chunks_are_not_believed_when_asked(decided: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    of_other_chunks(decided, monkeypatch)
    with Postings.open(decided) as found:
        assert list(found.runs(1, 0)) == []
        assert found.decided_until(0) == 0


def test_a_change_of_rules_behind_the_end_leaves_postings_as_they_are(decided: Stream) -> None:
    with Decider.open(decided, now_ms=0) as decider:
        with editing(decided) as editor:
            editor.remove_subscription("all", now_ms=0)
            editor.create_subscription(Subscription("late"), now_ms=0)
        publish(decided, RED)
        assert decide_all(decider) == 1
        assert [decider.postings.count(number) for number in (2, 4)] == [42, 1]


@pytest.mark.parametrize("bytes_apart", [61, pytest.param(1, marks=pytest.mark.long)])
def test_a_writer_that_dies_at_any_byte_leaves_whole_blocks_or_none(folder: Path, bytes_apart: int) -> None:
    origin = topic_with(folder, *SUBSCRIPTIONS)
    publish(origin, *BODIES)
    expected = expected_of(origin)
    measured = FailingFiles(Killed())
    stream = Stream.open(shutil.copytree(origin.path, folder / "measured"))
    with Decider.open(stream, now_ms=0, open_file=measured) as decider:
        decide_all(decider)
    for budget in range(0, measured.written, bytes_apart):
        stream = Stream.open(shutil.copytree(origin.path, folder / "copy"))
        with killed_process():
            decide_all(Decider.open(stream, now_ms=0, open_file=FailingFiles(Killed(), budget=budget)))
        with Decider.open(stream, now_ms=0) as decider:
            expected.check(decider.postings)
            decide_all(decider)
            assert decider.next_offset == 48
            expected.check(decider.postings)
        shutil.rmtree(stream.path)


def test_a_full_disk_is_an_error_and_the_step_may_be_asked_for_again(folder: Path) -> None:
    stream = topic_with(folder, *SUBSCRIPTIONS)
    publish(stream, *BODIES)
    files = FailingFiles(OSError(errno.ENOSPC, "full"))
    with Decider.open(stream, now_ms=0, open_file=files) as decider:
        files.budget = files.written + 100
        # What was decided before is told.
        assert decider.step(48, now_ms=0).stop == 16
        for _ in range(3):
            with pytest.raises(StorageFullError):
                decider.step(48, now_ms=0)
            assert decider.next_offset == 16
            expected_of(stream).check(decider.postings)
        files.budget = None
        decide_all(decider)
        assert decider.next_offset == 48
        expected_of(stream).check(decider.postings)


def test_there_is_one_decider_at_a_time(decided: Stream) -> None:
    with Decider.open(decided, now_ms=0), pytest.raises(StreamLockedError, match="another writer"):
        Decider.open(decided, now_ms=0)


def test_a_decider_works_beside_the_writer_of_the_stream(decided: Stream) -> None:
    with Writer.open(decided, now_ms=0) as writer, Decider.open(decided, now_ms=0) as decider:
        writer.append([(RED, None)], now_ms=0)
        assert decide_all(decider) == 1


def test_a_plain_stream_is_not_decided(folder: Path) -> None:
    plain = Stream.create(folder / "plain", name="plain", now_ms=0)
    with pytest.raises(RuleNotFoundError):
        Decider.open(plain, now_ms=0)
    assert not postings_folder(plain).exists()


def test_listings_do_not_see_postings(decided: Stream) -> None:
    assert [stream.name for stream in list_streams(decided.path.parent.parent)] == ["orders"]


def test_what_retention_deleted_is_forgotten(folder: Path) -> None:
    stream = topic_with(folder, *SUBSCRIPTIONS)
    with Writer.open(stream, now_ms=0) as writer:
        writer.change(now_ms=0, arguments=StreamArguments(max_segment_chunks=1))
        for _ in range(10):
            writer.append([(each, None) for each in BODIES[:8]], now_ms=0)
    with Decider.open(stream, now_ms=0) as decider:
        decide_all(decider)
        with Writer.open(stream, now_ms=0) as writer:
            while writer.drop_first_below(40):
                pass
        assert stream.first_offset() == 40
        decide_all(decider)
        expected_of(stream).check(decider.postings, first=40, counts_gone=True)
        assert decider.postings.count(2) == 7 * 6
    with Decider.open(stream, now_ms=0) as decider:
        # Of the block from 32 on the first half is gone, and it is still believed.
        assert decide_all(decider) == 0
        expected_of(stream).check(decider.postings, first=40, counts_gone=True)


def test_files_of_forgotten_blocks_are_deleted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "_SEGMENT_BYTES", 1)
    stream = topic_with(folder, *SUBSCRIPTIONS)
    publish(stream, *BODIES)
    with Decider.open(stream, now_ms=0) as decider:
        decide_all(decider)
        assert len(Stream.open(postings_folder(stream)).segments()) == 3
        decider.move_floor(33)
        decide_all(decider)
        assert len(Stream.open(postings_folder(stream)).segments()) == 1
        expected_of(stream).check(decider.postings, first=32, counts_gone=True)


def test_messages_that_were_taken_back_are_forgotten(folder: Path) -> None:
    stream = topic_with(folder, *SUBSCRIPTIONS)
    publish(stream, RED, BLUE)
    kept = {path: path.read_bytes() for path in stream.path.iterdir() if path.suffix in (".segment", ".index")}
    publish(stream, RED, RED)
    with Decider.open(stream, now_ms=0) as decider:
        decide_all(decider)
        for path, content in kept.items():
            path.write_bytes(content)
        decide_all(decider)
        assert decider.next_offset == 2
        publish(stream, BLUE)
        decide_all(decider)
        expected_of(stream).check(decider.postings)


def test_rules_that_take_everything_cost_a_run(folder: Path) -> None:
    stream = topic_with(folder, *(Subscription(f"s{number}") for number in range(300)))
    publish(stream, *BODIES)
    with Decider.open(stream, now_ms=0) as decider:
        decide_all(decider)
        assert (decider.postings.counts()[1:301] == 42).all()
        assert [len(runs) for runs in decider.postings.runs(300, 0)] == [3, 3, 3]
        block_bytes = (Stream.open(postings_folder(stream)).segments()[0].size_bytes()) / 3
        assert block_bytes < 300 * block.ROW_DTYPE.itemsize + 2000


def test_a_subscription_made_again_is_another_one(decided: Stream) -> None:
    with editing(decided) as editor:
        editor.remove_subscription("all", now_ms=0)
        editor.create_subscription(Subscription("all"), now_ms=0)
    publish(decided, RED)
    with Decider.open(decided, now_ms=0) as decider:
        decide_all(decider)
        assert [decider.postings.count(number) for number in (2, 4)] == [42, 1]
