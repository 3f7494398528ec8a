"""The arguments of a stream's declaration: their allowed values, and their meaning for the log.

Names are without `x-`, so that AMQP (`x-max-age`) and the stream protocol (`max-age`) mean the same. Sources:
rabbitmq_filters.md section 7, stream_protocol.md section 4, amqp10_rabbit.md section 3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from headgate.errors import ConfigError, PreconditionFailedError, UnsuitableArgumentError
from headgate.log import MAX_INITIAL_OFFSET, StreamArguments, StreamSettings
from headgate.message import parse_field

FILTER_SIZE = "stream-filter-size-bytes"
SEGMENT_SIZE = "stream-max-segment-size-bytes"
MAX_LENGTH = "max-length-bytes"
MAX_AGE = "max-age"
CLUSTER_SIZE = "initial-cluster-size"
LEADER_LOCATOR = "queue-leader-locator"
QUEUE_TYPE = "queue-type"
INITIAL_OFFSET = "stream-initial-offset"
"""The offset of the first message; RabbitMQ has it from 4.4 on."""
FILTER_SOURCE = "headgate-filter-source"
"""Our own: the message field that filter values come from."""
COLUMNS = "headgate-columns"
"""Our own: the columns of the stream's column files."""
DROP_SETTLED = "headgate-drop-settled"
"""Our own: delete segments that no subscription needs any more."""
MAX_SEGMENT_AGE = "headgate-max-segment-age"
"""Our own: the age of its first chunk at which a segment is sealed when the next message comes."""

REMOTE = "headgate-remote"
"""Our own: the place in object storage that sealed segments move to; no client gives it (`check_places_nothing`)."""
REMOTE_AFTER = "headgate-remote-after"
"""Our own: the age of a sealed segment at which it moves."""
LOCAL_BYTES = "headgate-local-bytes"
"""Our own: bytes of moved segments that stay in the stream's folder as well."""
BODY_SCHEMA = "headgate-body-schema"
"""No argument, since a schema is longer than arguments may be: refused with the way that there is."""
OF_REMOTE = (REMOTE, REMOTE_AFTER, LOCAL_BYTES)

REFUSED = frozenset({BODY_SCHEMA, *OF_REMOTE})
"""Arguments of ours that no client gives."""

_NUMBERS = {
    FILTER_SIZE: (16, 255),
    SEGMENT_SIZE: (0, 3_000_000_000),
    MAX_LENGTH: (0, 2**63 - 1),
    CLUSTER_SIZE: (1, 2**31 - 1),
    INITIAL_OFFSET: (0, MAX_INITIAL_OFFSET),
    LOCAL_BYTES: (0, 2**63 - 1),
}
OF_STREAMS = frozenset({*_NUMBERS, MAX_AGE, LEADER_LOCATOR, FILTER_SOURCE, COLUMNS, DROP_SETTLED, MAX_SEGMENT_AGE}) - {
    LOCAL_BYTES
}
"""Arguments with a meaning for a stream; two declarations are equal if these are."""

_LOCATORS = ("client-local", "balanced", "least-leaders", "random")
_AGE = re.compile(r"([0-9]+)([YMDhms])")
_AGE_UNIT_S = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3600, "m": 60, "s": 1}
_MAX_AGE_MS = 2**63 - 1

OF_OTHER_QUEUES = frozenset(
    {
        "consumer-timeout",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "dead-letter-strategy",
        "delivery-limit",
        "expires",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-priority",
        "message-ttl",
        "overflow",
        "queue-master-locator",
        "queue-mode",
        "queue-version",
        "quorum-initial-group-size",
        "single-active-consumer",
    }
)
"""Arguments of RabbitMQ's other types of queues, refused for a stream."""


def check_arguments(
    arguments: Mapping[str, object], *, stream: str, numbers_as_text: bool
) -> tuple[dict[str, object], StreamArguments, str | None]:
    """A declaration in one form (numbers as int, without `queue-type`), its meaning, and the filter source.

    Unknown arguments are kept. `numbers_as_text`: the protocol can send numbers only as text. Raises
    UnsuitableArgumentError for an argument of another type of queue, PreconditionFailedError for a wrong value.
    """
    declared: dict[str, object] = {}
    given_remote = arguments.get(REMOTE, "")
    if not isinstance(given_remote, str):
        raise _wrong(REMOTE, given_remote, "a URI such as s3://bucket/prefix", stream)
    for name, value in arguments.items():
        if name == QUEUE_TYPE:
            if value != "stream":
                raise PreconditionFailedError(f"x-queue-type is {value!r}; only streams are served", subject=stream)
        elif name in OF_OTHER_QUEUES:
            raise UnsuitableArgumentError(f"x-{name} is an argument of other queues, not of streams", subject=stream)
        elif name == BODY_SCHEMA:
            raise PreconditionFailedError(
                f"x-{BODY_SCHEMA}: a schema is too long for an argument; make the stream by headgate stream create "
                "--server … --body-schema FILE, or over HTTP by PUT /api/streams/NAME?only=new",
                subject=stream,
            )
        elif name in _NUMBERS:
            declared[name] = _number(name, value, stream, as_text=numbers_as_text)
        elif name == DROP_SETTLED:
            declared[name] = _truth(name, value, stream, as_text=numbers_as_text)
        else:
            declared[name] = value
    locator = declared.get(LEADER_LOCATOR)
    if locator is not None and locator not in _LOCATORS:
        raise _wrong(LEADER_LOCATOR, locator, f"one of {', '.join(_LOCATORS)}", stream)
    _check_storable(declared, stream)
    _check_columns(declared, stream)
    return declared, _meaning(declared, stream), _filter_source(declared, stream)


def check_places_nothing(arguments: Mapping[str, object], *, stream: str) -> None:
    """Raise PreconditionFailedError if a client says where in object storage its stream is to lie.

    The server writes there with its own rights, so its configuration says it, or an administrator.
    """
    placing = next((name for name in OF_REMOTE if name in arguments), None)
    if placing is not None:
        raise PreconditionFailedError(
            f"x-{placing} is not for clients: the configuration of the server gives it ([storage] remote), or an "
            "administrator by headgate stream change",
            subject=stream,
        )


def arguments_of(settings: StreamSettings) -> dict[str, object]:
    """The declaration of a stream, and where its sealed segments go.

    For a stream made without the broker, a declaration of its settings.
    """
    return {**_declaration_of(settings), **_remote_of(settings.arguments)}


def _remote_of(stored: StreamArguments) -> dict[str, object]:
    if stored.remote is None:
        return {}
    arguments: dict[str, object] = {REMOTE: stored.remote}
    if stored.remote_after_ms:
        arguments[REMOTE_AFTER] = f"{max(1, stored.remote_after_ms // 1000)}s"
    if stored.local_bytes:
        arguments[LOCAL_BYTES] = stored.local_bytes
    return arguments


def _declaration_of(settings: StreamSettings) -> dict[str, object]:
    if settings.declaration is not None:
        return dict(settings.declaration)
    stored, default = settings.arguments, StreamArguments()
    arguments: dict[str, object] = {}
    if settings.filter_source is not None:
        arguments[FILTER_SOURCE] = settings.filter_source
    if stored.drops_settled:
        arguments[DROP_SETTLED] = True
    if stored.max_age_ms is not None:
        arguments[MAX_AGE] = f"{max(1, stored.max_age_ms // 1000)}s"
    if stored.max_segment_age_ms is not None:
        arguments[MAX_SEGMENT_AGE] = f"{max(1, stored.max_segment_age_ms // 1000)}s"
    for name, field in (
        (MAX_LENGTH, "max_length_bytes"),
        (SEGMENT_SIZE, "max_segment_size_bytes"),
        (FILTER_SIZE, "filter_size_bytes"),
        (INITIAL_OFFSET, "initial_offset"),
    ):
        value = getattr(stored, field)
        if value != getattr(default, field):
            arguments[name] = value
    return arguments


CHANGEABLE = (MAX_LENGTH, MAX_AGE, SEGMENT_SIZE, MAX_SEGMENT_AGE, DROP_SETTLED, *OF_REMOTE)
"""Arguments that may be changed for an existing stream; its messages were written with the others."""


def changed_arguments(
    settings: StreamSettings, changes: Mapping[str, object], *, numbers_as_text: bool = False
) -> tuple[dict[str, object], StreamArguments]:
    """The declaration of a stream with other values for some arguments (None: without them), and its meaning.

    Raises PreconditionFailedError for a wrong value, and for an argument that cannot be changed.
    """
    fixed = sorted(changes.keys() - set(CHANGEABLE))
    if fixed:
        allowed = ", ".join(f"x-{name}" for name in CHANGEABLE)
        reason = f"x-{fixed[0]} cannot be changed after the stream was made; these can: {allowed}"
        raise PreconditionFailedError(reason, subject=settings.name)
    wanted = {name: value for name, value in {**arguments_of(settings), **changes}.items() if value is not None}
    declaration, meaning, _ = check_arguments(wanted, stream=settings.name, numbers_as_text=numbers_as_text)
    declaration = {name: value for name, value in declaration.items() if name not in OF_REMOTE}
    # Settings without an argument stay.
    return declaration, msgspec.structs.replace(
        meaning,
        filter_size_bytes=settings.arguments.filter_size_bytes,
        max_segment_chunks=settings.arguments.max_segment_chunks,
        initial_offset=settings.arguments.initial_offset,
        body_schema=settings.arguments.body_schema,
    )


def different_arguments(existing: Mapping[str, object], declared: Mapping[str, object]) -> list[str]:
    """Names of the arguments that differ between two declarations, in order; ages are compared by their length.

    Unknown arguments do not count, as in RabbitMQ.
    """

    def meant(arguments: Mapping[str, object], name: str) -> object:
        value = arguments.get(name)
        return _age_ms(name, value, "") if name in (MAX_AGE, MAX_SEGMENT_AGE) and value is not None else value

    return sorted(name for name in OF_STREAMS if meant(existing, name) != meant(declared, name))


def _filter_source(declared: Mapping[str, object], stream: str) -> str | None:
    source = declared.get(FILTER_SOURCE)
    if source is None:
        return None
    if not isinstance(source, str):
        raise _wrong(FILTER_SOURCE, source, "a field such as application_properties.region", stream)
    try:
        parse_field(source)
    except ConfigError as error:
        raise _wrong(FILTER_SOURCE, source, f"a field: {error}", stream) from error
    return source


def _check_columns(declared: Mapping[str, object], stream: str) -> None:
    columns = declared.get(COLUMNS)
    if columns is None:
        return
    # Imported here: it imports pyarrow.
    from headgate.derived.columns import extended

    try:
        if not isinstance(columns, str):
            raise ConfigError("no text")
        extended(None, columns)
    except ConfigError as error:
        raise _wrong(COLUMNS, columns, f"columns such as 'region string, p.subject': {error}", stream) from error


def _meaning(declared: Mapping[str, object], stream: str) -> StreamArguments:
    default = StreamArguments()

    def number(name: str, otherwise: int) -> int:
        value = declared.get(name)
        return value if isinstance(value, int) else otherwise

    def age_ms(name: str) -> int | None:
        return _age_ms(name, declared[name], stream) if name in declared else None

    # With limit 0 one segment is kept; a segment of size 0 holds one chunk.
    length = max(1, number(MAX_LENGTH, 1)) if MAX_LENGTH in declared else None
    meaning = StreamArguments(
        filter_size_bytes=number(FILTER_SIZE, default.filter_size_bytes),
        max_segment_size_bytes=max(1, number(SEGMENT_SIZE, default.max_segment_size_bytes)),
        max_length_bytes=length,
        max_age_ms=age_ms(MAX_AGE),
        max_segment_age_ms=age_ms(MAX_SEGMENT_AGE),
        drops_settled=declared.get(DROP_SETTLED) is True,
        initial_offset=number(INITIAL_OFFSET, default.initial_offset),
        remote=None if REMOTE not in declared else str(declared[REMOTE]),
        remote_after_ms=age_ms(REMOTE_AFTER) or 0,
        local_bytes=number(LOCAL_BYTES, default.local_bytes),
    )
    try:
        meaning.check()
    except ConfigError as error:
        raise PreconditionFailedError(str(error), subject=stream) from error
    return meaning


def _number(name: str, value: object, stream: str, *, as_text: bool) -> int:
    lowest, highest = _NUMBERS[name]
    number = value
    if as_text and isinstance(value, str) and re.fullmatch(r"[0-9]{1,19}", value):
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int) or not lowest <= number <= highest:
        raise _wrong(name, value, f"a number from {lowest} to {highest}", stream)
    return number


def _truth(name: str, value: object, stream: str, *, as_text: bool) -> bool:
    found = {"true": True, "false": False}.get(value) if as_text and isinstance(value, str) else value
    if not isinstance(found, bool):
        raise _wrong(name, value, "true or false", stream)
    return found


def _age_ms(name: str, value: object, stream: str) -> int:
    match = _AGE.fullmatch(value) if isinstance(value, str) else None
    age_ms = 0 if match is None else int(match[1][:20]) * _AGE_UNIT_S[match[2]] * 1000
    if not 0 < age_ms <= _MAX_AGE_MS:
        raise _wrong(name, value, "a number above 0 and one of the units Y M D h m s, such as 7D", stream)
    return age_ms


def _check_storable(declared: Mapping[str, object], stream: str) -> None:
    for name, value in declared.items():
        if not is_storable(name):
            raise PreconditionFailedError(f"the name of an argument is no UTF-8: {name!r}", subject=stream)
        if not is_storable(value):
            raise PreconditionFailedError(
                f"x-{name} is of a kind that is not kept ({type(value).__name__}); expected text, numbers, booleans, "
                "or lists and maps of them",
                subject=stream,
            )


def is_storable(value: object) -> bool:
    """Whether a value comes back as itself from a file in JSON."""
    if isinstance(value, bytes | bytearray | memoryview):
        return False
    try:
        return bool(msgspec.json.decode(msgspec.json.encode(value)) == value)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError, OverflowError):
        return False


def _wrong(name: str, value: object, expected: str, stream: str) -> PreconditionFailedError:
    return PreconditionFailedError(f"x-{name} is {value!r}; expected {expected}", subject=stream)
