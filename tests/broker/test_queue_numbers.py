"""Numbers of streams for message ids: kept over restarts, never another stream's."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers import open_broker
from headgate.broker import Broker
from headgate.errors import ConfigError, StorageFullError
from headgate.log import decode_checked_if_noted, encode_checked

QUEUES = ("a", "b", "c")


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    broker = open_broker(tmp_path)
    for name in QUEUES:
        broker.streams.declare(name, {})
    return broker


def numbers(broker: Broker) -> list[int]:
    return [broker.queue_numbers.of(broker.catalogue.get(name)) for name in QUEUES]


def test_a_stream_has_its_number_for_ever(broker: Broker) -> None:
    first = numbers(broker)
    assert len({0, *first}) == 4
    assert numbers(broker) == first
    broker.close()
    again = open_broker(broker.root)
    assert [again.queue_numbers.find(number) for number in first] == ["a", "b", "c"]
    assert numbers(again)[::-1] == first[::-1]
    assert again.queue_numbers.find(0) is again.queue_numbers.find(first[-1] + 1) is None


def test_the_number_of_a_deleted_stream_is_nobody_s_until_all_were_used(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.broker.queue_numbers.MAX_NUMBER", 4)
    first = numbers(broker)
    for _ in range(2):
        broker.streams.delete(broker.catalogue.get("a"))
        broker.streams.declare("a", {})
        assert broker.queue_numbers.find(first[0]) is None
        assert open_broker(broker.root).queue_numbers.find(first[0]) is None, "a restart, without a clean stop"
        second = numbers(broker)
        assert second[1:] == first[1:]
        assert second[0] not in first
        first = second
    broker.streams.declare("d", {})
    assert broker.queue_numbers.of(broker.catalogue.get("d")) > 0
    broker.streams.declare("e", {})
    assert broker.queue_numbers.of(broker.catalogue.get("e")) == 0, "all are in use"


def test_a_number_that_cannot_be_written_down_is_not_said(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise StorageFullError("no room", path=broker.root)

    with monkeypatch.context() as patch:
        patch.setattr("headgate.broker.private_file.replace_file", full)
        assert numbers(broker) == [0, 0, 0]
    assert 0 not in numbers(broker)


def test_a_file_of_numbers_that_is_none_is_refused(broker: Broker) -> None:
    numbers(broker)
    broker.close()
    path = broker.root / ".headgate" / "queue-numbers.json"
    path.write_bytes(encode_checked(decode_checked_if_noted(path.read_bytes(), dict) | {"last": -3}))
    with pytest.raises(ConfigError, match="not between 1 and"):
        open_broker(broker.root)
