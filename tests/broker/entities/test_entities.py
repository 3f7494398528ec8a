"""Topics, queues and subscriptions as Service Bus has them: made, found without case, changed, removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.broker import Entity, copy_of, sequence_number
from headgate.errors import HeadgateError, ResourceNotFoundError, RuleExistsError
from headgate.ledger import copy_number
from headgate.topic import SubscriptionSettings, TopicKind, TopicSettings
from topic_lab import RED, Lab, Link

QUEUE = TopicSettings(kind=TopicKind.QUEUE)


class EntityLab(Lab):
    """The lab, with what a caller of entities is answered."""

    def asked(self, ask: Callable[..., None], *arguments: object, **more: object) -> object:
        answers: list[object] = []
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
        from brokers import publish

        assert publish(self.broker, self.session.publisher(name), messages) is None
        self.turn()

    def received(self, name: str, subscription: str | None = None, *, want: int = 10) -> Link:
        link = Link(self.session)
        link.receiver = self.session.receiver(
            self.broker.entities.find(name).receivable(subscription), deliver=link._deliver, ended=link.ends.append
        )
        link.receiver.want(want)
        self.turn()
        return link


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[EntityLab]:
    lab = EntityLab(tmp_path)
    yield lab
    lab.broker.close()


def test_a_topic_is_found_without_case_and_keeps_its_spelling(lab: EntityLab) -> None:
    lab.made(lab.broker.entities.create_topic, "Orders", TopicSettings())
    found = lab.broker.entities.find("oRDERS")
    assert found.name == "Orders" and found.kind is TopicKind.TOPIC
    assert lab.broker.entities.names(TopicKind.TOPIC) == ["Orders"]
    assert lab.broker.entities.names(TopicKind.QUEUE) == []
    answer = lab.asked(lab.broker.entities.create_topic, "orders", TopicSettings())
    assert isinstance(answer, RuleExistsError) and "'Orders'" in str(answer)


def test_a_queue_gives_out_what_is_sent_to_it(lab: EntityLab) -> None:
    queue = SubscriptionSettings(lock_ms=5_000)
    made = lab.made(lab.broker.entities.create_queue, "jobs", QUEUE, queue)
    assert made.queue.settings.lock_ms == 5_000
    lab.send("jobs", RED, RED)
    assert made.counts().active == 2
    link = lab.received("JOBS")
    assert [each.message for each in link.deliveries] == [RED, RED]
    link.receiver.complete(link.tokens)
    lab.turn()
    lab.restart()
    assert lab.broker.entities.find("jobs").counts().total == 0


def test_a_subscription_gives_out_what_its_rule_selects(lab: EntityLab) -> None:
    entities = lab.broker.entities
    lab.made(entities.create_topic, "orders", TopicSettings())
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
    lab.made(lab.broker.entities.create_queue, "jobs", QUEUE, SubscriptionSettings())
    assert lab.asked(lab.broker.entities.delete, "Jobs") is None
    with pytest.raises(ResourceNotFoundError):
        lab.broker.entities.find("jobs")


def test_sequence_numbers_are_above_zero_and_grow_with_offset_and_rule() -> None:
    copies = [copy_number(offset, rule) for offset in (0, 1, 1 << 42) for rule in (0, 1, (1 << 20) - 1)]
    numbers = [sequence_number(copy) for copy in copies]
    assert numbers[0] == 1 and numbers == sorted(set(numbers)) and numbers[-1] < 1 << 63
    assert [copy_of(number) for number in numbers] == copies
