"""Ids by place of messages, where no connection says which address of the server they name."""

from __future__ import annotations

from headgate.protocols.rocketmq import commit_offset, host_bytes, message_id
from headgate.server.context import ServerContext


def place_id(context: ServerContext, queue: int, offset: int) -> str:
    """What the classic protocol calls a message, at the advertised address, or at 127.0.0.1 where that is a name."""
    port = context.settings.advertised.rocketmq_port or context.ports.get("rocketmq_classic", 10911)
    try:
        host = host_bytes(context.settings.advertised.host or "127.0.0.1", port)
    except ValueError:
        host = host_bytes("127.0.0.1", port)
    return message_id(host, commit_offset(queue, offset))
