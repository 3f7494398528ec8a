"""Message topics: topics of RocketMQ's clients, over streams and super streams.

    plain stream "audit"         a topic of one queue          queue 0 is the stream
    super stream "orders"        a topic of several            queue n is its partition n, in order: "orders-0", …

Every stream that is no partition is a topic, of any origin, and every super stream. A file has the kinds of messages
that a topic accepts, by its name, if they were declared; other topics accept all kinds.

    <root>/.headgate/message-topics.json      {"format": 1, "accepts": {"orders": ["normal", "delay"]}}

Where a stream and a super stream have the same name, the super stream is the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec

from headgate.broker.catalogue import arguments_declared
from headgate.broker.private_file import PrivateFile
from headgate.broker.settings import BrokerSettings, TopicCreation
from headgate.broker.stream import BrokerStream
from headgate.broker.streams import Streams
from headgate.broker.super_streams import (
    add_partitions,
    create_super_stream,
    delete_super_stream,
    numbered_partitions,
)
from headgate.broker.topics import ScheduledMessages
from headgate.errors import HeadgateError, PreconditionFailedError, ResourceExistsError, ResourceNotFoundError
from headgate.log import PRIVATE_FOLDER

MESSAGE_TOPICS_FORMAT = 1
MAX_QUEUES = 1_024

_MARK_CHARACTERS = 8
"""Characters of a stream's identity in handles of scheduled messages, so that handles of a deleted stream fail."""


class MessageKind(Enum):
    """The kind of a message, by its delivery; a topic accepts some kinds."""

    NORMAL = "normal"
    FIFO = "fifo"
    """In order within its message group."""
    DELAY = "delay"
    """At the time in the message."""


ALL_KINDS = frozenset(MessageKind)


@dataclass(frozen=True, slots=True)
class MessageTopic:
    """One topic; queue n is `streams[n]`."""

    name: str
    streams: tuple[str, ...]
    accepts: frozenset[MessageKind]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    accepts: dict[str, list[MessageKind]]
    format: int = MESSAGE_TOPICS_FORMAT

    def check(self) -> None:
        for name, accepts in self.accepts.items():
            _check_accepts(name, accepts)


class MessageTopics:
    """The message topics of one broker; in its thread only."""

    def __init__(
        self,
        root: Path,
        streams: Streams,
        settings: BrokerSettings,
        scheduled: Callable[[BrokerStream], ScheduledMessages],
    ) -> None:
        """Read the file of kinds; `scheduled` gives the scheduled messages of a stream. Raises ConfigError."""
        self._scheduled = scheduled
        self._streams = streams
        self._exchanges = streams.exchanges
        self._settings = settings
        self._file = PrivateFile(
            root / PRIVATE_FOLDER / "message-topics.json",
            _File,
            what="message topics",
            format=MESSAGE_TOPICS_FORMAT,
            check=_File.check,
        )
        self._accepts: dict[str, frozenset[MessageKind]] = {}
        self._of_several: dict[str, MessageTopic] = {}
        """Super streams found before; cleared when exchanges or kinds change."""
        self._changes = streams.exchanges.changes
        self._queues: tuple[int, dict[str, tuple[str, int]]] | None = None
        """The partitions of all super streams as of a change of the exchanges; made at the first use."""
        self._load()

    # finding

    def find(self, name: str) -> MessageTopic | None:
        """The topic of that name; None without one. Raises LogError for a damaged stream.

        Cost: a dictionary lookup; for a plain stream without a writer here also a few `stat`.
        """
        exchanges = self._exchanges
        if self._changes != exchanges.changes:
            self._changes = exchanges.changes
            self._of_several.clear()
        found = self._of_several.get(name)
        if found is not None:
            return found
        if exchanges.is_super_stream(name):
            streams = tuple(exchanges.partitions(name))
            if streams:
                found = self._of_several[name] = MessageTopic(name, streams, self._accepted_by(name))
                return found
        if self._streams.catalogue.find(name) is None:
            return None
        return MessageTopic(name, (name,), self._accepted_by(name))

    def get(self, name: str) -> MessageTopic:
        """The topic of that name; ResourceNotFoundError, LogError."""
        found = self.find(name)
        if found is None:
            raise ResourceNotFoundError("no such topic", subject=name)
        return found

    def names(self) -> list[str]:
        """The names of all topics, in order; partitions of super streams are none. Reads every `stream.json`."""
        exchanges = self._exchanges
        of_several = {name: exchanges.partitions(name) for name in exchanges.super_streams()}
        queues = {stream for streams in of_several.values() for stream in streams}
        plain = {name for name in self._streams.catalogue.names() if name not in queues}
        return sorted(plain | {name for name, streams in of_several.items() if streams})

    def queue_of(self, stream: str) -> tuple[str, int]:
        """The topic of which a stream is a queue, and the queue's number; a plain stream is its own. Cost: a lookup."""
        if self._queues is None or self._queues[0] != self._exchanges.changes:
            exchanges = self._exchanges
            queues = {
                queue: (name, number)
                for name in exchanges.super_streams()
                for number, queue in enumerate(exchanges.partitions(name))
            }
            self._queues = (exchanges.changes, queues)
        return self._queues[1].get(stream, (stream, 0))

    # changing

    def create(
        self, name: str, queues: int | None = None, accepts: Collection[MessageKind] = ALL_KINDS
    ) -> MessageTopic:
        """Make a topic: a stream for one queue, a super stream for several; None: as many queues as the settings say.

        Raises ResourceExistsError, ReservedNameError and PreconditionFailedError for names and numbers, LogError.
        """
        queues = self._settings.topic_queues if queues is None else queues
        _check_queues(name, queues)
        _check_accepts(name, accepts)
        if self.find(name) is not None:
            raise ResourceExistsError("there is a topic of that name", subject=name)
        if queues == 1:
            self._streams.declare(name, {})
        else:
            create_super_stream(self._streams, name, numbered_partitions(name, 0, queues), {}, takes_empty=True)
        try:
            self._accept(name, accepts)
        except HeadgateError:
            self.delete(name)
            raise
        return self.get(name)

    def change(
        self, name: str, *, queues: int | None = None, accepts: Collection[MessageKind] | None = None
    ) -> MessageTopic:
        """Give a topic more queues, or other kinds; None leaves them.

        Raises ResourceNotFoundError, PreconditionFailedError for fewer queues and for several queues of a plain stream,
        LogError.
        """
        found = self.get(name)
        has = len(found.streams)
        if queues is not None:
            _check_queues(name, queues)
            if queues < has:
                raise PreconditionFailedError(f"it has {has} queues; queues are not taken away", subject=name)
            if queues > has and found.streams == (name,):
                raise PreconditionFailedError("it is a stream, and has one queue", subject=name)
        if accepts is not None:
            _check_accepts(name, accepts)
        if queues is not None and queues > has:
            first = self._streams.catalogue.get(found.streams[0])
            add_partitions(self._streams, name, numbered_partitions(name, has, queues), arguments_declared(first))
        if accepts is not None:
            self._accept(name, accepts)
        return self.get(name)

    def ensure(self, name: str, queues: int | None = None, *, for_producer: bool) -> MessageTopic:
        """The topic of that name; a missing one is made if the settings allow it.

        Raises ResourceNotFoundError if they do not, and as `create`.
        """
        found = self.find(name)
        if found is not None:
            return found
        if not self.may_create(for_producer=for_producer):
            raise ResourceNotFoundError("no such topic", subject=name)
        return self.create(name, queues)

    def may_create(self, *, for_producer: bool) -> bool:
        """Whether the settings let a missing topic be made for a producer, or for another client."""
        wanted = self._settings.create_topics
        return wanted is TopicCreation.ANYBODY or (wanted is TopicCreation.PRODUCERS and for_producer)

    @property
    def queues_of_new(self) -> int:
        """How many queues a topic made without a number has."""
        return self._settings.topic_queues

    def delete(self, name: str) -> None:
        """Delete a topic with all messages; publishers and consumers of its queues end.

        Raises ResourceNotFoundError, StreamLockedError, LogError.
        """
        found = self.get(name)
        if found.streams == (name,):
            self._streams.delete(self._streams.catalogue.get(name))
        else:
            delete_super_stream(self._streams, name)
        self.reload()
        if name in self._accepts:
            self._save({other: accepts for other, accepts in self._accepts.items() if other != name})

    def reload(self) -> None:
        """Take over changes that another process wrote; costs one `stat` without any. Raises ConfigError."""
        if self._file.has_changed():
            self._load()

    # messages for later

    def schedule(
        self, topic: MessageTopic, queue: int, message: bytes, due_ms: int, then: Callable[[str | HeadgateError], None]
    ) -> None:
        """Publish an encoded message to a queue of a topic when its time comes, exactly once even across crashes.

        `then` gets a handle for `recall` when it is on disk, or the error of `ScheduledMessages.schedule`. Raises
        PreconditionFailedError for the number of the queue, ResourceNotFoundError, LogError.
        """
        waiting, mark = self._waiting(topic, queue)

        def told(numbers: list[int] | HeadgateError) -> None:
            then(numbers if isinstance(numbers, HeadgateError) else f"{queue}.{numbers[0]}.{mark}")

        waiting.schedule([message], [due_ms], told)

    def recall(self, topic: MessageTopic, handle: str, then: Callable[[HeadgateError | None], None]) -> None:
        """Forget a scheduled message.

        `then` gets None when it will not be published, ResourceNotFoundError if it waits no more, LogError. Raises
        PreconditionFailedError for a wrong handle, LogError.
        """
        try:
            queue, number, mark = handle.split(".")
            waiting, own_mark = self._waiting(topic, int(queue))
            numbers = [int(number)]
        except ValueError as error:
            raise PreconditionFailedError("no handle of a message for later", subject=handle[:80]) from error
        gone = ResourceNotFoundError("the message does not wait for its time any more", subject=topic.name)
        if mark != own_mark:
            then(gone)
            return

        def told(is_held: bool | HeadgateError) -> None:
            then(is_held if isinstance(is_held, HeadgateError) else None if is_held else gone)

        waiting.cancel(numbers, told)

    def _waiting(self, topic: MessageTopic, queue: int) -> tuple[ScheduledMessages, str]:
        """The scheduled messages of a queue, and the mark of its stream in handles."""
        if not 0 <= queue < len(topic.streams):
            raise PreconditionFailedError(f"it has {len(topic.streams)} queues, none {queue}", subject=topic.name)
        stream = self._streams.catalogue.get(topic.streams[queue])
        return self._scheduled(stream), stream.stream.identity[:_MARK_CHARACTERS]

    # inside

    def _accepted_by(self, name: str) -> frozenset[MessageKind]:
        return self._accepts.get(name, ALL_KINDS)

    def _accept(self, name: str, accepts: Collection[MessageKind]) -> None:
        self.reload()
        wanted = frozenset(accepts)
        if self._accepted_by(name) == wanted:
            return
        others = {other: kinds for other, kinds in self._accepts.items() if other != name}
        self._save(others if wanted == ALL_KINDS else {**others, name: wanted})

    def _load(self) -> None:
        stored = self._file.read()
        self._set({} if stored is None else {name: frozenset(kinds) for name, kinds in stored.accepts.items()})

    def _save(self, accepts: dict[str, frozenset[MessageKind]]) -> None:
        self._file.write(_File({name: [kind for kind in MessageKind if kind in accepts[name]] for name in accepts}))
        self._set(accepts)

    def _set(self, accepts: dict[str, frozenset[MessageKind]]) -> None:
        self._accepts = accepts
        self._of_several.clear()


def _check_queues(name: str, queues: int) -> None:
    if not 1 <= queues <= MAX_QUEUES:
        raise PreconditionFailedError(f"a topic has 1 to {MAX_QUEUES} queues, not {queues}", subject=name)


def _check_accepts(name: str, accepts: Collection[MessageKind]) -> None:
    if not accepts:
        raise PreconditionFailedError("a topic accepts one kind of messages at least", subject=name)
