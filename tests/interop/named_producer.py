"""A named producer of rstream that goes on over kills of its server: what is not confirmed it sends again."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from typing import Any

import pytest

from waiting import LIMIT_S

rstream = pytest.importorskip("rstream", reason="the Python clients are not installed: `make clients`")

_BATCH = 100
_MOST_UNCONFIRMED = 200
"""A window of two batches: rstream does not limit itself."""


class NamedProducer:
    """Publishes the numbers from 1 on as bodies, each with itself as its publishing id, in a thread of its own."""

    def __init__(self, port: int, stream: str) -> None:
        self.sent = 0
        self.confirmed: set[int] = set()
        self._port = port
        self._stream = stream
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._publish()))
        self._thread.start()

    def stop(self) -> None:
        """Wait until all that was sent is confirmed, and end."""
        self._stop.set()
        self._thread.join(LIMIT_S)
        # What the client leaves behind complains now, while that is ignored.
        gc.collect()
        assert not self._thread.is_alive()
        assert len(self.confirmed) == self.sent

    @property
    def bodies(self) -> list[bytes]:
        """What the stream has then."""
        return [str(number).encode() for number in range(1, self.sent + 1)]

    async def _publish(self) -> None:
        while not self._stop.is_set() or len(self.confirmed) < self.sent:
            with contextlib.suppress(OSError, asyncio.TimeoutError, rstream.exceptions.ServerError):
                await asyncio.wait_for(self._use_connection(), LIMIT_S)

    async def _use_connection(self) -> None:
        """Publish until the connection breaks or the producer stops; what is not confirmed is sent first."""
        broken, moved = asyncio.Event(), asyncio.Event()

        async def closed(_: object) -> None:
            broken.set()
            moved.set()

        def confirm(status: Any) -> None:
            if status.is_confirmed:
                self.confirmed.add(status.message_id)
            moved.set()

        async def at_most(unconfirmed: int) -> None:
            while self.sent - len(self.confirmed) > unconfirmed and not broken.is_set():
                moved.clear()
                await moved.wait()

        async def send(ids: list[int]) -> None:
            bodies = (bytes(rstream.AMQPMessage(body=str(number).encode())) for number in ids)
            batch = [rstream.RawMessage(body, publishing_id=number) for number, body in zip(ids, bodies, strict=True)]
            await producer.send_batch(self._stream, batch, publisher_name="producer", on_publish_confirm=confirm)

        login = {"username": "guest", "password": "guest"}
        async with rstream.Producer("127.0.0.1", self._port, **login, on_close_handler=closed) as producer:
            unconfirmed = [number for number in range(1, self.sent + 1) if number not in self.confirmed]
            for start in range(0, len(unconfirmed), _BATCH):
                await send(unconfirmed[start : start + _BATCH])
            while not broken.is_set() and not self._stop.is_set():
                self.sent += _BATCH
                await send(list(range(self.sent - _BATCH + 1, self.sent + 1)))
                await at_most(_MOST_UNCONFIRMED)
            await at_most(0)
