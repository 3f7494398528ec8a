"""The outlet of a connection, shared by all its parts that send: the core's output and buffers of chunks, in order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.protocols.stream import ResponseCode, ServerConnection, ServerState
from headgate.protocols.stream.frames import Frame
from headgate.scan.fetch import ChunkColumns
from headgate.server.flow_control import FlowControl
from headgate.server.transport import Transport

UInt64Array = NDArray[np.uint64]


class Outlet:
    """Sends on an open connection; on a closed one nothing is sent.

    Frames leave together at the end of the loop's turn, chunks after the frames that were sent before them.
    """

    def __init__(self, transport: Transport, flow: FlowControl, connection: ServerConnection) -> None:
        self._transport = transport
        self._flow = flow
        self._connection = connection
        self._flush_is_due = False

    @property
    def is_open(self) -> bool:
        """Whether the client still takes frames."""
        return self._connection.state in (ServerState.OPENED, ServerState.LEAVING)

    def send(self, frame: Frame) -> None:
        """Send a frame that answers no request."""
        if self.is_open:
            self._connection.send(frame)
            self.flush_later()

    def confirm(self, publisher_id: int, publishing_ids: UInt64Array) -> None:
        """Confirm entries: they are in the stream."""
        if self.is_open and len(publishing_ids):
            self._connection.confirm(publisher_id, publishing_ids)
            # There is nothing to wait for: the transport sends at the end of the turn all the same.
            self.flush()

    def refuse(self, publisher_id: int, publishing_ids: UInt64Array, code: ResponseCode) -> None:
        """Refuse entries: they are not in the stream."""
        if self.is_open and len(publishing_ids):
            self._connection.refuse(publisher_id, publishing_ids, code)
            self.flush_later()

    def ask_consumer(self, subscription_id: int, *, active: bool) -> int:
        """Ask a consumer to become active or inactive; returns the correlation id of its answer."""
        correlation = self._connection.ask_consumer(subscription_id, active=active)
        self.flush_later()
        return correlation

    def deliver(self, subscription_id: int, chunks: ChunkColumns, committed_chunk_id: int) -> int:
        """Send chunks, with the id of the stream's last chunk; returns the bytes written."""
        frames = self._connection.deliver(
            subscription_id,
            chunks.data,
            header_starts=chunks.header_starts,
            data_starts=chunks.data_starts,
            data_lengths=chunks.data_lengths,
            committed_chunk_id=committed_chunk_id,
        )
        self._flow.say(frames)
        return sum(map(len, frames))

    def flush(self) -> None:
        """Write the queued frames."""
        if self._connection.output:
            self._flow.say(self._connection.take_output())

    def flush_later(self) -> None:
        """Write the queued frames at the end of this turn of the loop."""
        if not self._flush_is_due:
            self._flush_is_due = True
            self._transport.call_soon(self._flush_due)

    def _flush_due(self) -> None:
        self._flush_is_due = False
        self.flush()
