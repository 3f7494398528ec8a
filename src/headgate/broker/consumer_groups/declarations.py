"""Declarations of consumer groups: their settings, by name, in one file.

    <root>/.headgate/consumer-groups.json     {"format": 1, "groups": {"billing": {"fifo": true, "max_attempts": 5}}}

A group that is used before it is declared is declared with the defaults, where the settings of the broker allow it.
That is written within a second: until then the next use would declare it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path

import msgspec

from headgate.broker.private_file import PrivateFile
from headgate.errors import (
    ConfigError,
    EntityDisabledError,
    LimitExceededError,
    PreconditionFailedError,
    ResourceNotFoundError,
)
from headgate.log import PRIVATE_FOLDER

CONSUMER_GROUPS_FORMAT = 1
MAX_NAME_BYTES = 255
MAX_ATTEMPTS = 10_000
MAX_BACKOFF_MS = 86_400_000
MAX_BACKOFFS = 128

DEFAULT_BACKOFF_MS = tuple(
    seconds * 1_000
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
)
"""RocketMQ's levels of delay (rocketmq_wire, A3)."""


class GroupStart(Enum):
    """Where a group begins in a queue that is new to it."""

    FIRST = "first"
    LAST = "last"
    FIRST_WHILE_YOUNG = "first_while_young"
    """At the beginning of a queue that has lost no message and is small enough; else at the end."""


class GroupSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the messages of a consumer group are delivered."""

    fifo: bool = False
    """Whether the messages of a message group, or of a queue, are delivered one after the other."""
    max_attempts: int = 17
    """After this many deliveries without an acknowledgement a message becomes a dead letter."""
    backoff_ms: tuple[int, ...] = DEFAULT_BACKOFF_MS
    """How long a message waits after its first failed attempt, its second, …; later attempts use the last value."""
    enabled: bool = True
    """Whether its members are given messages."""
    broadcast: bool = True
    """Whether members may broadcast: each consumes all messages on its own."""
    start: GroupStart | None = None
    """Where it begins; None: by the settings of the broker."""

    def check(self, name: str) -> None:
        """Raise PreconditionFailedError for values that a group cannot have."""
        if not 1 <= self.max_attempts <= MAX_ATTEMPTS:
            raise PreconditionFailedError(
                f"max_attempts is {self.max_attempts}; expected 1 to {MAX_ATTEMPTS}", subject=name
            )
        if not 1 <= len(self.backoff_ms) <= MAX_BACKOFFS:
            raise PreconditionFailedError(
                f"backoff has {len(self.backoff_ms)} times; expected 1 to {MAX_BACKOFFS}", subject=name
            )
        wrong = next((each for each in self.backoff_ms if not 1 <= each <= MAX_BACKOFF_MS), None)
        if wrong is not None:
            raise PreconditionFailedError(f"backoff has {wrong} ms; expected 1 to {MAX_BACKOFF_MS}", subject=name)

    def changed(self, given: Mapping[str, object]) -> GroupSettings:
        """The same with other values for some settings, as JSON or TOML has them. Raises ConfigError."""
        unknown = sorted(given.keys() - set(self.__struct_fields__))
        if unknown:
            raise ConfigError(
                f"a consumer group has no setting {unknown[0]!r}; expected one of {', '.join(self.__struct_fields__)}"
            )
        try:
            return msgspec.convert({**msgspec.to_builtins(self), **given}, GroupSettings)
        except msgspec.ValidationError as error:
            raise ConfigError(f"settings of a consumer group: {error}") from error

    def json_object(self) -> dict[str, object]:
        """All settings by name, defaults included."""
        given: dict[str, object] = {name: getattr(self, name) for name in self.__struct_fields__}
        return dict(msgspec.to_builtins(given))


DEFAULT_GROUP = GroupSettings()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    groups: dict[str, GroupSettings]
    format: int = CONSUMER_GROUPS_FORMAT

    def check(self) -> None:
        for name, settings in self.groups.items():
            settings.check(name)


def declarations_path(root: Path) -> Path:
    """The file of a root's declared groups."""
    return root / PRIVATE_FOLDER / "consumer-groups.json"


def declared_groups(root: Path) -> Mapping[str, GroupSettings]:
    """The declared groups of a root, by name, as its file is now. Raises ConfigError for a wrong one."""
    stored = _file_at(declarations_path(root)).read()
    return {} if stored is None else stored.groups


def _file_at(path: Path) -> PrivateFile[_File]:
    return PrivateFile(path, _File, what="consumer groups", format=CONSUMER_GROUPS_FORMAT, check=_File.check)


class GroupDeclarations:
    """The declared groups of one root; without the file there are none."""

    def __init__(self, path: Path, *, may_create: bool, most: int, changed: Callable[[str], None]) -> None:
        """Read the file. Raises ConfigError for a wrong one.

        `may_create`: the first use of a group declares it; at most `most` groups are declared. `changed` is called with
        the name of each group whose settings changed, or that was removed.
        """
        self._file = _file_at(path)
        self._may_create = may_create
        self._most = most
        self._changed = changed
        self._groups: dict[str, GroupSettings] = {}
        self._unwritten: set[str] = set()
        """Groups declared by their first use that are not in the file yet."""
        self._load()

    def find(self, name: str) -> GroupSettings | None:
        """The settings of a group; None if it is not declared."""
        return self._groups.get(name)

    def names(self) -> list[str]:
        """The names of all groups, in order."""
        return sorted(self._groups)

    def declare(self, name: str, settings: GroupSettings) -> None:
        """Declare a group, or give it other settings. Raises PreconditionFailedError, LimitExceededError, LogError."""
        self.reload()
        settings.check(name)
        before = self._groups.get(name)
        if before is None:
            self._check_new(name)
        if before != settings or name in self._unwritten:
            self._save({**self._groups, name: settings})
        if before is not None and before != settings:
            self._changed(name)

    def remove(self, name: str) -> None:
        """Forget a group. Raises ResourceNotFoundError, LogError."""
        self.reload()
        if name not in self._groups:
            raise ResourceNotFoundError("no such consumer group", subject=name)
        self._save({other: settings for other, settings in self._groups.items() if other != name})
        self._changed(name)

    def ensure(self, name: str) -> GroupSettings:
        """The settings of a group before its use; it is declared if needed.

        Raises ResourceNotFoundError where only declared groups may be used, EntityDisabledError, LimitExceededError,
        PreconditionFailedError for a bad name.
        """
        found = self._groups.get(name)
        if found is None:
            if not self._may_create:
                raise ResourceNotFoundError("no such consumer group", subject=name)
            self._check_new(name)
            found = self._groups[name] = DEFAULT_GROUP
            self._unwritten.add(name)
        if not found.enabled:
            raise EntityDisabledError("the consumer group is disabled", subject=name)
        return found

    def tick(self) -> None:
        """Take over changes of other processes; write groups declared by first use. Raises ConfigError, LogError."""
        self.reload()
        if self._unwritten:
            self._save(self._groups)

    def reload(self) -> None:
        """Take over changes that another process wrote; costs one `stat` without any. Raises ConfigError."""
        if self._file.has_changed():
            self._load()

    # inside

    def _check_new(self, name: str) -> None:
        try:
            length = len(name.encode())
        except UnicodeEncodeError as error:
            raise PreconditionFailedError("a name is text that UTF-8 can say", subject=repr(name[:40])) from error
        if not 1 <= length <= MAX_NAME_BYTES:
            raise PreconditionFailedError(
                f"the name of a consumer group has 1 to {MAX_NAME_BYTES} bytes", subject=name[:40]
            )
        if len(self._groups) >= self._most:
            raise LimitExceededError(f"there are {self._most} consumer groups already", subject=name)

    def _load(self) -> None:
        stored = self._file.read()
        before, read = self._groups, {} if stored is None else dict(stored.groups)
        kept = {name: before[name] for name in self._unwritten if name not in read}
        self._unwritten = set(kept)
        self._groups = {**read, **kept}
        for name, settings in before.items():
            if self._groups.get(name) != settings:
                self._changed(name)

    def _save(self, groups: dict[str, GroupSettings]) -> None:
        self._file.write(_File(groups))
        self._groups = groups
        self._unwritten.clear()
