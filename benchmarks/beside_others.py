"""What one client notices of others: logins beside idle connections, the end of a stream beside a reader far behind.

Each beside the same with nobody else there.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from harness import Measurement, report
from serving import served

from headgate import Message
from headgate.client import Client, ServerAddress
from headgate.client.connection import Connection

IDLE = 400
LOGINS = 20
MESSAGES = 30_000
SENT = 100
ROUNDS = 7


@contextlib.contextmanager
def idle_connections(address: ServerAddress) -> Iterator[None]:
    clients = [Connection(address, timeout_s=60, heartbeat_s=0) for _ in range(IDLE)]
    yield
    for client in clients:
        client.close()


@contextlib.contextmanager
def reader_far_behind(address: ServerAddress) -> Iterator[None]:
    """Reads the stream from its start to the last of its first messages, again and again."""
    stop = threading.Event()

    def read() -> None:
        with Client.connect(f"{address.host}:{address.port}") as client:
            while not stop.is_set():
                with client.consumer("orders", start="first", filter=f"number >= {MESSAGES - 100}") as reader:
                    for _ in range(100):
                        reader.next(60)

    reading = threading.Thread(target=read)
    reading.start()
    yield
    stop.set()
    reading.join()


def logins(address: ServerAddress) -> float:
    """Seconds of some logins, one after the other."""
    start = time.perf_counter()
    for _ in range(LOGINS):
        Connection(address, timeout_s=60, heartbeat_s=0).close()
    return time.perf_counter() - start


def at_the_end(address: ServerAddress) -> float:
    """Seconds of sending messages, each when the one before has come to a reader at the end of the stream."""
    with Client.connect(f"{address.host}:{address.port}") as client, client.publisher("orders") as publisher:
        tail = client.consumer("orders", start="next")
        publisher.send(Message(b"first"))
        tail.next(60)
        start = time.perf_counter()
        for _ in range(SENT):
            publisher.send(Message(b"{}"))
            publisher.flush()
            tail.next(60)
        seconds = time.perf_counter() - start
        tail.close()
    return seconds


def measured(
    name: str, run: Callable[[ServerAddress], float], address: ServerAddress, count: int, unit: str
) -> Measurement:
    run(address)
    return Measurement(name, count, [run(address) for _ in range(ROUNDS)], unit)


def main() -> None:
    with served("stream") as server:
        address = ServerAddress("127.0.0.1", server.ports["stream"])
        results = [measured("logins", logins, address, LOGINS, "logins")]
        with idle_connections(address):
            results.append(measured(f"logins beside {IDLE} idle connections", logins, address, LOGINS, "logins"))
        report("beside_idle", "Logins", results, baseline=results[0].name)
        with Client.connect(f"{address.host}:{address.port}") as client:
            client.create_stream("orders")
            with client.publisher("orders") as publisher:
                publisher.send_many(
                    Message(bytes(200), application_properties={"number": number}) for number in range(MESSAGES)
                )
        results = [measured("publish to delivery", at_the_end, address, SENT, "messages")]
        with reader_far_behind(address):
            results.append(measured("beside a reader far behind", at_the_end, address, SENT, "messages"))
        report("beside_far_behind", "The end of a stream, one message at a time", results, baseline=results[0].name)


if __name__ == "__main__":
    main()
