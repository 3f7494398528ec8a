"""The ledger of a stream on disk: one message per commit, snapshots among them, old segments dropped."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headgate.errors import LogError, StreamExistsError, StreamReadOnlyError
from headgate.ledger import records as r
from headgate.ledger.replay import LEDGER_FOLDER, ledger_folder, replay
from headgate.ledger.snapshot import cut_snapshot
from headgate.ledger.state import Expired, Move, ViewState
from headgate.ledger.view import View
from headgate.log import DiskFile, Durability, OpenFile, Stream, StreamArguments, Wait, Writer, no_wait

SEGMENT_BYTES = 4 << 20
SEGMENT_CHUNKS = 8192
"""Limit: chunks of a ledger's segment. Sealing it takes some 0.3 µs a chunk, within a commit."""

LEAST_BYTES_BETWEEN_SNAPSHOTS = 1 << 20
_SNAPSHOT_BYTES_AT_ONCE = 32 << 10
_SNAPSHOT_RECORDS_AT_ONCE = 150
"""Limit: records at once. Records of idle views are small, so their number determines the time."""

_PUBLISHER_DIGITS = 32

_CLAIM_BITS = 12
"""Claim numbers begin at the time when the ledger is opened, in ms · 2^12.

So tokens fit neither the ledger of a stream that was deleted and made again nor one that lost its end in a power loss.
"""


@dataclass(slots=True)
class _Cutting:
    """A snapshot that is being cut.

    `begun_at` is the ledger offset of its beginning, `bytes_before` were written between the last snapshot and this
    one.
    """

    records: Iterator[r.Record]
    bytes_before: int
    begun_at: int | None = None
    is_complete: bool = False

    def next_records(self, size_bytes: int) -> list[bytes]:
        """The next records, encoded: until they reach `size_bytes`, or the limit of records at once."""
        parts: list[bytes] = []
        for record in self.records:
            parts.append(r.encode_record(record))
            size_bytes -= len(parts[-1])
            if size_bytes <= 0 or len(parts) == _SNAPSHOT_RECORDS_AT_ONCE:
                return parts
        self.is_complete = True
        return parts


class LedgerWrite:
    """A commit under way: made by `Ledger.begin`, written by `run`, ended by `Ledger.finish`."""

    __slots__ = ("_now_ms", "_writer", "error", "message", "moves", "offset")

    def __init__(self, writer: Writer, message: bytes, moves: int, now_ms: int) -> None:
        self._writer = writer
        self._now_ms = now_ms
        self.message = message
        self.moves = moves
        """Number of moves in the message."""
        self.offset: int | None = None
        """The message's offset in the ledger, once it was written."""
        self.error: LogError | None = None

    def run(self) -> None:
        """Write the message and, with `Durability.DISK`, flush it; in any thread. `Ledger.finish` raises the errors."""
        try:
            _, (header,) = self._writer.append_message(self.message, now_ms=self._now_ms)
            self.offset = header.chunk_id
        except LogError as error:
            self.error = error


class Ledger:
    """The durable state of the copies of a stream. Only one process may open it; not for several threads at once.

    Calls change it in memory; `commit` writes their changes down, in one message. Send a peer a token or an answer only
    after the commit. Time is an argument everywhere, and may go backwards: claims, locks and waits end when `due` is
    called with their time.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        found = replay(writer.stream)
        self._state = found.state
        self._identity = writer.settings.identity
        self._bytes_since = found.bytes_since
        self._snapshot_bytes = found.snapshot_bytes
        self._cutting: _Cutting | None = None
        self._needed_from = found.snapshot_at
        self._pending: list[bytes] = []
        self._unwritten: bytes | None = None
        self._failure: LogError | None = None

    @staticmethod
    def open(
        stream: Stream,
        *,
        now_ms: int,
        folder: str = LEDGER_FOLDER,
        wait: Wait = no_wait,
        durability: Durability = Durability.PROCESS,
        open_file: OpenFile = DiskFile,
    ) -> Ledger:
        """Open the ledger of a stream, in the folder `folder` inside the stream's; made if there is none.

        All claims and their tokens are valid, also those whose time ended meanwhile, until `due` ends them. With
        `Durability.DISK` a commit also survives a power loss. Cost: proportional to the unsettled copies, and to the
        bytes written since the last snapshot (at most some 5 MB, or three times the size of a snapshot).

        Raises StreamLockedError that names the process that has it open, StreamReadOnlyError for a foreign stream,
        StreamNotFoundError and StreamReplacedError as `Writer.open`, LogError for a damaged ledger, StorageFullError.
        """
        stream.check_is_there()
        if stream.is_foreign:
            raise StreamReadOnlyError(
                "a foreign stream keeps no ledger; adopt it: headgate stream adopt", path=stream.path
            )
        path = ledger_folder(stream, folder)
        ledger = Stream.find(path)
        if ledger is None:
            with contextlib.suppress(StreamExistsError):
                Stream.create(
                    path,
                    name=stream.identity,
                    now_ms=now_ms,
                    arguments=StreamArguments(max_segment_size_bytes=SEGMENT_BYTES, max_segment_chunks=SEGMENT_CHUNKS),
                    wait=wait,
                    open_file=open_file,
                )
            ledger = Stream.open(path)
        if ledger.name != stream.identity:
            raise LogError(
                f"this ledger is that of the stream with the identity {ledger.name}, and the stream here has "
                f"{stream.identity}; remove the folder to begin without what was settled",
                path=path,
            )
        writer = Writer.open(ledger, now_ms=now_ms, wait=wait, durability=durability, open_file=open_file)
        try:
            opened = Ledger(writer)
            opened._state.next_claim = max(opened._state.next_claim, now_ms << _CLAIM_BITS)
            return opened
        except BaseException:
            writer.close()
            raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files and release the lock; closing twice is harmless. Uncommitted changes are lost."""
        self._writer.close()

    # views

    def view(self, key: str, from_copy: int) -> View:
        """The view with this name; if there is none, a new one that gets the copies from `from_copy` on.

        Raises ValueError for a negative `from_copy`, and as the calls of `View`.
        """
        state = self._state.by_key.get(key)
        if state is None:
            if from_copy < 0:
                raise ValueError(f"a view from copy {from_copy} on; expected 0 or more")
            number = self._state.next_view
            self._do(r.ViewOpened(number, from_copy, key.encode("utf-8", "surrogateescape")))
            state = self._state.views[number]
        return View(self._state, state, self._change)

    def views(self) -> list[View]:
        """All views, oldest first."""
        return [View(self._state, state, self._change) for state in self._state.views.values()]

    def drop(self, key: str) -> bool:
        """Remove a view; its pending moves stay. False if there is none with this name.

        To begin a view anew at another copy, drop it and open it again: tokens of the old view are invalid then.
        """
        state = self._state.by_key.get(key)
        if state is not None:
            self._do(r.ViewDropped(state.number))
        return state is not None

    # time

    def due(self, now_ms: int) -> list[Expired]:
        """End the claims, session locks and waits that are due; their copies become available.

        Gives the copies whose claims ended; the caller decides whether they have too many attempts. Call it at the
        beginning of a turn: a claim is valid until a call of `due` with its time or a later one. Nothing is written.
        """
        return self._state.due(now_ms)

    @property
    def next_due_ms(self) -> int:
        """The time before which nothing is due; 2^63 − 1 if nothing will be."""
        return self._state.next_due_ms

    # moves

    def moves(self) -> dict[str, list[Move]]:
        """Committed moves that are not known to be in their targets, in order, by target.

        The caller appends each to its target under `publisher(move.view)` and `move.sequence`, in this order, and skips
        moves not above the target's last sequence of that publisher: an earlier process appended them. Then it calls
        `moved`. A move that cannot be appended holds back all later ones of its target. `append_moves` does this for a
        target that is a stream. Do it after `open`, and after each commit that brought moves.

        A target remembers the last sequences of at least 255 publishers. So at most 255 views may append to one target
        before their `moved` is committed.
        """
        return self._state.moves

    def moved(self, target: str, sequence: int) -> None:
        """Note that the moves to `target` up to `sequence` are in it, as durably as they must be."""
        self._do(r.MoveDone(target.encode("utf-8", "surrogateescape"), sequence))

    def redirect(self, move: Move, target: str, change: bytes) -> None:
        """Send a move that its target refuses to another target, with another change; `moved` ends the old move.

        Both are in the same commit, so also after a crash the copy is on its way to exactly one of them. For a view
        that was dropped nothing is noted.
        """
        if move.view in self._state.views:
            copies, attempts = np.array([[move.copy], [move.attempt]], dtype=np.int64)
            self._do(r.Moved(move.view, target.encode("utf-8", "surrogateescape"), change, copies, attempts))

    def publisher(self, view: int) -> str:
        """The publisher name under which the moves of a view, by number, are appended to any target."""
        name = hashlib.sha256(f"{self._identity} {view}".encode()).hexdigest()[:_PUBLISHER_DIGITS]
        return f"ledger-{name}"

    # what retention must keep

    @property
    def pin(self) -> int | None:
        """The lowest offset of the stream that a view or a pending move needs; None if there is neither."""
        return self._state.pin()

    # writing

    @property
    def has_changes(self) -> bool:
        """Whether there are changes for `commit` to write."""
        return bool(self._pending) or self._unwritten is not None

    @property
    def is_broken(self) -> bool:
        """Whether a commit failed and could not be taken back: the ledger has to be opened again."""
        return self._writer.is_broken

    def commit(self, now_ms: int) -> None:
        """Write the changes since the last commit; they are durable when this returns.

        Without changes nothing is written. Raises StorageFullError, StreamReadOnlyError or LogError. Then send nothing
        to a peer; calls that change something raise as well, and a later `commit` writes the missing changes first.
        The changes stay in memory, and may or may not be in the ledger if the process dies. After a failure that could
        not be taken back every commit raises: open the ledger again.

        Cost: about 10 µs, and while a snapshot is cut some 2 ms more.
        """
        write = self.begin(now_ms)
        if write is not None:
            write.run()
            self.finish(write)

    def begin(self, now_ms: int) -> LedgerWrite | None:
        """Begin a commit whose `LedgerWrite.run` may run in another thread; None without changes.

        Changes made before `finish` belong to the next commit; no other commit may begin before `finish`.
        """
        if not self.has_changes:
            return None
        self._unwritten = self._message()
        return LedgerWrite(self._writer, self._unwritten, len(self._state.unplaced), now_ms)

    def finish(self, write: LedgerWrite) -> None:
        """End a commit; raises as `commit`."""
        if write.offset is None:
            self._failure = write.error or LogError("writing failed inside", path=self._writer.stream.path)
            raise self._failure
        self._failure = self._unwritten = None
        self._bytes_since += len(write.message)
        self._state.place(write.offset, write.moves)
        self._note_snapshot(write.offset)

    def _message(self) -> bytes:
        """The message to write: the pending changes, and the next part of a snapshot if one is due."""
        parts = self._pending
        self._pending = []
        if self._unwritten is not None:
            return self._unwritten + b"".join(parts)
        enough = max(LEAST_BYTES_BETWEEN_SNAPSHOTS, 2 * self._snapshot_bytes)
        if self._cutting is None and self._bytes_since >= enough:
            self._cutting = _Cutting(cut_snapshot(self._state), self._bytes_since)
        if self._cutting is not None:
            # At least as many bytes as the turn's changes: the snapshot is complete before the ledger has doubled.
            parts += self._cutting.next_records(max(_SNAPSHOT_BYTES_AT_ONCE, sum(map(len, parts))))
        return r.encode_message(parts)

    def _note_snapshot(self, offset: int) -> None:
        """Note that a message was written: if it completes a snapshot, earlier messages are not needed any more."""
        if self._needed_from:
            self._drop_segment()
        cutting = self._cutting
        if cutting is None:
            return
        if cutting.begun_at is None:
            cutting.begun_at = offset
        if cutting.is_complete:
            self._bytes_since -= cutting.bytes_before
            self._snapshot_bytes = self._bytes_since
            self._cutting = None
            self._needed_from = cutting.begun_at

    def _drop_segment(self) -> None:
        """Delete one segment that is not needed any more, if there is one."""
        # A segment that cannot be deleted now is deleted after the next snapshot.
        with contextlib.suppress(LogError):
            if self._writer.drop_first_below(self._needed_from):
                return
        self._needed_from = 0

    def _change(self, view: ViewState, record: r.Record) -> None:
        if self._state.views.get(view.number) is not view:
            raise LogError(f"view {view.key!r} was dropped", path=self._writer.stream.path)
        self._do(record)

    def _do(self, record: r.Record) -> None:
        if self._failure is not None:
            failed = self._failure
            raise type(failed)(f"nothing can be settled now: {failed.reason}", path=failed.path)
        encoded = r.encode_record(record)
        self._state.apply(record)
        self._pending.append(encoded)
