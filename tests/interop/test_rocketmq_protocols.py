"""What other protocols publish is seen by clients of RocketMQ, and the other way round; each client is unmodified."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from interop.programs import JAVA_ROCKETMQ_CLASSIC, PYTHON_ROCKETMQ, Program, bodies
from interop.rocketmq import RocketMq
from interop.servers import Served
from waiting import LIMIT_S, eventually

pika = pytest.importorskip("pika", reason="the Python clients are not installed: `make clients`")
proton = pytest.importorskip("proton")
reactor = pytest.importorskip("proton.reactor")
proton_utils = pytest.importorskip("proton.utils")
rstream = pytest.importorskip("rstream")
stomp = pytest.importorskip("stomp")

pytestmark = [
    # rstream leaves sockets and tasks behind when it closes.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SQL = "color = 'red' AND n BETWEEN 4 AND 6 AND real > 2.0"


@pytest.fixture(scope="module")
def clients(rocketmq: RocketMq) -> Iterator[tuple[Program, Program]]:
    """One of each protocol."""
    if rocketmq.is_original:
        pytest.skip("RocketMQ serves its own protocols only")
    programs = rocketmq.connected(PYTHON_ROCKETMQ), rocketmq.connected(JAVA_ROCKETMQ_CLASSIC)
    yield programs
    for program in programs:
        program.stop()


def _publish_over_amqp091(served: Served, queue: str, body: str, color: str) -> None:
    with served.channel() as channel:
        channel.confirm_delivery()
        properties = pika.BasicProperties(headers={"color": color, "n": 5, "real": "2.5"}, message_id=f"id of {body}")
        channel.basic_publish("", queue, body.encode(), properties)


def _publish_over_amqp10(served: Served, queue: str, body: str, color: str) -> None:
    connection = proton_utils.BlockingConnection(
        f"amqp://{served.host}:{served.amqp}", timeout=LIMIT_S, user="guest", password="guest"
    )
    sender = connection.create_sender(f"/queues/{queue}")
    properties = {"color": color, "n": proton.int32(5), "real": "2.5"}
    message = proton.Message(body=body, id=f"id of {body}", properties=properties)
    assert sender.send(message).remote_state == proton.Delivery.ACCEPTED
    connection.close()


def _publish_over_streams(served: Served, queue: str, body: str, color: str) -> None:
    async def publish() -> None:
        async with rstream.Producer(served.host, port=served.stream, username="guest", password="guest") as producer:
            properties = {"color": color, "n": 5, "real": "2.5"}
            message = rstream.AMQPMessage(body=body.encode(), application_properties=properties)
            await producer.send_wait(queue, message)

    asyncio.run(publish())
    # What the client leaves behind complains now, while that is ignored.
    gc.collect()


def _publish_over_stomp(served: Served, queue: str, body: str, color: str) -> None:
    connection = stomp.Connection12([(served.host, served.stomp)], vhost="/")
    connection.connect("guest", "guest", wait=True)
    connection.send(f"/amq/queue/{queue}", body, headers={"color": color, "n": "5", "real": "2.5"})
    connection.disconnect(receipt="end")


PUBLISHERS = {
    "amqp 0.9.1": _publish_over_amqp091,
    "amqp 1.0": _publish_over_amqp10,
    "stream": _publish_over_streams,
    "stomp": _publish_over_stomp,
}


def test_clients_of_rocketmq_see_what_others_publish(
    clients: tuple[Program, Program], rocketmq: RocketMq, served: Served, name: str
) -> None:
    modern, classic = clients
    rocketmq.topic(name, queues=1)
    modern.ask("open", id=name, group=f"modern-{name}", topics={name: {"sql": SQL}})
    classic.ask("push", id=name, group=f"classic-{name}", topics={name: {"sql": SQL}})
    for protocol, publish in PUBLISHERS.items():
        publish(served, name, f"other {protocol}", "blue")
        publish(served, name, protocol, "red")
    found: list[dict[str, Any]] = []

    def are_there() -> bool:
        found.extend(modern.ask("receive", id=name))
        return len(found) >= len(PUBLISHERS)

    eventually(are_there)
    pushed = classic.ask("take", id=name, until=list(PUBLISHERS))
    # Its listener has several threads.
    pushed.sort(key=lambda message: list(PUBLISHERS).index(message["body"]))
    for messages in found, pushed:
        assert bodies(messages) == list(PUBLISHERS)
        for message in messages:
            properties = {"color": "red", "n": "5", "real": "2.5"}
            assert message["properties"].items() >= properties.items()
            assert message["tag"] is None and message["keys"] == []
    assert not any(message["is_corrupted"] for message in found)
    assert [message["message_id"] for message in found] == [message["message_id"] for message in pushed]
    assert [message["message_id"] for message in found[:2]] == ["id of amqp 0.9.1", "id of amqp 1.0"]
    assert len({message["message_id"] for message in found}) == len(PUBLISHERS)


def test_others_see_what_clients_of_rocketmq_publish(
    clients: tuple[Program, Program], rocketmq: RocketMq, served: Served, name: str
) -> None:
    rocketmq.topic(name, queues=1)
    message = {"tag": "a", "keys": ["k1"], "properties": {"color": "red", "n": "5"}}
    ids = [
        client.ask("send", topic=name, messages=[{"body": body, **message}])[0]["message_id"]
        for client, body in zip(clients, ["modern", "classic"], strict=True)
    ]
    with served.channel() as channel:
        channel.basic_qos(prefetch_count=10)
        arguments = {"x-stream-offset": "first"}
        found = []
        for method, properties, body in channel.consume(name, arguments=arguments, inactivity_timeout=LIMIT_S):
            found.append((body.decode(), properties.message_id, properties.headers))
            channel.basic_ack(method.delivery_tag)
            if len(found) == 2:
                break
        channel.cancel()
    assert [(body, id) for body, id, _ in found] == list(zip(["modern", "classic"], ids, strict=True))
    assert all(headers["color"] == "red" and headers["n"] == "5" for _, _, headers in found)
    connection = proton_utils.BlockingConnection(
        f"amqp://{served.host}:{served.amqp}", timeout=LIMIT_S, user="guest", password="guest"
    )
    first = {
        proton.symbol("rabbitmq:stream-offset-spec"): proton.Described(
            proton.symbol("rabbitmq:stream-offset-spec"), "first"
        )
    }
    receiver = connection.create_receiver(f"/queues/{name}", options=reactor.Filter(first))
    for body, id in zip(["modern", "classic"], ids, strict=True):
        given = receiver.receive(timeout=LIMIT_S)
        receiver.accept()
        assert (bytes(given.body).decode(), given.id, given.properties) == (body, id, {"color": "red", "n": "5"})
        assert given.annotations["x-opt-rocketmq-tag"] == "a" and given.annotations["x-opt-rocketmq-keys"] == "k1"
    connection.close()
