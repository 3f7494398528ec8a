"""The rights of a Service Bus client: as a user, by a key, by tokens, or all rights where the service is open.

    PLAIN with name and secret of a key    the rights of the key
    PLAIN, EXTERNAL as a user              the user's permissions: write is send, read is listen, configure is manage
    ANONYMOUS, MSSBCBS                     nothing, until tokens say more; everything where the service is open

The service is open to clients on this machine while there are no access keys, unless `servicebus.open` forbids it. Then
any token is accepted, as clients of an emulator send tokens. A token counts for its audience and everything below it,
until it expires; the next token for the same audience replaces it.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headgate.broker import AccessKeys, Actor, Broker, Permission, Right, Session, SessionReceiver
from headgate.errors import AccessRefusedError, AuthenticationError, ConfigError
from headgate.protocols.sasl import Anonymous, ByToken, Credentials, Plain
from headgate.protocols.servicebus import covers, parse_token, relative
from headgate.server.context import ServerContext
from headgate.server.transport import Peer

if TYPE_CHECKING:
    from headgate.server.amqp10 import Amqp10Handler

PERMISSIONS: Mapping[Right, Permission] = {
    Right.SEND: Permission.WRITE,
    Right.LISTEN: Permission.READ,
    Right.MANAGE: Permission.CONFIGURE,
}
"""Right of a key → the equal permission of a user."""

_REFUSED = "the token has a wrong signature, is over, names no key, or is for something else"


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a token: the rights of a key, for a path and everything below it, until a time."""

    key: str
    scope: str
    expires_ms: int

    def allows(self, keys: AccessKeys, right: Right, entity: str, *, now_ms: int) -> bool:
        """Whether the claim gives a right on an entity now."""
        return (
            now_ms < self.expires_ms
            and covers(self.scope, entity)
            and self.key in keys
            and keys.get(self.key).rights.allow(right, entity)
        )


def is_open_to(context: ServerContext, peer: Peer) -> bool:
    """Whether a client at this peer needs no token."""
    return context.settings.servicebus.open == "loopback" and peer.is_loopback and not _has_keys(context.broker)


def claim_of(keys: AccessKeys, token: str, audience: str | None = None, *, now_ms: int) -> Claim:
    """The claim of a token for an audience, a URI; None: for everything that it was signed for.

    Raises AuthenticationError for any invalid token.
    """
    try:
        given = parse_token(token)
    except ConfigError as error:
        raise AuthenticationError(str(error)) from error
    key = keys.get(given.key_name) if given.key_name in keys else None
    given.check(() if key is None else (key.primary, key.secondary), now_ms=now_ms)
    scope = given.scope if audience is None else relative(audience)
    if not covers(given.scope, scope):
        raise AuthenticationError(_REFUSED)
    return Claim(given.key_name, scope, given.expires_s * 1000)


class ConnectionAccess:
    """The rights of one connection, and its session at the broker."""

    def __init__(self, handler: Amqp10Handler) -> None:
        self._handler = handler
        self._context = handler.context
        self._is_stranger = False
        self._key: str | None = None
        self._claims: dict[str, Claim] = {}
        self._session: Session | None = None
        self.sessions: dict[tuple[str, str], SessionReceiver] = {}
        """The sessions that links of this connection hold, by the path of the node and the session id."""

    @property
    def session(self) -> Session:
        """The connection's session at the broker; rights are checked here, not in the session."""
        if self._session is None:
            self._session = self._handler.open_session(_checked_here)
        return self._session

    def close(self) -> None:
        """The connection has ended."""
        if self._session is not None:
            self._session.close()

    @property
    def takes_strangers(self) -> bool:
        """Whether a client that is no user may log in: tokens can give it rights, or it needs no token."""
        return self._is_open or _has_keys(self._context.broker)

    @property
    def _is_open(self) -> bool:
        return is_open_to(self._context, self._handler.peer)

    def knows(self, credentials: Credentials) -> bool:
        """Whether these credentials are accepted here; they need not be a user's."""
        keys = self._context.broker.keys
        match credentials:
            case Anonymous() | ByToken():
                self._is_stranger = True
                return self.takes_strangers
            case Plain(name, secret) if name in keys:
                key, given = keys.get(name), secret.encode()
                if hmac.compare_digest(key.primary.encode(), given) | hmac.compare_digest(
                    key.secondary.encode(), given
                ):
                    self._key = name
        return self._key is not None

    def put(self, audience: str, token: str) -> None:
        """Take a token. Raises AuthenticationError."""
        if self._is_open:
            return
        if not _has_keys(self._context.broker):
            raise AuthenticationError("there is no access key; `headgate key add` makes one")
        claim = claim_of(self._context.broker.keys, token, audience, now_ms=self._context.clock.now_ms())
        self._claims[claim.scope.casefold()] = claim

    @property
    def actor(self) -> Actor:
        """Who acts on this connection, for the audit stream: a key, that of a token, or a user."""
        key = self._key or next((claim.key for claim in self._claims.values()), None)
        return replace(self.session.actor, user=key or self._handler.user)

    def check(self, right: Right, entity: str) -> None:
        """Raise AccessRefusedError unless the connection has a right on an entity, by its name as it was created."""
        if not self.allows(right, entity):
            raise AccessRefusedError(
                f"the connection has no {right.value} right on it: a valid token for it is needed", subject=entity
            )

    def allows(self, right: Right, entity: str) -> bool:
        """Whether the connection has a right on an entity now."""
        broker = self._context.broker
        if self._key is not None:
            return self._key in broker.keys and broker.keys.get(self._key).rights.allow(right, entity)
        if self._is_open if self._is_stranger else _may(broker, self._handler.user, right, entity):
            return True
        now_ms = self._context.clock.now_ms()
        return any(claim.allows(broker.keys, right, entity, now_ms=now_ms) for claim in self._claims.values())


def _checked_here(_permission: Permission, _resource: str) -> None:
    """Allow everything: rights are checked when links attach and requests come."""


def _may(broker: Broker, user: str, right: Right, entity: str) -> bool:
    try:
        broker.users.check(user, PERMISSIONS[right], entity)
    except AccessRefusedError:
        return False
    return True


def _is_this_machine(host: str | None) -> bool:
    name = (host or "").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def _has_keys(broker: Broker) -> bool:
    return next(iter(broker.keys), None) is not None


class RequestAccess:
    """The rights of one HTTP request, by the tokens in its headers."""

    def __init__(self, context: ServerContext, peer: Peer, host: str | None, tokens: Sequence[str]) -> None:
        """`host` is the server's name in the request.

        Raises AuthenticationError for a missing token and for an invalid one.
        """
        self._keys = context.broker.keys
        # A page in a browser on this machine may reach this server by a host name of its own.
        self._is_open = is_open_to(context, peer) and _is_this_machine(host)
        self._now_ms = context.clock.now_ms()
        self._claims: list[Claim] = []
        if not self._is_open:
            if not tokens:
                raise AuthenticationError("the header Authorization with a token is missing")
            self._claims = [claim_of(self._keys, token, now_ms=self._now_ms) for token in tokens]

    @property
    def user(self) -> str:
        """The name of the key that signed the first token; empty where none is needed."""
        return self._claims[0].key if self._claims else ""

    def check(self, right: Right, entity: str) -> None:
        """Raise AccessRefusedError unless the request has a right on an entity, by its name as it was created."""
        if not self.allows(right, entity):
            raise AccessRefusedError(f"the token gives no {right.value} right on it", subject=entity)

    def allows(self, right: Right, entity: str) -> bool:
        """Whether the request has a right on an entity."""
        return self._is_open or any(
            claim.allows(self._keys, right, entity, now_ms=self._now_ms) for claim in self._claims
        )
