"""Topics with damaged files: what is before the damage is given out, and then everybody is told what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers import publish
from headgate.broker import DeadLetterReason
from headgate.errors import CorruptChunkError, HeadgateError, LogError
from headgate.ledger import offset_of
from headgate.log import Stream, stream_folder
from headgate.message import Message
from headgate.topic import AddRule, CreateSubscription, RuleDefinition, SubscriptionName, SubscriptionSettings
from headgate.topic.deciding import Decider
from log_streams import damage_chunk, quick_folder
from topic_lab import BLUE, RED, RED_ONLY, Lab

ADVICE = "headgate stream repair orders"


@pytest.fixture
def lab() -> Iterator[Lab]:
    with quick_folder() as folder:
        lab = Lab(Path(folder))
        yield lab
        lab.broker.close()


def damage(lab: Lab, chunk: int, at: int, *, beside: str = "") -> None:
    """Damage a chunk of the topic, or of a stream beside it, while nobody has it open."""
    lab.broker.close()
    damage_chunk(Stream.open(stream_folder(lab.root, "orders") / beside), chunk, at)
    lab.opened()


def refused(lab: Lab, message: bytes = RED) -> HeadgateError | None:
    """What a publisher is refused with."""
    try:
        return publish(lab.broker, lab.session.publisher("orders"), [message])
    except LogError as error:
        return error


@pytest.mark.parametrize("at", [60, 7, 31, 39], ids=["data", "count", "id", "length"])
def test_receivers_get_what_lies_before_damage_and_are_told_of_it_and_publishers_are_refused(lab: Lab, at: int) -> None:
    before = 3
    lab.topic(*RED_ONLY)
    for _ in range(6):
        lab.publish(RED)
    lab.session.create_topic("other")
    damage(lab, before, at)
    link = lab.link(want=10)
    lab.pass_time(3_000)
    assert link.offsets == list(range(before))
    assert len(link.ends) == 1 and ADVICE in str(link.ends[0])
    link.receiver.complete(link.tokens, link.answers.append)
    lab.turn()
    assert link.answers == [[True] * before]
    assert ADVICE in str(refused(lab))
    late = lab.link(want=1)
    lab.pass_time(3_000)
    assert late.offsets == [] and ADVICE in str(late.ends[0])
    assert lab.broker.catalogue.get("orders").damage
    assert lab.broker.catalogue.get("other").damage is None
    assert publish(lab.broker, lab.session.publisher("other"), [RED]) is None


def test_what_is_decided_before_damage_is_decided_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.topic(*RED_ONLY)
    for _ in range(6):
        lab.publish(RED)
        lab.publish(BLUE)
    damage(lab, 9, 60)
    lab.link()
    decided: list[range] = []
    step = Decider.step

    def watched(decider: Decider, *arguments: object, **more: object) -> object:
        done = step(decider, *arguments, **more)  # type: ignore[arg-type]
        decided.append(range(done.start, done.stop))
        return done

    monkeypatch.setattr(Decider, "step", watched)
    lab.restart()
    lab.link()
    lab.pass_time(3_000)
    assert [offset for each in decided for offset in each] == list(range(9))
    assert lab.counts() == (5, 0, 0, 0)


def test_a_receiver_of_a_session_and_one_that_waits_for_any_are_told(lab: Lab) -> None:
    message = Message(b"b", group_id="s", application_properties={"color": "red"}).encode()
    settings = SubscriptionSettings(requires_session=True)
    lab.topic(CreateSubscription("red", settings=settings), AddRule("red", RuleDefinition("R", sql="color = 'red'")))
    for _ in range(4):
        lab.publish(message)
    damage(lab, 2, 60)
    offsets: list[int] = []
    ends: list[HeadgateError] = []
    for session in ("s", None):
        lab.session.session_receiver(
            SubscriptionName("orders", "red"),
            session,
            accepted=lambda receiver: receiver.want(10),
            deliver=lambda copies: offsets.extend(offset_of(each.copy) for each in copies),
            ended=ends.append,
        )
    lab.pass_time(3_000)
    assert offsets == [0, 1]
    assert len(ends) == 2 and all(ADVICE in str(each) for each in ends)


@pytest.mark.parametrize("kind", ["dead-letters", "deferred"])
def test_damaged_dead_letters_and_deferred_copies_are_named_each_time(
    lab: Lab, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED, RED, RED)
    link = lab.link(want=3)
    for token in link.tokens:
        if kind == "deferred":
            link.receiver.defer([token])
        else:
            link.receiver.dead_letter([token], why=DeadLetterReason("R"))
        lab.turn()
    (folder,) = stream_folder(lab.root, "orders").glob(f"subscriptions/*/{kind}")
    damage(lab, 1, 5, beside=str(folder.relative_to(stream_folder(lab.root, "orders"))))
    topic = lab.broker.topics.get("orders")
    for _ in range(2):
        with pytest.raises(CorruptChunkError, match=f"{kind}.*segment.*{ADVICE}"):
            topic.peek("red", 0, 10, dead_letters=kind == "dead-letters")
    assert f"/{kind}/" in (lab.broker.catalogue.get("orders").damage or "")
    assert sum("is damaged" in each.message for each in caplog.records) == 1


def test_a_damaged_ledger_is_told_to_receivers_and_publishers(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED)
    link = lab.link(want=1)
    link.receiver.complete(link.tokens)
    lab.turn()
    damage(lab, 0, 60, beside="ledger")
    with pytest.raises(LogError, match=ADVICE):
        lab.link()
    assert ADVICE in str(refused(lab))
