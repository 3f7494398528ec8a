"""Users of the broker, with hashed passwords and permissions by pattern, in one file.

    <root>/.headgate/users.json     {"format": 1, "users": {"guest": {"password_hash": …, "tags": …, "permissions": …}}}

Passwords are kept as argon2id hashes only. Permissions are three patterns of resource names as in RabbitMQ: *configure*
(declare, delete), *write* (publish; bind a queue), *read* (consume; bind to an exchange). A pattern is a regular
expression that matches anywhere in the name; the empty pattern matches nothing.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from headgate.broker.patterns import check_pattern, matches
from headgate.broker.private_file import PrivateFile
from headgate.broker.tokens import Tokens
from headgate.errors import (
    AccessRefusedError,
    AuthenticationError,
    PreconditionFailedError,
    ResourceExistsError,
    ResourceNotFoundError,
    did_you_mean,
)

USERS_FORMAT = 1
ADMINISTRATOR = "administrator"
"""The tag of users who may change users, and read the audit stream."""

AUDIT_STREAM = "headgate.audit"
"""The stream of the root with administrative changes. Administrators may read it, and only the broker writes it."""

DEFAULT_EXCHANGE = "amq.default"
"""The name that permissions use for the exchange without a name."""

_TIME_COST = 2
_MEMORY_KIB = 19_456
_LANES = 1
_VERIFIED_LOGINS = 1024


class Permission(StrEnum):
    """A permission of a user on resources."""

    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


class Permissions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The three patterns of a user."""

    configure: str = ""
    write: str = ""
    read: str = ""

    def check(self) -> None:
        """Raise PreconditionFailedError for a pattern that is no regular expression."""
        for permission in Permission:
            check_pattern(self.pattern(permission))

    def pattern(self, permission: Permission) -> str:
        """The pattern of one permission."""
        return str(getattr(self, permission))


EVERYTHING = Permissions(".*", ".*", ".*")
NOTHING = Permissions()


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One user as stored; a user without a hash cannot log in with a password."""

    password_hash: str | None
    permissions: Permissions
    tags: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    users: dict[str, User]
    format: int = USERS_FORMAT

    def check(self) -> None:
        for user in self.users.values():
            user.permissions.check()


class Users:
    """The users of one file. `authenticate` may be called from any thread, the rest belongs to the broker's."""

    def __init__(self, path: Path | None, *, default_user: str, default_has_password: bool = True) -> None:
        """Read the file, or make one with the default user; without a path users are kept in memory only.

        The default user may do all; the user's password, if any, is the user's name. Raises ConfigError for a wrong
        file, LogError if it cannot be written.
        """
        self._file: PrivateFile[_File] | None = None
        if path is not None:
            self._file = PrivateFile(path, _File, what="users", format=USERS_FORMAT, check=_File.check)
        self._key = secrets.token_bytes(32)
        self._verified: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._users: dict[str, User] = {}
        self.tokens = Tokens(None if path is None else path.with_name(f"{path.stem}-tokens.json"))
        """Tokens of these users."""
        if not self._load():
            password = default_user if default_has_password else None
            self.add(default_user, password, tags=(ADMINISTRATOR,), permissions=EVERYTHING)

    @property
    def path(self) -> Path | None:
        """The path of the file; None without one."""
        return None if self._file is None else self._file.path

    def __contains__(self, name: object) -> bool:
        """Whether there is a user of that name."""
        return name in self._users

    def __iter__(self) -> Iterator[str]:
        """The names, in order."""
        return iter(sorted(self._users))

    def get(self, name: str) -> User:
        """One user; ResourceNotFoundError."""
        user = self._users.get(name)
        if user is None:
            raise ResourceNotFoundError(f"no such user{did_you_mean(name, self._users)}", subject=name)
        return user

    # logging in

    def authenticate(self, name: str, password: str) -> None:
        """Raise AuthenticationError unless that is the user's password.

        Cost: tens of milliseconds; for the same password again some microseconds, as its keyed digest is remembered.
        """
        user = self._users.get(name)
        digest = hmac.new(self._key, password.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
        stored = None if user is None else user.password_hash
        if stored is not None:
            with self._lock:
                known = self._verified.get(name)
            expected = hmac.new(self._key, digest + stored.encode(), hashlib.sha256).digest()
            if known is not None and hmac.compare_digest(known, expected):
                return
        # An unknown user costs as much as a wrong password, so the time reveals nothing.
        if not _verify(stored if stored is not None else _unknown_hash(), password) or stored is None:
            raise AuthenticationError("no such user, or a wrong password")
        with self._lock:
            self._verified[name] = hmac.new(self._key, digest + stored.encode(), hashlib.sha256).digest()
            self._verified.move_to_end(name)
            if len(self._verified) > _VERIFIED_LOGINS:
                self._verified.popitem(last=False)

    # permissions

    def check(self, name: str, permission: Permission, resource: str) -> None:
        """Raise AccessRefusedError unless the user has the permission for a stream or exchange of that name."""
        user = self._users.get(name)
        if resource == AUDIT_STREAM:
            _check_audit(name, user, permission)
            return
        pattern = "" if user is None else user.permissions.pattern(permission)
        if not matches(pattern, resource or DEFAULT_EXCHANGE):
            raise AccessRefusedError(f"user {name!r} has no {permission.value} permission for it", subject=resource)

    # changing

    def add(
        self, name: str, password: str | None, *, tags: tuple[str, ...] = (), permissions: Permissions = NOTHING
    ) -> None:
        """Add a user. Raises ResourceExistsError, PreconditionFailedError for an empty name or a wrong pattern."""
        self.reload()
        if not name:
            raise PreconditionFailedError("a user needs a name")
        if name in self._users:
            raise ResourceExistsError("there is such a user already", subject=name)
        permissions.check()
        self._save({**self._users, name: User(_hash(password), permissions, tags)})

    def remove(self, name: str) -> None:
        """Delete a user with the user's tokens; ResourceNotFoundError."""
        self.reload()
        self.get(name)
        # First: a later user of this name must not have them.
        self.tokens.revoke_of(name)
        self._save({other: user for other, user in self._users.items() if other != name})

    def set_password(self, name: str, password: str | None) -> None:
        """Set the password; None: the user cannot log in with one. ResourceNotFoundError."""
        self._change(name, password_hash=_hash(password))

    def set_tags(self, name: str, tags: tuple[str, ...]) -> None:
        """Set the tags; ResourceNotFoundError."""
        self._change(name, tags=tags)

    def permit(self, name: str, permissions: Permissions) -> None:
        """Set the permissions; ResourceNotFoundError, PreconditionFailedError for a wrong pattern."""
        permissions.check()
        self._change(name, permissions=permissions)

    def reload(self) -> None:
        """Take over changes that another process wrote; costs one `stat` without any. Raises ConfigError."""
        if self._file is not None and self._file.has_changed():
            self._load()
        self.tokens.reload()

    # inside

    def _change(self, name: str, **changes: object) -> None:
        self.reload()
        user: User = msgspec.structs.replace(self.get(name), **changes)
        self._save({**self._users, name: user})

    def _load(self) -> bool:
        stored = None if self._file is None else self._file.read()
        if stored is not None:
            self._users = stored.users
        return stored is not None

    def _save(self, users: dict[str, User]) -> None:
        if self._file is not None:
            self._file.write(_File(users))
        self._users = users


def _check_audit(name: str, user: User | None, permission: Permission) -> None:
    """Raise AccessRefusedError unless an administrator reads: the audit stream is written by the broker alone."""
    if user is None or ADMINISTRATOR not in user.tags or permission is not Permission.READ:
        raise AccessRefusedError(
            f"user {name!r} has no {permission.value} permission for it: administrators may read the audit stream, and"
            " only the server writes it",
            subject=AUDIT_STREAM,
        )


def _hash(password: str | None) -> str | None:
    if password is None:
        return None
    from argon2 import PasswordHasher

    hasher = PasswordHasher(time_cost=_TIME_COST, memory_cost=_MEMORY_KIB, parallelism=_LANES)
    return hasher.hash(password.encode("utf-8", "surrogatepass"))


def _verify(stored: str, password: str) -> bool:
    from argon2 import PasswordHasher
    from argon2.exceptions import Argon2Error, InvalidHashError

    try:
        return PasswordHasher().verify(stored, password.encode("utf-8", "surrogatepass"))
    except (Argon2Error, InvalidHashError):
        return False


@functools.cache
def _unknown_hash() -> str:
    return _hash(secrets.token_urlsafe()) or ""
