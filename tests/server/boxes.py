"""A service of AMQP 1.0 beside RabbitMQ's, in memory: boxes whose messages are locked for a receiver until it settles.

    box/NAME                publish to a box, one message or a batch of them; receive from it
    box/NAME/wait           receive from it; the attach is answered when there is a message
    box/NAME/$management    ask for the number of messages; the response goes to the link that `reply-to` names

What clients said is done and answered when the test calls `Box.turn`.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headgate.errors import HeadgateError
from headgate.message import AmqpType, AmqpValue, Body, EncodedMessages, Message
from headgate.protocols.amqp10 import Accepted, Error, Link, Modified, Rejected, Released, annotated_message
from headgate.protocols.amqp10.events import Deliveries, Outcomes
from headgate.protocols.amqp10.performatives import RECEIVER, Attach
from headgate.protocols.amqp10.terminus import DeliveryState
from headgate.protocols.sasl import Credentials
from headgate.server.amqp10 import (
    Amqp10Handler,
    RefusedAttachError,
    Request,
    RequestNode,
    ServedLink,
    address_of,
    our_terminus,
)

BATCH = 0x80013700
"""Message format: each data section is a message."""
LOCKED_UNTIL_MS = 1_700_000_000_000


@dataclass
class Item:
    """A message of a box."""

    number: int
    data: bytes
    failures: int = 0


@dataclass
class Box:
    """Messages, those that are locked by the tokens of their deliveries, and what happens at the end of the turn."""

    items: deque[Item] = field(default_factory=deque)
    locked: dict[bytes, Item] = field(default_factory=dict)
    dead: list[Item] = field(default_factory=list)
    later: list[Callable[[], None]] = field(default_factory=list)
    count: int = 0

    def turn(self, order: slice = slice(None)) -> int:
        """Does what is due, in that order; gives how much it was."""
        later, self.later = self.later[order], []
        for call in later:
            call()
        return len(later)

    def put(self, data: bytes) -> None:
        self.items.append(Item(self.count, data))
        self.count += 1

    def lock(self, item: Item) -> bytes:
        token = item.number.to_bytes(8, "big") + item.failures.to_bytes(8, "big")
        self.locked[token] = item
        return token

    def settle(self, token: bytes, state: DeliveryState | None) -> bool:
        """Settles a delivery; False if its lock is lost."""
        item = self.locked.pop(token, None)
        if item is None:
            return False
        match state:
            case Rejected():
                self.dead.append(item)
            case Modified() | Released():
                item.failures += isinstance(state, Modified)
                self.items.appendleft(item)
        return True


class BoxService:
    """The boxes on one connection."""

    refuses_without_termini = True
    ignores_strays = True

    def __init__(self, handler: Amqp10Handler, boxes: Mapping[str, Box]) -> None:
        self._handler = handler
        self._boxes = boxes
        self._management: dict[str, BoxManagement] = {}

    def mechanisms(self) -> Sequence[str]:
        return ()

    def knows(self, credentials: Credentials) -> bool:
        return False

    def close(self) -> None:
        pass

    def claims(self, address: str | None) -> bool:
        return address is not None and address.lower().startswith("box/")

    def _answer(self, link: Link, answer: Attach, box: Box) -> None:
        if box.items:
            self._handler.answer_attach(link, answer)
        else:
            self._handler.refuse_attach(link, Error("com.example:timeout", "there is no message"), without_termini=True)

    def serve(self, link: Link, attach: Attach) -> tuple[ServedLink, Attach | None]:
        our_terminus(link, attach, second=True)
        _, name, *suffix = (address_of(link, attach) or "").lower().split("/")
        if name not in self._boxes:
            raise RefusedAttachError("com.example:no-box", f"there is no box {name!r}")
        answer = replace(attach, unsettled=None)
        box = self._boxes[name]
        if suffix == ["$management"]:
            node = self._management.setdefault(name, BoxManagement(self._handler, box))
            return node.serve(link), answer
        if suffix == ["wait"]:
            box.later.append(functools.partial(self._answer, link, answer, box))
            return BoxReceiver(self._handler, link, box), None
        kind = BoxSender if link.role is RECEIVER else BoxReceiver
        return kind(self._handler, link, box), answer


class BoxSender(ServedLink):
    """A link on which messages come into a box."""

    def __init__(self, handler: Amqp10Handler, link: Link, box: Box) -> None:
        super().__init__(handler, link)
        self._box = box

    def attached(self) -> None:
        self._link.grant(100)

    def take(self, deliveries: Deliveries) -> None:
        for delivery in deliveries:
            messages = [delivery.message]
            if deliveries.message_format == BATCH:
                messages = [part.value for part in Message.decode(delivery.message).body.values()]
            for message in messages:
                self._box.put(message)
            self._link.session.settle(delivery.delivery_id, delivery.delivery_id, Accepted())


class BoxReceiver(ServedLink):
    """A link on which messages go out of a box: locked until they are settled, or pre-settled and gone."""

    def __init__(self, handler: Amqp10Handler, link: Link, box: Box) -> None:
        super().__init__(handler, link)
        self._box = box
        self._tokens: dict[int, bytes] = {}

    def attached(self) -> None:
        self._handler.pump.add(self, self._deliver, self._failed)

    def close(self) -> None:
        super().close()
        self._handler.pump.remove(self)
        for token in self._tokens.values():
            self._box.settle(token, Released())

    def credit_changed(self) -> None:
        self._on_ready()

    # What the pump asks of a consumer

    def listen(self, on_ready: Callable[[], None], takes_more: Callable[[], bool] = lambda: True) -> None:
        self._on_ready = on_ready

    @property
    def has_pending(self) -> bool:
        return bool(self._box.items)

    def scan_due(self) -> None:
        """There is nothing to scan."""

    def _failed(self, error: HeadgateError) -> None:
        raise AssertionError(error)

    def _deliver(self, budget_bytes: int) -> int:
        link, box, written = self._link, self._box, 0
        while box.items and link.credit and link.session.may_send and written < budget_bytes:
            item = box.items.popleft()
            annotations = {
                "x-opt-number": AmqpValue(AmqpType.LONG, item.number),
                "x-opt-locked-until": AmqpValue(AmqpType.TIMESTAMP, LOCKED_UNTIL_MS),
            }
            data = annotated_message(item.data, annotations, delivery_count=item.failures)
            tag = item.number.to_bytes(16, "big") if link.settled else box.lock(item)
            (number,) = link.send_tagged(
                EncodedMessages.of([data]), np.frombuffer(tag, np.uint8)[np.newaxis], settled=link.settled
            )
            if not link.settled:
                self._tokens[number] = tag
            written += len(data)
        if link.drain and link.is_attached:
            link.use_up_credit()
        self._handler.flush()
        return written

    def decided(self, outcomes: Outcomes) -> None:
        self._box.later.append(functools.partial(self._settle, outcomes))

    def _settle(self, outcomes: Outcomes) -> None:
        tokens = [(number, self._tokens.pop(number, b"")) for number in outcomes.ids]
        done = {number: self._box.settle(token, outcomes.state) for number, token in tokens}
        if outcomes.settled or not self.may_speak:
            return
        # A dead letter is answered without its reason: with one it would have failed.
        right = Rejected() if isinstance(outcomes.state, Rejected) else outcomes.state
        self._link.settle((number for number in done if done[number]), right)
        lost = Rejected(Error("com.example:lock-lost", "the lock is lost"))
        self._link.settle((number for number in done if not done[number]), lost)
        self._handler.flush()


class BoxManagement(RequestNode):
    """Tells how many messages a box has, at the end of the turn."""

    def __init__(self, handler: Amqp10Handler, box: Box) -> None:
        super().__init__(handler)
        self._box = box

    def respond(self, request: Request) -> None:
        message = Message.decode(request.message)
        self._box.later.append(functools.partial(self._answer, request, message.properties["message-id"]))

    def _answer(self, request: Request, identity: AmqpValue) -> None:
        properties = {"correlation-id": identity}
        request.answer(Message(Body.value(len(self._box.items)), properties=properties).encode())

    def route(self, request: Request, links: Sequence[Link]) -> Link | None:
        reply_to = Message.decode(request.message).properties.get("reply-to")
        if reply_to is None:
            return next((link for link in reversed(links) if link.session is request.link.session), None)
        for link in links:
            target = link.attach.target
            name = link.name if target is None or target.address is None else target.address.value
            if name == reply_to.value:
                return link
        return None
