"""The identity of a gRPC client: the access key that signed its call, or the default user where no key is needed.

Where no key is needed any signature is accepted, as clients without a key send one as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.broker import Session
from headgate.errors import AuthenticationError
from headgate.protocols.rocketmq.grpc import parse_signature
from headgate.server.context import ServerContext
from headgate.server.rocketmq.rights import check_of_key, user_without_key
from headgate.server.transport import Peer

PROTOCOL = "RocketMQ gRPC v2"


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller: a key by its name, or a user."""

    name: str
    is_key: bool


def identify(context: ServerContext, peer: Peer, headers: Mapping[str, str]) -> Identity:
    """The identity behind a call with these headers. Raises AuthenticationError."""
    user = user_without_key(context, peer)
    if user is not None:
        return Identity(user, is_key=False)
    keys = context.broker.keys
    signature = parse_signature(headers.get("authorization", ""))
    if signature is None:
        raise AuthenticationError("the call is not signed: an access key is needed")
    secrets: tuple[str, ...] = ()
    if signature.key in keys:
        key = keys.get(signature.key)
        secrets = (key.primary, key.secondary)
    signature.check(secrets, headers.get("x-mq-date-time", ""))
    return Identity(signature.key, is_key=True)


def open_session(context: ServerContext, identity: Identity, connection: str) -> Session:
    """A client's session at the broker, with the rights of its key or user."""
    check = check_of_key(context.broker.keys, identity.name) if identity.is_key else None
    return context.broker.open_session(identity.name, protocol=PROTOCOL, connection=connection, check=check)
