"""The names of messages for RocketMQ's clients: commit offsets of streams, and the ids of a message."""

from __future__ import annotations

from headgate.broker import Broker
from headgate.protocols.rocketmq import first_place, from_amqp, host_bytes, message_id
from headgate.server.context import ServerContext


def place_of_stream(broker: Broker, stream: str) -> int:
    """The commit offset of the first message of a stream, see `first_place`."""
    found = broker.catalogue.find(stream)
    number = 0 if found is None else broker.queue_numbers.of(found)
    return first_place(number, 0 if number else broker.message_topics.queue_of(stream)[1])


def message_ids(context: ServerContext, data: bytes, stream: str, identity: str, offset: int) -> tuple[str, str]:
    """The id by place of a stored message, and the id that clients see, see `from_amqp`.

    The first contains the advertised address, or 127.0.0.1 if that is a host name.
    """
    port = context.settings.advertised.rocketmq_port or context.ports.get("rocketmq_classic", 10911)
    try:
        host = host_bytes(context.settings.advertised.host or "127.0.0.1", port)
    except ValueError:
        host = host_bytes("127.0.0.1", port)
    seen = from_amqp(data, identity=identity, offset=offset).message_id
    return message_id(host, place_of_stream(context.broker, stream) + offset), seen
