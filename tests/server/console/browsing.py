"""What tests of pages share: names, how to open a view, and what axe says of it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import BrowserContext, Page

from server.running import RunningServer

AXE = Path(__file__).parents[3] / ".venv" / ".node-clients" / "node_modules" / "axe-core" / "axe.min.js"
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
"""A name that is markup; shown, it is text."""
PASSWORD = "secret"


def go(page: Page, *parts: str, query: str = "") -> None:
    """Open a view by its address: `go(page, "streams", "events", query="tab=consumers")`."""
    path = "/".join(quote(part, safe="") for part in parts)
    page.evaluate("address => { location.hash = address }", f"#/{path}?{query}")


def accessible(page: Page, *, width: int = 1280, theme: str = "light") -> None:
    """Axe finds nothing to object to, and nothing is wider than the window."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make clients")
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("async () => (await axe.run(document, { resultTypes: ['violations'] })).violations")
    assert not found, "\n".join(
        f"{one['id']}: {node['html']} {node['failureSummary']}" for one in found for node in one["nodes"]
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def entered(context: BrowserContext, served: RunningServer, wrong: list[str] | None = None) -> Page:
    """The console with a session; errors and warnings of its program are appended to `wrong`."""
    page = context.new_page()
    if wrong is not None:
        page.on("console", lambda said: wrong.append(said.text) if said.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
    address = f"http://127.0.0.1:{served.ports['http']}/"
    answer = context.request.post(f"{address}api/session", data={"user": "admin", "password": PASSWORD})
    assert answer.status == 200, answer.text()
    page.goto(address)
    page.get_by_role("heading", level=1).wait_for()
    return page
