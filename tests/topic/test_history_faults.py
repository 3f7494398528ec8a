"""Changes of rules that are interrupted: at every byte, by full disks, by kill -9. A change is whole or not there."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.errors import LogError, StorageFullError
from headgate.log import Stream, Writer
from headgate.topic import RuleHistory, Subscription, TopicEditor
from headgate.topic.journal import JOURNAL_NAME
from log_streams import FailingFiles, Killed, abandon, quick_folder, read_messages
from topic_streams import editing, new_topic, publish, shape, version_rule

CHILD = Path(__file__).parent / "rule_changing_child.py"

CHANGES: list[Callable[[TopicEditor], object]] = [
    lambda editor: editor.add_rule("red", version_rule("new", 1), now_ms=5),
    lambda editor: editor.replace_rule("red", version_rule("r", 2), now_ms=5),
    lambda editor: editor.remove_rule("red", "r", now_ms=5),
    lambda editor: editor.create_subscription(
        Subscription("blue", (version_rule("a", 1), version_rule("b", 1))), now_ms=5
    ),
    lambda editor: editor.change_subscription("red", {"dead_letter_on_errors": True}, now_ms=5),
    lambda editor: editor.change_subscription("red", {"settings": {"lock_ms": 5_000}}, now_ms=5),
    lambda editor: editor.remove_subscription("red", now_ms=5),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as name:
        yield Path(name)


def topic_with_a_rule(folder: Path) -> Stream:
    stream = new_topic(folder)
    with editing(stream) as editor:
        editor.create_subscription(Subscription("red", (version_rule("r", 1),)), now_ms=1)
    publish(stream, b"0", b"1")
    return stream


@pytest.mark.parametrize("change", CHANGES)
def test_a_process_that_dies_at_any_byte_of_a_change_leaves_it_whole_or_not_there(
    folder: Path, change: Callable[[TopicEditor], object]
) -> None:
    origin = topic_with_a_rule(folder)
    before = RuleHistory.load(origin).current
    measured = Stream.open(shutil.copytree(origin.path, folder / "measured"))
    files = FailingFiles(Killed())
    with TopicEditor.open(measured, now_ms=0, open_file=files) as editor:
        change(editor)
        after = editor.topic
    assert files.written > 50
    sound, changed = ((stream.path / JOURNAL_NAME).read_bytes() for stream in (origin, measured))
    line_bytes = len(changed) - len(sound)
    for budget in range(files.written + 1):
        stream = Stream.open(shutil.copytree(origin.path, folder / "copy"))
        with Writer.open(stream, now_ms=0) as writer:
            editor = TopicEditor(writer, open_file=FailingFiles(Killed(), budget=budget))
            if budget < files.written:
                with pytest.raises(Killed):
                    change(editor)
            else:
                change(editor)
            # Nothing ran after the death that could tidy up: put the bytes that were written back.
            torn = sound + changed[len(sound) : len(sound) + budget]
            marked = max(0, budget - line_bytes)
            (stream.path / JOURNAL_NAME).write_bytes(changed[:marked] + torn[marked:])
            abandon(writer)
        found = RuleHistory.load(stream).current
        assert found == (after if budget >= line_bytes else before)
        # The next change goes on from there, for readers as for writers.
        with editing(stream) as editor:
            assert editor.topic == found
            editor.create_subscription(Subscription("late", (version_rule("x", 1),)), now_ms=6)
        assert shape(RuleHistory.load(stream).current) == {**shape(found), "late": {"x": "version = 1"}}
        shutil.rmtree(stream.path)


def test_zero_bytes_behind_the_last_change_are_a_change_that_was_not_confirmed(folder: Path) -> None:
    stream = topic_with_a_rule(folder)
    path = stream.path / JOURNAL_NAME
    sound = path.read_bytes()
    before = RuleHistory.load(stream).current
    with editing(stream) as editor:
        editor.replace_rule("red", version_rule("r", 2), now_ms=5)
    line = path.read_bytes()[len(sound) :]
    for kept in (0, 7, len(line) // 2):
        for tail in (bytes(len(line) - kept), bytes(len(line) - kept - 1) + b"\n", bytes(4096)):
            path.write_bytes(sound + line[:kept] + tail)
            assert RuleHistory.load(stream).current == before
    with editing(stream) as editor:
        editor.replace_rule("red", version_rule("r", 3), now_ms=5)
    assert b"\0" not in path.read_bytes()
    assert shape(RuleHistory.load(stream).current) == {"red": {"r": "version = 3"}}


@pytest.mark.parametrize("fault", [{"budget": 40}, {"fail_sync": True}, {"fail_sync": True, "fail_truncate": True}])
def test_a_change_that_cannot_be_written_is_refused_and_leaves_no_trace(folder: Path, fault: dict[str, int]) -> None:
    stream = topic_with_a_rule(folder)
    before = RuleHistory.load(stream).current
    files = FailingFiles(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with TopicEditor.open(stream, now_ms=0, open_file=files) as editor:
        for name, value in fault.items():
            setattr(files, name, value)
        with pytest.raises(StorageFullError):
            editor.replace_rule("red", version_rule("r", 2), now_ms=5)
        assert editor.topic == before
        files.budget, files.fail_sync, files.fail_truncate = None, False, False
        editor.add_rule("red", version_rule("s", 1), now_ms=5)
        editor.add_rule("red", version_rule("t", 1), now_ms=5)
    expected = {"r": "version = 1", "s": "version = 1", "t": "version = 1"}
    assert shape(RuleHistory.load(stream).current) == {"red": expected}


def test_a_new_head_that_cannot_be_written_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = topic_with_a_rule(folder)
    before = (stream.path / JOURNAL_NAME).read_bytes()
    with editing(stream) as editor:

        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "replace", fail)
        with pytest.raises(LogError):
            editor.prune(1)
        monkeypatch.undo()
        assert (stream.path / JOURNAL_NAME).read_bytes() == before
        editor.prune(1)
    assert shape(RuleHistory.load(stream).at(1)) == {"red": {"r": "version = 1"}}


def test_a_stream_that_cannot_be_flushed_takes_no_change(folder: Path) -> None:
    stream = topic_with_a_rule(folder)
    files = FailingFiles(OSError(errno.EIO, os.strerror(errno.EIO)))
    with Writer.open(stream, now_ms=0, open_file=files) as writer:
        files.fail_sync = True
        with pytest.raises(LogError):
            TopicEditor(writer).remove_rule("red", "r", now_ms=5)
    assert shape(RuleHistory.load(stream).current) == {"red": {"r": "version = 1"}}


@pytest.mark.faults
@pytest.mark.parametrize("changes", [1, 2, 3, 5, 20, 100])
def test_kill_9_loses_no_change_and_every_message_meets_the_rules_of_its_time(folder: Path, changes: int) -> None:
    stream = new_topic(folder)
    for _ in range(2):
        with subprocess.Popen([sys.executable, CHILD, stream.path], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            # The child says each version that is confirmed, and goes on until it dies wherever it is then.
            confirmed = [int(child.stdout.readline()) for _ in range(changes)]
            child.send_signal(signal.SIGKILL)
            confirmed += [int(line) for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        history = RuleHistory.load(stream)
        versions = [int(str(version.rule.sql).split()[-1]) for _, version in history.versions()]
        assert confirmed[-1] <= versions[-1] <= confirmed[-1] + 1
        assert versions == sorted(set(versions))
        messages = read_messages(stream)
        assert {int(body) for _, body in messages} >= set(confirmed[:-1])
        for offset, body in messages:
            assert shape(history.at(offset)) == {"s": {"r": f"version = {int(body)}"}}
