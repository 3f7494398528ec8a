"""The registry: filters of a stream with kept results, their versions and liveness (rocketmq_filters, section 9).

    <stream folder>/match-filters.json     settings and filters; replaced by rename
    <stream folder>/match-filters.lock     held while it is changed

Readers do not look here: a sidecar itself names the filters that it has results of (docs/design/match-index.md).
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator

import msgspec

from headgate.derived.declaration import DeclarationFile
from headgate.derived.match_index.identity import check_registrable
from headgate.derived.match_index.settings import IndexSettings
from headgate.errors import ConfigError, FilterError, StreamReadOnlyError
from headgate.evaluate import Filter
from headgate.language.rocketmq import LISTS
from headgate.log import Stream

REGISTRY_FORMAT = 1

KEPT_DEAD_MS = 24 * 3_600_000
"""How long the results of a filter without consumers are still kept up to date."""

_DEAD_SINCE_AT_START_MS = 30_000
_MOST_ID_CHARACTERS = 1000


class RegisteredFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One filter: `id` is `<group>#<topic>` for a consumer group, else any name.

    `version` grows with every subscription; `born_ms` is when this text came into force, for information; `dead_ms` is
    when its last consumer left, None while it is alive. A `standing` filter was registered by hand and never dies.
    """

    id: str
    text: str
    dialect: str
    version: int
    born_ms: int
    dead_ms: int | None = None
    standing: bool = False

    def parsed(self) -> Filter:
        """The filter itself; FilterError or ConfigError if its text is not a valid filter."""
        expression = Filter.stated(self.text, self.dialect)
        check_registrable(expression)
        return expression


class Registration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the registry, filters in the order of registration."""

    settings: IndexSettings = IndexSettings()
    filters: tuple[RegisteredFilter, ...] = ()
    format: int = REGISTRY_FORMAT

    def find(self, filter_id: str) -> RegisteredFilter | None:
        """The filter with an id, or None."""
        return next((each for each in self.filters if each.id == filter_id), None)


class Change(enum.Enum):
    """The outcome of an announcement."""

    NEW = "new"
    REPLACED = "replaced"
    UPDATED = "updated"
    """The text is the same, the version newer."""
    REVIVED = "revived"
    IGNORED = "ignored"
    REFUSED = "refused"
    """The text is no filter, or its results cannot be kept; an older text of that id is not registered any more."""


class Announcement(msgspec.Struct, frozen=True):
    """The filter of a consumer group for a topic.

    Tags are checked by hash anyway: an announcement of tags, like an empty one, registers nothing; by hand tags can be
    registered.
    """

    text: str
    dialect: str
    version: int

    @property
    def is_registered(self) -> bool:
        """Whether it has an expression whose results may be kept."""
        return bool(self.text) and self.dialect not in LISTS

    def says_the_same(self, other: Announcement) -> bool:
        """Whether the two differ at most in their version."""
        return self.text == other.text and self.dialect == other.dialect


_FILE = DeclarationFile(
    "match-filters",
    Registration,
    what="registry of filters",
    format_=REGISTRY_FORMAT,
    check=lambda _found: None,
)

REGISTRY_NAME = _FILE.name


class RegistryChange:
    """The registry of one stream, under its lock: all changes are written once, at the end."""

    __slots__ = ("_body_schema", "_filters", "_settings")

    def __init__(self, registration: Registration, body_schema: str | None) -> None:
        """`body_schema` is what the stream declares."""
        self._body_schema = body_schema
        self._settings = registration.settings
        self._filters = {each.id: each for each in registration.filters}

    @property
    def registration(self) -> Registration:
        """The content as it is now."""
        return Registration(self._settings, tuple(self._filters.values()))

    def configure(self, settings: IndexSettings) -> None:
        """Change the settings."""
        self._settings = settings

    def announce(self, filter_id: str, wanted: Announcement, *, now_ms: int, standing: bool = False) -> Change:
        """Take a consumer's heartbeat (section 9), or with `standing` a registration by hand. ConfigError for an id."""
        if not standing and not wanted.is_registered:
            return Change.IGNORED
        _check_id(filter_id)
        old = self._filters.get(filter_id)
        fresh = RegisteredFilter(filter_id, wanted.text, wanted.dialect, wanted.version, now_ms, standing=standing)
        if old is not None and wanted.version <= old.version:
            if wanted.version < old.version or old.dead_ms is None:
                return Change.IGNORED
            self._revive(old, wanted.version, standing=standing)
            return Change.REVIVED
        if old is not None and (old.text, old.dialect) == (wanted.text, wanted.dialect):
            self._revive(old, wanted.version, standing=standing)
            return Change.UPDATED if old.dead_ms is None else Change.REVIVED
        try:
            check_registrable(fresh.parsed().over(self._body_schema))
        except (FilterError, ConfigError):
            self._filters.pop(filter_id, None)
            return Change.REFUSED
        self._filters[filter_id] = fresh
        return Change.NEW if old is None else Change.REPLACED

    def _revive(self, old: RegisteredFilter, version: int, *, standing: bool) -> None:
        self._filters[old.id] = msgspec.structs.replace(
            old, version=version, dead_ms=None, standing=old.standing or standing
        )

    def retire(self, filter_id: str, *, now_ms: int) -> bool:
        """Mark a filter as dead from now on, because its last consumer left. False if it was not alive."""
        old = self._filters.get(filter_id)
        if old is None or old.standing or old.dead_ms is not None:
            return False
        self._filters[filter_id] = _dead(old, now_ms)
        return True

    def remove(self, filter_id: str) -> bool:
        """Remove a filter; False if there is none with this id."""
        return self._filters.pop(filter_id, None) is not None

    def clean(self, *, now_ms: int) -> list[str]:
        """Remove filters that have been dead for a day; gives their ids."""
        filters = self._filters.values()
        old = [each.id for each in filters if each.dead_ms is not None and now_ms - each.dead_ms >= KEPT_DEAD_MS]
        for filter_id in old:
            del self._filters[filter_id]
        return old

    def restart(self, *, now_ms: int) -> None:
        """A broker starts, without consumers yet: filters that were alive count as dead since half a minute."""
        for each in self._filters.values():
            if not each.standing and each.dead_ms is None:
                self._filters[each.id] = _dead(each, now_ms - _DEAD_SINCE_AT_START_MS)


class FilterRegistry:
    """The registry of one stream. A change is one replacement of the file, under a lock; any number of processes."""

    __slots__ = ("_body_schema", "_check_has_folder", "_folder", "_foreign")

    def __init__(self, stream: Stream) -> None:
        self._folder = stream.path
        self._foreign = stream.is_foreign
        self._body_schema = stream.body_schema
        self._check_has_folder = stream.check_has_folder

    @property
    def is_there(self) -> bool:
        """Whether a filter or a setting was ever registered."""
        return (self._folder / REGISTRY_NAME).exists()

    def read(self) -> Registration:
        """The registered filters and settings; without a file none, and defaults. LogError for a file that is wrong."""
        return _FILE.read(self._folder) or Registration()

    def configure(self, settings: IndexSettings) -> None:
        """Change the settings."""
        with self.changing() as change:
            change.configure(settings)

    def register(self, filter_id: str, text: str, dialect: str, *, now_ms: int, version: int | None = None) -> Change:
        """Register a standing filter, or a new version of one; `version` is the time unless given.

        Raises FilterError for a filter that is wrong or depends on more than the message, ConfigError for an id.
        """
        _check_id(filter_id)
        wanted = Announcement(text, dialect, now_ms if version is None else version)
        parsed = RegisteredFilter(filter_id, text, dialect, wanted.version, now_ms).parsed()
        check_registrable(parsed.over(self._body_schema))
        with self.changing() as change:
            return change.announce(filter_id, wanted, now_ms=now_ms, standing=True)

    def remove(self, filter_id: str) -> bool:
        """Remove a filter; False if there is none with this id."""
        with self.changing() as change:
            return change.remove(filter_id)

    @contextlib.contextmanager
    def changing(self) -> Iterator[RegistryChange]:
        """Change the registry under its lock; it is written at the end, if anything changed.

        Raises StreamReadOnlyError for a foreign stream and one without its folder, StorageFullError, LogError.
        """
        self._check_has_folder()
        if self._foreign:
            raise StreamReadOnlyError(
                "a stream that RabbitMQ wrote gets no match index; take it over first, with `headgate stream adopt`",
                path=self._folder,
            )
        with _FILE.changing(self._folder, Registration()) as file:
            change = RegistryChange(file.now, self._body_schema)
            yield change
            file.now = change.registration


def _dead(each: RegisteredFilter, since_ms: int) -> RegisteredFilter:
    return msgspec.structs.replace(each, dead_ms=max(since_ms, each.born_ms))


def _check_id(filter_id: str) -> None:
    if not filter_id.strip() or len(filter_id) > _MOST_ID_CHARACTERS or not filter_id.isprintable():
        raise ConfigError(
            f"filter id: found {filter_id[:40]!r}, expected 1 to {_MOST_ID_CHARACTERS} printable characters"
        )
