from __future__ import annotations

import hashlib
import http.client
import re
import struct
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path

import pytest

from headgate.server.console import console_files
from server.running import RunningServer, running_server
from waiting import LIMIT_S

CONSOLE = Path(str(resources.files("headgate.server.console")))
FILES = {path: Path(str(file)) for path, file in console_files().items()}
OURS = {
    path: file.read_text(encoding="utf-8")
    for path, file in FILES.items()
    if file.suffix != ".ico" and file.parent.name != "vendor"
}
KINDS = {".html": "text/html", ".css": "text/css", ".mjs": "text/javascript"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("console"), handlers={}) as running:
        yield running


def answer(running: RunningServer, path: str, method: str = "GET") -> tuple[int, Mapping[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", running.ports["http"], timeout=LIMIT_S)
    try:
        connection.request(method, path)
        given = connection.getresponse()
        return given.status, given.headers, given.read()
    finally:
        connection.close()


# what the server answers


@pytest.mark.parametrize("path", [path for path, file in FILES.items() if file.suffix != ".ico"])
def test_the_page_and_its_files_need_no_login_and_are_strict_about_the_rest(running: RunningServer, path: str) -> None:
    status, headers, content = answer(running, path)
    assert (status, content) == (200, FILES[path].read_bytes())
    assert headers["Content-Type"] == f"{KINDS[FILES[path].suffix]}; charset=utf-8"
    policy = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'" and {policy["script-src"], policy["style-src"]} == {"'self'"}
    assert {policy[rule] for rule in ("frame-ancestors", "form-action", "base-uri")} == {"'none'"}
    assert (policy["require-trusted-types-for"], policy["trusted-types"]) == ("'script'", "'none'")
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
    assert headers["Cache-Control"] == "no-cache"
    status, head, nothing = answer(running, path, "HEAD")
    assert (status, nothing, head["Content-Length"]) == (200, b"", str(len(content)))


def test_the_icon_is_where_browsers_look_for_it_and_where_the_page_says(running: RunningServer) -> None:
    assert b'<link rel="icon" href="favicon.ico">' in answer(running, "/")[2]
    status, headers, icon = answer(running, "/favicon.ico")
    assert (status, headers["Content-Type"]) == (200, "image/vnd.microsoft.icon")
    # The head of an ICO file with one image, which lies behind it and ends the file.
    reserved, kind, images = struct.unpack_from("<HHH", icon)
    size, start = struct.unpack_from("<II", icon, 14)
    assert (reserved, kind, images, start + size) == (0, 1, 1, len(icon))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/console/app.mjs"])
def test_the_page_is_only_read(running: RunningServer, path: str, method: str) -> None:
    status, headers, _ = answer(running, path, method)
    assert status == 405 and set(headers["Allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/",
        "/console/__init__.py",
        "/console/pages",
        "/console/vendor/VERSIONS.md",
        "/console/..%2fhttp.py",
        "/index.html",
        "/other",
    ],
)
def test_unknown_paths_are_not_found(running: RunningServer, path: str) -> None:
    assert answer(running, path)[0] == 404


# what the page is made of


def test_the_package_contains_the_files() -> None:
    project = Path(__file__).parents[3] / "pyproject.toml"
    data = tomllib.loads(project.read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]["headgate"]
    packed = {path for pattern in data for path in CONSOLE.parent.parent.glob(pattern) if path.is_relative_to(CONSOLE)}
    libraries = {path for path in (CONSOLE / "vendor").iterdir() if path.suffix in {".md", ".txt"}}
    assert packed == {*FILES.values(), *libraries}


def test_nothing_comes_from_other_hosts_and_nothing_is_inline() -> None:
    for path, source in OURS.items():
        assert not re.search(r"https?:|//[a-z0-9.-]+\.[a-z]|@import|url\(", source), path
    page = OURS["/"]
    assert not re.search(r"<style|<script(?![^>]* src=)|\son\w+=|\sstyle=", page)


def test_every_file_is_used_and_every_used_file_is_there() -> None:
    named = {f"/{name}" for name in re.findall(r'(?:src|href)="([^#"]+)"', OURS["/"])}
    for file in FILES.values():
        if file.suffix == ".mjs":
            modules = re.findall(r'(?:from|import\()\s*"(\.[^"]+)"', file.read_text(encoding="utf-8"))
            found = [(file.parent / module).resolve().relative_to(CONSOLE) for module in modules]
            named |= {f"/console/{path.as_posix()}" for path in found}
    assert named == {path for path in FILES if path != "/"}


def test_what_the_server_says_becomes_text_and_never_markup() -> None:
    for path, source in OURS.items():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|DOMParser", source
        )
        assert not re.search(r"localStorage|sessionStorage|indexedDB|\.cookie", source), path


def test_the_libraries_are_those_of_the_list() -> None:
    notes = (CONSOLE / "vendor" / "VERSIONS.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([\w.]+)` \|.* ([0-9a-f]{64}) \|$", notes, re.MULTILINE))
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (CONSOLE / "vendor").glob("*.[cm]*s")}
    assert listed == found
    assert set(re.findall(r"`(\w+\.LICENSE\.txt)`", notes)) == {
        path.name for path in (CONSOLE / "vendor").glob("*.txt")
    }
