"""What a client of RabbitMQ's protocols holds of a subscription: the copies that it was given and has not settled.

As in RabbitMQ they are the client's until it settles them or goes. A subscription has a lock time, so claims are
renewed half way, for `HOLD_LIMIT_MS` at most: a client that has not settled by then has failed, and its copies are
given out again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headgate.broker import DeadLetterReason, GivenCopies, Receiver, Session
from headgate.errors import HeadgateError, ResourceExistsError, UnsupportedError
from headgate.topic import TopicKind

HOLD_LIMIT_MS = 30 * 60_000
"""RabbitMQ takes back what a consumer does not settle after the same time (its `consumer_timeout`)."""

REJECTED = "rejected"
"""The reason of a dead letter whose client gave none; RabbitMQ's word."""


NOT_DELETED = "a subscription is not deleted as a queue: use `headgate subscription rm`"

QUORUM = "quorum"
"""The type of queue that a subscription is to RabbitMQ's clients: with outcomes and a count of deliveries."""


class Verdict(enum.Enum):
    """What becomes of a copy."""

    COMPLETE = "it is done with"
    RELEASE = "it goes back, as if it had not been given out"
    FAIL = "it goes back, and the attempt counts"
    DEAD_LETTER = "it becomes a dead letter"


@dataclass(slots=True)
class _Held:
    token: bytes
    held_until_ms: int


class Holding:
    """The copies of one receiver that its client holds, by the numbers that the client knows them by.

    Clients complete copies one by one: those of one turn are completed together, at its end (`call_soon`). `failed`
    gets the error of a settlement that is not on disk.
    """

    __slots__ = (
        "_call_soon",
        "_completed",
        "_failed",
        "_held",
        "_is_dead_letter",
        "_renew_at_ms",
        "_then",
        "receiver",
    )

    def __init__(
        self,
        receiver: Receiver,
        failed: Callable[[HeadgateError], None],
        call_soon: Callable[[Callable[[], None]], None],
        *,
        is_dead_letter: bool,
    ) -> None:
        self.receiver = receiver
        self._failed = failed
        self._call_soon = call_soon
        self._is_dead_letter = is_dead_letter
        self._held: dict[int, _Held] = {}
        self._completed: list[bytes] = []
        self._then: list[Callable[[], None]] = []
        self._renew_at_ms: int | None = None

    def __len__(self) -> int:
        return len(self._held)

    def add(self, numbers: Iterable[int], given: GivenCopies) -> None:
        """The client has copies that it is to settle, under these numbers."""
        locked_until_ms = given.locked_until_ms
        lock_ms = self.receiver.lock_ms
        until_ms = locked_until_ms - lock_ms + HOLD_LIMIT_MS
        for number, token in zip(numbers, given.packed_tokens(), strict=True):
            self._held[number] = _Held(token, until_ms)
        if self._renew_at_ms is None:
            self._renew_at_ms = locked_until_ms - lock_ms // 2

    def settle(
        self,
        numbers: Iterable[int],
        verdict: Verdict,
        *,
        why: DeadLetterReason | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """The client says what becomes of copies; those that it does not hold any more are passed over.

        `then` is called when that is on disk. A dead letter that is rejected again is done with, as in a queue of
        RabbitMQ's without a dead letter exchange.
        """
        held = [self._held.pop(number, None) for number in numbers]
        tokens = [each.token for each in held if each is not None]
        if not tokens:
            then()
            return

        def answered(result: list[bool] | HeadgateError) -> None:
            self._answer(result, [then])

        if verdict is Verdict.COMPLETE or (verdict is Verdict.DEAD_LETTER and self._is_dead_letter):
            if not self._completed:
                self._call_soon(self._complete)
            self._completed += tokens
            self._then.append(then)
        elif verdict is Verdict.DEAD_LETTER:
            self.receiver.dead_letter(tokens, answered, why=why or DeadLetterReason(REJECTED))
        else:
            self.receiver.release(tokens, answered, counts=verdict is Verdict.FAIL)

    def _complete(self) -> None:
        tokens, self._completed = self._completed, []
        then, self._then = self._then, []
        if tokens:
            self.receiver.complete(tokens, lambda result: self._answer(result, then))

    def _answer(self, result: list[bool] | HeadgateError, then: Iterable[Callable[[], None]]) -> None:
        if isinstance(result, HeadgateError):
            self._failed(result)
        else:
            for call in then:
                call()

    def give_back(self, verdict: Verdict) -> None:
        """The client has gone, and nobody hears an answer: all that it holds goes back."""
        self._complete()
        tokens = [each.token for each in self._held.values()]
        self._held.clear()
        if tokens:
            self.receiver.release(tokens, counts=verdict is Verdict.FAIL)

    def forget(self) -> None:
        """The subscription is no more."""
        self._held.clear()
        self._completed.clear()
        self._then.clear()

    def tick(self, now_ms: int) -> None:
        """Renew the claims that are half over. Cost: a look at each copy held, once in half a lock time."""
        if self._renew_at_ms is None or now_ms < self._renew_at_ms:
            return
        renewed = [each for each in self._held.values() if now_ms < each.held_until_ms]
        self._renew_at_ms = None
        if renewed:
            until_ms = self.receiver.renew([each.token for each in renewed])
            self._renew_at_ms = until_ms - self.receiver.lock_ms // 2


def check_subscription_declared(
    queue: str, arguments: Mapping[str, object], *, durable: bool, exclusive: bool, auto_delete: bool
) -> None:
    """Raise ResourceExistsError for a declaration that is not that of a subscription's queue; arguments with `x-`."""
    if arguments != {"x-queue-type": QUORUM} or not durable or exclusive or auto_delete:
        raise ResourceExistsError(
            "it is a subscription: a durable queue with x-queue-type = quorum and no other argument", subject=queue
        )


def refused_queue(
    session: Session, queue: str, stream_argument: str = "x-queue-type = stream"
) -> ResourceExistsError | UnsupportedError:
    """Why a classic or quorum queue is not declared, and what serves its purpose here."""
    if session.topic_kind(queue) is TopicKind.QUEUE:
        reason = f"it is a queue of Service Bus: its clients settle its messages, others read it with {stream_argument}"
        return ResourceExistsError(reason, subject=queue)
    if session.topic_kind(queue) is TopicKind.TOPIC:
        reason = f"it is a topic: consume from {queue}/Subscriptions/NAME, or read all of it with {stream_argument}"
        return ResourceExistsError(reason, subject=queue)
    if queue in session.streams():
        return ResourceExistsError(f"it is a stream: declare it with {stream_argument}", subject=queue)
    return UnsupportedError(
        f"no classic or quorum queues here: declare with {stream_argument}, or, for settlement, retries and dead "
        "letters, consume from TOPIC/Subscriptions/NAME, a topic's subscription (headgate subscription create)",
        subject=queue,
    )
