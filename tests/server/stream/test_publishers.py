"""Who is told of what publishers of a connection sent, without a socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from brokers import open_broker, open_session, stored
from headgate.broker.broker import Broker
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codes import ResponseCode
from headgate.protocols.stream.publish_frames import Publish, parse_publish_run
from headgate.server.settings import Limits
from headgate.server.stream.outlet import Outlet
from headgate.server.stream.publishers import Publishers
from stream_frames import publish


class Told:
    """An outlet that keeps what is said: publisher, publishing id, and the code of what is refused."""

    def __init__(self) -> None:
        self.said: list[tuple[int, int, ResponseCode | None]] = []

    def confirm(self, publisher_id: int, publishing_ids: np.ndarray[Any, Any]) -> None:
        self.said += [(publisher_id, number, None) for number in publishing_ids.tolist()]

    def refuse(self, publisher_id: int, publishing_ids: np.ndarray[Any, Any], code: ResponseCode) -> None:
        self.said += [(publisher_id, number, code) for number in publishing_ids.tolist()]


def message(publisher_id: int, publishing_id: int, body: bytes) -> Publish:
    """What a frame with one message says."""
    (event,), _ = parse_publish_run(
        memoryview(publish([(publishing_id, body)], publisher_id=publisher_id)), 0, frame_max=1 << 20
    )
    return event


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = open_broker(tmp_path)
    open_session(broker).declare_stream("orders", {})
    yield broker
    broker.close()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def publishers(broker: Broker, told: Told) -> Publishers:
    publishers = Publishers(
        open_session(broker), cast(Outlet, cast(Any, told)), Limits(message_size_bytes=100), lambda: None
    )
    for number, reference in ((1, None), (2, "anna")):
        publishers.declare(f.DeclarePublisher(number, reference, "orders", correlation_id=number))
    return publishers


def test_it_is_confirmed_to_its_publisher_when_it_is_in_the_stream(
    broker: Broker, publishers: Publishers, told: Told, tmp_path: Path
) -> None:
    publishers.publish(message(1, 7, b"plain"))
    publishers.publish(message(2, 1, b"named"))
    assert not told.said
    broker.write_queued()
    assert sorted(told.said) == [(1, 7, None), (2, 1, None)]
    assert stored(tmp_path, "orders") == [b"plain", b"named"]


def test_what_cannot_be_published_is_refused_at_once(broker: Broker, publishers: Publishers, told: Told) -> None:
    publishers.publish(message(9, 7, b"m"))
    publishers.publish(message(1, 8, bytes(101)))
    publishers.publish(message(1, 9, bytes(100)))
    broker.write_queued()
    assert told.said == [
        (9, 7, ResponseCode.PUBLISHER_DOES_NOT_EXIST),
        (1, 8, ResponseCode.PRECONDITION_FAILED),
        (1, 9, None),
    ]


def test_a_publisher_that_was_deleted_meanwhile_is_not_told(
    broker: Broker, publishers: Publishers, told: Told, tmp_path: Path
) -> None:
    publishers.publish(message(1, 7, b"m"))
    publishers.delete(1)
    broker.write_queued()
    assert not told.said
    assert stored(tmp_path, "orders") == [b"m"]


def test_before_its_stream_is_deleted_it_is_written(broker: Broker, publishers: Publishers, told: Told) -> None:
    publishers.publish(message(1, 7, b"m"))
    open_session(broker).delete_stream("orders")
    broker.write_queued()
    assert told.said == [(1, 7, None)]
