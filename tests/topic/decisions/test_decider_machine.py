"""Postings against the reference evaluator: any topic, any changes of rules, restarts and damage at any point.

The promise: what is decided is what the rules in force at its offset give, for every subscription that ever was; a
decider that goes on where another one stopped, or finds its postings damaged, comes to the same.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headgate.errors import RuleError
from headgate.log import Writer
from headgate.log.format import Compression
from headgate.message import Message
from headgate.topic import (
    DEFAULT_SETTINGS,
    Rule,
    Subscription,
    SubscriptionSettings,
    TopicEditor,
    postings_folder,
)
from headgate.topic.decisions import Decider, Postings, block
from log_streams import abandon, quick_folder
from topic_oracle import NO_MESSAGE, Expected
from topic_streams import new_topic

BLOCK_OFFSETS = 16

FILTERS = st.sampled_from(
    [
        "1=1",
        "1=0",
        "color = 'red'",
        "quantity > 4",
        "quantity / zero = 1",
        "color <> 'red' AND quantity % 2 = 0",
        "color > 5",
    ]
)
ACTIONS = st.sampled_from(
    ["SET quantity = quantity / 2", "SET bad = 1 / zero", "REMOVE color", "SET sys.SessionId = color"]
)
CHANGES = ["create", "change", "settings", "remove", "add", "replace", "take"]
NAMES = st.sampled_from(["a", "b", "c"])
RULES = st.one_of(
    st.builds(Rule, NAMES, FILTERS, st.none() | ACTIONS),
    st.builds(lambda name, label: Rule(name, correlation={"label": label}), NAMES, st.sampled_from("xy")),
)
RULE_LISTS = st.lists(RULES, max_size=3, unique_by=lambda each: each.name)
BY_SESSION = SubscriptionSettings(requires_session=True)
MESSAGES = st.builds(
    lambda subject, session, properties: Message(
        b"b", properties={"subject": subject, "group-id": session}, application_properties=properties
    ).encode(),
    st.sampled_from([None, "x", "y"]),
    st.sampled_from([None, "", "one", "\udcff", "two"]),
    st.fixed_dictionaries(
        {}, optional={"color": st.sampled_from(["red", "blue", 7]), "quantity": st.integers(0, 9), "zero": st.just(0)}
    ),
)


class DeciderMachine(RuleBasedStateMachine):
    """Messages, changes of rules, steps, restarts and damage in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = quick_folder()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(block, "BLOCK_OFFSETS", BLOCK_OFFSETS)
        self.expected = Expected()

    @initialize(
        described=st.lists(st.tuples(RULE_LISTS, st.booleans(), st.booleans()), min_size=1, max_size=3),
        fall_through=st.booleans(),
    )
    def create(self, described: list[tuple[list[Rule], bool, bool]], fall_through: bool) -> None:
        self.stream = new_topic(Path(self.folder.name))
        self.writer = Writer.open(self.stream, now_ms=0)
        self.editor = TopicEditor(self.writer)
        for name, (rules, keeps_errors, by_session) in zip("abc", described, strict=False):
            settings = BY_SESSION if by_session else DEFAULT_SETTINGS
            made = Subscription(name, tuple(rules), dead_letter_on_errors=keeps_errors, settings=settings)
            self.editor.create_subscription(made, now_ms=0)
        if fall_through:
            rest = Subscription("rest", fall_through=True, settings=BY_SESSION)
            self.editor.create_subscription(rest, now_ms=0)
        self.decider = Decider.open(self.stream, now_ms=0)

    def teardown(self) -> None:
        if hasattr(self, "decider"):
            self.decider.close()
            self.writer.close()
        self.folder.cleanup()
        self.patch.undo()

    @rule(
        messages=st.lists(MESSAGES | st.just(NO_MESSAGE), min_size=1, max_size=12),
        compression=st.sampled_from([Compression.NONE, Compression.NONE, Compression.GZIP]),
        decided=st.booleans(),
    )
    def publish(self, messages: list[bytes], compression: Compression, decided: bool) -> None:
        topic = self.editor.topic
        first = self.writer.next_offset
        self.writer.append([(each, None) for each in messages], now_ms=0, compression=compression)
        for offset, data in enumerate(messages, first):
            self.expected.add(topic, offset, data)
        if decided:
            self.step(len(messages))

    @rule(what=st.sampled_from(CHANGES), subscription=NAMES, given=RULES, rules=RULE_LISTS, keeps_errors=st.booleans())
    def change(self, what: str, subscription: str, given: Rule, rules: list[Rule], keeps_errors: bool) -> None:
        settings = BY_SESSION if rules else DEFAULT_SETTINGS
        made = Subscription(subscription, tuple(rules), dead_letter_on_errors=keeps_errors, settings=settings)
        editor = self.editor
        with contextlib.suppress(RuleError):
            match what:
                case "create":
                    editor.create_subscription(made, now_ms=0)
                case "change":
                    editor.change_subscription(subscription, {"dead_letter_on_errors": keeps_errors}, now_ms=0)
                case "settings":
                    given = {
                        "settings": {"lock_ms": 1_000 * (1 + len(rules)), "dead_letter_on_expiration": keeps_errors}
                    }
                    editor.change_subscription(subscription, given, now_ms=0)
                case "remove":
                    editor.remove_subscription(subscription, now_ms=0)
                case "add":
                    editor.add_rule(subscription, given, now_ms=0)
                case "replace":
                    editor.replace_rule(subscription, given, now_ms=0)
                case _:
                    editor.remove_rule(subscription, given.name, now_ms=0)

    @rule(max_messages=st.integers(1, 40))
    def step(self, max_messages: int) -> None:
        before = self.decider.next_offset
        step = self.decider.step(max_messages, now_ms=0)
        assert step.start == before and 0 <= step.stop - step.start <= max_messages
        assert sum(len(each.sound) + len(each.malformed) for each in step.selected) == step.stop - step.start
        assert step.is_done <= (self.decider.next_offset == self.writer.next_offset)

    @rule(killed=st.booleans())
    def restart(self, killed: bool) -> None:
        if killed:
            abandon(self.decider._writer._writer)
        else:
            self.decider.close()
        self.decider = Decider.open(self.stream, now_ms=0)

    @rule(which=st.integers(0, 3), place=st.integers(0, 1 << 16), mask=st.integers(1, 255), goes_on=st.booleans())
    def damage(self, which: int, place: int, mask: int, goes_on: bool) -> None:
        self.decider.close()
        files = sorted(each for each in postings_folder(self.stream).iterdir() if each.suffix != ".lock")
        path = files[which % len(files)]
        content = bytearray(path.read_bytes())
        content[place % len(content)] ^= mask
        path.write_bytes(content)
        self.decider = Decider.open(self.stream, now_ms=0)
        if goes_on:
            while not self.decider.step(100, now_ms=0).is_done:
                pass
            assert self.decider.next_offset == self.writer.next_offset

    @invariant()
    def postings_are_what_the_reference_says(self) -> None:
        if hasattr(self, "decider"):
            self.expected.check(self.decider.postings)

    @rule()
    def another_reader_sees_the_written_blocks(self) -> None:
        with Postings.open(self.stream) as postings:
            self.expected.check(postings)


TestDecider = DeciderMachine.TestCase
