"""Topics, queues and subscriptions as Service Bus has them: made, found without case, changed, removed."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from brokers import START_MS, publish
from headgate.broker import (
    Entity,
    EntityDeclaration,
    ReceiverCalls,
    SubscriptionDeclaration,
    any_target,
    copy_of,
    sequence_number,
)
from headgate.broker.settings import BrokerSettings
from headgate.errors import (
    EntityDisabledError,
    HeadgateError,
    ResourceNotFoundError,
    RuleError,
    RuleExistsError,
    RuleLimitError,
)
from headgate.ledger import copy_number
from headgate.topic import (
    QUEUE_SUBSCRIPTION,
    AuthorizationRule,
    RuleDefinition,
    SubscriptionSettings,
    SubscriptionStatus,
    TopicKind,
    TopicSettings,
    TopicStatus,
)
from topic_lab import RED, Lab, Link

QUEUE = TopicSettings(kind=TopicKind.QUEUE)


class EntityLab(Lab):
    """The lab, with what a caller of entities is answered."""

    def asked(self, ask: Callable[..., None], *arguments: object, **more: object) -> object:
        """Changes that can name a target are asked for by somebody who may forward anywhere."""
        answers: list[object] = []
        if "check_target" in inspect.signature(ask).parameters:
            more.setdefault("check_target", any_target)
        ask(*arguments, then=answers.append, **more)
        self.turn()
        assert len(answers) == 1
        return answers[0]

    def made(self, ask: Callable[..., None], *arguments: object, **more: object) -> Entity:
        answer = self.asked(ask, *arguments, **more)
        if isinstance(answer, HeadgateError):
            raise answer
        assert isinstance(answer, Entity)
        return answer

    def send(self, name: str, *messages: bytes) -> None:
        assert publish(self.broker, self.session.publisher(name), messages) is None
        self.turn()

    def received(self, name: str, subscription: str | None = None, *, dead_letters: bool = False) -> Link:
        link = Link(self.session)
        link.receiver = self.session.receiver(
            self.broker.entities.find(name).receivable(subscription, dead_letters=dead_letters),
            ReceiverCalls(deliver=link.take, ended=link.ends.append),
        )
        link.receiver.want(10)
        self.turn()
        return link


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[EntityLab]:
    lab = EntityLab(tmp_path)
    yield lab
    lab.broker.close()


def test_a_topic_is_found_without_case_and_keeps_its_spelling(lab: EntityLab) -> None:
    lab.made(lab.broker.entities.create, EntityDeclaration("Orders"))
    found = lab.broker.entities.find("oRDERS")
    assert found.name == "Orders" and found.kind is TopicKind.TOPIC
    assert lab.broker.entities.names(TopicKind.TOPIC) == ["Orders"]
    assert lab.broker.entities.names(TopicKind.QUEUE) == []
    answer = lab.asked(lab.broker.entities.create, EntityDeclaration("orders"))
    assert isinstance(answer, RuleExistsError) and "'Orders'" in str(answer)


def test_a_queue_gives_out_what_is_sent_to_it(lab: EntityLab) -> None:
    queue = SubscriptionSettings(lock_ms=5_000)
    made = lab.made(lab.broker.entities.create, EntityDeclaration("jobs", QUEUE, delivery=queue))
    assert made.queue.settings.lock_ms == 5_000
    lab.send("jobs", RED, RED)
    assert made.counts().active == 2
    link = lab.received("JOBS")
    assert [each.message for each in link.deliveries] == [RED, RED]
    link.receiver.settler.complete(link.tokens)
    lab.turn()
    lab.restart()
    assert lab.broker.entities.find("jobs").counts().total == 0


def test_a_subscription_gives_out_what_its_rule_selects(lab: EntityLab) -> None:
    entities = lab.broker.entities
    lab.made(entities.create, EntityDeclaration("orders"))
    made = lab.made(entities.create_subscription, "orders", "Red", SubscriptionSettings())
    assert [rule.name for rule in made.subscription("RED").rules] == ["$Default"]
    lab.send("orders", RED)
    assert [each.message for each in lab.received("orders", "red").deliveries] == [RED]


def test_what_is_not_there_is_not_found(lab: EntityLab) -> None:
    lab.session.declare_stream("plain", {})
    for name in ("plain", "nothing"):
        with pytest.raises(ResourceNotFoundError):
            lab.broker.entities.find(name)


def test_a_removed_entity_is_gone(lab: EntityLab) -> None:
    lab.made(lab.broker.entities.create, EntityDeclaration("jobs", QUEUE))
    assert lab.asked(lab.broker.entities.delete, "Jobs") is None
    with pytest.raises(ResourceNotFoundError):
        lab.broker.entities.find("jobs")


def test_settings_come_back_as_they_were_given_over_a_restart(lab: EntityLab) -> None:
    entities = lab.broker.entities
    given = TopicSettings(
        user_metadata="ours",
        default_time_to_live_ms=60_000,
        authorization_rules=(AuthorizationRule("all", ("Listen", "Manage", "Send"), "cHJpbWFyeQ==", "c2Vjb25k"),),
        kept={"EnableExpress": "true"},
    )
    lab.made(entities.create, EntityDeclaration("orders", given, max_size_megabytes=2048))
    of_subscription = SubscriptionSettings(user_metadata="theirs", kept={"EnableBatchedOperations": "false"})
    lab.clock.now += 1_000
    lab.made(entities.create_subscription, "orders", "red", of_subscription, dead_letter_on_errors=False)
    lab.clock.now += 1_000
    changed = msgspec.structs.replace(given, status=TopicStatus.SEND_DISABLED)
    lab.made(entities.update, EntityDeclaration("ORDERS", changed, max_size_megabytes=5))
    lab.made(entities.update_subscription, "orders", "RED", of_subscription)
    lab.restart()
    found = lab.broker.entities.find("orders")
    assert (found.settings, found.max_size_megabytes, found.limits.unsettled_bytes) == (changed, 5, 5 << 20)
    assert (found.created_ms, found.updated_ms) == (START_MS, START_MS + 2_000)
    (subscription,) = found.subscriptions
    assert (subscription.name, subscription.settings, subscription.dead_letter_on_errors) == (
        "red",
        of_subscription,
        True,
    )
    assert (subscription.created_ms, subscription.updated_ms) == (START_MS + 1_000, START_MS + 2_000)


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        (TopicStatus.ACTIVE, True, True),
        (TopicStatus.SEND_DISABLED, False, True),
        (TopicStatus.RECEIVE_DISABLED, True, False),
        (TopicStatus.DISABLED, False, False),
    ],
)
def test_a_status_counts_for_who_is_there_and_for_who_comes(
    lab: EntityLab, status: TopicStatus, sends: bool, receives: bool
) -> None:
    entities = lab.broker.entities
    lab.made(entities.create, EntityDeclaration("jobs", QUEUE))
    publisher, link = lab.session.publisher("jobs"), lab.received("jobs")
    dead = lab.received("jobs", dead_letters=True)
    changed = msgspec.structs.replace(QUEUE, status=status)
    lab.made(entities.update, EntityDeclaration("jobs", changed))
    assert (publish(lab.broker, publisher, [RED]) is None) is sends
    lab.turn()
    assert [type(error) for error in link.ends + dead.ends] == ([] if receives else [EntityDisabledError] * 2)
    assert len(link.deliveries) == (sends and receives)
    lab.restart()
    with contextlib.nullcontext() if sends else pytest.raises(EntityDisabledError):
        lab.session.publisher("jobs")
    with contextlib.nullcontext() if receives else pytest.raises(EntityDisabledError):
        lab.received("jobs")
    lab.made(lab.broker.entities.update, EntityDeclaration("jobs", QUEUE))
    lab.session.publisher("jobs").close()
    assert len(lab.received("jobs").deliveries) == (sends and not receives)


def test_a_disabled_subscription_gives_nobody_copies_and_forwards_none(lab: EntityLab) -> None:
    entities, disabled = lab.broker.entities, SubscriptionSettings(status=SubscriptionStatus.DISABLED)
    lab.made(entities.create, EntityDeclaration("jobs", QUEUE))
    lab.made(entities.create, EntityDeclaration("orders"))
    for name, target in (("red", None), ("onward", "jobs")):
        lab.made(entities.create_subscription, "orders", name, disabled, forward_to=target)
    lab.send("orders", RED)
    with pytest.raises(EntityDisabledError):
        lab.received("orders", "red")
    assert entities.find("jobs").counts().total == 0
    lab.made(entities.update_subscription, "orders", "onward", SubscriptionSettings(), forward_to="jobs")
    assert entities.find("jobs").counts().active == 1


def test_messages_live_no_longer_than_their_topic_allows(lab: EntityLab) -> None:
    lab.made(
        lab.broker.entities.create,
        EntityDeclaration(
            "jobs",
            msgspec.structs.replace(QUEUE, default_time_to_live_ms=5_000),
            delivery=SubscriptionSettings(default_time_to_live_ms=60_000),
        ),
    )
    lab.send("jobs", RED)
    lab.turn(after_ms=5_001)
    assert lab.broker.entities.find("jobs").counts().total == 0


@pytest.mark.parametrize("changed", [{"kind": TopicKind.TOPIC}, {"requires_duplicate_detection": True}])
def test_what_cannot_be_changed_is_refused(lab: EntityLab, changed: dict[str, object]) -> None:
    lab.made(lab.broker.entities.create, EntityDeclaration("jobs", QUEUE))
    settings = msgspec.structs.replace(QUEUE, **changed)
    answer = lab.asked(lab.broker.entities.update, EntityDeclaration("jobs", settings))
    assert isinstance(answer, RuleError)
    assert lab.broker.entities.find("jobs").settings == QUEUE


def declared(lab: EntityLab) -> EntityDeclaration:
    red = RuleDefinition("Red", sql="color = 'red'")
    return EntityDeclaration(
        "orders",
        max_size_megabytes=7,
        subscriptions=(
            SubscriptionDeclaration("all"),
            SubscriptionDeclaration("red", SubscriptionSettings(lock_ms=5_000), rules=(red,), forward_to="JOBS"),
        ),
    )


def test_what_is_declared_is_made_and_changed_and_what_is_not_named_stays(lab: EntityLab) -> None:
    entities = lab.broker.entities
    lab.made(entities.declare, EntityDeclaration("jobs", QUEUE, delivery=SubscriptionSettings(lock_ms=1_000)))
    made = lab.made(entities.declare, declared(lab))
    before = made.topic.history.last_change
    assert [each.name for each in entities.declarations()] == ["jobs", "orders"]
    told = EntityDeclaration.told(made)
    assert told.subscriptions[0].rules == (RuleDefinition("$Default", sql="1=1"),)
    assert told.subscriptions[1] == msgspec.structs.replace(declared(lab).subscriptions[1], forward_to="jobs")
    # Again it changes nothing, and leaves what it does not name.
    lab.made(entities.create_subscription, "orders", "more", SubscriptionSettings())
    lab.made(entities.add_rule, "orders", "all", RuleDefinition("Blue", sql="color = 'blue'"))
    lab.send("orders", RED)
    again = lab.made(entities.declare, msgspec.structs.replace(declared(lab), name="ORDERS"))
    assert again.topic.history.last_change == before
    assert [each.name for each in again.subscriptions] == ["all", "red", "more"]
    assert [rule.name for rule in again.subscription("all").rules] == ["$Default", "Blue"]
    only = SubscriptionDeclaration("RED", rules=(RuleDefinition("Other", sql="1=0"),))
    changed = lab.made(entities.declare, EntityDeclaration("orders", subscriptions=(only,)))
    assert [rule.name for rule in changed.subscription("red").rules] == ["Other"]
    assert changed.max_size_megabytes == 7


def test_an_entity_that_is_declared_wrong_leaves_no_trace(lab: EntityLab) -> None:
    bad = SubscriptionDeclaration("red", rules=(RuleDefinition("Bad", sql="color ="),))
    lab.session.declare_stream("plain", {})
    for name in ("orders", "plain"):
        answer = lab.asked(lab.broker.entities.declare, EntityDeclaration(name, subscriptions=(bad,)))
        assert isinstance(answer, RuleError) and answer.cause is not None
        with pytest.raises(ResourceNotFoundError):
            lab.broker.entities.find(name)
    assert lab.session.streams() == ["plain"]


def test_a_queue_may_forward_to_another(lab: EntityLab) -> None:
    entities = lab.broker.entities
    for name, target in (("jobs", None), ("inbox", "Jobs")):
        lab.made(entities.create, EntityDeclaration(name, QUEUE, delivery=SubscriptionSettings(), forward_to=target))
    lab.send("inbox", RED)
    assert [entities.find(name).counts().total for name in ("inbox", "jobs")] == [0, 1]
    lab.made(entities.update, EntityDeclaration("inbox", QUEUE))
    assert entities.find("inbox").queue.forward_to is None


def test_a_queue_has_no_subscriptions_and_keeps_its_own(lab: EntityLab) -> None:
    entities = lab.broker.entities
    made = lab.made(entities.create, EntityDeclaration("jobs", QUEUE))
    assert isinstance(lab.asked(entities.create_subscription, "jobs", "s", SubscriptionSettings()), RuleError)
    assert isinstance(lab.asked(entities.delete_subscription, "jobs", QUEUE_SUBSCRIPTION), RuleError)
    assert made.subscriptions == []
    with pytest.raises(ResourceNotFoundError):
        made.subscription(QUEUE_SUBSCRIPTION)


@pytest.mark.parametrize("name", ["orders/Subscriptions/red", "$cbs", "/orders", "a?b", "x" * 261, ""])
def test_names_that_mean_other_places_are_refused(lab: EntityLab, name: str) -> None:
    assert isinstance(lab.asked(lab.broker.entities.create, EntityDeclaration(name)), RuleError)


def test_of_streams_that_differ_only_in_case_the_exact_spelling_is_meant(lab: EntityLab) -> None:
    for name in ("orders", "Orders"):
        lab.session.create_topic(name)
    assert [lab.broker.entities.find(name).name for name in ("orders", "Orders", "ORDERS")] == [
        "orders",
        "Orders",
        "Orders",
    ]
    lab.session.declare_stream("PLAIN", {})
    assert isinstance(lab.asked(lab.broker.entities.create, EntityDeclaration("plain")), RuleExistsError)
    assert lab.made(lab.broker.entities.create, EntityDeclaration("PLAIN")).name == "PLAIN"


def test_an_entity_that_nobody_uses_for_its_time_is_removed(lab: EntityLab) -> None:
    idle = msgspec.structs.replace(QUEUE, auto_delete_on_idle_ms=60_000)
    for name in ("jobs", "held"):
        lab.made(lab.broker.entities.create, EntityDeclaration(name, idle))
    held = lab.received("held")
    lab.turn()
    lab.turn(after_ms=3_600_000)
    lab.pass_time(57_000)
    lab.send("jobs", RED)
    for publisher in list(lab.broker.entities.find("jobs").topic.stream.publishers):
        publisher.close()
    lab.pass_time(59_000)
    assert lab.broker.entities.names(TopicKind.QUEUE) == ["held", "jobs"]
    lab.pass_time(2_000)
    assert lab.broker.entities.names(TopicKind.QUEUE) == ["held"]
    held.receiver.close()
    lab.pass_time(61_000)
    assert lab.session.streams() == []


def test_a_queue_says_itself_when_it_is_removed(lab: EntityLab) -> None:
    wrong = SubscriptionSettings(auto_delete_on_idle_ms=60_000)
    assert isinstance(
        lab.asked(lab.broker.entities.create, EntityDeclaration("jobs", QUEUE, delivery=wrong)), RuleError
    )
    lab.made(lab.broker.entities.create, EntityDeclaration("jobs", QUEUE))
    assert isinstance(
        lab.asked(lab.broker.entities.update, EntityDeclaration("jobs", QUEUE, delivery=wrong)), RuleError
    )


def test_a_disabled_subscription_gives_no_session(lab: EntityLab) -> None:
    by_session = SubscriptionSettings(requires_session=True, status=SubscriptionStatus.RECEIVE_DISABLED)
    lab.made(lab.broker.entities.create, EntityDeclaration("jobs", QUEUE, delivery=by_session))
    with pytest.raises(EntityDisabledError):
        lab.broker.entities.find("jobs").topic.receivers.open_session(
            QUEUE_SUBSCRIPTION, None, ReceiverCalls(deliver=print, ended=print), accepted=print
        )


def test_an_entity_says_when_it_was_used_last(lab: EntityLab) -> None:
    entities = lab.broker.entities
    lab.made(entities.create, EntityDeclaration("orders"))
    found = lab.made(entities.create_subscription, "orders", "red", SubscriptionSettings())
    lab.clock.now += 1_000
    lab.send("orders", RED)
    assert (found.accessed_ms, found.subscription("red").accessed_ms) == (START_MS + 1_000, START_MS)
    lab.clock.now += 1_000
    lab.received("orders", "red")
    assert (found.accessed_ms, found.subscription("red").accessed_ms) == (START_MS + 2_000, START_MS + 2_000)


def test_there_are_only_so_many_entities(tmp_path: Path) -> None:
    lab = EntityLab(tmp_path)
    lab.broker.close()
    lab.settings = BrokerSettings(entities=1)
    lab.opened()
    lab.session.declare_stream("plain", {})
    lab.made(lab.broker.entities.create, EntityDeclaration("orders"))
    assert isinstance(lab.asked(lab.broker.entities.create, EntityDeclaration("more")), RuleLimitError)
    lab.broker.close()


def test_names_have_260_characters_of_any_kind(lab: EntityLab) -> None:
    names = ["é" * 260, "a/" * 129 + "b~", "x" * 260]
    for name in names:
        assert lab.made(lab.broker.entities.create, EntityDeclaration(name, QUEUE)).name == name
        lab.send(name, RED)
    lab.restart()
    assert lab.broker.entities.names(TopicKind.QUEUE) == sorted(names)
    assert len(lab.received(names[0].upper()).deliveries) == 1


def test_what_every_subscription_settled_goes_with_whole_segments(lab: EntityLab) -> None:
    made = lab.made(lab.broker.entities.create, EntityDeclaration("jobs", QUEUE))
    settings = made.topic.stream.stream.settings
    assert settings is not None and settings.arguments.drops_settled


def test_sequence_numbers_are_above_zero_and_grow_with_offset_and_rule() -> None:
    copies = [copy_number(offset, rule) for offset in (0, 1, 1 << 42) for rule in (0, 1, (1 << 20) - 1)]
    numbers = [sequence_number(copy) for copy in copies]
    assert numbers[0] == 1 and numbers == sorted(set(numbers)) and numbers[-1] < 1 << 63
    assert [copy_of(number) for number in numbers] == copies
