"""What filters save on the network, from the server's metrics; and the example that shows it."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
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


def test_the_example_shows_what_each_stage_removed() -> None:
    pytest.importorskip("rstream", reason="the Python clients are not installed: `make clients`")
    pytest.importorskip("rabbitmq_amqp_python_client", reason="the Python clients are not installed: `make clients`")
    demo = PROJECT / "examples" / "broker" / "demo.py"
    shown = subprocess.run(
        [sys.executable, str(demo)], capture_output=True, text=True, timeout=120, check=False, cwd=PROJECT
    )
    assert shown.returncode == 0, shown.stderr[-4000:]
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "20,000 events published by rstream" in lines
    assert any(re.fullmatch(r"stage 1 0 of \d+ chunks skipped by their Bloom filters", line) for line in lines)
    skipped = [re.fullmatch(r"stage 1 (\d+) of (\d+) chunks .*", line) for line in lines]
    assert sum(found is not None and int(found[1]) > 0.7 * int(found[2]) for found in skipped) == 2
    assert any(
        re.fullmatch(r"stage 2 [\d,]+ of [\d,]+ messages removed by the server's SQL filter", line) for line in lines
    )
    assert any(re.fullmatch(r"stage 3 [\d,]+ of [\d,]+ messages dropped by the client", line) for line in lines)
    assert "'10 red ones', quantity 5: settled" in lines
    assert "'3 red ones' is a dead letter, quantity 1" in lines
    assert lines[-1] == "server stopped"
