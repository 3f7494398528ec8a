"""The audit stream: what is recorded, what is not, who may read it, and that it never hinders an action."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest

from brokers import open_broker, open_session, publish, stored
from headgate.broker import (
    AUDIT_STREAM,
    AuditRow,
    AuditSettings,
    BrokerSettings,
    ConsumerOptions,
    DeadLetterReason,
    Permissions,
    Resubmission,
    audit_entries,
    read_audit,
)
from headgate.broker import audit as audit_module
from headgate.errors import (
    AccessRefusedError,
    HeadgateError,
    PreconditionFailedError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from headgate.log import OffsetSpecification
from headgate.topic import AddRule, CreateSubscription, RemoveSubscription, RuleDefinition, SubscriptionName
from log_streams import FailingFiles
from topic_lab import RED, RED_ONLY, Lab

LETTERS = SubscriptionName("orders", "red", is_dead_letter=True)


class AuditLab(Lab):
    """A broker that records."""

    def __init__(self, root: Path, failing: FailingFiles | None = None) -> None:
        self.failing = failing or FailingFiles(OSError(28, "No space left on device"))
        super().__init__(root, open_file=self.failing)
        self.broker.close()
        self.settings = BrokerSettings(open_file=self.failing, audit=AuditSettings())
        self.opened()

    def entries(self, **more: Any) -> list[AuditRow]:
        self.turn()
        stream = self.broker.catalogue.find(AUDIT_STREAM)
        return [] if stream is None else read_audit(stream.stream, **more)

    def said(self, **more: Any) -> list[tuple[str, str, str, str]]:
        return [(row.user, row.action, row.subject, row.outcome) for row in self.entries(**more)]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[AuditLab]:
    lab = AuditLab(tmp_path)
    yield lab
    lab.broker.close()


def test_changes_are_recorded_with_who_made_them_from_where(lab: AuditLab) -> None:
    lab.session.declare_stream("plain", {})
    lab.topic(*RED_ONLY)
    lab.change(RemoveSubscription("red"))
    lab.session.remove_topic("orders")
    lab.session.delete_stream("plain")
    lab.session.declare_exchange("direct")
    lab.session.delete_exchange("direct")
    rule = "orders/Subscriptions/red"
    assert lab.said() == [
        ("guest", action, subject, "done")
        for action, subject in (
            ("stream.create", "plain"),
            ("topic.create", "orders"),
            ("subscription.create", rule),
            ("subscription.delete", rule),
            ("topic.delete", "orders"),
            ("stream.delete", "plain"),
            ("exchange.create", "direct"),
            ("exchange.delete", "direct"),
        )
    ]
    created = lab.entries()[2]
    assert (created.protocol, created.connection) == (lab.session.protocol, lab.session.connection)
    assert created.timestamp_ms == lab.clock.now
    assert created.detail["count"] == 2
    assert created.detail["changes"][1]["rule"]["sql"] == "color = 'red'"
    assert created.detail["in_force_from"] == 0


def test_what_is_done_with_dead_letters_is_recorded_with_the_copies(lab: AuditLab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED, RED, RED, RED)
    link = lab.link(want=4)
    link.receiver.settler.dead_letter(link.tokens, why=DeadLetterReason("No"))
    lab.turn()
    lab.session.resubmit(LETTERS, Resubmission("orders", copies=[0, 1 << 20]))
    for _ in range(3):
        lab.turn(after_ms=100)
    lab.session.delete_dead_letters(LETTERS, [2 << 20], lambda _result: None)
    lab.session.purge(LETTERS, lambda _result: None)
    lab.turn()
    asked, ended, deleted, purged = lab.entries(action="dead-letters")
    assert [each.action for each in (asked, ended, deleted, purged)] == [
        "dead-letters.resubmit",
        "dead-letters.resubmitted",
        "dead-letters.delete",
        "dead-letters.purge",
    ]
    assert (asked.subject, asked.detail["copies"], asked.detail["to"]) == (str(LETTERS), [0, 1], "orders")
    assert (ended.outcome, ended.detail["copies"], ended.detail["job"]) == ("done", [0, 1], asked.detail["job"])
    assert (deleted.detail["copies"], purged.detail["copies"]) == ([2], 1)


def test_what_changes_nothing_is_not_recorded(lab: AuditLab) -> None:
    lab.session.declare_stream("plain", {})
    lab.session.declare_stream("plain", {})
    lab.session.declare_stream("plain", {}, passive=True)
    for probe, error in (
        (lambda: lab.session.declare_stream("plain", {"max-age": "7D"}), ResourceExistsError),
        (lambda: lab.session.delete_stream("missing"), ResourceNotFoundError),
    ):
        with pytest.raises(error):
            probe()
    publish(lab.broker, lab.session.publisher("plain"), [RED])
    assert [row.action for row in lab.entries()] == ["stream.create"]


def test_what_a_user_may_not_is_recorded_as_refused_and_floods_are_bounded(lab: AuditLab) -> None:
    lab.broker.users.add("ann", "secret", permissions=Permissions("^a", "^a", ".*"))
    ann = lab.broker.open_session("ann", protocol="test", connection="there")
    lab.topic(*RED_ONLY)
    for attempt in (
        lambda: ann.delete_stream("orders"),
        lambda: ann.change_topic("orders", [AddRule("red", RuleDefinition("R", sql="1=1"))], lambda _result: None),
        lambda: ann.resubmit(LETTERS, Resubmission("orders")),
    ):
        with pytest.raises(AccessRefusedError):
            attempt()
    refused = lab.entries(user="ann")
    assert [(row.action, row.outcome) for row in refused] == [
        ("stream.delete", "refused"),
        ("rule.create", "refused"),
        ("dead-letters.resubmit", "refused"),
    ]
    assert "has no configure permission" in refused[0].detail["error"]
    for _ in range(100):
        with pytest.raises(AccessRefusedError):
            ann.delete_stream("orders")
    assert len(lab.entries(user="ann", limit=1_000)) == audit_module.REFUSALS_A_SECOND
    assert lab.broker.audit.counters.left_out == 100 + 3 - audit_module.REFUSALS_A_SECOND


def test_a_change_that_fails_later_is_recorded_as_failed(lab: AuditLab) -> None:
    lab.topic(*RED_ONLY)
    (error,) = lab.change(AddRule("red", RuleDefinition("wrong", sql="color = = 1")))
    assert isinstance(error, HeadgateError)
    last = lab.entries()[-1]
    assert (last.action, last.outcome) == ("rule.create", "failed")
    assert last.detail["error"] == str(error)


def test_only_administrators_read_it_and_nobody_else_writes_it(lab: AuditLab) -> None:
    lab.session.declare_stream("plain", {})
    lab.turn()
    lab.broker.users.add("ann", "secret", permissions=Permissions(".*", ".*", ".*"))
    ann = lab.broker.open_session("ann", protocol="test", connection="there")
    stranger = lab.broker.open_session("x", protocol="test", connection="there", check=lambda _right, _name: None)
    options = ConsumerOptions(start=OffsetSpecification.first())
    for session in (ann, stranger):
        with pytest.raises(AccessRefusedError):
            session.message_consumer(AUDIT_STREAM, options)
    for session in (ann, stranger, lab.session):
        for attempt in (
            lambda session: session.publisher(AUDIT_STREAM),
            lambda session: session.delete_stream(AUDIT_STREAM),
            lambda session: session.declare_stream(AUDIT_STREAM, {}),
            lambda session: session.create_topic(AUDIT_STREAM),
        ):
            with pytest.raises(AccessRefusedError):
                attempt(session)
    lab.session.message_consumer(AUDIT_STREAM, options).close()
    assert lab.session.streams() == ["plain"]


def test_a_full_disk_fails_no_action_and_is_counted(lab: AuditLab, caplog: pytest.LogCaptureFixture) -> None:
    lab.session.declare_stream("plain", {})
    lab.turn()
    lab.failing.budget = lab.failing.written
    lab.session.delete_stream("plain")
    lab.session.declare_exchange("direct")
    lab.turn()
    assert lab.broker.audit.counters.lost == 2
    assert "entries of the audit stream are lost" in caplog.text
    lab.failing.budget = None
    lab.turn(after_ms=2_000)
    lab.session.delete_exchange("direct")
    assert lab.said()[-1] == ("guest", "exchange.delete", "direct", "done")


def test_too_many_entries_at_once_are_left_out(lab: AuditLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "MOST_WAITING", 2)
    for number in range(5):
        lab.session.declare_exchange(f"exchange-{number}")
    assert len(lab.entries()) == 2
    assert lab.broker.audit.counters.left_out == 3


def test_secrets_and_long_details_are_not_written_down(lab: AuditLab) -> None:
    audit = lab.broker.audit
    audit.record(lab.session.actor, "user.put", "ann", detail={"body": {"password": "hush", "tags": ["a"]}})
    audit.record(lab.session.actor, "user.put", "bob\ud800", detail={"long": "x" * 10_000})
    first, second = lab.entries()
    assert first.detail == {"body": {"password": "…", "tags": ["a"]}}
    assert (second.subject, second.detail["left_out"]) == ("bob?", "the detail was too long")
    assert all(b"hush" not in each for each in stored(lab.root, AUDIT_STREAM))


def test_texts_of_strangers_that_are_no_utf_8_can_be_written_down(lab: AuditLab) -> None:
    with pytest.raises(PreconditionFailedError):
        lab.session.declare_exchange("x", kind="dire\udc82t")
    inner = {"\udc81": ["\ud800", ("\udc82", b"\xff")], 5: PurePath("\udc83")}
    lab.broker.audit.record(lab.session.actor, "exchange.create", "x", detail=inner)
    refused, told = lab.entries()
    assert refused.detail["error"] == "unknown exchange type 'dire?t'"
    assert told.detail == {"?": ["?", ["?", "/w=="]], "5": "?"}


def test_entries_are_found_by_user_action_time_and_place(lab: AuditLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_entries, "_A_PAGE", 3)
    ann = audit_module.Actor("ann", "test", "there")
    for number in range(10):
        lab.clock.now += 1_000
        actor = ann if number % 2 else lab.session.actor
        lab.broker.audit.record(actor, ("stream.create", "streams.other")[number % 3 == 0], str(number))
        lab.turn()
    subjects = lambda **more: [row.subject for row in lab.entries(**more)]  # noqa: E731
    assert subjects(limit=3) == ["7", "8", "9"]
    assert subjects(start=0, limit=3) == ["0", "1", "2"]
    assert subjects(start=8) == ["8", "9"]
    assert subjects(user="ann", limit=3) == ["5", "7", "9"]
    assert subjects(action="stream", user="ann") == ["1", "5", "7"]
    assert subjects(since_ms=lab.clock.now - 1_000) == ["8", "9"]
    assert subjects(start=100) == []


def test_without_settings_nothing_is_recorded(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    open_session(broker).declare_stream("plain", {})
    broker.write_queued()
    assert broker.catalogue.find(AUDIT_STREAM) is None
    broker.close()


def test_a_subscription_with_many_rules_is_one_entry(lab: AuditLab) -> None:
    rules = [AddRule("red", RuleDefinition(f"R{number}", sql="1=1")) for number in range(50)]
    lab.topic(CreateSubscription("red"), *rules)
    entry = lab.entries()[-1]
    assert (entry.detail["count"], len(entry.detail["changes"])) == (51, 20)
