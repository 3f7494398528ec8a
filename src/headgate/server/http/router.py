"""Which endpoint a request means, and its call. No HTTP library here: commands that work on files use it as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headgate.errors import ResourceNotFoundError, UnsupportedError
from headgate.server.http.endpoint import Answer, Call, Endpoint, Group


class Router:
    """Finds endpoints by method and path."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = tuple(groups)
        self._endpoints: dict[tuple[str, int], list[Endpoint]] = {}
        """By the first part of a path and the number of parts."""
        self._foreign: set[str] = set()
        for group in self.groups:
            for endpoint in group.endpoints:
                parts = endpoint.parts
                self._endpoints.setdefault((parts[0], len(parts)), []).append(endpoint)
                if group.is_foreign:
                    self._foreign.add(parts[0])

    def is_foreign(self, path: tuple[str, ...]) -> bool:
        """Whether errors at this path have the form of RabbitMQ's management plug-in."""
        return bool(path) and path[0] in self._foreign

    def methods(self, path: tuple[str, ...]) -> list[str]:
        """The methods that a path has."""
        found = self._endpoints.get((path[0], len(path)), ()) if path else ()
        return [endpoint.method for endpoint in found if endpoint.names(path) is not None]

    def find(self, method: str, path: tuple[str, ...]) -> tuple[Endpoint, dict[str, str]]:
        """The endpoint, and the named parts of the path.

        Raises ResourceNotFoundError for an unknown path, UnsupportedError for a method that the path does not have.
        """
        for endpoint in self._endpoints.get((path[0], len(path)), ()) if path else ():
            if endpoint.method == method and (names := endpoint.names(path)) is not None:
                return endpoint, names
        methods = self.methods(path)
        if methods:
            raise UnsupportedError(f"{method} is not for this path; expected {', '.join(methods)}")
        raise ResourceNotFoundError("there is nothing at this path; a / in a name is written %2F")

    async def answer(
        self, method: str, path: tuple[str, ...], query: Mapping[str, list[str]], body: bytes, *, user: str
    ) -> Answer:
        """The answer to a request that does not come over HTTP. Raises as `find` and the handler do, ConfigError."""
        endpoint, names = self.find(method, path)
        return await endpoint.handler(Call(user, names, endpoint.decoded_query(query), endpoint.decoded_body(body)))
