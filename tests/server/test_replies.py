"""Direct reply-to: requests carry the address of a queue that stores nothing; replies to it go to the requester."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.broker import REPLY_TO
from headgate.message import Message
from headgate.protocols.amqp091 import ReplyCode
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp10.terminus import Accepted, Released, Source
from server import amqp10_client
from server.amqp091_client import Client
from server.running import RunningServer, running_server

VOLATILE = Source(None, dynamic=True, capabilities=("rabbitmq:volatile-queue",))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("replies"), limits={"unconfirmed_bytes": 1_000_000}) as running:
        yield running


@pytest.fixture
def requester(server: RunningServer) -> Iterator[Client]:
    """A client of AMQP 0.9.1 with two channels; on the first it waits for replies."""
    with Client(server.ports["amqp"]).open(1, 2) as client:
        assert wait_for_replies(client) == m.BasicConsumeOk("replies")
        yield client


@pytest.fixture
def responder(server: RunningServer) -> Iterator[Client]:
    with Client(server.ports["amqp"]).open(1) as client:
        yield client


@pytest.fixture
def jobs(responder: Client, request: pytest.FixtureRequest) -> str:
    """A stream of the test's own, which the responder consumes from."""
    name = request.node.name[:80]
    responder.declare(1, name)
    assert isinstance(responder.consume(1, name), m.BasicConsumeOk)
    return name


def wait_for_replies(client: Client, *, no_ack: bool = True) -> m.Method:
    return client.call(1, m.BasicConsume(queue=REPLY_TO, consumer_tag="replies", no_ack=no_ack))


def asked(requester: Client, responder: Client, jobs: str) -> str:
    """The name that a request carries."""
    requester.publish(1, jobs, b"1 + 1?", reply_to=REPLY_TO, correlation_id="c1")
    request = responder.receive(1)
    assert request.body == b"1 + 1?" and request.properties.correlation_id == "c1"
    return request.properties.reply_to


def test_a_reply_goes_to_the_channel_that_asked(requester, responder, jobs):
    name = asked(requester, responder, jobs)
    assert name.startswith(f"{REPLY_TO}.")
    responder.publish(1, name, b"2", correlation_id="c1")
    reply = requester.receive(1)
    assert reply.method == m.BasicDeliver("replies", 1, False, "", name)
    assert (reply.body, reply.properties.correlation_id) == (b"2", "c1")


def test_a_reply_is_confirmed_and_not_returned_while_somebody_waits(requester, responder, jobs):
    name = asked(requester, responder, jobs)
    responder.call(1, m.ConfirmSelect())
    responder.publish(1, name, b"2", mandatory=True)
    assert responder.next(1) == m.BasicAck(1, False)
    assert responder.call(1, m.QueueDeclare(queue=name, passive=True)) == m.QueueDeclareOk(name, 0, 1)


@pytest.mark.parametrize("end", ["cancel", "channel", "connection"])
def test_a_reply_to_a_requester_that_has_gone_is_returned(requester, responder, jobs, end):
    name = asked(requester, responder, jobs)
    if end == "cancel":
        assert requester.call(1, m.BasicCancel("replies")) == m.BasicCancelOk("replies")
    elif end == "channel":
        assert requester.call(1, m.ChannelClose(200, "", 0, 0)) == m.ChannelCloseOk()
    else:
        assert requester.call(0, m.ConnectionClose(200, "", 0, 0)) == m.ConnectionCloseOk()
    responder.publish(1, name, b"2", mandatory=True)
    returned = responder.receive(1)
    assert (returned.method.reply_code, returned.method.routing_key) == (ReplyCode.NO_ROUTE, name)
    gone = responder.call(1, m.QueueDeclare(queue=name, passive=True))
    assert gone.reply_code == ReplyCode.NOT_FOUND


def test_the_queue_itself_can_be_declared(requester):
    assert requester.call(1, m.QueueDeclare(queue=REPLY_TO, passive=True)) == m.QueueDeclareOk(REPLY_TO, 0, 1)


def test_a_request_without_a_consumer_of_replies_closes_the_channel(responder, jobs):
    responder.publish(1, jobs, b"?", reply_to=REPLY_TO)
    closed = responder.next(1)
    assert (closed.reply_code, closed.reply_text) == (
        ReplyCode.PRECONDITION_FAILED,
        "PRECONDITION_FAILED - fast reply consumer does not exist",
    )


def test_replies_are_not_acknowledged(responder):
    closed = wait_for_replies(responder, no_ack=False)
    assert (closed.reply_code, "cannot acknowledge" in closed.reply_text) == (ReplyCode.PRECONDITION_FAILED, True)


def test_a_channel_has_one_consumer_of_replies_and_may_have_another_after_it(requester):
    again = m.BasicConsume(queue=REPLY_TO, consumer_tag="second", no_ack=True)
    assert requester.call(1, m.BasicCancel("replies")) == m.BasicCancelOk("replies")
    assert requester.call(1, again) == m.BasicConsumeOk("second")
    closed = wait_for_replies(requester)
    assert (closed.reply_code, "already set" in closed.reply_text) == (ReplyCode.PRECONDITION_FAILED, True)


def test_a_requester_that_takes_nothing_holds_a_bounded_number_of_replies(requester, responder, jobs):
    name = asked(requester, responder, jobs)
    size, count = 100_000, 100
    responder.call(1, m.ConfirmSelect())
    returned = 0
    for number in range(1, count + 1):
        # Nobody reads what the requester is sent.
        responder.publish(1, name, b"x" * size, mandatory=True)
        answer = responder.receive(1)
        if isinstance(answer.method, m.BasicReturn):
            returned += 1
            answer = responder.receive(1)
        assert answer.method == m.BasicAck(number, False)
    assert 0 < returned < count
    # What was taken arrives whole, in order, once it is read.
    for number in range(1, count - returned + 1):
        reply = requester.receive(1)
        assert (reply.method.delivery_tag, len(reply.body)) == (number, size)


def test_a_requester_of_amqp_10_gets_an_address_and_replies_of_either_protocol(server, responder, jobs):
    with amqp10_client.client_of(server.ports["amqp"]) as client:
        replies = client.receiver("", source=VOLATILE, credit=10)
        address = replies.peer.source.address.value
        assert address.startswith(f"/queues/{REPLY_TO}.")
        requests = client.sender(f"/queues/{jobs.replace('[', '%5B').replace(']', '%5D')}")
        assert client.send(requests, Message(reply_to=address, body=b"?")) == [Accepted()]
        name = responder.receive(1).properties.reply_to
        assert f"/queues/{name}" == address
        responder.publish(1, name, b"from 0.9.1")
        with amqp10_client.client_of(server.ports["amqp"]) as other:
            assert other.send(other.sender(address), Message(body=b"from a link")) == [Accepted()]
            anonymous = other.sender(None)
            assert other.send(anonymous, Message(to=address, body=b"from a message")) == [Accepted()]
        bodies = {part for each in client.receive(replies, 3) for part in each.message.body.parts}
        assert bodies == {b"from 0.9.1", b"from a link", b"from a message"}


def test_a_reply_of_amqp_10_to_nobody_is_released_and_a_link_to_nobody_refused(server):
    with amqp10_client.client_of(server.ports["amqp"]) as client:
        replies = client.receiver("", source=VOLATILE)
        address = replies.peer.source.address.value
        link = client.sender(address)
        replies.detach()
        client.pump(lambda: not replies.is_attached)
        assert client.send(link, Message(body=b"late")) == [Released()]
        refused = client.sender(address)
        assert client.detached(refused)[0] == "amqp:not-found"


def test_a_dynamic_source_that_is_no_queue_for_replies_is_refused(server):
    with amqp10_client.client_of(server.ports["amqp"]) as client:
        refused = client.receiver("", source=Source(None, dynamic=True))
        assert client.detached(refused)[0] == "amqp:not-implemented"
