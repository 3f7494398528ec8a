"""What clients of Service Bus say on links, for tests: batches, settlement, requests, tokens."""

from __future__ import annotations

import functools
import itertools
import uuid
from typing import Any

from headgate.message import AmqpType, AmqpValue, Body, Message, amqp_value, encode_value
from headgate.protocols.amqp10 import Link
from headgate.protocols.amqp10.events import StateChanged
from headgate.protocols.amqp10.performatives import RECEIVER, SECOND, Attach, Disposition, Transfer
from headgate.protocols.amqp10.terminus import DeliveryState, RawEntry, Source, Target
from headgate.protocols.servicebus import BATCH_FORMAT
from server.amqp10_client import Client, plain

SESSION_FILTER = "com.microsoft:session-filter"

_numbers = itertools.count()
_symbol = functools.partial(AmqpValue, AmqpType.SYMBOL)


def peek_lock(client: Client, address: str, credit: int = 10) -> Link:
    """A receiver that settles second."""
    return client.receiver(address, credit=credit, rcv_settle_mode=SECOND)


def attach_session(
    client: Client, address: str, session: str | None = None, *, wait_ms: int | None = None, **fields: Any
) -> Link:
    """A link that asks for a session, None: the next one; not answered yet. `descriptor`: that of the filter."""
    value = amqp_value(session)
    descriptor = fields.pop("descriptor", None)
    entry = RawEntry(encode_value(AmqpValue(AmqpType.SYMBOL, SESSION_FILTER)), encode_value(value))
    if descriptor is not None:
        entry = RawEntry.of(SESSION_FILTER, descriptor, value)
    waits = () if wait_ms is None else ((_symbol("com.microsoft:timeout"), AmqpValue(AmqpType.UINT, wait_ms)),)
    link = client.begun().new_link(f"session-{next(_numbers)}", RECEIVER)
    asked: dict[str, Any] = {
        "rcv_settle_mode": SECOND,
        "source": Source(amqp_value(address), filter=(entry,)),
        "target": Target(),
        "properties": AmqpValue(AmqpType.MAP, waits),
    }
    link.start(Attach(link.name, 0, RECEIVER, **(asked | fields)))
    client.flush()
    return link


def session_link(
    client: Client, address: str, session: str | None = None, *, credit: int = 0, **fields: Any
) -> tuple[Link, str]:
    """A link that has a session, and its id."""
    link = attach_session(client, address, session, **fields)
    return link, session_of(client, link, credit=credit)


def session_of(client: Client, link: Link, *, credit: int = 0) -> str:
    """The session that a link got, now or later."""
    client.pump(lambda: link.is_attached)
    assert link.peer is not None and link.peer.source is not None and link.peer.source.filter is not None
    (entry,) = link.peer.source.filter
    if credit:
        link.grant(credit)
        client.flush()
    found = entry.read().value
    assert found.type is AmqpType.STRING
    text: str = found.value
    return text


def bodies(client: Client, link: Link, count: int) -> list[bytes]:
    """The next messages."""
    return [one.message.body.octets() for one in client.receive(link, count)]


def settle(client: Client, link: Link, first: int, last: int, state: DeliveryState) -> DeliveryState | None:
    """Says what becomes of messages, and gives the answer: that of the whole range."""
    before = len(_answers(client))
    link.session.send(Disposition(RECEIVER, first, last, False, state))
    client.pump(lambda: sum(each.last - each.first + 1 for each in _answers(client)[before:]) == last - first + 1)
    (state,) = {type(each.state): each.state for each in _answers(client)[before:]}.values()
    return state


def _answers(client: Client) -> list[StateChanged]:
    return [event for event in client.of(StateChanged) if not event.received and event.settled]


def send_batch(client: Client, link: Link, *messages: bytes) -> DeliveryState | None:
    """Sends a batch, and gives its outcome."""
    number = link.session.next_delivery_id
    transfer = Transfer(link.handle, number, number.to_bytes(4, "big"), BATCH_FORMAT, False)
    data = Message(Body.data(*messages)).encode()
    frames = client.connection.transfer_frames(link.session.channel, transfer, data)
    link.session.next_delivery_id = number + 1
    link.delivery_count += 1
    link.credit -= 1
    link.session.send_transfers(link, b"".join(frames), len(frames))
    client.pump(lambda: number in client.outcomes)
    return client.outcomes[number]


class Requests:
    """Requests to `$management` of an address, or to `$cbs`; responses come where `reply-to` says."""

    def __init__(self, client: Client, address: str) -> None:
        self.client = client
        self.reply_to = f"reply-{next(_numbers)}"
        self.requests = client.sender(address)
        self.responses = client.attach(
            RECEIVER, source=Source(amqp_value(address)), target=Target(amqp_value(self.reply_to))
        )
        self.responses.grant(50)
        client.flush()

    def ask(self, operation: str, body: object, **asked: object) -> tuple[int, Any, dict[str, AmqpValue]]:
        """Status, body and application properties of the response."""
        identity = uuid.uuid4()
        properties = {"message-id": identity, "reply-to": self.reply_to}
        message = Message(
            Body.value(body), properties=properties, application_properties={"operation": operation, **asked}
        )
        self.requests.send(message.encode())
        (response,) = self.client.receive(self.responses, 1)
        found = response.message
        assert found.properties["correlation-id"] == amqp_value(identity)
        told = found.application_properties
        status = told["statusCode"] if "statusCode" in told else told["status-code"]
        assert status.type is AmqpType.INT
        return status.value, plain(found.body.values()[0]), told

    def do(self, operation: str, **body: object) -> tuple[int, Any]:
        """Status and body of the response to an operation of Service Bus."""
        named = {name.replace("_", "-"): value for name, value in body.items()}
        return self.ask(f"com.microsoft:{operation}", named)[:2]


def refused(client: Client, link: Link) -> tuple[str, str]:
    """The condition and the text with which an attach was refused: neither source nor target came back."""
    condition, text = client.detached(link)
    assert isinstance(link.peer, Attach) and (link.peer.source, link.peer.target) == (None, None)
    return condition, text or ""
