"""When a client is read, and when it or this side is silent."""

from __future__ import annotations

import pytest

from headgate.broker.backlog import Backlog
from headgate.server.flow_control import MAX_UNTAKEN_BYTES, FlowControl, Waiting
from headgate.server.settings import Limits
from server.links import FakeLink, SetClock


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def flow(link: FakeLink, clock: SetClock) -> FlowControl:
    return FlowControl(link, clock)


def test_a_client_is_read_again_when_the_last_reason_to_wait_has_ended(flow, link):
    flow.wait(Waiting.LOGIN)
    flow.wait(Waiting.UNWRITTEN)
    flow.wait(Waiting.UNWRITTEN)
    assert not link.reads
    flow.go_on(Waiting.UNWRITTEN)
    assert not link.reads
    flow.go_on(Waiting.LOGIN)
    assert link.reads


def test_a_reason_that_was_none_starts_no_reading(flow, link):
    link.pause_reading()
    flow.go_on(Waiting.SLOW)
    assert not link.reads


@pytest.mark.parametrize(("entries", "size_bytes"), [(101, 0), (0, 1001)])
def test_a_client_that_published_too_much_is_read_again_when_a_quarter_of_it_is_left(flow, link, entries, size_bytes):
    backlog = Backlog()
    flow.limit_backlog(backlog, Limits(unconfirmed_messages=100, unconfirmed_bytes=1000))
    backlog.add(100, 1000)
    assert link.reads
    backlog.remove(100, 1000)
    backlog.add(entries, size_bytes)
    assert not link.reads, "before anything else is read"
    backlog.remove(entries - 26 if entries else 0, size_bytes - 251 if size_bytes else 0)
    assert not link.reads
    backlog.remove(1 if entries else 0, 1 if size_bytes else 0)
    assert link.reads and not backlog.is_full


def test_a_client_that_is_only_listened_to_is_read_whatever_the_reasons_were(flow, link):
    flow.wait(Waiting.UNWRITTEN)
    flow.only_listen()
    assert link.reads
    link.pause_reading()
    flow.go_on(Waiting.UNWRITTEN)
    assert not link.reads


def test_a_client_that_does_not_take_its_answers_is_not_read_until_it_does(flow, link):
    flow.say(bytes(2 * MAX_UNTAKEN_BYTES))
    flow.limit_answers()
    assert link.reads, "the link took it"
    link.is_writable = False
    flow.say(bytes(MAX_UNTAKEN_BYTES))
    flow.limit_answers()
    assert link.reads
    flow.say(b"x")
    flow.limit_answers()
    assert not link.reads
    flow.taken()
    assert link.reads
    flow.say(b"x")
    flow.limit_answers()
    assert link.reads, "what was taken does not count any more"


def test_a_client_is_silent_only_while_it_is_read(flow, clock):
    clock.seconds += 10
    assert not flow.is_silent(10)
    clock.seconds += 1
    assert flow.is_silent(10)
    flow.heard()
    assert not flow.is_silent(10)
    flow.wait(Waiting.UNWRITTEN)
    clock.seconds += 100
    assert not flow.is_silent(10)
    flow.go_on(Waiting.UNWRITTEN)
    assert not flow.is_silent(10), "what it sent meanwhile is still to be read"
    clock.seconds += 11
    assert flow.is_silent(10)


def test_a_client_that_takes_no_answer_is_silent_though_it_is_not_read(flow, clock, link):
    link.is_writable = False
    flow.say(bytes(MAX_UNTAKEN_BYTES + 1))
    flow.limit_answers()
    clock.seconds += 10
    flow.limit_answers()
    assert not flow.is_silent(10)
    clock.seconds += 1
    assert flow.is_silent(10)
    flow.taken()
    assert not flow.is_silent(10)


def test_a_sign_of_life_is_due_when_nothing_was_said_for_a_while(flow, clock, link):
    clock.seconds += 4
    assert not flow.is_due(5)
    clock.seconds += 1
    assert flow.is_due(5)
    flow.say(b"")
    assert flow.is_due(5) and not link.written
    flow.say(b"hello")
    assert not flow.is_due(5) and link.written == b"hello"
