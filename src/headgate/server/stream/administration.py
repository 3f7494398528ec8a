"""Commands about streams, offsets and super streams: each asks the broker and has one reply."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from headgate.broker import Declared, Permission, Session, arguments
from headgate.errors import HeadgateError, LogError, ResourceExistsError, ResourceNotFoundError
from headgate.log import MAX_REFERENCE_BYTES, OffsetSpecification
from headgate.protocols.stream import SERVER_VERSIONS, ResponseCode, response_code
from headgate.protocols.stream import frames as f
from headgate.server.context import ServerContext
from headgate.server.listings import may_read
from headgate.server.transport import Peer

_NO_LEADER = 0xFFFF

logger = logging.getLogger("headgate.server.stream")


class Administration:
    """Answers the commands that concern no publisher and no subscription of the connection."""

    def __init__(self, session: Session, context: ServerContext, peer: Peer) -> None:
        self._session = session
        self._context = context
        self._peer = peer
        self._answers: dict[type[f.Request], Callable[[Any], f.Reply | f.MetadataReply]] = {
            f.ExchangeCommandVersions: lambda _: f.ExchangeCommandVersionsReply(SERVER_VERSIONS),
            f.Create: self._create,
            f.Delete: self._delete,
            f.Metadata: self._metadata,
            f.QueryPublisherSequence: self._query_sequence,
            f.QueryOffset: self._query_offset,
            f.Route: self._route,
            f.Partitions: self._partitions,
            f.CreateSuperStream: self._create_super_stream,
            f.DeleteSuperStream: self._delete_super_stream,
            f.StreamStats: self._stream_stats,
        }

    def answer(self, request: f.Request) -> f.Reply | f.MetadataReply:
        """The reply, without its correlation id. Raises HeadgateError if the reply is only a code."""
        return self._answers[type(request)](request)

    def store_offset(self, frame: f.StoreOffset) -> None:
        """Store an offset; the protocol has no answer for a refusal, so it is only logged."""
        try:
            self._session.store_offset(frame.stream, frame.reference, frame.offset)
        except HeadgateError as error:
            logger.info("user %r: an offset was not stored: %s", self._session.user, error)

    def _create(self, request: f.Create) -> f.CreateReply:
        declared = self._session.declare_stream(request.stream, _known(request.stream, request.arguments))
        return f.CreateReply(code=ResponseCode.OK if declared is Declared.CREATED else ResponseCode.STREAM_EXISTS)

    def _delete(self, request: f.Delete) -> f.DeleteReply:
        self._session.delete_stream(request.stream)
        return f.DeleteReply()

    def _metadata(self, request: f.Metadata) -> f.MetadataReply:
        host, port = self._context.advertised_address(self._peer)
        places = []
        # RabbitMQ answers a request without streams with no stream; here the answer has all readable streams.
        for stream in request.streams or self._readable_streams():
            code = self._code_of(stream)
            places.append((stream, code, 0 if code == ResponseCode.OK else _NO_LEADER, ()))
        return f.MetadataReply(((0, host, port),), tuple(places))

    def _readable_streams(self) -> list[str]:
        users, user = self._context.broker.users, self._session.user
        return [stream for stream in self._session.streams() if may_read(users, user, stream)]

    def _code_of(self, stream: str) -> ResponseCode:
        try:
            self._session.declare_stream(stream, {}, passive=True)
        except ResourceNotFoundError:
            return ResponseCode.STREAM_DOES_NOT_EXIST
        except LogError:
            return ResponseCode.STREAM_NOT_AVAILABLE
        except HeadgateError as error:
            return response_code(error)
        return ResponseCode.OK

    def _query_sequence(self, request: f.QueryPublisherSequence) -> f.QueryPublisherSequenceReply:
        if not request.reference:
            return f.QueryPublisherSequenceReply(code=self._code_of(request.stream))
        return f.QueryPublisherSequenceReply(self._session.last_sequence(request.stream, request.reference) or 0)

    def _query_offset(self, request: f.QueryOffset) -> f.QueryOffsetReply:
        if not 1 <= len(request.reference.encode()) <= MAX_REFERENCE_BYTES:
            # No offset can be stored under this name.
            code = self._code_of(request.stream)
            return f.QueryOffsetReply(code=ResponseCode.NO_OFFSET if code == ResponseCode.OK else code)
        stored = self._session.stored_offset(request.stream, request.reference)
        return f.QueryOffsetReply(code=ResponseCode.NO_OFFSET) if stored is None else f.QueryOffsetReply(stored)

    def _route(self, request: f.Route) -> f.RouteReply:
        return f.RouteReply(self._session.route_super_stream(request.super_stream, request.routing_key))

    def _partitions(self, request: f.Partitions) -> f.PartitionsReply:
        return f.PartitionsReply(self._session.partitions(request.super_stream))

    def _create_super_stream(self, request: f.CreateSuperStream) -> f.CreateSuperStreamReply:
        try:
            self._session.create_super_stream(
                request.name, request.partitions, request.binding_keys, _known(request.name, request.arguments)
            )
        except ResourceExistsError as error:
            logger.info("user %r: super stream %r was not created: %s", self._session.user, request.name, error)
            return f.CreateSuperStreamReply(code=ResponseCode.STREAM_EXISTS)
        return f.CreateSuperStreamReply()

    def _delete_super_stream(self, request: f.DeleteSuperStream) -> f.DeleteSuperStreamReply:
        self._session.delete_super_stream(request.name)
        return f.DeleteSuperStreamReply()

    def _stream_stats(self, request: f.StreamStats) -> f.StreamStatsReply:
        self._context.broker.users.check(self._session.user, Permission.READ, request.stream)
        info = self._session.stream_info(request.stream)
        return f.StreamStatsReply(
            (
                ("first_chunk_id", info.first_chunk_id),
                ("last_chunk_id", info.last_chunk_id),
                ("committed_chunk_id", info.committed_chunk_id),
                ("committed_offset", info.next_offset - 1 if info.committed_chunk_id >= 0 else -1),
                (f"{f.IDENTITY_STATISTIC}{info.identity}", 0),
                *(((f.BODY_SCHEMA_STATISTIC, 1),) if info.has_body_schema else ()),
            )
        )

    def resolution(self, request: f.ResolveOffsetSpecification) -> Callable[[], f.ResolveOffsetSpecificationReply]:
        """A call for any thread that gives the reply, as object storage may have to be asked. Raises HeadgateError."""
        resolved = self._session.resolution(request.stream, request.offset)
        return lambda: f.ResolveOffsetSpecificationReply(OffsetSpecification.offset(resolved()))


def _known(stream: str, given: Any) -> dict[str, object]:
    """The arguments that streams have, or that are refused; this protocol ignores all others, as in the original."""
    known = arguments.OF_STREAMS | arguments.REFUSED
    unknown = set(given) - known
    if unknown:
        logger.info("stream %r: arguments that the protocol does not have are ignored: %s", stream, sorted(unknown))
    return {key: value for key, value in given.items() if key in known}
