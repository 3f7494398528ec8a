"""Permissions in both protocols: the rights of access keys, and clients that need no key.

While there are no access keys, clients on this machine are the default user, unless `rocketmq.open` forbids it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headgate.broker import AccessKeys, Permission, Right
from headgate.server.context import ServerContext
from headgate.server.transport import Peer

_RIGHTS: Mapping[Permission, Right] = {
    Permission.WRITE: Right.SEND,
    Permission.READ: Right.LISTEN,
    Permission.CONFIGURE: Right.MANAGE,
}
"""Send is to publish to a topic, listen to consume it, manage to make it."""


def check_of_key(keys: AccessKeys, name: str) -> Callable[[Permission, str], None]:
    """The permission check of a session that was opened with a key."""
    return lambda permission, resource: keys.check(name, _RIGHTS[permission], resource)


def user_without_key(context: ServerContext, peer: Peer) -> str | None:
    """The user of a client that needs no key; None where it needs one."""
    is_open = context.settings.rocketmq.open == "loopback" and peer.is_loopback and not context.broker.keys
    user = context.settings.authentication.default_user
    return user if is_open and user in context.broker.users else None
