"""AMQP 0.9.1 on a running server: every situation of the specification, its code, and what it closes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.broker.users import Permissions
from headgate.log.lock import StreamLock
from headgate.protocols.amqp091 import ReplyCode
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.codec import encode_method
from headgate.protocols.amqp091.fields import Field, FieldType, Table, boolean, long, long_string
from headgate.protocols.amqp091.frames import HEARTBEAT, FrameType, encode_frame
from headgate.server import flow_control
from headgate.server.amqp091 import Amqp091Handler
from server.amqp091_client import STREAM, Client
from server.running import RunningServer, running_server

HANDLERS = {"amqp": Amqp091Handler}
LIMITS = {"message_size_bytes": 300_000, "consumers": 3, "filter_bytes": 200}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("amqp091"), handlers=HANDLERS, limits=LIMITS) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.ports["amqp"]).open(1) as opened:
        yield opened


@pytest.fixture
def stream(client: Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A stream of the test's own, with five messages: m0 … m4, header n, filter value even or odd."""
    name = request.node.name[:100]
    assert client.declare(1, name) == m.QueueDeclareOk(name, 0, 0)
    fill(client, name, 5)
    yield name
    with Client(client.port).open(1) as other:
        other.call(1, m.QueueDelete(queue=name))


def fill(client: Client, stream: str, count: int) -> None:
    """Publishes and waits until everything is confirmed."""
    client.call(900, m.ChannelOpen())
    client.call(900, m.ConfirmSelect())
    for number in range(count):
        headers = {"n": long(number), "x-stream-filter-value": long_string("odd" if number % 2 else "even")}
        client.publish(900, stream, b"m%d" % number, headers=headers)
    confirmed = 0
    while confirmed < count:
        ack = client.next(900)
        assert isinstance(ack, m.BasicAck)
        confirmed = ack.delivery_tag
    client.call(900, m.ChannelClose())


def closed(answer: m.Method, kind: type[m.Method], code: int, text: str = "") -> None:
    assert type(answer) is kind, answer
    assert answer.reply_code == code, answer
    assert text in answer.reply_text, answer


# connections


def test_a_connection_is_told_what_the_server_can_do(server):
    with Client(server.ports["amqp"]).open(1) as client:
        start = client.start
        assert (start.version_major, start.version_minor, start.locales) == (0, 9, b"en_US")
        assert {b"PLAIN", b"AMQPLAIN"} <= set(start.mechanisms.split(b" "))
        properties = start.server_properties
        assert properties["product"] == long_string("RabbitMQ")
        capabilities = properties["capabilities"].value
        assert all(capabilities[name] == boolean(True) for name in ("publisher_confirms", "consumer_cancel_notify"))
        assert (client.tune.channel_max, client.tune.frame_max, client.tune.heartbeat) == (2047, 131072, 60)
        assert client.call(0, m.ConnectionClose(200, "bye")) == m.ConnectionCloseOk()
        assert client.is_closed()


def test_a_wrong_password_is_refused(server):
    with Client(server.ports["amqp"], password="wrong") as client:
        closed(client.log_in(), m.ConnectionClose, 403, "ACCESS_REFUSED - Login was refused")
        client.say(0, m.ConnectionCloseOk())
        assert client.is_closed()


def test_a_client_that_cannot_be_told_of_a_wrong_password_is_cut_off(server):
    with Client(server.ports["amqp"], password="wrong", capabilities=()) as client, pytest.raises(EOFError):
        client.log_in()


@pytest.mark.parametrize(("mechanism", "response", "code"), [("SCRAM", b"", 503), ("PLAIN", b"guest", 502)])
def test_other_ways_to_log_in_are_refused(server, mechanism, response, code):
    with Client(server.ports["amqp"]) as client:
        client.socket.sendall(b"AMQP\0\0\x09\1")
        client.next(0)
        closed(client.call(0, m.ConnectionStartOk({}, mechanism, response, "en_US")), m.ConnectionClose, code)


def test_amqplain_is_a_table(server):
    with Client(server.ports["amqp"]) as client:
        client.socket.sendall(b"AMQP\0\0\x09\1")
        client.next(0)
        response = b"\x05LOGINS\0\0\0\x05guest\x08PASSWORDS\0\0\0\x05guest"
        assert isinstance(client.call(0, m.ConnectionStartOk({}, "AMQPLAIN", response, "en_US")), m.ConnectionTune)


def test_an_unknown_virtual_host_ends_the_connection(server):
    with Client(server.ports["amqp"]) as client:
        client.log_in()
        client.say(0, m.ConnectionTuneOk(2047, 131072, 0))
        closed(client.call(0, m.ConnectionOpen("shop")), m.ConnectionClose, 530)


def test_a_connection_is_listed_with_what_it_says_of_itself(server, client):
    records = server.call(lambda: list(server.context.connections))
    assert any(
        (record.protocol, record.user, record.client.get("product")) == ("AMQP 0.9.1", "guest", "test")
        for record in records
    )


@pytest.mark.slow
def test_both_sides_show_that_they_are_there(server):
    with Client(server.ports["amqp"], heartbeat=1).open(1) as client:
        assert isinstance(client.call(1, m.BasicQos(prefetch_count=1)), m.BasicQosOk)
        # Without a heartbeat of the client the server gives up after two intervals, having sent its own.
        assert client.is_closed()
        assert client.heartbeats >= 1


@pytest.mark.slow
def test_a_client_that_sends_heartbeats_stays(server):
    with Client(server.ports["amqp"], heartbeat=1).open(1) as client:
        while client.heartbeats < 6:
            client.socket.sendall(HEARTBEAT)
            before = client.heartbeats
            while client.heartbeats == before:
                client.buffer += client.socket.recv(4096)
                client.heartbeats += client.buffer.count(HEARTBEAT)
                client.buffer = client.buffer.replace(HEARTBEAT, b"")
        assert isinstance(client.call(1, m.BasicQos(prefetch_count=1)), m.BasicQosOk)


def test_a_server_that_stops_says_so(tmp_path: Path):
    with running_server(tmp_path, handlers=HANDLERS) as running, Client(running.ports["amqp"]).open(1) as client:
        running.stop()
        closed(client.next(0), m.ConnectionClose, 320, "CONNECTION_FORCED - broker forced connection closure")
        client.say(0, m.ConnectionCloseOk())
        assert client.is_closed()
    assert running.context.connections.totals.failed == 0


# queues


def test_a_stream_is_declared_again_with_the_same_arguments_only(client, stream):
    assert client.declare(1, stream) == m.QueueDeclareOk(stream, 5, 0)
    closed(client.declare(1, stream, max_age=long_string("1h")), m.ChannelClose, 406, "PRECONDITION_FAILED")


@pytest.mark.parametrize(
    ("arguments", "flags", "code", "kind"),
    [
        ({"stream_filter_size_bytes": long(15)}, {}, 406, m.ChannelClose),
        ({"stream_filter_size_bytes": long(256)}, {}, 406, m.ChannelClose),
        ({"stream_filter_size_bytes": long_string("16")}, {}, 406, m.ChannelClose),
        ({"max_length_bytes": long_string("1000")}, {}, 406, m.ChannelClose),
        ({"max_age": long_string("soon")}, {}, 406, m.ChannelClose),
        ({"max_length": long(5)}, {}, 406, m.ChannelClose),
        ({}, {"durable": False}, 406, m.ChannelClose),
        ({}, {"exclusive": True}, 406, m.ChannelClose),
        ({}, {"auto_delete": True}, 406, m.ChannelClose),
        ({}, {"queue": ""}, 406, m.ChannelClose),
        ({}, {"queue": "amq.mine"}, 403, m.ChannelClose),
        ({"queue_type": long_string("quorum")}, {}, 540, m.ConnectionClose),
        ({"queue_type": long_string("classic")}, {}, 540, m.ConnectionClose),
        ({"queue_type": long_string("streams")}, {}, 406, m.ChannelClose),
        ({"queue_type": Field(FieldType.VOID, None)}, {}, 406, m.ChannelClose),
    ],
)
def test_a_declaration_that_no_stream_can_be_is_refused(client, arguments, flags, code, kind):
    given = {**STREAM, **{f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}}
    method = m.QueueDeclare(**{"queue": "refused", "durable": True, "arguments": given, **flags})
    client.say(1, method)
    closed(client.next(1 if kind is m.ChannelClose else 0), kind, code)


@pytest.mark.parametrize("number", [Field(FieldType.BYTE, 100), Field(FieldType.INT, 100), long(100)])
def test_sizes_are_integers_of_any_width(client, number):
    name = f"sizes-{number.type.name}"
    assert isinstance(client.declare(1, name, stream_filter_size_bytes=number), m.QueueDeclareOk)
    assert isinstance(client.declare(1, name, stream_filter_size_bytes=long(100)), m.QueueDeclareOk)
    client.call(1, m.QueueDelete(queue=name))


def test_passive_declaration_looks_for_the_name_only(client, stream):
    assert client.call(1, m.QueueDeclare(queue=stream, passive=True)) == m.QueueDeclareOk(stream, 5, 0)
    closed(client.call(1, m.QueueDeclare(queue="nowhere", passive=True)), m.ChannelClose, 404, "NOT_FOUND")


def test_a_stream_is_no_queue_of_another_type(client, stream):
    closed(client.call(1, m.QueueDeclare(queue=stream, durable=True)), m.ChannelClose, 406, "x-queue-type")


def test_without_a_name_the_last_declared_queue_is_meant(client, stream):
    client.call(1, m.QueueDeclare(queue=stream, passive=True))
    assert client.call(1, m.QueueDeclare(passive=True)) == m.QueueDeclareOk(stream, 5, 0)
    client.call(2, m.ChannelOpen())
    closed(client.call(2, m.QueueDeclare(passive=True)), m.ChannelClose, 404)


def test_nowait_has_no_answer(client):
    client.say(
        1,
        m.QueueDeclare(queue="quiet", durable=True, nowait=True, arguments=STREAM),
        m.ConfirmSelect(nowait=True),
        m.QueueDelete(queue="quiet", nowait=True),
    )
    assert client.call(1, m.BasicQos(prefetch_count=1)) == m.BasicQosOk()


def test_deleting_gives_the_number_of_messages_and_again_none(client):
    client.declare(1, "short-lived")
    fill(client, "short-lived", 3)
    assert client.call(1, m.QueueDelete(queue="short-lived")) == m.QueueDeleteOk(3)
    assert client.call(1, m.QueueDelete(queue="short-lived")) == m.QueueDeleteOk(0)
    assert client.call(1, m.QueueDelete(queue="short-lived", if_unused=True)) == m.QueueDeleteOk(0)


@pytest.mark.parametrize("confirmed", [False, True])
def test_what_was_published_before_a_deletion_counts_before_it(client, confirmed):
    client.declare(1, "short-lived")
    if confirmed:
        client.call(1, m.ConfirmSelect())
    client.publish_and_say(1, "short-lived", b"last", m.QueueDelete(queue="short-lived"))
    if confirmed:
        assert client.next(1) == m.BasicAck(1)
    assert client.next(1) == m.QueueDeleteOk(1)
    assert isinstance(client.declare(1, "short-lived"), m.QueueDeclareOk)
    assert client.call(1, m.QueueDelete(queue="short-lived")) == m.QueueDeleteOk(0)


def test_a_message_that_cannot_be_written_ends_its_channel_and_nothing_else(server, client):
    client.call(2, m.ChannelOpen())
    client.declare(1, "locked")
    folder = server.call(lambda: server.context.broker.catalogue.get("locked").stream.path)
    lock = StreamLock.acquire(folder, now_ms=0)
    try:
        client.publish_and_say(1, "locked", b"x", m.BasicQos(prefetch_count=1), m.QueueDelete(queue="locked"))
        closed(client.next(1), m.ChannelClose, 405, "another writer")
        assert isinstance(client.call(2, m.QueueDeclare(queue="locked", passive=True)), m.QueueDeclareOk)
    finally:
        lock.release()
    assert client.call(2, m.QueueDelete(queue="locked")) == m.QueueDeleteOk(0)


def test_a_stream_in_use_is_not_deleted_if_so_asked(client, stream):
    client.consume(1, stream)
    closed(client.call(1, m.QueueDelete(queue=stream, if_unused=True)), m.ChannelClose, 406)
    with Client(client.port).open(1) as other:
        assert other.call(1, m.QueueDeclare(queue=stream, passive=True)).message_count == 5
        # Reading empties no stream, so that condition cannot be meant; aio-pika sets it by default.
        assert other.call(1, m.QueueDelete(queue=stream, if_unused=True, if_empty=True)) == m.QueueDeleteOk(5)


@pytest.mark.parametrize(
    "method",
    [
        m.BasicRecover(requeue=True),
        m.BasicRecoverAsync(requeue=True),
        m.TxSelect(),
        m.TxCommit(),
        m.TxRollback(),
        m.ChannelFlow(active=False),
        m.BasicQos(prefetch_size=1),
        m.ExchangeDeclare(exchange="e", type="x-local-random"),
    ],
)
def test_what_is_not_served_is_not_implemented(client, method):
    client.say(1, method)
    close = client.next(0)
    closed(close, m.ConnectionClose, 540, "NOT_IMPLEMENTED")
    assert (close.class_id, close.method_id) == method.CODE


@pytest.mark.parametrize("method", [m.QueuePurge, m.BasicGet])
def test_what_streams_cannot_do_is_not_found_where_there_is_no_stream(client, stream, method):
    closed(client.call(1, method(queue="nowhere")), m.ChannelClose, 404, "nowhere")
    client.say(1, m.ChannelCloseOk())
    assert client.call(1, m.ChannelOpen()) == m.ChannelOpenOk()
    closed(client.call(1, method()), m.ChannelClose, 404, "no previously declared queue")
    client.say(1, m.ChannelCloseOk())
    assert client.call(1, m.ChannelOpen()) == m.ChannelOpenOk()
    client.say(1, method(queue=stream))
    close = client.next(0)
    closed(close, m.ConnectionClose, 540, "not supported by streams")
    assert (close.class_id, close.method_id) == method.CODE


def test_new_secrets_are_not_served(client):
    closed(client.call(0, m.ConnectionUpdateSecret(b"new", "renewed")), m.ConnectionClose, 540)


def test_flow_that_is_on_stays_on(client):
    assert client.call(1, m.ChannelFlow(active=True)) == m.ChannelFlowOk(active=True)


# exchanges


def test_direct_exchanges_route_by_key(client):
    for name in ("part-0", "part-1"):
        client.declare(1, name)
    assert client.call(1, m.ExchangeDeclare(exchange="parts", durable=True)) == m.ExchangeDeclareOk()
    for name, key in (("part-0", "0"), ("part-1", "1"), ("part-1", "both"), ("part-0", "both")):
        assert client.call(1, m.QueueBind(queue=name, exchange="parts", routing_key=key)) == m.QueueBindOk()
    client.call(1, m.ConfirmSelect())
    for key in ("0", "1", "both"):
        client.publish(1, key, key.encode(), exchange="parts")
    assert wait_confirmed(client, 3) == 3
    assert client.call(1, m.QueueUnbind(queue="part-0", exchange="parts", routing_key="both")) == m.QueueUnbindOk()
    client.publish(1, "both", b"later", exchange="parts")
    wait_confirmed(client, 4)
    assert client.call(1, m.QueueDeclare(queue="part-0", passive=True)).message_count == 2
    assert client.call(1, m.QueueDeclare(queue="part-1", passive=True)).message_count == 3
    client.consume(1, "part-0", stream_offset=long_string("first"))
    first = client.receive(1)
    assert (first.method.exchange, first.method.routing_key, first.body) == ("parts", "0", b"0")
    assert client.receive(1).body == b"both"
    assert client.call(1, m.BasicCancel("c")) == m.BasicCancelOk("c")
    for name in ("part-0", "part-1"):
        client.call(1, m.QueueDelete(queue=name))
    assert client.call(1, m.ExchangeDelete(exchange="parts")) == m.ExchangeDeleteOk()
    closed(client.call(1, m.ExchangeDeclare(exchange="parts", passive=True)), m.ChannelClose, 404)


def test_topics_and_headers_route_through_an_exchange_bound_to_an_exchange(client, stream):
    for name, kind in (("outer", "topic"), ("inner", "headers")):
        assert client.call(1, m.ExchangeDeclare(exchange=name, type=kind, durable=True)) == m.ExchangeDeclareOk()
    between = {"destination": "inner", "source": "outer", "routing_key": "orders.#"}
    assert client.call(1, m.ExchangeBind(**between)) == m.ExchangeBindOk()
    wanted = {"x-match": long_string("any"), "n": long(1), "region": long_string("emea")}
    assert client.call(1, m.QueueBind(queue=stream, exchange="inner", arguments=wanted)) == m.QueueBindOk()
    client.call(1, m.ConfirmSelect())
    routed = [("orders.new", {"n": long(1)}), ("orders", {"region": long_string("emea")})]
    lost = [("letters.new", {"n": long(1)}), ("orders.new", {"n": long(2)}), ("orders.new", {})]
    for number, (key, headers) in enumerate((*routed, *lost)):
        client.publish(1, key, b"r%d" % number, exchange="outer", headers=headers, mandatory=True)
    returned, confirmed = [], set()
    while len(confirmed) < 5:
        answer = client.receive(1)
        if isinstance(answer.method, m.BasicReturn):
            returned.append(answer.body)
        else:
            last = answer.method.delivery_tag
            confirmed |= set(range(1, last + 1)) if answer.method.multiple else {last}
    assert returned == [b"r2", b"r3", b"r4"]
    assert client.call(1, m.QueueDeclare(queue=stream, passive=True)).message_count == 7
    assert client.call(1, m.ExchangeUnbind(**between)) == m.ExchangeUnbindOk()
    client.publish(1, "orders.new", b"", exchange="outer", headers={"n": long(1)}, mandatory=True)
    assert isinstance(client.next(1), m.BasicReturn)
    assert client.next(1) == m.BasicAck(6, False)
    for name in ("outer", "inner"):
        assert client.call(1, m.ExchangeDelete(exchange=name)) == m.ExchangeDeleteOk()


def wait_confirmed(client: Client, tag: int) -> int:
    """Waits until everything up to a tag is confirmed; gives the tag."""
    confirmed = 0
    while confirmed < tag:
        ack = client.next(1)
        assert isinstance(ack, m.BasicAck), ack
        confirmed = ack.delivery_tag
    return confirmed


@pytest.mark.parametrize(
    ("method", "code"),
    [
        (m.QueueBind(queue="nowhere", exchange="amq.direct", routing_key="k"), 404),
        (m.QueueBind(queue="", exchange="amq.direct", routing_key="k"), 404),
        (m.ExchangeDeclare(exchange="amq.mine"), 403),
        (m.ExchangeDeclare(exchange="", durable=True), 403),
        (m.ExchangeDeclare(exchange="", passive=True), 403),
        (m.ExchangeDeclare(exchange="e", type="x-random"), 406),
        (m.ExchangeDelete(exchange="amq.direct"), 403),
        (m.ExchangeDeclare(exchange="amq.direct", durable=True, auto_delete=True), 406),
    ],
)
def test_exchanges_that_cannot_be_are_refused_on_the_channel(client, method, code):
    closed(client.call(1, method), m.ChannelClose, code)


# publishing


def test_confirms_begin_at_one_per_channel_and_join(client, stream):
    client.call(2, m.ChannelOpen())
    for channel in (1, 2):
        assert client.call(channel, m.ConfirmSelect()) == m.ConfirmSelectOk()
        for _ in range(50):
            client.publish(channel, stream, b"x" * 100)
    for channel in (1, 2):
        acks = [client.next(channel)]
        while acks[-1].delivery_tag < 50:
            acks.append(client.next(channel))
        assert [ack.delivery_tag for ack in acks] == sorted(ack.delivery_tag for ack in acks)
        assert acks[-1].delivery_tag == 50
        # A read of the socket brings many messages; they share an answer.
        assert all(
            ack.multiple or ack.delivery_tag == before + 1
            for before, ack in zip([0, *(ack.delivery_tag for ack in acks)], acks, strict=False)
        )


def test_a_message_of_many_frames_arrives_whole(client, stream):
    client.call(1, m.ConfirmSelect())
    body = bytes(range(256)) * 1000
    client.publish(1, stream, body)
    wait_confirmed(client, 1)
    client.consume(1, stream, stream_offset=long(5))
    assert client.receive(1).body == body


def test_messages_that_nobody_gets_come_back_before_their_confirm(client):
    client.call(1, m.ConfirmSelect())
    client.publish(1, "nowhere", b"back", mandatory=True, message_id="m1")
    returned = client.receive(1)
    assert returned.method == m.BasicReturn(312, "NO_ROUTE", "", "nowhere")
    assert (returned.body, returned.properties.message_id) == (b"back", "m1")
    assert client.next(1) == m.BasicAck(1)
    client.publish(1, "nowhere", b"dropped")
    assert client.next(1) == m.BasicAck(2)


def test_a_returned_message_needs_no_confirms(client):
    client.publish(1, "nowhere", b"", mandatory=True, exchange="amq.direct")
    assert client.receive(1).method == m.BasicReturn(312, "NO_ROUTE", "amq.direct", "nowhere")


@pytest.mark.parametrize(
    ("exchange", "properties", "headers", "code"),
    [
        ("nowhere", {}, None, 404),
        ("", {"user_id": "somebody"}, None, 406),
        ("", {"expiration": "soon"}, None, 406),
        ("", {}, {"x-stream-filter-value": long(5)}, 406),
        ("", {}, {"price": Field(FieldType.DECIMAL, (2, 995))}, 406),
        ("", {}, {"CC": long_string("x")}, 406),
    ],
)
def test_messages_that_cannot_be_taken_close_the_channel(client, stream, exchange, properties, headers, code):
    client.publish(1, stream, b"x", exchange=exchange, headers=headers, **properties)
    closed(client.next(1), m.ChannelClose, code)


def test_a_user_may_say_who_it_is(client, stream):
    client.call(1, m.ConfirmSelect())
    client.publish(1, stream, b"", user_id="guest")
    wait_confirmed(client, 1)


def test_a_message_that_is_too_large_closes_the_channel(client, stream):
    client.publish(1, stream, b"x" * 300_001)
    closed(client.next(1), m.ChannelClose, 406, "message size 300001")
    assert client.call(2, m.ChannelOpen()) == m.ChannelOpenOk()


def test_immediate_is_not_implemented(client, stream):
    client.say(1, m.BasicPublish(routing_key=stream, immediate=True))
    client.socket.sendall(b"\2\0\1\0\0\0\x0e\0\x3c" + bytes(12) + b"\xce")
    closed(client.next(0), m.ConnectionClose, 540)


def test_further_recipients_get_their_copy(client, stream):
    client.declare(1, "copies")
    client.call(1, m.ConfirmSelect())
    headers = {"CC": Field(FieldType.ARRAY, (long_string("copies"), long_string(stream)))}
    client.publish(1, stream, b"x", headers=headers)
    wait_confirmed(client, 1)
    assert client.call(1, m.QueueDeclare(queue=stream, passive=True)).message_count == 6
    assert client.call(1, m.QueueDelete(queue="copies")) == m.QueueDeleteOk(1)


# consuming


def deliveries(client: Client, count: int) -> list[tuple[int, int, bytes]]:
    found = []
    for _ in range(count):
        received = client.receive(1)
        assert isinstance(received.method, m.BasicDeliver), received
        found.append(
            (received.method.delivery_tag, received.properties.headers["x-stream-offset"].value, received.body)
        )
    return found


def test_messages_are_delivered_with_their_offset(client, stream):
    assert client.consume(1, stream, stream_offset=long_string("first")) == m.BasicConsumeOk("c")
    first = client.receive(1)
    assert first.method == m.BasicDeliver("c", 1, False, "", stream)
    assert first.properties.headers == {
        "x-stream-offset": long(0),
        "x-stream-filter-value": long_string("even"),
        "n": long(0),
    }
    assert first.properties.delivery_mode == 1
    assert first.body == b"m0"
    assert deliveries(client, 4) == [(tag, tag - 1, b"m%d" % (tag - 1)) for tag in range(2, 6)]


def test_no_more_than_the_prefetch_is_unacknowledged(client, stream):
    client.consume(1, stream, prefetch=2, stream_offset=long_string("first"))
    assert [tag for tag, _, _ in deliveries(client, 2)] == [1, 2]
    # Nothing may follow: the answer to something else comes next.
    assert client.call(1, m.BasicQos(prefetch_count=9)) == m.BasicQosOk()
    client.say(1, m.BasicAck(1))
    assert [tag for tag, _, _ in deliveries(client, 1)] == [3]
    client.say(1, m.BasicNack(3, multiple=True, requeue=True))
    assert [tag for tag, _, _ in deliveries(client, 2)] == [4, 5]
    client.say(1, m.BasicReject(4, requeue=True), m.BasicAck(0, multiple=True))
    assert client.call(1, m.BasicQos(prefetch_count=9)) == m.BasicQosOk()


def test_an_unknown_delivery_tag_closes_the_channel(client, stream):
    client.consume(1, stream, stream_offset=long_string("first"))
    deliveries(client, 1)
    client.say(1, m.BasicAck(77))
    while isinstance(answer := client.next(1), m.BasicDeliver):
        pass
    closed(answer, m.ChannelClose, 406, "unknown delivery tag 77")


@pytest.mark.parametrize(
    ("offset", "first"),
    [
        (long(3), 3),
        (Field(FieldType.BYTE, 4), 4),
        (long_string("first"), 0),
        (long_string("last"), None),
        (long_string("1h"), 0),
        (Field(FieldType.TIMESTAMP, 1_600_000_000), 0),
    ],
)
def test_a_consumer_begins_where_it_says(client, stream, offset, first):
    client.consume(1, stream, stream_offset=offset)
    _, found, _ = deliveries(client, 1)[0]
    assert found == first if first is not None else found <= 4


@pytest.mark.parametrize("arguments", [{}, {"stream_offset": long_string("next")}, {"stream_offset": long(100)}])
def test_a_consumer_may_begin_with_what_comes(client, stream, arguments):
    client.consume(1, stream, **arguments)
    fill(client, stream, 1)
    assert deliveries(client, 1)[0][1:] == (5, b"m0")


@pytest.mark.parametrize(
    "offset",
    [
        long_string("middle"),
        long_string("5"),
        long_string("0s"),
        long_string(""),
        long(-1),
        Field(FieldType.DOUBLE, 1.0),
        boolean(True),
        Field(FieldType.TIMESTAMP, -1),
        Field(FieldType.TIMESTAMP, 2**63 - 1),
    ],
)
def test_other_offsets_close_the_channel(client, stream, offset):
    closed(client.consume(1, stream, stream_offset=offset), m.ChannelClose, 406, "x-stream-offset")


def in_runs(client: Client, name: str) -> None:
    """A stream with three chunks: even, odd, unfiltered."""
    client.declare(1, name)
    client.call(900, m.ChannelOpen())
    client.call(900, m.ConfirmSelect())
    for number, value in enumerate(("even", "odd", None)):
        headers: Table = {} if value is None else {"x-stream-filter-value": long_string(value)}
        client.publish(900, name, str(value).encode(), headers=headers)
        assert client.next(900).delivery_tag == number + 1
    client.call(900, m.ChannelClose())


@pytest.mark.parametrize(
    ("arguments", "bodies"),
    [
        ({"stream_filter": long_string("odd")}, [b"odd"]),
        ({"stream_filter": Field(FieldType.ARRAY, (long_string("odd"), long_string("even")))}, [b"even", b"odd"]),
        ({"stream_filter": long_string("odd"), "stream_match_unfiltered": boolean(True)}, [b"odd", b"None"]),
        ({"stream_filter": long_string("odd"), "stream_match_unfiltered": long_string("true")}, [b"odd"]),
        ({"stream_match_unfiltered": boolean(True)}, [b"even", b"odd", b"None"]),
        ({"stream_filter": Field(FieldType.ARRAY, ())}, [b"even", b"odd", b"None"]),
        ({"stream_filter": Field(FieldType.ARRAY, (long(1), long_string("even")))}, [b"even"]),
        ({"stream_filter": long(1)}, [b"even", b"odd", b"None"]),
    ],
)
def test_filter_values_skip_chunks(client, request, arguments, bodies):
    name = request.node.name[:80]
    in_runs(client, name)
    client.consume(1, name, stream_offset=long_string("first"), **arguments)
    assert [body for _, _, body in deliveries(client, len(bodies))] == bodies
    assert client.call(1, m.BasicQos(prefetch_count=1)) == m.BasicQosOk()
    client.call(1, m.QueueDelete(queue=name))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"headgate_sql": long_string("n > 2")}, [3, 4]),
        ({"headgate_sql": long_string("n IN (1, 4)"), "headgate_dialect": long_string("rabbitmq")}, [1, 4]),
        ({"headgate_sql": long_string("n > 2"), "stream_filter": long_string("even")}, [3, 4]),
        ({"headgate_sql": long_string("n > 2"), "stream_offset": long(4)}, [4]),
    ],
)
def test_a_filter_expression_chooses_messages(client, stream, arguments, expected):
    given = {"stream_offset": long_string("first"), **arguments}
    client.consume(1, stream, prefetch=2, **given)
    assert [offset for _, offset, _ in deliveries(client, len(expected))] == expected
    # What the filter left out has used no place of the prefetch.
    assert client.call(1, m.BasicQos(prefetch_count=1)) == m.BasicQosOk()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"headgate_sql": long_string("n > ")}, "amqp filter refused"),
        ({"headgate_sql": long_string("n = 1"), "headgate_dialect": long_string("klingon")}, "klingon"),
        ({"headgate_sql": long(5)}, "long string"),
        ({"headgate_sql": long_string(b"\xff")}, "UTF-8"),
        ({"headgate_sql": long_string("n = 1 OR " * 30 + "n = 2")}, "at most 200"),
        ({"headgate_dialect": long_string("amqp")}, "without x-headgate-sql"),
    ],
)
def test_a_filter_that_is_wrong_closes_the_channel(client, stream, arguments, text):
    closed(client.consume(1, stream, **arguments), m.ChannelClose, 406, text)


def test_a_refused_filter_is_shown_with_a_caret(client, stream):
    text = "region = 'emea' AND quantity > > 5 AND state = 'open'"
    answer = client.consume(1, stream, headgate_sql=long_string(text))
    lines = answer.reply_text.split("\n")
    assert lines[1][lines[2].index("^")] == ">"
    assert lines[1] in text


@pytest.mark.parametrize(
    ("qos", "consume", "channel", "kind", "code"),
    [
        ({"prefetch_count": 5}, {"queue": "nowhere"}, 1, m.ChannelClose, 404),
        ({}, {}, 1, m.ChannelClose, 406),
        ({"prefetch_count": 5}, {"no_ack": True}, 0, m.ConnectionClose, 540),
        ({"prefetch_count": 5}, {"exclusive": True}, 1, m.ChannelClose, 403),
        ({"prefetch_count": 5}, {"arguments": {"x-priority": long(1)}}, 1, m.ChannelClose, 406),
    ],
)
def test_a_consumer_that_cannot_be_is_refused(client, stream, qos, consume, channel, kind, code):
    client.call(1, m.BasicQos(**qos))
    client.say(1, m.BasicConsume(**{"queue": stream, **consume}))
    closed(client.next(channel), kind, code)


def test_a_tag_names_one_consumer(client, stream):
    client.consume(1, stream, tag="same")
    client.say(1, m.BasicConsume(queue=stream, consumer_tag="same"))
    closed(client.next(0), m.ConnectionClose, 530, "consumer tag 'same'")


def test_a_tag_is_given_where_none_is(client, stream):
    tags = {client.consume(1, stream, tag="").consumer_tag for _ in range(3)}
    assert len(tags) == 3
    assert all(tag.startswith("amq.ctag-") for tag in tags)
    client.say(1, m.BasicConsume(queue=stream))
    closed(client.next(0), m.ConnectionClose, 530, "reached maximum (3) of consumers")


def test_a_cancelled_consumer_gets_nothing_and_may_settle_what_it_got(client, stream):
    client.consume(1, stream, prefetch=2, stream_offset=long_string("first"))
    deliveries(client, 2)
    assert client.call(1, m.BasicCancel("c")) == m.BasicCancelOk("c")
    assert client.call(1, m.BasicCancel("c")) == m.BasicCancelOk("c")
    client.say(1, m.BasicAck(2, multiple=True))
    fill(client, stream, 1)
    assert client.call(1, m.BasicQos(prefetch_count=1)) == m.BasicQosOk()


def test_consumers_of_a_deleted_stream_are_cancelled(client, stream):
    client.consume(1, stream)
    with Client(client.port, capabilities=()).open(1) as silent:
        silent.consume(1, stream)
        with Client(client.port).open(1) as other:
            other.call(1, m.QueueDelete(queue=stream))
        assert client.next(1) == m.BasicCancel("c", nowait=True)
        # A client that did not announce that it understands this is told nothing.
        assert silent.call(1, m.BasicQos(prefetch_count=1)) == m.BasicQosOk()
    closed(client.call(1, m.BasicConsume(queue=stream)), m.ChannelClose, 404)


def test_a_closed_channel_frees_its_consumers(server, client, stream):
    client.consume(1, stream)
    assert client.call(1, m.QueueDeclare(queue=stream, passive=True)).consumer_count == 1
    client.call(1, m.ChannelClose())
    client.call(1, m.ChannelOpen())
    assert client.call(1, m.QueueDeclare(queue=stream, passive=True)).consumer_count == 0


def test_a_client_may_send_a_lot_before_it_reads(client, stream):
    """Deliveries wait for it in the socket; what it sends is taken nevertheless."""
    client.call(1, m.ConfirmSelect())
    body = b"x" * 100_000
    for _ in range(60):
        client.publish(1, stream, body)
    wait_confirmed(client, 60)
    client.call(1, m.BasicQos(prefetch_count=1000))
    client.say(1, m.BasicConsume(queue=stream, consumer_tag="c", arguments={"x-stream-offset": long_string("first")}))
    for _ in range(100):
        client.publish(1, stream, body)
    confirmed, delivered = 60, 0
    while confirmed < 160 or delivered < 165:
        received = client.receive(1)
        if isinstance(received.method, m.BasicAck):
            confirmed = received.method.delivery_tag
        elif isinstance(received.method, m.BasicDeliver):
            delivered += 1


@pytest.mark.slow
def test_a_client_that_takes_no_answers_is_not_asked_for_more(server, stream, monkeypatch):
    monkeypatch.setattr(flow_control, "MAX_UNTAKEN_BYTES", 50_000)
    connected = socket.socket()
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
    connected.connect(("127.0.0.1", server.ports["amqp"]))
    with Client(server.ports["amqp"], connected=connected).open(1) as greedy:
        greedy.socket.settimeout(1.0)
        ask = encode_frame(FrameType.METHOD, 1, encode_method(m.QueueDeclare(queue=stream, passive=True)))
        with pytest.raises(TimeoutError):
            greedy.socket.sendall(ask * 400_000)
    assert server.context.connections.totals.failed == 0


def test_permissions_are_those_of_the_user(server, client, stream):
    users = server.context.broker.users
    server.call(users.add, "reader", "secret")
    server.call(users.permit, "reader", Permissions(configure="^$", write="^$", read=".*"))
    with Client(client.port, user="reader", password="secret").open(1, 2, 3) as reader:
        assert isinstance(reader.consume(1, stream, stream_offset=long_string("first")), m.BasicConsumeOk)
        deliveries(reader, 5)
        closed(reader.declare(2, "mine"), m.ChannelClose, ReplyCode.ACCESS_REFUSED)
        reader.publish(3, stream, b"x")
        closed(reader.next(3), m.ChannelClose, ReplyCode.ACCESS_REFUSED)


def test_garbage_closes_the_connection_and_nothing_stays(server):
    for garbage in (b"\0" * 100, b"AMQP\0\0\x09\1" + b"\xff" * 100, b"AMQP\0\0\x09\1\1\0\0\0\0\0\4\0\x0a\0\x63\xce"):
        with Client(server.ports["amqp"]) as client:
            client.socket.sendall(garbage)
            client.socket.shutdown(socket.SHUT_WR)
            while client.socket.recv(65536):
                pass
    server.until(lambda: not server.context.broker.sessions and not len(server.context.connections))
    assert server.context.connections.totals.failed == 0
