"""Access keys: secrets that clients share with the server, and the rights that they give.

    <root>/.headgate/keys.json     {"format": 1, "keys": {"orders-app": {"primary": …, "secondary": …, "rights": …}}}

A password can be kept as a hash; the secret of a key cannot, because clients sign with it and the server has to read
it. Only the owner can read the file. Each key has two valid secrets: `rotate` makes a new primary one, and the old one
stays valid as the secondary until the next rotation, while clients are given the new one.

Rights are three patterns of names of entities, as users have them: *send*, *listen* and *manage*, which includes the
other two. The name of a subscription begins with that of its topic.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import msgspec

from headgate.broker.patterns import check_pattern, matches
from headgate.broker.private_file import PrivateFile
from headgate.errors import (
    AccessRefusedError,
    PreconditionFailedError,
    ResourceExistsError,
    ResourceNotFoundError,
    did_you_mean,
)

KEYS_FORMAT = 1
KEYS_NAME = "keys.json"
"""The file in the private folder of a root."""

_SECRET_BYTES = 32
_MAX_NAME_CHARACTERS = 256
_SEPARATOR = ";"
"""The separator of a connection string, which neither a name nor a secret may contain."""


class Right(Enum):
    """A right of a key on entities."""

    SEND = "send"
    LISTEN = "listen"
    MANAGE = "manage"


class KeyRights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The three patterns of a key."""

    send: str = ""
    listen: str = ""
    manage: str = ""

    def check(self) -> None:
        """Raise PreconditionFailedError for a pattern that is no regular expression."""
        for right in Right:
            check_pattern(self.pattern(right))

    def pattern(self, right: Right) -> str:
        """The pattern of one right."""
        return str(getattr(self, right.value))

    def allow(self, right: Right, entity: str) -> bool:
        """Whether the patterns give a right on an entity."""
        return matches(self.manage, entity) or matches(self.pattern(right), entity)


class AccessKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One key as stored. Its `repr` does not show the secrets."""

    primary: str
    secondary: str
    rights: KeyRights

    def __repr__(self) -> str:
        return f"AccessKey(rights={self.rights!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("rights", self.rights)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: dict[str, AccessKey]
    format: int = KEYS_FORMAT

    def check(self) -> None:
        for key in self.keys.values():
            key.rights.check()


class AccessKeys:
    """The keys of one file; without the file there are none."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ConfigError for a wrong one."""
        self._file = PrivateFile(path, _File, what="access keys", format=KEYS_FORMAT, check=_File.check)
        self._keys: dict[str, AccessKey] = {}
        self._load()

    def __contains__(self, name: object) -> bool:
        """Whether there is a key of that name."""
        return name in self._keys

    def __len__(self) -> int:
        """How many there are."""
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        """The names, in order."""
        return iter(sorted(self._keys))

    def get(self, name: str) -> AccessKey:
        """One key; ResourceNotFoundError."""
        key = self._keys.get(name)
        if key is None:
            raise ResourceNotFoundError(f"no such key{did_you_mean(name, self._keys)}", subject=name)
        return key

    def check(self, name: str, right: Right, entity: str) -> None:
        """Raise AccessRefusedError unless the key gives that right on an entity of that name."""
        key = self._keys.get(name)
        if key is None or not key.rights.allow(right, entity):
            raise AccessRefusedError(f"key {name!r} has no {right.value} right on it", subject=entity)

    # changing

    def add(self, name: str, rights: KeyRights, *, secret: str | None = None) -> AccessKey:
        """Add a key whose primary secret is `secret`, by default a random one; the secondary one is random.

        Raises ResourceExistsError, PreconditionFailedError for a wrong name, secret or pattern.
        """
        self.reload()
        if not 1 <= len(name) <= _MAX_NAME_CHARACTERS or not name.isprintable() or _SEPARATOR in name:
            raise PreconditionFailedError(
                f"the name of a key has 1 to {_MAX_NAME_CHARACTERS} printable characters without {_SEPARATOR}",
                subject=name,
            )
        if name in self._keys:
            raise ResourceExistsError("there is such a key already", subject=name)
        rights.check()
        return self._put(name, AccessKey(_checked(secret), _new_secret(), rights))

    def rotate(self, name: str, *, secret: str | None = None) -> AccessKey:
        """Make a new primary secret; the old one becomes the secondary, and the old secondary ends.

        Raises ResourceNotFoundError, PreconditionFailedError for a wrong secret.
        """
        self.reload()
        before = self.get(name)
        return self._put(name, AccessKey(_checked(secret), before.primary, before.rights))

    def remove(self, name: str) -> None:
        """Delete a key; ResourceNotFoundError."""
        self.reload()
        self.get(name)
        self._save({other: key for other, key in self._keys.items() if other != name})

    def reload(self) -> None:
        """Take over changes that another process wrote; costs one `stat` without any. Raises ConfigError."""
        if self._file.has_changed():
            self._load()

    # inside

    def _put(self, name: str, key: AccessKey) -> AccessKey:
        self._save({**self._keys, name: key})
        return key

    def _load(self) -> None:
        stored = self._file.read()
        self._keys = {} if stored is None else stored.keys

    def _save(self, keys: dict[str, AccessKey]) -> None:
        self._file.write(_File(keys))
        self._keys = keys


def _new_secret() -> str:
    return base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def _checked(secret: str | None) -> str:
    """The given secret, checked, or a new one."""
    if secret is None:
        return _new_secret()
    if not secret or not secret.isprintable() or secret != secret.strip() or _SEPARATOR in secret:
        raise PreconditionFailedError(
            f"a secret has printable characters, no {_SEPARATOR}, and no space at its ends; what was given is otherwise"
        )
    return secret
