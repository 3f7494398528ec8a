"""Routing a topic: its messages become the copies of its subscriptions, in streams, for any number of rules.

One query and one pass. Tasks read ranges of chunks, evaluate all rules at once on the encoded messages
(`headgate.topic`) and stage chunks for every output; the commit appends all outputs of a batch, or none. Messages are
decided by the rules in force at their offsets, with the time at which they arrived, so a repeated batch gives the same
copies.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from headgate import clock
from headgate.errors import ConfigError, LogError, StreamNotFoundError
from headgate.log import ChunkLimits, FilterValues, Stream, stream_folder
from headgate.message import EncodedMessages, FieldReference
from headgate.message.lookup import MessageCollector
from headgate.scan import WINDOW_BYTES, MessageBuffer, ScanBatch
from headgate.spark.options import SinkOptions
from headgate.spark.planning import ScanPartition
from headgate.spark.running import only_run
from headgate.spark.target import WAIT, Target, open_target
from headgate.spark.transfer import Outlet, TransferSource, run_transfer
from headgate.spark.values import target_field
from headgate.tables import ANNOTATION, field_values
from headgate.topic import (
    ERRORS_COUNTED,
    Copies,
    Counters,
    DeadLetter,
    Router,
    RoutersInForce,
    RuleHistory,
    Topic,
    TopicEditor,
    create_topic,
    failure_at,
    topic_stream,
)

NAME = "headgate_route"

_MOST_MESSAGES = 1 << 19
_MOST_BYTES = 96 << 20
"""Messages are decided together up to these limits, because each output has a cost per batch."""

_FLUSHING_THREADS = 8
"""At most this many streams are made at the same time where each is flushed: one wait for the device serves all."""

Int64Array = NDArray[np.int64]


def output_of_copies(subscription: str) -> str:
    """The name of the output that takes the copies of a subscription."""
    return f"copies:{subscription}"


def output_of_dead_letters(subscription: str) -> str:
    """The name of the output of a subscription's dead letters: messages for which a rule cannot be evaluated."""
    return f"dead letters:{subscription}"


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Counts of one rule: `matched` messages, `copies` of its own, `errors` of its filter, `failed_actions`.

    `errors` is None where errors are not counted: in a topic of more than `ERRORS_COUNTED` rules, unless the
    subscription keeps dead letters of them. `last_failure_offset` is the offset of the last message that filter or
    action failed for, `last_failure_reason` says why. Rules without an action share one copy per message, which is
    counted for the rule with the empty name; so are the copies of a fall-through, and dead letters under the name
    `(dead letters)`.
    """

    subscription: str
    rule: str
    matched: int
    copies: int
    errors: int | None
    failed_actions: int
    last_failure_offset: int | None = None
    last_failure_reason: str | None = None


@dataclass(frozen=True, slots=True)
class RouteResult:
    """Counts of routing a topic: `messages` read, `copies` made, `written` per stream, counters of reading, rules."""

    messages: int
    copies: int
    written: dict[str, int]
    counters: dict[str, int]
    rules: list[RuleResult] = field(default_factory=list)


def stream_exists(root: str | Path, name: str) -> bool:
    """Whether there is a stream of that name under the root."""
    try:
        Stream.open(stream_folder(root, name))
    except StreamNotFoundError:
        return False
    return True


def declare_topic(
    root: str | Path, topic: Topic, *, start: str = "first", planned: Mapping[str, Topic] | None = None
) -> None:
    """Put the subscriptions and rules of a topic in force from the next message on; a missing stream is created.

    The first rules of a topic are in force from its first message on, unless `start` is `next`. `planned` are topics
    that are declared as well, for forwarding. Raises RuleError and its kinds, StreamLockedError.
    """
    now_ms = clock.now_ms()
    stream = Stream.open(stream_folder(root, topic.name)) if stream_exists(root, topic.name) else None
    if stream is None or RuleHistory.find(stream) is None:
        stream = create_topic(root, topic.name, now_ms=now_ms, limits=topic.limits, wait=WAIT)
    with TopicEditor.open(stream, now_ms=now_ms, wait=WAIT) as editor:
        is_new = not editor.history.subscriptions() and not editor.history.last_change
        first = stream.first_offset() if is_new and start == "first" else None
        editor.declare(topic, now_ms=now_ms, in_force_from=first, planned=planned)


def route_topic(
    spark: SparkSession,
    root: str | Path,
    name: str,
    outputs: Mapping[str, Mapping[str, str]],
    *,
    start: str = "first",
    checkpoint: str | Path | None = None,
    options: Mapping[str, str] | None = None,
    retries: bool = True,
) -> RouteResult:
    """Route the messages of a topic up to its present end, exactly once.

    `outputs` has, for `output_of_copies` and `output_of_dead_letters` of each subscription, the options of a write; a
    subscription without an output gets nothing: for subscriptions that are served elsewhere. Several may write one
    stream. `options` are options of a read, such as max_messages_per_batch. With a `checkpoint` routing goes on where
    it stopped. With `retries` a run whose Python worker did not connect in time is made once more. Blocks until all is
    committed. Raises ConfigError, RuleNotFoundError, QueryRunningError before Spark runs.
    """
    stream = topic_stream(root, name)
    content = {
        "root": str(Path(root).absolute()),
        "topic": name,
        "outputs": {key: dict(outputs[key]) for key in outputs},
    }
    route = _route_of(content)
    source = {**(options or {}), "root": str(root), "stream": name, "start": start}
    with only_run(checkpoint):
        done = run_transfer(
            spark, source, route, format_name=NAME, content=content, checkpoint=checkpoint, retries=retries
        )
    counted, rules = _split(done.counters)
    return RouteResult(
        messages=counted.get("messages_evaluated", 0),
        copies=done.messages_written,
        written=done.written,
        counters=counted,
        rules=list(rule_results(stream, RuleHistory.load(stream), rules)),
    )


class HeadgateRoute(TransferSource):
    """The data source of `route_topic`."""

    @classmethod
    def name(cls) -> str:
        """Registered beside the source itself; not for use by name."""
        return NAME

    def transfer(self, content: object) -> RouteJob:
        """The route that `route_topic` described."""
        assert isinstance(content, dict)
        return _route_of(content)


@dataclass(frozen=True, slots=True)
class _Output:
    """One stream that copies go to: copies of the subscriptions `copies_of`, dead letters of `dead_letters_of`."""

    target: Target
    values: FieldReference | None
    copies_of: tuple[str, ...]
    dead_letters_of: tuple[str, ...]


def _route_of(content: Mapping[str, object]) -> RouteJob:
    outputs = content["outputs"]
    assert isinstance(outputs, dict)
    if not outputs:
        raise ConfigError(f"topic {content['topic']!r}: no output is given; nothing would be routed")
    by_stream: dict[str, list[str]] = {}
    checked = {name: SinkOptions.parse(options) for name, options in outputs.items()}
    for name, options in checked.items():
        by_stream.setdefault(options.stream, []).append(name)
    made = []
    schema = Stream.open(stream_folder(str(content["root"]), str(content["topic"]))).body_schema
    # Without a flush threads would only take the interpreter from each other, at each of some thirty system calls.
    threads = _FLUSHING_THREADS if any(options.durability == "disk" for options in checked.values()) else 1
    with ThreadPoolExecutor(max_workers=threads) as pool:
        first = [checked[names[0]] for names in by_stream.values()]
        targets = list(pool.map(partial(open_target, body_schema=schema), first))
    for names, target in zip(by_stream.values(), targets, strict=True):
        said = [checked[name].filter_value for name in names if checked[name].filter_value is not None]
        made.append(
            _Output(
                target,
                target_field(option=said[0] if said else None, declared=target.filter_source),
                tuple(name.partition(":")[2] for name in names if name.startswith("copies:")),
                tuple(name.partition(":")[2] for name in names if name.startswith("dead letters:")),
            )
        )
    return RouteJob(Path(str(content["root"])), str(content["topic"]), tuple(made))


class RouteJob:
    """Each message gives each subscription the copies that its rules make; tasks read the rules themselves."""

    def __init__(self, root: Path, topic: str, outputs: tuple[_Output, ...]) -> None:
        self._root = root
        self._topic = topic
        self._outputs = outputs

    @property
    def targets(self) -> Sequence[Target]:
        """The streams that are written to."""
        return [output.target for output in self._outputs]

    def begin(self, outlets: Sequence[Outlet], partition: ScanPartition) -> _Routing:
        """The work of one task."""
        return _Routing(stream_folder(self._root, self._topic), list(zip(self._outputs, outlets, strict=True)))


class _Routing:
    """One task: messages are collected, so that many are decided at once."""

    def __init__(self, stream: Path, outputs: list[tuple[_Output, Outlet]]) -> None:
        self._routers = RoutersInForce.of(stream)
        self._outputs = outputs
        self._kept = MessageBuffer(room_bytes=_MOST_BYTES + WINDOW_BYTES)
        self._declared: FieldReference | None = None
        self._counted: dict[Router, tuple[Counters, Int64Array]] = {}
        self._letters: Counter[str] = Counter()
        self._room: NDArray[np.uint8] | None = None
        """For changed copies. Memory fresh from the system costs more than making them."""

    def add(self, batch: ScanBatch, declared: FieldReference | None, body_schema: str | None) -> None:
        self._declared = declared
        self._kept.add(batch)
        if self._kept.reaches(_MOST_MESSAGES, _MOST_BYTES):
            self._route()

    def finish(self) -> Mapping[str, int]:
        if len(self._kept):
            self._route()
        return self._counters()

    def _route(self) -> None:
        messages, offsets, timestamps_ms = self._kept.take()
        collected = messages
        for stop_offset, router in self._routers.within(int(offsets[0]), int(offsets[-1]) + 1):
            stop = int(np.searchsorted(offsets, stop_offset))
            if stop:
                part = slice(0, stop)
                copies = router.route(messages.take(part), offsets[part], timestamps_ms[part], room=self._room)
                self._write(copies)
                self._count_copies(router, copies)
                if self._room is None or len(copies.room) > len(self._room):
                    self._room = copies.room
            rest = slice(stop, len(offsets))
            messages, offsets, timestamps_ms = messages.take(rest), offsets[rest], timestamps_ms[rest]
        self._kept.reuse(collected)

    def _write(self, copies: Copies) -> None:
        names = [subscription.name for subscription in copies.topic.subscriptions]
        places = {name: place for place, name in enumerate(names) if copies.count(place)}
        letters: dict[str, list[DeadLetter]] = {}
        for letter in copies.dead_letters:
            letters.setdefault(names[letter.subscription], []).append(letter)
        together: dict[tuple[int, FieldReference, ChunkLimits], _Together] = {}
        for output, outlet in self._outputs:
            wanted = output.values or self._declared or ANNOTATION
            taken = [places[name] for name in output.copies_of if name in places]
            if len(taken) == 1 and not output.dead_letters_of:
                held, rows = copies.located(taken[0])
                same = together.setdefault((id(held), wanted, outlet.limits), _Together(held, [], []))
                same.outlets.append(outlet)
                same.shares.append(rows)
                continue
            parts = [(copies.rows[copies.of(place)], copies.messages(place)) for place in taken]
            for own in (letters[name] for name in output.dead_letters_of if name in letters):
                rows = np.array([letter.row for letter in own], dtype=np.int64)
                parts.append((rows, EncodedMessages.of(letter.encoded for letter in own)))
            if parts:
                messages = parts[0][1] if len(parts) == 1 else _merged(parts)
                outlet.add(messages, field_values(messages, wanted))
        values: dict[tuple[int, FieldReference], FilterValues] = {}
        for (number, wanted, _), same in together.items():
            if (number, wanted) not in values:
                values[number, wanted] = field_values(same.messages, wanted)
            found = values[number, wanted]
            rows = np.concatenate(same.shares)
            bounds = np.cumsum([0, *(len(share) for share in same.shares)])
            of_rows = FilterValues(found.data, found.starts[rows], found.lengths[rows])
            Outlet.add_to_each(same.outlets, bounds, same.messages.take(rows), of_rows)

    def _count_copies(self, router: Router, copies: Copies) -> None:
        self._letters.update(copies.topic.subscriptions[letter.subscription].name for letter in copies.dead_letters)
        plain = copies.plain_counts()
        if router in self._counted:
            counters, before = self._counted[router]
            counters.add(copies.counters)
            before += plain
        else:
            self._counted[router] = copies.counters, plain

    def _counters(self) -> Mapping[str, int]:
        counted: Counter[tuple[str, str, str]] = Counter()
        for router, (counters, plain) in self._counted.items():
            for rule in counters.nonzero():
                key = rule.subscription, rule.rule
                counted["matched", *key] += rule.matched
                counted["copies", *key] += rule.copies
                counted["errors", *key] += rule.errors or 0
                counted["failed_actions", *key] += rule.failed_actions
                if rule.last_failure is not None:
                    # Counters of tasks are added up; the greatest offset counts, so the offset is a part of the name.
                    counted[f"{_FAILED_AT}{rule.last_failure}", *key] += 1
            for subscription, count in zip(router.topic.subscriptions, plain.tolist(), strict=True):
                counted["copies", subscription.name, ""] += count
        for name, count in self._letters.items():
            counted["copies", name, _DEAD_LETTERS] += count
        return {json.dumps(key): count for key, count in counted.items() if count}


@dataclass(frozen=True, slots=True)
class _Together:
    """Outlets that are written together, and for each the places of its share in the same messages."""

    messages: EncodedMessages
    outlets: list[Outlet]
    shares: list[Int64Array]


def _merged(parts: list[tuple[Int64Array, EncodedMessages]]) -> EncodedMessages:
    """Messages of several subscriptions in the order of the messages they come from."""
    joined = MessageCollector()
    for _, messages in parts:
        joined.add(messages)
    rows = np.concatenate([rows for rows, _ in parts])
    return joined.take().take(np.argsort(rows, kind="stable"))


_DEAD_LETTERS = "(dead letters)"
_FAILED_AT = "failed at "


def _split(counted: Mapping[str, int]) -> tuple[dict[str, int], dict[tuple[str, str, str], int]]:
    """Counters of reading, and counters of rules by (counter, subscription, rule)."""
    reading: dict[str, int] = {}
    rules: dict[tuple[str, str, str], int] = {}
    for name, value in counted.items():
        if name.startswith("["):
            counter, subscription, rule = json.loads(name)
            rules[counter, subscription, rule] = value
        else:
            reading[name] = value
    return reading, rules


def rule_results(
    stream: Stream, history: RuleHistory, counted: Mapping[tuple[str, str, str], int]
) -> Iterator[RuleResult]:
    """The rules in force in their order, then earlier ones with counts."""
    names: dict[tuple[str, str], None] = {}
    for subscription in history.current.subscriptions:
        if subscription.fall_through or not all(rule.has_action for rule in subscription.rules):
            names[subscription.name, ""] = None
        for rule in subscription.rules:
            names[subscription.name, rule.name] = None
        if ("copies", subscription.name, _DEAD_LETTERS) in counted:
            names[subscription.name, _DEAD_LETTERS] = None
    for _, subscription_name, rule_name in counted:
        names.setdefault((subscription_name, rule_name), None)
    last_failures: dict[tuple[str, str], int] = {}
    for counter, subscription_name, rule_name in counted:
        if counter.startswith(_FAILED_AT):
            offset, of = int(counter.removeprefix(_FAILED_AT)), (subscription_name, rule_name)
            last_failures[of] = max(offset, last_failures.get(of, 0))
    uncounted = set[str]()
    if sum(len(each.rules) for each in history.current.subscriptions) > ERRORS_COUNTED:
        uncounted = {each.name for each in history.current.subscriptions if not each.dead_letter_on_errors}
    for subscription_name, rule_name in names:
        matched, copies, failed_actions = (
            counted.get((counter, subscription_name, rule_name), 0)
            for counter in ("matched", "copies", "failed_actions")
        )
        errors = counted.get(("errors", subscription_name, rule_name))
        if errors is None and (subscription_name not in uncounted or rule_name in ("", _DEAD_LETTERS)):
            errors = 0
        last = last_failures.get((subscription_name, rule_name))
        reason = None if last is None else _reason(stream, history, subscription_name, rule_name, last)
        yield RuleResult(subscription_name, rule_name, matched, copies, errors, failed_actions, last, reason)


def _reason(stream: Stream, history: RuleHistory, subscription: str, rule: str, offset: int) -> str | None:
    """Why a rule failed for the message at an offset; None if the history no longer knows the rule."""
    with contextlib.suppress(LogError):
        for found in history.at(offset).subscriptions:
            for each in found.rules:
                if (found.name, each.name) == (subscription, rule):
                    return failure_at(stream, each, subscription=found.number, offset=offset)
    return None
