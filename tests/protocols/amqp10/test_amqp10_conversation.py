"""Two cores that talk in any order, over a network that is as slow as it likes: nothing is lost, nothing gets stuck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.message import EncodedMessages, Message
from headgate.protocols.amqp10 import Connection, ConnectionSettings, Link, Session
from headgate.protocols.amqp10.events import Attached, Closed, Detached, Ended, Event, StateChanged
from headgate.protocols.amqp10.frames import encode_frame
from headgate.protocols.amqp10.messages import delivered_message
from headgate.protocols.amqp10.performatives import RECEIVER, SENDER, Attach, Begin
from headgate.protocols.amqp10.states import ConnectionState, LinkState
from headgate.protocols.amqp10.terminus import Accepted, Error
from protocols.amqp10.pairs import Side, accept_all, follow

REFUSED = "refused"
SIZES = (0, 40, 700, 1500)
"""Bytes of messages: in one frame, in two and in four."""

PICK = st.integers(0, 5)
"""Which of the things that are there."""

T = TypeVar("T")


def _of(things: Sequence[T], pick: int) -> T:
    return things[pick % len(things)]


def _react(side: Side, event: Event) -> None:
    """A side that takes every link whose name it likes, and grants no credit by itself."""
    if isinstance(event, Attached):
        if event.link.state is not LinkState.ATTACH_RECEIVED:
            return
        if event.link.name.startswith(REFUSED):
            event.link.refuse(Error("amqp:not-found"))
        else:
            event.link.start(event.attach)
    elif side.connection.is_server:
        accept_all(side, event)
    else:
        follow(side, event)


@dataclass
class Way:
    """One direction: what was said and not heard yet; messages by link, deliveries that were settled by session."""

    sender: Side
    receiver: Side
    octets: bytearray = field(default_factory=bytearray)
    messages: dict[str, list[bytes]] = field(default_factory=dict)
    outcomes: dict[Session, list[int]] = field(default_factory=dict)

    def carry(self, size: int) -> bool:
        """Let some bytes arrive; False if there were none."""
        self.octets += self.sender.output()
        some = bytes(self.octets[:size])
        del self.octets[:size]
        self.receiver.take(some)
        return bool(some)


class FlowControlMachine(RuleBasedStateMachine):
    """Both sides do whatever their states allow; frames cross on their way."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    @property
    def may_end(self) -> bool:
        """Nothing gets far where something ends at any time."""
        return self.steps % 4 == 0

    @initialize(windows=st.tuples(st.integers(1, 4), st.integers(1, 4)), first=st.sampled_from((0, 2**32 - 3)))
    def connect(self, windows: tuple[int, int], first: int) -> None:
        limits = [ConnectionSettings(max_frame_size=512, incoming_window=window, channel_max=2) for window in windows]
        self.client = Side(Connection(is_server=False, settings=limits[0]), _react)
        self.server = Side(Connection(is_server=True, settings=limits[1]), _react)
        self.up, self.down = Way(self.client, self.server), Way(self.server, self.client)
        self.first = first
        self.links = 0
        self.let_everything_arrive()
        self.begin()
        self.let_everything_arrive()
        for role in (SENDER, RECEIVER):
            self.attach(pick=0, role=role, kind="link", settled=False)
        self.let_everything_arrive()
        for pick in range(2):
            self.grant(pick=pick, credit=9, drain=False)
        self.let_everything_arrive()

    # what both can do

    def _sessions(self, side: Side) -> list[Session]:
        return [session for session in side.connection.sessions if session.is_mapped]

    def _links(self, role: bool | None = None) -> list[tuple[Way, Link]]:
        """The attached ends of links, each with the way that its words take."""
        return [
            (way, link)
            for way in (self.up, self.down)
            for session in self._sessions(way.sender)
            for link in session.links
            if link.is_attached and (role is None or link.role is role)
        ]

    @precondition(lambda self: len(self.client.connection.sessions) < 3)
    @rule()
    def begin(self) -> None:
        self.client.connection.begin()

    @precondition(lambda self: self._sessions(self.client) or self._sessions(self.server))
    @rule(pick=PICK, role=st.booleans(), kind=st.sampled_from(("link", "link", REFUSED)), settled=st.booleans())
    def attach(self, pick: int, role: bool, kind: str, settled: bool) -> None:
        session = _of([*self._sessions(self.client), *self._sessions(self.server)], pick)
        self.links += 1
        link = session.new_link(f"{kind} {self.links}", role)
        if role is SENDER:
            link.delivery_count = self.first
        link.start(Attach(link.name, 0, role, snd_settle_mode=int(settled)))

    @precondition(lambda self: self._links(RECEIVER))
    @rule(pick=PICK, credit=st.integers(0, 15), drain=st.booleans())
    def grant(self, pick: int, credit: int, drain: bool) -> None:
        _, link = _of(self._links(RECEIVER), pick)
        # Less than before would make a fault of what is on its way.
        link.grant(max(credit, link.credit), drain=drain)

    def _ready(self) -> list[tuple[Way, Link]]:
        return [(way, link) for way, link in self._links(SENDER) if link.credit]

    @precondition(lambda self: self._ready())
    @rule(pick=PICK, size=st.sampled_from(SIZES), count=st.integers(1, 9), settled=st.booleans())
    def send(self, pick: int, size: int, count: int, settled: bool) -> None:
        way, link = _of(self._ready(), pick)
        carried = way.messages.setdefault(link.name, [])
        for _ in range(min(count, link.credit)):
            message = len(carried).to_bytes(2, "big") + bytes(size)
            link.send(message, settled=settled)
            carried.append(message)

    @precondition(lambda self: self._ready())
    @rule(pick=PICK, sizes=st.lists(st.sampled_from(SIZES), min_size=1, max_size=9))
    def send_from_a_stream(self, pick: int, sizes: list[int]) -> None:
        way, link = _of(self._ready(), pick)
        carried = way.messages.setdefault(link.name, [])
        first = len(carried)
        stored = [Message(bytes(size)).encode() for size in sizes[: link.credit]]
        link.send_messages(EncodedMessages.of(stored), np.arange(first, first + len(stored)))
        carried += [delivered_message(message, first + row) for row, message in enumerate(stored)]

    @precondition(lambda self: any(link.drain for _, link in self._links(SENDER)))
    @rule(pick=PICK)
    def give_credit_back(self, pick: int) -> None:
        _, link = _of([found for found in self._links(SENDER) if found[1].drain], pick)
        link.use_up_credit()

    @precondition(lambda self: self._sessions(self.client) or self._sessions(self.server))
    @rule(pick=PICK, count=st.integers(0, 5), role=st.booleans())
    def tell_an_outcome(self, pick: int, count: int, role: bool) -> None:
        found = [(way, session) for way in (self.up, self.down) for session in self._sessions(way.sender)]
        way, session = _of(found, pick)
        told = way.outcomes.setdefault(session, [])
        first = len(told)
        session.settle(first, first + count, Accepted(), role=role)
        told += range(first, first + count + 1)

    @precondition(lambda self: self.may_end and self._links())
    @rule(pick=PICK, closed=st.booleans())
    def detach(self, pick: int, closed: bool) -> None:
        _, link = _of(self._links(), pick)
        link.detach(closed=closed)

    @precondition(lambda self: self.may_end and (self._sessions(self.client) or self._sessions(self.server)))
    @rule(pick=PICK)
    def end(self, pick: int) -> None:
        _of([*self._sessions(self.client), *self._sessions(self.server)], pick).end()

    # the network

    @rule(size=st.integers(1, 300) | st.just(1 << 20), upwards=st.booleans())
    def some_bytes_arrive(self, size: int, upwards: bool) -> None:
        (self.up if upwards else self.down).carry(size)

    @rule()
    def let_everything_arrive(self) -> None:
        while self.up.carry(1 << 20) | self.down.carry(1 << 20):
            pass
        ends = [(way, link) for way, link in self._links() if way is self.up]
        for _, link in ends:
            (far,) = [
                other
                for session in self._sessions(self.server)
                for other in session.links
                if (other.name, other.role) == (link.name, not link.role)
            ]
            assert (link.credit, link.delivery_count) == (far.credit, far.delivery_count)
            assert not link.has_partial and not far.has_partial
            way = self.up if link.role is SENDER else self.down
            assert self._arrived(way, link.name) == way.messages.get(link.name, [])
        for side in (self.client, self.server):
            assert all(session.may_send for session in self._sessions(side)), "a session is stuck"
        for session in self._sessions(self.client):
            (far_session,) = [one for one in self._sessions(self.server) if one.channel == session.remote_channel]
            settled = [
                number
                for event in self.client.of(StateChanged)
                if event.session is session
                for number in range(event.first, event.last + 1)
            ]
            assert settled == self.down.outcomes.get(far_session, [])
        assert len(self.client.connection.sessions) == len(self.server.connection.sessions)

    def _arrived(self, way: Way, name: str) -> list[bytes]:
        return [message[2] for message in way.receiver.messages if message[0] == name]

    # what always holds

    @invariant()
    def nobody_made_a_fault(self) -> None:
        self.steps += 1
        for side in (self.client, self.server):
            assert not [event for event in side.events if isinstance(event, Detached | Ended) and event.failed]

    @invariant()
    def nothing_is_negative_and_parts_are_counted(self) -> None:
        for side in (self.client, self.server):
            connection = side.connection
            links = [link for session in connection.sessions for link in session.links]
            assert all(link.credit >= 0 for link in links)
            assert all(session.remote_incoming_window >= 0 for session in connection.sessions)
            assert all(session.incoming_window >= 0 for session in connection.sessions)
            assert connection.link_count == len(links)
            assert connection.partial_links == sum(link.has_partial for link in links)
            assert connection.partial_bytes == sum(link.partial_bytes for link in links)

    @invariant()
    def what_arrived_is_what_was_sent_in_order(self) -> None:
        for way in (self.up, self.down):
            for name, sent in way.messages.items():
                arrived = self._arrived(way, name)
                assert arrived == sent[: len(arrived)]

    def teardown(self) -> None:
        """Whatever is under way, a close ends it, and behind it nothing is heard."""
        if not hasattr(self, "links"):
            return
        self.client.connection.close()
        while self.up.carry(1 << 20) | self.down.carry(1 << 20):
            pass
        for side in (self.client, self.server):
            assert side.connection.state is ConnectionState.CLOSED
            assert len(side.of(Closed)) == 1
            events = len(side.events)
            side.take(encode_frame(0, Begin(None, 0, 9, 9).encode()))
            assert (len(side.events), side.output()) == (events, b"")


TestFlowControlMachine = FlowControlMachine.TestCase
