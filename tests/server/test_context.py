from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from headgate.clock import SystemClock
from headgate.server.connections import Connections, ip_address
from headgate.server.context import ServerContext
from headgate.server.settings import ServerSettings
from headgate.server.transport import Peer

HERE = Peer("127.0.0.1", 1, is_loopback=True, local_host="127.0.0.1")
HERE_WITH_TLS = Peer("127.0.0.1", 1, is_loopback=True, is_encrypted=True, local_host="127.0.0.1")
HERE_BY_IPV6 = Peer("::1", 1, is_loopback=True, local_host="::1")
ELSEWHERE = Peer("192.0.2.7", 1, is_loopback=False, local_host="192.0.2.1")
WITH_TLS = Peer("192.0.2.7", 1, is_loopback=False, is_encrypted=True, local_host="192.0.2.1")
PORTS = {"stream": 15552, "stream_tls": 15551, "http": 15672, "https": 15671}


def context(ports: dict[str, int] = PORTS, **settings: Any) -> ServerContext:
    given = msgspec.convert(settings, ServerSettings)
    made = ServerContext(cast(Any, None), given, SystemClock(), cast(Any, None))
    made.ports.update(ports)
    return made


@pytest.mark.parametrize(
    ("peer", "expected"),
    [(HERE, ("localhost", 15552)), (ELSEWHERE, ("192.0.2.1", 15552)), (WITH_TLS, ("192.0.2.1", 15551))],
)
def test_clients_are_told_the_address_by_which_they_came(peer: Peer, expected: tuple[str, int]) -> None:
    assert context().advertised_address(peer) == expected


@pytest.mark.parametrize(
    ("peer", "expected"),
    [(HERE, "127.0.0.1"), (HERE_WITH_TLS, "localhost"), (HERE_BY_IPV6, "localhost"), (ELSEWHERE, "192.0.2.1")],
)
def test_classic_clients_are_told_the_address_in_numbers(peer: Peer, expected: str) -> None:
    assert context().advertised_classic_address(peer) == (expected, 10911)
    told = context(advertised={"host": "broker.example"}).advertised_classic_address(peer)
    assert told == ("broker.example", 10911)


def test_what_is_configured_as_advertised_is_told_to_all() -> None:
    advertised = {"host": "broker.example", "port": 7000, "tls_port": 7001}
    told = [context(advertised=advertised).advertised_address(peer) for peer in (HERE, ELSEWHERE, WITH_TLS)]
    assert told == [("broker.example", 7000), ("broker.example", 7000), ("broker.example", 7001)]


def test_the_http_listener_is_that_with_the_encryption_of_the_client() -> None:
    assert [context().http_listener(peer) for peer in (HERE, WITH_TLS)] == ["http:15672", "https:15671"]
    assert context({"https": 1}).http_listener(HERE) == "https:1"
    assert context({"stream": 1}).http_listener(HERE) is None


def test_an_ipv4_client_of_a_socket_for_both_families_is_an_ipv4_client() -> None:
    assert str(ip_address("::ffff:127.0.0.1")) == "127.0.0.1" and ip_address("::ffff:127.0.0.1").is_loopback
    assert str(ip_address("2001:db8::1")) == "2001:db8::1"


def test_a_record_of_nobody_is_not_listed() -> None:
    class Asker:
        peer = HERE

    connections = Connections()
    record = connections.of(cast(Any, Asker()))
    assert (record.number, len(connections)) == (0, 0)
