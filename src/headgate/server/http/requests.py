"""What a request says beside its path: who sends it, and its body."""

from __future__ import annotations

from starlette.requests import Request

from headgate.server.connections import ip_address
from headgate.server.transport import Peer


def peer_of(request: Request) -> Peer:
    """The peer that a request comes from."""
    client = request.client
    if client is None:
        return Peer("", 0, is_loopback=False)
    try:
        address = ip_address(client.host)
    except ValueError:
        # A proxy gave the client's address in another form.
        return Peer(client.host, client.port, is_loopback=False)
    return Peer(str(address), client.port, is_loopback=address.is_loopback)


async def body_of(request: Request, most_bytes: int) -> bytes | None:
    """The body of a request; None for a longer one. Raises ClientDisconnect of starlette."""
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > most_bytes:
            return None
    return data
