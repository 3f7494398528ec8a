"""Topics with damaged files: what is before the damage is given out, and then everybody is told what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers import publish
from failing_disk import Disk
from headgate.broker import DeadLetterReason, ReceiverCalls
from headgate.errors import CorruptChunkError, HeadgateError, LogError
from headgate.ledger import offset_of
from headgate.log import Damage, GivenUp, Stream, repair_stream, stream_folder
from headgate.message import Message
from headgate.topic import AddRule, CreateSubscription, RuleDefinition, SubscriptionName, SubscriptionSettings
from headgate.topic.decisions import Decider
from log_streams import chunk_ids, damage_chunk, quick_folder
from topic_lab import BLUE, RED, RED_ONLY, Lab

ADVICE = "headgate stream repair orders"


class DiskLab(Lab):
    """A lab whose disk may be full."""

    def __init__(self, root: Path) -> None:
        self.disk = Disk()
        super().__init__(root, open_file=self.disk)


@pytest.fixture
def lab() -> Iterator[DiskLab]:
    with quick_folder() as folder:
        lab = DiskLab(Path(folder))
        yield lab
        lab.disk.full = ""
        lab.broker.close()


def damage(lab: DiskLab, chunk: int, at: int, *, beside: str = "") -> None:
    """Damage a chunk of the topic, or of a stream beside it, while nobody has it open."""
    lab.broker.close()
    damage_chunk(Stream.open(stream_folder(lab.root, "orders") / beside), chunk, at)
    lab.opened()


def refused(lab: DiskLab, message: bytes = RED) -> HeadgateError | None:
    """What a publisher is refused with."""
    try:
        return publish(lab.broker, lab.session.publisher("orders"), [message])
    except LogError as error:
        return error


@pytest.mark.parametrize("at", [60, 7, 31, 39], ids=["data", "count", "id", "length"])
def test_receivers_get_what_lies_before_damage_and_are_told_of_it_and_publishers_are_refused(
    lab: DiskLab, at: int
) -> None:
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
    link.receiver.settler.complete(link.tokens, link.answers.append)
    lab.turn()
    assert link.answers == [[True] * before]
    assert ADVICE in str(refused(lab))
    late = lab.link(want=1)
    lab.pass_time(3_000)
    assert late.offsets == [] and ADVICE in str(late.ends[0])
    assert lab.broker.catalogue.get("orders").damage
    assert lab.broker.catalogue.get("other").damage is None
    assert publish(lab.broker, lab.session.publisher("other"), [RED]) is None


def test_what_is_decided_before_damage_is_decided_once(lab: DiskLab, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_receiver_of_a_session_and_one_that_waits_for_any_are_told(lab: DiskLab) -> None:
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
            ReceiverCalls(
                deliver=lambda copies: offsets.extend(offset_of(each.copy) for each in copies), ended=ends.append
            ),
            accepted=lambda receiver: receiver.want(10),
        )
    lab.pass_time(3_000)
    assert offsets == [0, 1]
    assert len(ends) == 2 and all(ADVICE in str(each) for each in ends)


def damaged_beside(lab: DiskLab, kind: str, byte: int) -> None:
    """Three copies as dead letters or deferred ones, the second with a damaged byte."""
    lab.topic(*RED_ONLY)
    lab.publish(RED, RED, RED)
    link = lab.link(want=3)
    for token in link.tokens:
        if kind == "deferred":
            link.receiver.settler.defer([token])
        else:
            link.receiver.settler.dead_letter([token], why=DeadLetterReason("R"))
        lab.turn()
    (folder,) = stream_folder(lab.root, "orders").glob(f"subscriptions/*/{kind}")
    damage(lab, 1, byte, beside=str(folder.relative_to(stream_folder(lab.root, "orders"))))


@pytest.mark.parametrize("kind", ["dead-letters", "deferred"])
def test_damaged_dead_letters_and_deferred_copies_are_named_each_time(
    lab: DiskLab, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    damaged_beside(lab, kind, 5)
    topic = lab.broker.topics.get("orders")
    for _ in range(2):
        with pytest.raises(CorruptChunkError, match=f"{kind}.*segment.*{ADVICE}"):
            topic.browser.peek("red", 0, 10, dead_letters=kind == "dead-letters")
    assert f"/{kind}/" in (lab.broker.catalogue.get("orders").damage or "")
    assert sum("is damaged" in each.message for each in caplog.records) == 1


def test_a_damaged_ledger_is_told_to_receivers_and_publishers(lab: DiskLab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED)
    link = lab.link(want=1)
    link.receiver.settler.complete(link.tokens)
    lab.turn()
    damage(lab, 0, 60, beside="ledger")
    with pytest.raises(LogError, match=ADVICE):
        lab.link()
    assert ADVICE in str(refused(lab))


def repair(lab: DiskLab) -> list[GivenUp]:
    """Give up what is damaged while nobody has the stream open."""
    lab.broker.close()
    stream = Stream.open(stream_folder(lab.root, "orders"))
    found = [each for each in repair_stream(stream, now_ms=0, skip_damaged=True) if isinstance(each, GivenUp)]
    assert not [each for each in repair_stream(stream, now_ms=0) if isinstance(each, Damage)]
    lab.opened()
    return found


def test_behind_what_was_given_up_everything_goes_on(lab: DiskLab) -> None:
    lab.topic(*RED_ONLY)
    for _ in range(8):
        lab.publish(RED)
    link = lab.link(want=3)
    link.receiver.settler.complete(link.tokens[:1])
    link.receiver.settler.release(link.tokens[2:], counts=False)
    lab.turn()
    damage(lab, 1, 60)
    damage(lab, 4, 60)
    assert [(each.first_offset, each.next_offset) for each in repair(lab)] == [(1, 2), (4, 5)]
    after = lab.link(want=20)
    lab.publish(RED)
    lab.pass_time(lab.broker.topics.get("orders").subscriptions.info("red").settings.lock_ms + 1_000)
    assert after.ends == []
    assert after.offsets[:6] == [2, 3, 5, 6, 7, 8], "1 was with somebody, and comes no more"
    after.receiver.settler.complete(after.tokens)
    lab.turn()
    late = lab.link(want=20)
    late.receiver.settler.complete(late.tokens)
    lab.pass_time(2_000)
    assert lab.counts() == (0, 0, 0, 0)


@pytest.mark.parametrize("how", ["dead-letter", "defer"])
def test_a_move_of_a_message_that_was_given_up_is_over(lab: DiskLab, how: str) -> None:
    lab.topic(*RED_ONLY)
    for _ in range(4):
        lab.publish(RED)
    link = lab.link(want=4)
    lab.disk.full = "deferred" if how == "defer" else "dead-letters"
    if how == "defer":
        link.receiver.settler.defer(link.tokens)
    else:
        link.receiver.settler.dead_letter(link.tokens, why=DeadLetterReason("R"))
    lab.turn()
    damage(lab, 1, 60)
    repair(lab)
    lab.disk.full = ""
    lab.pass_time(3_000)
    lab.broker.topics.get("orders")
    lab.pass_time(3_000)
    info = lab.broker.topics.get("orders").subscriptions.info("red")
    assert (info.dead_lettered, info.deferred) == ((0, 3) if how == "defer" else (3, 0))


@pytest.mark.parametrize("kind", ["dead-letters", "deferred"])
def test_dead_letters_and_deferred_copies_go_on_behind_what_was_given_up(lab: DiskLab, kind: str) -> None:
    damaged_beside(lab, kind, 60)
    (found,) = repair(lab)
    assert (found.first_offset, found.next_offset, found.path.parent.name) == (1, 2, kind)
    topic = lab.broker.topics.get("orders")
    assert len(topic.browser.peek("red", 0, 10, dead_letters=kind == "dead-letters")) == 2
    info = topic.subscriptions.info("red")
    assert (info.dead_lettered, info.deferred) == ((0, 2) if kind == "deferred" else (2, 0))


def test_a_ledger_with_a_part_given_up_gives_messages_again_and_loses_none(lab: DiskLab) -> None:
    lab.topic(*RED_ONLY)
    for _ in range(3):
        lab.publish(RED)
    link = lab.link(want=3)
    for token in link.tokens:
        link.receiver.settler.complete([token])
        lab.turn()
    count = len(chunk_ids(Stream.open(stream_folder(lab.root, "orders") / "ledger")))
    damage(lab, count - 2, 60, beside="ledger")
    (found,) = repair(lab)
    assert found.path.parent.name == "ledger"
    link = lab.link(want=3)
    lab.pass_time(lab.broker.topics.get("orders").subscriptions.info("red").settings.lock_ms + 1_000)
    assert link.offsets[:1] == [1] and not link.ends


def test_scheduled_messages_that_were_given_up_are_named_and_the_others_are_published(
    lab: DiskLab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.topic(*RED_ONLY)
    due_ms = lab.clock.now + 5_000
    for _ in range(4):
        lab.broker.topics.get("orders").scheduled.schedule([RED], [due_ms], lambda _answer: None)
        lab.turn()
    damage(lab, 2, 60, beside="waiting")
    link = lab.link(want=10)
    lab.pass_time(6_000)
    assert link.offsets == [0, 1] and link.ends == [], "what lies before the damage is published"
    assert "/waiting/" in (lab.broker.catalogue.get("orders").damage or "")
    assert [each for each in caplog.records if "waiting messages" in each.message and ADVICE in each.message]
    caplog.clear()
    assert [(each.first_offset, each.path.parent.name) for each in repair(lab)] == [(2, "waiting")]
    link = lab.link(want=10)
    lab.pass_time(1_000)
    assert link.offsets == [2] and link.ends == []
    assert lab.broker.topics.get("orders").scheduled.count == 0
    assert lab.broker.catalogue.get("orders").damage is None
    assert [each for each in caplog.records if "1 scheduled messages were damaged" in each.message]
