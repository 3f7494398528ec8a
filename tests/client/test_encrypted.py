"""Encrypted connections: certificates are checked, and may say who a client is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from headgate.client import Client, Management, Retry, ServerAddress, Tls
from headgate.errors import AuthenticationError, EncryptionError
from headgate.server.stream import StreamHandler
from server.running import RunningServer, running_server
from waiting import LIMIT_S


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of one authority: the server's, and that of the user `reader`."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name, made in (
        ("server", authority.issue_cert("127.0.0.1")),
        ("reader", authority.issue_cert(common_name="reader")),
    ):
        made.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        for pem in made.cert_chain_pems:
            pem.write_to_path(str(folder / f"{name}.pem"), append=True)
    return folder


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[RunningServer]:
    tls = {
        "certificate": str(folder / "server.pem"),
        "key": str(folder / "server.key"),
        "ca": str(folder / "ca.pem"),
        "verify_client": "optional",
    }
    with running_server(folder, handlers={"stream": StreamHandler}, tls=tls) as started:
        users = started.context.broker.users
        started.call(lambda: users.add("reader", None))
        yield started


@pytest.fixture
def address(folder: Path, running: RunningServer) -> ServerAddress:
    return ServerAddress("127.0.0.1", running.ports["stream_tls"], tls=Tls(ca=str(folder / "ca.pem")))


def test_a_server_with_a_certificate_of_a_known_authority_is_trusted(address: ServerAddress) -> None:
    with Client.connect(address) as client:
        client.create_stream("encrypted")
        with client.publisher("encrypted") as publisher:
            publisher.send_many([b"x" * 10_000] * 100)
        subscription = client.consumer("encrypted", start="first")
        subscription.close()
        assert client.statistics("encrypted").first_chunk_id == 0


def test_a_server_of_an_unknown_authority_is_not(address: ServerAddress) -> None:
    # Trying again changes nothing, so it is told at once.
    with pytest.raises(EncryptionError, match=r"self-signed certificate.* SSL_CERT_FILE"):
        Client.connect(replace(address, tls=Tls()), retry=Retry(give_up_after_s=10 * LIMIT_S))
    lists = Management.of(f"https://127.0.0.1:{address.port}")
    with pytest.raises(EncryptionError, match=r"self-signed certificate.* SSL_CERT_FILE"):
        lists.streams()


def test_a_port_that_speaks_tls_and_one_that_does_not_say_so(running: RunningServer, address: ServerAddress) -> None:
    with pytest.raises(EncryptionError, match=rf"speaks TLS; use headgate-stream\+tls://127.0.0.1:{address.port}"):
        Client.connect(replace(address, tls=None))
    with pytest.raises(EncryptionError, match=f"speaks TLS; use https://127.0.0.1:{address.port}"):
        Management.of(f"http://127.0.0.1:{address.port}").streams()
    http = running.ports["http"]
    with pytest.raises(EncryptionError, match=f"does not speak TLS; use headgate-stream://127.0.0.1:{http}"):
        Client.connect(replace(address, port=http))
    with pytest.raises(EncryptionError, match=f"does not speak TLS; use http://127.0.0.1:{http}"):
        Management.of(f"https://127.0.0.1:{http}").streams()


def test_the_certificate_says_who_the_user_is(folder: Path, address: ServerAddress) -> None:
    tls = Tls(ca=str(folder / "ca.pem"), certificate=str(folder / "reader.pem"), key=str(folder / "reader.key"))
    with Client.connect(replace(address, tls=tls, user="")) as client:
        assert client.is_headgate


def test_without_a_certificate_nobody_says_who_the_user_is(address: ServerAddress) -> None:
    with pytest.raises(AuthenticationError):
        Client.connect(replace(address, user=""))
