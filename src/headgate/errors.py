"""All exceptions of Headgate, one tree.

    HeadgateError
    ├── FilterError            a filter that cannot be used: dialect, text, span, reason
    │   ├── FilterSyntaxError      the text does not fit the grammar of its dialect
    │   ├── FilterTypeError        it parses, but an operator is given what it cannot take
    │   ├── FilterLimitError       longer, deeper or more tokens than the dialect allows
    │   └── FilterConversionError  no filter of the other language is true for the same messages
    ├── MessageError           bytes that are no AMQP 1.0 message: position, reason
    ├── LogError               a stream on disk: path, position
    │   ├── StreamNotFoundError    no stream of that name or at that path, or none any more
    │   │   └── StreamReplacedError    it was deleted, and another one of its name is there
    │   ├── StreamExistsError      a stream of that name is there already
    │   ├── CorruptChunkError      chunk, index or file head that does not check
    │   ├── CorruptSidecarError    a match index, or postings, that do not check; readers pass over them
    │   ├── OffsetOutOfRangeError  the offset asked for was deleted by retention
    │   ├── StreamLockedError      another writer holds the stream; names the holder
    │   ├── StreamReadOnlyError    a foreign folder that was not adopted, or a file system that refuses writing
    │   ├── RemoteStorageError     object storage that does not answer, refuses, or gives too few bytes
    │   └── StorageFullError       the file system or the file-size limit refuses more bytes
    │       └── StreamFullError        as much waits to be settled in the stream as may; publishers are refused
    ├── RuleError              a topic, subscription or rule that is refused: names of all three, reason
    │   ├── RuleNotFoundError      no topic, subscription or rule of that name
    │   │   └── TargetNotFoundError    what a subscription is to forward to is not there
    │   ├── RuleExistsError        one of that name is there already
    │   └── RuleLimitError         more than the limits of the topic allow
    ├── BrokerError            a command to the broker that is refused: what it was about, reason
    │   ├── ResourceNotFoundError      no stream, exchange, super stream, publisher or user of that name
    │   ├── ResourceExistsError        it is there already, with other properties
    │   ├── PreconditionFailedError    an argument that is refused, or a state that does not allow it
    │   │   ├── UnsuitableArgumentError    an argument of other types of queues
    │   │   ├── ReservedNameError          a name that belongs to the broker
    │   │   └── EntityDisabledError        a topic or subscription whose status allows nobody to send, or to receive
    │   ├── AccessRefusedError         the user may not do that
    │   ├── AuthenticationError        no such user, a wrong password, or not from this address
    │   │   └── LoopbackOnlyError          a user that may come from this machine only
    │   ├── UnsupportedError           something that the original has and Headgate does not serve
    │   └── LimitExceededError         more connections, links, bytes … than the configuration allows
    ├── ConnectionLostError    no connection to a server, or it broke: the server, the reason
    │   └── EncryptionError        TLS is spoken on one side only, or nobody vouches for a certificate
    ├── ProtocolError          bytes or commands that a protocol does not allow: wire code, reason
    │   ├── LocalProtocolError         this side asked for what the state does not allow
    │   └── RemoteProtocolError        the peer sent it; `code` is what it is answered with
    ├── ConfigError            a wrong option, key or argument: names it, says what is expected
    ├── DataError              what was found in a file or a stream is not what it was taken for: names the place
    ├── SparkSetupError        Spark or its Java cannot be started: says what was found and both ways out
    ├── QueryRunningError      another process runs a query with the same checkpoint: which one
    ├── SinkError              a target outside of Headgate that does not take rows: what it says
    └── PipelineError          a pipeline that failed while it ran: the entry and the cause

Evaluating a filter over a message never raises any of them.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterable
from pathlib import Path


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """`; did you mean 'orders'?`: the names, at most three, that are like one that is not known; empty without one."""
    from difflib import get_close_matches

    by_lower = {name.lower(): name for name in known}
    near = [repr(by_lower[name]) for name in get_close_matches(found.lower(), by_lower)]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def how_to_install(extra: str) -> str:
    """The commands that bring an extra, with Headgate from a package index and in a checkout of it."""
    return f"pip install 'headgate[{extra}]', or in a checkout of Headgate pip install --editable '.[{extra}]'"


class HeadgateError(Exception):
    """Base of everything that Headgate raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # A task of Spark raises them in another process; `args` are not what the constructors below take.
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class FilterError(HeadgateError):
    """A filter that is refused when it is given; `str()` shows the text with a caret under the span.

    `dialect` is the language of the text, or two words that say what it is where it is no filter: `servicebus action`.
    """

    def __init__(self, reason: str, *, dialect: str, text: str, span: tuple[int, int] = (0, 0)) -> None:
        super().__init__(reason)
        self.reason = reason
        self.dialect = dialect
        self.text = text
        self.span = span

    @property
    def line(self) -> int:
        """The line where the span begins, from 1."""
        return self.text.count("\n", 0, self.span[0]) + 1

    @property
    def column(self) -> int:
        """Which character of its line the span begins with, from 1."""
        return self.span[0] - self.text.rfind("\n", 0, self.span[0])

    @property
    def token(self) -> str:
        """The text under the span; empty at the end of the filter."""
        return self.text[slice(*self.span)]

    def __str__(self) -> str:
        what = self.dialect if " " in self.dialect else f"{self.dialect} filter"
        return f"{what} refused: {self.reason}\n{caret_display(self.text, self.span)}"


def caret_display(text: str, span: tuple[int, int]) -> str:
    """The line of `text` that holds the start of `span`, with carets under the span; long lines are cut around it."""
    start, stop = span
    line_start = text.rfind("\n", 0, start) + 1
    line_stop = text.find("\n", start)
    if line_stop < 0:
        line_stop = len(text)
    cut = max(line_start, start - 60)
    line = text[cut : min(line_stop, cut + 120)]
    shown = "".join(character if character.isprintable() else "·" for character in line)
    prefix = "…" if cut > line_start else ""
    width = max(1, min(stop, cut + 120, max(line_stop, start + 1)) - start)
    return f"  {prefix}{shown}\n  {' ' * (len(prefix) + start - cut)}{'^' * width}"


class FilterSyntaxError(FilterError):
    """The text does not fit the grammar of its dialect."""


class FilterTypeError(FilterError):
    """The text parses, but a name or an operand is of the wrong kind for its place."""


class FilterLimitError(FilterError):
    """The filter is longer, deeper or has more tokens than the dialect allows."""


class FilterConversionError(FilterError):
    """No filter of the language it is to be converted to is true for the same messages."""


class MessageError(HeadgateError):
    """Bytes that are no AMQP 1.0 message; `position` counts from the start of the message."""

    def __init__(self, reason: str, *, position: int) -> None:
        super().__init__(reason, position)
        self.reason = reason
        self.position = position

    def __str__(self) -> str:
        return f"malformed AMQP 1.0 message at byte {self.position}: {self.reason}"


class MismatchError(HeadgateError):
    """An application property of another type than it is declared with; `reason` names it, its value and both types."""

    def __init__(self, reason: str, *, stream: str, offset: int) -> None:
        super().__init__(reason, stream, offset)
        self.reason = reason
        self.stream = stream
        self.offset = offset

    def __str__(self) -> str:
        return f"stream {self.stream}, offset {self.offset}: {self.reason}"


class LogError(HeadgateError):
    """Something about a stream on disk; `path` is the file or folder, `position` the byte in it where one is known.

    `advice` names the stream and says what to do, where whoever met the error knows.
    """

    advice = ""

    def __init__(self, reason: str, *, path: str | Path, position: int | None = None) -> None:
        super().__init__(reason, str(path), position)
        self.reason = reason
        self.path = Path(path)
        self.position = position

    def __str__(self) -> str:
        return f"{self.place}; {self.advice}" if self.advice else self.place

    @property
    def place(self) -> str:
        """The place of the damage, and the reason."""
        at = "" if self.position is None else f", byte {self.position}"
        return f"{self.path_text}{at}: {self.reason}"

    @property
    def path_text(self) -> str:
        """`path` as it was given: a URL has two slashes in a row, which a path does not keep."""
        return str(self.args[1])


class StreamNotFoundError(LogError):
    """No stream of that name or at that path, or none any more."""


class StreamReplacedError(StreamNotFoundError):
    """The stream meant was deleted, and another one of its name made since; the reason names both identities."""


class StreamExistsError(LogError):
    """A stream of that name is there already."""


class CorruptChunkError(LogError):
    """A chunk, an index record or a file head that does not check."""


class CorruptSidecarError(LogError):
    """A derived file, a match index or postings, that does not check; readers go on without it."""


class OffsetOutOfRangeError(LogError):
    """The offset asked for is not in the stream any more: retention deleted it."""


class MessageGivenUpError(OffsetOutOfRangeError):
    """The message asked for was damaged, and given up by an operator: its offset stays empty."""


class StreamLockedError(LogError):
    """Another writer holds the stream; the reason names the holder."""


class StreamReadOnlyError(LogError):
    """A foreign folder that was not adopted, or a file system that refuses writing."""


class RemoteStorageError(LogError):
    """Object storage that does not answer, refuses a request, or gives too few bytes; `path` is the object."""


class StorageFullError(LogError):
    """The file system, a quota or the file-size limit refuses more bytes; what was confirmed stays readable."""


class StreamFullError(StorageFullError):
    """As many bytes of the stream wait to be settled as may; publishers are refused until some are, others go on."""


class RuleError(HeadgateError):
    """A topic, a subscription or a rule that is refused; it leaves no trace.

    `topic`, `subscription` and `rule` are names, None where the error is about none; `cause` is the error of the filter
    or action, whose span is the place in the text.
    """

    def __init__(
        self,
        reason: str,
        *,
        topic: str | None = None,
        subscription: str | None = None,
        rule: str | None = None,
        cause: FilterError | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.topic = topic
        self.subscription = subscription
        self.rule = rule
        self.cause = cause

    def __str__(self) -> str:
        names = {"topic": self.topic, "subscription": self.subscription, "rule": self.rule}
        place = ", ".join(f"{kind} {name!r}" for kind, name in names.items() if name is not None)
        return f"{place}: {self.reason}" if place else self.reason


class RuleNotFoundError(RuleError):
    """No topic, subscription or rule of that name."""


class TargetNotFoundError(RuleNotFoundError):
    """The `target` to which a subscription is to forward does not exist."""

    def __init__(self, reason: str, *, topic: str, subscription: str, target: str) -> None:
        super().__init__(reason, topic=topic, subscription=subscription)
        self.target = target


class RuleExistsError(RuleError):
    """A topic, subscription or rule of that name is there already."""


class RuleLimitError(RuleError):
    """More subscriptions, filters or bytes than the limits of the topic allow, or a setting out of its range."""


class BrokerError(HeadgateError):
    """The broker refused a command, which then changed nothing. `subject` names the resource."""

    def __init__(self, reason: str, *, subject: str = "") -> None:
        super().__init__(reason, subject)
        self.reason = reason
        self.subject = subject

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}" if self.subject else self.reason


class ResourceNotFoundError(BrokerError):
    """No stream, exchange, super stream, publisher or user of that name."""


class ResourceExistsError(BrokerError):
    """The resource exists with other properties than the requested ones."""


class PreconditionFailedError(BrokerError):
    """An argument that is refused, or a state of the resource that does not allow the command."""


class SessionLockedError(PreconditionFailedError):
    """A session is with another receiver."""


class SessionLockLostError(PreconditionFailedError):
    """The lock of a session has ended."""


class UnsuitableArgumentError(PreconditionFailedError):
    """An argument that other types of queues take, and streams do not."""


class ReservedNameError(PreconditionFailedError):
    """A name that only the broker itself gives: empty, or beginning with `amq.`."""


class EntityDisabledError(PreconditionFailedError):
    """A topic or a subscription whose status allows nobody to send to it, or to receive from it, for now."""


class AccessRefusedError(BrokerError):
    """The user has no permission for it."""


class AuthenticationError(BrokerError):
    """An unknown user, a wrong password, or a user that may not connect from this address; the text holds no secret."""


class LoopbackOnlyError(AuthenticationError):
    """The user may come from this machine only."""


class UnsupportedError(BrokerError):
    """Something that the original system has and Headgate does not serve."""


class LimitExceededError(BrokerError):
    """More connections, links, messages or bytes than the configuration allows."""


class ConnectionLostError(HeadgateError):
    """No connection to a server, or it broke; `server` is its host and port. Trying again may help."""

    def __init__(self, reason: str, *, server: str) -> None:
        super().__init__(reason, server)
        self.reason = reason
        self.server = server

    def __str__(self) -> str:
        return f"{self.server}: {self.reason}"


class EncryptionError(ConnectionLostError):
    """TLS is spoken on one side only, or with a certificate that is not trusted; trying again does not help."""


class ProtocolError(HeadgateError):
    """Bytes or commands that a protocol does not allow.

    `code` is the number or the symbol that the protocol has for it, as the protocol's own table of codes gives it.
    """

    def __init__(self, reason: str, *, code: int | str = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class LocalProtocolError(ProtocolError):
    """This side asked for something that the state of the connection does not allow: an error in our own code."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol does not allow; it is answered with `code`."""


class ConfigError(HeadgateError):
    """A wrong option, key or argument; the message names it, says what was found and what is expected."""


class DataError(HeadgateError):
    """A correct command met a line, a row or a place that it cannot take; the message names it.

    The same command may succeed on other data; after a ConfigError it cannot.
    """


class SparkSetupError(HeadgateError):
    """Spark or its Java cannot be started here; the message says what was found and the ways out."""


class QueryRunningError(HeadgateError):
    """Another process runs a query with the same checkpoint; the message names the process."""


class SinkError(HeadgateError):
    """A database, a table or another target outside of Headgate that does not take rows."""


class PipelineError(HeadgateError):
    """A pipeline that failed while it ran; the message names each entry that failed, and the cause.

    `report` tells what the run did all the same (a `headgate.spark.pipeline.Report`); None where nothing had begun.
    """

    def __init__(self, message: str, *, report: object | None = None) -> None:
        super().__init__(message)
        self.report = report
