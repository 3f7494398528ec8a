"""The web console: a page that shows and changes what `/api` offers. Its files are static and hold no data.

    index.html, style.css    the page
    app.mjs, routes.mjs      the page's program: login, navigation, which page an address names
    components.mjs           what pages are made of; its head lists them
    api.mjs                  requests, sessions, live events
    router.mjs, format.mjs   addresses; numbers and times for people
    pages/                   a module for each page
    vendor/                  libraries, with versions and licences
    favicon.ico              the icon, where browsers look for it

The files are found and read once, at start: no path of a request reaches the file system.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["console_files", "console_routes"]


_TYPES = {".html": "text/html", ".css": "text/css", ".mjs": "text/javascript", ".ico": "image/vnd.microsoft.icon"}
_PATHS = {"index.html": "/", "favicon.ico": "/favicon.ico"}
"""Paths of the files that are not under `/console`."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A cached page of another version would ask for lists that this version does not have.
    "Cache-Control": "no-cache",
}
"""Headers of the page and its files: nothing inline or from other hosts, in no frame; no text becomes markup."""


def console_files() -> dict[str, Traversable]:
    """The file behind each path."""
    return {_PATHS.get(name, f"/console/{name}"): file for name, file in _files(resources.files(__package__), "")}


def console_routes() -> list[Route]:
    """A route for each file; GET and HEAD."""
    return [_route(path, file) for path, file in console_files().items()]


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif _suffix(entry.name) in _TYPES:
            yield f"{prefix}{entry.name}", entry


def _suffix(name: str) -> str:
    return f".{name.rpartition('.')[2]}"


def _route(path: str, file: Traversable) -> Route:
    content = file.read_bytes()
    kind = _TYPES[_suffix(file.name)]

    async def answer(_request: Request) -> Response:
        return Response(content, headers=HEADERS, media_type=kind)

    return Route(path, answer)
