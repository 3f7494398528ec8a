"""The event loop: uvloop where it is installed, about 1.5 times as fast at high rates; asyncio's own elsewhere."""

from __future__ import annotations

import asyncio


def new_loop() -> asyncio.AbstractEventLoop:
    """A new loop, not running."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
