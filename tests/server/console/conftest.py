"""A browser with the console in it: Debian's Chromium, driven by Playwright, before a server in the test process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from headgate.client import Client
from headgate.message import Message
from server.console.browsing import HOSTILE, PASSWORD, entered
from server.running import RunningServer, running_server

CHROMIUM = shutil.which("chromium")

# Nothing of the browser's own leaves the machine.
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium): the console is tested in it")
    # Machines of CI are slow at times.
    expect.set_options(timeout=20_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with a stream of events, one with a hostile name, and a topic whose rule fails for some messages."""
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    users = [{"name": "admin", "password": PASSWORD, "tags": ["administrator"], "permissions": everything}]
    rule = {"name": "Large", "sql": "price > 100 AND region = 'EMEA'"}
    topic = {"name": "orders", "subscription": [{"name": "large", "rule": [rule]}]}
    streams = [{"name": "events", "arguments": {"max-length-bytes": 1_000_000_000}}, {"name": HOSTILE}]
    with running_server(tmp_path_factory.mktemp("console"), user=users, stream=streams, topic=[topic]) as served:
        with Client.connect(f"127.0.0.1:{served.ports['stream']}") as client:
            _publish(client, "events", [_event(number) for number in range(120)])
            _publish(client, "orders", [_event(number) for number in range(20)])
            _publish(client, HOSTILE, [_hostile()])
        yield served


@pytest.fixture
def page(browser: Browser, served: RunningServer) -> Iterator[Page]:
    """The console, logged in; at the end nothing was wrong in its program, and nothing hostile had run."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(20_000)
    wrong: list[str] = []
    page = entered(context, served, wrong)
    yield page
    assert page.title() != "owned"
    context.close()
    assert wrong == []


def _publish(client: Client, stream: str, messages: list[Message]) -> None:
    with client.publisher(stream) as publisher:
        publisher.send_many(messages)
        publisher.flush()


def _event(number: int) -> Message:
    return Message(
        b'{"number": %d, "tags": ["a", "b"]}' % number,
        message_id=f"e-{number}",
        subject="event",
        application_properties={
            "region": "EMEA" if number % 2 else "APJ",
            # One in ten is a string, which a rule cannot compare.
            "price": f"{number}" if number % 10 == 9 else number * 10,
        },
    )


def _hostile() -> Message:
    """Markup, marks that turn the direction of text, a NUL, and a megabyte."""
    turned = "\u202egnp.exe"
    body = b"<script>document.title = 'owned'</script>" + b"x" * 1_000_000
    return Message(
        body,
        message_id=f"{turned}\0{HOSTILE}",
        subject=HOSTILE,
        application_properties={HOSTILE: HOSTILE, "nul": "a\0b"},
    )
