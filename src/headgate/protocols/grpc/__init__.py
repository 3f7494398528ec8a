"""gRPC over HTTP/2 as a server speaks it: bytes of one connection in, calls out. Pure, and of no service in particular.

    GrpcConnection, GrpcLimits             one connection: calls that began, their messages, what they are answered
    CallBegan, CallReadable, CallWritable, CallEnded     its events
    StatusCode                             how a call ends
    ViolationError                         bytes that are no HTTP/2: the connection ends
    timeout_s                              the time that a call says it has

Hidden: frames and flow control of HTTP/2 (`frames`, `connection`), how messages and the ends of calls lie in them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.protocols.grpc.connection import (
        CallBegan,
        CallEnded,
        CallReadable,
        CallWritable,
        GrpcConnection,
        GrpcLimits,
        ViolationError,
    )
    from headgate.protocols.grpc.framing import StatusCode, timeout_s
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
