"""Servers for tests of applications: what they are told, what is there, and that nothing stays."""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import os
import socket
import ssl
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.testing import HeadgateServer, running_server
from waiting import LIMIT_S

QUEUE = {"queue": [{"name": "jobs"}]}
EMULATOR = {
    "UserConfig": {
        "Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "mails"}], "Topics": []}],
        "Logging": {"Type": "File"},
    }
}


def entities_of(server: HeadgateServer) -> list[str]:
    login = base64.b64encode(f"{server.user}:{server.password}".encode()).decode()
    request = urllib.request.Request(f"{server.http}/api/entities", headers={"Authorization": f"Basic {login}"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return sorted(each["name"] for each in json.load(answer))


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_a_server_has_the_entities_that_are_named_and_leaves_nothing(tmp_path: Path) -> None:
    emulator, tables = tmp_path / "emulator.json", tmp_path / "entities.toml"
    emulator.write_text(json.dumps(EMULATOR), encoding="utf-8")
    tables.write_text('[[topic]]\nname = "orders"\nsubscription = [{ name = "all" }]\n', encoding="utf-8")
    with running_server():
        pass
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    with running_server(QUEUE, emulator, tables) as server:
        assert entities_of(server) == ["jobs", "mails", "orders"]
        root = server.authority.parents[2]
        assert root.is_dir() and server.authority.is_file()
        with running_server() as other:
            assert entities_of(other) == [] and not set(other.ports.values()) & set(server.ports.values())
    assert (set(threading.enumerate()) - threads, open_descriptors()) == (set(), descriptors)
    assert not root.exists()
    for port in server.ports.values():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((server.host, port), LIMIT_S)


def test_a_test_that_fails_with_open_clients_leaves_nothing_either() -> None:
    with running_server():
        pass
    threads = threading.active_count()
    with contextlib.ExitStack() as clients:

        def fail(server: HeadgateServer) -> None:
            for port in server.ports.values():
                clients.enter_context(socket.create_connection((server.host, port), LIMIT_S))
            raise AssertionError("wrong")

        with pytest.raises(AssertionError, match="wrong"), running_server() as server:
            fail(server)
    assert threading.active_count() == threads and not server.authority.exists()


def test_addresses_are_in_the_form_that_clients_take() -> None:
    with running_server() as server:
        assert server.servicebus.startswith(f"Endpoint=sb://127.0.0.1:{server.ports['amqp']};SharedAccessKeyName=")
        assert server.servicebus.endswith(";UseDevelopmentEmulator=true;")
        assert f":{server.ports['servicebus']};" in server.servicebus_administration
        assert server.amqp == f"amqp://guest:guest@127.0.0.1:{server.ports['amqp']}/"
        assert server.stream == f"rabbitmq-stream://guest:guest@127.0.0.1:{server.ports['stream']}/"
        assert server.stomp == f"stomp://guest:guest@127.0.0.1:{server.ports['stomp']}/"
        context = ssl.create_default_context(cafile=str(server.authority))
        address = f"https://127.0.0.1:{server.ports['servicebus']}/health"
        with urllib.request.urlopen(address, timeout=LIMIT_S, context=context) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("entities", "said"),
    [
        ({"queues": []}, "unknown key queues; known are queue, topic"),
        ({"queue": [{"name": "jobs", "size": 1}]}, r"unknown key queue\[0\]\.size"),
        ({"topic": [{"name": "t", "subscription": [{"name": "s", "rule": [{"name": "r", "sql": "a ="}]}]}]}, "a ="),
        (Path("nowhere.json"), "nowhere.json"),
        (Path("nowhere.toml"), "nowhere.toml"),
    ],
)
def test_wrong_entities_are_named_and_no_server_is_left(entities: Any, said: str) -> None:
    threads = threading.active_count()
    with pytest.raises(ConfigError, match=said), running_server(entities):
        pass
    assert threading.active_count() == threads
