"""Options that several commands share."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter

from headgate.errors import BrokerError, ConfigError, RuleError

if TYPE_CHECKING:
    from headgate.log import OffsetSpecification, Stream

DEFAULT_ROOT = Path("headgate-data")

Root: TypeAlias = Annotated[
    Path, Parameter(name="--root", env_var="HEADGATE_ROOT", help="Folder that holds the streams.")
]
AsJson: TypeAlias = Annotated[bool, Parameter(name="--json", negative=(), help="Write JSON lines.")]
StreamText: TypeAlias = Annotated[str, Parameter(help="Name of a stream under --root, or the folder of any stream.")]
TopicName: TypeAlias = Annotated[str, Parameter(help="Name of the topic.")]
GroupName: TypeAlias = Annotated[str, Parameter(help="Name of the consumer group.")]
SubscriptionName: TypeAlias = Annotated[str, Parameter(help="Name of the subscription.")]
RuleName: TypeAlias = Annotated[str, Parameter(help="Name of the rule.")]
LockTimeout: TypeAlias = Annotated[float, Parameter(help="Seconds to wait for another writer.")]
Dialect: TypeAlias = Annotated[
    str | None, Parameter(name="--dialect", help="Language of the filter; the default is `amqp`.")
]
FilterText: TypeAlias = Annotated[str, Parameter(name="--filter", help="The filter.", allow_leading_hyphen=True)]
IsTags: TypeAlias = Annotated[bool, Parameter(negative=(), help="The filter is a tag expression of RocketMQ.")]
Start: TypeAlias = Annotated[
    str, Parameter(name="--from", help="first, last, next, an offset, an interval (10m) or an ISO time.")
]
Until: TypeAlias = Annotated[str | None, Parameter(help="Where to stop, exclusive, in the same forms.")]
Master: TypeAlias = Annotated[str | None, Parameter(help="Spark master; by default `local[*]` in this process.")]
SegmentSize: TypeAlias = Annotated[str | None, Parameter(help="Size at which a new segment begins, such as 500MB.")]
FilterValues: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--filter-value",
        negative=(),
        help="Wanted filter value (stage 1): chunks without it are skipped. Repeatable.",
    ),
]
Parameters: TypeAlias = Annotated[
    list[str] | None,
    Parameter(name="--parameter", negative=(), help="Value of @NAME as NAME=JSON. Repeatable."),
]
MatchUnfiltered: TypeAlias = Annotated[
    bool,
    Parameter(negative=(), help="With --filter-value: also read chunks with messages that have no filter value."),
]


def named_streams(texts: Iterable[str], root: Path) -> list[Stream]:
    """The streams of these names or folders; without any, all under the root. Raises LogError and its kinds."""
    from headgate.log import check_root, list_streams, resolve_stream

    found = [resolve_stream(text, root) for text in texts]
    if found:
        return found
    check_root(root)
    return list_streams(root)


def places_of(start: str, until: str | None, *, now_ms: int) -> tuple[OffsetSpecification, OffsetSpecification | None]:
    """The places of `--from` and `--until`. Raises ConfigError, also where the first is known to lie behind the other.

    With `10m` and `1h` it does, because these are times; an offset and a time are compared when the stream is read.
    """
    begin = _place("--from", start)
    if until is None:
        return begin, None
    end = _place("--until", until)
    if begin.is_after(end, now_ms=now_ms):
        raise ConfigError(f"--from: found {start}, which lies behind --until {until}")
    return begin, end


def _place(option: str, text: str) -> OffsetSpecification:
    from headgate.log import OffsetSpecification

    with naming_option(option):
        return OffsetSpecification.parse(text)


@contextlib.contextmanager
def naming_option(option: str, *, advice: str = "") -> Iterator[None]:
    """Put the name of an option in front of the ConfigError of a block, and `advice` behind it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}{advice}") from error


@contextlib.contextmanager
def naming_settings(options: Mapping[str, str]) -> Iterator[None]:
    """Put the name of an option in front of an error of a block, if the error says that a setting is out of range.

    `options` has the name of the option for each setting, here and at a server. Where a setting lacks another one, the
    error has the names of both options in their place. Raises ConfigError.
    """
    try:
        yield
    except (ConfigError, RuleError, BrokerError) as error:
        if " is given without " in str(error):
            names = re.compile(rf"\b(?:{'|'.join(options)})\b")
            raise ConfigError(names.sub(lambda found: options[found[0]], str(error))) from error
        for setting, option in options.items():
            if re.search(rf"(?:^|: |of ){setting}(?:\[\d+\])?:? (?:is|has) ", str(error)):
                raise ConfigError(f"{option}: {error}") from error
        raise


def chosen(dialect: str | None) -> str:
    """The given dialect, also an empty name, which is refused."""
    from headgate.language import DEFAULT_DIALECT

    return DEFAULT_DIALECT if dialect is None else dialect


def secret_line(what: str) -> str:
    """The first line of standard input, which holds a secret. If empty, raises ConfigError that names `what`."""
    line = sys.stdin.readline()
    given = (line.decode() if isinstance(line, bytes) else line).rstrip("\r\n")
    if not given:
        raise ConfigError(f"found no {what}: write it as the first line of standard input")
    return given


def json_of(text: str, option: str) -> Any:
    """The value of a JSON text. Raises ConfigError that names the option."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{option}: {error}") from error


def parameters_of(given: Iterable[str] | None) -> dict[str, Any] | None:
    """The values of `--parameter NAME=JSON` by name, plain or typed JSON; None without one. Raises ConfigError."""
    if not given:
        return None
    values: dict[str, Any] = {}
    for name, value in map(_parameter, given):
        if name in values:
            raise ConfigError(f"--parameter {name}: given twice")
        values[name] = value
    return values


def _parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ConfigError(f"--parameter: found {text!r}, expected NAME=JSON")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise ConfigError(f"--parameter {name}: {error}; a text stands in double quotes") from error
