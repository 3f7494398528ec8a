"""Routing of messages: from an exchange over its bindings, perhaps through other exchanges, to names of streams. Pure.

    direct      bindings with exactly the routing key
    fanout      all bindings
    topic       bindings whose key matches the routing key: words between dots, `*` is one word, `#` any number of them
    headers     bindings whose arguments match the headers of the message, in the way that `x-match` says

`x-match` is `all` (as without it) or `any`, which leave out arguments that begin with `x-`, or `all-with-x` or
`any-with-x`. An argument without a value asks only whether the header is there; others are equal in type and value.

A message that matches no binding of an exchange goes to the exchange's alternate exchange. Each exchange is asked once.
Source: RabbitMQ 4.3 (`rabbit_exchange`, `rabbit_db_topic_exchange`, `rabbit_exchange_type_headers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from headgate.errors import PreconditionFailedError

DEFAULT = ""
ALTERNATE = "alternate-exchange"
MATCH = "x-match"

Headers = Callable[[], Mapping[str, object]]
"""Gives the headers of a message by name, as text, numbers, booleans, None, lists and mappings."""

_MATCHES = ("all", "any", "all-with-x", "any-with-x")
_MAX_HASHES = 2
_CACHED_ROUTES = 8192


class Exchange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One exchange; `arguments` as declared."""

    name: str
    kind: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}

    @property
    def alternate(self) -> str | None:
        """The exchange that takes messages that match no binding of this one."""
        name = self.arguments.get(ALTERNATE)
        return name if isinstance(name, str) else None


class Binding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messages of the exchange `source` that match `key` and `arguments` go to the stream `queue`, or to `exchange`.

    The unused one of the two is empty.
    """

    source: str
    queue: str
    key: str
    arguments: dict[str, Any] = {}
    exchange: str = ""


Matcher = Callable[[str, Headers], Sequence[Binding]]
"""The bindings of one exchange that a routing key and headers match."""


class Router:
    """All routes of one state of the exchanges; a change of exchanges needs a new router.

    Routes are kept by exchange and routing key, at most 8 192 of them, unless they depend on headers.
    """

    __slots__ = ("_bindings", "_exchanges", "_matchers", "_needing_headers", "_routes")

    def __init__(self, exchanges: Mapping[str, Exchange], bindings: Iterable[Binding]) -> None:
        self._exchanges = exchanges
        self._bindings: dict[str, list[Binding]] = {}
        for binding in bindings:
            self._bindings.setdefault(binding.source, []).append(binding)
        self._matchers: dict[str, Matcher] = {}
        self._needing_headers: dict[str, bool] = {}
        self._routes: dict[tuple[str, str], Sequence[str]] = {}

    def route(self, exchange: str, key: str, headers: Headers) -> Sequence[str]:
        """The names of the streams that a message goes to, each once. `headers` is called only if they matter."""
        if exchange == DEFAULT:
            return (key,)
        known = self._routes.get((exchange, key))
        if known is not None:
            return known
        found = self._found(exchange, key, headers)
        if not self.needs_headers(exchange):
            if len(self._routes) >= _CACHED_ROUTES:
                self._routes.clear()
            self._routes[exchange, key] = found
        return found

    def needs_headers(self, exchange: str) -> bool:
        """Whether the routes of an exchange depend on headers."""
        known = self._needing_headers.get(exchange)
        if known is None:
            known = any(self._exchanges[name].kind == "headers" for name in self._reachable(exchange))
            self._needing_headers[exchange] = known
        return known

    def _reachable(self, exchange: str) -> Iterable[str]:
        """An exchange, and all exchanges that its messages may reach."""
        found = {exchange: None}
        for name in (waiting := [exchange]):
            for other in (*(binding.exchange for binding in self._bindings.get(name, ())), self._alternate(name)):
                if other and other not in found:
                    found[other] = None
                    waiting.append(other)
        return found

    def _alternate(self, exchange: str) -> str:
        """The alternate exchange of an exchange; empty without one."""
        name = self._exchanges[exchange].alternate or DEFAULT
        return name if name in self._exchanges else DEFAULT

    def _found(self, exchange: str, key: str, headers: Headers) -> Sequence[str]:
        streams: dict[str, None] = {}
        seen = {exchange}
        for name in (waiting := [exchange]):
            matched = self._matcher(name)(key, headers)
            streams.update((binding.queue, None) for binding in matched if binding.queue)
            for other in [binding.exchange for binding in matched] if matched else [self._alternate(name)]:
                if other and other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return tuple(streams)

    def _matcher(self, exchange: str) -> Matcher:
        matcher = self._matchers.get(exchange)
        if matcher is None:
            make = _MATCHERS[self._exchanges[exchange].kind]
            matcher = self._matchers[exchange] = make(self._bindings.get(exchange, []))
        return matcher


def check_binding(kind: str, binding: Binding) -> None:
    """Raise PreconditionFailedError for a binding that an exchange of that kind does not take."""
    if kind == "headers" and binding.arguments.get(MATCH, "all") not in _MATCHES:
        raise PreconditionFailedError(
            f"Invalid x-match field value {binding.arguments[MATCH]!r}; expected all, any, all-with-x, or any-with-x"
        )
    hashes = _words(binding.key).count("#")
    if kind == "topic" and hashes > _MAX_HASHES:
        raise PreconditionFailedError(
            f"Topic binding key '{binding.key}' uses {hashes} '#' wildcards, at most {_MAX_HASHES} are allowed"
        )


# Matchers


def _direct(bindings: Sequence[Binding]) -> Matcher:
    by_key: dict[str, list[Binding]] = {}
    for binding in bindings:
        by_key.setdefault(binding.key, []).append(binding)
    return lambda key, headers: by_key.get(key, ())


def _fanout(bindings: Sequence[Binding]) -> Matcher:
    return lambda key, headers: bindings


def _topic(bindings: Sequence[Binding]) -> Matcher:
    root = _Node(is_hash=False)
    for binding in bindings:
        node = root
        for word in _words(binding.key):
            node = node.children.setdefault(word, _Node(is_hash=word == "#"))
        node.bindings.append(binding)
    return lambda key, headers: _matched(root, _words(key))


def _headers(bindings: Sequence[Binding]) -> Matcher:
    conditions = [(binding, _condition(binding.arguments)) for binding in bindings]

    def matcher(key: str, headers: Headers) -> Sequence[Binding]:
        found = headers()
        return [binding for binding, condition in conditions if condition(found)]

    return matcher


_MATCHERS: Mapping[str, Callable[[Sequence[Binding]], Matcher]] = {
    "direct": _direct,
    "fanout": _fanout,
    "topic": _topic,
    "headers": _headers,
}

EXCHANGE_KINDS = frozenset(_MATCHERS)


class _Node:
    """A node in the tree of binding keys: the bindings whose keys end here, and the next nodes by word."""

    __slots__ = ("bindings", "children", "is_hash")

    def __init__(self, *, is_hash: bool) -> None:
        self.bindings: list[Binding] = []
        self.children: dict[str, _Node] = {}
        self.is_hash = is_hash


def _words(key: str) -> list[str]:
    """The words of a key; the empty key has none, a single dot has two empty ones."""
    return key.split(".") if key else []


def _matched(root: _Node, words: Iterable[str]) -> list[Binding]:
    """The matching bindings; walks all matching paths at once, in at most words × nodes steps."""
    places: dict[_Node, None] = {}
    _enter(root, places)
    for word in words:
        following: dict[_Node, None] = {}
        for node in places:
            if node.is_hash:
                following[node] = None
            for step in (word, "*"):
                if step in node.children:
                    _enter(node.children[step], following)
        places = following
    return [binding for node in places for binding in node.bindings]


def _enter(node: _Node | None, places: dict[_Node, None]) -> None:
    """Enter a node, and each `#` behind it, as a `#` may stand for no word."""
    while node is not None:
        places[node] = None
        node = node.children.get("#")


_ABSENT = object()


def _condition(arguments: Mapping[str, object]) -> Callable[[Mapping[str, object]], bool]:
    match = str(arguments.get(MATCH, "all"))
    with_x = match.endswith("-with-x")
    wanted = [
        (name, type(value), value)
        for name, value in arguments.items()
        if name != MATCH and (with_x or not name.startswith("x-"))
    ]
    fulfilled = any if match.startswith("any") else all

    def condition(headers: Mapping[str, object]) -> bool:
        return fulfilled(
            name in headers if value is None else type(found := headers.get(name, _ABSENT)) is kind and found == value
            for name, kind, value in wanted
        )

    return condition
