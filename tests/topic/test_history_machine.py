"""The history of a topic against a model: a list of what every message was published under.

The promise: after any changes, crashes at any byte, reopening and pruning, each message meets exactly the rules that
were in force when it was published, and a change that was confirmed is in force for everything behind it. Settings
have no history: they are those of the last change.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.errors import RuleError
from headgate.log import Writer
from headgate.topic import DEFAULT_SETTINGS, RuleHistory, Subscription, Topic, TopicEditor
from log_streams import FailingFiles, Killed, abandon, quick_folder
from topic_streams import new_topic, shape, version_rule

NAMES = st.sampled_from(["a", "B", "b", "c"])
Model = dict[str, tuple[str, dict[str, str]]]
"""Folded name of a subscription → its name, and folded name of a rule → its text."""


class HistoryMachine(RuleBasedStateMachine):
    """Changes with and without crashes, between messages."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = quick_folder()
        self.versions = 0
        self.now: Model = {}
        self.locks: dict[str, int] = {}
        self.at: dict[int, Model] = {}
        self.pruned = 0

    @initialize()
    def create(self) -> None:
        self.stream = new_topic(Path(self.folder.name))
        self.open()

    def open(self) -> None:
        self.files = FailingFiles(Killed())
        self.writer = Writer.open(self.stream, now_ms=0)
        self.editor = TopicEditor(self.writer, open_file=self.files)

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            self.writer.close()
        self.folder.cleanup()

    @rule(count=st.integers(1, 3))
    def publish(self, count: int) -> None:
        first = self.writer.next_offset
        self.writer.append([(b"m", None)] * count, now_ms=0)
        for offset in range(first, first + count):
            self.at[offset] = self.now

    @rule(
        what=st.sampled_from(["create", "remove", "add", "replace", "take", "settings"]),
        subscription=NAMES,
        name=NAMES,
        budget=st.none() | st.integers(0, 200),
    )
    def change(self, what: str, subscription: str, name: str, budget: int | None) -> None:
        self.versions += 1
        new = version_rule(name, self.versions)
        text, s, r = str(new.definition.sql), subscription.casefold(), name.casefold()
        after: Model = {key: (spelled, dict(rules)) for key, (spelled, rules) in self.now.items()}
        there = s in after
        known = there and r in after[s][1]
        locks = dict(self.locks)
        allowed = {
            "create": not there, "remove": there, "add": there and not known, "replace": known, "take": known,
            "settings": there,
        }[what]  # fmt: skip
        if allowed:
            match what:
                case "create":
                    after[s] = subscription, {r: text}
                    locks[s] = DEFAULT_SETTINGS.lock_ms
                case "remove":
                    del after[s], locks[s]
                case "settings":
                    # The name may be written otherwise from there on.
                    after[s] = subscription, after[s][1]
                    locks[s] = 1_000 + self.versions
                case "add" | "replace":
                    after[s][1][r] = text
                case _:
                    del after[s][1][r]
        self.files.budget = None if budget is None else self.files.written + budget
        try:
            match what:
                case "create":
                    self.editor.create_subscription(Subscription(subscription, (new,)), now_ms=0)
                case "remove":
                    self.editor.remove_subscription(subscription, now_ms=0)
                case "add":
                    self.editor.add_rule(subscription, new, now_ms=0)
                case "settings":
                    given = {"settings": {"lock_ms": 1_000 + self.versions}}
                    self.editor.change_subscription(subscription, given, now_ms=0)
                case "replace":
                    self.editor.replace_rule(subscription, new, now_ms=0)
                case _:
                    self.editor.remove_rule(subscription, name, now_ms=0)
        except Killed:
            abandon(self.writer)
            self.open()
            # Nobody was told that the change is made: it is there or it is not, and stays so.
            found = self.seen(), locks_of(self.editor.topic)
            assert found in ((self.now, self.locks), (after, locks))
            self.now, self.locks = found
        except RuleError:
            assert not allowed
        else:
            assert allowed
            self.now, self.locks = after, locks
        self.files.budget = None

    def seen(self) -> Model:
        return model_of(self.editor.topic)

    @rule()
    def reopen(self) -> None:
        self.writer.close()
        self.open()

    @precondition(lambda self: self.at)
    @rule(back=st.integers(0, 5))
    def prune(self, back: int) -> None:
        self.pruned = max(self.pruned, self.writer.next_offset - back)
        self.editor.prune(self.pruned)

    @invariant()
    def every_message_meets_the_rules_of_its_time(self) -> None:
        if not hasattr(self, "writer"):
            return
        history = RuleHistory.load(self.stream)
        assert model_of(history.current) == self.now == self.seen()
        assert locks_of(history.current) == self.locks
        first, stop = max(0, self.pruned), self.writer.next_offset
        pieces = list(history.ranges(first, stop))
        assert [piece.start for piece in pieces] == [first, *(piece.stop for piece in pieces)][: len(pieces)]
        assert not pieces or pieces[-1].stop == stop
        for piece in pieces:
            expected = model_of(history.at(piece.start))
            for offset in range(piece.start, piece.stop):
                assert expected == self.at[offset] == model_of(history.at(offset))

    @invariant()
    def numbers_are_never_used_again(self) -> None:
        if not hasattr(self, "writer"):
            return
        history = RuleHistory.load(self.stream)
        named: dict[tuple[int, int], str] = {}
        for _, version in history.versions():
            name = version.rule.name.casefold()
            assert named.setdefault((version.subscription, version.number), name) == name


def locks_of(topic: Topic) -> dict[str, int]:
    """Lock times by folded name of the subscription."""
    return {each.name.casefold(): each.settings.lock_ms for each in topic.subscriptions}


def model_of(topic: Topic) -> Model:
    """The topic in the model's terms."""
    return {
        name.casefold(): (name, {rule.casefold(): text for rule, text in rules.items()})
        for name, rules in shape(topic).items()
    }


TestHistoryMachine = HistoryMachine.TestCase
