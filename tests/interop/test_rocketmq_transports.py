"""TLS, and access keys, with unmodified clients of RocketMQ."""

from __future__ import annotations

import dataclasses
import json
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme

from headgate.broker import KEYS_NAME, AccessKeys, KeyRights
from headgate.log import PRIVATE_FOLDER
from interop.programs import (
    GO_ROCKETMQ,
    GO_ROCKETMQ_CLASSIC,
    JAVA_ROCKETMQ,
    JAVA_ROCKETMQ_CLASSIC,
    NODE_ROCKETMQ,
    PYTHON_ROCKETMQ,
    Client,
    bodies,
    start,
)
from interop.rocketmq import error_of, of_server
from interop.servers import Served, ServerProcess
from waiting import LIMIT_S

CLASSIC = [JAVA_ROCKETMQ_CLASSIC, GO_ROCKETMQ_CLASSIC]
CLIENTS = [PYTHON_ROCKETMQ, NODE_ROCKETMQ, JAVA_ROCKETMQ, GO_ROCKETMQ, *CLASSIC]

TOPIC = "orders"
REFUSED = r"401|UNAUTHORIZED|failed to fetch|(?i:no route info|route info not found)"
"""Clients ask for the queues of a topic first; some keep to themselves why they were not told."""


@dataclasses.dataclass(frozen=True, slots=True)
class Guarded:
    """A server with TLS and one key."""

    served: Served
    authority: Path
    secret: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder, authority = tmp_path_factory.mktemp("certificate"), trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        str(folder / "server.pem")
    )
    others = ("servicebus_tls", "amqps", "https", "stomp_tls", "stream_tls")
    listeners = {"rocketmq_tls": 0, **dict.fromkeys(others, "off")}
    tls = {"certificate": str(folder / "server.pem"), "key": str(folder / "server.pem")}
    process = ServerProcess(tmp_path_factory.mktemp("server"), {"listeners": listeners, "tls": tls})
    keys = AccessKeys(process.root / PRIVATE_FOLDER / KEYS_NAME)
    secret = keys.add("app", KeyRights(send=f"^{TOPIC}$", listen=f"^{TOPIC}$")).primary
    try:
        served = process.start()
        of_server(served).topic(TOPIC, queues=1)
        yield Guarded(served, folder / "authority.pem", secret)
    finally:
        process.close()


@pytest.fixture(scope="module")
def outcomes(guarded: Guarded) -> Iterator[dict[Client, Future[None]]]:
    """What becomes of each client; they work side by side."""
    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        yield {client: pool.submit(_exchange, guarded, client) for client in CLIENTS}


def _encrypted_at(guarded: Guarded) -> set[str]:
    """The listeners that have clients with TLS now."""
    request = urllib.request.Request(f"http://localhost:{guarded.served.ports['http']}/api/connections")
    request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return {row["listener"] for row in json.load(answer) if row["encrypted"]}


def _exchange(guarded: Guarded, client: Client) -> None:
    """Send and receive with the key, over TLS where the protocol has it; a wrong secret is refused."""
    ports, group = guarded.served.ports, re.sub(r"\W+", "-", client.name)
    # Two of the clients check whom they talk to.
    trust = [(name, str(guarded.authority)) for name in ("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "NODE_EXTRA_CA_CERTS")]
    trusting = dataclasses.replace(client, environment=(*client.environment, *trust))
    port = ports["rocketmq_names"] if client in CLASSIC else ports["rocketmq_tls"]
    place = {"host": "localhost", "port": port, "tls": client not in CLASSIC}
    if client is JAVA_ROCKETMQ_CLASSIC:
        # Its settings are properties of the virtual machine: it checks whom it talks to.
        options = f"-Dtls.enable=true -Dtls.client.authServer=true -Dtls.client.trustCertPath={guarded.authority}"
        told = ("JAVA_TOOL_OPTIONS", f"{options} -Dtls.test.mode.enable=false")
        trusting = dataclasses.replace(trusting, environment=(*trusting.environment, told))
    program = start(trusting)
    program.ask("connect", **place, keys=["app", guarded.secret])
    program.ask("push", id="push", group=group, topics={TOPIC: {"tag": group}})
    program.ask("send", topic=TOPIC, messages=[{"body": "m", "tag": group}])
    assert bodies(program.ask("take", id="push", until=["m"])) == ["m"]
    if client is JAVA_ROCKETMQ_CLASSIC:
        assert {"rocketmq_names", "rocketmq_classic"} <= _encrypted_at(guarded)
    program.stop()
    program = start(trusting)
    program.ask("connect", **place, keys=["app", "wrong"])
    error = error_of(program, "send", topic=TOPIC, messages=[{"body": "m"}])
    assert re.search(REFUSED, error), error
    program.stop()


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_client(outcomes: dict[Client, Future[None]], client: Client) -> None:
    outcomes[client].result(60)
