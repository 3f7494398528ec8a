"""A peer that says whatever it likes to a server, right or wrong, against a model of what has to come of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.protocols.amqp10 import Condition, Connection, Link, Session
from headgate.protocols.amqp10.composites import Composite, decode_composite
from headgate.protocols.amqp10.events import (
    Aborted,
    Attached,
    Closed,
    CreditChanged,
    Detached,
    Ended,
    Event,
    StateChanged,
    WindowOpened,
)
from headgate.protocols.amqp10.frames import AMQP_HEADER, HEARTBEAT, SASL_HEADER, encode_frame, read_frame
from headgate.protocols.amqp10.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    Transfer,
)
from headgate.protocols.amqp10.states import ConnectionState
from headgate.protocols.amqp10.terminus import Accepted, Error
from protocols.amqp10.model import LIMITS, MODULUS, Delivery, Faulty, LinkModel, SessionModel
from protocols.amqp10.pairs import Side, accept_all

CREDIT = 2
"""Granted to each link that the peer publishes on."""

CHANNELS = range(LIMITS.channel_max + 1)
HANDLES = st.sampled_from((*(0, 2) * 5, 1, 3))
"""The peer begins with 0 and 2 to publish on, 1 to consume on."""
PICK = st.integers(0, 5)
"""Which of the things that are there."""

FAULTS: dict[bytes, Condition] = {
    encode_frame(0, b"\x00\x53\x99\x45"): Condition.DECODE_ERROR,
    encode_frame(0, SaslInit("PLAIN").encode()): Condition.DECODE_ERROR,
    encode_frame(0, SaslInit("PLAIN").encode(), kind=1): Condition.FRAMING_ERROR,
    encode_frame(0, Open("again").encode()): Condition.ILLEGAL_STATE,
    encode_frame(0, Close().encode() + b"!"): Condition.FRAMING_ERROR,
    encode_frame(0, Begin(7, 0, 1, 1).encode()): Condition.INVALID_FIELD,
    encode_frame(LIMITS.channel_max + 1, Begin(None, 0, 1, 1).encode()): Condition.FRAMING_ERROR,
    encode_frame(9, Flow(0, 1, 0, 1).encode()): Condition.NOT_ALLOWED,
    encode_frame(9, Transfer(0, 0, b"t").encode()): Condition.NOT_ALLOWED,
    encode_frame(9, End().encode()): Condition.NOT_ALLOWED,
    b"\x00\x00\x02\x01\x02\x00\x00\x00": Condition.FRAMING_ERROR,
}
"""What is a fault of the connection in any state of its sessions."""

LATE = (
    Attach("late", 0, SENDER),
    Flow(0, 9, 0, 9, handle=1, link_credit=9, echo=True),
    Transfer(0, 0, b"t"),
    Disposition(RECEIVER, 5, 1),
    Detach(7),
)
"""What peers may say before they have heard that a session has ended."""

T = TypeVar("T")


def _of(things: Sequence[T], pick: int) -> T:
    return things[pick % len(things)]


class PeerMachine(RuleBasedStateMachine):
    """The peer's words are checked one by one: events, answers, and where the server's core stands afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    @property
    def may_end(self) -> bool:
        """Nothing gets far where something ends at any time."""
        return self.is_open and self.steps % 4 == 0

    @initialize()
    def begin_again(self) -> None:
        """A new connection with a session."""
        self.is_refusing = False
        self.side = Side(Connection(is_server=True, settings=LIMITS), self._react)
        hello = encode_frame(0, SaslInit("ANONYMOUS").encode(), kind=1) + AMQP_HEADER
        self.side.take(SASL_HEADER + hello + encode_frame(0, Open("peer", max_frame_size=512).encode()))
        assert self.side.connection.is_opened
        self.side.output()
        self.sessions: dict[int, SessionModel] = {}
        self.is_open = True
        self.begins(window=4)

    def _react(self, side: Side, event: Event) -> None:
        match event:
            case Attached(link=link, attach=attach):
                if self.is_refusing:
                    link.refuse(Error("amqp:not-found"))
                    return
                link.start(attach)
                if link.role is RECEIVER:
                    link.grant(CREDIT)
            case CreditChanged(link=link):
                if link.role is SENDER and link.drain:
                    link.use_up_credit()
            case _:
                accept_all(side, event)

    # saying and hearing

    def _say(self, octets: bytes) -> list[Event]:
        """The events of what the peer says, whole messages (`side.messages`) left out; a heartbeat brings none."""
        before = len(self.side.events)
        self.side.messages.clear()
        self.side.take(octets + HEARTBEAT)
        return self.side.events[before:]

    def _frame(self, channel: int, performative: Composite, payload: bytes = b"") -> bytes:
        return encode_frame(channel, performative.encode() + payload)

    def _hear(self) -> list[Composite]:
        """What the server says; its transfers and the credit that it tells go into the model first."""
        octets = memoryview(self.side.output())
        heard: list[Composite] = []
        position = 0
        while position < len(octets):
            frame = read_frame(octets, position, 512)
            assert frame is not None
            position = frame.stop
            body = bytes(octets[frame.body : frame.stop])
            performative, behind = decode_composite(body, 0, len(body))
            if isinstance(performative, Transfer):
                self._hear_transfer(self.sessions[frame.channel], performative, body[behind:])
            elif isinstance(performative, Flow):
                self._hear_flow(self.sessions[frame.channel], performative)
            heard.append(performative)
        return heard

    def _hear_transfer(self, session: SessionModel, transfer: Transfer, payload: bytes) -> None:
        link = session.link(transfer.handle)
        session.peer_window -= 1
        session.transfers_heard += 1
        assert session.peer_window >= 0, "more transfers than the peer takes"
        if not link.heard:
            link.heard_count = (link.heard_count + 1) % MODULUS
            assert transfer.delivery_id == link.expected[0][0]
        link.heard += payload
        if not transfer.more:
            assert link.heard == link.expected.pop(0)[1]
            link.heard = b""

    def _hear_flow(self, session: SessionModel, flow: Flow) -> None:
        assert flow.next_incoming_id == session.transfers_said
        assert (flow.next_outgoing_id, flow.incoming_window) == (session.transfers_heard, session.window)
        if flow.handle is not None:
            link = session.link(flow.handle)
            if not link.publishes:
                given_back = (flow.delivery_count - link.heard_count) % MODULUS
                if flow.drain and flow.link_credit and not link.credit:
                    # An answer that waited for the window goes out before what the same words granted is given back.
                    assert (flow.delivery_count + flow.link_credit) % MODULUS == link.count
                    link.heard_count = flow.delivery_count
                    return
                # More may have been granted before an answer to a drain found room in the window.
                assert given_back == 0 or flow.drain
                assert flow.delivery_count == link.count, "credit is told ahead of messages"
                link.heard_count = flow.delivery_count
            assert (flow.delivery_count, flow.link_credit) == (link.count, link.credit)

    def _mapped(self) -> list[tuple[int, SessionModel]]:
        return [(channel, session) for channel, session in self.sessions.items() if not session.is_ended]

    def _core(self, channel: int) -> Session:
        (found,) = [session for session in self.side.connection.sessions if session.remote_channel == channel]
        return found

    def _core_link(self, channel: int, handle: int) -> Link:
        (found,) = [link for link in self._core(channel).links if link.attach.handle == handle]
        return found

    def _attached(self, publishes: bool | None = None) -> list[tuple[int, int, LinkModel]]:
        return [
            (channel, handle, link)
            for channel, session in self._mapped()
            for handle, link in session.links.items()
            if not link.is_ended and publishes in (None, link.publishes)
        ]

    # what comes of a fault

    def _expect_connection_fault(self, octets: bytes, condition: Condition) -> None:
        with pytest.raises(RemoteProtocolError) as caught:
            self._say(octets)
        assert caught.value.code == condition
        self.side.connection.close(Error(str(condition)))
        *_, close = self._hear()
        assert isinstance(close, Close) and close.error is not None and close.error.condition == condition
        self.is_open = False

    def _end_faulty(self, fault: Faulty, channel: int, handle: int | None, events: list[Event]) -> None:
        """A session or a link ends with its error; the rest goes on."""
        session = self.sessions[channel]
        *_, said = [one for one in self._hear() if not isinstance(one, Flow | Transfer)]
        (ended,) = [event for event in events if isinstance(event, Ended | Detached)]
        assert ended.failed and said.error == ended.error and said.error.condition == fault.condition
        if fault.scope == "session":
            assert isinstance(said, End) and isinstance(ended, Ended)
            session.is_ended = True
        else:
            assert isinstance(said, Detach) and said.closed and isinstance(ended, Detached)
            link = session.links[handle]
            link.is_ended, link.parts = True, None

    # sessions

    @precondition(lambda self: self.is_open and len(self.sessions) < len(CHANNELS))
    @rule(window=st.sampled_from((4, 6, 1, 0)))
    def begins(self, window: int) -> None:
        """A session with two links to publish on and one to consume on."""
        channel = next(number for number in CHANNELS if number not in self.sessions)
        self._say(self._frame(channel, Begin(None, 0, window, 9)))
        self.sessions[channel] = SessionModel(peer_window=window)
        (answer,) = self._hear()
        assert (answer.remote_channel, answer.next_outgoing_id) == (channel, 0)
        assert (answer.incoming_window, answer.handle_max) == (LIMITS.incoming_window, LIMITS.handle_max)
        place = len(self.sessions) - 1
        for handle, role in enumerate((SENDER, RECEIVER, SENDER)):
            self.attaches(pick=place, handle=handle, name="abc"[handle], role=role, count=0, refused=False)
        self.flows(pick=place, handle=1, lag=0, window=window, seen=0, credit=5, drain=False, echo=False)

    @precondition(lambda self: self.may_end and self._mapped())
    @rule(pick=PICK)
    def ends(self, pick: int) -> None:
        channel, _ = _of(self._mapped(), pick)
        (event,) = self._say(self._frame(channel, End()))
        assert isinstance(event, Ended) and not event.failed
        assert self._hear() == [End()]
        del self.sessions[channel]

    @precondition(lambda self: self.is_open and len(self._mapped()) < len(self.sessions))
    @rule(pick=PICK, late=st.lists(st.sampled_from(LATE), max_size=3))
    def agrees_to_end(self, pick: int, late: list[Composite]) -> None:
        """What was on its way has no effect any more."""
        channel, _ = _of([found for found in self.sessions.items() if found[1].is_ended], pick)
        assert self._say(b"".join(self._frame(channel, performative) for performative in late)) == []
        (event,) = self._say(self._frame(channel, End()))
        assert isinstance(event, Ended) and not event.failed
        assert self.side.messages == [] and self._hear() == []
        del self.sessions[channel]

    @precondition(lambda self: self.may_end and len(self._mapped()) > 1)
    @rule(pick=PICK)
    def server_ends(self, pick: int) -> None:
        channel, session = _of(self._mapped(), pick)
        self._core(channel).end(Error("amqp:internal-error"))
        assert self._hear() == [End(Error("amqp:internal-error"))]
        session.is_ended = True

    # links

    @precondition(lambda self: self.is_open and self._mapped())
    @rule(
        pick=PICK,
        handle=st.sampled_from((*(3,) * 8, 0, 1)),
        name=st.sampled_from("dddddda"),
        role=st.booleans(),
        count=st.sampled_from((0, MODULUS - 2, None)),
        refused=st.booleans(),
    )
    def attaches(self, pick: int, handle: int, name: str, role: bool, count: int | None, refused: bool) -> None:
        channel, session = _of(self._mapped(), pick)
        said = self._frame(channel, Attach(name, handle, role, initial_delivery_count=count))
        publishes = role is SENDER
        if handle in session.links:
            self._end_faulty(Faulty("session", Condition.HANDLE_IN_USE), channel, None, self._say(said))
        elif publishes and count is None:
            self._end_faulty(Faulty("session", Condition.INVALID_FIELD), channel, None, self._say(said))
        else:
            link = session.links[handle] = LinkModel(name, publishes, count if publishes and count else 0)
            self.is_refusing = refused
            self._say(said)
            link.credit = CREDIT if publishes and not refused else 0
            link.is_ended = refused
            answer, *more = self._hear()
            assert (answer.name, answer.role, answer.handle) == (name, not role, handle)
            assert [type(one) for one in more] == ([Detach] if refused else [Flow] * publishes)

    @precondition(lambda self: self.may_end and self._mapped())
    @rule(pick=PICK, handle=HANDLES, closed=st.booleans())
    def detaches(self, pick: int, handle: int, closed: bool) -> None:
        channel, session = _of(self._mapped(), pick)
        events = self._say(self._frame(channel, Detach(handle, closed)))
        if handle not in session.links:
            self._end_faulty(Faulty("session", Condition.UNATTACHED_HANDLE), channel, None, events)
        else:
            link = session.links.pop(handle)
            assert [(type(event), event.link.name, event.failed) for event in events] == [(Detached, link.name, False)]
            assert self._hear() == ([] if link.is_ended else [Detach(handle, closed)])

    @precondition(lambda self: self.may_end and self._attached())
    @rule(pick=PICK)
    def server_detaches(self, pick: int) -> None:
        channel, handle, link = _of(self._attached(), pick)
        self._core_link(channel, handle).detach(Error("amqp:resource-deleted"))
        assert self._hear() == [Detach(handle, True, Error("amqp:resource-deleted"))]
        link.is_ended, link.parts = True, None

    # from the peer to the server

    @precondition(lambda self: self.is_open and self._mapped())
    @rule(
        pick=PICK,
        handle=HANDLES,
        sizes=st.lists(st.sampled_from((0, 430, 431)), min_size=1, max_size=6),
        settled=st.booleans(),
    )
    def publishes(self, pick: int, handle: int, sizes: list[int], settled: bool) -> None:
        """Whole messages on one link, heard at once where nothing has come in part."""
        channel, session = _of(self._mapped(), pick)
        first = session.transfers_said
        transfers = [
            (Transfer(handle, first + row, b"t", 0, settled), bytes([row]) * size) for row, size in enumerate(sizes)
        ]
        if self._partial_bytes is None:
            self._say_transfers(channel, transfers, at_once=True)
            return
        for transfer in transfers:
            self._say_transfers(channel, [transfer], at_once=False)
            if not self.is_open or session.is_ended:
                return

    @precondition(lambda self: self.is_open and self._mapped())
    @rule(
        pick=PICK,
        handle=HANDLES,
        sizes=st.lists(st.sampled_from((30, 400)), min_size=1, max_size=3),
        ending=st.sampled_from(("last", "more to come", "aborted")),
        numbered=st.sampled_from((*(True,) * 7, False)),
        settled=st.lists(st.none() | st.booleans(), min_size=3, max_size=3),
    )
    def publishes_in_parts(
        self, pick: int, handle: int, sizes: list[int], ending: str, numbered: bool, settled: list[bool | None]
    ) -> None:
        """A message, or some more of one that has begun, part by part."""
        channel, session = _of(self._mapped(), pick)
        delivery_id = session.transfers_said if numbered else None
        for row, size in enumerate(sizes):
            is_last = row == len(sizes) - 1
            transfer = Transfer(handle, delivery_id, b"t", 0, settled[row], not is_last or ending == "more to come")
            transfer.aborted = is_last and ending == "aborted"
            self._say_transfers(channel, [(transfer, b"p" * size)], at_once=False)
            if not self.is_open or session.is_ended:
                return

    @property
    def _partial_bytes(self) -> int | None:
        """Bytes of messages that have arrived in part; None if there is no such message."""
        parts = [
            len(link.parts)
            for _, session in self._mapped()
            for link in session.links.values()
            if link.parts is not None
        ]
        return sum(parts) if parts else None

    def _say_transfers(self, channel: int, transfers: list[tuple[Transfer, bytes]], *, at_once: bool) -> None:
        session = self.sessions[channel]
        octets = b"".join(self._frame(channel, transfer, payload) for transfer, payload in transfers)
        expected: list[Delivery] = []
        faults: list[Faulty] = []
        self._model_transfers(session, transfers, expected, faults, at_once=at_once)
        if any(fault.scope == "connection" for fault in faults):
            self._expect_connection_fault(octets, faults[0].condition)
            return
        events = [event for event in self._say(octets) if not isinstance(event, Aborted)]
        assert self.side.messages == expected
        assert len(events) == len(faults)
        for fault in faults:
            self._end_faulty(fault, channel, transfers[0][0].handle, events)
        self._hear()

    def _model_transfers(
        self,
        session: SessionModel,
        transfers: list[tuple[Transfer, bytes]],
        expected: list[Delivery],
        faults: list[Faulty],
        *,
        at_once: bool,
    ) -> None:
        """What comes of transfers on one link; those that are taken at once are counted together."""
        try:
            if at_once:
                session.count_in(len(transfers))
            for transfer, payload in transfers:
                if not at_once:
                    session.count_in(1)
                try:
                    delivery = session.transfer(transfer, payload, self._partial_bytes or 0)
                except Faulty as fault:
                    if fault.scope != "link":
                        raise
                    faults.append(fault)
                    link = session.links[transfer.handle]
                    link.is_ended, link.parts = True, None
                else:
                    expected += [] if delivery is None else [delivery]
                if not at_once:
                    session.refill()
            session.refill()
        except Faulty as fault:
            faults.append(fault)

    @precondition(lambda self: self.is_open and self._attached(publishes=True))
    @rule(pick=PICK, credit=st.sampled_from((0, 1, 5)), drain=st.booleans())
    def server_grants(self, pick: int, credit: int, drain: bool) -> None:
        channel, handle, link = _of(self._attached(publishes=True), pick)
        link.credit = credit
        self._core_link(channel, handle).grant(credit, drain=drain)
        (flow,) = self._hear()
        assert flow.drain is drain

    @precondition(lambda self: self.is_open and self._mapped())
    @rule(pick=PICK, first=st.integers(0, 9), state=st.none() | st.just(Accepted()))
    def server_settles(self, pick: int, first: int, state: Accepted | None) -> None:
        channel, _ = _of(self._mapped(), pick)
        self._core(channel).settle(first, first + 2, state)
        assert self._hear() == [Disposition(RECEIVER, first, first + 2, True, state)]

    # from the server to the peer

    @precondition(lambda self: self.is_open and self._attached(publishes=False))
    @rule(pick=PICK, sizes=st.lists(st.sampled_from((0, 30, 700, 1100)), min_size=1, max_size=6))
    def server_sends(self, pick: int, sizes: list[int]) -> None:
        channel, handle, link = _of(self._attached(publishes=False), pick)
        session, core = self.sessions[channel], self._core_link(channel, handle)
        for size in sizes:
            if not link.credit:
                with pytest.raises(LocalProtocolError, match="credit"):
                    core.send(b"m")
                break
            message = bytes([len(link.expected)]) + bytes(size)
            link.expected.append((session.next_id, message))
            link.move(1)
            assert core.send(message) == session.next_id
            session.next_id += 1
        self._hear()

    @precondition(lambda self: self.is_open and self._mapped())
    @rule(
        pick=PICK,
        handle=st.sampled_from((*(1,) * 8, 0, 3, None)),
        lag=st.integers(0, 3),
        window=st.integers(1, 6) | st.just(0),
        seen=st.sampled_from((0, 1, 2, None)),
        credit=st.integers(0, 9) | st.none(),
        drain=st.booleans(),
        echo=st.booleans(),
    )
    def flows(
        self,
        pick: int,
        handle: int | None,
        lag: int,
        window: int,
        seen: int | None,
        credit: int | None,
        drain: bool,
        echo: bool,
    ) -> None:
        """Windows as they were `lag` transfers ago; the credit as it was `seen` messages ago, or from the beginning."""
        channel, session = _of(self._mapped(), pick)
        lag = min(lag, session.transfers_heard)
        flow = Flow(session.transfers_heard - lag, window, session.transfers_said, 99, handle, None, credit)
        flow.drain, flow.echo = drain, echo
        link = None if handle is None else session.links.get(handle)
        if link is not None and seen is not None:
            flow.delivery_count = (link.heard_count - seen) % MODULUS
            if link.publishes:
                flow.delivery_count = (link.count + seen) % MODULUS
        session.peer_window = max(0, window - lag)
        if handle is not None and link is None:
            events = self._say(self._frame(channel, flow))
            self._end_faulty(Faulty("session", Condition.UNATTACHED_HANDLE), channel, None, events)
            return
        is_answered = echo
        if link is not None and not link.is_ended:
            is_answered = self._model_credit(link, flow, seen) or echo
        elif link is not None:
            is_answered = False
        was_blocked = not self._core(channel).may_send
        events = [type(event) for event in self._say(self._frame(channel, flow))]
        assert events.count(WindowOpened) == (was_blocked and self._core(channel).may_send)
        link_changes = link is not None and not link.is_ended and (not link.publishes or seen is not None)
        assert events.count(CreditChanged) == link_changes
        flows = [one for one in self._hear() if isinstance(one, Flow)]
        if is_answered and (link is None or not link.expected):
            assert flows[-1].handle == handle
            if link is not None and drain and not link.publishes:
                assert any(one.drain for one in flows if one.handle == handle)

    def _model_credit(self, link: LinkModel, flow: Flow, seen: int | None) -> bool:
        """Take over what a flow says of a link; whether the server answers it by itself."""
        if link.publishes:
            given_back = 0 if seen is None else seen
            link.count = (link.count + given_back) % MODULUS
            link.credit = max(0, link.credit - given_back)
            return False
        known = link.first_count if seen is None else flow.delivery_count
        link.credit = max(0, (flow.link_credit or 0) - (link.count - known) % MODULUS)
        if flow.drain:
            link.move(link.credit)
        return flow.drain

    @precondition(lambda self: self.is_open and self._mapped())
    @rule(
        pick=PICK,
        role=st.booleans(),
        first=st.integers(0, 5),
        last=st.sampled_from((None, 5, 6, 7, 8, 0)),
        settled=st.booleans(),
    )
    def settles(self, pick: int, role: bool, first: int, last: int | None, settled: bool) -> None:
        channel, _ = _of(self._mapped(), pick)
        events = self._say(self._frame(channel, Disposition(role, first, last, settled, Accepted())))
        if last is not None and last < first:
            self._end_faulty(Faulty("session", Condition.INVALID_FIELD), channel, None, events)
        elif events or not (role is RECEIVER and settled):
            # A server may pass over what a receiver has settled: nothing depends on it.
            (event,) = events
            assert isinstance(event, StateChanged)
            assert (event.received, event.settled, event.state) == (role is RECEIVER, settled, Accepted())
            assert (event.first, event.last) == (first, first if last is None else last)

    # the connection

    @precondition(lambda self: self.may_end)
    @rule(pick=st.sampled_from(range(60)), late=st.binary(max_size=20))
    def connection_ends(self, pick: int, late: bytes) -> None:
        """Because of a fault of the peer, or by its close, and what it says then is not heard, or by the server's."""
        faults = list(FAULTS.items())
        for channel, session in self.sessions.items():
            faults.append((self._frame(channel, Begin(None, 0, 1, 1)), Condition.NOT_ALLOWED))
            if not session.is_ended:
                attach = Attach("beyond", LIMITS.handle_max + 1, SENDER, initial_delivery_count=0)
                faults.append((self._frame(channel, attach), Condition.FRAMING_ERROR))
        if pick < 2 * len(faults):
            self._expect_connection_fault(*_of(faults, pick))
        elif pick % 2:
            self.side.connection.close()
            assert self._hear() == [Close()]
            self.is_open = False
        else:
            assert self._say(encode_frame(0, Close().encode()) + late) == [Closed(None)]
            assert self._hear() == [Close()]
            self.begin_again()

    @precondition(lambda self: not self.is_open)
    @rule(said=st.sampled_from((Begin(None, 0, 1, 1), Flow(0, 1, 0, 1), Transfer(0, 0, b"t"), End(), Open("late"))))
    def agrees_to_close(self, said: Composite) -> None:
        """What was on its way has no effect any more."""
        assert self._say(self._frame(0, said)) == [] and self._hear() == []
        assert self._say(encode_frame(0, Close().encode())) == [Closed(None)]
        assert self._say(self._frame(0, said)) == [] and self._hear() == []
        assert self.side.connection.state is ConnectionState.CLOSED
        self.begin_again()

    # what always holds

    @invariant()
    def the_core_is_where_the_model_is(self) -> None:
        self.steps += 1
        connection = self.side.connection
        assert connection.is_opened is self.is_open
        assert connection.partial_bytes <= LIMITS.max_partial_bytes
        if not self.is_open:
            return
        assert connection.partial_bytes == (self._partial_bytes or 0)
        assert {session.remote_channel for session in connection.sessions} == set(self.sessions)
        for channel, session in self._mapped():
            core = self._core(channel)
            waiting = any(link.expected for link in session.links.values() if not link.is_ended)
            assert core.is_mapped and core.may_send is (session.peer_window > 0)
            assert waiting <= (session.peer_window == 0), "messages wait for a window that is open"
            assert (core.incoming_window, core.remote_incoming_window) == (session.window, session.peer_window)
            assert session.window > 0, "a peer that keeps to the window is stuck"
            assert {link.attach.handle for link in core.links} == set(session.links)
        for channel, handle, link in self._attached():
            end = self._core_link(channel, handle)
            assert (end.is_attached, end.name, end.role) == (True, link.name, link.publishes)
            assert (end.credit, end.delivery_count, end.has_partial) == (
                link.credit,
                link.count,
                link.parts is not None,
            )
            assert link.credit >= 0


TestPeerMachine = PeerMachine.TestCase
