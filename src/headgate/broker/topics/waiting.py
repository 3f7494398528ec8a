"""Messages of a topic whose time has not come: they wait in a stream of their own, and are moved to the topic's.

    schedule ──► waiting/ stream ──► commit of its ledger ──► numbers
                      │ due
                      └──► move ──► the topic's stream, exactly once ──► decided like every other message

Until it is moved, nobody's rules see a message, so a subscription that is created meanwhile gets it, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.broker.stream import BrokerStream
from headgate.broker.topics.consumption import Consumption
from headgate.broker.topics.moving import TargetKind, append_to_stream
from headgate.broker.topics.queue import IDLE_MS, small_stream
from headgate.broker.topics.sources import StreamSource
from headgate.broker.topics.trouble import Trouble
from headgate.errors import HeadgateError, MessageError, PreconditionFailedError
from headgate.ledger import MAX_OFFSET, NO_COPY, Ledger, Move, copy_number, offset_of
from headgate.log import Writer
from headgate.message import AmqpType, AmqpValue, FieldReference, Message, Section
from headgate.scan import MessageReader
from headgate.topic import MAX_TIME_MS, QUEUE_VIEW, waiting_folder

Scheduled = Callable[[list[int] | HeadgateError], None]
"""Called once, in the broker's thread: the number of each message, or why none is scheduled."""

Canceled = Callable[[list[bool] | HeadgateError], None]
"""Called once, in the broker's thread: for each number whether its message was canceled, or why none was."""

_DUE = FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-opt-scheduled-enqueue-time")
_MOVED_A_TURN = 512
_READ_BYTES = 1 << 20


@dataclass(slots=True)
class _Asked:
    messages: list[bytes]
    then: Scheduled


class WaitingMessages:
    """The waiting messages of one topic, in the broker's thread only; files are open while some wait."""

    def __init__(
        self,
        stream: BrokerStream,
        *,
        now_ms: Callable[[], int],
        touched: Callable[[], None],
        watch: Callable[[BrokerStream], None],
    ) -> None:
        """`touched` asks for a turn; `watch` as for `BrokerTopic`."""
        self._stream = stream
        self._now_ms = now_ms
        self._touched = touched
        self._watch = watch
        self._folder = waiting_folder(stream.stream)
        self._target = TargetKind.STREAM.named(stream.name)
        self._may_wait = self._folder.exists()
        self._asked: list[_Asked] = []
        self._open: _Waiting | None = None
        self._used_ms = now_ms()
        self._trouble = Trouble()

    # what users ask

    def schedule(self, messages: Sequence[bytes], due_ms: Sequence[int], then: Scheduled) -> None:
        """See `BrokerTopic.schedule`."""
        try:
            marked = [_with_due(message, due) for message, due in zip(messages, due_ms, strict=True)]
        except (MessageError, PreconditionFailedError) as error:
            then(error)
            return
        self._asked.append(_Asked(marked, then))
        self._may_wait = True
        self._touched()

    def cancel(self, numbers: Sequence[int], then: Canceled) -> None:
        """See `BrokerTopic.cancel`."""
        if not self._may_wait:
            then([False] * len(numbers))
            return
        try:
            waiting = self._opened()
            held = waiting.cancel(numbers)
        except HeadgateError as error:
            then(error)
            return
        waiting.consumption.answer(then, held)

    @property
    def count(self) -> int:
        """How many messages wait. Raises LogError."""
        if not self._may_wait:
            return 0
        return self._opened().count

    # the turn

    def turn(self, now_ms: int) -> None:
        """Keep what is asked for, move what is due, write it down, tell."""
        asked, self._asked = self._asked, []
        if not asked and not self._has_work(now_ms):
            return
        try:
            with self._stream.guarded():
                waiting = self._open or self._opened()
                self._keep(waiting, asked, now_ms)
                waiting.consumption.expire(now_ms)
                waiting.move_due(self._target)
        except HeadgateError as error:
            self._trouble.note(f"waiting messages of topic {self._stream.name!r}", error, now_ms)
            for each in asked:
                each.then(error)
            if self._open is None:
                return
            waiting = self._open
        if waiting.consumption.commit(now_ms):
            self._carry_out(waiting, now_ms)
        if waiting.is_broken:
            self.close()

    def _keep(self, waiting: _Waiting, asked: list[_Asked], now_ms: int) -> None:
        """Append what is asked for, with one write; what that changes is told behind the commit."""
        if not asked:
            return
        numbers = waiting.keep([message for each in asked for message in each.messages], now_ms)
        for each in asked:
            waiting.answer(each.then, numbers[: len(each.messages)])
            del numbers[: len(each.messages)]
        asked.clear()

    def _carry_out(self, waiting: _Waiting, now_ms: int) -> None:
        """Append what was moved to the topic's stream."""
        ledger = waiting.consumption.ledger
        if self._target not in ledger.moves() or self._stream.is_writing or self._trouble.rests(now_ms):
            return
        try:
            with self._stream.guarded():
                # Whether it is a duplicate was found out when it was sent.
                append_to_stream(self._stream, ledger, self._target, waiting.message, ids=None, now_ms=now_ms)
            self._watch(self._stream)
            self._trouble.clear()
        except HeadgateError as error:
            self._trouble.note(f"topic {self._stream.name!r}: messages that are due wait", error, now_ms)
        if ledger.has_changes and waiting.consumption.commit(now_ms):
            waiting.drop_settled()
        if waiting.has_work(now_ms):
            self._touched()

    # files

    def _has_work(self, now_ms: int) -> bool:
        if not self._may_wait or self._trouble.rests(now_ms):
            return False
        return self._open is None or self._open.has_work(now_ms)

    def tick(self, now_ms: int) -> None:
        """Ask for a turn when something is due; close files when nothing has waited for long."""
        if self._has_work(now_ms):
            self._touched()
        elif self._open is not None and not self._open.count and now_ms - self._used_ms >= IDLE_MS:
            self.close()
            self._may_wait = False

    def _opened(self) -> _Waiting:
        self._used_ms = now_ms = self._now_ms()
        if self._open is None:
            self._open = _Waiting.open(self._folder, self._stream, now_ms=now_ms, touched=self._touched)
        return self._open

    def close(self) -> None:
        """Close all files; what was not told did not happen. Again is harmless."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()

    def end(self, error: HeadgateError) -> None:
        """The topic is gone."""
        asked, self._asked = self._asked, []
        for each in asked:
            each.then(error)
        if self._open is not None:
            self._open.consumption.end(error)
        self.close()


class _Waiting:
    """The open files of waiting messages: a stream, and a ledger with one view."""

    def __init__(self, writer: Writer, consumption: Consumption) -> None:
        self.consumption = consumption
        self._view = consumption.ledger.view(QUEUE_VIEW, 0)
        self._writer = writer
        self._reader = MessageReader(writer.stream)
        self._source = StreamSource(writer.stream, self._reader, lambda: writer.next_offset)
        self._read: dict[int, bytes] = {}
        """Messages on their way to the topic."""
        self._has_more = True
        """Whether some may be due that are not on their way."""
        self._find_unknown()

    @staticmethod
    def open(folder: Path, stream: BrokerStream, *, now_ms: int, touched: Callable[[], None]) -> _Waiting:
        """Open the files, and make them if there are none. Raises StreamLockedError and other LogErrors."""
        storage = stream.storage
        small = small_stream(folder, f"{stream.name}/$Waiting", storage=storage, now_ms=now_ms)
        with contextlib.ExitStack() as opened:
            writer = opened.enter_context(
                Writer.open(small, now_ms=now_ms, durability=storage.durability, open_file=storage.open_file)
            )
            ledger = opened.enter_context(
                Ledger.open(small, now_ms=now_ms, durability=storage.durability, open_file=storage.open_file)
            )
            waiting = _Waiting(writer, Consumption(ledger, touched, stream.guarded, None))
            opened.pop_all()
        return waiting

    @property
    def is_broken(self) -> bool:
        """Whether only another writer can go on."""
        return self._writer.is_broken

    def close(self) -> None:
        """Close all files."""
        self.consumption.close()
        self._reader.close()
        self._writer.close()

    # what waits

    @property
    def count(self) -> int:
        """How many messages are not on their way."""
        counts = self._view.counts()
        return counts.waiting + counts.available

    def keep(self, messages: list[bytes], now_ms: int) -> list[int]:
        """Append messages, which wait; their numbers. Raises LogError: some of them may be there all the same."""
        if self.consumption.trouble is not None:
            raise self.consumption.trouble
        appended = self._writer.append([(message, None) for message in messages], now_ms=now_ms)
        offsets = appended.offsets()
        self._postpone(offsets * copy_number(1), messages, stop=copy_number(appended.next_offset))
        numbers: list[int] = offsets.tolist()
        return numbers

    def _find_unknown(self) -> None:
        """Messages that were appended, while the ledger was not told, wait like others."""
        while True:
            found = self._source.find(self._view.next_copy, NO_COPY, _MOVED_A_TURN)
            if not len(found.copies):
                return
            read = self._source.read(found.copies, max_bytes=_READ_BYTES)
            copies = np.array([each.copy for each in read], dtype=np.int64)
            self._postpone(copies, [each.message for each in read], stop=read[-1].copy + 1)

    def _postpone(self, copies: NDArray[np.int64], messages: list[bytes], *, stop: int) -> None:
        """Let messages wait for their times; they are all that there is up to a copy."""
        due_ms = np.array([_due_of(message) for message in messages], dtype=np.int64)
        for due in np.unique(due_ms).tolist():
            self._view.postpone(copies[due_ms == due], due)
        if self._view.next_copy < stop:
            self._view.postpone([], 0, covered=[(self._view.next_copy, stop)])

    def answer(self, then: Scheduled, numbers: list[int]) -> None:
        """Tell numbers behind the commit."""
        self.consumption.answer(lambda result: then(result if isinstance(result, HeadgateError) else numbers), [])

    def cancel(self, numbers: Sequence[int]) -> list[bool]:
        """Forget messages; whether each waited. Raises LogError."""
        held = []
        for number in numbers:
            copy = copy_number(number) if 0 <= number <= MAX_OFFSET else NO_COPY
            held.append(self._view.unsettled(copy, 1).tolist() == [copy])
            if held[-1]:
                self._view.complete_ranges([(copy, copy + 1)])
        return held

    # what is due

    def has_work(self, now_ms: int) -> bool:
        """Whether something is due, on its way, or not written down."""
        ledger = self.consumption.ledger
        return self._has_more or ledger.next_due_ms <= now_ms or bool(ledger.moves()) or self.consumption.is_behind

    def move_due(self, target: str) -> None:
        """Send some of what is due on its way, in order of numbers. Raises LogError."""
        if self.consumption.ledger.moves() or self.consumption.trouble is not None:
            # One part after the other: so little is read again after a crash.
            return
        runs = self._view.available(limit=_MOVED_A_TURN)
        copies = np.array([start for start, stop in runs if stop == start + 1], dtype=np.int64)
        self._has_more = len(runs) == _MOVED_A_TURN
        if not len(copies):
            return
        read = self._source.read(copies, max_bytes=_READ_BYTES)
        self._has_more |= len(read) < len(copies)
        self._read = {each.copy: each.message for each in read}
        self._view.move_available(np.array(list(self._read), dtype=np.int64), target, b"")

    def message(self, move: Move) -> bytes:
        """The message of a move. Raises LogError."""
        found = self._read.get(move.copy)
        if found is None:
            (read,) = self._source.read(np.array([move.copy], dtype=np.int64), max_bytes=1)
            found = read.message
        return found

    def drop_settled(self) -> None:
        """Messages are in the topic: delete a file of which none waits any more. Raises LogError."""
        self._read.clear()
        self._writer.drop_first_below(offset_of(self._view.floor))


def _with_due(message: bytes, due_ms: int) -> bytes:
    """The message, which says when it is due. Raises MessageError, PreconditionFailedError."""
    if not 0 <= due_ms <= MAX_TIME_MS:
        raise PreconditionFailedError(f"a message is scheduled for {due_ms} ms; expected 0 to {MAX_TIME_MS}")
    decoded = Message.decode(message)
    due = AmqpValue(AmqpType.TIMESTAMP, due_ms)
    return message if decoded.value(_DUE) == due else decoded.with_changes([(_DUE, due)]).encode()


def _due_of(message: bytes) -> int:
    found = Message.decode(message).value(_DUE)
    return 1 if found is None else max(int(found.value), 1)
