"""The certificate that a server makes for clients on its own machine."""

from __future__ import annotations

import datetime
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from headgate.errors import ConfigError
from headgate.server.certificates import OwnCertificate, own_certificate, server_context

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


def certificates(found: OwnCertificate) -> tuple[x509.Certificate, x509.Certificate]:
    return (
        x509.load_pem_x509_certificate(found.certificate.read_bytes()),
        x509.load_pem_x509_certificate(found.authority.read_bytes()),
    )


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """A handshake in memory. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue


def test_it_is_for_this_machine_and_only_its_owner_reads_the_key(tmp_path: Path) -> None:
    found = own_certificate(tmp_path / "tls", now_ms=int(datetime.datetime.now().timestamp() * 1000))
    assert stat.S_IMODE(found.certificate.stat().st_mode) == 0o600
    assert b"PRIVATE KEY" not in found.authority.read_bytes()
    client = ssl.create_default_context(cafile=found.authority)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    for name in ("localhost", "127.0.0.1", "::1"):
        shake_hands(found.context(), client, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(found.context(), client, "example.com")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(found.context(), ssl.create_default_context(), "localhost")


def test_its_authority_can_vouch_for_nothing_else(tmp_path: Path) -> None:
    _, authority = certificates(own_certificate(tmp_path, now_ms=NOW_MS))
    limits = authority.extensions.get_extension_for_class(x509.NameConstraints)
    assert limits.critical and [str(each.value) for each in limits.value.permitted_subtrees or ()] == [
        "localhost",
        "127.0.0.1/32",
        "::1/128",
    ]


def test_it_is_made_once_and_anew_before_it_ends_or_when_it_does_not_serve(tmp_path: Path) -> None:
    first = certificates(own_certificate(tmp_path, now_ms=NOW_MS))
    assert certificates(own_certificate(tmp_path, now_ms=NOW_MS + 3600 * DAY_MS)) == first
    second = certificates(own_certificate(tmp_path, now_ms=NOW_MS + 3630 * DAY_MS))
    assert second[0] != first[0] and second[1] != first[1]
    for name in ("server.pem", "authority.pem"):
        for content in (b"", (tmp_path / name).read_bytes()[:200], first[1].public_bytes(Encoding.PEM)):
            (tmp_path / name).write_bytes(content)
            found = own_certificate(tmp_path, now_ms=NOW_MS + 3630 * DAY_MS)
            certificate, authority = certificates(found)
            certificate.verify_directly_issued_by(authority)
            found.context()


def test_a_folder_that_cannot_be_made_and_files_that_do_not_serve_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"file/tls: .*a certificate for TLS is to lie there"):
        own_certificate(tmp_path / "file" / "tls", now_ms=NOW_MS)
    with pytest.raises(ConfigError, match=r"file and .*file do not serve for TLS"):
        server_context(tmp_path / "file", tmp_path / "file")
