"""Writes what real clients of Service Bus say: `python tests/interop/record_sessions.py FILE`, with tests/ on the path.

A relay between client and server keeps the bytes of each connection. One line of JSON for each: the client, and what it
said, in base64.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiver

from interop.entities import DEFAULT, connection_string, declare_queue, declare_topic
from interop.programs import JAVA_SERVICEBUS, NODE_MODULES, NODE_SERVICEBUS, Client, start
from interop.servers import Served, ServerProcess

TOPIC, SUBSCRIPTION, QUEUE = "recorded", "s", "recorded-queue"


class Relay:
    """Passes on what comes to a port of its own; `said` by each client, in the order of their connections."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.said: list[bytearray] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            server = socket.create_connection(("127.0.0.1", self._port))
            self.said.append(bytearray())
            for source, target, kept in ((client, server, self.said[-1]), (server, client, bytearray())):
                threading.Thread(target=self._pass_on, args=(source, target, kept), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                kept += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def use_python(address: str) -> None:
    """Everything that a receiver of the Python client can do, and a sender."""
    settle: list[Callable[[ServiceBusReceiver, ServiceBusReceivedMessage], None]] = [
        lambda receiver, message: receiver.complete_message(message),
        lambda receiver, message: receiver.abandon_message(message),
        lambda receiver, message: receiver.dead_letter_message(message, reason="why", error_description="because"),
        lambda receiver, message: receiver.defer_message(message),
        lambda receiver, message: print(receiver.renew_message_lock(message)),
    ]
    with ServiceBusClient.from_connection_string(address, retry_total=0) as client:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(
                ServiceBusMessage("m", application_properties={"n": 1, "f": 0.5, "t": "x"}, subject="s", message_id="i")
            )
            sender.send_messages([ServiceBusMessage(str(number)) for number in range(4)])
        with client.get_queue_receiver(QUEUE) as receiver:
            found: list[ServiceBusReceivedMessage] = []
            while len(found) < len(settle):
                found += receiver.receive_messages(len(settle), max_wait_time=5)
            for each, message in zip(settle, found, strict=True):
                each(receiver, message)
            receiver.peek_messages(5, sequence_number=1)
        with client.get_queue_receiver(QUEUE, sub_queue="deadletter", receive_mode="receiveanddelete") as receiver:
            receiver.receive_messages(1, max_wait_time=5)


def use_program(kind: Client) -> Callable[[str], None]:
    """The same with a program in another language, and rules."""

    def use(address: str) -> None:
        program, place = start(kind), {"topic": TOPIC, "subscription": SUBSCRIPTION}
        program.ask("connect", connection_string=address)
        messages: list[dict[str, Any]] = [{"body": str(number), "properties": {"n": number}} for number in range(5)]
        program.ask("send", entity=TOPIC, messages=messages[:2])
        program.ask("send", entity=TOPIC, messages=messages[2:], batch=True)
        program.ask("open", id="r", **place)
        found = program.ask("receive", id="r", count=5)
        for how, message in zip(("complete", "abandon", "dead_letter", "defer"), found, strict=False):
            why = {"reason": "why", "description": "because"} if how == "dead_letter" else {}
            program.ask("settle", id="r", number=message["sequence_number"], how=how, **why)
        program.ask("renew", id="r", number=found[4]["sequence_number"])
        program.ask("peek", id="r", count=3)
        program.ask("shut", id="r")
        program.ask("add_rule", name="red", sql="color = 'red'", action="SET quantity = quantity / 2", **place)
        program.ask("add_rule", name="big", correlation={"label": "big", "properties": {"color": "blue"}}, **place)
        program.ask("rules", **place)
        program.ask("remove_rule", name="red", **place)
        program.ask("remove_rule", name="big", **place)
        program.ask("close")
        program.stop()

    return use


CLIENTS: dict[str, Callable[[str], None]] = {
    f"azure-servicebus {version('azure-servicebus')} (Python)": use_python,
    f"@azure/service-bus {json.loads((NODE_MODULES / '@azure/service-bus/package.json').read_text())['version']}":
        use_program(NODE_SERVICEBUS),
    "azure-messaging-servicebus (Java)": use_program(JAVA_SERVICEBUS),
}  # fmt: skip


def main(file: Path) -> None:
    """Records all clients."""
    with tempfile.TemporaryDirectory() as folder, file.open("w") as out:
        process = ServerProcess(Path(folder))
        served: Served = process.start()
        try:
            declare_topic(served, TOPIC, s=DEFAULT)
            declare_queue(served, QUEUE)
            for client, use in CLIENTS.items():
                relay = Relay(served.amqp)
                use(connection_string(served).replace(str(served.amqp), str(relay.port)))
                for said in relay.said:
                    out.write(json.dumps({"client": client, "said": base64.b64encode(said).decode()}) + "\n")
        finally:
            process.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
