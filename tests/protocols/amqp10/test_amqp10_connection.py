"""Connections, sessions and links: what may be said when, windows and credit, faults and their conditions."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import kernels
from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.message import EncodedMessages, Message, amqp_value
from headgate.protocols.amqp10 import Connection, ConnectionSettings, SaslCode
from headgate.protocols.amqp10.events import (
    Aborted,
    Attached,
    Began,
    Closed,
    CreditChanged,
    Detached,
    Ended,
    Event,
    HeadersExchanged,
    InitReceived,
    Opened,
    OutcomeReceived,
    StateChanged,
    WindowOpened,
)
from headgate.protocols.amqp10.frames import AMQP_HEADER, HEARTBEAT, SASL_HEADER, encode_frame
from headgate.protocols.amqp10.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    Flow,
    Open,
    SaslInit,
    Transfer,
)
from headgate.protocols.amqp10.states import ConnectionState, LinkState
from headgate.protocols.amqp10.terminus import Accepted, Error, Source, Target
from protocols.amqp10.pairs import Pair, Side, accept_all

NARROW = ConnectionSettings(max_frame_size=512, incoming_window=50)
SMALL = ConnectionSettings(max_frame_size=512, incoming_window=4, max_message_size=2000, handle_max=3, channel_max=2)


def _conditions(side: Side, kind: type) -> list[str | None]:
    return [event.error and event.error.condition for event in side.of(kind)]


# The handshake


def test_a_client_and_a_server_agree() -> None:
    pair = Pair()
    assert [type(event) for event in pair.server.events] == [HeadersExchanged, InitReceived, HeadersExchanged, Opened]
    init = pair.server.of(InitReceived)[0]
    assert (init.mechanism, init.response) == ("PLAIN", b"\0guest\0guest")


def test_everything_may_come_at_once_before_the_first_answer() -> None:
    server = Side(Connection(is_server=True), accept_all)
    server.take(
        SASL_HEADER
        + encode_frame(0, SaslInit("ANONYMOUS").encode(), kind=1)
        + AMQP_HEADER
        + encode_frame(0, Open("c").encode())
        + encode_frame(0, Begin(None, 0, 9, 9).encode())
        + encode_frame(0, Attach("l", 0, SENDER, target=Target(), initial_delivery_count=0).encode())
    )
    assert [type(event) for event in server.events][-3:] == [Opened, Began, Attached]


def test_nothing_is_read_while_the_outcome_is_outstanding() -> None:
    server = Side(Connection(is_server=True), lambda side, event: None)
    server.take(SASL_HEADER)
    server.connection.offer_mechanisms(["PLAIN"])
    server.take(encode_frame(0, SaslInit("PLAIN", b"x").encode(), kind=1) + AMQP_HEADER)
    assert server.connection.state is ConnectionState.OUTCOME
    server.connection.send_outcome(SaslCode.OK)
    server.take(b"")
    assert server.connection.state is ConnectionState.START


def test_a_login_that_is_refused_ends_the_connection() -> None:
    def refuse(side: Side, event: Event) -> None:
        if isinstance(event, InitReceived):
            side.connection.send_outcome(SaslCode.AUTH)
        else:
            accept_all(side, event)

    client = Side(Connection(is_server=False))
    server = Side(Connection(is_server=True), refuse)
    server.take(client.output())
    client.take(server.output())
    client.connection.send_init("PLAIN", b"")
    server.take(client.output())
    client.take(server.output())
    assert client.of(OutcomeReceived) == [OutcomeReceived(1)]
    assert server.connection.state is client.connection.state is ConnectionState.CLOSED


@pytest.mark.parametrize("header", [AMQP_HEADER, b"AMQP\x00\x00\x09\x01", b"GET / HT"])
def test_another_header_is_answered_with_the_expected_one(header: bytes) -> None:
    connection = Connection(is_server=True)
    with pytest.raises(RemoteProtocolError, match="protocol header"):
        list(connection.receive(header))
    assert connection.take_output() == [SASL_HEADER]
    assert list(connection.receive(b"more")) == []


@pytest.mark.parametrize(
    ("frame", "condition"),
    [
        (b"\x00\x00\x00\x07\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x01\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x03\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\xff\xff\xff\xff\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x02\x09\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x02\x01\x00\x00", "amqp:connection:framing-error"),
        (encode_frame(0, b"\x00\x53\x99\x45"), "amqp:decode-error"),
        (encode_frame(0, b"garbage!"), "amqp:decode-error"),
        (encode_frame(0, Open("again").encode()), "amqp:illegal-state"),
        (encode_frame(0, SaslInit("PLAIN").encode()), "amqp:decode-error"),
        (encode_frame(0, Close().encode() + b"payload"), "amqp:connection:framing-error"),
        (encode_frame(5, Flow(0, 1, 0, 1).encode()), "amqp:not-allowed"),
        (encode_frame(0, Begin(7, 0, 1, 1).encode()), "amqp:invalid-field"),
        (encode_frame(9, Begin(None, 0, 1, 1).encode()), "amqp:connection:framing-error"),
        (encode_frame(0, Begin(None, 0, 1, 1).encode()) * 2, "amqp:not-allowed"),
        (
            encode_frame(0, Begin(None, 0, 1, 1).encode())
            + encode_frame(0, Attach("l", 4, SENDER, initial_delivery_count=0).encode()),
            "amqp:connection:framing-error",
        ),
    ],
)
def test_a_fault_of_the_connection_has_its_condition(frame: bytes, condition: str) -> None:
    pair = Pair(server=SMALL)
    with pytest.raises(RemoteProtocolError) as caught:
        pair.server.take(frame)
    assert caught.value.code == condition
    pair.server.connection.close(Error(str(caught.value.code), caught.value.reason))
    output = pair.server.output()
    assert output.endswith(Close(Error(condition, caught.value.reason)).encode())


def test_heartbeats_bring_nothing() -> None:
    pair = Pair()
    before = list(pair.server.events)
    pair.client.connection.heartbeat()
    output = pair.client.output()
    assert output == HEARTBEAT
    pair.server.take(output)
    assert pair.server.events == before


def test_a_close_is_answered_and_ends_everything() -> None:
    pair = Pair()
    pair.client.connection.close(Error("amqp:internal-error"))
    pair.exchange()
    assert _conditions(pair.server, Closed) == ["amqp:internal-error"]
    assert pair.client.connection.state is pair.server.connection.state is ConnectionState.CLOSED


def test_frames_on_their_way_when_we_closed_have_no_effect() -> None:
    pair = Pair()
    pair.server.connection.close()
    session = pair.client.connection.begin()
    pair.server.take(pair.client.output())
    assert pair.server.of(Began) == []
    assert session.state.name == "BEGIN_SENT"


# Sessions


def test_channels_are_mapped_both_ways_and_used_again() -> None:
    pair = Pair()
    first, second = pair.session(), pair.session()
    assert (first.channel, second.channel) == (0, 1)
    first.end()
    pair.exchange()
    assert pair.session().channel == 0
    assert len(pair.server.of(Ended)) == 1


def test_the_incoming_window_is_filled_again() -> None:
    pair = Pair(server=SMALL)
    session = pair.session()
    link = pair.sender(session)
    for _ in range(20):
        link.send(Message(b"x").encode())
        pair.exchange()
    assert len(pair.server.messages) == 20
    assert not session.waiting


def test_transfers_beyond_the_window_wait_for_it() -> None:
    pair = Pair(server=SMALL)
    link = pair.sender(pair.session())
    for number in range(10):
        link.send(bytes([number]) * 1000)
    assert not link.session.may_send
    pair.exchange()
    assert [message[2] for message in pair.server.messages] == [bytes([number]) * 1000 for number in range(10)]


def test_a_window_that_opens_is_told() -> None:
    pair = Pair(server=SMALL)
    link = pair.sender(pair.session())
    for _ in range(4):
        link.send(b"x")
    assert not link.session.may_send
    pair.exchange()
    assert link.session.may_send and len(pair.client.of(WindowOpened)) == 1


def test_a_window_that_is_not_respected_ends_the_session() -> None:
    pair = Pair(server=SMALL)
    link = pair.sender(pair.session())
    link.session.remote_incoming_window = 100
    for _ in range(6):
        link.send(b"x")
    pair.exchange()
    assert _conditions(pair.client, Ended) == ["amqp:session:window-violation"]
    assert [event.failed for event in pair.server.of(Ended)] == [True, False]


@contextlib.contextmanager
def kernels_off():
    patch = pytest.MonkeyPatch()
    patch.setattr(kernels, "load", lambda module: None)
    try:
        yield
    finally:
        patch.undo()


@pytest.mark.parametrize("with_kernels", [True, False])
@pytest.mark.parametrize(
    ("said", "condition"),
    [
        (Transfer(9, 0, b"t"), "amqp:session:unattached-handle"),
        (Detach(9), "amqp:session:unattached-handle"),
        (Flow(0, 9, 0, 9, handle=9), "amqp:session:unattached-handle"),
        (Attach("other", 0, SENDER, initial_delivery_count=0), "amqp:session:handle-in-use"),
        (Attach("other", 2, SENDER), "amqp:invalid-field"),
        (Transfer(0), "amqp:invalid-field"),
        (Disposition(RECEIVER, 9, 3), "amqp:invalid-field"),
    ],
)
def test_a_fault_in_a_session_ends_it_alone(said: object, condition: str, with_kernels: bool) -> None:
    pair = Pair()
    session = pair.session()
    pair.sender(session)
    with contextlib.nullcontext() if with_kernels else kernels_off():
        pair.client.connection.send(session.channel, said)
        pair.exchange()
    assert _conditions(pair.client, Ended) == [condition]
    assert pair.server.connection.is_opened
    assert pair.session().is_mapped


# Links


@pytest.mark.parametrize("without_termini", [False, True])
def test_a_refused_link_is_attached_and_detached(without_termini: bool) -> None:
    def refuse(side: Side, event: Event) -> None:
        if isinstance(event, Attached):
            event.link.refuse(Error("amqp:not-found", "no such stream"), without_termini=without_termini)
        else:
            accept_all(side, event)

    pair = Pair(react=refuse)
    session = pair.session()
    ends = {"source": Source(amqp_value("there")), "target": Target(amqp_value("here"))}
    links = [pair.receiver(session, **ends), pair.sender(session, **ends)]
    answers = [event.attach for event in pair.client.of(Attached)]
    expected = [(None, None)] * 2 if without_termini else [(None, ends["target"]), (ends["source"], None)]
    assert [(answer.source, answer.target) for answer in answers] == expected
    assert _conditions(pair.client, Detached) == ["amqp:not-found"] * 2
    assert [link.state for link in links] == [LinkState.DETACHED] * 2
    assert pair.server.connection.sessions[0].links == []


def test_links_of_one_name_are_two_links() -> None:
    pair = Pair()
    session = pair.session()
    first, second = pair.sender(session), pair.sender(session)
    second.detach()
    first.send(b"message")
    pair.exchange()
    assert [data for _, _, data, _ in pair.server.messages] == [b"message"]
    assert [first.state, second.state] == [LinkState.ATTACHED, LinkState.DETACHED]


def test_names_of_links_are_free_again_after_a_detach() -> None:
    pair = Pair()
    session = pair.session()
    for _ in range(3):
        link = pair.sender(session)
        link.detach()
        pair.exchange()
    assert len(pair.server.of(Detached)) == 3


def test_credit_is_counted_on_both_sides() -> None:
    pair = Pair()
    link = pair.sender(pair.session())
    for _ in range(5):
        link.send(b"m")
    pair.exchange()
    far = pair.far(link)
    assert (link.credit, far.credit, far.delivery_count) == (995, 995, 5)
    far.grant(7)
    pair.exchange()
    assert link.credit == 7


def test_credit_that_crosses_transfers_is_not_counted_twice() -> None:
    pair = Pair()
    link = pair.receiver(pair.session())
    link.grant(10)
    pair.exchange()
    far = pair.far(link)
    for _ in range(4):
        far.send(b"m")
    link.grant(10)
    pair.server.take(pair.client.output())
    assert far.credit == 6


@pytest.mark.parametrize("with_kernels", [True, False])
def test_more_messages_than_credit_detach_the_link(with_kernels: bool) -> None:
    pair = Pair()
    link = pair.sender(pair.session())
    pair.far(link).grant(3)
    pair.exchange()
    link.credit = 10
    with contextlib.nullcontext() if with_kernels else kernels_off():
        for _ in range(5):
            link.send(b"m")
        pair.exchange()
    assert len(pair.server.messages) == 3
    assert _conditions(pair.client, Detached) == ["amqp:link:transfer-limit-exceeded"]


@pytest.mark.parametrize("with_kernels", [True, False])
def test_a_message_that_is_too_large_detaches_the_link(with_kernels: bool) -> None:
    pair = Pair(server=ConnectionSettings(max_message_size=100))
    link = pair.sender(pair.session())
    with contextlib.nullcontext() if with_kernels else kernels_off():
        link.send(bytes(100))
        link.send(bytes(101))
        link.send(bytes(3))
        pair.exchange()
    assert [len(message[2]) for message in pair.server.messages] == [100]
    assert _conditions(pair.client, Detached) == ["amqp:link:message-size-exceeded"]


def test_a_message_that_is_too_large_may_be_rejected_alone() -> None:
    pair = Pair(server=ConnectionSettings(max_message_size=100))
    session = pair.session()
    link = pair.sender(session)
    (ours,) = pair.server.connection.sessions[0].links
    ours.rejects_large = True
    for number, settled in enumerate((False, True)):
        session.send(Transfer(link.handle, number, b"t", settled=settled, more=True), bytes(60))
        session.send(Transfer(link.handle, more=True), bytes(60))
        session.send(Transfer(link.handle, more=True), bytes(60))
        session.send(Transfer(link.handle), bytes(60))
    session.send(Transfer(link.handle, 2, b"t"), b"m")
    pair.exchange()
    assert [message[2] for message in pair.server.messages] == [b"m"]
    told = [(event.first, event.last, event.state.error.condition) for event in pair.client.of(StateChanged)]
    assert told == [(0, 0, "amqp:link:message-size-exceeded")]
    assert pair.server.connection.partial_links == pair.server.connection.partial_bytes == 0
    assert len(pair.server.of(Aborted)) == 2


def test_messages_in_parts_are_bounded_over_all_links() -> None:
    pair = Pair(server=ConnectionSettings(max_partial_bytes=120))
    session = pair.session()
    for name in ("a", "b"):
        link = pair.sender(session, name)
        session.send(Transfer(link.handle, 0, b"t", more=True), bytes(60))
    pair.exchange()
    assert pair.server.connection.partial_bytes == 120
    session.send(Transfer(link.handle, more=True), b"!")
    with pytest.raises(RemoteProtocolError) as caught:
        pair.exchange()
    assert caught.value.code == "amqp:resource-limit-exceeded"
    assert pair.server.connection.partial_bytes == 120


def test_large_messages_travel_in_parts_and_may_be_mixed_with_others() -> None:
    pair = Pair(server=ConnectionSettings(max_frame_size=512))
    session = pair.session()
    one, two = pair.sender(session, "one"), pair.sender(session, "two")
    session.send(Transfer(one.handle, 0, b"a", more=True), b"first ")
    session.send(Transfer(two.handle, 1, b"b"), b"whole")
    session.send(Transfer(one.handle, settled=True), b"second")
    pair.exchange()
    assert pair.server.messages == [("two", 1, b"whole", False), ("one", 0, b"first second", True)]
    assert pair.server.connection.partial_links == pair.server.connection.partial_bytes == 0


def test_an_aborted_delivery_is_no_message() -> None:
    pair = Pair()
    link = pair.sender(pair.session())
    link.session.send(Transfer(link.handle, 0, b"a", more=True), b"first ")
    link.session.send(Transfer(link.handle, aborted=True))
    link.session.send(Transfer(link.handle, 1, b"b"), b"next")
    pair.exchange()
    assert [message[1:3] for message in pair.server.messages] == [(1, b"next")]
    assert pair.server.connection.partial_bytes == 0
    assert [event.link.name for event in pair.server.of(Aborted)] == [link.name]


def test_a_link_that_ends_drops_its_parts_and_what_waits() -> None:
    pair = Pair(server=SMALL)
    link = pair.sender(pair.session())
    link.session.send(Transfer(link.handle, 0, b"a", more=True), b"first ")
    pair.exchange()
    assert pair.server.connection.partial_bytes == 6
    for _ in range(9):
        link.send(b"m")
    link.detach()
    pair.exchange()
    assert pair.server.connection.partial_bytes == 0
    assert not link.session.waiting


def test_a_drained_link_gives_its_credit_back() -> None:
    def drain(side: Side, event: Event) -> None:
        if isinstance(event, CreditChanged) and event.link.drain:
            event.link.use_up_credit()
        accept_all(side, event)

    pair = Pair(react=drain)
    link = pair.receiver(pair.session())
    link.grant(10)
    pair.exchange()
    pair.far(link).send(b"m")
    link.grant(9, drain=True)
    pair.exchange()
    assert (link.credit, link.delivery_count) == (0, 9)
    assert pair.far(link).delivery_count == 9
    # Clients wait for an answer that says so.
    assert link.drain


def test_credit_that_crosses_a_drain_is_counted_from_where_the_sender_is() -> None:
    pair = Pair()
    link = pair.receiver(pair.session())
    link.grant(10, drain=True)
    pair.exchange()
    far = pair.far(link)
    far.use_up_credit()
    link.grant(15)
    pair.exchange()
    assert (link.credit, link.delivery_count) == (far.credit, far.delivery_count) == (5, 10)


def test_credit_before_the_attach_was_heard_is_counted_from_its_beginning() -> None:
    pair = Pair()
    link = pair.receiver(pair.session())
    far = pair.far(link)
    for _ in range(2):
        link.session.send(Flow(0, 10, 0, 10, handle=link.handle, link_credit=3))
        pair.server.take(pair.client.output())
        while far.credit:
            far.send(b"m")
    assert far.delivery_count == 3


def test_credit_is_told_behind_the_messages_that_it_counts() -> None:
    pair = Pair(client=SMALL)
    link = pair.receiver(pair.session())
    link.grant(9, drain=True)
    pair.exchange()
    far = pair.far(link)
    for number in range(6):
        far.send(bytes([number]))
    far.use_up_credit()
    pair.client.take(pair.server.output())
    assert (len(pair.client.messages), link.credit) == (4, 5)
    pair.exchange()
    assert (len(pair.client.messages), link.credit, link.drain) == (6, 0, True)


def test_messages_for_a_link_that_has_ended_do_not_use_up_the_window() -> None:
    pair = Pair(server=SMALL)
    session = pair.session()
    ended, other = pair.sender(session, "ended"), pair.sender(session, "other")
    pair.far(ended).detach()
    for _ in range(SMALL.incoming_window):
        ended.send(b"late")
    pair.exchange()
    other.send(b"m")
    pair.exchange()
    assert [message[2] for message in pair.server.messages] == [b"m"]


def test_an_echo_is_answered() -> None:
    pair = Pair()
    link = pair.receiver(pair.session())
    link.session.send(Flow(0, 10, 0, 10, handle=link.handle, delivery_count=0, link_credit=3, echo=True))
    pair.server.take(pair.client.output())
    assert pair.server.output()
    link.session.send(Flow(0, 10, 0, 10, echo=True))
    pair.server.take(pair.client.output())
    assert pair.server.output()


def test_outcomes_are_told_in_ranges() -> None:
    pair = Pair()
    link = pair.sender(pair.session())
    ids = [link.send(b"m") for _ in range(3)]
    pair.exchange()
    pair.far(link).session.settle(ids[0], ids[2], Accepted())
    pair.exchange()
    changed = pair.client.of(StateChanged)[0]
    assert (changed.received, changed.first, changed.last, changed.settled) == (True, 0, 2, True)
    assert changed.state == Accepted()


def test_delivery_counts_and_ids_wrap_around() -> None:
    pair = Pair()
    link = pair.receiver(pair.session())
    far = pair.far(link)
    far.session.next_delivery_id = far.delivery_count = link.delivery_count = 2**32 - 2
    link.grant(10)
    pair.exchange()
    far.send_messages(EncodedMessages.of([Message(b"x").encode()] * 4), np.arange(4))
    pair.exchange()
    assert [message[1] for message in pair.client.messages] == [2**32 - 2, 2**32 - 1, 0, 1]
    assert (far.credit, link.credit, far.delivery_count) == (6, 6, 2)


def test_sending_without_credit_or_link_is_our_own_error() -> None:
    pair = Pair()
    link = pair.receiver(pair.session())
    far = pair.far(link)
    with pytest.raises(LocalProtocolError, match="credit"):
        far.send(b"m")
    with pytest.raises(LocalProtocolError, match="sending end"):
        link.send(b"m")
    with pytest.raises(LocalProtocolError, match="receiving end"):
        far.grant(1)
    far.detach()
    with pytest.raises(LocalProtocolError, match="detach sent"):
        far.send(b"m")
    with pytest.raises(LocalProtocolError):
        pair.client.connection.open(Open("twice"))


# Any order of bytes


def _flow() -> bytes:
    """What a client says in a session with messages large and small, settled and not, and dispositions."""
    pair = Pair(server=ConnectionSettings(max_frame_size=512, incoming_window=50))
    said = bytearray(SASL_HEADER + encode_frame(0, SaslInit("PLAIN", b"\0a\0b").encode(), kind=1) + AMQP_HEADER)
    said += encode_frame(0, Open("c").encode())
    client = pair.client.connection
    session = client.begin()
    said += b"".join(client.take_output())
    pair.server.take(bytes(said[-0:]) and encode_frame(0, Begin(None, 0, 5000, 5000).encode()))
    pair.exchange()
    link = session.new_link("out", SENDER)
    link.start(Attach("out", 0, SENDER, target=Target()))
    output = client.take_output()
    said += b"".join(output)
    pair.server.take(b"".join(output))
    pair.exchange()
    for number in range(12):
        link.send(Message(bytes(60 * number)).encode(), settled=bool(number % 3))
        if number % 4 == 0:
            session.send(Disposition(RECEIVER, 0, number, True, Accepted()))
        said += b"".join(client.take_output())
    link.detach()
    session.end()
    said += b"".join(client.take_output()) + encode_frame(0, Close().encode())
    return bytes(said)


def _heard(pieces: list[bytes]) -> tuple[list[object], list[object], bytes]:
    side = Side(
        Connection(is_server=True, settings=ConnectionSettings(max_frame_size=512, incoming_window=50)), accept_all
    )
    for piece in pieces:
        side.take(piece)
    shown = [
        (type(event).__name__, getattr(event, "open", None) or getattr(event, "attach", None)) for event in side.events
    ]
    return shown, side.messages, side.output()


def test_byte_at_a_time_is_all_at_once() -> None:
    said = _flow()
    whole = _heard([said])
    events, messages, _ = _heard([said[at : at + 1] for at in range(len(said))])
    # A disposition that only settles is passed over inside of a run.
    assert [event for event in events if event[0] != "StateChanged"] == [
        event for event in whole[0] if event[0] != "StateChanged"
    ]
    assert messages == whole[1]
    assert len(messages) == 12 and events[-1][0] == "Closed"


@given(st.lists(st.integers(0, 5000), max_size=8))
def test_any_pieces_are_all_at_once(cuts: list[int]) -> None:
    said = _flow()
    places = sorted({min(cut, len(said)) for cut in cuts} | {0, len(said)})
    pieces = [said[first:last] for first, last in itertools.pairwise(places)]
    whole, cut = _heard([said]), _heard(pieces)
    assert cut[1:] == whole[1:]


@given(st.data())
def test_damaged_bytes_are_understood_or_refused(data: st.DataObject) -> None:
    said = bytearray(_flow())
    for _ in range(data.draw(st.integers(1, 5))):
        said[data.draw(st.integers(8, len(said) - 1))] = data.draw(st.integers(0, 255))
    side = Side(
        Connection(is_server=True, settings=ConnectionSettings(max_frame_size=512, incoming_window=50)), accept_all
    )
    with contextlib.suppress(RemoteProtocolError):
        side.take(bytes(said))
    assert side.connection.partial_bytes <= side.connection.settings.max_partial_bytes
