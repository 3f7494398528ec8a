"""Exchanges of all types over AMQP 0.9.1 and 1.0: what the tables say, which the original is asked as well.

The clients are those of the tests, for exact types; pika and others are in the tests of their own.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator

import pytest

import exchange_cases
from exchange_cases import Refusal
from headgate.message import AmqpType, AmqpValue, Message
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.fields import Field, FieldType, Table, long, long_string
from headgate.protocols.amqp10.terminus import Accepted, Released
from interop.servers import Served
from server.amqp091_client import Client
from server.amqp10_client import Client as Client10
from server.amqp10_client import Management, client_of

_keys = itertools.count(1)


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.amqp).open(1) as opened:
        assert opened.call(1, m.ConfirmSelect()) == m.ConfirmSelectOk()
        yield opened


@pytest.fixture
def client10(served: Served) -> Iterator[Client10]:
    with client_of(served.amqp) as opened:
        yield opened


@pytest.fixture
def exchange(client: Client, name: str) -> Iterator[str]:
    """The name of an exchange that the test makes."""
    yield name
    client.call(1, m.ExchangeDelete(exchange=name))


def declare(client: Client, exchange: str, kind: str, **given: object) -> None:
    method = m.ExchangeDeclare(exchange=exchange, type=kind, **{"durable": True, **given})
    assert client.call(1, method) == m.ExchangeDeclareOk()


def bind(client: Client, exchange: str, queue: str, key: str = "", arguments: Table | None = None) -> m.QueueBind:
    method = m.QueueBind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments or {})
    assert client.call(1, method) == m.QueueBindOk()
    return method


def unbind(client: Client, bound: m.QueueBind) -> None:
    method = m.QueueUnbind(
        queue=bound.queue, exchange=bound.exchange, routing_key=bound.routing_key, arguments=bound.arguments
    )
    assert client.call(1, method) == m.QueueUnbindOk()


def is_routed(client: Client, exchange: str, key: str, headers: Table | None = None) -> bool:
    """Whether a message that has to be routed is confirmed without coming back."""
    client.publish(1, key, b"m", exchange=exchange, mandatory=True, headers=headers)
    first = client.next(1)
    if not isinstance(first, m.BasicReturn):
        assert isinstance(first, m.BasicAck), first
        return True
    assert (first.reply_code, first.reply_text, first.exchange, first.routing_key) == (312, "NO_ROUTE", exchange, key)
    assert isinstance(client.next(1), m.BasicAck)
    return False


def test_topic_exchanges_route_as_the_table_says(client: Client, stream: str, exchange: str) -> None:
    declare(client, exchange, "topic")
    for pattern, key, expected in exchange_cases.TOPIC:
        bound = bind(client, exchange, stream, pattern)
        assert is_routed(client, exchange, key) is expected, (pattern, key)
        unbind(client, bound)
        assert not is_routed(client, exchange, key)


def test_headers_exchanges_route_as_the_table_says(client: Client, stream: str, exchange: str) -> None:
    declare(client, exchange, "headers")
    for arguments, headers, expected in exchange_cases.HEADERS:
        bound = bind(client, exchange, stream, f"k{next(_keys)}", arguments)
        assert is_routed(client, exchange, "any", headers) is expected, (arguments, headers)
        unbind(client, bound)
        assert not is_routed(client, exchange, "any", headers)


@pytest.mark.parametrize("case", exchange_cases.REFUSALS, ids=lambda case: type(case.method).__name__)
def test_what_is_refused_ends_the_channel_as_in_the_table(
    client: Client, stream: str, name: str, case: Refusal
) -> None:
    def filled(text: str) -> str:
        return text.format(stream)

    declare(client, filled("{}-bound"), "fanout")
    bind(client, filled("{}-bound"), stream)
    declare(client, filled("{}-alternated"), "topic", arguments={"alternate-exchange": long_string("amq.fanout")})
    declare(client, filled("{}-internal"), "fanout", internal=True)
    fields = {field: getattr(case.method, field) for field in case.method.__struct_fields__}
    method = type(case.method)(
        **{key: filled(value) if isinstance(value, str) else value for key, value in fields.items()}
    )
    client.call(2, m.ChannelOpen())
    if isinstance(method, m.BasicPublish):
        client.publish(2, method.routing_key, b"", exchange=method.exchange)
        close = client.next(2)
    else:
        close = client.call(2, method)
    assert isinstance(close, m.ChannelClose), close
    assert close.reply_code == case.code
    assert close.reply_text.startswith(filled(f"{case.code.name} - {case.reason}")), close.reply_text
    for suffix in ("bound", "alternated", "internal"):
        assert client.call(1, m.ExchangeDelete(exchange=filled(f"{{}}-{suffix}"))) == m.ExchangeDeleteOk()


def test_fanout_exchanges_take_no_notice_of_keys(client: Client, stream: str, exchange: str) -> None:
    declare(client, exchange, "fanout")
    assert not is_routed(client, exchange, "a")
    bind(client, exchange, stream, "b")
    assert is_routed(client, exchange, "a") and is_routed(client, exchange, "")


@pytest.mark.parametrize(
    ("exchange", "key"), [("amq.fanout", "f"), ("amq.topic", "a.b"), ("amq.headers", "h"), ("amq.match", "m")]
)
def test_exchanges_that_are_there_from_the_beginning(client: Client, stream: str, exchange: str, key: str) -> None:
    assert client.call(1, m.ExchangeDeclare(exchange=exchange, passive=True)) == m.ExchangeDeclareOk()
    bound = bind(client, exchange, stream, f"{key.split('.')[0]}.#", {"n": long(next(_keys))})
    headers = {"n": bound.arguments["n"]}
    assert is_routed(client, exchange, key, headers)
    unbind(client, bound)
    assert not is_routed(client, exchange, key, headers)


def test_properties_of_exchanges_are_compared_but_not_their_arguments(client: Client, exchange: str) -> None:
    declare(client, exchange, "topic", arguments={"note": long(1)})
    declare(client, exchange, "topic", arguments={"other": long_string("2")})


def test_a_stream_bound_several_times_gets_a_message_once(
    served: Served, client: Client, stream: str, exchange: str
) -> None:
    declare(client, exchange, "topic")
    for key in ("a.*", "a.#", "#"):
        bind(client, exchange, stream, key)
    cc = {"CC": Field(FieldType.ARRAY, (long_string("a.c"), long_string("d")))}
    assert is_routed(client, exchange, "a.b", cc)
    client.consume(1, stream, stream_offset=long_string("first"))
    assert isinstance(client.next(1), m.BasicDeliver)
    client.publish(1, "a.b", b"last", exchange=exchange)
    bodies = [client.receive(1) for _ in range(2)]
    assert [received.body for received in bodies if isinstance(received.method, m.BasicDeliver)] == [b"last"]


def test_exchanges_are_bound_to_exchanges(client: Client, stream: str, exchange: str) -> None:
    inner = f"{exchange}-inner"
    declare(client, exchange, "topic")
    declare(client, inner, "headers", internal=True)
    binding = {"destination": inner, "source": exchange, "routing_key": "a.#"}
    assert client.call(1, m.ExchangeBind(**binding)) == m.ExchangeBindOk()
    assert client.call(1, m.ExchangeBind(**binding)) == m.ExchangeBindOk()
    # A circle.
    assert client.call(1, m.ExchangeBind(destination=exchange, source=inner)) == m.ExchangeBindOk()
    bind(client, inner, stream, "", {"n": long(1)})
    assert is_routed(client, exchange, "a.b", {"n": long(1)})
    assert not is_routed(client, exchange, "a.b", {"n": long(2)})
    assert not is_routed(client, exchange, "b", {"n": long(1)})
    assert client.call(1, m.ExchangeUnbind(**binding)) == m.ExchangeUnbindOk()
    assert client.call(1, m.ExchangeUnbind(**binding)) == m.ExchangeUnbindOk()
    assert not is_routed(client, exchange, "a.b", {"n": long(1)})
    assert client.call(1, m.ExchangeDelete(exchange=inner)) == m.ExchangeDeleteOk()


def test_exchanges_delete_themselves_with_their_last_binding(client: Client, stream: str, exchange: str) -> None:
    inner = f"{exchange}-inner"
    declare(client, exchange, "fanout", auto_delete=True)
    declare(client, inner, "topic", auto_delete=True)
    assert client.call(1, m.ExchangeBind(destination=inner, source=exchange)) == m.ExchangeBindOk()
    bound = [bind(client, inner, stream, key) for key in ("a", "b")]
    unbind(client, bound[0])
    assert client.call(1, m.ExchangeDeclare(exchange=inner, passive=True)) == m.ExchangeDeclareOk()
    unbind(client, bound[1])
    for gone in (inner, exchange):
        client.call(2, m.ChannelOpen())
        close = client.call(2, m.ExchangeDeclare(exchange=gone, passive=True))
        assert isinstance(close, m.ChannelClose) and close.reply_code == 404
        client.say(2, m.ChannelCloseOk())


def test_what_matches_nothing_goes_to_the_alternate_exchange(client: Client, stream: str, exchange: str) -> None:
    other = f"{exchange}-other"
    declare(client, exchange, "direct", arguments={"alternate-exchange": long_string(other)})
    assert not is_routed(client, exchange, "a")
    declare(client, other, "topic")
    bind(client, other, stream, "a.#")
    assert is_routed(client, exchange, "a.b") and not is_routed(client, exchange, "b")
    assert client.call(1, m.ExchangeDelete(exchange=other)) == m.ExchangeDeleteOk()
    assert not is_routed(client, exchange, "a.b")


# AMQP 1.0


@pytest.mark.parametrize("kind", ["fanout", "topic", "headers"])
def test_management_declares_binds_shows_and_deletes(client10: Client10, stream: str, name: str, kind: str) -> None:
    management = Management(client10)
    path, properties = f"/exchanges/{name}", {"type": kind, "durable": True, "auto_delete": False, "internal": False}
    assert management.request("PUT", path, {**properties, "arguments": {}}) == (204, None)
    assert management.request("PUT", path, {**properties, "arguments": {}}) == (204, None)
    status, reason = management.request("PUT", path, {**properties, "type": "direct", "arguments": {}})
    expected = f"inequivalent arg 'type' for exchange '{name}' in vhost '/': received 'direct' but current is '{kind}'"
    assert (status, reason) == (409, expected)
    to_stream = {"source": name, "destination_queue": stream, "binding_key": "a.#", "arguments": {"n": 1}}
    to_exchange = {"source": name, "destination_exchange": "amq.fanout", "binding_key": "a.#", "arguments": {}}
    for binding, ends in ((to_stream, f"dstq={stream}"), (to_exchange, "dste=amq.fanout")):
        assert management.request("POST", "/bindings", binding) == (204, None)
        query = f"/bindings?src={name}&{ends}&key=a.%23"
        status, (shown,) = management.request("GET", query)
        location = shown.pop("location")
        assert (status, shown) == (200, binding)
        assert management.request("DELETE", location) == (204, None)
        assert management.request("GET", query) == (200, [])
    assert management.request("DELETE", path) == (204, None)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"source": "amq.topic", "destination_queue": "{}", "binding_key": "#.#.#"}, 400, "Topic binding key"),
        ({"source": "amq.match", "destination_queue": "{}", "arguments": {"x-match": "x"}}, 400, "Invalid x-match"),
        ({"source": "amq.topic", "destination_exchange": "{}-new"}, 400, ""),
        ({"source": "amq.topic", "destination_exchange": ""}, 403, "operation not permitted on the default exchange"),
    ],
)
def test_management_refuses_bindings_that_cannot_be(
    client10: Client10, stream: str, body: dict[str, object], status: int, reason: str
) -> None:
    filled = {key: value.format(stream) if isinstance(value, str) else value for key, value in body.items()}
    found = Management(client10).request("POST", "/bindings", {"binding_key": "", "arguments": {}} | filled)
    assert found[0] == status and found[1].startswith(reason)


def test_a_topic_exchange_releases_what_it_does_not_route(
    client: Client, client10: Client10, stream: str, exchange: str
) -> None:
    declare(client, exchange, "topic")
    bind(client, exchange, stream, "a.*")
    for key, outcome in (("a.b", Accepted()), ("a", Released()), ("a.b.c", Released())):
        assert client10.send(client10.sender(f"/exchanges/{exchange}/{key}"), Message(b"m")) == [outcome]
    to = client10.sender(None)
    messages = [Message(b"m", to=f"/exchanges/{exchange}/{key}") for key in ("a.x", "b", "a.y")]
    assert client10.send(to, *messages) == [Accepted(), Released(), Accepted()]


def test_an_internal_exchange_takes_no_messages(client: Client, client10: Client10, exchange: str) -> None:
    declare(client, exchange, "fanout", internal=True)
    assert client10.detached(client10.sender(f"/exchanges/{exchange}"))[0] == "amqp:unauthorized-access"


def _typed(kind: AmqpType, value: object) -> AmqpValue:
    return AmqpValue(kind, value)


HEADERS_10 = [
    ({"a": long_string("1")}, {"a": "1"}, {}, True),
    ({"a": long_string("1")}, {"a": "2"}, {}, False),
    ({"a": long_string("1")}, {"a": _typed(AmqpType.SYMBOL, "1")}, {}, True),
    ({"a": long_string("1")}, {"a": b"1"}, {}, True),
    ({"a": long(1)}, {"a": _typed(AmqpType.UBYTE, 1)}, {}, True),
    ({"a": long(1)}, {"a": _typed(AmqpType.ULONG, 1)}, {}, True),
    ({"a": long(1)}, {"a": 1.0}, {}, False),
    ({"a": long(1)}, {"a": True}, {}, False),
    ({"a": Field(FieldType.BOOLEAN, True)}, {"a": True}, {}, True),
    ({"a": Field(FieldType.DOUBLE, 1.5)}, {"a": _typed(AmqpType.FLOAT, 1.5)}, {}, True),
    ({"a": long(97)}, {"a": _typed(AmqpType.CHAR, 97)}, {}, True),
    ({"a": long(1_700_000_000_000)}, {"a": _typed(AmqpType.TIMESTAMP, 1_700_000_000_000)}, {}, True),
    ({"a": Field(FieldType.VOID, None)}, {"a": None}, {}, True),
    ({"a": Field(FieldType.VOID, None)}, {"a": "x"}, {}, True),
    ({"a": Field(FieldType.VOID, None)}, {"b": "x"}, {}, False),
    ({"a": Field(FieldType.VOID, None)}, {"a": uuid.UUID(int=5)}, {}, True),
    ({"x-match": long_string("any-with-x"), "x-opt": Field(FieldType.VOID, None)}, {}, {"x-opt": None}, False),
    ({"x-match": long_string("any-with-x"), "x-opt": Field(FieldType.VOID, None)}, {}, {"x-opt": [1]}, False),
    ({"x-match": long_string("any"), "x-opt": long(1)}, {}, {"x-opt": 1}, False),
    ({"x-match": long_string("any-with-x"), "x-opt": long(1)}, {}, {"x-opt": 1}, True),
    ({"x-match": long_string("all-with-x"), "x-opt": long(1), "a": long(2)}, {"a": 2}, {"x-opt": 1}, True),
    ({"x-match": long_string("all-with-x"), "x-opt": long(1), "a": long(2)}, {"a": 2}, {"x-opt": 3}, False),
    ({"x-match": long_string("all-with-x"), "x-opt": long(1)}, {"x-opt": 1}, {}, True),
    ({"x-match": long_string("all-with-x"), "x-opt": long(1)}, {"x-opt": 1}, {"x-opt": 2}, False),
    ({"x-match": long_string("any-with-x"), "x-exchange": long_string("amq.match")}, {}, {}, False),
]
"""Arguments of the binding, application properties, message annotations, routed: verdicts of RabbitMQ 4.3.6."""


def test_headers_exchanges_look_at_properties_and_annotations_of_amqp_1_0(
    client: Client, client10: Client10, stream: str, exchange: str
) -> None:
    declare(client, exchange, "headers")
    link = client10.sender(f"/exchanges/{exchange}")
    for arguments, properties, annotated, expected in HEADERS_10:
        bound = bind(client, exchange, stream, f"k{next(_keys)}", arguments)
        message = Message(b"m", application_properties=properties, message_annotations=annotated)
        found = client10.send(link, message)
        assert found == [Accepted() if expected else Released()], (arguments, properties, annotated)
        unbind(client, bound)


def test_messages_of_a_headers_exchange_keep_their_order_in_each_stream(
    served: Served, client: Client, client10: Client10, stream: str, exchange: str
) -> None:
    declare(client, exchange, "headers")
    other = f"{stream}-other"
    served.declare(other)
    bind(client, exchange, stream, "", {"all": long(1)})
    bind(client, exchange, other, "", {"odd": long(1)})
    link = client10.sender(f"/exchanges/{exchange}")
    messages = [Message(b"%d" % number, application_properties={"all": 1, "odd": number % 2}) for number in range(20)]
    assert client10.send(link, *messages, Message(b"lost")) == [Accepted()] * 20 + [Released()]
    for queue, expected in ((stream, range(20)), (other, range(1, 20, 2))):
        client.consume(1, queue, prefetch=100, tag=queue, stream_offset=long_string("first"))
        assert [client.receive(1).body for _ in expected] == [b"%d" % number for number in expected]
        assert client.call(1, m.BasicCancel(queue)) == m.BasicCancelOk(queue)
    served.delete(other)
