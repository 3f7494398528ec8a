"""Clients with TLS and without it at one port: how many handshakes may be open."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.server import mixed_listener
from headgate.server.certificates import own_certificate
from waiting import LIMIT_S


def test_more_open_handshakes_than_fit_are_refused_and_clients_without_tls_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixed_listener, "CONNECTIONS", 2)
    asyncio.run(_open_handshakes(tmp_path))


async def _open_handshakes(folder: Path) -> None:
    plain = asyncio.Event()

    class Served(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            plain.set()

    encryption = own_certificate(folder, now_ms=1_700_000_000_000).context()
    with socket.create_server(("127.0.0.1", 0)) as listening, contextlib.ExitStack() as stack:
        listener = mixed_listener.MixedListener(listening, Served, encryption, LIMIT_S)
        clients = []
        for number, first in enumerate((b"\x16", b"\x16", b"\x16", b"G")):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            stack.callback(writer.close)
            clients.append((reader, writer))
            writer.write(first)
            if number < 2:
                await _until(lambda taken=number + 1: len(listener._taking) == taken)  # type: ignore[misc]
            elif first == b"\x16":
                async with asyncio.timeout(LIMIT_S):
                    with pytest.raises(ConnectionResetError):
                        await reader.read()
                assert len(listener._taking) == 2
        async with asyncio.timeout(LIMIT_S):
            await plain.wait()
        listener.close()
        for _, writer in clients:
            writer.close()
        async with asyncio.timeout(LIMIT_S):
            await listener.wait_closed()


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_so():
            await asyncio.sleep(0)
