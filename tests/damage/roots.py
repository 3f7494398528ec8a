"""A root with everything that a broker keeps in files, and everything that users may ask of it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import headgate
from brokers import publish
from headgate.broker import (
    BrokerTopic,
    DeadLetterReason,
    EntityDeclaration,
    GroupSettings,
    ReceiverCalls,
    SubscriptionDeclaration,
    any_target,
)
from headgate.broker.consumer_groups import ReceiveRequest
from headgate.broker.consumers import ConsumerOptions
from headgate.broker.keys import KeyRights
from headgate.broker.message_topics import MessageKind
from headgate.broker.users import Permissions
from headgate.derived import sources_of
from headgate.derived.columns import COLUMN_FILES, declaration_of, declare_columns
from headgate.derived.lookup import LOOKUP_FILES, declare_lookup, lookup_fields
from headgate.derived.match_index.registry import FilterRegistry
from headgate.errors import HeadgateError
from headgate.evaluate import Filter
from headgate.log import OffsetSpecification, Stream, stream_folder, streams_beside, verify_stream
from headgate.log.inspection import Damage
from headgate.log.manifest import MANIFEST_FORMAT, Commits, Manifest, ManifestFolder
from headgate.message import Message
from headgate.scan import ScanRequest, count_matches, resolve_range
from headgate.server.listings import offset_rows, stream_rows, user_rows
from headgate.server.topics.message_topics import all_group_rows, group_row, message_topic_rows
from headgate.server.topics.rows import history_rows, rule_rows, subscription_rows, topic_rows
from headgate.topic import (
    QUEUE_SUBSCRIPTION,
    RuleDefinition,
    SubscriptionName,
    SubscriptionSettings,
    TopicKind,
    TopicSettings,
)
from match_indexes import build_index
from topic_lab import Lab, Link

from .originals import Original, files_of
from .plain_log import FILE_HEAD_BYTES, INDEX_RECORD, Row, read_chunks
from .readers import consumed, logged

NOW_MS = 1_760_000_000_000
LOCK_MS = 5_000
INVISIBLE_MS = 10_000
MADE_MS = 4_500
STREAMS = ("jobs", "orders", "parts-0", "parts-1", "plain")
SUBSCRIPTIONS = (("jobs", QUEUE_SUBSCRIPTION), ("orders", "red"), ("orders", "all"))
QUEUES = ("parts-0", "parts-1")
USER = "guest"
QUERY = "query"

Answer = object
"""What was answered; a `Refused` for an error."""

T = TypeVar("T")


@dataclass(frozen=True)
class Refused:
    """An error, and what it says."""

    error: str


@dataclass(frozen=True)
class Root:
    """An undamaged root: its files by their paths, its folders with streams and others, and what is answered of it."""

    path: Path
    files: dict[str, bytes]
    folders: list[Original]
    answers: dict[str, Answer]
    _earlier: dict[tuple[str, int], dict[str, Answer]] = field(default_factory=dict)

    def with_files(self, folder: Original, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """The root with other files in one folder."""
        others = {name: content for name, content in self.files.items() if str(Path(name).parent) != folder.name}
        return others | {f"{folder.name}/{name}": content for name, content in files.items()}

    def earlier(self, folder: Original, count: int) -> dict[str, Answer]:
        """What is answered where the last pair of a folder ends before a chunk: a moment before that was appended."""
        key = folder.name, count
        if key not in self._earlier:
            chunk, files = folder.chunks[count], dict(folder.files)
            files[f"{chunk.stem}.index"] = files[f"{chunk.stem}.index"][
                : FILE_HEAD_BYTES + chunk.number * INDEX_RECORD.size
            ]
            files[f"{chunk.stem}.segment"] = files[f"{chunk.stem}.segment"][: chunk.position]
            self._earlier[key] = ask_of(self.path, self.with_files(folder, files))[0]
        return self._earlier[key]


def body(number: int, **more: object) -> bytes:
    properties: dict[str, object] = {"n": number, "color": "red" if number % 2 else "blue", **more}
    return Message(b"%d" % number, application_properties=properties).encode()


class RootLab(Lab):
    """A broker over a root that is made, or asked."""

    def _told(self, ask: Callable[[Callable[[object], None]], None]) -> object:
        answers: list[object] = []
        ask(answers.append)
        self.turn()
        (answer,) = answers
        if isinstance(answer, HeadgateError):
            raise answer
        return answer

    def send(self, name: str, *messages: bytes, reference: str | None = None) -> None:
        publisher = self.session.publisher(name, reference=reference)
        sequences = None if reference is None else range(1, len(messages) + 1)
        error = publish(self.broker, publisher, messages, sequences=sequences)
        publisher.close()
        if error is not None:
            raise error
        self.turn()

    def receiver(self, topic: str, subscription: str, want: int = 100, *, dead_letters: bool = False) -> Link:
        link = Link(self.session)
        link.receiver = self.session.receiver(
            SubscriptionName(topic, subscription, dead_letters),
            ReceiverCalls(deliver=link.take, ended=link.ends.append),
        )
        link.receiver.want(want)
        self.turn()
        return link

    def ask_group(self, *queues: str, count: int = 100) -> list[tuple[int, int, int, bytes]]:
        """Queue, offset, attempt and message of each."""
        answers: list[object] = []
        request = ReceiveRequest("billing", queues, None, None, count, INVISIBLE_MS, answers.append, takes_new=True)
        receiving = self.broker.consumer_groups.receive(request)
        self.turn()
        receiving.end()
        (answer,) = answers
        if isinstance(answer, HeadgateError):
            raise answer
        self.group_tokens = [(each.queue, each.token) for each in answer.messages]  # type: ignore[attr-defined]
        return [(each.queue, each.offset, each.attempt, each.message) for each in answer.messages]  # type: ignore[attr-defined]

    def settle_group(self, count: int) -> None:
        for queue, token in self.group_tokens[:count]:
            view = self.broker.consumer_groups.view(f"parts-{queue}", "billing")
            self._told(lambda then, view=view, token=token: view.complete([token], then))

    # making

    def make(self) -> None:
        """Everything that a root may hold."""
        self._make_entities()
        self._make_groups()
        self._make_stream()
        private = self.broker
        private.users.add("anna", None, tags=("monitoring",), permissions=Permissions("^a", "^b", "^c"))
        private.users.set_password(USER, None)
        private.keys.add("sender", KeyRights(send="^a$"), secret="secret")
        self.session.declare_exchange("events", kind="topic")
        self.session.bind("events", "plain", "a.#")
        Commits(self.root).publish(Manifest(QUERY, 7, NOW_MS, durable=False, outputs=()))
        self.turn()
        self.broker.close()

    def _entity(self, declaration: EntityDeclaration) -> None:
        create = self.broker.entities.create
        self._told(lambda then: create(declaration, then, check_target=any_target))

    def _make_entities(self) -> None:
        settings = SubscriptionSettings(lock_ms=LOCK_MS, max_delivery_count=5)
        queue = TopicSettings(kind=TopicKind.QUEUE)
        self._entity(EntityDeclaration("jobs", queue, delivery=settings))
        rules = (RuleDefinition("Red", sql="color = 'red'", action="SET seen = 1"), RuleDefinition("n", sql="n > 90"))
        red = SubscriptionDeclaration("red", settings=settings, rules=rules)
        self._entity(
            EntityDeclaration("orders", subscriptions=(red, SubscriptionDeclaration("all", settings=settings)))
        )
        for topic, subscription in SUBSCRIPTIONS[:2]:
            for start in range(0, 24, 4):
                self.send(topic, *(body(number) for number in range(start, start + 4)))
            link = self.receiver(topic, subscription, 9)
            for token in link.tokens[:3]:
                link.receiver.settler.complete([token])
                self.turn()
            for token in link.tokens[3:5]:
                link.receiver.settler.dead_letter([token], why=DeadLetterReason("why"))
                self.turn()
            for token in link.tokens[5:7]:
                link.receiver.settler.defer([token])
                self.turn()
            link.receiver.settler.release([link.tokens[7]], counts=True)
            self.turn()
            link.receiver.close()
        changed = RuleDefinition("n", sql="n > 95")
        self._told(lambda then: self.broker.entities.replace_rule("orders", "red", changed, then))
        topic = self.broker.topics.get("jobs")
        self._told(lambda then: topic.scheduled.schedule([body(90)], [self.clock.now + 1_000_000], then))
        self._told(lambda then: topic.scheduled.schedule([body(91)], [self.clock.now + 2_000_000], then))

    def _make_groups(self) -> None:
        self.broker.message_topics.create("parts", 2, [MessageKind.NORMAL])
        self.broker.consumer_groups.declare("billing", GroupSettings(max_attempts=9))
        for queue in QUEUES:
            for start in range(0, 12, 3):
                self.send(queue, *(body(number) for number in range(start, start + 3)))
            self.broker.queue_numbers.of(self.broker.catalogue.get(queue))
        self.ask_group(*QUEUES, count=12)
        self.settle_group(7)

    def _make_stream(self) -> None:
        self.session.declare_stream("plain", {"stream-max-segment-size-bytes": 1})
        for step in range(4):
            self.send("plain", *(body(number) for number in range(5 * step, 5 * step + 5)), reference=f"p{step}")
        self.session.store_offset("plain", "reader", 7)
        self.turn(after_ms=2_000)
        self.session.store_offset("plain", "other", 11)
        self.turn(after_ms=2_000)
        stream = self.broker.catalogue.get("plain").stream
        declare_columns(stream, "n long, color string")
        declare_lookup(stream, ["application_properties.color"])
        FilterRegistry(stream).register("red", "color = 'red'", "amqp", now_ms=NOW_MS)
        for _ in COLUMN_FILES.build(stream, now_ms=NOW_MS):
            pass
        for _ in LOOKUP_FILES.build(stream, now_ms=NOW_MS):
            pass
        build_index(stream, now_ms=NOW_MS)

    # asking

    def questions(self) -> Iterator[tuple[str, Callable[[], Answer]]]:
        """Everything that users would ask, those first that change nothing. Those of one name share an answer."""
        broker, session = self.broker, self.session
        yield "users", lambda: list(user_rows(broker.users))
        yield "keys", lambda: {name: broker.keys.get(name) for name in broker.keys}
        yield "exchanges", lambda: (broker.exchanges.all(), session.bindings(), broker.exchanges.super_streams())
        yield "route", lambda: session.route("events", "a.b")
        yield "queue numbers", lambda: [broker.queue_numbers.find(number) for number in range(1, 5)]
        manifests = ManifestFolder(Commits(self.root).folder, Manifest, formats=(MANIFEST_FORMAT,))
        yield "commits", lambda: manifests.completed(QUERY)
        yield "groups", lambda: [(name, broker.consumer_groups.find(name)) for name in broker.consumer_groups.names()]
        for stream in STREAMS:
            yield f"verify {stream}", lambda name=stream: self._verified(name)
        for stream in STREAMS:
            yield f"messages of {stream}", lambda name=stream: self._messages(name)
            yield (
                f"publishers of {stream}",
                lambda name=stream: [session.last_sequence(name, f"p{n}") for n in range(4)],
            )
        yield "declared of plain", lambda: self._declared("plain")
        yield "red ones of plain", lambda: self._selected("plain")
        # Damage is looked at a few times before a topic calls it that; until then a peek ends before it.
        for topic in ("jobs", "orders"):
            yield f"open {topic}", lambda topic=topic: self._opened(topic) and None
        self.pass_time(3_000)
        for topic, name in SUBSCRIPTIONS:
            yield f"peek {topic} {name}", lambda topic=topic, name=name: self._peeked(topic, name, dead_letters=False)
            yield (
                f"dead letters {topic} {name}",
                lambda topic=topic, name=name: self._peeked(topic, name, dead_letters=True),
            )
            yield f"rules {topic} {name}", lambda topic=topic: self._rules(topic)
        yield "places", lambda: asyncio.run(self._places())
        yield "list of streams", lambda: _rows(stream_rows(broker, USER))
        yield "list of topics", lambda: _rows(topic_rows(broker, USER))
        yield "list of subscriptions", lambda: _rows(subscription_rows(broker, USER))
        yield "list of rules", lambda: _rows(rule_rows(broker, USER))
        yield "list of offsets", lambda: _rows(offset_rows(broker, USER))
        yield "list of message topics", lambda: _rows(message_topic_rows(broker, USER))
        for topic, name in SUBSCRIPTIONS:
            yield f"deferred {topic} {name}", lambda topic=topic, name=name: self._deferred(topic, name)
        for topic, name in SUBSCRIPTIONS:
            yield f"receive {topic} {name}", lambda topic=topic, name=name: self._received(topic, name)
        for queue in QUEUES:
            yield f"receive billing {queue}", lambda queue=queue: self._group_received(queue)
        for stream in STREAMS:
            yield f"publish {stream}", lambda name=stream: self._published(name)
        for topic, name in SUBSCRIPTIONS:
            yield (
                f"then {topic} {name}",
                lambda topic=topic, name=name: [each[1] for each in self._received(topic, name, settled=False)][-1:],
            )

    def _verified(self, name: str) -> Answer:
        stream = Stream.open(stream_folder(self.root, name))
        found = (each for one in (stream, *streams_beside(stream)) for each in verify_stream(one))
        return [
            Refused(f"{each.path}, byte {each.position}: {each.reason}") for each in found if isinstance(each, Damage)
        ]

    def _messages(self, name: str) -> Answer:
        rows: list[Row] = []
        lost = consumed(self.session, name, ConsumerOptions(start=OffsetSpecification.first()), rows)
        return rows, lost

    def _declared(self, name: str) -> Answer:
        stream = Stream.open(stream_folder(self.root, name))
        filters = FilterRegistry(stream).read()
        return declaration_of(stream), lookup_fields(stream), filters, stream.settings

    def _selected(self, name: str) -> Answer:
        """What column files, lookup files and match indexes are asked for, too."""
        stream = Stream.open(stream_folder(self.root, name))
        within = resolve_range(stream, start=OffsetSpecification.first(), end=None, now_ms=NOW_MS)
        red = Filter.parse("color = 'red'")
        count = count_matches(stream, ScanRequest(filter=red, now_ms=NOW_MS, sources=sources_of()), within).matches
        table = headgate.read(stream.path, columns="offset, n long", filter="color = 'red'").to_arrow()
        return count, table.to_pylist()

    def _opened(self, topic: str) -> BrokerTopic:
        """A topic that has decided what is there."""
        served = self.broker.topics.get(topic)
        self.turn()
        return served

    def _peeked(self, topic: str, name: str, *, dead_letters: bool) -> Answer:
        copies = self._opened(topic).browser.peek(name, 0, 1000, dead_letters=dead_letters)
        return [(each.copy, each.message, each.attempts, each.state) for each in copies]

    def _rules(self, topic: str) -> Answer:
        return history_rows(self.broker.topics.get(topic).history)

    async def _places(self) -> Answer:
        places = await all_group_rows(self.broker)
        return [_row(group_row(self.broker, "billing", places)), *map(_row, places.of("billing"))]

    def _deferred(self, topic: str, name: str) -> Answer:
        served = self.broker.topics.get(topic)
        copies = [copy for copy, *_ in self._peeked(topic, name, dead_letters=False)]  # type: ignore[attr-defined]
        found = self._told(lambda then: served.receivers.receive_deferred(name, copies, then))
        return [(each.copy, each.message, each.attempt) for each in found]  # type: ignore[attr-defined]

    def _received(self, topic: str, name: str, *, settled: bool = True) -> list[tuple[int, bytes, int]]:
        """What a receiver is given when all locks are over; it completes all."""
        self.pass_time(LOCK_MS)
        link = self.receiver(topic, name, 1000)
        self.pass_time(3_000)
        if link.ends:
            raise link.ends[0]
        if settled and link.tokens:
            self._told(lambda then: link.receiver.settler.complete(link.tokens, then))
        found = [(each.copy, each.message, each.attempt) for each in link.deliveries]
        link.receiver.close()
        return found

    def _group_received(self, queue: str) -> Answer:
        """A queue that is damaged is passed over where a group has others."""
        self.turn(after_ms=INVISIBLE_MS)
        found = self.ask_group(queue)
        # What lies before damage comes first, then the error.
        return found + self.ask_group(queue)

    def _published(self, name: str) -> Answer:
        self.send(name, body(99))
        rows, _ = self._messages(name)  # type: ignore[misc]
        return rows[-1][0], rows[-1][2]


_VOLATILE = ("size_bytes", "held_back_bytes")


def _row(row: Mapping[str, object]) -> Answer:
    if "error" in row:
        return Refused(str(row["error"]))
    return {name: value for name, value in row.items() if name not in ("counters", "reading", *_VOLATILE)}


def _rows(rows: Iterator[Mapping[str, object]]) -> Answer:
    """Rows, those with an error as such."""
    return [_row(row) for row in rows]


def ask_of(root: Path, files: Mapping[str, bytes]) -> tuple[dict[str, Answer], list[str]]:
    """What is answered of everything in a root with these files, and what is logged meanwhile."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    try:
        with logged() as texts:
            return _ask(root), texts
    finally:
        shutil.rmtree(root)


def _ask(root: Path) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    try:
        lab = RootLab(root)
        lab.clock.now += MADE_MS
    except HeadgateError as error:
        return {"start": Refused(str(error))}
    try:
        for name, question in lab.questions():
            try:
                answers[name] = question()
            except HeadgateError as error:
                answers[name] = Refused(str(error))
    finally:
        lab.broker.close()
    return answers


def make_root(root: Path) -> Root:
    """The original; `root` is an empty folder."""
    RootLab(root).make()
    files = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    folders = []
    for folder in sorted({str(Path(name).parent) for name in files}):
        own = files_of(root / folder)
        folders.append(Original(folder, own, True, chunks=read_chunks(own)))
    shutil.rmtree(root)
    return Root(root, files, folders, ask_of(root, files)[0])
