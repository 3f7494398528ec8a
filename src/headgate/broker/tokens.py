"""Tokens of users for scripts, in one file beside that of the users: only their digests are stored.

    <root>/.headgate/users-tokens.json     {"format": 1, "tokens": {"3f0c…": {"user", "digest", "description", …}}}

A token is 256 random bits behind the prefix `headgate_`. It has the permissions of its user, at most: it may be for
reading only, and may expire. It ends with its user, and stays when the password changes.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from headgate.broker.private_file import PrivateFile
from headgate.errors import LimitExceededError, PreconditionFailedError, ResourceNotFoundError

TOKENS_FORMAT = 1
PREFIX = "headgate_"
TOKENS_PER_USER = 100
"""Limit."""
LONGEST_DESCRIPTION = 200
"""Limit of characters."""

_SECRET_BYTES = 32
_ID_BYTES = 8


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One token as stored; times are in milliseconds since 1970, `expires_ms` None: it does not expire."""

    user: str
    digest: str
    """SHA-256 of its text, in hexadecimal digits."""
    description: str
    created_ms: int
    expires_ms: int | None = None
    read_only: bool = False


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: dict[str, Token]
    format: int = TOKENS_FORMAT

    def check(self) -> None:
        """Every content of these types is one."""


class Tokens:
    """The tokens of one file; without a path they are kept in memory only. For the broker's thread."""

    def __init__(self, path: Path | None) -> None:
        """Read the file, if it is there. Raises ConfigError for a wrong one."""
        self._file: PrivateFile[_File] | None = None
        if path is not None:
            self._file = PrivateFile(path, _File, what="tokens", format=TOKENS_FORMAT, check=_File.check)
        self._tokens: dict[str, Token] = {}
        self._by_digest: dict[str, Token] = {}
        self._load()

    def find(self, text: str, *, now_ms: int) -> Token | None:
        """The token of a text; None for an unknown or expired one."""
        if not text.startswith(PREFIX):
            return None
        token = self._by_digest.get(_digest(text))
        return None if token is None or _has_expired(token, now_ms) else token

    def all(self, *, now_ms: int) -> Iterator[tuple[str, Token]]:
        """Ids and tokens that have not expired, oldest first."""
        for name, token in sorted(self._tokens.items(), key=lambda each: each[1].created_ms):
            if not _has_expired(token, now_ms):
                yield name, token

    def create(
        self, user: str, description: str, *, now_ms: int, expires_ms: int | None = None, read_only: bool = False
    ) -> tuple[str, str]:
        """Make a token of a user: its id, and its text, which cannot be had again.

        Raises PreconditionFailedError for a description that is too long, LimitExceededError, LogError.
        """
        self.reload()
        if len(description) > LONGEST_DESCRIPTION:
            raise PreconditionFailedError(
                f"the description has {len(description)} characters; expected at most {LONGEST_DESCRIPTION}"
            )
        kept = dict(self.all(now_ms=now_ms))
        if sum(token.user == user for token in kept.values()) >= TOKENS_PER_USER:
            raise LimitExceededError(f"user {user!r} has {TOKENS_PER_USER} tokens, which is the limit; revoke one")
        name, text = secrets.token_hex(_ID_BYTES), PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        token = Token(user, _digest(text), description, now_ms, expires_ms, read_only)
        self._save({**kept, name: token})
        return name, text

    def get(self, name: str) -> Token:
        """One token by its id; ResourceNotFoundError."""
        token = self._tokens.get(name)
        if token is None:
            raise ResourceNotFoundError("no such token", subject=name)
        return token

    def revoke(self, names: Iterable[str]) -> None:
        """Delete tokens by their ids. Raises LogError."""
        self.reload()
        gone = set(names)
        self._save({name: token for name, token in self._tokens.items() if name not in gone})

    def revoke_of(self, user: str) -> None:
        """Delete the tokens of a user. Raises LogError."""
        self.reload()
        names = [name for name, token in self._tokens.items() if token.user == user]
        if names:
            self.revoke(names)

    def reload(self) -> None:
        """Take over changes that another process wrote; costs one `stat` without any. Raises ConfigError."""
        if self._file is not None and self._file.has_changed():
            self._load()

    def _load(self) -> None:
        stored = None if self._file is None else self._file.read()
        self._take({} if stored is None else stored.tokens)

    def _save(self, tokens: dict[str, Token]) -> None:
        if self._file is not None:
            self._file.write(_File(tokens))
        self._take(tokens)

    def _take(self, tokens: dict[str, Token]) -> None:
        self._tokens = tokens
        self._by_digest = {token.digest: token for token in tokens.values()}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _has_expired(token: Token, now_ms: int) -> bool:
    return token.expires_ms is not None and token.expires_ms <= now_ms
