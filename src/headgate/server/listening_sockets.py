"""Listening sockets, and TLS for them."""

from __future__ import annotations

import errno
import socket
import ssl
from pathlib import Path

from headgate.errors import ConfigError
from headgate.server.settings import Listeners, Tls

PLAIN = ("amqp", "stream", "stomp", "http", "servicebus", "rocketmq", "rocketmq_names", "rocketmq_classic")
ENCRYPTED = {
    "amqps": "amqp",
    "stream_tls": "stream",
    "stomp_tls": "stomp",
    "https": "http",
    "servicebus_tls": "servicebus",
    "rocketmq_tls": "rocketmq",
}
"""Listener with TLS → the plain listener of the same protocol."""

MIXED = frozenset({"rocketmq_names", "rocketmq_classic"})
"""Listeners that also serve clients with TLS, if there is a certificate."""

_HAS_CERTIFICATE = frozenset({"servicebus_tls"})
"""Listeners for which the server makes a certificate if there is none."""

EVERY_ADDRESS = "*"
_BACKLOG = 1024
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_WRONG_HOST = (errno.EADDRNOTAVAIL, socket.EAI_NONAME, socket.EAI_AGAIN, socket.EAI_FAIL)


def protocol_of(listener: str) -> str:
    """The protocol of a listener: the key of its plain listener."""
    return ENCRYPTED.get(listener, listener)


def open_listeners(listeners: Listeners, *, encrypted: bool) -> dict[str, socket.socket]:
    """Bound and listening sockets by their keys; listeners with TLS only if there is a certificate.

    Raises ConfigError that names the key and the port that is not available or another listener's; then no socket is
    open.
    """
    opened: dict[str, socket.socket] = {}
    try:
        for name in (*PLAIN, *(ENCRYPTED if encrypted else _HAS_CERTIFICATE)):
            port = getattr(listeners, name)
            if port == "off":
                continue
            other = next((key for key in opened if port and port == getattr(listeners, key)), None)
            if other is not None:
                raise ConfigError(f"listeners.{name}: port {port} is that of listeners.{other}; each needs its own")
            opened[name] = open_listener(name, listeners.host, port)
    except ConfigError:
        for listening in opened.values():
            listening.close()
        raise
    return opened


def open_listener(name: str, host: str, port: int) -> socket.socket:
    """One bound and listening socket; errors as `open_listeners`."""
    try:
        if host == EVERY_ADDRESS:
            return _open_everywhere(port)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, ValueError) as error:
        # The standard library appends the address to the system's words.
        words = str(getattr(error, "strerror", None) or error).partition(" (while ")[0]
        # A name that no resolver accepts, for example with a part of more than 63 characters, is a ValueError.
        if isinstance(error, ValueError) or error.errno in _WRONG_HOST:
            raise ConfigError(
                f"listeners.host: cannot listen on {host!r}: {words}; expected an address of this machine, or `*`"
            ) from error
        reason = "the port is taken by another process" if error.errno == errno.EADDRINUSE else words
        raise ConfigError(
            f"listeners.{name}: cannot listen on {host} port {port}: {reason}; "
            f"move it with listeners.{name} or HEADGATE_SERVER__LISTENERS__{name.upper()}, or switch it `off`"
        ) from error


def _open_everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    return socket.create_server(("", port), backlog=_BACKLOG)


def grpc_context(tls: Tls) -> ssl.SSLContext:
    """As `tls_context`, for gRPC: clients insist on HTTP/2, and are asked for a certificate only if it is required."""
    context = tls_context(tls)
    context.set_alpn_protocols(["h2"])
    if tls.verify_client != "required":
        context.verify_mode = ssl.CERT_NONE
    return context


def tls_context(tls: Tls) -> ssl.SSLContext:
    """The TLS context of `[tls]`. Raises ConfigError that names the key whose file does not serve."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    for key in ("certificate", "key", "ca"):
        path = getattr(tls, key)
        if path is not None and not Path(path).is_file():
            raise ConfigError(f"tls.{key}: no file {path}")
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"tls.certificate, tls.key: {tls.certificate} and {tls.key} do not serve: {error}") from error
    if tls.verify_client != "no":
        context.verify_mode = ssl.CERT_REQUIRED if tls.verify_client == "required" else ssl.CERT_OPTIONAL
    if tls.ca is not None:
        try:
            context.load_verify_locations(tls.ca)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(f"tls.ca: {tls.ca} does not serve: {error}") from error
    return context
