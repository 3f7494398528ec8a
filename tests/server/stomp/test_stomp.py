"""STOMP on a running server, frame by frame: declarations, receipts, acknowledgements, errors, ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headgate.log.lock import StreamLock
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.fields import long_string
from headgate.protocols.stomp.frames import Frame
from headgate.server.amqp091 import Amqp091Handler
from headgate.server.stomp import StompHandler
from server import amqp091_client
from server.running import RunningServer, running_server
from server.stomp_client import STREAM, Client
from server.subscriptions import served_topic
from waiting import LIMIT_S

HANDLERS = {"stomp": StompHandler, "amqp": Amqp091Handler}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    limits = {"message_size_bytes": 100_000, "consumers": 3}
    with running_server(tmp_path_factory.mktemp("stomp"), handlers=HANDLERS, limits=limits) as running:
        yield running


@pytest.fixture
def connect(server: RunningServer) -> Iterator[Callable[..., Client]]:
    """Makes connections that are closed behind the test."""
    opened: list[Client] = []

    def client(*given: str, to: RunningServer = server, connect: bool = True) -> Client:
        opened.append(Client(to, *given, connect=connect))
        return opened[-1]

    yield client
    for one in opened:
        one.socket.close()


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    return connect()


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    return request.node.name[:80].replace("[", "-").replace("]", "").replace(":", "-")


def test_a_client_is_told_what_it_talks_to(client):
    headers = client.connected.headers
    assert (headers["version"], headers["heart-beat"]) == ("1.2", "0,0")
    assert headers["server"].startswith("RabbitMQ/")
    assert headers["session"]


def test_a_message_comes_as_it_was_sent(server, client, stream):
    client.send(stream, "hello", headers=f"{STREAM}content-type:text/plain\nregion:em\\cea\n")
    client.subscribe(stream)
    frame = client.next()
    message_id = frame.headers["message-id"]
    assert frame == Frame(
        "MESSAGE",
        {
            "subscription": "s",
            "destination": f"/queue/{stream}",
            "message-id": message_id,
            "redelivered": "false",
            "x-stream-offset": "0",
            "ack": message_id,
            "content-type": "text/plain",
            "persistent": "1",
            "receipt": "0",
            "x-queue-type": "stream",
            "durable": "true",
            "auto-delete": "false",
            "region": "em:ea",
            "content-length": "5",
        },
        b"hello",
    )


def test_headers_of_the_frame_itself_are_not_taken_from_a_message(server, client, stream):
    client.send(stream, "declares")
    forged = {"message-id": "forged", "redelivered": "true", "subscription": "t", "ack": "forged", "color": "red"}
    with amqp091_client.Client(server.ports["amqp"]).open(1) as publisher:
        publisher.call(1, m.ConfirmSelect())
        publisher.publish(1, stream, b"a", headers={name: long_string(text) for name, text in forged.items()})
        assert publisher.next(1) == m.BasicAck(1, multiple=False)
    client.bytes = b""
    client.subscribe(stream, "x-stream-offset:offset=1\n")
    headers = client.next().headers
    assert (headers["subscription"], headers["redelivered"], headers["color"]) == ("s", "false", "red")
    assert headers["ack"] == headers["message-id"] != "forged"
    for name in ("message-id", "redelivered", "subscription", "ack", "destination", "x-stream-offset"):
        assert client.bytes.count(f"\n{name}:".encode()) == 1, name


def test_messages_alike_differ_in_their_ids_and_offsets(client, stream):
    client.say(*(f"SEND\ndestination:/queue/{stream}\n{STREAM}color:red\n\n{body}\0" for body in "abc"))
    client.subscribe(stream)
    frames = [client.next() for _ in range(3)]
    assert [(frame.body, frame.headers["x-stream-offset"]) for frame in frames] == [
        (b"a", "0"),
        (b"b", "1"),
        (b"c", "2"),
    ]
    assert len({frame.headers["message-id"] for frame in frames}) == 3
    assert {frame.headers["color"] for frame in frames} == {"red"}


def test_a_stream_is_declared_once_by_a_connection(connect, client, stream):
    client.send(stream, "declares", headers=f"{STREAM}x-stream-filter-size-bytes:32\nx-max-age:1h\n")
    # The connection knows it by now.
    client.send(stream, "uses", headers="")
    other = connect()
    other.say(f"SEND\ndestination:/queue/{stream}\n{STREAM}\n\0")
    other.error("precondition_failed", "x-max-age")


def test_a_stream_begins_at_the_offset_that_its_declaration_says(server, client, stream):
    client.send(stream, "first", headers=f"{STREAM}x-stream-initial-offset:1000\n")
    found = server.call(lambda: server.context.broker.catalogue.get(stream))
    assert (found.first_offset, found.next_offset) == (1000, 1001)


def test_nothing_is_declared_behind_a_message_that_could_not_be_written(server, client, stream):
    with amqp091_client.Client(server.ports["amqp"]).open(1) as other:
        other.declare(1, stream)
    folder = server.call(lambda: server.context.broker.catalogue.get(stream).stream.path)
    lock = StreamLock.acquire(folder, now_ms=0)
    try:
        client.say(
            f"SEND\ndestination:/amq/queue/{stream}\n\nlost\0",
            f"SEND\ndestination:/queue/behind-it\n{STREAM}\n\nnever\0",
        )
        client.error("resource_locked", "another writer")
    finally:
        lock.release()
    assert "behind-it" not in server.call(server.context.broker.catalogue.names)


def test_a_stream_that_was_deleted_is_declared_again(server, client, stream):
    client.send(stream, "a")
    session = next(iter(server.context.broker.sessions))
    server.call(session.delete_stream, stream)
    client.send(stream, "b")
    client.subscribe(stream)
    assert client.next().body == b"b"


def test_the_subscription_to_a_stream_that_is_deleted_ends_and_the_connection_goes_on(server, client, stream):
    client.send(stream, "a")
    client.send("another-" + stream, "b")
    client.subscribe(stream)
    assert client.next().body == b"a"
    server.call(next(iter(server.context.broker.sessions)).delete_stream, stream)
    error = client.next()
    assert (error.command, error.headers["message"]) == ("ERROR", "Server cancelled subscription")
    assert error.headers["subscription"] == "s"
    client.subscribe("another-" + stream)
    assert client.next().body == b"b"


@pytest.mark.parametrize(
    ("frame", "message", "text"),
    [
        ("SEND\ndestination:/queue/new\n\n\0", "not_implemented", "x-queue-type:stream"),
        ("SEND\ndestination:/queue/new\nx-queue-type:quorum\n\n\0", "not_implemented", ""),
        (f"SEND\ndestination:/queue/new\n{STREAM}x-max-length:5\n\n\0", "precondition_failed", "x-max-length"),
        (f"SEND\ndestination:/queue/new\n{STREAM}x-max-length-bytes:many\n\n\0", "Invalid header", "x-max-length"),
        ("SEND\ndestination:/queue/new\nx-queue-type:stream\ndurable:false\n\n\0", "precondition_failed", "durable"),
        ("SEND\ndestination:/exchange/nowhere/key\n\n\0", "not_found", "nowhere"),
        ("SEND\ndestination:/amq/queue/any\nmessage-id:mine\n\n\0", "Invalid header", "amqp-message-id"),
        (f"SEND\ndestination:/queue/new\n{STREAM}user-id:other\n\n\0", "precondition_failed", "user_id"),
        (f"SEND\ndestination:/queue/new\n{STREAM}expiration:soon\n\n\0", "precondition_failed", "expiration"),
        ("SUBSCRIBE\nid:1\ndestination:/exchange/amq.direct/key\nack:client\n\n\0", "not_implemented", "exchanges"),
        ("SUBSCRIBE\nid:1\ndestination:/topic/a\nack:client\n\n\0", "not_implemented", "/topic/a"),
        ("UNSUBSCRIBE\nid:1\n\n\0", "No subscription found", "'1'"),
        ("ACK\nid:nonsense\n\n\0", "Invalid header", ""),
        ("BEGIN\ntransaction:t\n\n\0", "not_implemented", "transactions"),
        ("SEND\ndestination:/queue/new\ncontent-length:100001\n\n", "Invalid frame", "100000"),
    ],
)
def test_what_cannot_be_is_an_error_and_the_end(client, frame, message, text):
    client.say(frame)
    client.error(message, text)


@pytest.mark.parametrize(
    ("headers", "message", "text"),
    [
        ("ack:client\n", "precondition_failed", "prefetch count is not set"),
        ("ack:client\nprefetch-count:0\n", "precondition_failed", "prefetch"),
        ("ack:client\nprefetch-count:x\n", "Invalid header", "prefetch-count"),
        ("ack:auto\nprefetch-count:5\n", "not_implemented", "automatic"),
        ("prefetch-count:5\n", "not_implemented", "automatic"),
        ("ack:client\nprefetch-count:5\nx-priority:5\n", "precondition_failed", "x-priority"),
        ("ack:client\nprefetch-count:5\nx-headgate-sql:n = \n", "precondition_failed", "^"),
    ],
)
def test_a_subscription_that_cannot_be_is_an_error_and_the_end(client, stream, headers, message, text):
    client.send(stream, "m")
    client.say(f"SUBSCRIBE\nid:1\nreceipt:r\ndestination:/amq/queue/{stream}\n{headers}\n\0")
    assert client.error(message, text).headers["receipt-id"] == "r"


def test_a_subscription_of_a_topic_is_not_read_over_stomp(server, client):
    topic = served_topic(server, "topics/stomp")
    queue = topic.queue.replace("/", "%2F")
    client.say(f"SUBSCRIBE\nid:1\nack:client\nprefetch-count:5\ndestination:/amq/queue/{queue}\n\n\0")
    client.error("not_implemented", "AMQP")


def test_an_identifier_names_one_subscription(client, stream):
    client.send(stream, "m")
    client.subscribe(stream, "x-stream-offset:next\n")
    client.subscribe(stream)
    client.error("Duplicated subscription identifier")


def test_a_message_that_goes_nowhere_is_done_with(client):
    client.say("SEND\ndestination:/amq/queue/nowhere\nreceipt:r\n\nm\0")
    assert client.next() == Frame("RECEIPT", {"receipt-id": "r"})


def test_exchanges_route_by_topics_and_headers(server, client, stream):
    client.send(stream, "declares")
    session = next(iter(server.context.broker.sessions))
    server.call(session.bind, "amq.topic", stream, "a.#")
    server.call(session.bind, "amq.match", stream, "", {"region": "emea"})
    client.say("SEND\ndestination:/exchange/amq.topic/a.b\nreceipt:1\n\ntopic\0")
    client.say("SEND\ndestination:/exchange/amq.topic/b\nreceipt:2\n\nlost\0")
    client.say("SEND\ndestination:/exchange/amq.match\nregion:emea\nreceipt:3\n\nheaders\0")
    client.say("SEND\ndestination:/exchange/amq.match\nregion:apac\nreceipt:4\n\nlost\0")
    assert {client.next().headers["receipt-id"] for _ in range(4)} == {"1", "2", "3", "4"}
    server.call(session.unbind, "amq.topic", stream, "a.#")
    server.call(session.unbind, "amq.match", stream, "", {"region": "emea"})
    assert server.call(lambda: session.stream_info(stream).message_count) == 3


def test_exchanges_route_by_key(server, client, stream):
    client.send(stream, "declares")
    session = next(iter(server.context.broker.sessions))
    server.call(session.bind, "amq.direct", stream, "a/b")
    client.say("SEND\ndestination:/exchange/amq.direct/a%2Fb\nreceipt:r\n\nrouted\0")
    assert client.next().command == "RECEIPT"
    client.subscribe(stream, "x-stream-offset:offset=1\n")
    frame = client.next()
    assert (frame.headers["destination"], frame.body) == ("/exchange/amq.direct/a%2Fb", b"routed")


def test_a_place_is_given_back_for_each_message_that_is_settled(client, stream):
    client.send(stream, *(f"m{number}" for number in range(5)))
    client.subscribe(stream, prefetch=2)
    first, second = client.next(), client.next()
    client.say(f"ACK\nid:{second.headers['ack']}\nreceipt:a\n\n\0")
    assert client.next() == Frame("RECEIPT", {"receipt-id": "a"})
    assert client.next().body == b"m2"
    client.say(f"NACK\nid:{first.headers['ack']}\n\n\0")
    assert client.next().body == b"m3"
    client.say(f"ACK\nid:{first.headers['ack']}\n\n\0")
    client.error("precondition_failed", "unknown delivery tag")


def test_a_subscription_that_has_ended_gets_nothing(client, stream):
    client.send(stream, "m0")
    client.subscribe(stream)
    frame = client.next()
    client.say("UNSUBSCRIBE\nid:s\nreceipt:u\n\n\0", f"ACK\nid:{frame.headers['ack']}\nreceipt:a\n\n\0")
    assert [client.next().headers["receipt-id"] for _ in range(2)] == ["u", "a"]
    client.send(stream, "m1")


def test_subscriptions_of_one_name_after_another_never_call_two_messages_the_same(client, stream):
    client.send(stream, "m0", "m1", "m2")
    client.subscribe(stream, prefetch=2)
    earlier = [client.next().headers["ack"] for _ in range(2)]
    client.say("UNSUBSCRIBE\nid:s\nreceipt:u\n\n\0")
    assert client.next().headers["receipt-id"] == "u"
    client.subscribe(stream, prefetch=2)
    later = [client.next().headers["ack"] for _ in range(2)]
    assert len({*earlier, *later}) == 4
    # What the first one had is no message of the second, which keeps its places taken.
    client.say(f"ACK\nid:{earlier[1]}\nreceipt:a\n\n\0", f"ACK\nid:{later[0]}\nreceipt:b\n\n\0")
    assert [client.next().headers.get("receipt-id") for _ in range(2)] == ["a", "b"]
    assert client.next().body == b"m2"


def test_receipts_of_everything_come_before_the_end(client, stream):
    sends = [f"SEND\ndestination:/queue/{stream}\nreceipt:{number}\n{STREAM}\nm\0" for number in range(50)]
    client.say(*sends, "DISCONNECT\nreceipt:bye\n\n\0")
    receipts = [client.next().headers["receipt-id"] for _ in range(51)]
    assert receipts == [*map(str, range(50)), "bye"]
    with pytest.raises(EOFError):
        client.next()


def test_a_body_may_hold_anything(client, stream):
    body = bytes(range(256)) * 20
    head = f"SEND\ndestination:/queue/{stream}\nreceipt:r\ncontent-length:{len(body)}\n{STREAM}\n"
    client.socket.sendall(head.encode() + body + b"\0")
    assert client.next().command == "RECEIPT"
    client.subscribe(stream)
    assert client.next().body == body


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        ("CONNECT\nlogin:guest\npasscode:wrong\n\n\0", "Access refused for user 'guest'"),
        ("CONNECT\nlogin:guest\npasscode:guest\nhost:shop\n\n\0", "Virtual host 'shop' access denied"),
    ],
)
def test_who_may_not_come_in_is_told_so(connect, frame, text):
    client = connect(connect=False)
    client.say(frame)
    client.error("Bad CONNECT", text)


@pytest.mark.slow
def test_both_sides_show_that_they_are_there(connect):
    client = connect("heart-beat:1000,1000\n")
    assert client.connected.headers["heart-beat"] == "1000,1000"
    # A client that keeps silent is cut off after two intervals and a little, having heard of the server.
    with pytest.raises((EOFError, ConnectionResetError)):
        client.next()
    assert client.bytes.rstrip(b"\n") != client.bytes[:-1]


def test_a_server_that_stops_says_so(connect, tmp_path):
    with running_server(tmp_path, handlers={"stomp": StompHandler}) as running:
        client = connect(to=running)
        running.stop()
        client.error("internal_error", "shutting down")
        client.socket.close()


def test_nothing_stays_of_connections_that_are_gone(server, connect):
    for garbage in ("\1\2\n\n\0", "CONNECT\n\n\0SEND\nx\n\n\0", "SEND\n" + "a" * 70_000):
        client = connect(connect=False)
        client.say(garbage)
        client.socket.settimeout(LIMIT_S)
        while client.socket.recv(65536):
            pass
        client.socket.close()
    server.until(lambda: not server.context.broker.sessions and not len(server.context.connections))
    assert server.context.connections.totals.failed == 0
