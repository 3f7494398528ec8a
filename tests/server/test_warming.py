from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from headgate import Message
from headgate.client import ServerAddress
from headgate.client.connection import Connection
from headgate.log.files import DiskFile
from headgate.message.batch import EncodedMessages
from headgate.protocols.stream import frames
from headgate.protocols.stream.publishing import PublishConfirm
from headgate.server.amqp import AmqpHandler
from headgate.server.amqp10.publishing import LINK_CREDIT
from headgate.server.settings import ServerSettings
from headgate.server.stream import StreamHandler
from headgate.server.warming import CacheWarming, warming
from headgate.server.warming.warming import PAUSES
from server.running import LIMIT_S, running_server
from server.stepping import SteppedLoop
from waiting import eventually

PAUSE_S = 0.002
PROTOCOLS = ("stream", "AMQP 1.0")


class Warmed:
    """Cache warming whose loop and clock the test moves, with both clients there."""

    def __init__(self, root: Path) -> None:
        self.loop = SteppedLoop()
        settings = msgspec.convert({"root": str(root), "timeouts": {"cache_warming_s": PAUSE_S}}, ServerSettings)
        handlers: dict[str, Any] = {"stream": StreamHandler, "amqp": AmqpHandler}
        self.warming = CacheWarming(cast(Any, self.loop), self.loop.clock, settings, handlers)
        self.loop.settle()

    def confirmed(self) -> dict[str, int]:
        return {protocol: self.warming.confirmed(protocol) for protocol in PROTOCOLS}


@pytest.fixture
def warmed(tmp_path: Path) -> Any:
    made = Warmed(tmp_path)
    yield made
    made.warming.close()
    assert not (tmp_path / ".headgate/warming").exists()


def test_nothing_goes_before_a_client_publishes(warmed: Warmed) -> None:
    warmed.loop.pass_time(1.0)
    assert warmed.confirmed() == {"stream": 0, "AMQP 1.0": 0}
    assert warmed.loop.next_due_s is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_is_warmed_in_the_pauses_behind_its_message_and_not_for_ever(warmed: Warmed, protocol: str) -> None:
    warmed.warming.published(protocol)
    for sent in range(1, PAUSES):
        warmed.loop.pass_time(PAUSE_S * 1.001)
        assert warmed.confirmed() == dict.fromkeys(PROTOCOLS, 0) | {protocol: sent}
    warmed.loop.pass_time(1.0)
    assert warmed.confirmed()[protocol] in (PAUSES - 1, PAUSES)
    assert warmed.loop.next_due_s is None
    warmed.warming.published(protocol)
    warmed.loop.pass_time(PAUSE_S * 1.5)
    assert warmed.confirmed()[protocol] > PAUSES - 1, "it begins again"


def test_a_message_of_a_client_serves_as_well(warmed: Warmed) -> None:
    for _ in range(100):
        warmed.warming.published("stream")
        warmed.loop.pass_time(PAUSE_S / 3)
    assert warmed.confirmed()["stream"] == 0


def test_both_protocols_are_warmed_where_both_publish(warmed: Warmed) -> None:
    for protocol in PROTOCOLS:
        warmed.warming.published(protocol)
    warmed.loop.pass_time(PAUSE_S * 4.5)
    assert warmed.confirmed() == {"stream": 4, "AMQP 1.0": 4}


def test_other_protocols_are_not_warmed(warmed: Warmed) -> None:
    warmed.warming.published("STOMP 1.2")
    assert warmed.loop.next_due_s is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_credit_and_windows_never_end(warmed: Warmed, protocol: str) -> None:
    while (before := warmed.confirmed()[protocol]) <= 2 * LINK_CREDIT:
        warmed.warming.published(protocol)
        warmed.loop.pass_time(PAUSE_S * PAUSES)
        assert warmed.confirmed()[protocol] >= before + PAUSES - 2


def test_segments_come_and_go_and_files_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "_SEGMENT_BYTES", 10_000)
    monkeypatch.setattr(warming, "_SLATE_BYTES", 2_000)
    warmed = Warmed(tmp_path)
    folder = tmp_path / ".headgate/warming/streams/warming"
    first = {path.name for path in folder.glob("*.segment")}
    for _ in range(200):
        warmed.warming.published("stream")
        warmed.loop.pass_time(PAUSE_S * 1.5)
    assert warmed.confirmed()["stream"] == 200
    segments = {path.name: path.stat().st_size for path in folder.glob("*.segment")}
    assert first.isdisjoint(segments) and len(segments) <= 2
    assert max(segments.values()) < 3_000
    warmed.warming.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_full_disk_ends_it_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    warmed = Warmed(tmp_path)
    warmed.warming.published(protocol)
    warmed.loop.pass_time(PAUSE_S * 2.5)
    writes = []

    def full(*_arguments: object) -> None:
        writes.append(1)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(DiskFile, "write", full)
        warmed.loop.pass_time(PAUSE_S)
        tried = len(writes)
        assert tried
        warmed.loop.pass_time(PAUSE_S * 5)
    assert len(writes) == tried and warmed.confirmed()[protocol] == 2
    warmed.warming.published(protocol)
    warmed.loop.pass_time(PAUSE_S * 5)
    assert warmed.confirmed()[protocol] == 2
    warmed.warming.close()


def test_an_error_of_our_own_ends_it_with_one_warning(
    warmed: Warmed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_arguments: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(StreamHandler, "received", fail)
    for protocol in PROTOCOLS:
        warmed.warming.published(protocol)
    warmed.loop.pass_time(PAUSE_S * 5.5)
    assert warmed.confirmed() == {"stream": 0, "AMQP 1.0": 5}, "the other goes on"
    assert caplog.text.count("a connection for cache warming ended") == 1
    assert caplog.text.count("the handler failed") == 1


def test_what_a_killed_server_left_is_replaced(tmp_path: Path) -> None:
    left = Warmed(tmp_path)
    left.warming.published("stream")
    left.loop.pass_time(PAUSE_S * 3)
    again = Warmed(tmp_path)
    again.warming.published("stream")
    again.loop.pass_time(PAUSE_S * 3.5)
    assert again.confirmed()["stream"] == 3
    again.warming.close()


def test_a_server_warms_while_a_client_publishes_and_nobody_sees_it(tmp_path: Path) -> None:
    with running_server(tmp_path, timeouts={"cache_warming_s": PAUSE_S}, stream=[{"name": "orders"}]) as running:
        warming = running.server.warming
        assert warming is not None
        connection = Connection(ServerAddress("127.0.0.1", running.ports["stream"]), timeout_s=LIMIT_S, heartbeat_s=0)
        connection.request(frames.DeclarePublisher(0, None, "orders"), "orders")
        message = EncodedMessages.of([Message(b"1").encode()])
        published = 0

        def is_warm() -> bool:
            nonlocal published
            connection.publish(0, np.array([published], dtype=np.uint64), message, None)
            published += 1
            assert any(isinstance(event, PublishConfirm) for event in connection.events(LIMIT_S))
            return warming.confirmed("stream") > 10

        eventually(is_warm)
        broker, connections = running.context.broker, running.context.connections
        assert running.call(broker.catalogue.names) == ["orders"]
        assert running.call(lambda: broker.catalogue.get("orders").next_offset) == published
        assert (connections.totals.opened, connections.totals.logins) == (1, 1)
        connection.close()
    assert not (tmp_path / "data/.headgate/warming").exists()


@pytest.mark.parametrize("settings", [{"timeouts": {"cache_warming_s": 0}}, {"storage": {"durability": "disk"}}])
def test_a_server_does_not_warm_where_it_should_not(tmp_path: Path, settings: dict[str, Any]) -> None:
    with running_server(tmp_path, **{"timeouts": {"cache_warming_s": PAUSE_S}} | settings) as running:
        assert running.server.warming is None


def test_a_server_starts_where_it_cannot_warm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    in_the_way = tmp_path / "data/.headgate/warming"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("a file")
    with running_server(tmp_path, timeouts={"cache_warming_s": PAUSE_S}) as running:
        assert running.context.is_ready and running.server.warming is None
    assert "no cache warming" in caplog.text
