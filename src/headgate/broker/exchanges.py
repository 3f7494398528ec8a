"""Exchanges, their bindings to streams and to each other, and super streams, which are both. Kept in one file.

    <root>/.headgate/exchanges.json     every change replaces it by rename

The exchange without a name leads to the stream that the routing key names; it and `PREDECLARED` always exist. A super
stream is a durable direct exchange whose bindings give the order of partitions in `x-stream-partition-order`. Messages
are routed in `routing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from headgate.broker.arguments import is_storable
from headgate.broker.routing import (
    ALTERNATE,
    DEFAULT,
    EXCHANGE_KINDS,
    Binding,
    Exchange,
    Headers,
    Router,
    check_binding,
)
from headgate.errors import (
    LogError,
    PreconditionFailedError,
    ReservedNameError,
    ResourceExistsError,
    ResourceNotFoundError,
    UnsupportedError,
)
from headgate.log import decode_checked_if_noted, encode_checked, replace_file, storage_error

EXCHANGES_FORMAT = 2
_READABLE_FORMATS = (1, EXCHANGES_FORMAT)
"""Format 1 has direct exchanges, and bindings to streams."""

PARTITION_ORDER = "x-stream-partition-order"
SUPER_STREAM = "x-super-stream"
PREDECLARED: Mapping[str, Exchange] = {
    name: Exchange(name, kind)
    for name, kind in {
        DEFAULT: "direct",
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.headers": "headers",
        "amq.match": "headers",
        "amq.topic": "topic",
    }.items()
}
_OF_THE_ORIGINAL = ("x-local-random",)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    exchanges: list[Exchange]
    bindings: list[Binding]
    format: int = EXCHANGES_FORMAT


class Exchanges:
    """All exchanges and bindings of a root; it knows names of streams, not whether they exist."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises LogError for a wrong one."""
        self._path = path
        stored = self._load()
        self.changes = 0
        """Number of changes; results of before the last change are outdated."""
        self._set({**PREDECLARED, **{exchange.name: exchange for exchange in stored.exchanges}}, stored.bindings)

    # exchanges

    def get(self, name: str) -> Exchange:
        """One exchange; ResourceNotFoundError."""
        exchange = self._exchanges.get(name)
        if exchange is None:
            raise ResourceNotFoundError("no such exchange", subject=name)
        return exchange

    def __contains__(self, name: object) -> bool:
        """Whether there is an exchange of that name."""
        return name in self._exchanges

    def all(self) -> list[Exchange]:
        """Every exchange, by name."""
        return sorted(self._exchanges.values(), key=lambda exchange: exchange.name)

    def declare(self, wanted: Exchange) -> bool:
        """Make an exchange; False if an equal one exists: of the arguments only the alternate exchange counts.

        Raises ResourceExistsError for other properties, UnsupportedError for a kind that only RabbitMQ has,
        ReservedNameError, PreconditionFailedError.
        """
        if wanted.kind in _OF_THE_ORIGINAL:
            raise UnsupportedError(f"exchanges of type {wanted.kind!r} are not served", subject=wanted.name)
        if wanted.kind not in EXCHANGE_KINDS:
            raise PreconditionFailedError(f"unknown exchange type '{wanted.kind}'")
        existing = self._exchanges.get(wanted.name)
        if existing is not None:
            _check_equivalent(existing, wanted)
            return False
        _check_name(wanted.name)
        _check_text(wanted.name, "the name of an exchange")
        _check_arguments(wanted.arguments, wanted.name)
        if ALTERNATE in wanted.arguments and wanted.alternate is None:
            raise PreconditionFailedError(f"invalid type for arg '{ALTERNATE}' in {_shown(wanted.name)}")
        self._replace({**self._exchanges, wanted.name: wanted}, self._bindings.values())
        return True

    def delete(self, name: str, *, if_unused: bool) -> None:
        """Delete an exchange with its bindings, and auto-delete exchanges that lose their last binding by that.

        A missing exchange is no error. Raises ReservedNameError, PreconditionFailedError if it has bindings and must be
        unused.
        """
        _check_name(name)
        if name not in self._exchanges:
            return
        if if_unused and self.bindings(source=name):
            raise PreconditionFailedError(f"{_shown(name)} in use")
        self._remove((), {name})

    # bindings

    def bindings(
        self,
        *,
        source: str | None = None,
        queue: str | None = None,
        exchange: str | None = None,
        key: str | None = None,
    ) -> list[Binding]:
        """The bindings with these ends and key, in order of binding; None for any."""
        return [
            binding
            for binding in self._bindings.values()
            if source in (None, binding.source)
            and queue in (None, binding.queue)
            and exchange in (None, binding.exchange)
            and key in (None, binding.key)
        ]

    def bind(self, binding: Binding) -> None:
        """Add a binding; the same again changes nothing.

        Raises ResourceNotFoundError for the exchanges, ReservedNameError for the exchange without a name,
        PreconditionFailedError for a key or arguments that the exchange does not take or that cannot be kept.
        """
        source = self.get(binding.source)
        if binding.exchange:
            self.get(binding.exchange)
        _check_ends(binding)
        _check_text(binding.key, "a binding key")
        _check_arguments(binding.arguments, binding.source)
        check_binding(source.kind, binding)
        if _identity(binding) not in self._bindings:
            self._replace(self._exchanges, [*self._bindings.values(), binding])

    def unbind(self, binding: Binding) -> None:
        """Remove a binding, and with its last one an auto-delete exchange; a missing binding is no error.

        Raises ReservedNameError for the exchange without a name.
        """
        _check_ends(binding)
        ends = [binding.source, binding.queue, binding.exchange]
        if is_storable([*ends, binding.key, binding.arguments]):
            self._remove([binding])

    def forget_queue(self, queue: str) -> None:
        """A stream was deleted: delete its bindings."""
        self._remove(self.bindings(queue=queue))

    def route(self, exchange: str, key: str, headers: Headers = dict) -> Sequence[str]:
        """Names of the streams that a message goes to, each once; ResourceNotFoundError.

        `headers` is called for a message's headers if they matter.
        """
        self.get(exchange)
        return self._router.route(exchange, key, headers)

    def needs_headers(self, exchange: str) -> bool:
        """Whether the routes of an exchange depend on headers; False for a missing exchange."""
        return exchange in self._exchanges and self._router.needs_headers(exchange)

    # super streams

    def create_super_stream(self, name: str, partitions: Sequence[tuple[str, str]]) -> None:
        """Make exchange and bindings of a super stream, (partition, binding key) in order, in one change of the file.

        Raises ResourceExistsError, ReservedNameError, PreconditionFailedError for a key that cannot be kept.
        """
        if name in self._exchanges:
            raise ResourceExistsError("there is an exchange or a super stream of that name", subject=name)
        _check_name(name)
        for text in (name, *(key for _, key in partitions)):
            _check_text(text, "a name or a binding key")
        exchange = Exchange(name, arguments={SUPER_STREAM: True})
        self._replace({**self._exchanges, name: exchange}, [*self._bindings.values(), *_bound(name, partitions, 0)])

    def add_partitions(self, name: str, partitions: Sequence[tuple[str, str]]) -> None:
        """Add partitions of a super stream behind its last one. Raises ResourceNotFoundError."""
        added = _bound(name, partitions, len(self.partitions(name)))
        self._replace(self._exchanges, [*self._bindings.values(), *added])

    def is_super_stream(self, name: str) -> bool:
        """Whether the exchange of that name was made as a super stream."""
        exchange = self._exchanges.get(name)
        return exchange is not None and exchange.arguments.get(SUPER_STREAM) is True

    def super_streams(self) -> list[str]:
        """The names of exchanges made as super streams, in order."""
        return sorted(name for name in self._exchanges if self.is_super_stream(name))

    def partitions(self, name: str) -> list[str]:
        """The streams of a super stream, in order; ResourceNotFoundError."""
        if name == DEFAULT:
            raise ResourceNotFoundError("no such super stream", subject=name)
        self.get(name)
        ordered = sorted(self.bindings(source=name, exchange=""), key=_order)
        return list(dict.fromkeys(binding.queue for binding in ordered))

    # inside

    def partition_of(self, super_stream: str | None, stream: str) -> int | None:
        """The number of a stream among the partitions of a super stream; None if it is none of them."""
        if not super_stream or super_stream not in self:
            return None
        partitions = self.partitions(super_stream)
        return partitions.index(stream) if stream in partitions else None

    def _remove(self, bindings: Iterable[Binding], exchanges: Iterable[str] = ()) -> None:
        """Remove bindings and exchanges, and with them auto-delete exchanges and bindings that depend on them."""
        gone, deleted = {_identity(binding) for binding in bindings} & self._bindings.keys(), set(exchanges)
        if not gone and not deleted:
            return
        is_done = False
        while not is_done:
            gone |= {key for key, binding in self._bindings.items() if {binding.source, binding.exchange} & deleted}
            left = [binding for key, binding in self._bindings.items() if key not in gone]
            unbound = {self._bindings[key].source for key in gone} - {binding.source for binding in left} - deleted
            unused = {name for name in unbound if self._exchanges[name].auto_delete}
            deleted |= unused
            is_done = not unused
        self._replace({name: kept for name, kept in self._exchanges.items() if name not in deleted}, left)

    def _set(self, exchanges: Mapping[str, Exchange], bindings: Iterable[Binding]) -> None:
        self._exchanges = exchanges
        self._bindings = {_identity(binding): binding for binding in bindings}
        self._router = Router(exchanges, self._bindings.values())
        self.changes += 1

    def _load(self) -> _File:
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return _File([], [])
        try:
            stored = decode_checked_if_noted(raw, _File)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LogError(f"no file of exchanges: {error}", path=self._path) from error
        if stored.format not in _READABLE_FORMATS:
            raise LogError(f"exchanges of format {stored.format}, expected {EXCHANGES_FORMAT}", path=self._path)
        unknown = sorted({exchange.kind for exchange in stored.exchanges} - EXCHANGE_KINDS)
        if unknown:
            raise LogError(f"exchanges of unknown types: {', '.join(unknown)}", path=self._path)
        names = {exchange.name for exchange in stored.exchanges} | PREDECLARED.keys()
        missing = sorted({name for binding in stored.bindings for name in (binding.source, binding.exchange)} - names)
        if missing:
            raise LogError(f"bindings of exchanges that are not there: {', '.join(missing)}", path=self._path)
        return stored

    def _replace(self, exchanges: Mapping[str, Exchange], bindings: Iterable[Binding]) -> None:
        """Write durable exchanges and bindings, then use the new state; if writing fails, the old one stays."""
        bindings = list(bindings)
        durable = [exchange for exchange in exchanges.values() if exchange.durable and exchange.name not in PREDECLARED]
        names = {exchange.name for exchange in durable} | PREDECLARED.keys()
        kept = _File(durable, [binding for binding in bindings if {binding.source, binding.exchange} <= names])
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, self._path.parent) from error
        replace_file(self._path, encode_checked(kept))
        self._set(exchanges, bindings)


def _bound(name: str, partitions: Sequence[tuple[str, str]], first: int) -> list[Binding]:
    """The bindings of partitions with their keys, numbered from `first` on."""
    return [
        Binding(name, partition, key, {PARTITION_ORDER: number})
        for number, (partition, key) in enumerate(partitions, first)
    ]


def _identity(binding: Binding) -> bytes:
    """Equal for equal bindings only: `==` takes 1, 1.0 and true for the same."""
    return msgspec.json.encode(binding, order="deterministic")


def _shown(exchange: str) -> str:
    return f"exchange '{exchange}' in vhost '/'"


def _check_equivalent(existing: Exchange, wanted: Exchange) -> None:
    """Raise ResourceExistsError, in RabbitMQ's words, for an existing exchange with other properties."""
    for name, was, given in (
        ("type", f"'{existing.kind}'", f"'{wanted.kind}'"),
        ("durable", f"'{existing.durable}'".lower(), f"'{wanted.durable}'".lower()),
        ("auto_delete", f"'{existing.auto_delete}'".lower(), f"'{wanted.auto_delete}'".lower()),
        ("internal", f"'{existing.internal}'".lower(), f"'{wanted.internal}'".lower()),
        (ALTERNATE, *_alternates(existing, wanted)),
    ):
        if was != given:
            raise ResourceExistsError(
                f"inequivalent arg '{name}' for {_shown(wanted.name)}: received {given} but current is {was}"
            )


def _alternates(existing: Exchange, wanted: Exchange) -> tuple[str, str]:
    """How RabbitMQ names two alternate exchanges; with their type if only one of the two is given."""
    was, given = existing.arguments.get(ALTERNATE), wanted.arguments.get(ALTERNATE)
    if was is not None and given is not None:
        return f"'{was}'", f"'{given}'"
    shown = ["none" if name is None else f"the value '{name}' of type 'longstr'" for name in (was, given)]
    return shown[0], shown[1]


def _check_ends(binding: Binding) -> None:
    if not binding.source or not (binding.queue or binding.exchange):
        raise ReservedNameError("operation not permitted on the default exchange")


def _order(binding: Binding) -> tuple[int, str]:
    """The sort key of a partition: by number, then by name; partitions without a number come last."""
    number = binding.arguments.get(PARTITION_ORDER)
    return (number, "") if isinstance(number, int) else (2**63, binding.queue)


def _check_name(name: str) -> None:
    if name == DEFAULT or name.startswith("amq."):
        raise ReservedNameError("names that are empty or begin with amq. belong to the broker", subject=name)


def _check_text(text: str, what: str) -> None:
    if not is_storable(text):
        raise PreconditionFailedError(f"{what} is text that UTF-8 can say", subject=repr(text))


def _check_arguments(arguments: Mapping[str, object], subject: str) -> None:
    for name, value in arguments.items():
        _check_text(name, "the name of an argument")
        if not is_storable(value):
            raise PreconditionFailedError(
                f"argument {name} is of a kind that is not kept ({type(value).__name__})", subject=subject
            )
