"""The server's end of a STOMP connection: what is legal when, events, refusals; destinations and message headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.errors import LocalProtocolError, PreconditionFailedError, RemoteProtocolError
from headgate.protocols.amqp091.fields import Field, FieldType, boolean, long, long_string
from headgate.protocols.amqp091.properties import BasicProperties
from headgate.protocols.stomp import ConnectionState, ServerConnection, Version
from headgate.protocols.stomp.codes import ERROR_MESSAGES, error_message
from headgate.protocols.stomp.destinations import (
    Destination,
    DestinationKind,
    format_destination,
    parse_destination,
)
from headgate.protocols.stomp.events import (
    AckMode,
    Acknowledge,
    Connect,
    Disconnect,
    Failed,
    Send,
    Subscribe,
    Unsubscribe,
)
from headgate.protocols.stomp.messages import properties_of, property_headers, text_headers

CONNECT = b"CONNECT\naccept-version:1.0,1.1,1.2\nlogin:guest\npasscode:guest\nhost:/\nheart-beat:4000,5000\n\n\0"
SEND = b"SEND\ndestination:/queue/a\nreceipt:r1\n\nbody\0"


def connection() -> ServerConnection:
    return ServerConnection(max_body_bytes=100)


def hear(core: ServerConnection, data: bytes) -> list[object]:
    """The events of the bytes; whoever connects is let in."""
    events = []
    for event in core.receive(data):
        events.append(event)
        if isinstance(event, Connect):
            core.connected(session="s", server="RabbitMQ/4.3.6", heart_beat_ms=(5000, 4000))
    return events


def open_connection(version: str = "1.2") -> ServerConnection:
    core = connection()
    hear(core, f"STOMP\naccept-version:{version}\nhost:/\n\n\0".encode())
    core.take_output()
    assert core.state is ConnectionState.OPEN
    return core


def test_a_connection_opens():
    core = connection()
    [event] = hear(core, CONNECT)
    assert (event.login, event.passcode, event.host, event.heart_beat_ms) == ("guest", "guest", "/", (4000, 5000))
    assert core.take_output() == (
        b"CONNECTED\nversion:1.2\nsession:s\nserver:RabbitMQ/4.3.6\nheart-beat:5000,4000\n\n\0\n"
    )


@pytest.mark.parametrize(
    ("offered", "version"),
    [("1.0,1.1,1.2", "1.2"), ("1.1,1.0", "1.1"), ("1.0", "1.0"), (None, "1.0"), ("2.0,1.1", "1.1")],
)
def test_the_highest_version_that_both_know_is_taken(offered, version):
    core = connection()
    line = "" if offered is None else f"accept-version:{offered}\n"
    hear(core, f"CONNECT\n{line}\n\0".encode())
    assert core.version == version


def test_without_a_common_version_the_versions_are_named():
    core = connection()
    [failed] = hear(core, b"CONNECT\naccept-version:2.0\n\n\0")
    assert isinstance(failed, Failed)
    answer = core.take_output()
    assert answer.startswith(b"ERROR\nmessage:Version mismatch\n")
    assert b"version:1.0,1.1,1.2\n" in answer


def test_nothing_is_read_until_it_is_known_who_it_is():
    core = connection()
    assert [type(event) for event in core.receive(CONNECT + SEND)] == [Connect]
    assert list(core.receive(SEND)) == []
    core.connected(session="s", server="x", heart_beat_ms=(0, 0))
    assert [type(event) for event in core.receive(b"")] == [Send, Send]


def test_frames_become_events():
    core = open_connection()
    events = hear(
        core,
        SEND
        + b"SUBSCRIBE\nid:7\ndestination:/queue/a\nack:client-individual\nreceipt:r2\n\n\0"
        + b"SUBSCRIBE\ndestination:/queue/b\n\n\0"
        + b"ACK\nid:m1\n\n\0NACK\nid:m2\nreceipt:r3\n\n\0"
        + b"UNSUBSCRIBE\nid:7\n\n\0UNSUBSCRIBE\ndestination:/queue/b\nreceipt:r4\n\n\0"
        + b"DISCONNECT\nreceipt:bye\n\n\0SEND\n\n\0",
    )
    assert events == [
        Send("/queue/a", {"destination": "/queue/a", "receipt": "r1"}, b"body", "r1"),
        Subscribe(
            "T_7",
            "7",
            "/queue/a",
            AckMode.CLIENT_INDIVIDUAL,
            {"id": "7", "destination": "/queue/a", "ack": "client-individual", "receipt": "r2"},
            "r2",
        ),
        Subscribe("Q_/queue/b", None, "/queue/b", AckMode.AUTO, {"destination": "/queue/b"}, None),
        Acknowledge("m1", None),
        Acknowledge("m2", "r3"),
        Unsubscribe("T_7", None),
        Unsubscribe("Q_/queue/b", "r4"),
        Disconnect("bye"),
    ]
    core.disconnected("bye")
    assert core.take_output() == b"RECEIPT\nreceipt-id:bye\n\n\0\n"
    assert core.state is ConnectionState.CLOSED


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_before_version_1_2_messages_are_acknowledged_by_message_id(version):
    core = open_connection(version)
    assert hear(core, b"ACK\nmessage-id:m1\nsubscription:7\n\n\0") == [Acknowledge("m1", None)]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b"BEGIN\ntransaction:t\n\n\0", "not_implemented"),
        (b"COMMIT\n\n\0", "not_implemented"),
        (b"ABORT\ntransaction:t\n\n\0", "not_implemented"),
        (b"SEND\ndestination:/queue/a\ntransaction:t\n\n\0", "not_implemented"),
        (b"CONNECT\n\n\0", "Bad command"),
        (b"MESSAGE\n\n\0", "Bad command"),
        (b"SEND\n\n\0", "Missing destination"),
        (b"SUBSCRIBE\nid:1\n\n\0", "Missing destination"),
        (b"SUBSCRIBE\nid:1\ndestination:a\nack:maybe\n\n\0", "Invalid header"),
        (b"UNSUBSCRIBE\n\n\0", "Missing destination or id"),
        (b"ACK\nmessage-id:m\n\n\0", "Missing header"),
        (b"SEND\nx\n\n\0", "Invalid frame"),
        (b"SEND\ndestination:/queue/a\ncontent-length:101\n\n", "Invalid frame"),
    ],
)
def test_what_may_not_be_sent_ends_the_connection(frame, message):
    core = open_connection()
    events = hear(core, frame + SEND)
    assert [type(event) for event in events] == [Failed]
    assert core.take_output().startswith(f"ERROR\nmessage:{message}\n".encode())
    assert core.state is ConnectionState.CLOSED
    assert hear(core, SEND) == []


@pytest.mark.parametrize(
    "frame", [SEND, b"STOMP\nheart-beat:x\n\n\0", b"CONNECT\nheart-beat:1\n\n\0", b"CONNECT\n\n" + b"x" * 1025]
)
def test_a_connection_that_begins_wrong_ends(frame):
    core = connection()
    assert [type(event) for event in hear(core, frame)] == [Failed]
    assert core.take_output().startswith(b"ERROR\n")


def test_an_error_names_the_receipt_of_its_frame():
    core = open_connection()
    hear(core, b"BEGIN\nreceipt:r9\n\n\0")
    assert b"\nreceipt-id:r9\n" in core.take_output()
    core.fail(PreconditionFailedError("late"))
    assert core.take_output() == b""


def test_this_side_says_nothing_where_nothing_is_open():
    core = connection()
    for say in (
        lambda: core.connected(session="s", server="x", heart_beat_ms=(0, 0)),
        lambda: core.message(b"", b""),
        lambda: core.receipt("r"),
    ):
        with pytest.raises(LocalProtocolError):
            say()


def test_each_error_has_a_name():
    for kind, name in ERROR_MESSAGES.items():
        if kind is not RemoteProtocolError:
            assert error_message(kind.__new__(kind)) == name
    assert error_message(RemoteProtocolError("x", code="Bad command")) == "Bad command"


SESSION = (
    CONNECT
    + SEND
    + b"\n\r\n"
    + b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\n\n\0\n"
    + b"SEND\ndestination:a\ncontent-length:3\n\n\0\0\0\0"
    + b"ACK\nid:1\n\n\0BEGIN\n\n\0"
    + SEND
)


@given(st.integers(1, len(SESSION)))
def test_bytes_in_any_pieces_are_the_bytes_at_once(size):
    whole, parts = connection(), connection()
    expected = hear(whole, SESSION)
    found = [event for at in range(0, len(SESSION), size) for event in hear(parts, SESSION[at : at + size])]
    assert str(found) == str(expected)
    assert parts.take_output() == whole.take_output()


@given(st.binary(max_size=100), st.booleans())
def test_any_bytes_are_events_or_end_in_an_error(octets, is_open):
    core = open_connection() if is_open else connection()
    hear(core, octets)
    assert core.state in ConnectionState


class Machine(RuleBasedStateMachine):
    """A client that does whatever it likes, against a model with a name for where it stands."""

    def __init__(self) -> None:
        super().__init__()
        self.core = connection()
        self.state = "connecting"

    @rule(login=st.booleans())
    def connect(self, login):
        events = list(self.core.receive(CONNECT))
        if self.state == "connecting":
            assert [type(event) for event in events] == [Connect]
            self.state = "authenticating"
            if login:
                self.core.connected(session="s", server="x", heart_beat_ms=(0, 0))
                self.state = "open"
        elif self.state == "open":
            assert [type(event) for event in events] == [Failed]
            self.state = "closed"
        else:
            assert events == []

    @precondition(lambda self: self.state != "authenticating")
    @rule(kind=st.sampled_from((Send, Subscribe, Acknowledge, Unsubscribe)))
    def say(self, kind):
        frame = {
            Send: SEND,
            Subscribe: b"SUBSCRIBE\ndestination:a\n\n\0",
            Acknowledge: b"NACK\nid:1\n\n\0",
            Unsubscribe: b"UNSUBSCRIBE\nid:1\n\n\0",
        }[kind]
        events = [type(event) for event in self.core.receive(frame)]
        if self.state == "open":
            assert events == [kind]
        elif self.state == "connecting":
            assert events == [Failed]
            self.state = "closed"
        else:
            assert events == []

    @precondition(lambda self: self.state == "open")
    @rule()
    def disconnect(self):
        assert list(self.core.receive(b"DISCONNECT\n\n\0" + SEND)) == [Disconnect(None)]
        self.state = "leaving"

    @precondition(lambda self: self.state == "leaving")
    @rule()
    def leave(self):
        self.core.disconnected(None)
        self.state = "closed"

    @precondition(lambda self: self.state in ("authenticating", "closed"))
    @rule()
    def begin_again(self):
        self.core.fail(PreconditionFailedError("no"))
        assert self.core.state is ConnectionState.CLOSED
        self.core = connection()
        self.state = "connecting"

    @invariant()
    def the_core_is_where_the_model_is(self):
        assert self.core.state.value == self.state


TestMachine = Machine.TestCase


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/queue/orders", Destination(DestinationKind.QUEUE, "orders")),
        ("orders", Destination(DestinationKind.QUEUE, "orders")),
        ("/queue/a%2Fb%20c", Destination(DestinationKind.QUEUE, "a/b%20c")),
        ("/amq/queue/orders", Destination(DestinationKind.EXISTING_QUEUE, "orders")),
        ("/reply-queue/a/b", Destination(DestinationKind.EXISTING_QUEUE, "a/b")),
        ("/exchange/e", Destination(DestinationKind.EXCHANGE, "e")),
        ("/exchange/e/k%2Fl", Destination(DestinationKind.EXCHANGE, "e", "k/l")),
    ],
)
def test_destinations_are_read(text, expected):
    assert parse_destination(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Unknown destination"),
        ("/", "Unknown destination"),
        ("/orders", "Unknown destination"),
        ("/queue", "Invalid destination"),
        ("/queue/", "Invalid destination"),
        ("/queue/a/b", "Invalid destination"),
        ("/amq/queue/", "Invalid destination"),
        ("/exchange//k", "Invalid destination"),
        ("/reply-queue/", "Unknown destination"),
        ("/topic/a", "not_implemented"),
        ("/temp-queue/a", "not_implemented"),
    ],
)
def test_other_destinations_are_refused(text, message):
    with pytest.raises(RemoteProtocolError) as refused:
        parse_destination(text)
    assert refused.value.code == message


@pytest.mark.parametrize(
    ("exchange", "key", "text"),
    [("", "a/b", "/queue/a%2Fb"), ("e", "", "/exchange/e"), ("e", "k%é", "/exchange/e/k%25%C3%A9")],
)
def test_destinations_are_written(exchange, key, text):
    assert format_destination(exchange, key) == text


def headers_of(properties):
    own = property_headers(properties)
    return own | dict(text_headers(properties.headers or {}, frozenset(own)))


def test_headers_of_send_are_properties_and_the_rest_is_text():
    assert properties_of(
        {
            "destination": "/queue/a",
            "content-type": "text/plain",
            "persistent": "true",
            "priority": "4",
            "amqp-message-id": "m1",
            "timestamp": "1700000000",
            "app-id": "shop",
            "receipt": "r1",
            "region": "emea",
            "quantity": "5",
        }
    ) == BasicProperties(
        content_type="text/plain",
        delivery_mode=2,
        priority=4,
        message_id="m1",
        timestamp=1700000000,
        app_id="shop",
        headers={"receipt": long_string("r1"), "region": long_string("emea"), "quantity": long_string("5")},
    )


@pytest.mark.parametrize(
    "headers", [{"priority": "x"}, {"priority": "256"}, {"timestamp": "-1"}, {"app-id": "x" * 256}]
)
def test_values_that_no_property_holds_are_refused(headers):
    with pytest.raises(RemoteProtocolError):
        properties_of(headers)


def test_properties_are_headers_of_a_message():
    properties = BasicProperties(
        delivery_mode=2,
        priority=0,
        reply_to="answers",
        message_id="m1",
        headers={
            "region": long_string("emea"),
            "n": long(5),
            "i": Field(FieldType.INT, 6),
            "flag": boolean(True),
            "d": Field(FieldType.DOUBLE, 0.5),
            "content-length": long_string("3"),
            "priority": long_string("9"),
        },
    )
    assert headers_of(properties) == {
        "persistent": "true",
        "priority": "0",
        "reply-to": "/reply-queue/answers",
        "amqp-message-id": "m1",
        "region": "emea",
        "n": "5",
        "i": "6",
    }
    assert headers_of(BasicProperties(delivery_mode=1, reply_to="/queue/a")) == {
        "persistent": "1",
        "reply-to": "/queue/a",
    }
    assert Version.V1_0 < Version.V1_2


def test_a_header_does_not_take_the_name_of_a_property():
    table = {"priority": long_string("9"), "color": long_string("red"), "content-length": long_string("3")}
    assert text_headers(table, frozenset({"priority"})) == [("color", "red")]
