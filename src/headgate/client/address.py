"""Where a server is, and as whom to speak to it.

    host[:port]                                    the default user, without encryption
    headgate-stream://user:password@host:port/vhost    the whole; headgate-stream+tls:// encrypts

User, password and virtual host of the second form are percent-encoded, as in any URL.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from headgate.errors import ConfigError

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT = 5552
DEFAULT_TLS_PORT = 5551
DEFAULT_USER = "guest"

SCHEME = "headgate-stream"
TLS_SCHEME = "headgate-stream+tls"


@dataclass(frozen=True, slots=True)
class Tls:
    """How a connection is encrypted: paths of PEM files.

    `ca` has the authorities that the server's certificate is checked against; None: the system's. `certificate` and
    `key` are the client's own, for servers that ask for one.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """The context of a client. Raises ConfigError for files that hold no certificates."""
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            raise ConfigError(f"TLS: {error}") from error
        return context


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """One server, and the user at this end. Picklable; the password is not shown.

    An empty `user` is the one that this side's certificate names (SASL EXTERNAL).
    """

    host: str
    port: int = DEFAULT_PORT
    user: str = DEFAULT_USER
    password: str = field(default=DEFAULT_USER, repr=False)
    tls: Tls | None = None
    virtual_host: str = "/"

    @staticmethod
    def parse(
        text: str, *, user: str | None = None, password: str | None = None, tls: Tls | None = None
    ) -> ServerAddress:
        """The address that a text names; other given arguments override its parts. Raises ConfigError."""
        parsed = _parse_url(text) if "://" in text else _parse_place(text)
        return replace(
            parsed,
            user=parsed.user if user is None else user,
            password=parsed.password if password is None else password,
            tls=parsed.tls if tls is None else tls,
        )

    @property
    def place(self) -> str:
        """Host and port, as errors name them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def at(self, host: str, port: int) -> ServerAddress:
        """The same user at another place."""
        return replace(self, host=host, port=port)

    def __str__(self) -> str:
        """The address as a URL without the password."""
        scheme = SCHEME if self.tls is None else TLS_SCHEME
        path = "" if self.virtual_host == "/" else "/" + quote(self.virtual_host, safe="")
        return f"{scheme}://{quote(self.user, safe='')}@{self.place}{path}"


def _parse_place(text: str, *, default_port: int = DEFAULT_PORT) -> ServerAddress:
    host, port = text.strip(), str(default_port)
    if "@" in text:
        raise ConfigError(f"server: a user stands in the long form, {SCHEME}://USER:PASSWORD@HOST:PORT")
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        port = rest.removeprefix(":") if rest else port
        host = host if bracket else ""
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    if not _is_host(host) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"server: found {text!r}, expected HOST, HOST:PORT or {SCHEME}://USER:PASSWORD@HOST:PORT")
    return ServerAddress(host, int(port))


def _is_host(text: str) -> bool:
    """Whether a resolver takes the name: no part of it is empty or has more than 63 characters (RFC 1035)."""
    try:
        return len(text.encode("idna")) > 0
    except UnicodeError:
        return False


def _parse_url(text: str) -> ServerAddress:
    scheme, _, _ = text.partition("://")
    if scheme not in (SCHEME, TLS_SCHEME):
        raise ConfigError(f"server: found the scheme {scheme}, expected {SCHEME} or {TLS_SCHEME}")
    encrypted = scheme == TLS_SCHEME
    parts = urlsplit(text)
    if parts.query or parts.fragment:
        raise ConfigError("server: a query or a fragment has no meaning in the address of a server")
    place = _parse_place(parts.netloc.rpartition("@")[2], default_port=DEFAULT_TLS_PORT if encrypted else DEFAULT_PORT)
    return replace(
        place,
        tls=Tls() if encrypted else None,
        user=DEFAULT_USER if parts.username is None else unquote(parts.username),
        password=DEFAULT_USER if parts.password is None else unquote(parts.password),
        virtual_host=unquote(parts.path.removeprefix("/")) or "/",
    )
