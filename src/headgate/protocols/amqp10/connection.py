"""A connection of AMQP 1.0 without its socket: bytes in, events out; commands in, bytes out.

Events come one at a time, so that one is answered before the next frame is examined. The SASL layer is mandatory and
comes first. Source: OASIS AMQP 1.0 part 2 (transport), section 2.4; part 5, section 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.protocols.amqp10.codes import Condition, SaslCode
from headgate.protocols.amqp10.composites import Composite, decode_composite
from headgate.protocols.amqp10.events import (
    Began,
    Closed,
    Ended,
    Event,
    HeadersExchanged,
    InitReceived,
    MechanismsOffered,
    Opened,
    OutcomeReceived,
)
from headgate.protocols.amqp10.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    HEARTBEAT,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    Frame,
    encode_frame,
    read_frame,
)
from headgate.protocols.amqp10.performatives import (
    PERFORMATIVES,
    SASL_FRAMES,
    Begin,
    Close,
    End,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Transfer,
)
from headgate.protocols.amqp10.session import Session, lowest_free
from headgate.protocols.amqp10.states import (
    CONNECTION_RECEIVED,
    CONNECTION_SENT,
    DISCARDING,
    SESSION_RECEIVED,
    ConnectionState,
    SessionState,
    received,
    sent,
)
from headgate.protocols.amqp10.terminus import Error
from headgate.protocols.amqp10.transfers import parse_run, split_message

Buffer = bytes | memoryview

_HEADER_BYTES = 8
_RUN_CODES = (0x14, 0x15)
_NOTHING: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The limits of one side.

    `max_links`, and `max_partial_bytes` of messages that have arrived in part, count over all sessions of a connection.
    """

    max_frame_size: int = 262_144
    channel_max: int = 65_535
    handle_max: int = 255
    max_links: int = 16_384
    incoming_window: int = 5_000
    max_message_size: int = 16 << 20
    max_partial_bytes: int = 64 << 20


class Connection:
    """One side of a connection.

    A server first waits for the SASL header; a client sends it at once. After a RemoteProtocolError the caller closes
    the connection (`close`), and no more bytes of the peer are examined. With `ignores_strays`, frames for unknown
    channels and handles, which peers may send after an end, are ignored; else they are a fault.
    """

    def __init__(self, *, is_server: bool, settings: ConnectionSettings | None = None) -> None:
        self.settings = ConnectionSettings() if settings is None else settings
        self.is_server = is_server
        self.state = ConnectionState.SASL_HEADER
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self.remote_channel_max = 0
        self.remote_idle_time_out: int | None = None
        self.link_count = 0
        self.partial_links = 0
        self.partial_bytes = 0
        self.ignores_strays = False
        self._buffer = b""
        self.output: list[Buffer] = []
        """Whole frames and headers to write, in order; `take_output` takes them."""
        self._sessions: dict[int, Session] = {}
        self._by_remote_channel: dict[int, Session] = {}
        if not is_server:
            self.output.append(SASL_HEADER)

    @property
    def sessions(self) -> list[Session]:
        """The sessions that have begun or are about to."""
        return list(self._sessions.values())

    @property
    def is_opened(self) -> bool:
        """Whether both sides have opened and none has closed."""
        return self.state is ConnectionState.OPENED

    def take_output(self) -> list[Buffer]:
        """The bytes to write now, in order."""
        output, self.output = self.output, []
        return output

    # What this side says

    def send(self, channel: int, performative: Composite, payload: bytes = b"") -> None:
        """Send a performative. Raises LocalProtocolError where the state does not allow it."""
        self.state = sent(CONNECTION_SENT, self.state, type(performative))
        kind = SASL_FRAME if isinstance(performative, SASL_FRAMES) else AMQP_FRAME
        self.output.append(encode_frame(channel, performative.encode() + payload, kind=kind))

    def offer_mechanisms(self, mechanisms: Sequence[str]) -> None:
        """As a server, after the SASL header: offer these mechanisms."""
        self.send(0, SaslMechanisms(tuple(mechanisms)))

    def send_init(self, mechanism: str, response: bytes, hostname: str | None = None) -> None:
        """As a client: send the credentials."""
        self.send(0, SaslInit(mechanism, response, hostname))

    def send_outcome(self, code: SaslCode) -> None:
        """As a server: send the outcome of the authentication. Any code but OK ends the connection."""
        self.send(0, SaslOutcome(int(code)))
        if code is not SaslCode.OK:
            self.state = ConnectionState.CLOSED

    def open(self, open_: Open) -> None:
        """Open, or answer the peer's open; the limits of the settings are filled in here."""
        open_.max_frame_size = self.settings.max_frame_size
        open_.channel_max = self.settings.channel_max
        self.send(0, open_)

    def close(self, error: Error | None = None) -> None:
        """Close the connection, in whatever state it is."""
        if self.state is ConnectionState.OPEN_RECEIVED:
            # The standard wants an open before a close.
            self.open(Open(""))
        if (self.state, Close) in CONNECTION_SENT:
            self.send(0, Close(error))
        else:
            self.state = ConnectionState.CLOSED

    def heartbeat(self) -> None:
        """Show the peer that this side lives."""
        if self.is_opened:
            self.output.append(HEARTBEAT)

    def begin(self) -> Session:
        """Begin a session, as a client. Raises LocalProtocolError where the peer takes no more channels."""
        channel = lowest_free(self._sessions)
        if channel > min(self.settings.channel_max, self.remote_channel_max):
            raise LocalProtocolError(f"the peer takes channels up to {self.remote_channel_max}")
        session = Session(self, channel=channel, remote_channel=None)
        self._sessions[channel] = session
        session.start()
        return session

    def transfer_frames(self, channel: int, transfer: Transfer, message: bytes) -> list[bytes]:
        """The frames of one delivery."""
        return split_message(channel, transfer, message, self.remote_max_frame_size)

    def check_partial_bytes(self, more: int) -> None:
        """Raise RemoteProtocolError if these bytes exceed the limit of partly received messages of a connection."""
        if self.partial_bytes + more > self.settings.max_partial_bytes:
            reason = f"{self.partial_bytes + more} bytes of messages that are not complete"
            raise RemoteProtocolError(reason, code=Condition.RESOURCE_LIMIT_EXCEEDED)

    # What the peer says

    def receive(self, data: bytes | memoryview) -> Iterator[Event]:
        """The events of some bytes of the peer; the caller must take all of them, in order.

        Raises RemoteProtocolError, after the events before it, for frames that the peer may not send. Bytes are kept
        while the SASL outcome is outstanding: after sending it, call again without bytes.
        """
        octets = memoryview(self._buffer + bytes(data) if self._buffer else data)
        self._buffer = b""
        position = 0
        try:
            while position < len(octets) and self.state is not ConnectionState.CLOSED:
                if self.state in (ConnectionState.SASL_HEADER, ConnectionState.AMQP_HEADER):
                    if len(octets) - position < _HEADER_BYTES:
                        break
                    position += _HEADER_BYTES
                    yield self._on_header(bytes(octets[position - _HEADER_BYTES : position]))
                    continue
                if self.is_server and self.state is ConnectionState.OUTCOME:
                    break
                if self.state is ConnectionState.OPENED:
                    behind, events = self._run(octets, position)
                    if behind > position:
                        position = behind
                        yield from events
                        continue
                frame = read_frame(octets, position, self.settings.max_frame_size)
                if frame is None:
                    break
                position = frame.stop
                yield from self._on_frame(octets, frame)
        except RemoteProtocolError:
            position = len(octets)
            raise
        finally:
            if position < len(octets) and self.state is not ConnectionState.CLOSED:
                self._buffer = bytes(octets[position:])

    def _run(self, octets: memoryview, position: int) -> tuple[int, Iterable[Event]]:
        """Transfers at `position` that can be taken at once: the position after them, and their events."""
        if self.partial_links or len(octets) - position < 16 or octets[position + 10] not in _RUN_CODES:
            return position, _NOTHING
        session = self._by_remote_channel.get(octets[position + 6] << 8 | octets[position + 7])
        if session is None or session.state is not SessionState.MAPPED or session.remote_channel is None:
            return position, _NOTHING
        run, behind = parse_run(
            np.frombuffer(octets, dtype=np.uint8),
            position,
            self.settings.max_frame_size,
            session.remote_channel,
            skip_settled=self.is_server and not session.kept,
        )
        return behind, _NOTHING if run is None else session.heard_run(run)

    def _on_header(self, header: bytes) -> HeadersExchanged:
        is_sasl = self.state is ConnectionState.SASL_HEADER
        expected = SASL_HEADER if is_sasl else AMQP_HEADER
        if header != expected:
            if self.is_server:
                self.output.append(expected)
            self.state = ConnectionState.CLOSED
            raise RemoteProtocolError(
                f"protocol header {header!r} where {expected!r} is expected", code=Condition.FRAMING_ERROR
            )
        if self.is_server:
            self.output.append(header)
        self.state = ConnectionState.MECHANISMS if is_sasl else ConnectionState.START
        return HeadersExchanged(is_sasl)

    def _on_frame(self, octets: memoryview, frame: Frame) -> Iterator[Event]:
        is_sasl = self.state in (ConnectionState.MECHANISMS, ConnectionState.INIT, ConnectionState.OUTCOME)
        if is_sasl is not (frame.type == SASL_FRAME):
            raise RemoteProtocolError(f"a frame of type {frame.type} in this layer", code=Condition.FRAMING_ERROR)
        if frame.body == frame.stop:
            if is_sasl:
                raise RemoteProtocolError("an empty frame in the SASL layer", code=Condition.FRAMING_ERROR)
            return
        body = octets[frame.body : frame.stop]
        head = bytes(body)
        performative, behind = decode_composite(head, 0, len(head))
        payload = body[behind:]
        if len(payload) and not isinstance(performative, Transfer):
            raise RemoteProtocolError(
                f"{len(payload)} bytes behind {type(performative).__name__}", code=Condition.FRAMING_ERROR
            )
        if not isinstance(performative, SASL_FRAMES if is_sasl else PERFORMATIVES):
            raise RemoteProtocolError(
                f"{type(performative).__name__} is no performative of this layer", code=Condition.DECODE_ERROR
            )
        following = received(CONNECTION_RECEIVED, self.state, type(performative))
        self._check_side(performative)
        was_discarding = self.state in DISCARDING
        if was_discarding and not isinstance(performative, Close):
            return
        self.state = following
        yield from self._on_performative(frame.channel, performative, payload, answered=was_discarding)

    def _check_side(self, performative: Composite) -> None:
        """SASL has two sides that say different things."""
        from_server = isinstance(performative, (SaslMechanisms, SaslOutcome))
        if (from_server and self.is_server) or (isinstance(performative, SaslInit) and not self.is_server):
            raise RemoteProtocolError(f"{type(performative).__name__} from the wrong side", code=Condition.NOT_ALLOWED)

    def _on_performative(
        self, channel: int, performative: Composite, payload: memoryview, *, answered: bool
    ) -> Iterator[Event]:
        match performative:
            case SaslMechanisms():
                yield MechanismsOffered(performative.sasl_server_mechanisms)
            case SaslInit():
                response = performative.initial_response or b""
                yield InitReceived(performative.mechanism, response, performative.hostname)
            case SaslOutcome():
                yield self._on_outcome(performative)
            case Open():
                yield self._on_open(performative)
            case Close():
                if not answered:
                    self.send(0, Close())
                yield Closed(performative.error)
            case Begin():
                yield from self._on_begin(channel, performative)
            case _:
                session = self._by_remote_channel.get(channel)
                if session is None:
                    if self.ignores_strays:
                        return
                    raise RemoteProtocolError(
                        f"{type(performative).__name__} on channel {channel}, where no session has begun",
                        code=Condition.NOT_ALLOWED,
                    )
                was_discarding = session.state in DISCARDING
                session.state = received(SESSION_RECEIVED, session.state, type(performative))
                if isinstance(performative, End):
                    yield self._on_end(session, performative, answered=was_discarding)
                elif not was_discarding:
                    yield from session.heard(performative, payload)

    def _on_outcome(self, outcome: SaslOutcome) -> OutcomeReceived:
        if outcome.code == SaslCode.OK:
            self.output.append(AMQP_HEADER)
        else:
            self.state = ConnectionState.CLOSED
        return OutcomeReceived(outcome.code)

    def _on_open(self, opened: Open) -> Opened:
        if opened.max_frame_size < MIN_MAX_FRAME_SIZE:
            reason = f"frames of {opened.max_frame_size} bytes; every peer takes {MIN_MAX_FRAME_SIZE}"
            raise RemoteProtocolError(reason, code=Condition.INVALID_FIELD)
        # Frames longer than our own limit bring nothing.
        self.remote_max_frame_size = min(opened.max_frame_size, max(self.settings.max_frame_size, MIN_MAX_FRAME_SIZE))
        self.remote_channel_max = opened.channel_max
        self.remote_idle_time_out = opened.idle_time_out
        return Opened(opened)

    def _on_begin(self, channel: int, begin: Begin) -> Iterator[Event]:
        if channel > self.settings.channel_max:
            reason = f"channel {channel}; at most {self.settings.channel_max} was agreed"
            raise RemoteProtocolError(reason, code=Condition.FRAMING_ERROR)
        if begin.remote_channel is not None:
            session = self._sessions.get(begin.remote_channel)
            if session is None or session.remote_channel is not None:
                reason = f"an answer to a begin on channel {begin.remote_channel}, which was not said"
                raise RemoteProtocolError(reason, code=Condition.INVALID_FIELD)
        else:
            if channel in self._by_remote_channel:
                raise RemoteProtocolError(f"a second begin on channel {channel}", code=Condition.NOT_ALLOWED)
            ours = channel if channel not in self._sessions else lowest_free(self._sessions)
            session = Session(self, channel=ours, remote_channel=channel)
            self._sessions[ours] = session
        session.remote_channel = channel
        self._by_remote_channel[channel] = session
        session.state = received(SESSION_RECEIVED, session.state, Begin)
        session.begun(begin)
        yield Began(session, begin)

    def _on_end(self, session: Session, end: End, *, answered: bool) -> Ended:
        if not answered:
            self.send(session.channel, End())
        session.drop_links()
        session.state = SessionState.UNMAPPED
        if session.remote_channel is not None:
            del self._by_remote_channel[session.remote_channel]
        del self._sessions[session.channel]
        return Ended(session, end.error)
