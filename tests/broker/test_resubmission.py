"""Resubmission of dead letters: what is published again, what stays, and that nothing is lost or published twice."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from brokers import Background, publish, stored
from headgate.broker import DeadLetterReason, Job, JobState, Permissions, Resubmission
from headgate.broker.jobs import ITEMS_A_STEP, MOST_RUNNING
from headgate.broker.resubmission import ResubmissionTrial
from headgate.errors import (
    AccessRefusedError,
    ConfigError,
    EntityDisabledError,
    HeadgateError,
    LimitExceededError,
    PreconditionFailedError,
    ResourceNotFoundError,
)
from headgate.ledger import copy_number
from headgate.message import AmqpValue, Message
from headgate.topic import (
    AddRule,
    ChangeSubscription,
    ChangeTopic,
    CreateSubscription,
    RemoveRule,
    RuleDefinition,
    SubscriptionName,
    TopicSettings,
    TopicStatus,
)
from log_streams import FailingFiles, Killed, killed_process, quick_folder
from topic_lab import NO_MESSAGE, RED, RED_ONLY, Lab

RED_LETTERS = SubscriptionName("orders", "red", is_dead_letter=True)
SEND_DISABLED = ChangeTopic(TopicSettings(status=TopicStatus.SEND_DISABLED))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    lab.topic(*RED_ONLY)
    yield lab
    lab.broker.close()


def numbered(count: int, color: str = "red") -> list[bytes]:
    return [
        Message(b"b", application_properties={"color": color, "n": number}, message_id=f"id-{number}").encode()
        for number in range(count)
    ]


def dead_letters(lab: Lab, messages: Sequence[bytes], reason: str = "NoStock") -> None:
    """Publish messages that `red` takes, and dead-letter what it gets."""
    lab.publish(*messages)
    link = lab.link(want=len(messages))
    why = DeadLetterReason(reason, f"{reason} at all", {"by": "test"})
    link.receiver.settler.dead_letter(link.tokens, why=why)
    link.receiver.close()
    lab.turn()


def resubmit(lab: Lab, **more: object) -> Job:
    """A resubmission that has had its time."""
    job = lab.session.resubmit(RED_LETTERS, Resubmission(**({"to": "orders"} | more)))
    for _ in range(5):
        lab.turn(after_ms=100)
    return job


def tried(lab: Lab, **more: object) -> ResubmissionTrial:
    resubmitter = lab.session.resubmitter(RED_LETTERS, Resubmission(**({"to": "orders"} | more)))
    trial = ResubmissionTrial()
    while not resubmitter.is_over:
        page = resubmitter.page(3)
        trial.add(page, resubmitter.decision(page)())
    trial.is_complete = True
    return trial


def told(job: Job) -> tuple[JobState, int, int]:
    return job.state, job.done, job.failed


def values(section: dict[str, AmqpValue] | None) -> dict[str, object]:
    return {name: value.value for name, value in (section or {}).items()}


def numbers(messages: Sequence[bytes]) -> list[object]:
    return [values(Message.decode(each).application_properties).get("n") for each in messages]


def test_dead_letters_are_published_again_where_they_came_from(lab: Lab) -> None:
    dead_letters(lab, numbered(3))
    assert lab.counts() == (0, 0, 0, 3)
    job = resubmit(lab, properties={"fixed": {"t": "int", "v": 7}, "N": 1}, removed=("BY",))
    assert told(job) == (JobState.DONE, 3, 0)
    assert lab.counts() == (3, 0, 0, 0)
    found = [Message.decode(each) for each in stored(lab.root, "orders")[3:]]
    assert [values(each.application_properties) for each in found] == [{"color": "red", "fixed": 7, "N": 1}] * 3
    assert values(found[0].message_annotations) == {
        "x-headgate-resubmissions": 1,
        "x-headgate-last-dead-letter-reason": "NoStock",
        "x-headgate-last-dead-letter-description": "NoStock at all",
    }
    assert [values(each.properties)["message-id"] for each in found] == ["id-0", "id-1", "id-2"]


def test_resubmissions_are_counted(lab: Lab) -> None:
    dead_letters(lab, [RED])
    resubmit(lab)
    dead_letters(lab, [])
    link = lab.link(want=1)
    link.receiver.settler.dead_letter(link.tokens, why=DeadLetterReason("Again"))
    lab.turn()
    resubmit(lab)
    annotations = values(Message.decode(stored(lab.root, "orders")[-1]).message_annotations)
    assert annotations["x-headgate-resubmissions"] == 2
    assert annotations["x-headgate-last-dead-letter-reason"] == "Again"
    assert "x-headgate-last-dead-letter-description" not in annotations


def test_bytes_that_are_no_message_are_published_as_the_body_of_one(lab: Lab) -> None:
    lab.session.declare_stream("plain", {})
    strict = [
        CreateSubscription("strict", dead_letter_on_errors=True),
        AddRule("strict", RuleDefinition("F", sql="a = 1")),
    ]
    lab.change(*strict)
    lab.publish(NO_MESSAGE)
    name = SubscriptionName("orders", "strict", is_dead_letter=True)
    job = lab.session.resubmit(name, Resubmission("plain"))
    lab.turn(after_ms=100)
    lab.turn(after_ms=100)
    assert told(job) == (JobState.DONE, 1, 0)
    (found,) = stored(lab.root, "plain")
    body = Message.decode(found).body
    assert body is not None
    assert body.parts == (NO_MESSAGE,)


def test_chosen_ones_go_to_another_stream_and_the_others_stay(lab: Lab) -> None:
    lab.session.declare_stream("plain", {})
    dead_letters(lab, numbered(5))
    lab.link(f"{RED_LETTERS}", want=1)
    chosen = [copy_number(offset) for offset in (0, 1, 3, 99)] + [copy_number(2) + 1]
    job = resubmit(lab, to="plain", copies=chosen)
    # The first is held by a receiver, and two are none.
    assert told(job) == (JobState.DONE, 2, 3)
    assert numbers(stored(lab.root, "plain")) == [1, 3]
    assert lab.counts() == (0, 0, 0, 3)


def test_what_no_rule_takes_stays_unless_it_is_allowed(lab: Lab) -> None:
    dead_letters(lab, numbered(3))
    only_one = RuleDefinition("One", sql="n = 1")
    lab.change(RemoveRule("red", "Red"), AddRule("red", only_one))
    job = resubmit(lab)
    assert told(job) == (JobState.DONE, 1, 2)
    assert job.error is not None
    assert "no rule of the target takes them" in job.error
    assert numbers(stored(lab.root, "orders")[3:]) == [1]
    assert lab.counts() == (1, 0, 0, 2)
    assert told(resubmit(lab, includes_untaken=True)) == (JobState.DONE, 2, 0)
    assert numbers(stored(lab.root, "orders")[4:]) == [0, 2]


@pytest.mark.parametrize("seed", range(6))
def test_a_dry_run_says_what_really_happens(lab: Lab, seed: int) -> None:
    random = Random(seed)
    count = random.randint(4, 12)
    dead_letters(lab, numbered(count))
    lab.session.create_topic("paid")
    for name in ("a", "b"):
        lab.change(CreateSubscription(name, dead_letter_on_errors=True), topic="paid")
        for number in range(random.randint(0, 3)):
            sql = random.choice([f"n % 3 = {number}", f"n > {count // 2}", "color > 4", f"n = {number}"])
            action = random.choice([None, None, "SET n = n + 1", "SET n = 1 / 0"])
            lab.change(AddRule(name, RuleDefinition(f"R{number}", sql=sql, action=action)), topic="paid")
    if random.random() < 0.5:
        lab.change(CreateSubscription("rest", fall_through=True), topic="paid")
    properties = random.choice([{}, {"n": count}])
    trial = tried(lab, to="paid", properties=properties)
    job = resubmit(lab, to="paid", properties=properties)
    assert (trial.copies, trial.num_taken_by_none) == (count, job.failed)
    assert job.done == count - job.failed
    left = lab.broker.topics.get("orders").browser.peek("red", 0, 100, dead_letters=True)
    assert [each.copy for each in left] == trial.taken_by_none
    topic = lab.broker.topics.get("paid")
    for info in topic.subscriptions.infos():
        by_rule = {rule: taken for (name, rule), taken in trial.taken.items() if name == info.name}
        if info.name == "rest":
            assert by_rule.get(None, 0) == info.counts.active
            continue
        counts = {
            each.rule.name: topic.rule_failures.counts(info.name)[each.number]
            for each in topic.history.rules(info.name)
        }
        matched = Counter({rule: each.matched - each.failed_actions for rule, each in counts.items()})
        assert Counter(by_rule) == +matched
        if job.done == count:
            failing = Counter({rule: each.errors + each.failed_actions for rule, each in counts.items()})
            assert Counter({rule: n for (name, rule), n in trial.failing.items() if name == info.name}) == +failing


def test_a_stream_without_rules_keeps_every_message(lab: Lab) -> None:
    lab.session.declare_stream("plain", {})
    dead_letters(lab, numbered(2))
    trial = tried(lab, to="plain")
    assert trial.as_dict() == {
        "copies": 2,
        "taken": [],
        "failing": [],
        "taken_by_none": [],
        "num_taken_by_none": 0,
        "is_complete": True,
    }


def test_a_message_whose_id_is_known_is_published_again_all_the_same(lab: Lab) -> None:
    settings = TopicSettings(requires_duplicate_detection=True, duplicate_detection_window_ms=600_000)
    lab.broker.topics.create("paid", settings=settings)
    lab.change(CreateSubscription("all"), AddRule("all", RuleDefinition("All", sql="1=1")), topic="paid")
    publisher = lab.session.publisher("paid")
    publish(lab.broker, publisher, numbered(1))
    dead_letters(lab, numbered(2))
    resubmit(lab, to="paid")
    assert numbers(stored(lab.root, "paid")) == [0, 0, 1]
    publish(lab.broker, publisher, numbered(3))
    assert numbers(stored(lab.root, "paid")) == [0, 0, 1, 2]


def test_a_kill_at_any_write_loses_nothing_and_publishes_nothing_twice() -> None:
    with quick_folder() as name:
        root = Path(name) / "root"
        lab = Lab(root)
        lab.topic(*RED_ONLY)
        lab.session.declare_stream("plain", {})
        dead_letters(lab, numbered(3))
        lab.broker.close()
        budget, is_done, was_cut = 0, False, set()
        while not is_done:
            copy = shutil.copytree(root, Path(name) / "copy")
            with killed_process():
                killed = Lab(copy, open_file=FailingFiles(Killed(), budget=budget))
                resubmit(killed, to="plain")
                is_done = True
            found = Lab(shutil.copytree(copy, Path(name) / "found"))
            for _ in range(3):
                found.turn(after_ms=1_000)
            published = numbers(stored(found.root, "plain"))
            left = found.broker.topics.get("orders").browser.peek("red", 0, 10, dead_letters=True)
            was_cut.add(len(published))
            assert sorted([*published, *numbers([each.message for each in left])]) == [0, 1, 2]
            # Started again, it publishes the rest.
            resubmit(found, to="plain")
            assert sorted(numbers(stored(found.root, "plain"))) == [0, 1, 2]
            found.broker.close()
            for each in ("copy", "found"):
                shutil.rmtree(Path(name) / each)
            budget += 61
        assert was_cut == {0, 3}


def test_what_its_target_refuses_meanwhile_comes_back_as_it_was(lab: Lab) -> None:
    lab.session.create_topic("paid")
    lab.change(CreateSubscription("all"), AddRule("all", RuleDefinition("All", sql="1=1")), topic="paid")
    dead_letters(lab, numbered(2))
    paid = lab.broker.catalogue.get("paid")
    paid.is_writing = True
    job = lab.session.resubmit(RED_LETTERS, Resubmission("paid", properties={"fixed": True}))
    lab.turn(after_ms=100)
    lab.turn(after_ms=100)
    assert told(job) == (JobState.RUNNING, 2, 0)
    paid.is_writing = False
    lab.change(SEND_DISABLED, topic="paid")
    lab.turn(after_ms=10_000)
    lab.turn(after_ms=10_000)
    assert stored(lab.root, "paid") == []
    left = lab.broker.topics.get("orders").browser.peek("red", 0, 10, dead_letters=True)
    properties = [values(Message.decode(each.message).application_properties) for each in left]
    assert [(each["n"], each["DeadLetterReason"], "fixed" in each) for each in properties] == [
        (0, "NoStock", False),
        (1, "NoStock", False),
    ]


def test_a_target_that_takes_nothing_is_refused_first(lab: Lab) -> None:
    dead_letters(lab, [RED])
    with pytest.raises(ResourceNotFoundError, match="no such topic, queue or stream"):
        lab.session.resubmit(RED_LETTERS, Resubmission("missing"))
    with pytest.raises(PreconditionFailedError, match="a single subscription takes no messages"):
        lab.session.resubmit(RED_LETTERS, Resubmission("orders/Subscriptions/red"))
    for wrong in ({"n": [1]}, {"": 1}, {"n": {"t": "none", "v": 1}}):
        with pytest.raises(ConfigError):
            lab.session.resubmit(RED_LETTERS, Resubmission("orders", properties=wrong))
    lab.change(SEND_DISABLED)
    with pytest.raises(EntityDisabledError):
        lab.session.resubmit(RED_LETTERS, Resubmission("orders"))
    assert lab.counts() == (0, 0, 0, 1)
    assert not list(lab.broker.jobs)


def test_a_subscription_without_dead_letters_has_nothing_to_resubmit(lab: Lab) -> None:
    assert told(resubmit(lab)) == (JobState.DONE, 0, 0)
    assert told(resubmit(lab, copies=[0])) == (JobState.DONE, 0, 1)
    answers: list[object] = []
    lab.session.delete_dead_letters(RED_LETTERS, [0], answers.append)
    assert answers == [[]]


def test_both_permissions_are_needed_as_long_as_it_runs(lab: Lab) -> None:
    dead_letters(lab, numbered(4))
    users = lab.broker.users
    users.add("ann", "secret", permissions=Permissions(configure="", write="^orders$", read=".*"))
    users.add("bob", "secret", permissions=Permissions(configure="", write=".*", read="^x$"))
    ann, bob = (lab.broker.open_session(user, protocol="test", connection=user) for user in ("ann", "bob"))
    lab.session.declare_stream("plain", {})
    for session, to in ((ann, "plain"), (bob, "orders")):
        with pytest.raises(AccessRefusedError):
            session.resubmit(RED_LETTERS, Resubmission(to))
    job = ann.resubmit(RED_LETTERS, Resubmission("orders"), rate_per_s=2)
    lab.turn(after_ms=500)
    users.permit("ann", Permissions(configure="", write="", read=".*"))
    for _ in range(10):
        lab.turn(after_ms=500)
    assert (job.state, job.done) == (JobState.FAILED, 2)
    assert lab.counts() == (2, 0, 0, 2)


def test_a_rate_limits_how_many_are_published_and_a_job_can_be_cancelled(lab: Lab) -> None:
    dead_letters(lab, numbered(30))
    job = lab.session.resubmit(RED_LETTERS, Resubmission("orders"), rate_per_s=5)
    done = []
    for _ in range(4):
        for _ in range(10):
            lab.turn(after_ms=100)
        done.append(job.done)
    assert all(abs(later - first - 5) <= 1 for first, later in itertools.pairwise(done))
    # A pause is not made up for.
    lab.turn(after_ms=60_000)
    lab.turn()
    assert job.done - done[-1] <= 5
    assert lab.broker.jobs.cancel(job.id) is job
    before = job.done
    for _ in range(10):
        lab.turn(after_ms=1_000)
    assert (job.state, job.done) == (JobState.CANCELLED, before)
    assert lab.counts() == (before, 0, 0, 30 - before)
    assert len(stored(lab.root, "orders")) == 30 + before


def test_a_large_resubmission_takes_many_steps_in_order(lab: Lab) -> None:
    count = 2 * ITEMS_A_STEP + 5
    dead_letters(lab, numbered(count))
    assert told(resubmit(lab)) == (JobState.DONE, count, 0)
    # Between the settled ones there are no holes, each of which would cost a look and a place in the ledger.
    letters = lab.broker.topics.get("orders").dead_letters("red")
    assert letters is not None
    assert len(letters.view.available(limit=100)) == 1
    assert numbers(stored(lab.root, "orders")[count:]) == list(range(count))


def test_few_jobs_run_at_a_time(lab: Lab) -> None:
    dead_letters(lab, numbered(2))
    first = lab.session.resubmit(RED_LETTERS, Resubmission("orders"), rate_per_s=0.001)
    for _ in range(MOST_RUNNING - 1):
        lab.session.resubmit(RED_LETTERS, Resubmission("orders"), rate_per_s=0.001)
    with pytest.raises(LimitExceededError, match="run already"):
        lab.session.resubmit(RED_LETTERS, Resubmission("orders"))
    lab.broker.jobs.cancel(first.id)
    lab.session.resubmit(RED_LETTERS, Resubmission("orders"))
    assert len({job.id for job in lab.broker.jobs}) == MOST_RUNNING + 1
    with pytest.raises(ResourceNotFoundError, match="no such job"):
        lab.broker.jobs.get("never")


def test_a_job_ends_with_its_topic(lab: Lab) -> None:
    dead_letters(lab, numbered(3))
    lab.session.declare_stream("plain", {})
    job = lab.session.resubmit(RED_LETTERS, Resubmission("plain"), rate_per_s=1)
    lab.turn(after_ms=100)
    lab.session.remove_topic("orders")
    for _ in range(3):
        lab.turn(after_ms=1_000)
    assert job.state is JobState.FAILED


def test_a_job_ends_when_its_topic_is_removed_while_a_worker_decides(lab: Lab) -> None:
    dead_letters(lab, numbered(3))
    lab.session.declare_stream("plain", {})
    worker = lab.worker = Background()
    lab.restart()
    job = lab.session.resubmit(RED_LETTERS, Resubmission("plain"))
    ended: list[JobState] = []
    job.when_ended = lambda: ended.append(job.state)
    lab.turn(after_ms=100)
    assert len(worker.jobs) == 1
    lab.session.remove_topic("orders")
    worker.run_one()
    assert job.state is JobState.FAILED
    lab.turn(after_ms=100)
    lab.turn(after_ms=100)
    assert (ended, job.ended_ms is not None) == ([JobState.FAILED], True)


def test_chosen_dead_letters_are_deleted_and_held_ones_stay(lab: Lab) -> None:
    dead_letters(lab, numbered(4))
    link = lab.link(f"{RED_LETTERS}", want=1)
    answers: list[list[int] | HeadgateError] = []
    chosen = [copy_number(offset) for offset in (2, 0, 2, 9)]
    lab.session.delete_dead_letters(RED_LETTERS, chosen, answers.append)
    lab.turn()
    assert answers == [[copy_number(2)]]
    assert lab.counts() == (0, 0, 0, 3)
    link.receiver.settler.complete(link.tokens)
    lab.turn()
    lab.restart()
    left = lab.broker.topics.get("orders").browser.peek("red", 0, 10, dead_letters=True)
    assert numbers([each.message for each in left]) == [1, 3]


def test_resubmission_is_possible_while_the_subscription_forwards(lab: Lab) -> None:
    dead_letters(lab, numbered(1))
    lab.session.declare_stream("plain", {})
    lab.session.create_topic("paid")
    lab.change(ChangeSubscription("red", forward_to="paid"))
    assert told(resubmit(lab, to="plain")) == (JobState.DONE, 1, 0)
