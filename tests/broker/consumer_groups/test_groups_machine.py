"""Three consumer groups on two queues against a model of a page: one with filters, one in order of message groups.

The promise: every message has one holder or none, comes as often as it may, in order where a message group has one, and
never again once it is settled; what waits too often is a dead letter, once. Over restarts and clocks that jump.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from brokers import stored
from examples import examples
from group_lab import Asked, GroupLab, number_of
from headgate.broker.consumer_groups import GroupSettings, PulledQueue, ReceivedMessage
from headgate.errors import HeadgateError
from headgate.evaluate import Filter
from headgate.message import Message
from log_streams import quick_folder

MAX_ATTEMPTS = 2
MOST_HELD = 6
GROUPS = ("plain", "choosy", "ordered")
FILTERS = {"choosy": Filter.parse("color = 'red'", "servicebus")}


@dataclass(frozen=True)
class Made:
    """A message of a queue."""

    number: int
    color: str
    group: str

    @property
    def encoded(self) -> bytes:
        properties = {"color": self.color}
        return Message(b"%d" % self.number, group_id=self.group or None, application_properties=properties).encode()

    def is_for(self, group: str) -> bool:
        return group != "choosy" or self.color == "red"


@dataclass
class Entry:
    """A message that is not settled: its holder's token, and until when; `ended`: nobody has taken it since.

    `was_given`: somebody had it, even if that does not count as an attempt.
    """

    made: Made
    attempts: int = 0
    was_given: bool = False
    token: bytes | None = None
    until_ms: int = 0
    ended: bool = False

    @property
    def is_held(self) -> bool:
        return self.token is not None and not self.ended


@dataclass
class Model:
    """One group on one queue: its unsettled messages by offset."""

    group: str
    entries: dict[int, Entry] = field(default_factory=dict)
    dead: list[int] = field(default_factory=list)

    def due(self, now_ms: int) -> None:
        for offset, entry in list(self.entries.items()):
            if entry.is_held and entry.until_ms <= now_ms:
                entry.ended = True
                if entry.attempts >= MAX_ATTEMPTS:
                    self.die(offset)

    def die(self, offset: int) -> None:
        self.dead.append(self.entries.pop(offset).made.number)

    @property
    def held(self) -> int:
        return sum(entry.is_held for entry in self.entries.values())

    def busy(self) -> set[str]:
        return {entry.made.group for entry in self.entries.values() if entry.is_held}

    def available(self) -> list[int]:
        """The offsets that may be given, in order."""
        busy = self.busy() if self.group == "ordered" else set()
        room = MOST_HELD - self.held
        free = [
            offset
            for offset, entry in sorted(self.entries.items())
            if not entry.is_held and entry.made.group not in busy
        ]
        again = [offset for offset in free if self.entries[offset].was_given]
        fresh = [offset for offset in free if not self.entries[offset].was_given]
        if self.group == "ordered":
            return free if room > 0 else []
        return [*again, *(fresh if room > 0 else [])]

    def holder(self, token: bytes) -> int | None:
        return next((o for o, entry in self.entries.items() if entry.token == token and not entry.ended), None)


class GroupMachine(RuleBasedStateMachine):
    """Members ask, settle, fail and go; time passes, and jumps."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = quick_folder()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("headgate.broker.consumer_groups.group_view.MAX_UNSETTLED", MOST_HELD)
        self.patch.setattr("headgate.broker.consumer_groups.group_view.NOTED_AFTER", 3)
        self.queues: list[list[Made]] = [[], []]
        self.models = {(group, queue): Model(group) for group in GROUPS for queue in range(2)}
        self.tokens: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.waiting: list[Asked] = []
        self.numbers = 0

    @initialize()
    def begin(self) -> None:
        self.lab = GroupLab(Path(self.folder.name), queues=2)
        for group in GROUPS:
            self.lab.declare(group, GroupSettings(max_attempts=MAX_ATTEMPTS, fifo=group == "ordered"))

    def teardown(self) -> None:
        if hasattr(self, "lab"):
            self.lab.turn()
            for group in GROUPS:
                dead = Counter(number for queue in range(2) for number in self.models[group, queue].dead)
                letters = stored(self.lab.root, f"%DLQ%{group}") if dead else []
                assert Counter(number_of(each) for each in letters) == dead, "each once"
            self.lab.broker.close()
        self.patch.undo()
        self.folder.cleanup()

    def turn(self, after_ms: int = 0) -> None:
        """Turns of the loop; what was given meanwhile is as the model says."""
        for model in self.models.values():
            model.due(self.lab.clock.now + after_ms)
        self.lab.turn(after_ms)
        answered = [asked for asked in self.waiting if asked.answers]
        self.waiting = [asked for asked in self.waiting if not asked.answers]
        given = defaultdict(list)
        for asked in answered:
            assert 0 < len(asked.messages) <= asked.request.count
            for queue in range(len(asked.request.streams)):
                offsets = [offset for place, offset in asked.places if place == queue]
                assert offsets == sorted(offsets)
            for each in asked.messages:
                given[asked.request.group, asked.queues[each.queue]].append((asked, each))
        for key, parts in given.items():
            self.take(key, parts)
        for asked in self.waiting:
            for queue in asked.queues:
                assert not self.models[asked.request.group, queue].available(), "a member waits for it"

    def take(self, key: tuple[str, int], parts: list[tuple[Asked, ReceivedMessage]]) -> None:
        model = self.models[key]
        offsets = sorted(each.offset for _, each in parts)
        available = model.available()
        if key[0] == "ordered":
            for group in {model.entries[offset].made.group for offset in offsets}:
                own = [offset for offset in available if model.entries[offset].made.group == group]
                mine = [offset for offset in offsets if model.entries[offset].made.group == group]
                assert mine == own[: len(mine)], "in the order of the message group, and nobody has one of it"
        else:
            assert offsets == available[: len(offsets)]
        for asked, each in parts:
            entry = model.entries[each.offset]
            entry.attempts += 1
            entry.was_given = True
            entry.token, entry.ended = each.token, False
            entry.until_ms = self.lab.clock.now + asked.request.invisible_ms
            assert each.attempt == entry.attempts
            assert number_of(each.message) == entry.made.number
            self.tokens[key].append(each.token)
        assert model.held <= MOST_HELD or key[0] != "ordered"

    # members

    @rule(
        queue=st.integers(0, 1),
        kinds=st.lists(
            st.tuples(st.sampled_from(["red", "blue"]), st.sampled_from(["", "a", "a", "b"])), min_size=1, max_size=8
        ),
    )
    def publish(self, queue: int, kinds: list[tuple[str, str]]) -> None:
        made = [Made(self.numbers + row, *kind) for row, kind in enumerate(kinds)]
        self.numbers += len(made)
        if not made:
            return
        for each in made:
            for group in GROUPS:
                if each.is_for(group):
                    self.models[group, queue].entries[len(self.queues[queue])] = Entry(each)
            self.queues[queue].append(each)
        self.lab.publish([each.encoded for each in made], queue, turns=False)
        self.turn()

    @rule(
        group=st.sampled_from(GROUPS),
        queues=st.sampled_from([(0,), (1,), (0, 1), (1, 0)]),
        count=st.sampled_from([1, 2, 3, 32]),
        invisible_ms=st.sampled_from([1_000, 1_000, 5_000, 60_000]),
    )
    def ask(self, group: str, queues: tuple[int, ...], count: int, invisible_ms: int) -> None:
        asked = self.lab.ask(
            count,
            group=group,
            streams=[self.lab.streams[queue] for queue in queues],
            only=FILTERS.get(group),
            invisible_ms=invisible_ms,
            turns=False,
        )
        asked.queues = queues
        self.waiting.append(asked)
        self.turn()

    @precondition(lambda self: self.waiting)
    @rule(row=st.integers(0, 9), closes=st.booleans())
    def end(self, row: int, closes: bool) -> None:
        asked = self.waiting.pop(row % len(self.waiting))
        if closes:
            asked.receiving.close()
            assert not asked.answers
        else:
            asked.receiving.end()
            assert asked.messages == []
        self.turn()

    @precondition(lambda self: any(self.tokens.values()))
    @rule(
        group=st.sampled_from(GROUPS),
        queue=st.integers(0, 1),
        what=st.sampled_from(["settle", "settle", "release", "change", "claim again", "take back", "dead letter"]),
        data=st.data(),
    )
    def settle(self, group: str, queue: int, what: str, data: st.DataObject) -> None:
        known, model = self.tokens[group, queue], self.models[group, queue]
        if not known:
            return
        tokens = data.draw(st.lists(st.sampled_from(known[-10:]), min_size=1, max_size=4, unique=True))
        offsets = [model.holder(token) for token in tokens]
        answers: list[list[bool] | HeadgateError] = []
        view = self.lab.view(group, queue)
        for offset in sorted(offset for offset in offsets if offset is not None):
            entry = model.entries[offset]
            match what:
                case "settle":
                    del model.entries[offset]
                case "dead letter":
                    model.die(offset)
                case "change" | "claim again":
                    entry.until_ms = self.lab.clock.now + 2_000
                case "release" if entry.attempts >= MAX_ATTEMPTS:
                    model.die(offset)
                case "take back":
                    entry.token = None
                    entry.attempts -= 1
                case _:
                    entry.token = None
        match what:
            case "settle":
                view.complete(tokens, answers.append)
            case "dead letter":
                view.dead_letter(tokens, answers.append)
            case "take back":
                view.take_back(tokens)
                answers.append([offset is not None for offset in offsets])
            case "claim again":
                again = view.claim_again(tokens, 2_000, answers.append)
                for token, offset in zip(again, offsets, strict=True):
                    if offset is not None:
                        model.entries[offset].token = token
                        known.append(token)
            case _:
                view.change_invisible(tokens, 2_000 if what == "change" else 0, answers.append)
        self.turn()
        assert answers == [[offset is not None for offset in offsets]]

    @rule(group=st.sampled_from(GROUPS), queue=st.integers(0, 1), offset=st.integers(0, 40))
    def commit_offset(self, group: str, queue: int, offset: int) -> None:
        """A member that reads for itself has consumed all below that nobody was given."""
        model = self.models[group, queue]
        offset = min(offset, len(self.queues[queue]))
        PulledQueue(self.lab.view(group, queue)).complete_below(offset)
        for each in [each for each, entry in model.entries.items() if each < offset and not entry.attempts]:
            del model.entries[each]
        self.turn()

    @precondition(lambda self: not self.waiting)
    @rule(group=st.sampled_from(GROUPS), queue=st.integers(0, 1), offset=st.integers(0, 40))
    def reset(self, group: str, queue: int, offset: int) -> None:
        model, made = self.models[group, queue], self.queues[queue]
        self.lab.broker.consumer_groups.views.reset(
            self.lab.streams[queue], group, min(offset, len(made)), lambda _: None
        )
        model.entries = {
            place: Entry(each) for place, each in enumerate(made) if place >= offset and each.is_for(group)
        }
        self.turn()

    # everything else

    @rule(after_ms=st.sampled_from([1, 1_000, 1_000, 5_000, 20_000, 70_000]))
    def wait(self, after_ms: int) -> None:
        self.turn(after_ms)

    @rule(back_ms=st.sampled_from([1, 3_000, 100_000]))
    def the_clock_goes_back(self, back_ms: int) -> None:
        self.lab.clock.now -= back_ms
        self.turn()

    @rule()
    def restart(self) -> None:
        self.lab.restart()
        assert all(isinstance(asked.error, HeadgateError) for asked in self.waiting)
        self.waiting.clear()
        for model in self.models.values():
            for entry in model.entries.values():
                entry.ended = False
        # It opens the ledgers one at a tick.
        for _ in self.lab.streams:
            self.turn()

    @invariant()
    def counts_are_as_the_model_says(self) -> None:
        if not hasattr(self, "lab"):
            return
        for (group, queue), model in self.models.items():
            view = self.lab.broker.consumer_groups.views.find_view(self.lab.streams[queue], group)
            if view is not None:
                counts = view.counts()
                assert counts.claimed == model.held
                assert counts.moving == 0
                if group == "plain":
                    assert counts.lag == len(model.entries)
                    assert view.committed_offset == min(model.entries, default=len(self.queues[queue]))


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = examples(1)
