"""Trying rules: every count, overlap, gap, clause and change is that of the reference, message by message."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from body_schemas import order_body, order_schema
from headgate import kernels
from headgate.errors import ConfigError, MessageError
from headgate.evaluate.filter import Filter
from headgate.evaluate.topic_reference import copies_of
from headgate.evaluate.verdict import Verdict
from headgate.message import EncodedMessages, Message
from headgate.topic import Rule, Subscription, Topic, copy_identity
from headgate.topic.trial import Findings, Trial, TrialReport, TrialRequest
from headgate.topic.trial import findings as findings_module
from headgate.topic.trial.findings import Overlaps
from headgate.topic.trial.trial import clause_text, clauses_of

NO_MESSAGE = b"\x00\x53\x99 no message"
FIRST = 100

MESSAGES = st.builds(
    lambda color, quantity, subject: Message(
        b"body", subject=subject, application_properties={"color": color, "quantity": quantity}
    ).encode(),
    color=st.sampled_from(("red", "blue", "")),
    quantity=st.sampled_from((0, 3, 10, "many")),
    subject=st.sampled_from(("x", "y")),
) | st.just(NO_MESSAGE)

RULES = st.tuples(
    st.sampled_from(
        (
            "color = 'red'",
            "quantity > 2 AND color <> 'blue'",
            "sys.Label = 'x' OR quantity = 10 OR missing = 1",
            "missing = 'a'",
            "10 / quantity > 2",
            "1=1",
        )
    ),
    st.sampled_from((None, None, "SET quantity = quantity / 2", "SET quantity = 100 / quantity", "SET id = newid()")),
)
SUBSCRIPTIONS = st.lists(st.lists(RULES, max_size=3), min_size=1, max_size=3)


def topic_of(described: list[list[tuple[str, str | None]]], *, fall_through: bool) -> Topic:
    subscriptions = [
        Subscription(f"s{place}", tuple(Rule(f"r{number}", *rule) for number, rule in enumerate(rules)))
        for place, rules in enumerate(described)
    ]
    return Topic("t", (*subscriptions, *([Subscription("rest", fall_through=True)] if fall_through else [])))


def tried(request: TrialRequest, *parts: Sequence[bytes]) -> TrialReport:
    """The report of a trial that met the messages in several parts, each by a process of its own."""
    whole = Trial(request).take()
    offset = FIRST
    for part in parts:
        trial = Trial(TrialRequest.decode(request.encode()))
        offsets = np.arange(offset, offset + len(part), dtype=np.int64)
        trial.add(EncodedMessages.of(part), offsets, np.zeros(len(part), dtype=np.int64))
        whole.add(trial.take(), samples=request.samples)
        offset += len(part)
    return TrialReport(request, whole, FIRST, offset)


def copies_by_reference(topic: Topic, encoded: bytes, offset: int) -> dict[str, list[bytes]]:
    """Subscription → the bytes of its copies of one message."""
    try:
        message = Message.decode(encoded)
    except MessageError:
        message = None
    found: dict[str, list[bytes]] = {}
    for subscription in topic.subscriptions:
        numbers = {rule.name: rule.number for rule in subscription.rules}
        if message is not None:
            made = copies_of(
                subscription.rules,
                message,
                now_ms=0,
                identity_of=lambda rule, s=subscription, n=numbers: copy_identity(  # type: ignore[misc]
                    "t", offset, s.number, n[rule.name]
                ),
            )
            if made.copies:
                found[subscription.name] = sorted(copy.message.encode() for copy in made.copies)
    for subscription in topic.subscriptions:
        if subscription.fall_through and not found:
            return {subscription.name: [encoded]}
    return found


def check_against_the_reference(request: TrialRequest, report: TrialReport, messages: Sequence[bytes]) -> None:
    """Compare all of a report but the samples."""
    selected: list[list[str]] = []
    verdicts: dict[str, Counter[Verdict]] = {}
    pairs: Counter[tuple[str, str]] = Counter()
    for encoded in messages:
        names = []
        for subscription, rule in request.rules:
            name = f"{subscription.name}/{rule.name}"
            verdict = rule.filter.verdict(encoded, now_ms=0)
            verdicts.setdefault(name, Counter())[verdict] += 1
            names += [name] if verdict is Verdict.TRUE else []
        selected.append(names)
        pairs.update(combinations(names, 2))
    for found in report.rules:
        expected = verdicts.get(f"{found.subscription}/{found.rule}", Counter())
        assert (found.matched, found.errors, found.unknown) == (
            expected[Verdict.TRUE],
            expected[Verdict.ERROR],
            expected[Verdict.UNKNOWN],
        )
    assert {(pair.first, pair.second): pair.messages for pair in report.rule_overlaps} == pairs
    counts = Counter(min(len(names), 2) for names in selected)
    by_rules = report.findings.by_rules
    assert (by_rules.none, by_rules.one, by_rules.several) == (counts[0], counts[1], counts[2])

    copies = [copies_by_reference(request.topic, each, FIRST + row) for row, each in enumerate(messages)]
    for taken in report.subscriptions:
        own = [each[taken.subscription] for each in copies if taken.subscription in each]
        assert (taken.messages, taken.copies) == (len(own), sum(map(len, own)))
    takers = [[name for name, made in each.items() for _ in made] for each in copies]
    meets = Counter(
        pair
        for names in takers
        for pair in set(combinations_with_replacement(dict.fromkeys(names), 2))
        if pair[0] != pair[1] or names.count(pair[0]) > 1
    )
    assert {(pair.first, pair.second): pair.messages for pair in report.subscription_overlaps} == meets
    sizes = Counter(min(len(names), 2) for names in takers)
    by_copies = report.findings.by_copies
    assert (by_copies.none, by_copies.one, by_copies.several) == (sizes[0], sizes[1], sizes[2])
    assert report.is_partition == (sizes[0] == sizes[2] == 0)

    if request.against is None:
        assert not report.rule_changes
        assert not report.subscription_changes
        return
    before = [copies_by_reference(request.against, each, FIRST + row) for row, each in enumerate(messages)]
    for change in report.subscription_changes:
        name = change.subscription
        kinds = Counter(
            "none"
            if name not in old and name not in new
            else "only_old"
            if name not in new
            else "only_new"
            if name not in old
            else "same"
            if old[name] == new[name]
            else "changed"
            for old, new in zip(before, copies, strict=True)
        )
        for kind in ("same", "changed", "only_old", "only_new"):
            assert getattr(change, kind) == kinds[kind]
    assert report.findings.messages_changed == sum(old != new for old, new in zip(before, copies, strict=True))
    old_rules = {(s.name, r.name): r for s in request.against.subscriptions for r in s.rules}
    new_rules = {(s.name, r.name): r for s, r in request.rules}
    assert len(report.rule_changes) == len(old_rules.keys() | new_rules.keys())
    for found_change in report.rule_changes:
        key = found_change.subscription, found_change.rule
        old_rows, new_rows = (
            {row for row, each in enumerate(messages) if rules[key].filter.matches(each, now_ms=0)}
            if key in rules
            else set()
            for rules in (old_rules, new_rules)
        )
        assert (found_change.both, found_change.only_old, found_change.only_new) == (
            len(old_rows & new_rows),
            len(old_rows - new_rows),
            len(new_rows - old_rows),
        )


@given(
    described=SUBSCRIPTIONS,
    other=st.none() | SUBSCRIPTIONS,
    fall_through=st.booleans(),
    parts=st.lists(st.lists(MESSAGES, min_size=1, max_size=6), min_size=1, max_size=3),
    compiled=st.booleans(),
)
def test_a_trial_counts_what_the_reference_decides_in_both_engines(
    described: list[list[tuple[str, str | None]]],
    other: list[list[tuple[str, str | None]]] | None,
    fall_through: bool,
    parts: list[list[bytes]],
    compiled: bool,
) -> None:
    topic = topic_of(described, fall_through=fall_through)
    against = None if other is None else topic_of(other, fall_through=False)
    request = TrialRequest(topic, "t", against=against)
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(kernels, "load", lambda name: None)
        report = tried(request, *parts)
    messages = [each for part in parts for each in part]
    check_against_the_reference(request, report, messages)
    assert report.findings.malformed == messages.count(NO_MESSAGE)
    quick = tried(TrialRequest(topic, "t", against=against, exact=False), *parts)
    assert [rule.matched for rule in quick.rules] == [rule.matched for rule in report.rules]
    assert {rule.unknown for rule in quick.rules} <= {None}
    assert quick.subscription_changes == report.subscription_changes


@pytest.mark.parametrize("schema", [None, order_schema().text], ids=["json", "protobuf"])
def test_a_trial_looks_into_bodies(schema: str | None) -> None:
    fields = [{"id": n, "total": n * 30.5, "state": ("NEW", "PAID")[n % 2]} for n in range(8)]
    bodies = [json.dumps(each).encode() if schema is None else order_body(**each) for each in fields]
    messages = [*[Message(body).encode() for body in (*bodies, b"{\xff", b"")], NO_MESSAGE]
    rules = [("body.total > 100", None), ("body.state = 'PAID'", "SET a = 1"), ("NOT body.id < 3", "REMOVE a")]
    made = tuple(Rule(f"r{number}", *rule, dialect="amqp") for number, rule in enumerate(rules))
    request = TrialRequest(Topic("t", (Subscription("s", made),)), "t", clauses=True, body_schema=schema)
    report = tried(request, messages[:4], messages[4:])
    check_against_the_reference(request, report, messages)
    assert [rule.matched for rule in report.rules] == [4, 4, 5]


def order(region: str, price: object) -> bytes:
    return Message(b"body", application_properties={"region": region, "price": price}).encode()


def one_rule(text: str, dialect: str, action: str | None = None) -> Topic:
    return Topic("t", (Subscription("s", (Rule("r", text, action, dialect=dialect),)),))


@pytest.mark.parametrize(
    ("dialect", "text", "expected"),
    [
        ("rabbitmq", "region = 'AMER' AND (price > 5 AND price < 20)", ["region = 'AMER'", "price > 5", "price < 20"]),
        ("rocketmq", "region = 'AMER' OR price > 5", ["region = 'AMER'", "price > 5"]),
        ("servicebus", "NOT (region = 'AMER' AND price > 5)", ["NOT (region = 'AMER' AND price > 5)"]),
        ("amqp", "region = 'AMER' AND (price > 5 OR price < 2)", ["region = 'AMER'", "price > 5 OR price < 2"]),
    ],
)
def test_clauses_are_counted_each_by_itself(dialect: str, text: str, expected: list[str]) -> None:
    messages = [order(region, price) for region in ("AMER", "APJ") for price in (1, 7, 30, "many")]
    whole = Filter.parse(text, dialect)
    parts = clauses_of(whole)
    assert [clause_text(part).strip("()") for part in parts] == [each.strip("()") for each in expected]
    report = tried(TrialRequest(one_rule(text, dialect), "t", clauses=True), messages)
    for found, text_of_clause in zip(report.rules[0].clauses, expected, strict=True):
        alone = Filter.parse(text_of_clause, dialect)
        verdicts = Counter(alone.verdict(each, now_ms=0) for each in messages)
        assert (found.false, found.true, found.unknown, found.errors) == tuple(verdicts[each] for each in Verdict)


def test_bodies_that_paths_cannot_read_are_counted_where_a_rule_has_one() -> None:
    bodies = [b'{"n":7}', b'{"n":', b"", b'{"m":1}', b"[]x"]
    messages = [*(Message(body).encode() for body in bodies), NO_MESSAGE]
    report = tried(TrialRequest(one_rule("body.n > 5", "amqp"), "t"), messages[:2], messages[2:])
    assert (report.findings.unreadable_bodies, report.as_dict()["unreadable_bodies"]) == (3, 3)
    assert (report.rules[0].matched, report.rules[0].unknown, report.findings.malformed) == (1, 4, 1)
    assert tried(TrialRequest(one_rule("price > 5", "amqp"), "t"), messages).findings.unreadable_bodies == 0
    schema = TrialRequest(one_rule("body.total > 5", "amqp"), "t", body_schema=order_schema().text)
    orders = [Message(body).encode() for body in (order_body(total=7), order_body(total=1), b'{"total":7}')]
    report = tried(schema, orders)
    assert (report.findings.unreadable_bodies, report.rules[0].matched) == (1, 1)


def test_samples_are_the_first_messages_of_each_kind_and_failures_say_why() -> None:
    topic = one_rule("price > 5", "servicebus", "SET share = 100 / (price - 7)")
    messages = [order("AMER", price) for price in (1, 7, 30, "many", 8, 9, 10)]
    report = tried(TrialRequest(topic, "t", samples=2), messages[4:], messages[:4])
    (rule,) = report.rules
    assert [(each.offset, each.message["application_properties"]["price"]) for each in rule.samples] == [
        (FIRST, 8),
        (FIRST + 1, 9),
    ]
    assert (rule.matched, rule.errors, rule.failed_actions) == (5, 1, 1)
    assert [each.offset for each in rule.error_samples] == [FIRST + 6, FIRST + 4]
    assert "does not compare" in str(rule.error_samples[0].note)
    assert "zero" in str(rule.error_samples[1].note)
    assert [each["offset"] for each in report.as_dict()["gap_samples"]] == [FIRST + 3, FIRST + 4]
    assert tried(TrialRequest(topic, "t", samples=0), messages).findings.samples == {}


def test_samples_are_the_first_by_offset_in_whatever_order_tasks_end() -> None:
    request = TrialRequest(one_rule("1=1", "servicebus"), "t", samples=2)
    trial = Trial(request)
    found = trial.take()
    for offset in (7, 3, 5):
        trial.add(EncodedMessages.of([order("AMER", offset)]), np.array([offset]), np.array([0]))
        found.add(trial.take(), samples=2)
    (rule,) = TrialReport(request, found, 0, 8).rules
    assert [each.offset for each in rule.samples] == [3, 5]


def test_a_long_message_is_cut_in_a_sample() -> None:
    long = Message(b"x" * 10_000, application_properties={f"p{n}": "y" * 300 for n in range(80)}).encode()
    text = Message(b"x" * 10_000, application_properties={"p": "y" * 300}).encode()
    (rule,) = tried(TrialRequest(one_rule("1=1", "servicebus"), "t"), [long, text]).rules
    assert rule.samples[0].message == {"size_bytes": len(long), "too_long_to_show": ["application_properties", "body"]}
    assert rule.samples[1].message["application_properties"] == {"p": "y" * 200 + "…"}


def test_the_time_is_that_of_arrival_unless_another_one_is_given() -> None:
    topic = one_rule("properties.creation_time < UTC()", "rabbitmq")
    messages = [Message(b"", creation_time=2_000).encode()] * 3

    def matched(as_of_ms: int | None) -> int:
        trial = Trial(TrialRequest(topic, "t", as_of_ms=as_of_ms, clauses=True))
        trial.add(EncodedMessages.of(messages), np.arange(3), np.array([1_000, 3_000, 4_000]))
        found = TrialReport(trial._request, trial.take(), 0, 3).rules[0]
        assert found.clauses[0].true == found.matched
        return found.matched

    assert (matched(None), matched(1_500), matched(2_500)) == (2, 0, 3)


def test_the_same_rule_makes_the_same_copy_in_both_versions_wherever_it_stands() -> None:
    marked = Rule("mark", "1=1", "SET id = newid()")
    old = Topic("t", (Subscription("Keep", (marked,)),))
    new = Topic("t", (Subscription("new"), Subscription("keep", (Rule("also", "1=0"), marked))))
    report = tried(TrialRequest(new, "t", against=old), [order("AMER", 1)])
    same, added = report.subscription_changes
    assert (same.subscription, same.same, same.changed) == ("Keep", 1, 0)
    assert (added.subscription, added.only_new) == ("new", 1)


def test_pairs_beyond_the_bound_are_left_out_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings_module, "MOST_PAIRS", 10)
    rows, members = np.zeros(6, dtype=np.int64), np.arange(6)
    overlaps = Overlaps(6)
    overlaps.count(rows, members, np.array([7]))
    assert not overlaps.complete
    assert len(overlaps.pairs) == 6
    few = Overlaps(6)
    few.count(rows[:4], members[:4], np.array([7]))
    assert few.complete
    few.add(overlaps)
    assert not few.complete


def test_more_samples_than_can_be_kept_are_refused() -> None:
    with pytest.raises(ConfigError, match="samples"):
        TrialRequest(one_rule("1=1", "servicebus"), "t", samples=101)


def test_findings_cross_between_processes_unchanged() -> None:
    import msgspec

    request = TrialRequest(one_rule("price > 5", "servicebus"), "t", clauses=True)
    found = tried(request, [order("AMER", 7), NO_MESSAGE]).findings
    assert msgspec.json.decode(msgspec.json.encode(found), type=Findings) == found
