"""Scheduled messages of a stream: they wait in a stream of their own until their time, and are moved from there.

    schedule ──► waiting/ stream ──► commit of its ledger ──► numbers
                      │ due
                      └──► move ──► the stream, exactly once ──► read, and decided, like every other message

Duplicates are found when they are scheduled. Rules see a message when it is moved, so a subscription that is created
before that gets it as well.

A waiting message has a number, in the annotation of moved copies: 2^19 above that of the stream's last message, or one
above the last number given. So numbers rise with the place in the waiting stream, where they are searched.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.broker.delivery import (
    Consumption,
    CopyState,
    ReadCopy,
    StreamSource,
    TargetKind,
    append_to_stream,
)
from headgate.broker.duplicates import RecentIds, digests_of
from headgate.broker.environment import Environment
from headgate.broker.repeated_failure import RepeatedFailure
from headgate.broker.stream import BrokerStream
from headgate.broker.topics.dispatcher import BYTES_A_TURN
from headgate.broker.topics.subqueue import IDLE_MS, small_stream
from headgate.errors import HeadgateError, LogError, PreconditionFailedError, StreamReadOnlyError
from headgate.ledger import NO_COPY, Elsewhere, Ledger, Made, Move, append_moves, copy_number, offset_of
from headgate.log import MAX_MESSAGES, Entries, Run, Writer
from headgate.message import AmqpType, AmqpValue, EncodedMessages, FieldReference, Message, Section
from headgate.scan import MessageReader
from headgate.topic import COPY_ANNOTATION, MAX_TIME_MS, QUEUE_VIEW, waiting_folder

logger = logging.getLogger("headgate.broker")

Scheduled = Callable[[list[int] | HeadgateError], None]
"""Called once, in the broker's thread, with the number of each message, or the error for which none is scheduled."""

Canceled = Callable[[bool | HeadgateError], None]
"""Called once, in the broker's thread: True if all messages waited and are canceled; else none is canceled."""

DUPLICATE = -1
"""The number of a message that is left out as a duplicate."""

_DUE_OCTETS = b"x-opt-scheduled-enqueue-time"
_DUE = FieldReference(Section.MESSAGE_ANNOTATIONS, key=_DUE_OCTETS)
_NUMBER = FieldReference(Section.MESSAGE_ANNOTATIONS, key=COPY_ANNOTATION.encode())
_FIRST_RULE = 1 << 19
"""Added to copy numbers: above all existing copies, below all later ones; no topic has this many rules."""

_MOVED_A_TURN = 512
_GONE_TOLD = 10
_READ_BYTES = 1 << 20


@dataclass(slots=True)
class _Asked:
    messages: list[bytes]
    then: Scheduled


class ScheduledMessages:
    """The scheduled messages of one stream, in the broker's thread only; files are open while some wait."""

    def __init__(self, stream: BrokerStream, environment: Environment) -> None:
        self._stream = stream
        self._environment = environment
        self._now_ms = environment.now_ms
        self._touched = environment.wake
        self._folder = waiting_folder(stream.stream)
        self._target = TargetKind.STREAM.named(stream.name)
        self._may_wait = self._folder.exists()
        self._asked: list[_Asked] = []
        self._open: _Waiting | None = None
        self._used_ms = self._now_ms()
        self._trouble = RepeatedFailure()

    # what users ask

    def schedule(self, messages: Sequence[bytes], due_ms: Sequence[int], then: Scheduled) -> None:
        """Publish encoded messages at their times, `(messages,)` in milliseconds; all of them, or none.

        Time 0 means at once. `then` gets the number of each message, for `cancel`, when all are on disk; or
        MessageError, EntityDisabledError, PreconditionFailedError for a time out of range, LogError. A message is
        published at the first tick after its time, exactly once even across crashes; messages due together go in order
        of numbers. It says when it was due (`x-opt-scheduled-enqueue-time`). Numbers are like those of copies: above
        all existing copies and below later ones, except for the first message of all; a duplicate is left out and has
        number −1.
        """
        try:
            if self._stream.refuses_with is not None:
                raise self._stream.refuses_with
            if self._stream.stream.is_foreign:
                raise StreamReadOnlyError("a foreign stream is not written", path=self._stream.stream.path)
            marked = [_with_due(message, due) for message, due in zip(messages, due_ms, strict=True)]
        except HeadgateError as error:
            then(error)
            return
        self._asked.append(_Asked(marked, then))
        self._may_wait = True
        self._touched()

    def take(self, ledger: Ledger, target: str, made: Callable[[Move], bytes | Elsewhere | None]) -> int:
        """Schedule the pending moves of another ledger, each once; how many are done. Raises LogError."""
        if not self._environment.know_ids(self._stream):
            return 0
        self._may_wait = True
        return self._opened().take(ledger, target, made, ids=self._stream.recent_ids, now_ms=self._now_ms())

    def last_sequence(self, publisher: str) -> int | None:
        """The last sequence of a publisher whose moves are scheduled. Raises LogError."""
        return self._opened().last_sequence(publisher)

    def cancel(self, numbers: Sequence[int], then: Canceled) -> None:
        """Forget scheduled messages if all of them still wait; `then` gets whether they did, or LogError."""
        if not self._may_wait:
            then(False)
            return
        try:
            waiting = self._opened()
            held = waiting.cancel(numbers)
        except HeadgateError as error:
            then(error)
            return
        waiting.consumption.tell(then, held)

    def peek(self, from_number: int, limit: int) -> tuple[list[ReadCopy], int]:
        """At most `limit` waiting messages, at or above a number, and the number up to which there are no others.

        Their timestamps are their due times. Raises LogError.
        """
        if not self._may_wait:
            return [], NO_COPY
        return self._opened().peek(from_number, limit)

    @property
    def count(self) -> int:
        """How many messages wait. Raises LogError."""
        if not self._may_wait:
            return 0
        return self._opened().count

    # the turn

    def turn(self, now_ms: int) -> None:
        """Store newly scheduled messages, move due ones, commit, answer."""
        asked: list[_Asked] = []
        if self._asked and self._may_keep():
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
            self._trouble.note(f"waiting messages of stream {self._stream.name!r}", error, now_ms)
            for each in asked:
                each.then(error)
            if self._open is None:
                return
            waiting = self._open
        if waiting.consumption.commit(now_ms):
            self._carry_out(waiting, now_ms)
        if waiting.is_broken:
            self.close()

    def _may_keep(self) -> bool:
        """Whether duplicates can be found now; if a worker has to read the message ids first, the next tick asks again.

        Where the ids cannot be read, all requests are refused.
        """
        if self._stream.recent_ids is None or self._environment.know_ids(self._stream):
            return True
        if not self._stream.is_writing:
            asked, self._asked = self._asked, []
            for each in asked:
                each.then(LogError("the message ids of the stream cannot be read", path=self._stream.stream.path))
        return False

    def _keep(self, waiting: _Waiting, asked: list[_Asked], now_ms: int) -> None:
        """Append the requested messages with one write; the answers come behind the commit.

        Duplicates are left out here, not when they are due.
        """
        if not asked:
            return
        recent = self._stream.recent_ids
        ids = None if recent is None else recent.about_to_write(now_ms)
        new = [
            np.ones(len(each.messages), dtype=np.bool_)
            if ids is None
            else ids.new(digests_of(EncodedMessages.of(each.messages)))
            for each in asked
        ]
        parts = [list(itertools.compress(each.messages, mask)) for each, mask in zip(asked, new, strict=True)]
        try:
            kept = iter(waiting.keep([part for part in parts if part], now_ms) if any(parts) else [])
        except HeadgateError:
            if recent is not None:
                recent.doubt()
            raise
        if ids is not None:
            ids.kept()
        for each, part, mask in zip(asked, parts, new, strict=True):
            numbers = np.full(len(mask), DUPLICATE, dtype=np.int64)
            numbers[mask] = next(kept) if part else []
            waiting.answer(each.then, numbers.tolist())
        asked.clear()

    def _carry_out(self, waiting: _Waiting, now_ms: int) -> None:
        """Append moved messages to the stream."""
        ledger = waiting.consumption.ledger
        if self._target not in ledger.moves() or self._stream.is_writing or self._trouble.rests(now_ms):
            return
        try:
            with self._stream.guarded():
                # Duplicates were left out when they were scheduled.
                append_to_stream(self._stream, ledger, self._target, waiting.message, ids=None, now_ms=now_ms)
            self._environment.watch(self._stream)
            self._trouble.clear()
        except HeadgateError as error:
            self._trouble.note(f"stream {self._stream.name!r}: messages that are due wait", error, now_ms)
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
        """Ask for a turn when a message is due; close the files when none has waited for a while."""
        if self._asked or self._has_work(now_ms):
            self._touched()
        elif self._open is not None and not self._open.count and now_ms - self._used_ms >= IDLE_MS:
            self.close()
            self._may_wait = False

    def _opened(self) -> _Waiting:
        self._used_ms = now_ms = self._now_ms()
        if self._open is None:
            with self._stream.guarded():
                self._open = _Waiting.open(self._folder, self._stream, now_ms=now_ms, touched=self._touched)
        return self._open

    def close(self) -> None:
        """Close all files; requests without an answer have not happened. Again is harmless."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()

    def end(self, error: HeadgateError) -> None:
        """The stream is gone."""
        asked, self._asked = self._asked, []
        for each in asked:
            each.then(error)
        if self._open is not None:
            self._open.consumption.end(error)
        self.close()


class _Waiting:
    """The open files of scheduled messages: a stream, and a ledger with one view."""

    def __init__(self, writer: Writer, consumption: Consumption, target: BrokerStream) -> None:
        self.consumption = consumption
        self._view = consumption.ledger.view(QUEUE_VIEW, 0)
        self._writer = writer
        self._target = target
        self._reader = MessageReader(writer.stream)
        self._source = StreamSource(writer.stream, self._reader, lambda: writer.next_offset)
        self._read: dict[int, bytes] = {}
        """Messages on their way to the stream."""
        self._has_more = True
        """Whether messages may be due that are not on their way."""
        self._find_unknown()
        self._last_number = self._number_at(writer.next_offset - 1)

    @staticmethod
    def open(folder: Path, stream: BrokerStream, *, now_ms: int, touched: Callable[[], None]) -> _Waiting:
        """Open the files, or create them. Raises StreamLockedError and other LogErrors."""
        storage = stream.storage
        small = small_stream(folder, f"{stream.name}/$Waiting", storage=storage, now_ms=now_ms)
        with contextlib.ExitStack() as opened:
            writer = opened.enter_context(storage.writer(small, now_ms=now_ms))
            ledger = opened.enter_context(storage.ledger(small, now_ms=now_ms))
            waiting = _Waiting(writer, Consumption(ledger, touched, stream.guarded, None), stream)
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
        """How many messages wait and are not on their way."""
        counts = self._view.counts()
        return counts.waiting + counts.available

    def keep(self, asked: list[list[bytes]], now_ms: int) -> list[list[int]]:
        """Append waiting messages; gives the numbers of each part. A part is stored as a whole, or not at all.

        Raises LogError; some of the parts may be stored even then.
        """
        if self.consumption.trouble is not None:
            raise self.consumption.trouble
        numbers = [[self._next_number() for _ in part] for part in asked]
        messages = [
            _with_number(message, number)
            for part, own in zip(asked, numbers, strict=True)
            for message, number in zip(part, own, strict=True)
        ]
        rows = iter(messages)
        runs = [Run([Entries.of([next(rows) for _ in part])], None, None, is_whole=True) for part in asked]
        _, headers = self._writer.append_runs(
            runs, max_messages=MAX_MESSAGES, max_bytes=_READ_BYTES, now_ms=now_ms, filter_source=None
        )
        offsets = np.concatenate([np.arange(header.chunk_id, header.next_chunk_id) for header in headers])
        self._postpone(offsets * copy_number(1), messages, stop=copy_number(self._writer.next_offset))
        return numbers

    def take(
        self,
        ledger: Ledger,
        target: str,
        made: Callable[[Move], bytes | Elsewhere | None],
        *,
        ids: RecentIds | None,
        now_ms: int,
    ) -> int:
        """See `ScheduledMessages`."""
        if self.consumption.trouble is not None:
            raise self.consumption.trouble
        new_ids = None if ids is None else ids.about_to_write(now_ms)

        def numbered(move: Move) -> Made:
            message = made(move)
            if message is None or isinstance(message, Elsewhere):
                return message
            if new_ids is not None and new_ids.is_known(message):
                return None
            return _with_number(message, self._next_number()), None

        taken = append_moves(ledger, target, self._writer, made=numbered, now_ms=now_ms)
        if new_ids is not None:
            new_ids.kept()
        self._find_unknown()
        self.consumption.touch()
        return taken

    def last_sequence(self, publisher: str) -> int | None:
        """See `ScheduledMessages`."""
        return self._writer.last_sequence(publisher)

    def _next_number(self) -> int:
        last = copy_number(max(self._target.next_offset - 1, 0), _FIRST_RULE)
        self._last_number = max(last, self._last_number + 1)
        return self._last_number

    def _number_at(self, offset: int) -> int:
        """The number of the first message from an offset on; −1 without one."""
        found = self._source.find(copy_number(max(offset, 0)), NO_COPY, 1)
        return -1 if not len(found.copies) else _number_of(self._source.read(found.copies, max_bytes=1)[0].message)

    def _first_from(self, number: int) -> int:
        """The lowest place that may have a message with this number, or a higher one. Cost: about 20 message reads."""
        first, behind = offset_of(self._view.floor), self._writer.next_offset
        while first < behind:
            middle = (first + behind) // 2
            if self._number_at(middle) < number:
                first = middle + 1
            else:
                behind = middle
        return copy_number(min(first, self._writer.next_offset))

    def peek(self, from_number: int, limit: int) -> tuple[list[ReadCopy], int]:
        """See `ScheduledMessages`."""
        copies = self._view.unsettled(self._first_from(from_number), limit)
        read = self._source.read(copies, max_bytes=BYTES_A_TURN) if len(copies) else []
        found = [
            ReadCopy(_number_of(each.message), due_of(each.message), each.message, state=CopyState.SCHEDULED)
            for each in read
        ]
        is_all = len(found) == len(copies) < limit
        return found, NO_COPY if is_all or not found else found[-1].copy + 1

    def _find_unknown(self) -> None:
        """Note appended messages that the ledger does not know, so that they wait like others."""
        while True:
            found = self._source.find(self._view.next_copy, NO_COPY, _MOVED_A_TURN)
            if not len(found.copies):
                return
            read = self._source.read(found.copies, max_bytes=_READ_BYTES)
            copies = np.array([each.copy for each in read], dtype=np.int64)
            self._postpone(copies, [each.message for each in read], stop=read[-1].copy + 1)

    def _postpone(self, copies: NDArray[np.int64], messages: list[bytes], *, stop: int) -> None:
        """Let messages wait for their times; up to `stop` there are no others."""
        due_ms = np.array([due_of(message) for message in messages], dtype=np.int64)
        for due in np.unique(due_ms).tolist():
            self._view.postpone(copies[due_ms == due], due)
        if self._view.next_copy < stop:
            self._view.postpone([], 0, covered=[(self._view.next_copy, stop)])

    def answer(self, then: Scheduled, numbers: list[int]) -> None:
        """Answer with numbers behind the commit."""
        self.consumption.tell(then, numbers)

    def cancel(self, numbers: Sequence[int]) -> bool:
        """Forget messages if all of them still wait; whether they did. Raises LogError."""
        places = [self._place_of(number) for number in set(numbers)]
        if NO_COPY in places:
            return False
        self._view.complete_ranges([(place, place + 1) for place in sorted(places)])
        return True

    def _place_of(self, number: int) -> int:
        """The place of the waiting message with a number; NO_COPY without one."""
        place = self._first_from(number)
        is_here = self._view.unsettled(place, 1).tolist() == [place] and self._number_at(offset_of(place)) == number
        return place if is_here else NO_COPY

    # what is due

    def has_work(self, now_ms: int) -> bool:
        """Whether a message is due or on its way, or a change is not written down."""
        ledger = self.consumption.ledger
        return self._has_more or ledger.next_due_ms <= now_ms or bool(ledger.moves()) or self.consumption.is_behind

    def move_due(self, target: str) -> None:
        """Begin to move some of the due messages, in order of numbers. Raises LogError."""
        if self.consumption.ledger.moves() or self.consumption.trouble is not None:
            # One part after the other, so that little is read again after a crash.
            return
        runs = self._view.available(limit=_MOVED_A_TURN)
        copies = np.array([start for start, stop in runs if stop == start + 1], dtype=np.int64)
        self._has_more = len(runs) == _MOVED_A_TURN
        if not len(copies):
            return
        read = self._source.read(copies, max_bytes=_READ_BYTES)
        self._has_more |= len(read) < len(copies)
        stop = read[-1].copy + 1 if read else int(copies[-1]) + 1
        gone = np.setdiff1d(copies[copies < stop], [each.copy for each in read])
        if len(gone):
            numbers = ", ".join(str(offset_of(copy)) for copy in gone[:_GONE_TOLD].tolist())
            logger.warning(
                "%s: %d scheduled messages were damaged and given up, and are not published: offsets %s%s",
                *(self._writer.stream.path, len(gone), numbers, " and more" if len(gone) > _GONE_TOLD else ""),
            )
        self._view.complete_ranges([(copy, copy + 1) for copy in gone.tolist()])
        self._read = {each.copy: each.message for each in read}
        self._view.move_available(np.array(list(self._read), dtype=np.int64), target, b"")

    def message(self, move: Move) -> bytes | None:
        """The message of a move; None where it was damaged and given up. Raises LogError."""
        found = self._read.get(move.copy)
        if found is None:
            read = next(iter(self._source.read(np.array([move.copy], dtype=np.int64), max_bytes=1)), None)
            if read is None:
                return None
            found = read.message
        return Message.decode(found).with_changes([(_NUMBER, None)]).encode()

    def drop_settled(self) -> None:
        """After messages were moved: delete the first file if none of its messages waits. Raises LogError."""
        self._read.clear()
        self._writer.drop_first_below(offset_of(self._view.floor))


def _with_due(message: bytes, due_ms: int) -> bytes:
    """The message with its due time; unchanged for a time of 0. Raises MessageError, PreconditionFailedError."""
    if not 0 <= due_ms <= MAX_TIME_MS:
        raise PreconditionFailedError(f"a message is scheduled for {due_ms} ms; expected 0 to {MAX_TIME_MS}")
    decoded = Message.decode(message)
    due = AmqpValue(AmqpType.TIMESTAMP, due_ms)
    return message if decoded.value(_DUE) == due or not due_ms else decoded.with_changes([(_DUE, due)]).encode()


def due_of(message: bytes) -> int:
    """The due time of a message, in milliseconds; 1 (at once) without one. Cost: then a search for bytes."""
    if _DUE_OCTETS not in message:
        return 1
    found = Message.decode(message).value(_DUE)
    return max(int(found.value), 1) if found is not None and found.type is AmqpType.TIMESTAMP else 1


def _with_number(message: bytes, number: int) -> bytes:
    return Message.decode(message).with_changes([(_NUMBER, AmqpValue(AmqpType.LONG, number))]).encode()


def _number_of(message: bytes) -> int:
    found = Message.decode(message).value(_NUMBER)
    return -1 if found is None else int(found.value)
