from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast
from unittest import mock

import msgspec
import pytest

from headgate.clock import SystemClock
from headgate.server.acceptor import Acceptor
from headgate.server.connections import Connections
from headgate.server.context import ServerContext
from headgate.server.event_loop import EventLoop
from headgate.server.process import new_loop
from headgate.server.settings import ServerSettings
from headgate.server.transport import Handler, Transport
from server.stepping import SteppedLoop
from waiting import LIMIT_S, until_closed

LARGE = [bytes([number]) * 700_001 for number in range(20)]
"""Far more than a socket takes at once."""


class FakeBroker:
    def __init__(self) -> None:
        self.written = 0

    def end_turn(self) -> None:
        pass

    def write_queued(self) -> None:
        self.written += 1

    def tick(self, now_ms: int) -> None:
        pass


class Echo:
    """Sends back what comes; single letters are commands to it."""

    def __init__(self, transport: Transport, context: ServerContext) -> None:
        self.transport = transport
        self.context = context
        self.lost_for: list[Exception | None] = []
        self.is_lost = threading.Event()
        self.floods = False
        self.flooded = 0
        self.ticks = 0
        context.connections.of(transport).user = "somebody"

    def received(self, data: memoryview) -> None:
        match bytes(data):
            case b"FAIL":
                raise ValueError("an error of ours")
            case b"CLOSE":
                self.transport.write(b"bye")
                self.transport.close()
            case b"FLOOD":
                self.floods = True
                self.writable()
            case b"WORK":
                self.transport.run_in_worker(lambda: threading.current_thread().name, self.worked)
            case b"PIECES":
                self.transport.write([b"a" * 100_000, b"b" * 100_000])
                self.transport.write(b"c")
            case b"LARGE":
                self.transport.write(LARGE)
                # A turn later, when the large pieces are on their way.
                self.transport.call_soon(lambda: self.transport.call_soon(lambda: self.transport.write(b"end")))
            case b"LARGE AND WRONG":
                self.transport.write([*LARGE, cast(bytes, "text")])
            case b"LARGE AND CLOSE":
                self.transport.write(LARGE)
                self.transport.close()
            case b"LARGE AND LEAVE":
                self.transport.write(LARGE)
                self.transport.leave()
            case b"SOON":
                self.transport.call_soon(lambda: self.transport.write(b"soon"))
                self.transport.write(b"now ")
            case other:
                self.transport.write(other)

    def worked(self, result: object) -> None:
        self.transport.write(f"{result} {threading.current_thread().name}".encode())

    def writable(self) -> None:
        while self.floods and self.transport.is_writable:
            self.transport.write(bytes(65536))
            self.flooded += 65536

    def tick(self, now_ms: int) -> None:
        self.ticks += 1

    def lost(self, reason: Exception | None) -> None:
        self.lost_for.append(reason)
        self.is_lost.set()

    def shut_down(self) -> None:
        self.transport.write(b"the server stops")
        self.transport.close()


class Running:
    """A event loop with one listener whose loop runs in a thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, make: Callable[[Transport, ServerContext], Handler], **settings: Any
    ):
        self.loop = loop
        self.broker = FakeBroker()
        self.made: list[Any] = []
        self.make = make
        self.settings = msgspec.convert(settings, ServerSettings)
        self.thread = threading.Thread(target=loop.run_forever, name="loop")
        self.thread.start()
        self.port = self.wait(self.start())

    def wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(LIMIT_S)

    async def start(self) -> int:
        self.event_loop = EventLoop(self.loop)
        self.connections = Connections()
        self.event_loop.start(
            ServerContext(cast(Any, self.broker), self.settings, SystemClock(), cast(Any, None), self.connections)
        )
        listening = socket.create_server(("127.0.0.1", 0))
        self.acceptor = Acceptor(self.event_loop)
        self.acceptor.start()
        await self.acceptor.listen("stream", listening, self.make_handler)
        return int(listening.getsockname()[1])

    def make_handler(self, transport: Transport, context: ServerContext) -> Handler:
        handler = self.make(transport, context)
        self.made.append(handler)
        return handler

    def until(self, condition: Callable[[], Any]) -> Any:
        """What `condition` gives in the loop's thread, as soon as that is true of the turns of the loop."""

        async def turns() -> Any:
            while not (found := condition()):
                await asyncio.sleep(0.001)
            return found

        return self.wait(turns())

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), LIMIT_S)

    async def stop_event_loop(self) -> None:
        self.acceptor.stop()
        await self.acceptor.end_connections()
        self.event_loop.close()

    def stop(self) -> None:
        self.wait(self.stop_event_loop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(LIMIT_S)
        self.loop.close()


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoop:
    return new_loop() if request.param == "uvloop" else asyncio.new_event_loop()


@pytest.fixture
def running(loop: asyncio.AbstractEventLoop) -> Iterator[Running]:
    # Nothing that these tests read comes later than that, however busy the machine is.
    running = Running(loop, Echo, timeouts={"linger_s": 10 * LIMIT_S, "shutdown_s": 2.0})
    yield running
    running.stop()


def receive(client: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = client.recv(count - len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


def test_what_is_written_comes_out_in_order(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"hello")
        assert receive(client, 5) == b"hello"
        client.sendall(b"PIECES")
        assert receive(client, 200_001) == b"a" * 100_000 + b"b" * 100_000 + b"c"


def test_large_writes_come_out_in_order_with_small_ones_around_them(running: Running) -> None:
    with running.connect() as client:
        for _ in range(3):
            client.sendall(b"LARGE")
            assert receive(client, len(b"".join(LARGE))) == b"".join(LARGE)
            assert receive(client, 3) == b"end"
            client.sendall(b"small")
            assert receive(client, 5) == b"small"


def test_large_writes_are_sent_outside_the_loop_and_others_are_served_meanwhile(running: Running) -> None:
    with running.connect() as stuck, running.connect() as other:
        stuck.sendall(b"LARGE")
        assert receive(stuck, 1) == b"\0"
        other.sendall(b"LARGE")
        assert receive(other, len(b"".join(LARGE)) + 3) == b"".join([*LARGE, b"end"])
        assert receive(stuck, len(b"".join(LARGE)) + 2) == b"".join([*LARGE, b"end"])[1:]
    assert any(thread.name.startswith("headgate-sender") for thread in threading.enumerate())


def test_a_close_sends_large_writes_first(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"LARGE AND CLOSE")
        assert until_closed(client) == b"".join(LARGE)
    assert running.made[0].is_lost.wait(LIMIT_S) and running.made[0].lost_for == [None]


def test_a_peer_that_says_no_more_gets_the_large_writes_that_were_made(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"LARGE")
        assert receive(client, 1) == b"\0"
        client.shutdown(socket.SHUT_WR)
        assert until_closed(client).removesuffix(b"end") == b"".join(LARGE)[1:]
    assert running.made[0].is_lost.wait(LIMIT_S)


@pytest.mark.parametrize("reset", [False, True])
def test_a_peer_that_goes_away_amid_large_writes_leaves_nothing(running: Running, reset: bool) -> None:
    with running.connect() as client:
        client.sendall(b"small")
        assert receive(client, 5) == b"small"
    assert running.made[0].is_lost.wait(LIMIT_S)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(1, 6):
        client = running.connect()
        client.sendall(b"LARGE")
        assert receive(client, 1) == b"\0"
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        assert running.made[number].is_lost.wait(LIMIT_S)
    running.until(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_an_error_of_ours_in_a_large_write_is_told_and_ends_its_connection(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with running.connect() as client, caplog.at_level(logging.ERROR):
        client.sendall(b"LARGE AND WRONG")
        until_closed(client)
    assert running.made[0].is_lost.wait(LIMIT_S)
    assert isinstance(running.made[0].lost_for[0], TypeError) and "'str'" in caplog.text
    assert running.connections.totals.failed == 1


def test_a_connection_that_is_ended_amid_large_writes_is_gone_at_once(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"LARGE")
        assert receive(client, 1) == b"\0"
        running.loop.call_soon_threadsafe(running.made[0].transport.abort)
        assert running.made[0].is_lost.wait(LIMIT_S)
        assert len(until_closed(client)) < len(b"".join(LARGE))


def test_calls_of_the_next_turn_come_behind_this_one(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"SOON")
        assert receive(client, 8) == b"now soon"


def test_an_answer_is_sent_before_the_calls_that_others_asked_for(running: Running) -> None:
    with running.connect() as answered, running.connect() as other:
        answer, called = running.until(lambda: len(running.made) == 2 and [each.transport for each in running.made])

        def end_turn() -> None:
            answer.write(b"confirmed")
            called.call_soon(lambda: called.write(receive(answered, 9)))

        running.loop.call_soon_threadsafe(end_turn)
        assert receive(other, 9) == b"confirmed"


def test_a_close_sends_what_was_written_before_though_the_peer_still_sends(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"CLOSE")
        assert receive(client, 3) == b"bye"
        client.sendall(bytes(100_000))
        assert client.recv(10) == b""
    assert running.made[0].is_lost.wait(LIMIT_S) and running.made[0].lost_for == [None]


def test_a_peer_that_closes_first_while_a_thread_sends_has_the_rest_and_the_end(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"LARGE AND LEAVE")
        client.shutdown(socket.SHUT_WR)
        assert until_closed(client) == b"".join(LARGE)
    assert running.made[0].is_lost.wait(LIMIT_S)


def test_a_closed_connection_whose_peer_stays_is_ended_after_the_linger_time(loop: asyncio.AbstractEventLoop) -> None:
    running = Running(loop, Echo, timeouts={"linger_s": 0.1})
    try:
        with running.connect() as client:
            client.sendall(b"CLOSE")
            assert receive(client, 3) == b"bye"
            assert running.made[0].is_lost.wait(LIMIT_S)
    finally:
        running.stop()


def test_an_error_in_a_handler_ends_its_connection_and_no_other(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with running.connect() as good, running.connect() as bad, caplog.at_level(logging.ERROR):
        good.sendall(b"1")
        assert receive(good, 1) == b"1"
        bad.sendall(b"FAIL")
        assert until_closed(bad) == b""
        good.sendall(b"2")
        assert receive(good, 1) == b"2"
        (reason,) = running.until(lambda: running.made[1].lost_for)
    assert isinstance(reason, ValueError) and "an error of ours" in caplog.text
    assert running.connections.totals.failed == 1


def test_a_reader_that_does_not_read_stops_its_handler_until_it_reads_again(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"FLOOD")
        assert receive(client, 1) == b"\0"
        handler = running.made[0]
        held = running.until(lambda: not handler.transport.is_writable and handler.flooded)
        assert held < 64 * 1024 * 1024
        assert len(receive(client, held)) == held
        assert running.until(lambda: handler.flooded > held)
    assert running.made[0].is_lost.wait(LIMIT_S)


def test_work_runs_in_another_thread_and_its_result_comes_back_to_the_loop(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"WORK")
        worker, back = client.recv(100).decode().split()
    assert worker.startswith("headgate-worker") and back == "loop"


def test_the_broker_writes_in_the_turn_in_which_it_is_woken_once(running: Running) -> None:
    done = threading.Event()

    def wake() -> None:
        running.event_loop.wake()
        running.event_loop.wake()
        running.event_loop.call_soon(done.set)

    running.loop.call_soon_threadsafe(wake)
    assert done.wait(LIMIT_S) and running.broker.written == 1


def test_connections_are_counted_with_their_bytes_and_forgotten(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"abc")
        receive(client, 3)
        (record,) = running.connections
        assert (record.listener, record.bytes_received, record.bytes_sent) == ("stream", 3, 3)
        assert record.peer.is_loopback and record.peer.local_host == "127.0.0.1"
    assert running.made[0].is_lost.wait(LIMIT_S)
    assert list(running.connections) == [] and running.connections.bytes_received() == {"stream": 3}


def test_a_connection_beyond_the_limit_is_closed_at_once(loop: asyncio.AbstractEventLoop) -> None:
    running = Running(loop, Echo, limits={"connections": 1})
    try:
        with running.connect() as first:
            first.sendall(b"1")
            assert receive(first, 1) == b"1"
            with running.connect() as second:
                assert until_closed(second) == b""
            first.sendall(b"2")
            assert receive(first, 1) == b"2"
        assert running.made[0].is_lost.wait(LIMIT_S)
        assert running.connections.totals.refused == 1
        with running.connect() as third:
            third.sendall(b"3")
            assert receive(third, 1) == b"3"
    finally:
        running.stop()


def test_a_client_that_does_not_say_who_it_is_is_closed(loop: asyncio.AbstractEventLoop) -> None:
    class Stranger(Echo):
        def __init__(self, transport: Transport, context: ServerContext) -> None:
            super().__init__(transport, context)
            context.connections.of(transport).user = None

    running = Running(loop, Stranger, timeouts={"handshake_s": 0.1})
    try:
        with running.connect() as client:
            assert until_closed(client) == b""
        assert running.made[0].is_lost.wait(LIMIT_S)
        assert running.connections.totals.timed_out == 1
    finally:
        running.stop()


def test_stopping_lets_handlers_say_good_bye(loop: asyncio.AbstractEventLoop) -> None:
    running = Running(loop, Echo, timeouts={"shutdown_s": 2.0})
    with running.connect() as client:
        client.sendall(b"1")
        assert receive(client, 1) == b"1"
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        assert until_closed(client) == b"the server stops"
    stopping.join(LIMIT_S)
    assert not stopping.is_alive()
    with pytest.raises(OSError):
        running.connect()


def test_stopping_waits_for_the_answer_of_clients(loop: asyncio.AbstractEventLoop) -> None:
    class Polite(Echo):
        def shut_down(self) -> None:
            self.transport.write(b"leaving?")

    running = Running(loop, Polite, timeouts={"shutdown_s": 5.0})
    with running.connect() as client:
        client.sendall(b"1")
        assert receive(client, 1) == b"1"
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        assert receive(client, 8) == b"leaving?"
        client.sendall(b"CLOSE")
        assert until_closed(client) == b"bye"
    stopping.join(LIMIT_S)
    assert not stopping.is_alive()


def test_stopping_ends_those_that_do_not_leave(loop: asyncio.AbstractEventLoop) -> None:
    class Stubborn(Echo):
        def shut_down(self) -> None:
            pass

    running = Running(loop, Stubborn, timeouts={"shutdown_s": 0.1})
    with running.connect() as client:
        client.sendall(b"1")
        assert receive(client, 1) == b"1"
        running.stop()
    assert running.made[0].is_lost.is_set()


class Stepped:
    """A event loop whose loop and clock the test moves."""

    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.broker = FakeBroker()
        self.event_loop = EventLoop(cast(Any, self.loop))
        clock, settings = self.loop.clock, ServerSettings()
        self.event_loop.start(ServerContext(cast(Any, self.broker), settings, clock, cast(Any, None), Connections()))

    def connection(self, protocol: str) -> Any:
        """One that notes nothing but its protocol."""
        return mock.Mock(record=mock.Mock(protocol=protocol))


def test_an_event_loop_that_has_nothing_to_do_sleeps() -> None:
    stepped = Stepped()
    stepped.event_loop.wake()
    stepped.loop.step()
    assert stepped.broker.written == 1
    assert not stepped.loop.calls
