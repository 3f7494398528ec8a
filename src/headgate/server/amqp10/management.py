"""Management: requests over AMQP that declare, show and delete streams, exchanges and bindings.

A request is a message: `subject` is the method, `to` the path, the body one value. The response has a status as its
subject and the request's message id, in the same type, as its correlation id. Source: amqp10_rabbit, section 3.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from headgate.broker import Binding, Declared, QueueDepth, Session, StreamInfo
from headgate.broker.arguments import QUEUE_TYPE
from headgate.errors import (
    HeadgateError,
    PreconditionFailedError,
    ReservedNameError,
    ResourceNotFoundError,
    UnsupportedError,
)
from headgate.message import AmqpArray, AmqpType, AmqpValue, Body, Message, Section, amqp_value
from headgate.protocols.amqp10 import in_standard_order, status_of
from headgate.server.amqp10.addresses import decoded, encoded
from headgate.server.unsettled_copies import NOT_DELETED, check_subscription_declared, refused_queue

_MAP = AmqpType.MAP
_TEXTS = (AmqpType.STRING, AmqpType.SYMBOL)
_PREFIX = "x-"

Answer = tuple[int, object]
Later = Callable[[Callable[[Answer], None]], None]
"""Called with the answer when it is known."""


def respond(data: bytes, session: Session, later: Callable[[bytes], None], *, node: str) -> bytes | None:
    """The response to a request; None if `later` gets it. Raises MessageError for bytes that are not a message."""
    request = Message.decode(in_standard_order(data))
    properties = request.properties or {}

    def encoded(answer: Answer) -> bytes:
        status, body = answer
        return Message(
            Body.value(body),
            properties={"correlation-id": properties.get("message-id"), "subject": str(status)},
            application_properties={"http:response": "1.1"},
        ).encode()

    try:
        answer = _answer(request, properties, session, node)
        if not isinstance(answer, tuple):
            answer(lambda found: later(encoded(found)))
            return None
    except HeadgateError as error:
        answer = _error(error)
    return encoded(answer)


def _error(error: HeadgateError) -> Answer:
    return status_of(error), str(error)


def _answer(request: Message, properties: Mapping[str, AmqpValue], session: Session, node: str) -> Answer | Later:
    method, path = _text(properties, "subject"), _text(properties, "to")
    body = request.body
    if body is None or body.section is not Section.AMQP_VALUE:
        raise PreconditionFailedError("a request has a body of one value, null where there is nothing to say")
    given = body.values()[0]
    path, _, query = path.partition("?")
    match path.split("/"):
        case ["", "queues", name]:
            handler = _QUEUES.get(method)
            if handler is not None:
                return handler(session, decoded(name), given, node)
        case ["", "queues", name, "messages"] if method == "DELETE":
            return _purge(session, decoded(name))
        case ["", "exchanges", name]:
            handler = _EXCHANGES.get(method)
            if handler is not None:
                return handler(session, decoded(name), given, node)
        case ["", "bindings"] if method == "POST":
            return _bind(session, _map(given))
        case ["", "bindings"] if method == "GET":
            return _show_bindings(session, _query(query, "&"))
        case ["", "bindings", location] if method == "DELETE":
            return _unbind(session, _query(location, ";"))
        case ["", "auth", "tokens"] if method == "PUT":
            raise UnsupportedError("tokens are not served: users log in with a password or a certificate")
    raise PreconditionFailedError(f"no request {method!r} for the path {path!r}")


def _text(properties: Mapping[str, AmqpValue], name: str) -> str:
    value = properties.get(name)
    if value is None or value.type not in _TEXTS:
        raise PreconditionFailedError(f"a request has a string in {name}")
    text: str = value.value
    return text


def plain(value: AmqpValue) -> Any:
    """An argument as plain Python. Raises PreconditionFailedError for a type that arguments do not have."""
    if value.type is AmqpType.LIST:
        return [plain(member) for member in value.value]
    if value.type is _MAP:
        return {str(plain(key)): plain(member) for key, member in value.value}
    if isinstance(value.value, (str, int, float, bool)) or value.value is None:
        return value.value
    if value.type is AmqpType.ARRAY:
        return [plain(member) for member in value.value.elements]
    raise PreconditionFailedError(
        f"an argument of type {value.type.value}; expected text, numbers, booleans, lists, maps"
    )


def _map(value: AmqpValue) -> dict[str, AmqpValue]:
    if value.type is not _MAP:
        raise PreconditionFailedError(f"the body of this request is a map, found {value.type.value}")
    found: dict[str, AmqpValue] = {}
    for key, member in value.value:
        if key.type not in _TEXTS:
            raise PreconditionFailedError(f"keys of the body are strings, found {key.type.value}")
        found[key.value] = member
    return found


def _boolean(body: dict[str, AmqpValue], name: str, *, default: bool) -> bool:
    value = body.pop(name, None)
    if value is None or value.type is AmqpType.NULL:
        return default
    if value.type is not AmqpType.BOOLEAN:
        raise PreconditionFailedError(f"{name} is a boolean, found {value.type.value}")
    return bool(value.value)


def _string(body: dict[str, AmqpValue], name: str, *, default: str | None = None) -> str:
    value = body.pop(name, None)
    if value is None and default is not None:
        return default
    if value is None or value.type not in _TEXTS:
        raise PreconditionFailedError(f"{name} is a string and has to be there")
    return str(value.value)


def _arguments(body: dict[str, AmqpValue]) -> dict[str, Any]:
    value = body.pop("arguments", None)
    if value is None or value.type is AmqpType.NULL:
        return {}
    return {name: plain(member) for name, member in _map(value).items()}


def _nothing_left(body: Mapping[str, AmqpValue]) -> None:
    if body:
        raise PreconditionFailedError(f"unknown keys in the body: {', '.join(sorted(body))}")


def _declare_queue(session: Session, name: str, given: AmqpValue, node: str) -> Answer:
    body = _map(given)
    durable = _boolean(body, "durable", default=True)
    exclusive = _boolean(body, "exclusive", default=False)
    auto_delete = _boolean(body, "auto_delete", default=False)
    arguments = _arguments(body)
    _nothing_left(body)
    subscription = session.subscription_of(name)
    if subscription is not None:
        check_subscription_declared(name, arguments, durable=durable, exclusive=exclusive, auto_delete=auto_delete)
        return 200, _queue_map(session, name, node)
    if arguments.get(_PREFIX + QUEUE_TYPE) != "stream":
        raise PreconditionFailedError(refused_queue(session, name).reason, subject=name)
    if not durable or exclusive or auto_delete:
        raise PreconditionFailedError("a stream is durable, not exclusive, and not deleted by itself", subject=name)
    wanted = {}
    for key, value in arguments.items():
        if not key.startswith(_PREFIX):
            raise PreconditionFailedError(f"arguments begin with x-, found {key!r}", subject=name)
        wanted[key.removeprefix(_PREFIX)] = value
    declared = session.declare_stream(name, wanted, numbers_as_text=False)
    return 201 if declared is Declared.CREATED else 200, _queue_map(session, name, node)


def _queue_map(session: Session, name: str, node: str) -> dict[str, object]:
    info: StreamInfo | QueueDepth
    subscription = session.subscription_of(name)
    if subscription is None:
        kind, info = "stream", session.stream_info(name)
        name, more = info.name, {_PREFIX + key: value for key, value in info.arguments.items()}
    else:
        kind, info, more = "quorum", session.queue_depth(subscription), {}
    return {
        "name": name,
        "vhost": "/",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "type": kind,
        "arguments": {_PREFIX + QUEUE_TYPE: kind} | more,
        "leader": node,
        "replicas": AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.STRING, (amqp_value(node),))),
        "message_count": AmqpValue(AmqpType.ULONG, info.message_count),
        "consumer_count": AmqpValue(AmqpType.UINT, info.consumer_count),
    }


def _show_queue(session: Session, name: str, given: AmqpValue, node: str) -> Answer:
    return 200, _queue_map(session, name, node)


def _purge(session: Session, name: str) -> Later:
    subscription = session.subscription_of(name)
    if subscription is None:
        session.stream_info(name)
        raise UnsupportedError("purge not supported by streams", subject=name)

    return lambda answer: session.purge(subscription, lambda result: answer(_purged(result)))


def _purged(result: int | HeadgateError) -> Answer:
    if isinstance(result, HeadgateError):
        return _error(result)
    return 200, {"message_count": AmqpValue(AmqpType.ULONG, result)}


def _delete_queue(session: Session, name: str, given: AmqpValue, node: str) -> Answer:
    if session.subscription_of(name) is not None:
        raise PreconditionFailedError(NOT_DELETED, subject=name)
    try:
        messages = session.delete_stream(name)
    except ResourceNotFoundError:
        messages = 0
    return 200, {"message_count": AmqpValue(AmqpType.ULONG, messages)}


def _declare_exchange(session: Session, name: str, given: AmqpValue, node: str) -> Answer:
    body = _map(given)
    kind = _string(body, "type", default="direct")
    durable = _boolean(body, "durable", default=True)
    auto_delete = _boolean(body, "auto_delete", default=False)
    internal = _boolean(body, "internal", default=False)
    arguments = _arguments(body)
    if not name:
        raise ReservedNameError("the exchange without a name is not declared", subject=name)
    _nothing_left(body)
    session.declare_exchange(
        name, kind=kind, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments
    )
    return 204, None


def _delete_exchange(session: Session, name: str, given: AmqpValue, node: str) -> Answer:
    session.delete_exchange(name)
    return 204, None


def _bind(session: Session, body: dict[str, AmqpValue]) -> Answer:
    source = _string(body, "source")
    to_exchange = "destination_exchange" in body
    destination = _string(body, "destination_exchange" if to_exchange else "destination_queue")
    key = _string(body, "binding_key", default="")
    arguments = _arguments(body)
    _nothing_left(body)
    bind = session.bind_exchange if to_exchange else session.bind
    try:
        bind(source, destination, key, arguments)
    except ResourceNotFoundError as error:
        # 404 would speak of the binding.
        raise PreconditionFailedError(error.reason, subject=error.subject) from error
    return 204, None


def _query(text: str, separator: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(separator):
        name, equals, value = part.partition("=")
        if not equals:
            raise PreconditionFailedError(f"{part!r} in the path of a binding; expected name=value")
        found[name] = decoded(value)
    return found


def _show_bindings(session: Session, query: Mapping[str, str]) -> Answer:
    if "src" not in query or not ({"dstq", "dste"} & query.keys()):
        raise PreconditionFailedError("bindings are asked for by src and dstq (or dste), and perhaps key")
    found = session.bindings(query["src"], query.get("dstq", ""), query.get("key"), exchange=query.get("dste", ""))
    return 200, [
        {
            "source": binding.source,
            **({"destination_queue": binding.queue} if binding.queue else {"destination_exchange": binding.exchange}),
            "binding_key": binding.key,
            "arguments": binding.arguments,
            "location": _location(binding),
        }
        for binding in found
    ]


def _location(binding: Binding) -> str:
    kind = "dstq" if binding.queue else "dste"
    source, destination, key = (
        encoded(part) for part in (binding.source, binding.queue or binding.exchange, binding.key)
    )
    return f"/bindings/src={source};{kind}={destination};key={key};args={_digest(binding.arguments)}"


def _digest(arguments: Mapping[str, object]) -> str:
    """A text that tells bindings with equal ends and key apart; empty without arguments."""
    if not arguments:
        return ""
    return f"{zlib.crc32(msgspec.json.encode(arguments, order='deterministic')):08x}"


def _unbind(session: Session, parts: Mapping[str, str]) -> Answer:
    if not {"src", "key", "args"} <= parts.keys() or not {"dstq", "dste"} & parts.keys():
        raise PreconditionFailedError("a binding is named by src, dstq (or dste), key and args")
    queue, exchange = parts.get("dstq", ""), parts.get("dste", "")
    for binding in session.bindings(parts["src"], queue, parts["key"], exchange=exchange):
        if _digest(binding.arguments) == parts["args"]:
            unbind = session.unbind if binding.queue else session.unbind_exchange
            unbind(binding.source, binding.queue or binding.exchange, binding.key, binding.arguments)
    return 204, None


_Handler = Callable[[Session, str, AmqpValue, str], Answer]
_QUEUES: Mapping[str, _Handler] = {"PUT": _declare_queue, "GET": _show_queue, "DELETE": _delete_queue}
_EXCHANGES: Mapping[str, _Handler] = {"PUT": _declare_exchange, "DELETE": _delete_exchange}
