"""What RocketMQ's clients call messages, where no connection says which address of the server their ids name."""

from __future__ import annotations

from headgate.protocols.rocketmq import commit_offset, from_amqp, host_bytes, message_id
from headgate.server.context import ServerContext


def message_ids(context: ServerContext, data: bytes, identity: str, queue: int, offset: int) -> tuple[str, str]:
    """The id by place of a stored message, and the id that clients see, see `from_amqp`.

    The first names the advertised address, or 127.0.0.1 where that is a name.
    """
    port = context.settings.advertised.rocketmq_port or context.ports.get("rocketmq_classic", 10911)
    try:
        host = host_bytes(context.settings.advertised.host or "127.0.0.1", port)
    except ValueError:
        host = host_bytes("127.0.0.1", port)
    seen = from_amqp(data, identity=identity, offset=offset).message_id
    return message_id(host, commit_offset(queue, offset)), seen
