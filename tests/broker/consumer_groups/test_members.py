"""Members of consumer groups: who is there, what a group asks for, who has queues for itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from group_lab import GroupLab
from headgate.broker.consumer_groups import Members
from headgate.broker.consumer_groups.members import LOCK_MS, SILENCE_MS
from headgate.derived.match_index import Announcement
from headgate.language.rocketmq import TAGS


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[GroupLab]:
    lab = GroupLab(tmp_path)
    yield lab
    lab.broker.close()


@pytest.fixture
def members(lab: GroupLab) -> Members:
    return lab.broker.members


class Crew:
    """Members of one group, and what they were told."""

    def __init__(self, lab: GroupLab) -> None:
        self.lab = lab
        self.told: list[str] = []

    def say(
        self, member: str, text: str | None = "*", version: int = 1, *, topic: str = "q0", kind: str = TAGS
    ) -> None:
        subscriptions = None if text is None else {topic: Announcement(text, kind, version)}
        self.lab.broker.members.heartbeat(
            "g", member, subscriptions, now_ms=self.lab.clock.now, changed=lambda: self.told.append(member)
        )


def test_members_are_told_when_others_come_or_go(lab: GroupLab, members: Members) -> None:
    crew = Crew(lab)
    crew.say("a")
    crew.say("a")
    crew.say("b")
    assert (members.of("g"), crew.told) == (["a", "b"], ["a", "a", "b"])
    members.leave("g", "a")
    members.leave("g", "a")
    assert (members.of("g"), crew.told[3:]) == (["b"], ["b"])
    members.leave("g", "b")
    assert (members.of("g"), members.groups()) == ([], [])


def test_who_is_silent_is_no_member_any_more(lab: GroupLab, members: Members) -> None:
    crew = Crew(lab)
    crew.say("a")
    lab.turn(SILENCE_MS)
    crew.say("b")
    lab.turn(1)
    lab.turn(1_000)
    assert members.of("g") == ["b"]


def test_the_newest_of_what_members_ask_for_counts(lab: GroupLab, members: Members) -> None:
    crew = Crew(lab)
    crew.say("a", "x", 2)
    crew.say("b", "y", 1)
    found = members.subscription("g", "q0")
    assert found is not None and found.announcement.text == "x"
    crew.say("b", "y", 3)
    found = members.subscription("g", "q0")
    assert found is not None and found.announcement.text == "y"
    crew.say("a", None)
    assert members.topics("g") == ["q0"]
    crew.say("a", "z", 4, topic="q1")
    crew.say("b", "z", 4, topic="q1")
    assert members.topics("g") == ["q1"], "nobody asks for the other one any more"
    assert members.subscription("other", "q0") is None


def test_whoever_watches_hears_of_changes_and_of_versions(lab: GroupLab, members: Members) -> None:
    crew = Crew(lab)
    heard: list[int] = []
    crew.say("a", "x", 1)
    end = members.watch("g", "q0", lambda: heard.append(1))
    crew.say("a", "x", 1)
    assert not heard
    crew.say("a", "x", 2)
    crew.say("a", "y", 3)
    members.leave("g", "a")
    assert len(heard) == 2
    end()
    end()
    crew.say("a", "z", 4)
    assert len(heard) == 2


def test_what_is_no_filter_matches_nothing_and_says_why(lab: GroupLab, members: Members) -> None:
    crew = Crew(lab)
    crew.say("a", "a = ", kind="rocketmq")
    found = members.subscription("g", "q0")
    assert found is not None and found.filter is None and "expected" in str(found.refusal)
    crew.say("a", "||", 2)
    found = members.subscription("g", "q0")
    assert found is not None and found.refusal is not None
    crew.say("a", "a = 1", 3, kind="rocketmq")
    found = members.subscription("g", "q0")
    assert found is not None and found.refusal is None and found.filter is not None


def test_a_queue_is_one_members_until_it_is_given_back_or_not_asked_for(lab: GroupLab, members: Members) -> None:
    crew = Crew(lab)
    now = lab.clock.now
    assert members.lock("g", "a", ["q0"], now_ms=now) == [], "no member"
    crew.say("a")
    crew.say("b")
    assert members.lock("g", "a", ["q0", "q1"], now_ms=now) == ["q0", "q1"]
    assert members.lock("g", "b", ["q0", "q2"], now_ms=now) == ["q2"]
    assert members.has_locks("g", now_ms=now)
    members.unlock("g", "b", ["q0"])
    assert members.lock("g", "b", ["q0"], now_ms=now + LOCK_MS - 1) == []
    assert members.lock("g", "b", ["q0"], now_ms=now + LOCK_MS) == ["q0"]
    members.leave("g", "b")
    assert members.lock("g", "a", ["q0"], now_ms=now) == ["q0"]
    assert not members.has_locks("g", now_ms=now + LOCK_MS)
