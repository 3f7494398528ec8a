"""What each error of the broker is called in each protocol, in its table and on the wire; every class is in here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from headgate import errors as e
from headgate.broker.catalogue import Catalogue
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.codes import CHANNEL_CODES, ERROR_CODES, ReplyCode, reply_code
from headgate.protocols.amqp10.codes import CONDITIONS, STATUSES, Condition, SaslCode, condition_of, status_of
from headgate.protocols.stomp.codes import ERROR_MESSAGES, error_message
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codes import RESPONSE_CODES, ResponseCode, response_code
from server.amqp091_client import Client as Client091
from server.amqp10_client import Management, client_of
from server.garbage import answer, opened, stomp_corpus
from server.running import RunningServer, running_server
from stream_peer import StreamPeer


class Row(NamedTuple):
    """What an error is in AMQP 1.0 (on a link, in a management response), AMQP 0.9.1, STOMP, the stream protocol."""

    condition: str
    status: int
    reply: int | None
    message: str | None
    response: int


_REFUSED_FILTER = Row("amqp:invalid-field", 400, 406, "precondition_failed", 0x11)
_BROKEN_FILE = Row("amqp:internal-error", 500, 406, "internal_error", 0x0F)
ROWS: Mapping[type[e.HeadgateError], Row] = {
    e.FilterError: _REFUSED_FILTER,
    e.FilterSyntaxError: _REFUSED_FILTER,
    e.FilterTypeError: _REFUSED_FILTER,
    e.FilterLimitError: _REFUSED_FILTER,
    # AMQP 0.9.1 and STOMP have none of the two: what they publish is converted, what they say has no addresses.
    e.MessageError: Row("amqp:decode-error", 400, None, None, 0x11),
    e.ConfigError: Row("amqp:invalid-field", 400, None, None, 0x11),
    e.LogError: _BROKEN_FILE,
    e.CorruptChunkError: _BROKEN_FILE,
    e.RemoteStorageError: _BROKEN_FILE,
    e.StreamNotFoundError: Row("amqp:not-found", 404, 404, "not_found", 0x02),
    e.StreamReplacedError: Row("amqp:not-found", 404, 404, "not_found", 0x02),
    e.StreamExistsError: Row("amqp:precondition-failed", 409, 406, "precondition_failed", 0x05),
    e.OffsetOutOfRangeError: Row("amqp:precondition-failed", 400, 406, "precondition_failed", 0x13),
    e.MessageGivenUpError: Row("amqp:precondition-failed", 400, 406, "precondition_failed", 0x13),
    e.StreamLockedError: Row("amqp:resource-locked", 409, 405, "resource_locked", 0x06),
    e.StreamReadOnlyError: Row("amqp:not-allowed", 403, 403, "access_refused", 0x10),
    e.StorageFullError: Row("amqp:resource-limit-exceeded", 500, 506, "resource_error", 0x0F),
    e.StreamFullError: Row("amqp:resource-limit-exceeded", 500, 406, "resource_error", 0x11),
    e.BrokerError: Row("amqp:precondition-failed", 500, 541, "internal_error", 0x0F),
    e.ResourceNotFoundError: Row("amqp:not-found", 404, 404, "not_found", 0x02),
    e.ResourceExistsError: Row("amqp:precondition-failed", 409, 406, "precondition_failed", 0x11),
    e.PreconditionFailedError: Row("amqp:precondition-failed", 400, 406, "precondition_failed", 0x11),
    e.UnsuitableArgumentError: Row("amqp:precondition-failed", 409, 406, "precondition_failed", 0x11),
    e.ReservedNameError: Row("amqp:precondition-failed", 403, 403, "access_refused", 0x11),
    e.SessionLockedError: Row("amqp:precondition-failed", 400, 406, "precondition_failed", 0x11),
    e.SessionLockLostError: Row("amqp:precondition-failed", 400, 406, "precondition_failed", 0x11),
    e.EntityDisabledError: Row("amqp:precondition-failed", 400, 406, "precondition_failed", 0x11),
    e.AccessRefusedError: Row("amqp:unauthorized-access", 403, 403, "access_refused", 0x10),
    e.AuthenticationError: Row("amqp:unauthorized-access", 403, 403, "Bad CONNECT", 0x08),
    e.LoopbackOnlyError: Row("amqp:unauthorized-access", 403, 403, "Bad CONNECT", 0x0B),
    e.UnsupportedError: Row("amqp:not-implemented", 400, 540, "not_implemented", 0x11),
    e.LimitExceededError: Row("amqp:resource-limit-exceeded", 400, 506, "resource_error", 0x11),
}
NOT_MET: Mapping[type[e.HeadgateError], str] = {
    e.HeadgateError: "only classes below it are raised",
    e.FilterConversionError: "the server converts no filters",
    e.CorruptSidecarError: "readers go on without the match index",
    e.RuleError: "the broker has no topics",
    e.RuleNotFoundError: "the broker has no topics",
    e.TargetNotFoundError: "the broker has no topics",
    e.RuleExistsError: "the broker has no topics",
    e.RuleLimitError: "the broker has no topics",
    e.ConnectionLostError: "of our client",
    e.ProtocolError: "only the two below it are raised",
    e.LocalProtocolError: "an error in our own code: the connection ends",
    e.RemoteProtocolError: "brings its own code",
    e.DataError: "of the command line",
    e.EncryptionError: "of our client",
    e.SparkSetupError: "of pipelines",
    e.QueryRunningError: "of pipelines",
    e.SinkError: "of pipelines",
    e.MismatchError: "of reads in Spark",
    e.PipelineError: "of pipelines",
}

STANDARD_CONDITIONS = {
    *("internal-error", "not-found", "unauthorized-access", "decode-error", "resource-limit-exceeded", "not-allowed"),
    *("invalid-field", "not-implemented", "resource-locked", "precondition-failed", "resource-deleted"),
    *("illegal-state", "frame-size-too-small"),
    *("connection:forced", "connection:framing-error", "connection:redirect"),
    *("session:window-violation", "session:errant-link", "session:handle-in-use", "session:unattached-handle"),
    *("link:detach-forced", "link:transfer-limit-exceeded", "link:message-size-exceeded", "link:redirect"),
    "link:stolen",
}
"""AMQP 1.0 part 2, sections 2.8.15 to 2.8.18, without `amqp:`."""
STANDARD_REPLIES = {
    200: "REPLY_SUCCESS",
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    313: "NO_CONSUMERS",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}
"""AMQP 0-9-1, section 1.2."""
STATUSES_OF_RABBITMQ = {400, 403, 404, 409, 500}
NAMES_OF_STOMP = {
    *("not_found", "precondition_failed", "access_refused", "not_implemented", "resource_error", "resource_locked"),
    *("internal_error", "Bad CONNECT", "Invalid frame"),
}
"""RabbitMQ writes the names of AMQP 0.9.1's codes in small letters, and words of its own."""


def all_errors() -> list[type[e.HeadgateError]]:
    return [kind for _, kind in inspect.getmembers(e, inspect.isclass) if issubclass(kind, e.HeadgateError)]


def an_error(kind: type[e.HeadgateError]) -> e.HeadgateError:
    make: Any = kind
    if issubclass(kind, e.FilterError):
        return make("no", dialect="amqp", text="a =")  # type: ignore[no-any-return]
    if issubclass(kind, e.LogError):
        return make("no", path="somewhere")  # type: ignore[no-any-return]
    if issubclass(kind, e.MessageError):
        return make("no", position=0)  # type: ignore[no-any-return]
    return make("no")  # type: ignore[no-any-return]


def test_every_error_has_a_row_or_a_reason_why_no_client_is_told_of_it() -> None:
    assert set(all_errors()) == {*ROWS, *NOT_MET} and not {*ROWS} & {*NOT_MET}


@pytest.mark.parametrize("kind", list(ROWS))
def test_the_tables_say_what_the_row_says(kind: type[e.HeadgateError]) -> None:
    row, error = ROWS[kind], an_error(kind)
    columns: tuple[tuple[Mapping[Any, object], object, Callable[[e.HeadgateError], object]], ...] = (
        (CONDITIONS, row.condition, condition_of),
        (STATUSES, row.status, status_of),
        (ERROR_CODES, row.reply, reply_code),
        (ERROR_MESSAGES, row.message, error_message),
        (RESPONSE_CODES, row.response, response_code),
    )
    for table, expected, looked_up in columns:
        # An entry for every error there is would hide one that was forgotten.
        named = any(base in table for base in kind.__mro__ if base is not e.HeadgateError)
        assert named is (expected is not None), looked_up.__name__
        assert expected is None or looked_up(error) == expected, looked_up.__name__


def test_codes_are_those_of_the_standards_and_of_rabbitmq() -> None:
    assert {condition.removeprefix("amqp:") for condition in Condition} <= STANDARD_CONDITIONS
    assert all(condition.startswith("amqp:") for condition in Condition)
    assert set(CONDITIONS.values()) <= set(Condition)
    assert {code.value: code.name for code in SaslCode} == dict(
        enumerate(("OK", "AUTH", "SYS", "SYS_PERM", "SYS_TEMP"))
    )
    assert set(STATUSES.values()) <= STATUSES_OF_RABBITMQ
    assert {code.value: code.name for code in ReplyCode} == STANDARD_REPLIES
    assert {code.value for code in CHANNEL_CODES} == {311, 312, 313, 403, 404, 405, 406}
    assert set(ERROR_CODES.values()) <= set(ReplyCode)
    assert set(ERROR_MESSAGES.values()) <= NAMES_OF_STOMP
    assert [code.value for code in ResponseCode] == list(range(1, 0x16))
    assert ResponseCode.OK not in RESPONSE_CODES.values()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("codes"), stream=[{"name": "orders"}]) as running:
        yield running


@pytest.mark.parametrize("kind", [kind for kind in ROWS if issubclass(kind, e.BrokerError | e.LogError)])
def test_clients_are_told_what_the_row_says(
    running: RunningServer, kind: type[e.HeadgateError], monkeypatch: pytest.MonkeyPatch
) -> None:
    row, failed = ROWS[kind], running.context.connections.totals.failed
    corpus = stomp_corpus(0)
    with ExitStack() as stack:
        peer = stack.enter_context(StreamPeer(running.ports["stream"]))
        client091 = stack.enter_context(Client091(running.ports["amqp"])).open(1)
        client10 = stack.enter_context(client_of(running.ports["amqp"]))
        management = Management(client10)
        stomp = stack.enter_context(opened(running.ports["stomp"], corpus)[0])

        def refuse(catalogue: Catalogue, name: str) -> None:
            raise an_error(kind)

        monkeypatch.setattr(Catalogue, "get", refuse)
        assert peer.code(f.QueryPublisherSequence("reference", "orders")) == row.response
        closed_on = 1 if row.reply in CHANNEL_CODES else 0
        client091.say(1, m.QueueDeclare(queue="orders", passive=True))
        closed = client091.next(closed_on)
        assert isinstance(closed, m.ChannelClose if closed_on else m.ConnectionClose) and closed.reply_code == row.reply
        assert management.request("GET", "/queues/orders")[0] == row.status
        link = client10.receiver("/queues/orders")
        assert client10.detached(link)[0] == row.condition
        said = answer(stomp, b"SUBSCRIBE\nid:x\ndestination:/amq/queue/orders\nack:client\nprefetch-count:1\n\n\0")
        assert f"\nmessage:{row.message}\n".encode() in said
    assert running.context.connections.totals.failed == failed
