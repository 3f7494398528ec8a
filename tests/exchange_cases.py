"""Verdicts of RabbitMQ 4.3.6, never edited: which messages its exchanges route, and what it refuses.

Taken by `tests/interop/test_exchanges.py` with `HEADGATE_INTEROP_ORIGINAL`, which asks the original the same again.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.protocols.amqp091 import ReplyCode
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.fields import Field, FieldType, Table, boolean, long, long_string

ALTERNATE = "alternate-exchange"

TOPIC = [
    ("", "", True),
    ("", "a", False),
    ("a", "a", True),
    ("a", "A", False),
    ("a", "a.b", False),
    ("a.b", "a.b", True),
    ("a.b", "a", False),
    ("*", "", False),
    ("*", "a", True),
    ("*", "a.b", False),
    ("*", ".", False),
    ("*.*", ".", True),
    ("*.*", "a.b", True),
    ("*.*", "a.b.c", False),
    ("a.*", "a.", True),
    ("a.*", "a", False),
    ("a.*.c", "a.b.c", True),
    ("a.*.c", "a..c", True),
    ("a.*.c", "a.c", False),
    ("*.b.*", "a.b.c", True),
    ("#", "", True),
    ("#", "a", True),
    ("#", "a.b.c", True),
    ("#", "..", True),
    ("a.#", "a", True),
    ("a.#", "a.b.c", True),
    ("a.#", "b", False),
    ("a.#", "", False),
    ("#.a", "a", True),
    ("#.a", "b.a", True),
    ("#.a", "a.b", False),
    ("a.#.b", "a.b", True),
    ("a.#.b", "a.x.y.b", True),
    ("a.#.b", "a.b.b", True),
    ("a.#.b", "a", False),
    ("#.#", "", True),
    ("#.a.#", "a", True),
    ("#.a.#", "x.a.y", True),
    ("#.a.#", "x.y", False),
    ("#.*", "", False),
    ("#.*", "a", True),
    ("*.#", "", False),
    ("*.#", "a.b", True),
    ("*.#.*", "a", False),
    ("*.#.*", "a.b", True),
    ("a*", "ab", False),
    ("a*", "a*", True),
    ("a#", "a", False),
    ("a.b#", "a.b#", True),
    ("a", "*", False),
    ("a", "#", False),
    ("*", "*", True),
    ("#", "#", True),
    ("a.*.b", "a.#.b", True),
    ("é.*", "é.ü", True),
]
"""Binding key, routing key, routed."""


def _int(value: int) -> Field:
    return Field(FieldType.INT, value)


def _double(value: float) -> Field:
    return Field(FieldType.DOUBLE, value)


def _time(seconds: int) -> Field:
    return Field(FieldType.TIMESTAMP, seconds)


_VOID = Field(FieldType.VOID, None)
_ALL, _ANY = {"x-match": long_string("all")}, {"x-match": long_string("any")}
_ALL_X, _ANY_X = {"x-match": long_string("all-with-x")}, {"x-match": long_string("any-with-x")}
_A, _B, _X = {"a": long_string("1")}, {"b": long_string("2")}, {"x-a": long_string("1")}

HEADERS: list[tuple[Table, Table, bool]] = [
    ({}, {}, True),
    ({}, _A, True),
    (_A, {}, False),
    (_A, _A, True),
    (_A, _A | _B, True),
    (_A, {"A": long_string("1")}, False),
    (_A, {"a": long_string("2")}, False),
    (_A | _B, _A, False),
    (_ALL | _A | _B, _A | _B, True),
    (_ALL | _A | _B, _A, False),
    (_ALL, {}, True),
    (_ANY, {}, False),
    (_ANY, _A, False),
    (_ANY | _A | _B, _B, True),
    (_ANY | _A | _B, {}, False),
    (_ANY | _A | _B, {"a": long_string("3")}, False),
    # Arguments that begin with x-
    (_X, {}, True),
    (_X | _A, _A, True),
    (_ANY | _X, _X, False),
    (_ALL_X | _X, _X, True),
    (_ALL_X | _X, {}, False),
    (_ALL_X | _X | _A, _X, False),
    (_ALL_X, {}, True),
    (_ANY_X | _X | _A, _X, True),
    (_ANY_X | _X | _A, _A, True),
    (_ANY_X | _X | _A, _B, False),
    (_ANY_X, _A, False),
    (_ANY_X, _ANY_X, False),
    # Presence
    ({"a": _VOID}, _A, True),
    ({"a": _VOID}, {"a": _VOID}, True),
    ({"a": _VOID}, {}, False),
    (_A, {"a": _VOID}, False),
    ({"a": _VOID}, {"a": Field(FieldType.ARRAY, ())}, True),
    ({"a": _VOID}, {"a": Field(FieldType.TABLE, {})}, True),
    (_ANY | {"a": _VOID, "b": _VOID}, {"b": long(1)}, True),
    ({"CC": _VOID}, {"CC": Field(FieldType.ARRAY, (long_string("k"),))}, True),
    ({"BCC": _VOID}, {"BCC": Field(FieldType.ARRAY, (long_string("k"),))}, False),
    # Types
    ({"a": long(1)}, {"a": _int(1)}, True),
    ({"a": _int(1)}, {"a": Field(FieldType.UNSIGNED_BYTE, 1)}, True),
    ({"a": long(1)}, {"a": long_string("1")}, False),
    (_A, {"a": long(1)}, False),
    ({"a": long(1)}, {"a": _double(1.0)}, False),
    ({"a": _double(1.0)}, {"a": long(1)}, False),
    ({"a": _double(1.5)}, {"a": _double(1.5)}, True),
    ({"a": _double(1.5)}, {"a": Field(FieldType.FLOAT, 1.5)}, True),
    ({"a": long(1)}, {"a": boolean(True)}, False),
    ({"a": boolean(True)}, {"a": boolean(True)}, True),
    ({"a": boolean(True)}, {"a": long(1)}, False),
    ({"a": boolean(True)}, {"a": boolean(False)}, False),
    ({"a": boolean(True)}, {"a": long_string("true")}, False),
    (_A, {"a": Field(FieldType.BINARY, b"1")}, True),
    ({"a": _time(1_700_000_000)}, {"a": _time(1_700_000_000)}, False),
    ({"a": long(1_700_000_000_000)}, {"a": _time(1_700_000_000)}, True),
    ({"a": long_string("é")}, {"a": long_string("é")}, True),
    ({"a": Field(FieldType.ARRAY, (long(1),))}, {"a": Field(FieldType.ARRAY, (long(1),))}, True),
    ({"a": Field(FieldType.ARRAY, (long(1),))}, {"a": Field(FieldType.ARRAY, (long(2),))}, False),
    ({"a": Field(FieldType.TABLE, _A)}, {"a": Field(FieldType.TABLE, _A)}, True),
]
"""Arguments of the binding, headers of the message, routed."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A method that ends its channel, and how the reason begins; `{}` in texts is a name that the test chooses."""

    method: m.Method
    code: ReplyCode
    reason: str = ""


NOT_EQUAL, REFUSED, NONE = ReplyCode.PRECONDITION_FAILED, ReplyCode.ACCESS_REFUSED, ReplyCode.NOT_FOUND
_TO_FANOUT, _TO_TOPIC = {ALTERNATE: long_string("amq.fanout")}, {ALTERNATE: long_string("amq.topic")}
_FANOUT_WITH_TYPE = "the value 'amq.fanout' of type 'longstr'"


def _declare(name: str, kind: str = "topic", **given: object) -> m.ExchangeDeclare:
    return m.ExchangeDeclare(exchange=name, type=kind, **{"durable": True, **given})  # type: ignore[arg-type]


def _unequal(method: m.ExchangeDeclare, name: str, received: str, current: str) -> Refusal:
    reason = f"inequivalent arg '{name}' for exchange '{method.exchange}' in vhost '/': "
    return Refusal(method, NOT_EQUAL, f"{reason}received {received} but current is {current}")


REFUSALS = [
    _unequal(_declare("amq.topic", "fanout"), "type", "'fanout'", "'topic'"),
    _unequal(_declare("amq.match", "headers", durable=False), "durable", "'false'", "'true'"),
    _unequal(_declare("amq.fanout", "fanout", auto_delete=True), "auto_delete", "'true'", "'false'"),
    _unequal(_declare("amq.headers", "headers", internal=True), "internal", "'true'", "'false'"),
    _unequal(_declare("amq.topic", arguments=_TO_FANOUT), ALTERNATE, _FANOUT_WITH_TYPE, "none"),
    _unequal(_declare("{}-alternated"), ALTERNATE, "none", _FANOUT_WITH_TYPE),
    _unequal(_declare("{}-alternated", arguments=_TO_TOPIC), ALTERNATE, "'amq.topic'", "'amq.fanout'"),
    Refusal(_declare("{}-new", arguments={ALTERNATE: long(5)}), NOT_EQUAL, "invalid type"),
    Refusal(_declare("{}-new", "strange"), NOT_EQUAL, "unknown exchange type 'strange'"),
    Refusal(_declare("amq.mine"), REFUSED),
    Refusal(_declare(""), REFUSED, "operation not permitted on the default exchange"),
    Refusal(_declare("{}-new", passive=True), NONE),
    Refusal(m.ExchangeDelete(exchange="amq.topic"), REFUSED),
    Refusal(
        m.ExchangeDelete(exchange="{}-bound", if_unused=True), NOT_EQUAL, "exchange '{}-bound' in vhost '/' in use"
    ),
    Refusal(
        m.QueueBind(queue="{}", exchange="amq.topic", routing_key="#.a.#.#"),
        NOT_EQUAL,
        "Topic binding key '#.a.#.#' uses 3 '#' wildcards, at most 2 are allowed",
    ),
    Refusal(
        m.QueueBind(queue="{}", exchange="amq.headers", arguments={"x-match": long_string("some")}),
        NOT_EQUAL,
        "Invalid x-match field value",
    ),
    Refusal(
        m.QueueBind(queue="{}", exchange="amq.match", arguments={"x-match": long(5)}),
        NOT_EQUAL,
        "Invalid x-match field",
    ),
    Refusal(m.QueueBind(queue="{}", exchange="{}-new"), NONE),
    Refusal(m.ExchangeBind(destination="{}-new", source="amq.topic"), NONE),
    Refusal(m.ExchangeBind(destination="amq.fanout", source="{}-new"), NONE),
    Refusal(m.ExchangeBind(destination="", source="amq.topic"), REFUSED),
    Refusal(m.ExchangeBind(destination="amq.topic", source=""), REFUSED),
    Refusal(m.ExchangeUnbind(destination="", source="amq.topic"), REFUSED),
    Refusal(
        m.BasicPublish(exchange="{}-internal"),
        REFUSED,
        "cannot publish to internal exchange '{}-internal' in vhost '/'",
    ),
    Refusal(m.BasicPublish(exchange="{}-new"), NONE),
]
"""Where there are a stream `{}`, an exchange `{}-bound` that it is bound to, a topic exchange `{}-alternated` with the
alternate exchange amq.fanout, and an internal exchange `{}-internal`."""
