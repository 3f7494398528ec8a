"""What a topic's files say, read by a parser of its own, against what its processes said and the reference evaluator.

From Headgate come only the reference evaluation of rules (`evaluate.copies_of`) and the decoding of messages.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from damage.plain_log import INDEX_RECORD, read_chunks, stems
from headgate.errors import MessageError
from headgate.evaluate import copies_of
from headgate.message import Message
from headgate.topic import Rule, RuleDefinition, forwarded

from .topic_child import MAX_DELIVERIES, message_of

RULE_BITS = 20
FAILED = (1 << RULE_BITS) - 1
Words = list[Any]
View = dict[int, "Row"]


# files


def stream_of(folder: Path) -> list[bytes]:
    """The messages of a stream that lie at 0, 1, 2 …"""
    found: list[bytes] = []
    for offset, message in messages_of(folder):
        assert offset == len(found)
        found.append(message)
    return found


def messages_of(folder: Path) -> Iterator[tuple[int, bytes]]:
    """The messages of a stream with their offsets, also while its last writer is dead."""
    files = {path.name: path.read_bytes() for path in folder.glob("*") if path.suffix in (".index", ".segment")}
    for stem in stems(files):
        # What is behind the last whole index record does not exist.
        index = files[f"{stem}.index"]
        files[f"{stem}.index"] = index[: len(index) - (len(index) - 8) % INDEX_RECORD.size] if len(index) > 8 else index
    for chunk in read_chunks(files):
        if chunk.chunk_type == 0:
            for number, message in enumerate(chunk.messages):
                yield chunk.chunk_id + number, message


def letters_of(folder: Path) -> list[tuple[int, int]]:
    """Copy and attempts of the messages in a stream of moved copies."""
    found = []
    for _, message in messages_of(folder) if folder.exists() else ():
        annotations = Message.decode(message).message_annotations
        assert annotations is not None
        names = ("x-headgate-copy", "x-headgate-attempts")
        copy, attempts = (int(str(annotations[name].value)) for name in names)
        found.append((copy, attempts))
    return found


# the journal


@dataclass
class Part:
    """A subscription, or a rule, in force for the offsets `start … stop`."""

    number: int
    name: str
    start: int
    stop: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    rules: list[Part] = field(default_factory=list)
    next_rule: int = 1

    def covers(self, offset: int) -> bool:
        return self.start <= offset and (self.stop is None or offset < self.stop)


class Journal:
    """The rules of a topic at each offset, and where the changes are that give both versions the same number."""

    def __init__(self, path: Path) -> None:
        crc = 0
        lines = []
        for line in path.read_bytes()[26:].split(b"\n")[:-1]:
            crc = zlib.crc32(line[9:], crc)
            if line[:9] != b"%08x " % crc:
                break
            lines.append(json.loads(line[9:]))
        head, *changes = lines
        self.subscriptions: list[Part] = []
        self._next = head.get("next_subscription", 1)
        by_number: dict[int, list[Part]] = defaultdict(list)
        for each in head.get("subscriptions", ()):
            part = Part(each["number"], each["name"], each["from_offset"], each.get("to_offset"), each)
            part.next_rule = each.get("next_rule", 1)
            self.subscriptions.append(part)
            by_number[part.number].append(part)
        for each in head.get("rules", ()):
            rule = Part(each["number"], each["rule"]["name"], each["from_offset"], each.get("to_offset"), each["rule"])
            for part in by_number[each["subscription"]]:
                part.rules.append(rule)
        self.versions: dict[int, int] = {}
        """Offset from which each version is in force, of those that no head took away."""
        for record in changes:
            numbers = set()
            for change in record["changes"]:
                self._apply(change, record["offset"])
                if change["change"] == "replace rule":
                    numbers.add(version_of(change["rule"]["sql"]))
            if numbers:
                (number,) = numbers
                self.versions[number] = record["offset"]

    def in_force(self) -> set[int]:
        """The numbers of the subscriptions that are not removed."""
        return {part.number for part in self.subscriptions if part.stop is None}

    def _apply(self, change: dict[str, Any], offset: int) -> None:
        match change["change"]:
            case "create subscription":
                self.subscriptions.append(Part(self._next, change["name"], offset, None, change))
                self._next += 1
            case "change topic":
                pass
            case "change subscription":
                before = self.named(change["name"])
                before.settings = {**change}
            case "remove subscription":
                gone = self.named(change["name"])
                gone.stop = offset
                for rule in gone.rules:
                    rule.stop = offset if rule.stop is None else rule.stop
            case "add rule":
                self._add(change, offset)
            case "replace rule":
                name = change["rule"]["name"]
                (old,) = [
                    each for each in self.named(change["subscription"]).rules if each.name == name and each.stop is None
                ]
                old.stop = offset
                self._add(change, offset, old.number)
            case _:
                raise AssertionError(change)

    def _add(self, change: dict[str, Any], offset: int, number: int | None = None) -> None:
        part = self.named(change["subscription"])
        if number is None:
            number, part.next_rule = part.next_rule, part.next_rule + 1
        part.rules.append(Part(number, change["rule"]["name"], offset, None, change["rule"]))

    def named(self, name: str) -> Part:
        (found,) = [each for each in self.subscriptions if each.name == name and each.stop is None]
        return found


def version_of(sql: str) -> int:
    """The number of a version, which stands at the end of its rules."""
    return int(sql.rsplit(" ", 1)[1])


# the ledger

_KINDS = {
    1: "iib", 2: "i", 3: "icc", 4: "icc", 5: "iiibcc", 6: "icccc", 7: "iic", 8: "ibbcc", 9: "ibbccc", 10: "bi",
    11: "ibii", 12: "ibib", 13: "ii", 14: "",
}  # fmt: skip
"""The fields of each kind of record: number, text, column."""


@dataclass
class Row:
    """A copy that is not settled."""

    claim: int
    attempts: int
    until_ms: int


class LedgerFile:
    """Views of a ledger by key: rows of what is not settled, and ranges of what was seen."""

    def __init__(self, folder: Path) -> None:
        self.rows: dict[int, View] = defaultdict(dict)
        self.seen: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.keys: dict[int, str] = {}
        self.moves: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """Pending moves to each target: sequence and copy."""
        for offset, message in messages_of(folder) if folder.exists() else ():
            assert message[0] == 1
            placed = 0
            for kind, fields in self._records(message):
                placed += self._apply(kind, fields, offset << RULE_BITS | placed)

    @staticmethod
    def _records(data: bytes) -> Iterator[tuple[int, list[Any]]]:
        at = 1
        while at < len(data):
            kind = data[at]
            at += 1
            fields: list[Any] = []
            for what in _KINDS[kind]:
                if what == "i":
                    fields.append(struct.unpack_from("<q", data, at)[0])
                    at += 8
                elif what == "b":
                    (length,) = struct.unpack_from("<I", data, at)
                    fields.append(data[at + 4 : at + 4 + length])
                    at += 4 + length
                else:
                    count, width, base = struct.unpack_from("<IBq", data, at)
                    at += 13
                    if width:
                        fields.append([base + each for each in np.frombuffer(data, f"<u{width}", count, at).tolist()])
                        at += count * width
                    else:
                        step = 0
                        if count > 1:
                            (step,) = struct.unpack_from("<q", data, at)
                            at += 8
                        fields.append([base + each * step for each in range(count)])
            yield kind, fields

    def _apply(self, kind: int, fields: list[Any], sequence: int) -> int:
        """Apply a record; gives how many moves it begins."""
        match kind, fields:
            case 1, [view, from_copy, key]:
                self.keys[view] = key.decode()
                self.seen[view].append((0, from_copy))
            case 2, [view]:
                for known in (self.keys, self.rows, self.seen):
                    known.pop(view, None)
            case 3, [view, starts, stops]:
                self.seen[view] += zip(starts, stops, strict=True)
            case 4, [view, starts, stops]:
                for start, stop in zip(starts, stops, strict=True):
                    self._settle(view, start, stop)
            case 5, [view, claim, until, _, copies, attempts]:
                for copy, attempt in zip(copies, attempts, strict=True):
                    self._put(view, copy, Row(claim, attempt, until))
            case 6, [view, copies, claims, attempts, untils]:
                for copy, *row in zip(copies, claims, attempts, untils, strict=True):
                    self._put(view, copy, Row(*row))
            case 7, [view, until, copies]:
                for copy in copies:
                    if copy in self.rows[view]:
                        self.rows[view][copy].until_ms = until
            case 8, [view, target, _, copies, _]:
                for number, copy in enumerate(copies):
                    self._settle(view, copy, copy + 1)
                    self.moves[target.decode()].append((sequence + number, copy))
                return len(copies)
            case 9, [_, target, _, copies, _, sequences]:
                pending = dict(self.moves[target.decode()])
                pending.update(zip(sequences, copies, strict=True))
                self.moves[target.decode()] = sorted(pending.items())
            case 10, [target, done]:
                kept = [each for each in self.moves.pop(target.decode(), []) if each[0] > done]
                if kept:
                    self.moves[target.decode()] = kept
        return 0

    def _settle(self, view: int, start: int, stop: int) -> None:
        self.seen[view].append((start, stop))
        for copy in [copy for copy in self.rows[view] if start <= copy < stop]:
            del self.rows[view][copy]

    def _put(self, view: int, copy: int, row: Row) -> None:
        self.seen[view].append((copy, copy + 1))
        self.rows[view][copy] = row

    def view(self, key: str) -> int | None:
        """The number of the view with a key."""
        return next((number for number, name in self.keys.items() if name == key), None)

    def is_settled(self, view: int, copy: int) -> bool:
        """Whether a copy was seen and is not known any more."""
        return copy not in self.rows[view] and any(start <= copy < stop for start, stop in self.seen[view])


# what was said


class Told:
    """What the processes of a topic said, line by line; what contradicts itself fails at once."""

    def __init__(self) -> None:
        self.published: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.delivered: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        """View → copy → attempts of its deliveries."""
        self.digests: dict[str, dict[int, str]] = defaultdict(dict)
        self.settled: dict[str, dict[int, str]] = defaultdict(dict)
        """View → copy → how it was settled, acknowledged; in the order of that."""
        self.asked: dict[str, dict[int, str]] = defaultdict(dict)
        """View → copy → what was asked for since its last delivery."""
        self.untouched: Counter[tuple[str, int]] = Counter()
        self.until: dict[tuple[str, int], int] = {}
        self.changing: list[int] = []
        self.changed: dict[int, int] = {}
        self.now = 0

    def take(self, words: Words) -> None:
        """One more line."""
        match words:
            case ["now", now]:
                self.now = now
            case ["published", who, first, stop]:
                self.published[who].append((first, stop))
            case ["changing", number]:
                self.changing.append(number)
            case ["changed", number, offset]:
                self.changed[number] = offset
            case ["delivered", view, copy, attempt, until, digest]:
                self._deliver(view, copy, attempt, until, digest)
            case ["asked", view, what, copies]:
                for copy in copies:
                    self.asked[view][copy] = what
                    self.untouched[view, copy] += what == "untouched"
                    if what != "renew":
                        self.until.pop((view, copy), None)
            case ["done", view, what, copies]:
                for copy in copies:
                    if what in ("complete", "dead_letter", "defer"):
                        assert copy not in self.settled[view], f"{view}: {copy} was settled twice"
                        self.settled[view][copy] = what
            case _:
                raise AssertionError(words)

    def _deliver(self, view: str, copy: int, attempt: int, until: int, digest: str) -> None:
        assert copy not in self.settled[view], f"{view}: {copy} came again after it was {self.settled[view][copy]}d"
        before = self.delivered[view][copy]
        assert attempt > len(before) - self.untouched[view, copy], f"{view}: {copy} was delivered more often"
        assert "dead" in view or attempt <= MAX_DELIVERIES, f"{view}: {copy} was tried too often"
        assert self.digests[view].setdefault(copy, digest) == digest, f"{view}: {copy} has other bytes now"
        held_until = self.until.get((view, copy), 0)
        assert self.now >= held_until, f"{view}: {copy} has two holders until {held_until}"
        before.append(attempt)
        self.until[view, copy] = until
        self.asked[view].pop(copy, None)

    def after_a_death(self, root: Path) -> None:
        """The files that a killed process left hold what it said."""
        ledgers: dict[Path, LedgerFile] = {}
        subscriptions: dict[str, set[int]] = {}
        for view in self.delivered.keys() | self.settled.keys():
            topic, number, *dead = view.split("/")
            stream = root / "streams" / topic
            key = "queue" if dead else f"subscription/{number}"
            folder = (stream / "subscriptions" / number / "dead-letters" if dead else stream) / "ledger"
            file = ledgers[folder] = ledgers.get(folder) or LedgerFile(folder)
            found = file.view(key)
            if topic not in subscriptions:
                subscriptions[topic] = Journal(stream / "topic.journal").in_force()
            if int(number) not in subscriptions[topic]:
                # `temp` comes and goes, its dead letters before its view; of the others nothing may be missing.
                assert topic == "orders" and int(number) > 4, view
                continue
            assert found is not None, view
            letters = dict(letters_of(stream / "subscriptions" / number / "dead-letters"))
            pending = {copy for _, copy in file.moves.get(f"dead-letters/{number}", ())}
            for copy in self.settled[view]:
                assert file.is_settled(found, copy), f"{view}: {copy} is not settled in the ledger"
            for copy, attempts in self.delivered[view].items():
                row = file.rows[found].get(copy)
                if row is None:
                    # Who was killed before saying that it was given out again may have tried too often.
                    is_asked = self.asked[view].get(copy) in ("complete", "dead_letter", "defer")
                    assert is_asked or copy in letters or copy in pending, f"{view}: {copy} was lost"
                else:
                    assert row.attempts >= len(attempts) - self.untouched[view, copy]


# everything


def digest_of(message: bytes) -> str:
    """What a child says of a message."""
    return hashlib.sha256(message).hexdigest()[:16]


@dataclass
class Expected:
    """The copies of a subscription by the reference evaluator, in order, and the offsets that its rules failed on."""

    copies: dict[int, bytes] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)


def expected_of(journal: Journal, messages: list[bytes]) -> dict[int, Expected]:
    """What every subscription has, by number."""
    found = {part.number: Expected() for part in journal.subscriptions}
    compiled: dict[int, Rule] = {}
    for offset, data in enumerate(messages):
        try:
            message = Message.decode(data)
        except MessageError:
            message = None
        for part in journal.subscriptions:
            if not part.covers(offset):
                continue
            rules = [each for each in part.rules if each.covers(offset)]
            keeps = part.settings.get("dead_letter_on_errors", False)
            if message is None:
                if keeps and rules:
                    found[part.number].failed.append(offset)
                continue
            for each in rules:
                if id(each) not in compiled:
                    compiled[id(each)] = Rule.of(RuleDefinition.of(each.settings), number=each.number)
            numbers = {each.name: each.number for each in rules}
            copies = copies_of([compiled[id(each)] for each in rules], message, now_ms=0, identity_of=lambda _: b"")
            made = {
                offset << RULE_BITS | (0 if each.rule is None else numbers[each.rule]): each.message.encode()
                for each in copies.copies
            }
            found[part.number].copies.update(sorted(made.items()))
            if keeps and copies.failures:
                found[part.number].failed.append(offset)
    return found


def check_everything(root: Path, told: Told) -> None:
    """The files of a topic that was drained hold what was confirmed, and every subscription got its copies."""
    streams = root / "streams"
    orders = stream_of(streams / "orders")
    _check_published(orders, told)
    journal = Journal(streams / "orders" / "topic.journal")
    _check_changes(journal, told)
    expected = expected_of(journal, orders)
    ledger = LedgerFile(streams / "orders" / "ledger")
    assert not ledger.moves and not any(ledger.rows.values())
    assert set(ledger.keys.values()) == {f"subscription/{number}" for number in journal.in_force()}
    for part in journal.subscriptions:
        wanted = expected[part.number]
        if part.settings.get("forward_to"):
            _check_forwarded(streams, part.number, wanted)
            continue
        _check_subscription(streams / "orders", part.number, wanted, told, is_whole=part.stop is None)
    paid = Journal(streams / "paid" / "topic.journal")
    (copies,) = expected_of(paid, stream_of(streams / "paid")).values()
    _check_subscription(streams / "paid", 1, copies, told, is_whole=True)


def _check_forwarded(streams: Path, number: int, expected: Expected) -> None:
    """Each copy is in its target or, where that took none, among the dead letters: exactly once, in order."""
    taken = stream_of(streams / "paid")
    copies = [number_at_first(message) - 1 for message in taken]
    letters = [copy for copy, _ in letters_of(streams / "orders" / "subscriptions" / str(number) / "dead-letters")]
    assert copies == sorted(copies) and letters == sorted(letters)
    assert sorted(copies + letters) == list(expected.copies)
    for copy, message in zip(copies, taken, strict=True):
        assert message == forwarded(expected.copies[copy], number=copy + 1, source=None)


def number_at_first(message: bytes) -> int:
    """The sequence number that a forwarded message had first."""
    annotations = Message.decode(message).message_annotations
    assert annotations is not None
    return int(str(annotations["x-opt-enqueue-sequence-number"].value))


def _check_published(orders: list[bytes], told: Told) -> None:
    """What was confirmed is there once, and in order."""
    places = {message: offset for offset, message in enumerate(orders)}
    assert len(places) == len(orders)
    for who, ranges in told.published.items():
        confirmed = sorted({number for first, stop in ranges for number in range(first, stop)})
        offsets = [places[message_of(who, number)] for number in confirmed]
        assert offsets == sorted(offsets)


def _check_changes(journal: Journal, told: Told) -> None:
    """Versions are in force together, and those that were confirmed are there."""
    by_name = {
        name: [
            (each.start, each.stop, version_of(each.settings["sql"]))
            for part in journal.subscriptions
            if part.name == name
            for each in part.rules
            if each.name == "Version" and each.start != each.stop
        ]
        for name in ("red", "blue")
    }
    assert by_name["red"] == by_name["blue"]
    numbers = [number for *_, number in by_name["red"]]
    assert numbers == sorted(set(numbers))
    assert set(numbers) <= {0, *told.changing}
    for number, offset in told.changed.items():
        assert journal.versions.get(number, offset) == offset
        following = [start for start, _, later in by_name["red"] if later > number]
        start = next((start for start, _, found in by_name["red"] if found == number), None)
        # One that was in force for no message leaves no trace in a head.
        assert start == offset or (start is None and min(following) == offset)


def _check_subscription(stream: Path, number: int, expected: Expected, told: Told, *, is_whole: bool) -> None:
    view = f"{stream.name}/{number}"
    for copy, digest in told.digests[view].items():
        assert copy in expected.copies, f"{view} has no copy {copy >> RULE_BITS}, {copy % (1 << RULE_BITS)}"
        assert digest == digest_of(expected.copies[copy]), f"{view}: {copy} has other bytes"
    if not is_whole:
        assert not (stream / "subscriptions" / str(number)).exists()
        return
    moved = {}
    for name, what in (("dead-letters", "dead_letter"), ("deferred", "defer")):
        folder = stream / "subscriptions" / str(number) / name
        letters = letters_of(folder)
        copies = [copy for copy, _ in letters]
        assert len(copies) == len(set(copies)), f"{view}: a move was made twice"
        for copy, attempts in letters:
            assert attempts >= len(told.delivered[view][copy]) - told.untouched[view, copy]
        acknowledged = [copy for copy, how in told.settled[view].items() if how == what]
        places = {copy: place for place, copy in enumerate(copies)}
        order = [places[copy] for copy in acknowledged]
        assert order == sorted(order), f"{view}: moves are not in order"
        moved[what] = copies
    failed = [copy >> RULE_BITS for copy in moved["dead_letter"] if copy & FAILED == FAILED]
    assert failed == expected.failed
    real = {copy for copies in moved.values() for copy in copies if copy & FAILED != FAILED}
    completed = {copy for copy, how in told.asked[view].items() if how == "complete"} | {
        copy for copy, how in told.settled[view].items() if how == "complete"
    }
    assert not real & {copy for copy, how in told.settled[view].items() if how == "complete"}
    assert real | completed == set(expected.copies), f"{view}: its copies are others"
