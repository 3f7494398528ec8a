"""The server's own certificate, for clients on this machine that insist on TLS.

    <root>/.headgate/tls/authority.pem     what clients are told to believe
    <root>/.headgate/tls/server.pem        the certificate that it signed, with its key; for the owner only

The authority may sign for this machine's own names only, and its key is thrown away after one signature: a client that
trusts it trusts this one certificate.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import ConfigError
from headgate.log import replace_file

NAME = "localhost"
ADDRESSES = ("127.0.0.1", "::1")

_VALID = datetime.timedelta(days=3650)
_RENEWED_BEFORE = datetime.timedelta(days=30)
_TOLERANCE = datetime.timedelta(days=1)
"""How far the clocks of clients may be behind."""


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """The files of the certificate and of its authority."""

    certificate: Path
    authority: Path

    def context(self) -> ssl.SSLContext:
        """The TLS context with this certificate. Raises ConfigError for files that do not serve."""
        return server_context(self.certificate, self.certificate)


def server_context(certificate: str | Path, key: str | Path) -> ssl.SSLContext:
    """The TLS context for clients without certificates. Raises ConfigError that names the files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"{certificate} and {key} do not serve for TLS: {error}") from error
    return context


def own_certificate(folder: Path, *, now_ms: int) -> OwnCertificate:
    """The certificate in a folder; a new one is made if there is none, or if it expires soon.

    Raises ConfigError if the folder cannot be written, LogError. Cost: some 50 ms.
    """
    found = OwnCertificate(folder / "server.pem", folder / "authority.pem")
    now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    if not _is_valid(found, now + _RENEWED_BEFORE):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder}: {error.strerror}; a certificate for TLS is to lie there") from error
        _make(found, now)
    return found


def _is_valid(found: OwnCertificate, moment: datetime.datetime) -> bool:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        certificate = x509.load_pem_x509_certificate(found.certificate.read_bytes())
        authority = x509.load_pem_x509_certificate(found.authority.read_bytes())
        certificate.verify_directly_issued_by(authority)
    except (OSError, ValueError, TypeError, InvalidSignature):
        return False
    return certificate.not_valid_before_utc <= moment < certificate.not_valid_after_utc


def _make(wanted: OwnCertificate, now: datetime.datetime) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _TOLERANCE)
            .not_valid_after(now + _VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
        )

    def usage(*, signs_certificates: bool) -> x509.KeyUsage:
        return x509.KeyUsage(
            digital_signature=not signs_certificates,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=signs_certificates,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )

    signing, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = named(f"Headgate on this machine {os.urandom(4).hex()}")
    addresses = [ipaddress.ip_address(address) for address in ADDRESSES]
    permitted = [x509.DNSName(NAME), *(x509.IPAddress(ipaddress.ip_network(address)) for address in addresses)]
    authority = (
        builder(issuer, signing.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(signs_certificates=True), critical=True)
        .add_extension(x509.NameConstraints(permitted, None), critical=True)
        .sign(signing, hashes.SHA256())
    )
    names = [x509.DNSName(NAME), *(x509.IPAddress(address) for address in addresses)]
    certificate = (
        builder(named(NAME), key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(signing, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    replace_file(wanted.certificate, certificate.public_bytes(pem) + secret, mode=0o600)
    replace_file(wanted.authority, authority.public_bytes(pem))
