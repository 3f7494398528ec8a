"""Pictures of the console for the documentation: `python tools/console_images.py`, which takes three minutes.

The demo is started (`examples/demos/console.py`) and left alone until the charts have something to show; then pages are
taken at two widths and in both themes. Needs Debian's chromium.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

PROJECT = Path(__file__).parents[1]
IMAGES = PROJECT / "docs" / "images"
CHARTS_S = 150
"""So that charts have something to show."""

_VIEWS = (
    ("console-overview", "#/", 1280, 800, "light"),
    ("console-overview-dark", "#/", 1280, 800, "dark"),
    ("console-stream", "#/streams/customer-events", 1280, 800, "light"),
    (
        "console-messages",
        "#/messages/customer-events?filter=price+%3E+250+AND+region+%3D+%27EMEA%27",
        1280,
        800,
        "light",
    ),
    ("console-why", "#/why?name=orders&id=o-7&for=large", 1280, 900, "light"),
    ("console-why-narrow", "#/why?name=orders&id=o-7&for=large", 360, 760, "dark"),
)


def main() -> None:
    """Start the demo, wait, take the pictures."""
    command = [sys.executable, str(PROJECT / "examples" / "demos" / "console.py"), "--events", "2000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo, sync_playwright() as playwright:
        try:
            assert demo.stdout is not None
            said = (re.match(r"console: (http://\S+/) +user (\w+), password (\w+)", line) for line in demo.stdout)
            address, user, password = next(found for found in said if found).groups()
            time.sleep(CHARTS_S)
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            for name, view, width, height, theme in _VIEWS:
                page = _entered(browser, address, user, password, width, height, theme)
                page.goto(f"{address}{view}")
                page.locator(".chart canvas, .message, .clause").first.wait_for()
                if name == "console-messages":
                    page.locator(".message-toggle").first.click()
                page.wait_for_timeout(1000)
                page.screenshot(path=IMAGES / f"{name}.png")
                page.context.close()
            browser.close()
        finally:
            demo.send_signal(signal.SIGINT)
            demo.communicate()


def _entered(browser: Browser, address: str, user: str, password: str, width: int, height: int, theme: str) -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=theme,  # type: ignore[arg-type]
    )
    assert context.request.post(f"{address}api/session", data={"user": user, "password": password}).ok
    return context.new_page()


if __name__ == "__main__":
    main()
