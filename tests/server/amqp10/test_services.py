"""A second service beside RabbitMQ's on the same connections: everything that the seam offers, used by boxes."""

from __future__ import annotations

import functools
import socket
import struct
import uuid
from collections.abc import Iterator

import pytest

from headgate.message import AmqpType, AmqpValue, Body, Message, amqp_value
from headgate.protocols.amqp10 import Link
from headgate.protocols.amqp10.events import Attached, Closed, Detached, Ended, StateChanged
from headgate.protocols.amqp10.frames import encode_frame
from headgate.protocols.amqp10.performatives import (
    RECEIVER,
    SECOND,
    SENDER,
    SETTLED,
    Attach,
    Detach,
    Disposition,
    Flow,
    Transfer,
)
from headgate.protocols.amqp10.terminus import (
    Accepted,
    Coordinator,
    Error,
    Modified,
    RawEntry,
    Rejected,
    Released,
    Source,
    Target,
)
from headgate.server.amqp10 import Amqp10Handler, RabbitService
from server.amqp10_client import Client, Management, client_of, plain
from server.boxes import BATCH, LOCKED_UNTIL_MS, Box, BoxService
from server.running import RunningServer, running_server
from server.tap import Tap
from waiting import LIMIT_S

BOXES: dict[str, Box] = {}
FIRST = RawEntry.of("offset", "rabbitmq:stream-offset-spec", amqp_value("first"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    services = (RabbitService, functools.partial(BoxService, boxes=BOXES))
    handler = functools.partial(Amqp10Handler, services=services)
    with running_server(tmp_path_factory.mktemp("server"), handlers={"amqp": handler}) as running:
        yield running


@pytest.fixture
def tap(server: RunningServer) -> Tap:
    return Tap(socket.create_connection(("127.0.0.1", server.ports["amqp"]), timeout=LIMIT_S))


@pytest.fixture
def client(server: RunningServer, tap: Tap) -> Iterator[Client]:
    with client_of(server.ports["amqp"], connected=tap) as client:
        yield client


@pytest.fixture
def name() -> Iterator[str]:
    """A box of the test's own."""
    name = f"b-{uuid.uuid4()}"
    BOXES[name] = Box()
    yield name
    del BOXES[name]


def _fill(client: Client, name: str, count: int) -> None:
    link = client.sender(f"box/{name}")
    client.send(link, *(Message(b"%d" % number).encode() for number in range(count)))


def _locking(client: Client, name: str, credit: int = 10) -> Link:
    return client.receiver(f"box/{name}", credit=credit, rcv_settle_mode=SECOND)


def _bodies(client: Client, link: Link, count: int) -> list[bytes]:
    return [one.message.body.octets() for one in client.receive(link, count)]


def _say(client: Client, link: Link, first: int, last: int, state: object, *, settled: bool = False) -> None:
    link.session.send(Disposition(RECEIVER, first, last, settled, state))
    client.flush()


def _turn(server: RunningServer, name: str, count: int = 1, order: slice = slice(None)) -> None:
    """Lets the box do what it was told, once that is so much."""
    server.until(lambda: len(BOXES[name].later) == count)
    assert server.call(BOXES[name].turn, order) == count


def _told(client: Client) -> list[tuple[int, int, object]]:
    """What the server has settled as the sender."""
    told = [event for event in client.of(StateChanged) if not event.received]
    assert all(event.settled for event in told)
    return [(event.first, event.last, event.state) for event in told]


def _answers(client: Client, count: int) -> list[tuple[int, int, object]]:
    """The same, once it is that much."""
    client.pump(lambda: len(_told(client)) >= count)
    return _told(client)


def test_services_share_a_connection_and_a_session(client: Client, name: str) -> None:
    Management(client).declare(name)
    streams, boxes = client.sender(f"/queues/{name}"), client.sender(f"BOX/{name.upper()}")
    assert client.send(streams, Message(b"in a stream").encode()) == [Accepted()]
    assert client.send(boxes, Message(b"in a box").encode()) == [Accepted()]
    assert _bodies(client, client.receiver(f"/queues/{name}", filters=(FIRST,), credit=5), 1) == [b"in a stream"]
    assert _bodies(client, _locking(client, name), 1) == [b"in a box"]


@pytest.mark.parametrize(
    ("fields", "condition", "answer"),
    [
        ({"source": Source(amqp_value("elsewhere"))}, "amqp:invalid-field", (None, Target())),
        ({"source": Source(amqp_value(b"box/x"))}, "amqp:invalid-field", (None, Target())),
        ({"source": Source(), "rcv_settle_mode": SECOND}, "amqp:not-implemented", (None, Target())),
        ({"source": Source(amqp_value("box/no"))}, "com.example:no-box", (None, None)),
        ({"source": Source(amqp_value("box/no"), dynamic=True)}, "amqp:not-implemented", (None, None)),
    ],
)
def test_each_service_refuses_in_its_way(
    client: Client, fields: dict[str, object], condition: str, answer: tuple[object, object]
) -> None:
    link = client.attach(RECEIVER, target=Target(), **fields)
    assert client.detached(link)[0] == condition
    assert (link.peer.source, link.peer.target) == answer


def test_transactions_are_refused_by_the_first_service(client: Client) -> None:
    link = client.attach(SENDER, target=Coordinator(), source=Source(amqp_value("box/x")))
    assert client.detached(link)[0] == "amqp:not-implemented"


def test_deliveries_have_tags_counts_and_annotations_of_their_own(
    server: RunningServer, client: Client, tap: Tap, name: str
) -> None:
    _fill(client, name, 2)
    link = _locking(client, name, credit=2)
    assert (link.peer.rcv_settle_mode, link.peer.snd_settle_mode) == (SECOND, link.attach.snd_settle_mode)
    ids = [one.id for one in client.receive(link, 2)]
    _say(client, link, ids[0], ids[0], Modified(delivery_failed=True))
    _turn(server, name)
    link.grant(1)
    (again,) = client.receive(link, 1)
    assert again.message.header["delivery-count"].value == 1 and again.message.body.octets() == b"0"
    annotations = again.message.message_annotations
    assert annotations["x-opt-locked-until"] == AmqpValue(AmqpType.TIMESTAMP, LOCKED_UNTIL_MS)
    assert [(one.delivery_tag, one.settled) for one in tap.transfers()] == [
        (struct.pack(">QQ", 0, 0), False),
        (struct.pack(">QQ", 1, 0), False),
        (struct.pack(">QQ", 0, 1), False),
    ]


def test_what_a_receiver_says_is_answered_in_a_later_turn(server: RunningServer, client: Client, name: str) -> None:
    _fill(client, name, 6)
    link = _locking(client, name, credit=6)
    ids = [one.id for one in client.receive(link, 6)]
    dead = Rejected(Error("com.example:dead", "no use"))
    for first, last, state in [(0, 1, Accepted()), (2, 2, dead), (3, 3, Released()), (4, 5, Modified(True))]:
        _say(client, link, ids[first], ids[last], state)
    server.until(lambda: len(BOXES[name].later) == 4)
    assert _told(client) == []
    _turn(server, name, 4, slice(None, None, -1))
    # In the order of the answers, and a dead letter without its reason.
    expected = [(4, 5, Modified(True)), (3, 3, Released()), (2, 2, Rejected()), (0, 1, Accepted())]
    assert _answers(client, 4) == [(ids[first], ids[last], state) for first, last, state in expected]
    assert [item.number for item in BOXES[name].dead] == [2]
    link.grant(6)
    assert sorted(_bodies(client, link, 3)) == [b"3", b"4", b"5"]


def test_an_answer_may_be_another_than_was_asked_for(server: RunningServer, client: Client, name: str) -> None:
    _fill(client, name, 3)
    link = _locking(client, name, credit=3)
    ids = [one.id for one in client.receive(link, 3)]
    server.call(lambda: BOXES[name].locked.pop(struct.pack(">QQ", 1, 0)))
    _say(client, link, ids[0], ids[2], Accepted())
    _turn(server, name)
    lost = Rejected(Error("com.example:lock-lost", "the lock is lost"))
    expected = [(ids[0], ids[0], Accepted()), (ids[2], ids[2], Accepted()), (ids[1], ids[1], lost)]
    assert _answers(client, 3) == expected


def test_what_a_receiver_settles_first_has_its_effect(server: RunningServer, client: Client, name: str) -> None:
    _fill(client, name, 3)
    link = client.receiver(f"box/{name}", credit=3)
    assert link.peer.rcv_settle_mode == 0
    ids = [one.id for one in client.receive(link, 3)]
    publisher = client.sender(f"box/{name}")
    # Among transfers, where those of a stream's consumer are passed over.
    publisher.send(Message(b"more").encode())
    _say(client, link, ids[0], ids[1], Accepted(), settled=True)
    publisher.send(Message(b"more").encode())
    _turn(server, name)
    assert list(BOXES[name].locked) == [struct.pack(">QQ", 2, 0)]
    assert _told(client) == []


def test_a_range_over_links_of_both_services_is_answered_by_each(
    server: RunningServer, client: Client, name: str
) -> None:
    Management(client).declare(name)
    publisher = client.sender(f"/queues/{name}")
    client.send(publisher, *(Message(b"s").encode() for _ in range(2)))
    _fill(client, name, 2)
    stream, box = client.receiver(f"/queues/{name}", filters=(FIRST,)), _locking(client, name, credit=0)
    ids = []
    for link in (stream, box, stream, box):
        link.grant(1)
        ids += [one.id for one in client.receive(link, 1)]
    _say(client, box, ids[0], ids[3], Accepted())
    assert _answers(client, 2) == [(ids[0], ids[0], Accepted()), (ids[2], ids[2], Accepted())]
    _turn(server, name)
    assert _answers(client, 4)[2:] == [(ids[1], ids[1], Accepted()), (ids[3], ids[3], Accepted())]


def test_pre_settled_deliveries_are_gone(client: Client, tap: Tap, server: RunningServer, name: str) -> None:
    _fill(client, name, 2)
    link = client.receiver(f"box/{name}", credit=5, snd_settle_mode=SETTLED)
    assert _bodies(client, link, 2) == [b"0", b"1"]
    assert [one.settled for one in tap.transfers()] == [True, True]
    _say(client, link, 0, 9, Released(), settled=True)
    link.grant(5, drain=True)
    client.pump(lambda: link.credit == 0)
    assert not BOXES[name].later and not BOXES[name].items


def test_a_link_that_ends_gives_its_locks_back_and_hears_no_answer(
    server: RunningServer, client: Client, name: str
) -> None:
    _fill(client, name, 2)
    link = _locking(client, name)
    ids = [one.id for one in client.receive(link, 2)]
    _say(client, link, ids[0], ids[0], Accepted())
    link.detach()
    client.pump(lambda: bool(client.of(Detached, link)))
    _turn(server, name)
    assert len(_bodies(client, _locking(client, name), 2)) == 2
    assert _told(client) == []


def test_a_batch_says_so_by_its_format(client: Client, name: str) -> None:
    link = client.sender(f"box/{name}")
    parts = [Message(b"%d" % number).encode() for number in range(3)]
    link.session.send(Transfer(link.handle, 0, b"t", BATCH), Message(Body.data(*parts)).encode())
    link.session.next_delivery_id = 1
    client.pump(lambda: 0 in client.outcomes)
    assert _bodies(client, _locking(client, name), 3) == [b"0", b"1", b"2"]


# Requests


def _management(client: Client, name: str, **receiver: object) -> tuple[Link, Link]:
    """A link for requests and one for responses to a box's management."""
    address = f"box/{name}/$management"
    requests = client.sender(address)
    source = Source(amqp_value(address))
    responses = client.attach(RECEIVER, source=source, **{"target": Target(amqp_value("mine")), **receiver})
    responses.grant(50)
    client.flush()
    return requests, responses


def _ask(link: Link, identity: object, reply_to: str | None = None, *, settled: bool = False) -> int:
    properties = {"message-id": identity} | ({} if reply_to is None else {"reply-to": reply_to})
    return link.send(Message(Body.value(None), properties=properties).encode(), settled=settled)


def _responses(client: Client, link: Link, count: int) -> list[tuple[object, object]]:
    found = [one.message for one in client.receive(link, count)]
    return [(one.properties["correlation-id"].value, plain(one.body.values()[0])) for one in found]


def test_requests_are_answered_later_and_in_any_order(server: RunningServer, client: Client, name: str) -> None:
    _fill(client, name, 2)
    requests, responses = _management(client, name)
    identities = [uuid.uuid4(), "text", 7]
    ids = [_ask(requests, identity) for identity in identities]
    client.pump(lambda: all(number in client.outcomes for number in ids))
    assert client.messages == []
    _turn(server, name, 3, slice(None, None, -1))
    expected = [(identity, 2) for identity in reversed(identities)]
    assert _responses(client, responses, 3) == expected


def test_a_response_goes_to_the_link_that_it_is_asked_to(server: RunningServer, client: Client, name: str) -> None:
    requests, first = _management(client, name)
    source = {"source": Source(amqp_value(f"box/{name}/$management"))}
    named = client.attach(RECEIVER, name="by-its-name", target=Target(), **source)
    named.grant(5)
    for number, reply_to in enumerate([None, "mine", "by-its-name", "nobody"]):
        _ask(requests, number, reply_to)
    client.flush()
    _turn(server, name, 4)
    assert _responses(client, named, 2) == [(0, 0), (2, 0)]
    assert _responses(client, first, 1) == [(1, 0)]
    late = client.attach(RECEIVER, target=Target(amqp_value("nobody")), **source)
    late.grant(1)
    assert _responses(client, late, 1) == [(3, 0)]
    for link in (late, named):
        link.detach()
        client.pump(lambda link=link: bool(client.of(Detached, link)))
    _ask(requests, 4)
    client.flush()
    _turn(server, name)
    assert _responses(client, first, 1) == [(4, 0)]


def test_a_later_response_does_not_wait_for_a_tick(
    server: RunningServer, client: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Amqp10Handler, "tick", lambda self, now_ms: None)
    requests, responses = _management(client, name)
    _ask(requests, 1)
    client.flush()
    _turn(server, name)
    assert _responses(client, responses, 1) == [(1, 0)]


def test_requests_without_a_response_hold_others_back(server: RunningServer, client: Client, name: str) -> None:
    requests, responses = _management(client, name)
    for number in range(8):
        _ask(requests, number, settled=True)
    client.flush()
    server.until(lambda: len(BOXES[name].later) == 8)
    client.receiver("/queues/nothing")
    assert requests.credit == 0
    _turn(server, name, 8)
    assert len(_responses(client, responses, 8)) == 8
    client.pump(lambda: requests.credit == 8)


def test_responses_that_wait_end_with_the_link_of_their_requests(
    server: RunningServer, client: Client, name: str
) -> None:
    requests, responses = _management(client, name)
    responses.grant(0)
    _ask(requests, 1)
    client.flush()
    _turn(server, name)
    requests.detach()
    client.pump(lambda: bool(client.of(Detached, requests)))
    again = client.sender(f"box/{name}/$management")
    responses.grant(5)
    _ask(again, 2)
    client.flush()
    _turn(server, name)
    assert _responses(client, responses, 1) == [(2, 0)]


@pytest.mark.parametrize("ends", ["link", "session", "connection"])
def test_what_is_answered_after_the_end_is_not_said(
    server: RunningServer, client: Client, name: str, ends: str
) -> None:
    requests, responses = _management(client, name)
    _fill(client, name, 1)
    link = _locking(client, name)
    (delivery,) = client.receive(link, 1)
    _ask(requests, 1)
    _say(client, link, delivery.id, delivery.id, Accepted())
    server.until(lambda: len(BOXES[name].later) == 2)
    if ends == "link":
        requests.detach()
        link.detach()
        client.pump(lambda: len(client.of(Detached)) == 2)
    elif ends == "session":
        requests.session.end()
        client.pump(lambda: bool(client.of(Ended)))
    else:
        client.connection.close()
        client.pump(lambda: bool(client.of(Closed)))
    _turn(server, name, 2)
    if ends == "link":
        # Nothing came before the answer to another request.
        again = client.sender(f"box/{name}/$management")
        _ask(again, 2)
        client.flush()
        _turn(server, name)
        assert _responses(client, responses, 1) == [(2, 1)]


# Attaches that are answered later


def _waiting(client: Client, name: str) -> Link:
    """A link that is answered when the box has its turn; its credit is granted at once."""
    session = client.connection.sessions[0]
    link = session.new_link(f"waiting-{name}", RECEIVER)
    link.start(Attach(link.name, 0, RECEIVER, source=Source(amqp_value(f"box/{name}/wait")), target=Target()))
    link.credit = 5
    session.send(Flow(0, 100, 0, 100, handle=link.handle, link_credit=5))
    client.flush()
    return link


def test_an_attach_may_be_answered_in_a_later_turn(server: RunningServer, client: Client, name: str) -> None:
    _fill(client, name, 2)
    link = _waiting(client, name)
    client.send(client.sender(f"box/{name}"), Message(b"2").encode())
    assert not link.is_attached
    _turn(server, name)
    client.pump(lambda: link.is_attached)
    assert _bodies(client, link, 3) == [b"0", b"1", b"2"]
    assert link.peer.source.address == amqp_value(f"box/{name}/wait")


def test_an_attach_may_be_refused_in_a_later_turn(server: RunningServer, client: Client, name: str) -> None:
    _fill(client, name, 0)
    link = _waiting(client, name)
    _turn(server, name)
    assert client.detached(link)[0] == "com.example:timeout"
    assert (link.peer.source, link.peer.target) == (None, None)
    assert not BOXES[name].locked


@pytest.mark.parametrize("count", [0, 1])
def test_an_attach_that_was_given_up_is_not_answered_again(
    server: RunningServer, client: Client, name: str, count: int
) -> None:
    _fill(client, name, count)
    link = _waiting(client, name)
    link.session.send(Detach(link.handle, True))
    client.pump(lambda: bool(client.of(Detached, link)))
    _turn(server, name)
    client.send(client.sender(f"box/{name}"), Message(b"more").encode())
    assert len(client.of(Attached, link)) == len(client.of(Detached, link)) == 1
    assert client.messages == []


# Strays


def test_what_comes_behind_an_end_is_ignored_once_a_service_asks_for_it(client: Client, name: str) -> None:
    link = client.sender(f"box/{name}")
    handle, session = link.handle, link.session
    link.detach()
    client.pump(lambda: bool(client.of(Detached, link)))
    strays = Flow(0, 9, 0, 9, handle=handle, link_credit=5), Transfer(handle, 0, b"t"), Detach(handle, True)
    said = b"".join(encode_frame(session.channel, stray.encode()) for stray in strays)
    session.send_transfers(link, said, 1)
    other = client.sender(f"box/{name}")
    assert client.send(other, Message(b"m").encode()) == [Accepted()]
    ended = client.connection.begin()
    client.pump(lambda: ended.is_mapped)
    channel = ended.channel
    ended.end()
    client.pump(lambda: bool(client.of(Ended)))
    for stray in (*strays, Disposition(RECEIVER, 0)):
        client.connection.send(channel, stray)
    assert client.send(other, Message(b"m").encode()) == [Accepted()]


def test_what_comes_behind_an_end_is_a_fault_for_the_others(client: Client, name: str) -> None:
    Management(client).declare(name)
    link = client.sender(f"/queues/{name}")
    link.detach()
    client.pump(lambda: bool(client.of(Detached, link)))
    link.session.send(Detach(link.handle, True))
    client.pump(lambda: bool(client.of(Ended)))
    assert client.of(Ended)[0].error.condition == "amqp:session:unattached-handle"
