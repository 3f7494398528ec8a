"""Deferred copies of one subscription: they wait in a small stream until a client asks for one by its number.

    defer ──► move ──► deferred/ stream ──► noted: its number, and where it is
                                                │ receive(numbers)
                                                └──► claim ──► commit ──► deliveries

A copy keeps its number. Its tokens are marked, as its claims are in another ledger. An index by number is made when it
is first needed, and kept when files are closed. Cost: 40 µs a copy, once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headgate.broker.delivery import (
    NO_PROPERTIES,
    Consumption,
    CopySource,
    CopyState,
    Delivery,
    Movement,
    Properties,
    ReadCopies,
    ReadCopy,
    Settled,
    drop_copies,
    nobody_asks,
)
from headgate.broker.topics.dispatcher import BYTES_A_TURN, COPIES_A_TURN, Dispatcher
from headgate.broker.topics.policy import SubscriptionPolicy
from headgate.errors import HeadgateError, LogError, MessageError, MessageGivenUpError
from headgate.ledger import NO_COPY, Expired, Move, Standing, Tokens, View
from headgate.message import FieldReference, Message, Section
from headgate.topic import Origin, origin_of

ReceivedDeferred: TypeAlias = Callable[[list[Delivery] | HeadgateError], None]
"""Called once, in the broker's thread, with the copies that the caller has now, or the error."""

_GROUP_ID = FieldReference(Section.PROPERTIES, position=10)
_PEEKED_AT_ONCE = 64
_EVERY = 1 << 31
_MARK = 0x80
"""Copies have 63 bits, so the first bit of their tokens is free."""


def is_deferred(token: bytes) -> bool:
    """Whether a token is that of a deferred copy."""
    return bool(token) and token[0] >= _MARK


def _turned(token: bytes) -> bytes:
    """The token with its mark turned, so that the tokens of other copies hold nothing here."""
    return bytes((token[0] ^ _MARK,)) + token[1:] if token else token


def _session_of(message: bytes) -> str | None:
    try:
        found = Message.decode(message).value(_GROUP_ID)
    except MessageError:
        return None
    return None if found is None else found.text()


@dataclass(frozen=True, slots=True)
class AskedCopies:
    """A request for deferred copies by their numbers; the unclaimed ones are given out.

    With a `session` only copies whose group id equals it.
    """

    copies: Sequence[int]
    settles_first: bool
    session: str | None
    then: ReceivedDeferred


class DeferredIndex:
    """The known places of deferred copies, and their origins."""

    __slots__ = ("origins", "places")

    def __init__(self) -> None:
        self.places: dict[int, int] = {}
        """Number of a copy → its place."""
        self.origins: dict[int, Origin] = {}
        """Place of a copy → its origin."""

    def add(self, place: int, origin: Origin) -> None:
        """Note a copy at a place."""
        self.origins[place] = origin
        self.places[origin.copy] = place

    def drop(self, places: Iterable[int]) -> None:
        """Forget the copies at some places."""
        for place in places:
            self.places.pop(self.origins.pop(place).copy, None)


class DeferredDispatcher(Dispatcher):
    """Gives out deferred copies by number, and settles them; there is no other way to receive them."""

    def __init__(
        self,
        name: str,
        view: View,
        source: CopySource,
        consumption: Consumption,
        policy: SubscriptionPolicy,
        now_ms: Callable[[], int],
        *,
        index: DeferredIndex,
    ) -> None:
        super().__init__(name, view, source, consumption, policy, now_ms)
        self._index = index
        self._is_indexed = False

    def count_unseen(self) -> None:
        """Note new copies; later, if the ledger takes nothing now."""
        super().count_unseen()
        with contextlib.suppress(LogError):
            self._note()

    def _note(self) -> None:
        """Note copies that came since the last call. Raises LogError."""
        while self.view.next_copy < self.source.end:
            found = self.source.find(self.view.next_copy, NO_COPY, COPIES_A_TURN)
            self.view.postpone(found.copies, 0, covered=[(self.view.next_copy, found.searched)])
            if self._is_indexed:
                self._read_origins(found.copies)
        self.unseen = 0

    def _places(self) -> dict[int, int]:
        """Number of each copy → its place. Raises LogError."""
        self._note()
        if not self._is_indexed:
            unsettled = self.view.unsettled(0, _EVERY)
            self._index.drop(self._index.origins.keys() - set(unsettled.tolist()))
            self._read_origins(unsettled)
            self._is_indexed = True
        return self._index.places

    def _read_origins(self, copies: NDArray[np.int64]) -> None:
        missing = np.array([copy for copy in copies.tolist() if copy not in self._index.origins], dtype=np.int64)
        while len(missing):
            with self._consumption.guarded():
                read = self.source.read(missing, max_bytes=BYTES_A_TURN)
            if not read:
                break
            for each in read:
                self._index.add(each.copy, origin_of(each.message) or Origin(each.copy, each.timestamp_ms, 0))
            missing = missing[missing > read[-1].copy]
        # The others were damaged, and given up.
        gone = [copy for copy in copies.tolist() if copy not in self._index.origins]
        drop_copies(self.view, np.array(gone, dtype=np.int64))

    def _forget_settled(self, copies: Iterable[int]) -> None:
        places = np.array(sorted(set(copies) & self._index.origins.keys()), dtype=np.int64)
        self._index.drop(places[self.view.standings(places) == Standing.SETTLED].tolist())

    # giving out

    def receive(self, asked: AskedCopies, now_ms: int) -> None:
        """Claim the unclaimed copies of a request, as many as fit; answer behind the commit."""
        self.used_ms = now_ms
        try:
            with self._consumption.guarded():
                deliveries = self._claim_asked(asked, now_ms)
        except LogError as error:
            asked.then(error)
            return
        self._consumption.tell(asked.then, deliveries)

    def _claim_asked(self, asked: AskedCopies, now_ms: int) -> list[Delivery]:
        places = self._places()
        known = np.array(sorted({places[copy] for copy in asked.copies if copy in places}), dtype=np.int64)
        free = known[self.view.standings(known) == Standing.AVAILABLE]
        if not len(free):
            return []
        read = self._without_outlived(self._read(free, BYTES_A_TURN), now_ms)
        if asked.session is not None:
            read = read.take(np.array([_session_of(each.message) == asked.session for each in read], dtype=np.bool_))
        until_ms = now_ms + self.policy.settings.lock_ms
        claim = self.view.claim(read.copies, until_ms)
        deliveries = [
            self._delivery(each, token, attempt, until_ms)
            for each, token, attempt in zip(read, claim.tokens.pack(), claim.attempts.tolist(), strict=True)
        ]
        if asked.settles_first:
            self.view.complete(claim.tokens)
            for delivery in deliveries:
                delivery.token = b""
        self._forget_settled(free.tolist())
        order = {copy: place for place, copy in enumerate(asked.copies)}
        return sorted(deliveries, key=lambda delivery: order[delivery.copy])

    def _delivery(self, read: ReadCopy, token: bytes, attempt: int, until_ms: int) -> Delivery:
        origin = self._index.origins[read.copy]
        return Delivery(
            _turned(token), origin.copy, origin.attempts + attempt, origin.arrived_ms, until_ms, read.message
        )

    def _without_outlived(self, found: ReadCopies, now_ms: int) -> ReadCopies:
        """The copies whose time to live, from their arrival in the topic, is not over; gives up the others."""
        arrived_ms = [self._index.origins[copy].arrived_ms for copy in found.copies.tolist()]
        return super()._without_outlived(
            ReadCopies(found.copies, np.array(arrived_ms, dtype=np.int64), found.messages), now_ms
        )

    def peek(self, from_copy: int, limit: int, session: str | None = None) -> tuple[list[ReadCopy], int]:
        """As for other copies, by their numbers; with `session` copies of other sessions are left out."""
        self.used_ms = self.now_ms()
        numbers = sorted(number for number in self._places() if number >= from_copy)
        found: list[ReadCopy] = []
        size_bytes = first = 0
        while first < len(numbers) and len(found) < limit and size_bytes < BYTES_A_TURN:
            part = numbers[first : first + min(_PEEKED_AT_ONCE, limit - len(found))]
            read = self._read_by_number(part)
            size_bytes += sum(len(each.message) for each in read)
            found += [each for each in read if session is None or _session_of(each.message) == session]
            first += len(part)
        return found, numbers[first] if first < len(numbers) else NO_COPY

    def _read_by_number(self, numbers: Sequence[int]) -> list[ReadCopy]:
        places = np.array(sorted(self._index.places[number] for number in numbers), dtype=np.int64)
        attempts = dict(zip(places.tolist(), self.view.attempts_of(places).tolist(), strict=True))
        found: list[ReadCopy] = []
        while len(found) < len(places):
            read = self._read(places[len(found) :], BYTES_A_TURN)
            if not read:
                raise LogError(f"the message of copy {places[len(found)]} is missing", path=self.name)
            found += read
        for each in found:
            origin = self._index.origins[each.copy]
            each.attempts, each.state = origin.attempts + attempts[each.copy], CopyState.DEFERRED
            each.copy, each.timestamp_ms = origin.copy, origin.arrived_ms
        return sorted(found, key=attrgetter("copy"))

    # settling

    def release(
        self,
        tokens: Sequence[bytes],
        then: Settled = nobody_asks,
        *,
        counts: bool,
        delay_ms: int | None = None,
        properties: Properties = NO_PROPERTIES,
    ) -> None:
        """Release copies: they stay deferred, and are available again at once."""
        super().release(tokens, then, counts=counts, delay_ms=0, properties=properties)

    def defer(
        self, tokens: Sequence[bytes], then: Settled = nobody_asks, *, properties: Properties = NO_PROPERTIES
    ) -> None:
        """Defer copies again: they stay deferred after any number of attempts."""

        def settle(given: Tokens) -> NDArray[np.bool_]:
            self._keep_properties(given, properties)
            return self.view.release(given, counts=True)

        self.change(tokens, then, settle)

    def _attempts(self, tokens: Tokens) -> NDArray[np.int64]:
        attempts = super()._attempts(tokens)
        held = attempts > 0
        attempts[held] += self._attempts_before(tokens.copies[held])
        return attempts

    def _attempts_before(self, copies: NDArray[np.int64]) -> NDArray[np.int64]:
        self._read_origins(copies)
        origins = map(self._index.origins.get, copies.tolist())
        return np.array([0 if origin is None else origin.attempts for origin in origins], dtype=np.int64)

    def change(self, tokens: Sequence[bytes], then: Settled, change: Callable[[Tokens], NDArray[np.bool_]]) -> None:
        """See `Leases.change`; the tokens are marked ones."""

        def change_and_forget(given: Tokens) -> NDArray[np.bool_]:
            held = change(given)
            self._forget_settled(given.copies[held].tolist())
            return held

        super().change([_turned(token) for token in tokens], then, change_and_forget)

    def expired(self, expired: Expired) -> None:
        """Claims ended: copies are available again, or become dead letters after too many attempts."""
        attempts = expired.attempts + self._attempts_before(expired.copies)
        super().expired(Expired(expired.view, expired.copies, attempts))
        self._forget_settled(expired.copies.tolist())

    # carrying out its moves: see `MovedCopies`

    def read_ahead(self, moves: Sequence[Move]) -> None:
        """Does nothing: its moves are few."""

    def forget(self) -> None:
        """Does nothing: no message was kept."""

    def moved(self, move: Move, _movement: Movement) -> tuple[bytes, Origin]:
        """The message of a move to the dead letters, and its origin. Raises LogError."""
        read = next(iter(self.source.read(np.array([move.copy], dtype=np.int64), max_bytes=1)), None)
        if read is None:
            raise MessageGivenUpError(f"the message of copy {move.copy} is not there any more", path=self.name)
        origin = origin_of(read.message) or Origin(read.copy, read.timestamp_ms, 0)
        return read.message, replace(origin, attempts=origin.attempts + move.attempt)
