"""The samples behind the console's charts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.client import Client, Management
from headgate.errors import AccessRefusedError, ResourceNotFoundError
from headgate.message import Message
from headgate.server.history import SAMPLES, History
from server.running import RunningServer, running_server

_USERS = [{"name": "anna", "password": "secret", "permissions": {"read": "^orders$"}}]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    streams = [{"name": "orders", "arguments": {"x-stream-filter-size-bytes": 32}}, {"name": "hidden"}]
    with running_server(tmp_path, stream=streams, user=_USERS) as running:
        yield running


def history_of(running: RunningServer) -> History:
    """One whose clock is a second later at each sample."""
    seconds = itertools.count()
    context = running.context
    return History(context.broker, context.connections, lambda: 1000 * next(seconds), has_counted=lambda: True)


def test_rates_are_what_was_published_delivered_and_left_out(running: RunningServer) -> None:
    history = history_of(running)
    address = f"127.0.0.1:{running.ports['stream']}"
    with Client.connect(address) as client:
        running.call(running.context.broker.catalogue.get, "orders")
        running.call(running.context.broker.catalogue.get, "hidden")
        running.call(history.sample)
        with client.publisher("orders", filter_value=_subject) as publisher:
            for subject in ("a", "b"):
                for number in range(50):
                    publisher.send(Message(b"x", subject=subject, application_properties={"n": number}))
                publisher.flush()
        with client.consumer("orders", start="first", filter_values=["a"], filter="n < 10") as consumer:
            assert len(list(itertools.islice(consumer, 10))) == 10
            running.until(lambda: _read(running) == 10)
            running.call(history.sample)
            connections = running.call(lambda: len(running.context.connections))
    found = running.call(history.stream_series, "orders")
    assert found.times_ms == [0, 1000]
    series = {name: values[-1] for name, values in found.series.items()}
    assert (series["published_per_s"], series["delivered_per_s"]) == (100, 10)
    assert series["stage_2_removed_per_s"] == 40
    assert series["stage_1_spared_bytes_per_s"] > 0
    assert all(values[0] is None for values in found.series.values())
    whole = running.call(history.series).series
    assert (whole["published_per_s"], whole["consumers"]) == ([None, 100], [0, 1])
    assert whole["connections"][-1] == connections
    assert set(running.call(history.stream_series, "hidden").series["published_per_s"]) == {None, 0}


def _read(running: RunningServer) -> int:
    (consumer,) = [each for session in running.context.broker.sessions for each in session.consumers]
    return consumer.delivered_messages


def test_a_counter_that_falls_gives_no_rate_and_old_samples_go(running: RunningServer) -> None:
    history = history_of(running)
    stream = running.call(running.context.broker.catalogue.get, "orders")
    for published in (5, 9, 2, 4):
        stream.counters.messages_published = published
        running.call(history.sample)
    assert running.call(history.stream_series, "orders").series["published_per_s"] == [None, 4, None, 2]
    for _ in range(SAMPLES):
        stream.counters.messages_published += 1
        running.call(history.sample)
    found = running.call(history.stream_series, "orders")
    assert found.times_ms == [1000 * second for second in range(4, SAMPLES + 4)]
    assert found.series["published_per_s"][1:] == [1] * (SAMPLES - 1)
    assert running.call(history.series).times_ms == found.times_ms


def test_a_server_keeps_samples_and_shows_those_of_readable_streams(running: RunningServer) -> None:
    url = f"http://127.0.0.1:{running.ports['http']}"
    guest, anna = (
        Management.of(url, user=name, password=word) for name, word in (("guest", "guest"), ("anna", "secret"))
    )
    assert len(guest.history()["times_ms"]) >= 1
    assert anna.history("orders")["interval_ms"] == guest.history()["interval_ms"]
    with pytest.raises(AccessRefusedError):
        anna.history("hidden")
    with pytest.raises(ResourceNotFoundError):
        guest.history("nothing")


def _subject(message: Message) -> str:
    assert message.properties is not None
    return str(message.properties["subject"].value)


def test_what_subscriptions_and_groups_take_of_one_stream_is_added_up(running: RunningServer) -> None:
    history = history_of(running)
    broker = running.context.broker

    def prepare() -> None:
        for name in ("orders", "hidden"):
            broker.catalogue.get(name)
        broker.topics.create("orders")

    running.call(prepare)
    taken = {"orders": [7, 5], "hidden": [3]}
    history._delivered_copies = lambda: ((n, (each, 10 * each)) for n, all_of in taken.items() for each in all_of)  # type: ignore[method-assign]
    running.call(history.sample)
    taken = {"orders": [9, 8], "hidden": [3]}
    running.call(history.sample)
    found = running.call(history.stream_series, "orders").series
    assert (found["delivered_per_s"][-1], found["delivered_bytes_per_s"][-1]) == (5, 50)
