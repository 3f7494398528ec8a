"""Direct exchanges, bindings of streams to them, and super streams, which are both together. Kept in one file.

    <root>/.headgate/exchanges.json     every change replaces it by rename

The exchange without a name leads to the stream that the routing key names; `amq.direct` is there from the beginning. A
super stream is a durable direct exchange whose bindings say in `x-stream-partition-order` which partition comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headgate.broker.arguments import is_storable
from headgate.errors import (
    LogError,
    PreconditionFailedError,
    ReservedNameError,
    ResourceExistsError,
    ResourceNotFoundError,
    UnsupportedError,
)
from headgate.log import replace_file, storage_error

EXCHANGES_FORMAT = 1
PARTITION_ORDER = "x-stream-partition-order"
SUPER_STREAM = "x-super-stream"
DEFAULT = ""
_OF_THE_ORIGINAL = ("fanout", "topic", "headers", "x-local-random")


class Exchange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One exchange; `arguments` as declared."""

    name: str
    kind: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


class Binding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messages of the exchange `source` with the routing key `key` go to the stream `queue`."""

    source: str
    queue: str
    key: str
    arguments: dict[str, Any] = {}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    exchanges: list[Exchange]
    bindings: list[Binding]
    format: int = EXCHANGES_FORMAT


class Exchanges:
    """All exchanges and bindings of a root; knows names of streams, not whether they are there."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises LogError for one that is wrong."""
        self._path = path
        self._exchanges: dict[str, Exchange] = {}
        self._bindings: list[Binding] = []
        self._routes: dict[tuple[str, str], list[str]] = {}
        stored = self._load()
        for exchange in (Exchange(DEFAULT), Exchange("amq.direct"), *stored.exchanges):
            self._exchanges[exchange.name] = exchange
        self._set_bindings(stored.bindings)

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
        """Make an exchange; False if it was there, equal.

        Raises ResourceExistsError for other properties, UnsupportedError for a kind of the original other than direct,
        ReservedNameError, PreconditionFailedError.
        """
        if wanted.kind in _OF_THE_ORIGINAL:
            raise UnsupportedError(
                f"exchanges of type {wanted.kind!r} are not served; direct ones are", subject=wanted.name
            )
        if wanted.kind != "direct":
            raise PreconditionFailedError(
                f"unknown exchange type {wanted.kind!r}; expected direct", subject=wanted.name
            )
        existing = self._exchanges.get(wanted.name)
        if existing is not None:
            if existing != wanted:
                raise ResourceExistsError("the exchange is there with other properties", subject=wanted.name)
            return False
        _check_name(wanted.name)
        _check_text(wanted.name, "the name of an exchange")
        _check_arguments(wanted.arguments, wanted.name)
        self._replace({**self._exchanges, wanted.name: wanted}, self._bindings)
        return True

    def delete(self, name: str, *, if_unused: bool) -> None:
        """Delete an exchange with its bindings; one that is not there is no error.

        Raises ReservedNameError, PreconditionFailedError where it has bindings and must be unused.
        """
        _check_name(name)
        if name not in self._exchanges:
            return
        if if_unused and self.bindings(source=name):
            raise PreconditionFailedError("the exchange has bindings", subject=name)
        exchanges = {other: exchange for other, exchange in self._exchanges.items() if other != name}
        self._replace(exchanges, [binding for binding in self._bindings if binding.source != name])

    # bindings

    def bindings(self, *, source: str | None = None, queue: str | None = None, key: str | None = None) -> list[Binding]:
        """The bindings with these ends and key, in order of binding; None for any."""
        return [
            binding
            for binding in self._bindings
            if source in (None, binding.source) and queue in (None, binding.queue) and key in (None, binding.key)
        ]

    def bind(self, binding: Binding) -> None:
        """Add a binding; the same again changes nothing.

        Raises ResourceNotFoundError for the exchange, ReservedNameError for the exchange without a name,
        PreconditionFailedError for a key or an argument that cannot be kept.
        """
        self.get(binding.source)
        if binding.source == DEFAULT:
            raise ReservedNameError("nothing is bound to the exchange without a name", subject=binding.queue)
        _check_text(binding.key, "a binding key")
        _check_arguments(binding.arguments, binding.source)
        if binding not in self._bindings:
            self._replace(self._exchanges, [*self._bindings, binding])

    def unbind(self, binding: Binding) -> None:
        """Remove a binding, and with its last one an exchange that deletes itself; one that is not there is no error.

        Raises ReservedNameError for the exchange without a name.
        """
        if binding.source == DEFAULT:
            raise ReservedNameError("nothing is unbound from the exchange without a name", subject=binding.queue)
        self._remove([binding])

    def forget_queue(self, queue: str) -> None:
        """A stream was deleted: so are its bindings."""
        self._remove(self.bindings(queue=queue))

    def route(self, exchange: str, key: str) -> list[str]:
        """Names of the streams bound with exactly that key, in order of binding; ResourceNotFoundError."""
        if exchange == DEFAULT:
            return [key]
        self.get(exchange)
        return list(self._routes.get((exchange, key), ()))

    # super streams

    def create_super_stream(self, name: str, partitions: Sequence[tuple[str, str]]) -> None:
        """The exchange and bindings of a super stream: (partition, binding key), in order; in one change of the file.

        Raises ResourceExistsError, ReservedNameError, PreconditionFailedError for a key that cannot be kept.
        """
        if name in self._exchanges:
            raise ResourceExistsError("there is an exchange or a super stream of that name", subject=name)
        _check_name(name)
        for text in (name, *(key for _, key in partitions)):
            _check_text(text, "a name or a binding key")
        order = [
            Binding(name, partition, key, {PARTITION_ORDER: number})
            for number, (partition, key) in enumerate(partitions)
        ]
        exchange = Exchange(name, arguments={SUPER_STREAM: True})
        self._replace({**self._exchanges, name: exchange}, [*self._bindings, *order])

    def partitions(self, name: str) -> list[str]:
        """The streams of a super stream, in order; ResourceNotFoundError."""
        if name == DEFAULT:
            raise ResourceNotFoundError("no such super stream", subject=name)
        self.get(name)
        ordered = sorted(self.bindings(source=name), key=_order)
        return list(dict.fromkeys(binding.queue for binding in ordered))

    # inside

    def _remove(self, gone: Iterable[Binding]) -> None:
        gone = list(gone)
        left = [binding for binding in self._bindings if binding not in gone]
        if len(left) == len(self._bindings):
            return
        unbound = {binding.source for binding in self._bindings} - {binding.source for binding in left}
        exchanges = {
            name: exchange
            for name, exchange in self._exchanges.items()
            if not (exchange.auto_delete and name in unbound)
        }
        self._replace(exchanges, left)

    def _set_bindings(self, bindings: list[Binding]) -> None:
        self._bindings = bindings
        self._routes = {}
        for binding in bindings:
            streams = self._routes.setdefault((binding.source, binding.key), [])
            if binding.queue not in streams:
                streams.append(binding.queue)

    def _load(self) -> _File:
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return _File([], [])
        try:
            stored = msgspec.json.decode(raw, type=_File)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LogError(f"no file of exchanges: {error}", path=self._path) from error
        if stored.format != EXCHANGES_FORMAT:
            raise LogError(f"exchanges of format {stored.format}, expected {EXCHANGES_FORMAT}", path=self._path)
        return stored

    def _replace(self, exchanges: dict[str, Exchange], bindings: list[Binding]) -> None:
        """Keep what is durable, then use it; where the file cannot be written, all stays as it was."""
        durable = [
            exchange for exchange in exchanges.values() if exchange.durable and exchange.name not in _PREDECLARED
        ]
        names = {exchange.name for exchange in durable} | _PREDECLARED
        kept = _File(durable, [binding for binding in bindings if binding.source in names])
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, self._path.parent) from error
        replace_file(self._path, msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
        self._exchanges = exchanges
        self._set_bindings(bindings)


_PREDECLARED = frozenset({DEFAULT, "amq.direct"})


def _order(binding: Binding) -> tuple[int, str]:
    """Partitions without a number come last, by name."""
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
