"""The unmodified clients of Service Bus with TLS and over WebSockets, as they are used without an emulator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from headgate.server.certificates import OwnCertificate, own_certificate
from interop.entities import declare_queue
from interop.programs import NODE_SERVICEBUS, bodies, start
from interop.servers import Served, ServerProcess

servicebus = pytest.importorskip("azure.servicebus", reason="the Python clients are not installed: `make clients`")
aio = pytest.importorskip("azure.servicebus.aio")
pytest.importorskip("websocket", reason="the Python clients are not installed: `make clients`")
pytest.importorskip("aiohttp", reason="the Python clients are not installed: `make clients`")

Message = servicebus.ServiceBusMessage
WEB_SOCKET = servicebus.TransportType.AmqpOverWebsocket
LARGE = "large " * 100_000


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> OwnCertificate:
    return own_certificate(tmp_path_factory.mktemp("certificate"), now_ms=int(time.time() * 1000))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificate: OwnCertificate) -> Iterator[Served]:
    listeners = {
        "amqps": 0,
        "servicebus_tls": 0,
        "https": "off",
        "stomp_tls": "off",
        "stream_tls": "off",
        "rocketmq_tls": "off",
    }
    tls = {"certificate": str(certificate.certificate), "key": str(certificate.certificate)}
    process = ServerProcess(tmp_path_factory.mktemp("server"), {"listeners": listeners, "tls": tls})
    try:
        yield process.start()
    finally:
        process.close()


@pytest.fixture
def queue(server: Served, name: str) -> str:
    return declare_queue(server, name)


def text(server: Served, listener: str, *, emulator: bool = False) -> str:
    """A connection string."""
    return (
        f"Endpoint=sb://localhost:{server.ports[listener]};SharedAccessKeyName=Root;SharedAccessKey=SAS_KEY_VALUE;"
        + "UseDevelopmentEmulator=true;" * emulator
    )


def at(server: Served, listener: str, transport: Any) -> dict[str, Any]:
    """How the Python client is told a port that is not the service's."""
    address = f"sb://localhost:{server.ports[listener]}"
    return {"transport_type": transport, "custom_endpoint_address": address, "retry_total": 0}


def exchange(client: Any, queue: str) -> None:
    with client, client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages([Message("m"), Message("n")])
        sender.send_messages(Message(LARGE))
        found: list[Any] = []
        while len(found) < 3:
            found += receiver.receive_messages(3, max_wait_time=10)
        assert [str(message) for message in found] == ["m", "n", LARGE]
        for message in found:
            receiver.complete_message(message)
        assert receiver.peek_messages(1, sequence_number=1) == []


def test_python_with_tls(server: Served, certificate: OwnCertificate, queue: str) -> None:
    given, options = text(server, "amqps"), at(server, "amqps", servicebus.TransportType.Amqp)
    exchange(
        servicebus.ServiceBusClient.from_connection_string(
            given, connection_verify=str(certificate.authority), **options
        ),
        queue,
    )
    # Who does not trust the certificate does not connect.
    with (
        servicebus.ServiceBusClient.from_connection_string(given, **options) as client,
        pytest.raises(servicebus.exceptions.ServiceBusError, match=r"(?i)certificate"),
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(Message("m"))


@pytest.mark.parametrize(("listener", "emulator"), [("servicebus", True), ("servicebus_tls", False)])
def test_python_over_web_sockets(
    server: Served, certificate: OwnCertificate, queue: str, listener: str, emulator: bool
) -> None:
    options = at(server, listener, WEB_SOCKET)
    if not emulator:
        options["connection_verify"] = str(certificate.authority)
    given = text(server, listener, emulator=emulator)
    exchange(servicebus.ServiceBusClient.from_connection_string(given, **options), queue)


def test_the_asynchronous_client_over_web_sockets(server: Served, certificate: OwnCertificate, queue: str) -> None:
    options = at(server, "servicebus", WEB_SOCKET) | {"connection_verify": str(certificate.authority)}

    async def use() -> None:
        async with aio.ServiceBusClient.from_connection_string(text(server, "servicebus"), **options) as client:
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages([Message("m"), Message("n")])
                await sender.send_messages(Message(LARGE))
            async with client.get_queue_receiver(queue) as receiver:
                found: list[Any] = []
                while len(found) < 3:
                    found += await receiver.receive_messages(3, max_wait_time=10)
                assert [str(message) for message in found] == ["m", "n", LARGE]
                await asyncio.gather(*map(receiver.complete_message, found))

    asyncio.run(use())


def test_javascript_over_web_sockets(server: Served, certificate: OwnCertificate, queue: str) -> None:
    authority = ("NODE_EXTRA_CA_CERTS", str(certificate.authority))
    program = start(replace(NODE_SERVICEBUS, environment=(*NODE_SERVICEBUS.environment, authority)))
    program.ask("connect", connection_string=text(server, "servicebus_tls"), web_socket=True)
    program.ask("send", entity=queue, batch=True, messages=[{"body": str(number)} for number in range(20)])
    program.ask("send", entity=queue, messages=[{"body": LARGE}])
    program.ask("open", id="r", queue=queue)
    found = program.ask("receive", id="r", count=21)
    assert bodies(found) == [*map(str, range(20)), LARGE]
    for message in found:
        program.ask("settle", id="r", number=message["sequence_number"], how="complete")
    assert program.ask("peek", id="r", count=1) == []
    program.ask("close")
    program.stop()
