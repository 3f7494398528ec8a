"""Deliveries with tags of their own, what is said of them; strays; attaches that are answered later."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import LocalProtocolError
from headgate.message import Message
from headgate.protocols.amqp10.composites import decode_composite
from headgate.protocols.amqp10.events import (
    Attached,
    CreditChanged,
    Deliveries,
    Detached,
    Ended,
    Event,
    Outcomes,
    StateChanged,
)
from headgate.protocols.amqp10.frames import encode_frame, read_frame
from headgate.protocols.amqp10.link import Link
from headgate.protocols.amqp10.performatives import (
    RECEIVER,
    SENDER,
    SETTLED,
    Attach,
    Detach,
    Disposition,
    End,
    Flow,
    Transfer,
)
from headgate.protocols.amqp10.terminus import Accepted, Modified, Rejected
from protocols.amqp10.pairs import Pair, Side, accept_all, send_tagged

MESSAGE = Message(b"m").encode()
MODULUS = 2**32


def _tagged(pair: Pair, far: Link, count: int) -> list[int]:
    """The ids of deliveries that the server sends with tags of its own, heard by the client."""
    ids = [send_tagged(far, MESSAGE, b"own %d" % number) for number in range(count)]
    pair.exchange()
    return ids


def _consumer(pair: Pair, name: str = "in", **fields: object) -> tuple[Link, Link]:
    """A link that the client consumes on, with credit, and the server's end of it."""
    sessions = pair.client.connection.sessions
    link = pair.receiver(sessions[0] if sessions else pair.session(), name, **fields)
    link.grant(100)
    pair.exchange()
    return link, pair.far(link)


def _outcomes(side: Side) -> list[tuple[str, list[int], bool, object]]:
    return [(event.link.name, event.ids, event.settled, event.state) for event in side.of(Outcomes)]


def _ranges(side: Side) -> list[tuple[int, int]]:
    return [(event.first, event.last) for event in side.of(StateChanged)]


def _transfer(frame: bytes) -> Transfer:
    found = read_frame(memoryview(frame), 0, 1 << 20)
    assert found is not None
    return decode_composite(frame, found.body, found.stop)[0]


@pytest.mark.parametrize("tag", [b"", b"0123456789abcdef", b"t" * 32])
def test_a_delivery_has_the_tag_that_it_is_given(tag: bytes) -> None:
    pair = Pair()
    _, far = _consumer(pair)
    send_tagged(far, MESSAGE, tag)
    transfer = _transfer(pair.server.output())
    assert (transfer.delivery_tag, transfer.message_format, transfer.settled) == (tag, 0, False)


def test_a_tag_above_the_standards_limit_is_our_own_error() -> None:
    pair = Pair()
    _, far = _consumer(pair)
    with pytest.raises(LocalProtocolError, match="at most 32"):
        send_tagged(far, MESSAGE, b"t" * 33)
    assert far.credit == 100 and pair.server.output() == b""


def test_what_is_said_of_tagged_deliveries_is_told_apart_for_each_link() -> None:
    pair = Pair()
    (link, one), (_, two), (_, plain) = (_consumer(pair, name) for name in ("one", "two", "plain"))
    sent = [one, plain, two, two, one, plain]
    assert [
        far.send(MESSAGE) if far is plain else send_tagged(far, MESSAGE, b"t" * number)
        for number, far in enumerate(sent)
    ] == list(range(6))
    link.session.send(Disposition(RECEIVER, 0, 6, False, Accepted()))
    pair.exchange()
    assert _outcomes(pair.server) == [("one", [0, 4], False, Accepted()), ("two", [2, 3], False, Accepted())]
    # What nobody keeps is told as before, and so is what was never sent.
    assert _ranges(pair.server) == [(1, 1), (5, 6)]


def test_a_deferred_answer_settles_what_is_still_kept() -> None:
    pair = Pair()
    link, far = _consumer(pair)
    ids = _tagged(pair, far, 5)
    link.session.send(Disposition(RECEIVER, ids[0], ids[4], False, Accepted()))
    link.session.settle(ids[2], ids[2], Modified())
    pair.exchange()
    far.settle(ids, Accepted())
    far.settle(ids, Rejected())
    pair.exchange()
    told = [(event.first, event.last, event.settled, event.state) for event in pair.client.of(StateChanged)]
    assert told == [(0, 1, True, Accepted()), (3, 4, True, Accepted())]
    assert not far.session.kept


@pytest.mark.parametrize("last", [3, 2**31 - 1])
def test_what_a_receiver_settles_is_told_once(last: int) -> None:
    pair = Pair()
    link, far = _consumer(pair)
    _tagged(pair, far, 4)
    for _ in range(2):
        link.session.settle(0, last, Accepted())
        pair.exchange()
    assert _outcomes(pair.server) == [("in", [0, 1, 2, 3], True, Accepted())]


def test_pre_settled_deliveries_are_not_waited_for() -> None:
    pair = Pair()
    _, far = _consumer(pair, snd_settle_mode=SETTLED)
    _tagged(pair, far, 2)
    assert not far.session.kept and [message[3] for message in pair.client.messages] == [True] * 2


def test_ids_that_wrap_around_are_told_and_settled_in_order() -> None:
    pair = Pair()
    link, far = _consumer(pair)
    far.session.next_delivery_id = MODULUS - 2
    ids = _tagged(pair, far, 4)
    assert ids == [MODULUS - 2, MODULUS - 1, 0, 1]
    link.session.send(Disposition(RECEIVER, MODULUS - 5, 0, False, Accepted()))
    pair.exchange()
    assert _outcomes(pair.server) == [("in", ids[:3], False, Accepted())]
    assert _ranges(pair.server) == [(MODULUS - 5, MODULUS - 3)]
    far.settle(ids, None)
    pair.exchange()
    assert _ranges(pair.client) == [(MODULUS - 2, 1)]


@given(st.integers(0, MODULUS - 1), st.lists(st.integers(0, 2), max_size=12), st.integers(0, 15), st.integers(0, 15))
def test_every_delivery_in_a_range_is_told_once(base: int, kinds: list[int], first: int, count: int) -> None:
    pair = Pair()
    fars = [_consumer(pair, name)[1] for name in ("plain", "one", "two")]
    session = fars[0].session
    session.next_delivery_id = base
    owners = {send_tagged(fars[kind], MESSAGE, b"t") if kind else fars[kind].send(MESSAGE): kind for kind in kinds}
    pair.exchange()
    asked = [(base + first + step) % MODULUS for step in range(count + 1)]
    pair.client.connection.sessions[0].send(Disposition(RECEIVER, asked[0], asked[-1], False, Accepted()))
    pair.exchange()
    told = {number: name for name, ids, _, _ in _outcomes(pair.server) for number in ids}
    for low, high in _ranges(pair.server):
        told |= {(low + step) % MODULUS: "plain" for step in range((high - low) % MODULUS + 1)}
    assert told == {number: ("plain", "one", "two")[owners.get(number, 0)] for number in asked}


def test_dispositions_between_transfers_are_told_while_deliveries_are_kept() -> None:
    pair = Pair()
    link, far = _consumer(pair)
    out = pair.sender(link.session)
    _tagged(pair, far, 2)
    out.send(MESSAGE)
    link.session.settle(0, 0, Accepted())
    out.send(MESSAGE)
    link.session.settle(1, 1, Accepted())
    link.session.settle(2, 2, Accepted())
    pair.exchange()
    assert [event[1] for event in _outcomes(pair.server)] == [[0], [1]]
    assert len(pair.server.messages) == 2
    # Nothing is kept any more: what settles nothing is passed over again.
    assert _ranges(pair.server) == []


@pytest.mark.parametrize("ends", ["detach", "end"])
def test_a_link_that_ends_forgets_its_deliveries(ends: str) -> None:
    pair = Pair()
    (link, far), (_, other) = (_consumer(pair, name) for name in ("in", "other"))
    ids = _tagged(pair, far, 2)
    kept = _tagged(pair, other, 1)
    if ends == "end":
        link.session.end()
    else:
        link.detach()
    pair.exchange()
    far.settle(ids, Accepted())
    other.settle(kept, Accepted())
    pair.exchange()
    assert _ranges(pair.client) == ([] if ends == "end" else [(2, 2)])


def test_what_is_said_before_a_detach_is_heard_has_no_answer() -> None:
    pair = Pair()
    link, far = _consumer(pair)
    ids = _tagged(pair, far, 2)
    far.detach()
    link.session.send(Disposition(RECEIVER, ids[0], ids[1], False, Accepted()))
    pair.server.take(pair.client.output())
    far.settle(ids, Accepted())
    assert pair.server.of(Outcomes) == pair.server.of(StateChanged) == []
    pair.exchange()
    assert _ranges(pair.client) == [] and not far.session.kept


def _formats(react: list[tuple[int, bytes]]):
    def note(side: Side, event: Event) -> None:
        if isinstance(event, Deliveries):
            react.extend((event.message_format, delivery.message) for delivery in event)
        accept_all(side, event)

    return note


def test_messages_come_with_their_format() -> None:
    heard: list[tuple[int, bytes]] = []
    pair = Pair(react=_formats(heard))
    link = pair.sender(pair.session())
    batch = 0x80013700
    for number, said in enumerate([None, 0, batch, 0]):
        link.session.send(Transfer(link.handle, number, b"t", said), b"%d" % number)
    link.session.send(Transfer(link.handle, 4, b"t", batch, more=True), b"in ")
    link.session.send(Transfer(link.handle), b"parts")
    link.session.send(Transfer(link.handle, 5, b"t", more=True), b"5")
    link.session.send(Transfer(link.handle), b"")
    pair.exchange()
    assert heard == [(0, b"0"), (0, b"1"), (batch, b"2"), (0, b"3"), (batch, b"in parts"), (0, b"5")]


STRAYS = (
    Transfer(9, 0, b"t"),
    Transfer(9, 1, b"t", more=True),
    Flow(0, 9, 0, 9, handle=9, link_credit=5, echo=True),
    Detach(9, True),
)


@pytest.mark.parametrize("stray", STRAYS)
def test_strays_for_a_handle_are_ignored_where_that_is_asked_for(stray: object) -> None:
    pair = Pair()
    pair.server.connection.ignores_strays = True
    session = pair.session()
    link = pair.sender(session)
    session.send(stray)
    link.send(MESSAGE)
    pair.exchange()
    assert pair.client.of(Ended) == pair.client.of(Detached) == []
    assert [message[2] for message in pair.server.messages] == [MESSAGE]


@pytest.mark.parametrize(
    "stray", [*STRAYS, Attach("late", 0, SENDER, initial_delivery_count=0), Disposition(RECEIVER, 0), End()]
)
def test_strays_for_a_channel_are_ignored_where_that_is_asked_for(stray: object) -> None:
    pair = Pair()
    pair.server.connection.ignores_strays = True
    pair.session()
    pair.server.take(encode_frame(7, stray.encode()))
    assert pair.server.output() == b""
    assert pair.server.connection.is_opened


def test_transfers_that_are_ignored_do_not_use_up_the_window() -> None:
    pair = Pair()
    pair.server.connection.ignores_strays = True
    session = pair.session()
    window = pair.server.connection.settings.incoming_window
    for number in range(3 * window):
        session.send(Transfer(9, number, b"t"), MESSAGE)
        if number % (window // 2) == 0:
            pair.exchange()
    pair.exchange()
    assert pair.client.of(Ended) == []


# Attaches that are answered later


def _unanswered(pair: Pair, role: bool) -> tuple[Link, Link]:
    """A link of the client whose attach the server has not answered, and the server's end."""
    session = pair.session()
    link = session.new_link("slow", role)
    link.start(Attach("slow", 0, role))
    pair.exchange()
    return link, pair.far(link)


def _wait(side: Side, event: Event) -> None:
    if not isinstance(event, Attached):
        accept_all(side, event)


def test_credit_counts_before_the_attach_is_answered() -> None:
    pair = Pair(react=_wait)
    link, far = _unanswered(pair, RECEIVER)
    link.credit = 3
    link.session.send(Flow(0, 10, 0, 10, handle=link.handle, link_credit=3, echo=True))
    pair.exchange()
    assert (far.credit, pair.server.of(CreditChanged)) == (3, [])
    far.start(far.attach)
    send_tagged(far, MESSAGE, b"t")
    pair.exchange()
    assert link.is_attached and len(pair.client.messages) == 1


@pytest.mark.parametrize("role", [SENDER, RECEIVER])
def test_a_peer_may_give_up_before_its_attach_is_answered(role: bool) -> None:
    pair = Pair(react=_wait)
    link, far = _unanswered(pair, role)
    pair.server.take(encode_frame(link.session.channel, Detach(link.handle, True).encode()))
    assert [event.link for event in pair.server.of(Detached)] == [far] and not far.session.links
    answer, detach = (decode_composite(body, 0, len(body))[0] for body in _bodies(pair.server.output()))
    assert isinstance(answer, Attach) and isinstance(detach, Detach)
    assert (answer.name, answer.source, answer.target) == ("slow", None, None)


def test_a_transfer_before_the_attach_is_answered_is_a_fault() -> None:
    pair = Pair(react=_wait)
    link, _ = _unanswered(pair, SENDER)
    link.session.send(Transfer(link.handle, 0, b"t"))
    pair.exchange()
    assert [event.error.condition for event in pair.client.of(Ended)] == ["amqp:illegal-state"]


def _bodies(data: bytes) -> list[bytes]:
    found, position, view = [], 0, memoryview(data)
    while position < len(view):
        frame = read_frame(view, position, 1 << 20)
        assert frame is not None
        found.append(bytes(view[frame.body : frame.stop]))
        position = frame.stop
    return found
