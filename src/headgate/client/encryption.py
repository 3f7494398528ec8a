"""Connections that fail because of TLS: only one side speaks it, or the certificate is not trusted.

These errors are not retried; each says what to give instead.
"""

from __future__ import annotations

import socket
import ssl

from headgate.errors import EncryptionError

_PROBE_S = 2.0
_UNTRUSTED = (18, 19, 20, 21)
"""X509_V_ERR_…: self-signed, self-signed in the chain, no issuer that is known here, no first certificate checked."""
_EXPIRED = (9, 10)
_OTHER_NAME = (62, 64)
_REFUSED = "SSLV3_ALERT_HANDSHAKE_FAILURE"
"""A Headgate's port without TLS answers a handshake so."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", _REFUSED)


def tls_refusal(error: BaseException, server: str, *, plain: str) -> EncryptionError | None:
    """The error that says why TLS failed with a server, and the remedy; None for an error with other causes.

    `plain` is the address without encryption.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return EncryptionError(f"{error.verify_message.rstrip('.')}{_advice(error.verify_code)}", server=server)
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return EncryptionError(f"this port does not speak TLS; use {plain}", server=server)
    return None


def _advice(code: int) -> str:
    if code in _UNTRUSTED:
        return (
            "; no authority that this machine trusts signed the server's certificate: give the one that did, a PEM "
            "file, as SSL_CERT_FILE in the environment, or in Python as Tls(ca=…). A Headgate that made its own "
            "certificate has it as .headgate/tls/authority.pem under its root"
        )
    if code in _OTHER_NAME:
        return "; connect by a name that the certificate has, or give the server one with this name"
    return "; the server needs a new certificate, or this machine's clock is wrong" if code in _EXPIRED else ""


def speaks_tls(host: str, port: int) -> bool:
    """Whether a server answers a TLS handshake there; asked where it closes connections that are not encrypted."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), _PROBE_S) as made, context.wrap_socket(made, server_hostname=host):
            return True
    except ssl.SSLError as error:
        # One that asks for a certificate of this side speaks it, too.
        return "ALERT" in (error.reason or "") and error.reason != _REFUSED
    except OSError:
        return False


def plain_refusal(host: str, port: int, server: str, *, encrypted: str) -> EncryptionError | None:
    """That a server speaks TLS where it was spoken to without; None if it does not. `encrypted` is its address."""
    if not speaks_tls(host, port):
        return None
    return EncryptionError(f"this port speaks TLS; use {encrypted}", server=server)
