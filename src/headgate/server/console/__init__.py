"""The web console: a page that shows the lists of `/api`, read only. Its files are static and hold no data.

    console.html, console.css    the page
    console.mjs                  the page's program: login, views, tables of the document
    tables.mjs                   what the tables are made of, from the lists; knows no document, so tests run it
    refresh.mjs                  when lists are asked for again; knows no document either
    favicon.ico                  the icon, where browsers look for it

The page asks for a login itself and keeps it in memory: a browser that kept it would send it with requests from other
pages as well. The files are read once, at start.
"""

from __future__ import annotations

from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["console_routes"]


FILES = {
    "/": "console.html",
    "/favicon.ico": "favicon.ico",
    "/console/console.css": "console.css",
    "/console/console.mjs": "console.mjs",
    "/console/tables.mjs": "tables.mjs",
    "/console/refresh.mjs": "refresh.mjs",
}
"""The file behind each path."""

_TYPES = {"html": "text/html", "css": "text/css", "mjs": "text/javascript", "ico": "image/vnd.microsoft.icon"}

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A cached page of another version would ask for lists that this version does not have.
    "Cache-Control": "no-cache",
}
"""Headers of the page and its files: nothing inline, nothing from other hosts, in no frame."""


def console_routes() -> list[Route]:
    """A route for each file; GET and HEAD."""
    return [_route(path, name) for path, name in FILES.items()]


def _route(path: str, name: str) -> Route:
    content = resources.files(__package__).joinpath(name).read_bytes()
    kind = _TYPES[name.rpartition(".")[2]]

    async def answer(_request: Request) -> Response:
        return Response(content, headers=HEADERS, media_type=kind)

    return Route(path, answer)
