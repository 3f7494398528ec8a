"""The filters of a stream whose results are kept, with versions and liveness (rocketmq_filters, section 9).

    <stream folder>/match-filters.json     settings and filters; replaced by rename
    <stream folder>/match-filters.lock     held while it is changed

Readers do not look here: they believe what a sidecar says was computed (docs/design/match-index.md).
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from headgate.errors import ConfigError, FilterError, LogError, StreamReadOnlyError
from headgate.evaluate import Filter
from headgate.log import Stream, replace_file, storage_error
from headgate.scan.match_index.identity import TAGS, check_registrable, stated_filter
from headgate.scan.match_index.settings import IndexSettings

REGISTRY_NAME = "match-filters.json"
LOCK_NAME = "match-filters.lock"
REGISTRY_FORMAT = 1

KEPT_DEAD_MS = 24 * 3_600_000
"""For this time the results of a filter without consumers are still kept up."""

_DEAD_SINCE_AT_START_MS = 30_000
_MOST_ID_CHARACTERS = 1000


class RegisteredFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One filter: `id` is `<group>#<topic>` for a consumer group, else any name.

    `version` grows with every subscription; `born_ms` is when this text came in force, for information; `dead_ms` when
    its last consumer left, None while it lives. A `standing` filter was registered by hand and dies of nothing.
    """

    id: str
    text: str
    dialect: str
    version: int
    born_ms: int
    dead_ms: int | None = None
    standing: bool = False

    def parsed(self) -> Filter:
        """The filter itself; FilterError or ConfigError if its text is no filter here."""
        expression = stated_filter(self.text, self.dialect)
        check_registrable(expression)
        return expression


class Registration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the registry, filters in the order in which they came."""

    settings: IndexSettings = IndexSettings()
    filters: tuple[RegisteredFilter, ...] = ()
    format: int = REGISTRY_FORMAT

    def find(self, filter_id: str) -> RegisteredFilter | None:
        """The filter of that id."""
        return next((each for each in self.filters if each.id == filter_id), None)


class Change(enum.Enum):
    """What an announcement did."""

    NEW = "new"
    REPLACED = "replaced"
    UPDATED = "updated"
    """The text is the same, the version newer."""
    REVIVED = "revived"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a consumer group asks of a topic.

    Tags are checked by hash anyway: an announcement of them registers nothing, like an empty one; by hand they can be.
    """

    text: str
    dialect: str
    version: int


class FilterRegistry:
    """The registry of one stream. A change is one replacement of the file, under a lock; any number of processes."""

    __slots__ = ("_folder", "_foreign")

    def __init__(self, stream: Stream) -> None:
        self._folder = stream.path
        self._foreign = stream.is_foreign

    def read(self) -> Registration:
        """What is registered now; without a file nothing, with default settings. LogError for a file that is wrong."""
        path = self._folder / REGISTRY_NAME
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return Registration()
        try:
            found = msgspec.json.decode(raw, type=Registration)
            found.settings.check()
        except (msgspec.DecodeError, UnicodeDecodeError, ConfigError) as error:
            raise LogError(f"not a registry of filters: {error}", path=path) from error
        if found.format != REGISTRY_FORMAT:
            raise LogError(f"a registry of format {found.format}, expected {REGISTRY_FORMAT}", path=path)
        return found

    def configure(self, settings: IndexSettings) -> None:
        """Change the settings; sidecars of another layout or size are built anew by the next build."""
        settings.check()
        with self._changing() as registration:
            self._write(msgspec.structs.replace(registration, settings=settings))

    def register(self, filter_id: str, text: str, dialect: str, *, now_ms: int, version: int | None = None) -> Change:
        """Register a standing filter, or a new version of one; `version` is the time unless given.

        Raises FilterError for a filter that is wrong or depends on more than the message, ConfigError for an id.
        """
        _check_id(filter_id)
        wanted = Announcement(text, dialect, now_ms if version is None else version)
        RegisteredFilter(filter_id, text, dialect, wanted.version, now_ms).parsed()
        return self._announce(filter_id, wanted, now_ms=now_ms, standing=True)

    def announce(self, filter_id: str, announcement: Announcement, *, now_ms: int) -> Change:
        """A consumer's heartbeat (section 9). A new text that is no filter raises, and removes the old one if newer."""
        if announcement.dialect == TAGS or not announcement.text:
            return Change.IGNORED
        _check_id(filter_id)
        return self._announce(filter_id, announcement, now_ms=now_ms, standing=False)

    def _announce(self, filter_id: str, wanted: Announcement, *, now_ms: int, standing: bool) -> Change:
        with self._changing() as registration:
            old = registration.find(filter_id)
            fresh = RegisteredFilter(filter_id, wanted.text, wanted.dialect, wanted.version, now_ms, standing=standing)
            if old is None:
                fresh.parsed()
                self._write(_with(registration, filter_id, fresh))
                return Change.NEW
            revived = msgspec.structs.replace(
                old, version=max(old.version, wanted.version), dead_ms=None, standing=old.standing or standing
            )
            if wanted.version <= old.version:
                if wanted.version < old.version or old.dead_ms is None:
                    return Change.IGNORED
                self._write(_with(registration, filter_id, revived))
                return Change.REVIVED
            if (old.text, old.dialect) == (wanted.text, wanted.dialect):
                self._write(_with(registration, filter_id, revived))
                return Change.UPDATED if old.dead_ms is None else Change.REVIVED
            try:
                fresh.parsed()
            except (FilterError, ConfigError):
                self._write(_with(registration, filter_id, None))
                raise
            self._write(_with(registration, filter_id, fresh))
            return Change.REPLACED

    def retire(self, filter_id: str, *, now_ms: int) -> bool:
        """The last consumer of a filter is gone: it is dead from now on. False if there was none alive."""
        with self._changing() as registration:
            old = registration.find(filter_id)
            if old is None or old.standing or old.dead_ms is not None:
                return False
            self._write(_with(registration, filter_id, _dead(old, now_ms)))
            return True

    def remove(self, filter_id: str) -> bool:
        """Forget a filter; False if there is none of that id."""
        with self._changing() as registration:
            if registration.find(filter_id) is None:
                return False
            self._write(_with(registration, filter_id, None))
            return True

    def clean(self, *, now_ms: int) -> list[str]:
        """Forget what has been dead for a day; gives the ids."""
        with self._changing() as registration:
            old = [
                each.id
                for each in registration.filters
                if each.dead_ms is not None and now_ms - each.dead_ms >= KEPT_DEAD_MS
            ]
            for filter_id in old:
                registration = _with(registration, filter_id, None)
            if old:
                self._write(registration)
            return old

    def restart(self, *, now_ms: int) -> None:
        """A broker starts: no consumer is there yet, so what was alive counts as dead since half a minute."""
        with self._changing() as registration:
            since = now_ms - _DEAD_SINCE_AT_START_MS
            filters = tuple(
                each if each.standing or each.dead_ms is not None else _dead(each, since)
                for each in registration.filters
            )
            if filters != registration.filters:
                self._write(msgspec.structs.replace(registration, filters=filters))

    def _write(self, registration: Registration) -> None:
        encoded = msgspec.json.format(msgspec.json.encode(registration), indent=1)
        replace_file(self._folder / REGISTRY_NAME, encoded + b"\n")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Registration]:
        """The registration, while nobody else changes it."""
        if self._foreign:
            raise StreamReadOnlyError(
                "a stream that RabbitMQ wrote gets no match index; take it over first, with `headgate stream adopt`",
                path=self._folder,
            )
        path = self._folder / LOCK_NAME
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            # Held for a few file operations only, and freed by the kernel at death: no limit on the wait.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield self.read()
        finally:
            os.close(descriptor)


def heartbeat(
    topics: Mapping[str, Stream], group: str, subscriptions: Mapping[str, Announcement], *, now_ms: int
) -> dict[str, Change | FilterError | ConfigError]:
    """A heartbeat of a consumer group over all topics: announce what it lists, retire what it has elsewhere.

    Gives per listed topic what came of it; a filter that is refused is its error, and the others go on. ConfigError for
    a topic that is not there.
    """
    outcome: dict[str, Change | FilterError | ConfigError] = {}
    for topic, stream in topics.items():
        registry, filter_id = FilterRegistry(stream), f"{group}#{topic}"
        if topic not in subscriptions:
            if registry.read().find(filter_id) is not None:
                registry.retire(filter_id, now_ms=now_ms)
            continue
        try:
            outcome[topic] = registry.announce(filter_id, subscriptions[topic], now_ms=now_ms)
        except (FilterError, ConfigError) as refused:
            outcome[topic] = refused
    missing = sorted(subscriptions.keys() - topics.keys())
    if missing:
        raise ConfigError(f"no topic {', '.join(missing)}; there are {', '.join(sorted(topics)) or 'none'}")
    return outcome


def registered_streams(streams: list[Stream]) -> list[tuple[Stream, Registration]]:
    """The streams that have a registry, with it."""
    found = [stream for stream in streams if (stream.path / REGISTRY_NAME).exists()]
    return [(stream, FilterRegistry(stream).read()) for stream in found]


def _dead(each: RegisteredFilter, since_ms: int) -> RegisteredFilter:
    return msgspec.structs.replace(each, dead_ms=max(since_ms, each.born_ms))


def _with(registration: Registration, filter_id: str, fresh: RegisteredFilter | None) -> Registration:
    """The registration with another filter of that id in its place, or without it."""
    filters = [fresh if each.id == filter_id else each for each in registration.filters]
    if fresh is not None and fresh not in filters:
        filters.append(fresh)
    return msgspec.structs.replace(registration, filters=tuple(each for each in filters if each is not None))


def _check_id(filter_id: str) -> None:
    if not filter_id.strip() or len(filter_id) > _MOST_ID_CHARACTERS or not filter_id.isprintable():
        raise ConfigError(
            f"filter id: found {filter_id[:40]!r}, expected 1 to {_MOST_ID_CHARACTERS} printable characters"
        )
