"""The server's side: what may come when, and what is said to what may not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from examples import examples
from headgate.errors import LocalProtocolError
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codec import decode_from_server, encode
from headgate.protocols.stream.codes import ResponseCode
from headgate.protocols.stream.server import FRAME_MAX_BEFORE_OPEN, ServerConnection, ServerLimits, ServerState
from stream_frames import HANDSHAKE, Served, flat, frames_of, opened, publish

STEADY = [
    kind
    for kind in f.FROM_CLIENT
    if kind
    not in (f.PeerProperties, f.SaslHandshake, f.SaslAuthenticate, f.Tune, f.TuneReply, f.Open, f.Close, f.CloseReply)
    and kind is not f.ConsumerUpdateReply
]
CLOSE_UNKNOWN_FRAME = f.Close(ResponseCode.UNKNOWN_FRAME, "unknown frame", correlation_id=1)


def said(output: bytes) -> list[f.Frame]:
    found = []
    while output:
        size = int.from_bytes(output[:4], "big")
        found.append(decode_from_server(output[4 : 4 + size]))
        output = output[4 + size :]
    return found


def test_a_handshake_leads_to_an_open_connection() -> None:
    served = Served()
    answers = [said(served.receive(encode(frame))) for frame in HANDSHAKE]
    assert [[type(frame) for frame in frames] for frames in answers] == [
        [f.PeerPropertiesReply],
        [f.SaslHandshakeReply],
        [f.SaslAuthenticateReply, f.Tune],
        [],
        [f.OpenReply],
    ]
    assert answers[2][1] == f.Tune(1 << 20, 60)
    assert served.connection.state is ServerState.OPENED


def test_a_whole_handshake_may_come_at_once() -> None:
    served = Served()
    served.receive(b"".join(encode(frame) for frame in HANDSHAKE) + encode(f.Delete("s", correlation_id=9)))
    assert served.events == [*HANDSHAKE, f.Delete("s", correlation_id=9)]


def test_some_clients_answer_the_tuning_as_a_reply() -> None:
    served = Served()
    for frame in HANDSHAKE:
        served.receive(encode(f.TuneReply(4096, 0) if isinstance(frame, f.Tune) else frame))
    assert served.connection.state is ServerState.OPENED
    assert (served.connection.frame_max, served.connection.heartbeat_s) == (4096, 60)


@pytest.mark.parametrize(("ours", "theirs", "result"), [(100, 0, 100), (0, 90, 90), (100, 90, 90), (0, 0, 0)])
def test_the_smaller_limit_holds_and_zero_is_none(ours: int, theirs: int, result: int) -> None:
    served = Served(ServerLimits(frame_max=ours, heartbeat_s=ours))
    for frame in HANDSHAKE:
        served.receive(encode(f.Tune(theirs, theirs) if isinstance(frame, f.Tune) else frame))
    assert (served.connection.frame_max, served.connection.heartbeat_s) == (result, result)


@pytest.mark.parametrize("before", range(len(HANDSHAKE)))
@pytest.mark.parametrize("kind", f.FROM_CLIENT)
@examples(0.04)
@given(data=st.data())
def test_out_of_its_place_a_frame_ends_a_connection_that_is_not_open(
    kind: type[f.Frame], before: int, data: st.DataObject
) -> None:
    expected = {type(HANDSHAKE[before])} | ({f.TuneReply} if before == 3 else set())
    if before >= 3:
        expected.add(f.Heartbeat)
    served = Served()
    for frame in HANDSHAKE[:before]:
        served.receive(encode(frame))
    served.events.clear()
    output = served.receive(encode(data.draw(frames_of(kind))))
    if kind in expected:
        assert served.connection.state is not ServerState.CLOSED
    else:
        assert flat(served.events) == [("violation", ResponseCode.UNKNOWN_FRAME, False)]
        assert output == b"" and served.connection.state is ServerState.CLOSED


def test_publish_before_open_ends_the_connection() -> None:
    served = Served()
    assert served.receive(publish([(1, b"a")])) == b""
    assert served.connection.state is ServerState.CLOSED


@pytest.mark.parametrize("at", [0, 4])
def test_a_frame_that_is_too_large_before_open_ends_the_connection_before_its_bytes_come(at: int) -> None:
    served = Served()
    for frame in HANDSHAKE[:at]:
        served.receive(encode(frame))
    assert served.receive((FRAME_MAX_BEFORE_OPEN + 1).to_bytes(4, "big")) == b""
    assert served.connection.state is ServerState.CLOSED


def test_wrong_credentials_are_answered_and_end_the_connection() -> None:
    served = Served()
    served.authentication_code = ResponseCode.AUTHENTICATION_FAILURE
    output = b"".join(served.receive(encode(frame)) for frame in HANDSHAKE[:3])
    assert said(output)[-1] == f.SaslAuthenticateReply(correlation_id=3, code=8)
    assert served.connection.state is ServerState.CLOSED


def test_a_refused_virtual_host_is_answered_and_ends_the_connection() -> None:
    served = Served()
    served.open_code = ResponseCode.VIRTUAL_HOST_ACCESS_FAILURE
    output = b"".join(served.receive(encode(frame)) for frame in HANDSHAKE)
    assert said(output)[-1] == f.OpenReply(correlation_id=4, code=12)
    assert served.connection.state is ServerState.CLOSED


def test_what_comes_while_credentials_are_checked_waits_and_is_bounded() -> None:
    connection = ServerConnection()
    for frame in HANDSHAKE[:2]:
        (request,) = connection.receive(encode(frame))
        assert isinstance(request, f.Request)
        connection.reply(request)
    (request,) = connection.receive(encode(HANDSHAKE[2]) + encode(HANDSHAKE[3]))
    assert connection.receive(encode(HANDSHAKE[4])) == [] and connection.go_on() == []
    assert isinstance(request, f.SaslAuthenticate)
    connection.reply(request)
    assert connection.go_on() == [*HANDSHAKE[3:]]

    waiting = ServerConnection()
    for frame in HANDSHAKE[:2]:
        (request,) = waiting.receive(encode(frame))
        assert isinstance(request, f.Request)
        waiting.reply(request)
    waiting.receive(encode(HANDSHAKE[2]))
    assert flat(waiting.receive(bytes(FRAME_MAX_BEFORE_OPEN + 1))) == [
        ("violation", ResponseCode.FRAME_TOO_LARGE, False)
    ]


def test_an_unknown_frame_is_answered_with_close_and_the_reply_is_waited_for() -> None:
    served = opened()
    output = served.receive(bytes.fromhex("0000000400630001") + encode(f.Delete("s", correlation_id=5)))
    assert said(output) == [CLOSE_UNKNOWN_FRAME]
    assert flat(served.events) == [("violation", ResponseCode.UNKNOWN_FRAME, True)]
    assert served.connection.state is ServerState.CLOSING
    assert served.receive(publish([(1, b"a")]) + encode(f.CloseReply(correlation_id=1))) == b""
    assert served.connection.state is ServerState.CLOSED
    assert served.events[1:] == [f.CloseReply(correlation_id=1)]


def test_a_client_that_closes_while_we_do_is_answered() -> None:
    served = opened()
    served.connection.close(ResponseCode.OK, "the server stops")
    assert said(served.connection.take_output()) == [f.Close(1, "the server stops", correlation_id=1)]
    assert said(served.receive(encode(f.Close(1, "OK", correlation_id=8)))) == [f.CloseReply(correlation_id=8)]
    assert served.connection.state is ServerState.CLOSED


def test_requests_before_a_wrong_frame_are_answered_before_close() -> None:
    served = opened()
    output = served.receive(encode(f.Delete("s", correlation_id=5)) + bytes.fromhex("0000000400630001"))
    assert said(output) == [f.DeleteReply(correlation_id=5), CLOSE_UNKNOWN_FRAME]


@pytest.mark.parametrize("piece", [1, 1000, 10_000])
def test_a_frame_above_the_limit_is_answered_with_close_and_its_bytes_are_dropped(piece: int) -> None:
    served = opened(ServerLimits(frame_max=5000))
    data = publish([(1, bytes(5000 - 21))]) + publish([(2, bytes(5000 - 20))]) + encode(f.CloseReply(correlation_id=1))
    output = b"".join(served.receive(data[at : at + piece]) for at in range(0, len(data), piece))
    assert said(output) == [f.Close(ResponseCode.FRAME_TOO_LARGE, "frame too large", correlation_id=1)]
    assert flat(served.events) == [
        ("entry", 0, 1, bytes(5000 - 21), None, 0),
        ("violation", ResponseCode.FRAME_TOO_LARGE, True),
        f.CloseReply(correlation_id=1),
    ]
    assert served.connection.state is ServerState.CLOSED


def test_a_malformed_publish_ends_the_connection_without_a_word() -> None:
    served = opened()
    broken = bytearray(publish([(2, b"b")]))
    broken[12] = 2
    assert served.receive(publish([(1, b"a")]) + broken) == b""
    assert flat(served.events) == [
        ("entry", 0, 1, b"a", None, 0),
        ("violation", ResponseCode.UNKNOWN_FRAME, False),
    ]
    assert served.connection.state is ServerState.CLOSED


@pytest.mark.parametrize("body", [b"\0\2\0\3" + bytes(5), b"\0\2\0\1" + bytes(4), b"\0\2"])
def test_a_publish_of_an_unknown_version_or_without_entries_is_an_unknown_frame(body: bytes) -> None:
    served = opened()
    (close,) = said(served.receive(len(body).to_bytes(4, "big") + body))
    assert isinstance(close, f.Close) and close.closing_code == ResponseCode.UNKNOWN_FRAME
    assert served.connection.state is ServerState.CLOSING


def test_close_is_answered_behind_what_was_asked_before_and_frames_behind_it_are_ignored() -> None:
    served = opened()
    output = served.receive(
        encode(f.Delete("s", correlation_id=5))
        + encode(f.Close(1, "OK", correlation_id=6))
        + encode(f.Delete("t", correlation_id=7))
    )
    assert said(output) == [f.DeleteReply(correlation_id=5), f.CloseReply(correlation_id=6)]
    assert served.connection.state is ServerState.CLOSED
    assert served.receive(encode(f.Delete("u", correlation_id=8))) == b""


def test_version_two_of_deliver_is_used_once_a_client_says_that_it_reads_it() -> None:
    served = opened()
    assert served.connection.deliver_version == 1
    served.receive(encode(f.ExchangeCommandVersions(((2, 1, 2),), correlation_id=1)))
    assert served.connection.deliver_version == 1
    served.receive(encode(f.ExchangeCommandVersions(((8, 1, 2),), correlation_id=2)))
    assert served.connection.deliver_version == 2


def test_consumer_updates_are_asked_with_ids_of_their_own() -> None:
    served = opened()
    first = served.connection.ask_consumer(3, active=True)
    second = served.connection.ask_consumer(4, active=False)
    assert said(served.connection.take_output()) == [
        f.ConsumerUpdate(3, 1, correlation_id=first),
        f.ConsumerUpdate(4, 0, correlation_id=second),
    ]
    answers = [f.ConsumerUpdateReply(None, correlation_id=number) for number in (second, first)]
    served.receive(b"".join(map(encode, answers)))
    assert served.events == [*answers]


def test_replies_must_answer_the_oldest_request() -> None:
    connection = opened().connection
    first, second = connection.receive(
        encode(f.Delete("s", correlation_id=5)) + encode(f.QueryOffset("r", "s", correlation_id=5))
    )
    assert isinstance(first, f.Request) and isinstance(second, f.Request)
    with pytest.raises(LocalProtocolError, match="answers no request in turn"):
        connection.reply(second)
    connection.reply(first)
    with pytest.raises(LocalProtocolError, match="answers no request in turn"):
        connection.reply(first)
    connection.reply(second)


def test_nothing_is_said_out_of_its_place() -> None:
    ids = np.array([1], dtype=np.uint64)
    for connection in (ServerConnection(), closing()):
        with pytest.raises(LocalProtocolError):
            connection.send(f.Heartbeat())
        with pytest.raises(LocalProtocolError):
            connection.confirm(0, ids)
        with pytest.raises(LocalProtocolError):
            connection.refuse(0, ids, ResponseCode.INTERNAL_ERROR)
        with pytest.raises(LocalProtocolError):
            connection.close(ResponseCode.OK, "")
    served = opened()
    served.receive(encode(f.Close(1, "OK", correlation_id=1)))
    with pytest.raises(LocalProtocolError, match="on a closed connection"):
        served.connection.send(f.Heartbeat())


def closing() -> ServerConnection:
    connection = opened().connection
    connection.close(ResponseCode.OK, "")
    return connection


PIECES = st.one_of(
    st.sampled_from(STEADY).flatmap(frames_of).map(encode),
    st.lists(st.tuples(st.integers(0, 99), st.binary(max_size=9)), min_size=1, max_size=4).map(publish),
    st.binary(min_size=1, max_size=12),
    st.integers(0, 40).map(lambda key: b"\0\0\0\4" + key.to_bytes(2, "big") + b"\0\1"),
)


@example([encode(f.Heartbeat())] * 2 + [bytes(8), publish([(0, b""), (0, b"")]), encode(f.Heartbeat())], [31], False)
@given(st.lists(PIECES, max_size=6), st.lists(st.integers(1, 40), max_size=10), st.booleans())
def test_however_the_bytes_are_cut_the_events_are_the_same(
    pieces: list[bytes], cuts: list[int], from_the_start: bool
) -> None:
    data = (b"".join(map(encode, HANDSHAKE)) if from_the_start else b"") + b"".join(pieces)
    results = []
    for steps in ([len(data) or 1], [1], cuts or [7]):
        served = Served() if from_the_start else opened()
        output, at, turn = b"", 0, 0
        while at < len(data):
            step = steps[turn % len(steps)]
            output += served.receive(data[at : at + step])
            at, turn = at + step, turn + 1
        results.append((flat(served.events), output, served.connection.state))
    assert results[0] == results[1] == results[2]


class ServerMachine(RuleBasedStateMachine):
    """A client that sends frames in any order, against a model of what a server makes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.served = Served()
        self.step = 0
        """Frames of the handshake that came; more than their number: the connection ended."""

    @property
    def is_open(self) -> bool:
        return self.step == len(HANDSHAKE)

    @precondition(lambda self: self.step < len(HANDSHAKE))
    @rule()
    def goes_on_with_the_handshake(self) -> None:
        self.served.receive(encode(HANDSHAKE[self.step]))
        self.step += 1
        expected = ServerState.OPENED if self.is_open else self.served.connection.state
        assert self.served.connection.state is expected is not ServerState.CLOSED

    @rule(data=st.data(), kind=st.sampled_from(STEADY))
    def sends_a_command(self, data: st.DataObject, kind: type[f.Frame]) -> None:
        frame = data.draw(frames_of(kind))
        before = len(self.served.events)
        output = self.served.receive(encode(frame))
        new = self.served.events[before:]
        if self.is_open:
            assert new == [frame]
            answers = said(output)
            assert len(answers) == isinstance(frame, f.Request)
            assert all(answer.command == frame.command for answer in answers)
        elif self.step <= len(HANDSHAKE) and not (kind is f.Heartbeat and self.step >= 3):
            assert flat(new) == [("violation", ResponseCode.UNKNOWN_FRAME, False)] and output == b""
            self.step = len(HANDSHAKE) + 1
        else:
            assert output == b""

    @rule(count=st.integers(1, 5), publisher=st.integers(0, 255))
    def publishes(self, count: int, publisher: int) -> None:
        before = len(self.served.events)
        self.served.receive(publish([(number, b"x") for number in range(count)], publisher_id=publisher))
        new = flat(self.served.events[before:])
        if self.is_open:
            assert new == [("entry", publisher, number, b"x", None, 0) for number in range(count)]
        else:
            if self.step < len(HANDSHAKE):
                self.step = len(HANDSHAKE) + 1
            assert all(isinstance(event, tuple) and event[0] == "violation" for event in new)

    @precondition(lambda self: self.is_open)
    @rule(data=st.data(), kind=st.sampled_from([f.PeerProperties, f.SaslHandshake, f.Tune, f.Open, f.CloseReply]))
    def sends_a_frame_out_of_its_place(self, data: st.DataObject, kind: type[f.Frame]) -> None:
        output = self.served.receive(encode(data.draw(frames_of(kind))))
        assert said(output) == [CLOSE_UNKNOWN_FRAME]
        assert self.served.connection.state is ServerState.CLOSING
        self.served.receive(encode(f.CloseReply(correlation_id=1)))
        self.step = len(HANDSHAKE) + 1

    @precondition(lambda self: self.is_open)
    @rule(correlation=st.integers(0, 9))
    def closes(self, correlation: int) -> None:
        output = self.served.receive(encode(f.Close(1, "OK", correlation_id=correlation)))
        assert said(output) == [f.CloseReply(correlation_id=correlation)]
        assert self.served.connection.state is ServerState.CLOSED
        self.step = len(HANDSHAKE) + 1


TestServerMachine = ServerMachine.TestCase
