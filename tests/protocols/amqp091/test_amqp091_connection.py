"""The server's end of a connection: handshake, channels, contents, refusals; in any cut of the bytes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.errors import LocalProtocolError
from headgate.protocols.amqp091 import ConnectionLimits, ConnectionState, ReplyCode, ServerConnection
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.codec import decode_method, encode_method
from headgate.protocols.amqp091.codes import CHANNEL_CODES, ERROR_CODES, reply_code, reply_text
from headgate.protocols.amqp091.connection import CHANNEL_METHODS
from headgate.protocols.amqp091.events import (
    Authenticate,
    ChannelClosed,
    ChannelFailed,
    ChannelOpened,
    ConnectionClosed,
    ConnectionFailed,
    MethodReceived,
    Published,
)
from headgate.protocols.amqp091.fields import boolean, table
from headgate.protocols.amqp091.frames import (
    HEARTBEAT,
    MIN_FRAME_SIZE_BYTES,
    PROTOCOL_HEADER,
    FrameType,
    encode_content,
    encode_frame,
)
from headgate.protocols.amqp091.properties import BasicProperties, encode_content_header
from protocols.amqp091.field_values import methods

LIMITS = ConnectionLimits(
    channel_max=8, frame_max_bytes=8192, heartbeat_s=60, message_bytes=20_000, unfinished_bytes=30_000
)
START_OK = m.ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest")
TUNE_OK = m.ConnectionTuneOk(channel_max=8, frame_max=8192, heartbeat=30)
PUBLISH = m.BasicPublish(exchange="", routing_key="orders")


def method(channel: int, said: m.Method) -> bytes:
    return encode_frame(FrameType.METHOD, channel, encode_method(said))


def content(channel: int, body: bytes, said: m.Method = PUBLISH) -> bytes:
    header = encode_content_header(BasicProperties(message_id="m"), len(body))
    return encode_content(channel, encode_method(said), header, body, 8192)


HANDSHAKE = PROTOCOL_HEADER + method(0, START_OK)
OPENING = method(0, TUNE_OK) + method(0, m.ConnectionOpen())


def connection() -> ServerConnection:
    return ServerConnection(server_properties={}, mechanisms=["PLAIN", "AMQPLAIN"], limits=LIMITS)


def hear(core: ServerConnection, data: bytes) -> list[object]:
    """The events of the bytes; whoever says who it is, is let in."""
    events = []
    for event in core.receive(data):
        events.append(event)
        if isinstance(event, Authenticate):
            core.authenticated()
    return events


def said(core: ServerConnection) -> list[tuple[int, m.Method]]:
    """What the server said since the last time, methods only."""
    output, answers, position = core.take_output(), [], 0
    while position < len(output):
        kind, channel = output[position], int.from_bytes(output[position + 1 : position + 3], "big")
        stop = position + 7 + int.from_bytes(output[position + 3 : position + 7], "big")
        assert output[stop] == 0xCE
        if kind == FrameType.METHOD:
            answers.append((channel, decode_method(output[position + 7 : stop])))
        position = stop + 1
    return answers


def open_connection(*channels: int) -> ServerConnection:
    core = connection()
    hear(core, HANDSHAKE)
    hear(core, OPENING + b"".join(method(channel, m.ChannelOpen()) for channel in channels))
    assert core.state is ConnectionState.OPEN
    core.take_output()
    return core


def test_a_connection_opens_step_by_step():
    core = connection()
    assert hear(core, PROTOCOL_HEADER) == []
    [(channel, start)] = said(core)
    assert (channel, start.version_major, start.version_minor) == (0, 0, 9)
    assert (start.mechanisms, start.locales) == (b"PLAIN AMQPLAIN", b"en_US")
    [asked] = core.receive(method(0, START_OK))
    assert asked == Authenticate("PLAIN", b"\0guest\0guest")
    assert core.state is ConnectionState.AUTHENTICATING
    core.authenticated()
    assert said(core) == [(0, m.ConnectionTune(8, 8192, 60))]
    assert hear(core, method(0, TUNE_OK)) == []
    assert core.heartbeat_s == 30
    assert hear(core, method(0, m.ConnectionOpen("/"))) == []
    assert said(core) == [(0, m.ConnectionOpenOk())]
    assert hear(core, method(3, m.ChannelOpen())) == [ChannelOpened(3)]
    assert said(core) == [(3, m.ChannelOpenOk())]


def test_nothing_is_read_until_it_is_known_who_it_is():
    core = connection()
    events = list(core.receive(HANDSHAKE + OPENING))
    assert [type(event) for event in events] == [Authenticate]
    assert list(core.receive(method(1, m.ChannelOpen()))) == []
    core.authenticated()
    assert list(core.receive(b"")) == [ChannelOpened(1)]


@pytest.mark.parametrize("header", [b"AMQP\0\0\x09\x00", b"AMQP\x01\1\0\x0a", b"GET / HT"])
def test_another_protocol_is_answered_with_the_one_that_is_spoken(header):
    core = connection()
    assert hear(core, header + b"rest") == []
    assert core.take_output() == PROTOCOL_HEADER
    assert core.state is ConnectionState.FINISHED


@pytest.mark.parametrize(
    ("tune", "reason"),
    [
        (m.ConnectionTuneOk(8, 4096, 0), "frame_max = 4096"),
        (m.ConnectionTuneOk(8, 131072, 0), "frame_max = 131072"),
        (m.ConnectionTuneOk(8, 0, 0), "frame_max = 0"),
        (m.ConnectionTuneOk(9, 8192, 0), "channel_max = 9"),
        (m.ConnectionTuneOk(0, 8192, 0), "channel_max = 0"),
    ],
)
def test_limits_beyond_those_of_the_server_are_not_allowed(tune, reason):
    core = connection()
    hear(core, HANDSHAKE)
    core.take_output()
    [failed] = hear(core, method(0, tune))
    assert reason in failed.error.reason
    [(_, close)] = said(core)
    assert (close.reply_code, close.class_id, close.method_id) == (ReplyCode.NOT_ALLOWED, 10, 31)


def test_an_unknown_virtual_host_is_not_allowed():
    core = connection()
    hear(core, HANDSHAKE + method(0, TUNE_OK))
    core.take_output()
    [failed] = hear(core, method(0, m.ConnectionOpen("shop")))
    assert isinstance(failed, ConnectionFailed)
    [(_, close)] = said(core)
    assert (close.reply_code, close.reply_text) == (530, "NOT_ALLOWED - vhost shop not found")


SESSION = (
    method(1, m.ChannelOpen())
    + method(1, m.QueueDeclare(queue="orders", durable=True))
    + content(1, b"")
    + HEARTBEAT
    + content(1, b"x" * 17_000)
    + method(2, m.ChannelOpen())
    + method(2, m.BasicAck(5, multiple=True))
    + content(1, b"y" * 8184)
    + method(2, m.ChannelClose(200, "bye"))
    + method(2, m.ChannelOpen())
    + method(2, m.BasicDeliver())
    + method(1, m.BasicAck(1))
)


def test_bytes_one_by_one_are_the_bytes_at_once():
    whole, single = connection(), connection()
    expected = hear(whole, HANDSHAKE + OPENING + SESSION)
    found = [event for octet in HANDSHAKE + OPENING + SESSION for event in hear(single, bytes([octet]))]
    assert str(found) == str(expected)
    assert single.take_output() == whole.take_output()
    bodies = [event.body for event in found if isinstance(event, Published)]
    assert bodies == [b"", b"x" * 17_000, b"y" * 8184]


@given(st.lists(st.integers(0, len(HANDSHAKE + OPENING + SESSION)), max_size=8))
def test_any_cut_of_the_bytes_gives_the_same_events(cuts):
    stream = HANDSHAKE + OPENING + SESSION
    whole, parts = connection(), connection()
    places = [0, *sorted(cuts), len(stream)]
    expected = hear(whole, stream)
    found = [event for a, b in itertools.pairwise(places) for event in hear(parts, stream[a:b])]
    assert str(found) == str(expected)
    assert parts.take_output() == whole.take_output()


def test_a_message_over_many_frames_is_one():
    core = open_connection(1)
    [published] = hear(core, content(1, bytes(range(250)) * 80))
    assert (published.channel, published.method, published.body) == (1, PUBLISH, bytes(range(250)) * 80)


def test_messages_of_several_channels_may_mix():
    core = open_connection(1, 2)
    first, second = content(1, b"a" * 10), content(2, b"b" * 10)
    cut = len(method(1, PUBLISH))
    events = hear(core, first[:cut] + second[:cut] + first[cut:] + second[cut:])
    assert [(event.channel, event.body) for event in events] == [(1, b"a" * 10), (2, b"b" * 10)]


def header_frame(channel: int, size: int) -> bytes:
    return encode_frame(FrameType.HEADER, channel, encode_content_header(BasicProperties(), size))


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (method(1, PUBLISH) + method(1, m.BasicQos()), ReplyCode.UNEXPECTED_FRAME),
        (header_frame(1, 5), ReplyCode.UNEXPECTED_FRAME),
        (method(1, PUBLISH) + header_frame(1, 5) + header_frame(1, 5), ReplyCode.UNEXPECTED_FRAME),
        (encode_frame(FrameType.BODY, 1, b"x"), ReplyCode.UNEXPECTED_FRAME),
        (method(1, PUBLISH) + encode_frame(FrameType.BODY, 1, b"x"), ReplyCode.UNEXPECTED_FRAME),
        (
            method(1, PUBLISH) + header_frame(1, 5) + encode_frame(FrameType.BODY, 1, b"123456"),
            ReplyCode.FRAME_ERROR,
        ),
        (method(1, PUBLISH) + encode_frame(FrameType.HEADER, 1, b"\0\x3c"), ReplyCode.FRAME_ERROR),
        (header_frame(0, 5), ReplyCode.UNEXPECTED_FRAME),
        (encode_frame(FrameType.HEARTBEAT, 1, b""), ReplyCode.UNEXPECTED_FRAME),
        (b"\4\0\1\0\0\0\0\xce", ReplyCode.FRAME_ERROR),
        (method(2, m.BasicQos()), ReplyCode.CHANNEL_ERROR),
        (method(1, m.ChannelOpen()), ReplyCode.CHANNEL_ERROR),
        (method(9, m.ChannelOpen()), ReplyCode.NOT_ALLOWED),
        (method(1, m.BasicDeliver()), ReplyCode.COMMAND_INVALID),
        (method(1, m.ConnectionOpen()), ReplyCode.COMMAND_INVALID),
        (method(0, m.ChannelOpen()), ReplyCode.CHANNEL_ERROR),
        (method(0, m.ConnectionOpen()), ReplyCode.CHANNEL_ERROR),
        (encode_frame(FrameType.METHOD, 1, b"\0\x3c\0\x63"), ReplyCode.NOT_IMPLEMENTED),
        (encode_frame(FrameType.METHOD, 1, b"\0\x3c\0\x0a"), ReplyCode.SYNTAX_ERROR),
    ],
)
def test_what_may_not_be_sent_ends_the_connection_with_its_code(sent, code):
    core = open_connection(1)
    events = hear(core, sent + method(1, m.BasicQos(prefetch_count=1)))
    assert [type(event) for event in events] == [ConnectionFailed]
    [(channel, close)] = said(core)
    assert (channel, type(close), close.reply_code) == (0, m.ConnectionClose, code)
    assert core.state is ConnectionState.CLOSING
    assert hear(core, method(0, m.ConnectionCloseOk())) == []
    assert core.state is ConnectionState.FINISHED


@pytest.mark.parametrize("broken", [b"\1\0\1\0\0\x20\0", b"\1\0\1\0\0\0\1x\xcf", b"\x16\3\1\2\0\1\0\1\xfc\3"])
def test_behind_a_broken_frame_nothing_is_read(broken):
    core = open_connection(1)
    [failed] = hear(core, broken + method(1, m.BasicQos()))
    assert failed.error.code == ReplyCode.FRAME_ERROR
    [(_, close)] = said(core)
    assert close.reply_code == ReplyCode.FRAME_ERROR
    assert core.state is ConnectionState.FINISHED
    assert hear(core, method(1, m.BasicQos())) == []


def test_before_limits_are_agreed_on_frames_are_small():
    limits = ConnectionLimits(frame_max_bytes=131_072)
    core = ServerConnection(server_properties={}, mechanisms=["PLAIN"], limits=limits)
    [failed] = hear(core, PROTOCOL_HEADER + b"\1\0\0" + (8185).to_bytes(4, "big"))
    assert "frame of 8185 bytes" in failed.error.reason


def test_a_message_that_is_too_large_closes_its_channel_before_it_has_come():
    core = open_connection(1, 2)
    [failed] = hear(core, method(1, PUBLISH) + header_frame(1, 20_001))
    assert (type(failed), failed.channel) == (ChannelFailed, 1)
    [(channel, close)] = said(core)
    assert (channel, close.reply_code, close.class_id) == (1, ReplyCode.PRECONDITION_FAILED, 0)
    # What was under way on the channel is passed over; the others go on.
    late = encode_frame(FrameType.BODY, 1, b"x" * 100) + content(1, b"late") + method(1, m.QueuePurge())
    assert hear(core, late + content(2, b"on")) == [
        Published(2, PUBLISH, encode_content_header(BasicProperties(message_id="m"), 2), b"on")
    ]
    assert hear(core, method(1, m.ChannelCloseOk()) + method(1, m.ChannelOpen())) == [ChannelOpened(1)]


def test_closes_that_cross_are_both_answered():
    core = open_connection(1)
    core.refuse(1, ReplyCode.NOT_FOUND, "no queue", cause=m.QueueDelete())
    assert not core.is_open(1)
    assert hear(core, method(1, m.ChannelClose(200, "bye")) + method(1, m.ChannelCloseOk())) == []
    answers = said(core)
    assert [type(answer) for _, answer in answers] == [m.ChannelClose, m.ChannelCloseOk]
    assert (answers[0][1].class_id, answers[0][1].method_id) == (50, 40)
    assert hear(core, method(1, m.ChannelOpen())) == [ChannelOpened(1)]
    core.close(ReplyCode.CONNECTION_FORCED, "shutdown")
    assert hear(core, method(1, m.QueuePurge()) + method(0, m.ConnectionClose(200, "bye"))) == []
    assert core.state is ConnectionState.FINISHED


def test_unfinished_messages_are_bounded_together():
    core = open_connection(1, 2)
    for channel in (1, 2):
        assert hear(core, method(channel, PUBLISH) + header_frame(channel, 20_000)) == []
    part = b"x" * 8000
    for channel in (1, 2, 1):
        assert hear(core, encode_frame(FrameType.BODY, channel, part)) == []
    [failed] = hear(core, encode_frame(FrameType.BODY, 2, part))
    assert failed.error.code == ReplyCode.RESOURCE_ERROR


def test_finished_messages_make_room():
    core = open_connection(1)
    for _ in range(10):
        assert len(hear(core, content(1, b"x" * 20_000))) == 1


def test_a_client_closes_the_connection():
    core = open_connection(1)
    assert hear(core, method(0, m.ConnectionClose(200, "Normal shutdown"))) == [ConnectionClosed()]
    assert said(core) == [(0, m.ConnectionCloseOk())]
    assert core.state is ConnectionState.FINISHED


def test_capabilities_are_what_the_client_says():
    core = connection()
    properties = {"capabilities": table({"consumer_cancel_notify": boolean(True), "basic.nack": boolean(False)})}
    hear(core, PROTOCOL_HEADER + method(0, m.ConnectionStartOk(properties, "PLAIN", b"", "en_US")))
    assert core.client_can("consumer_cancel_notify")
    assert not core.client_can("basic.nack")
    assert not core.client_can("publisher_confirms")
    assert not connection().client_can("basic.nack")


def test_this_side_says_nothing_where_nothing_is_open():
    core = open_connection(1)
    core.refuse(1, ReplyCode.NOT_FOUND, "no queue")
    for channel in (1, 2):
        with pytest.raises(LocalProtocolError):
            core.send(channel, m.BasicQosOk())
        with pytest.raises(LocalProtocolError):
            core.send_content(channel, b"", b"", b"")
    with pytest.raises(LocalProtocolError):
        core.authenticated()


def test_contents_are_cut_to_the_frames_of_the_client():
    core = open_connection(1)
    deliver = encode_method(m.BasicDeliver("ctag", 1, False, "", "orders"))
    body = b"z" * 20_000
    size = core.send_content(1, deliver, encode_content_header(BasicProperties(), len(body)), body)
    output = core.take_output()
    assert len(output) == size
    sizes, position = [], 0
    while position < len(output):
        sizes.append(8 + int.from_bytes(output[position + 3 : position + 7], "big"))
        position += sizes[-1]
    assert max(sizes) == 8192
    assert sum(sizes[2:]) == len(body) + 8 * len(sizes[2:])


def test_each_error_has_a_code_and_texts_fit():
    for kind, code in ERROR_CODES.items():
        assert code in ReplyCode
        assert reply_code(kind.__new__(kind)) is code
    text = reply_text(ReplyCode.NOT_FOUND, "é" * 300)
    assert text.startswith("NOT_FOUND - ")
    assert len(text.encode()) <= 255
    assert {ReplyCode.NOT_FOUND, ReplyCode.PRECONDITION_FAILED, ReplyCode.ACCESS_REFUSED} <= CHANNEL_CODES
    assert not {ReplyCode.NOT_IMPLEMENTED, ReplyCode.NOT_ALLOWED, ReplyCode.INTERNAL_ERROR} & CHANNEL_CODES


@given(st.data())
def test_any_frames_are_events_or_end_in_an_exception(data):
    core = open_connection(1)
    for _ in range(data.draw(st.integers(1, 6))):
        channel = data.draw(st.integers(0, 3))
        kind = data.draw(st.sampled_from((1, 1, 1, 2, 3, 8, 0, 255)))
        payload = data.draw(methods.map(encode_method) | st.binary(max_size=40))
        hear(core, kind.to_bytes(1, "big") + encode_frame(FrameType.METHOD, channel, payload)[1:])
        core.take_output()


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_events_or_end_in_an_exception(octets, is_open):
    core = open_connection(1) if is_open else connection()
    hear(core, octets)


class Machine(RuleBasedStateMachine):
    """A client that does whatever it likes, against a model: which channels are open, closing, in a message."""

    def __init__(self) -> None:
        super().__init__()
        self.core = open_connection()
        self.channels: dict[int, str] = {}
        self.is_open = True

    channels_strategy = st.integers(1, 3)

    @precondition(lambda self: self.is_open)
    @rule(channel=channels_strategy)
    def open_channel(self, channel):
        state = self.channels.get(channel)
        events = hear(self.core, method(channel, m.ChannelOpen()))
        if state is None:
            assert events == [ChannelOpened(channel)]
            self.channels[channel] = "open"
        elif state == "closing":
            assert events == []
        else:
            self.is_open = False

    @precondition(lambda self: self.is_open)
    @rule(channel=channels_strategy, said=st.sampled_from(sorted(CHANNEL_METHODS, key=str)))
    def say(self, channel, said):
        state = self.channels.get(channel)
        events = hear(self.core, method(channel, said()))
        if state == "open":
            assert events == [MethodReceived(channel, said())]
        elif state == "closing":
            assert events == []
        else:
            self.is_open = False

    @precondition(lambda self: self.is_open)
    @rule(channel=channels_strategy)
    def begin_message(self, channel):
        state = self.channels.get(channel)
        assert hear(self.core, method(channel, PUBLISH)) == [] or state in (None, "message")
        if state == "open":
            self.channels[channel] = "message"
        elif state != "closing":
            self.is_open = False

    @precondition(lambda self: self.is_open)
    @rule(channel=channels_strategy, body=st.sampled_from((b"", b"x")))
    def end_message(self, channel, body):
        state = self.channels.get(channel)
        events = hear(self.core, content(channel, body)[len(method(channel, PUBLISH)) :])
        if state == "message":
            assert [event.body for event in events] == [body]
            self.channels[channel] = "open"
        elif state == "closing":
            assert events == []
        else:
            self.is_open = False

    @precondition(lambda self: self.is_open)
    @rule(channel=channels_strategy)
    def close_channel(self, channel):
        state = self.channels.get(channel)
        events = hear(self.core, method(channel, m.ChannelClose()))
        if state == "open":
            assert events == [ChannelClosed(channel)]
            del self.channels[channel]
        elif state == "closing":
            assert events == []
        else:
            self.is_open = False

    @precondition(lambda self: self.is_open)
    @rule(channel=channels_strategy)
    def refuse(self, channel):
        if self.channels.get(channel) in ("open", "message"):
            self.core.refuse(channel, ReplyCode.NOT_FOUND, "nothing there")
            self.channels[channel] = "closing"
        else:
            with pytest.raises(LocalProtocolError):
                self.core.refuse(channel, ReplyCode.NOT_FOUND, "nothing there")

    @precondition(lambda self: self.is_open)
    @rule(channel=channels_strategy)
    def agree_to_close(self, channel):
        state = self.channels.get(channel)
        events = hear(self.core, method(channel, m.ChannelCloseOk()))
        if state == "closing":
            assert events == []
            del self.channels[channel]
        else:
            self.is_open = False

    @precondition(lambda self: not self.is_open)
    @rule(late=methods.filter(lambda late: len(method(1, late)) <= MIN_FRAME_SIZE_BYTES))
    def begin_again(self, late):
        assert hear(self.core, method(1, late) + method(0, m.ConnectionCloseOk())) == []
        assert self.core.state is ConnectionState.FINISHED
        assert hear(self.core, method(1, late)) == []
        self.core = open_connection()
        self.channels = {}
        self.is_open = True

    @invariant()
    def the_core_is_where_the_model_is(self):
        expected = ConnectionState.OPEN if self.is_open else ConnectionState.CLOSING
        assert self.core.state is expected
        for channel in (1, 2, 3):
            is_usable = self.is_open and self.channels.get(channel) in ("open", "message")
            assert self.core.is_open(channel) is is_usable
        self.core.take_output()


TestMachine = Machine.TestCase
