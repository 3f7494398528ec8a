"""Who a client of gRPC is: the access key that signed its call, or the default user where no key is needed.

Calls are open to clients on this machine while there are no access keys, unless `rocketmq.open` says no; then any
signature is taken, as clients send one without a key, too. Send is write on a topic, listen is read, manage is
configure.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from headgate.broker import AccessKeys, Permission, Right, Session
from headgate.errors import AuthenticationError
from headgate.protocols.rocketmq.grpc import parse_signature
from headgate.server.context import ServerContext
from headgate.server.transport import Peer

PROTOCOL = "RocketMQ gRPC v2"

_RIGHTS: Mapping[Permission, Right] = {
    Permission.WRITE: Right.SEND,
    Permission.READ: Right.LISTEN,
    Permission.CONFIGURE: Right.MANAGE,
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks: a key by its name, or a user."""

    name: str
    is_key: bool


def identify(context: ServerContext, peer: Peer, headers: Mapping[str, str]) -> Identity:
    """Who signed a call with these headers. Raises AuthenticationError."""
    keys = context.broker.keys
    has_keys = next(iter(keys), None) is not None
    if not has_keys and peer.is_loopback and context.settings.rocketmq.open == "loopback":
        return Identity(context.settings.authentication.default_user, is_key=False)
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
    """The commands of a client, with the rights of its key or user."""
    check = functools.partial(_check_key, context.broker.keys, identity.name) if identity.is_key else None
    return context.broker.open_session(identity.name, protocol=PROTOCOL, connection=connection, check=check)


def _check_key(keys: AccessKeys, name: str, permission: Permission, resource: str) -> None:
    keys.check(name, _RIGHTS[permission], resource)
