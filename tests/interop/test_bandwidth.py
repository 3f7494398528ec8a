"""What filters save on the network, from the server's metrics; and the example that shows it."""

from __future__ import annotations

import asyncio
import random
import re
import urllib.request
from pathlib import Path

import pytest

from interop.servers import Served

PROJECT = Path(__file__).parents[2]


def metric(served: Served, name: str) -> float:
    with urllib.request.urlopen(f"http://{served.host}:{served.http}/metrics", timeout=20) as answer:
        found = re.search(rf"^{re.escape(name)} (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def test_a_filter_value_saves_the_published_share_of_bandwidth(served: Served, stream: str) -> None:
    """The case of RabbitMQ's blog ("Stream Filtering", 2023): 1 000 messages of 10 kB, each with one of 50 values.

    They came at 100 a second, so some ten to a chunk. Reading the one value "5" took 1 957 641 bytes of 10 046 894.
    """
    rstream = pytest.importorskip("rstream", reason="the Python clients are not installed: `make clients`")
    if served.is_original:
        pytest.skip("the published case has the figures of the original")
    values = random.Random(5).choices([str(value) for value in range(1, 51)], k=1000)
    user = {"username": "guest", "password": "guest"}

    async def filter_value(message: object) -> str:
        return next(published)

    async def publish() -> None:
        async with rstream.Producer(
            served.host, served.stream, **user, filter_value_extractor=filter_value
        ) as producer:
            for first in range(0, 1000, 10):
                confirmed = asyncio.Event()
                left = 10

                def count(_: object, confirmed: asyncio.Event = confirmed) -> None:
                    nonlocal left
                    left -= 1
                    if left == 0:
                        confirmed.set()

                batch = [values[n].encode().ljust(10_000) for n in range(first, first + 10)]
                await producer.send_batch(stream, batch, on_publish_confirm=count)
                await asyncio.wait_for(confirmed.wait(), 20)

    async def consume(filter_input: object, expected: int) -> int:
        consumer = rstream.Consumer(served.host, served.stream, **user)
        received = 0

        def on_message(message: bytes, _: object) -> None:
            nonlocal received
            received += bytes(message).rstrip() in wanted
            if received == expected:
                consumer.stop()

        await consumer.start()
        await consumer.subscribe(
            stream,
            on_message,
            offset_specification=rstream.ConsumerOffsetSpecification(rstream.OffsetType.FIRST, None),
            filter_input=filter_input,
        )
        await asyncio.wait_for(consumer.run(), 30)
        await consumer.close()
        return received

    published = iter(values)
    asyncio.run(publish())
    wanted = {value.encode() for value in values}
    before = metric(served, "rabbitmq_stream_read_bytes_total")
    asyncio.run(consume(None, 1000))
    everything = metric(served, "rabbitmq_stream_read_bytes_total") - before
    wanted = {b"5"}
    before += everything
    asyncio.run(consume(rstream.FilterConfiguration(values_to_filter=["5"]), values.count("5")))
    filtered = metric(served, "rabbitmq_stream_read_bytes_total") - before
    assert 10_000_000 < everything < 10_200_000
    assert 0.72 < 1 - filtered / everything < 0.9
