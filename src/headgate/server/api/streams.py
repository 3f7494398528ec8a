"""Streams: which there are, one with all that its files say, changed limits, deletion."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec

from headgate.broker import OF_REMOTE, Actor, Declared, Permission, arguments_declared, is_damage
from headgate.errors import AccessRefusedError, ConfigError, LogError, ResourceExistsError
from headgate.log import stream_info
from headgate.message.body_schema import MAX_SCHEMA_FILES_BYTES, BodySchema
from headgate.server import listings as lists
from headgate.server.api.answers import DeletedStream, Row, StreamArguments
from headgate.server.api.rights import check_administrator, found_stream, readable_stream
from headgate.server.context import ServerContext
from headgate.server.http import Answer, Call, Endpoint, ForceQuery, Group, RequestRefusedError, described, stored

_BODY_BYTES = MAX_SCHEMA_FILES_BYTES * 3 // 2
"""A schema is in base64."""


class PutStreamQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a stream is made or changed."""

    only: Annotated[
        Literal["new", "existing"],
        msgspec.Meta(description="`new`: make the stream; 409 if it is there. `existing`: change it; 404 if not."),
    ] = "existing"


def stream_group(context: ServerContext) -> Group:
    """The endpoints of streams."""
    requests = _StreamRequests(context)
    return Group(
        "Streams",
        "Streams, with their offsets, sizes, counters and arguments.",
        (
            Endpoint(
                "GET",
                "streams",
                "The streams that the user may read: offsets, messages, sizes, counters; `error` where one cannot be "
                "opened.",
                requests.listed,
                answer=list[_STREAM],  # type: ignore[valid-type]
            ),
            Endpoint(
                "GET",
                "streams/{stream}",
                "One stream with everything in its files; its index files are read for it.",
                requests.shown,
                permission="read the stream",
                answer=described(
                    Row,
                    "As in the list, with segments, chunks, identity, filter size, stored offsets, publishers and "
                    "their last sequences. `chunks` is null if there are segments in object storage.",
                ),
            ),
            Endpoint(
                "PUT",
                "streams/{stream}",
                "Gives a stream other limits; null takes one away. With the query `only=new` it makes a stream; its "
                "bodies may be declared as Avro or Protobuf by `body_schema`: `format` is `avro` or `protobuf`, `type` "
                'the full name of a message of Protobuf, `files` has the schema in base64 under `""`, or schemas under '
                "the ids of a registry.",
                requests.put,
                permission="configure the stream",
                query=PutStreamQuery,
                body=lists.StreamChange,
                example={"arguments": {"max-age": "7D", "max-length-bytes": None}},
                answer=StreamArguments,
                statuses=(HTTPStatus.OK, HTTPStatus.CREATED),
                errors=(409,),
                body_bytes=_BODY_BYTES,
            ),
            Endpoint(
                "DELETE",
                "streams/{stream}",
                "Deletes a stream; refused while it has clients or is damaged, unless the query says `force=true`.",
                requests.deleted,
                permission="configure the stream",
                query=ForceQuery,
                answer=DeletedStream,
                errors=(409,),
                action="stream.delete",
            ),
        ),
    )


def _schema_text(given: lists.BodySchemaFiles) -> str:
    """A schema, checked, as a stream keeps it. Raises RequestRefusedError."""
    try:
        schema = BodySchema.of_files(given.format, given.files, given.type)
        # The length first: checking a long one is work.
        text = schema.text
        schema.check()
    except ConfigError as error:
        raise RequestRefusedError(400, f"body_schema: {error}") from error
    return text


_STREAM = described(
    Row,
    "`match_index` has `lag_messages` and `lag_seconds`, null where the server calculates nothing; `counters` are of "
    "written messages, `reading` of the reads of all consumers, past ones included.",
)


class _StreamRequests:
    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._broker = context.broker

    async def listed(self, call: Call) -> Answer:
        await lists.counted(self._context)
        return Answer(list(lists.stream_rows(self._broker, call.user)))

    async def shown(self, call: Call) -> Answer:
        stream = readable_stream(self._broker, call.user, call.names["stream"])
        # In a thread: it examines the header of every chunk.
        with stream.guarded():
            info = await asyncio.to_thread(stream_info, stream.stream)
        return Answer(lists.stream_detail(self._broker, stream, info))

    async def put(self, call: Call) -> Answer:
        given = call.body.body_schema
        if call.query.only != "new":
            if given is not None:
                raise RequestRefusedError(400, "body_schema: a stream has its schema from when it is made (only=new)")
            return self._changed(call)
        if given is None or not self._may_configure(call.user, call.names["stream"]):
            # A refusal is recorded where the stream would be made.
            return self._created(call, None)
        # In a thread: reading a long schema takes a while, and the library of its format is imported for it.
        return self._created(call, await asyncio.to_thread(_schema_text, given))

    def _may_configure(self, user: str, name: str) -> bool:
        try:
            self._broker.users.check(user, Permission.CONFIGURE, name)
        except AccessRefusedError:
            return False
        return True

    def _created(self, call: Call, body_schema: str | None) -> Answer:
        name = call.names["stream"]
        session = self._broker.open_session(call.user, protocol="HTTP", connection=call.connection)
        try:
            declared = session.declare_stream(name, call.body.arguments, numbers_as_text=False, body_schema=body_schema)
        finally:
            session.close()
        if declared is Declared.EXISTS:
            raise ResourceExistsError("there is a stream of this name", subject=name)
        stream = found_stream(self._broker, call.user, name)
        return stored(StreamArguments(stream.name, arguments_declared(stream)), is_new=True)

    def _changed(self, call: Call) -> Answer:
        actor, detail = Actor(call.user, "HTTP", call.connection), {"body": msgspec.to_builtins(call.body)}
        # Recorded here: a stream that is made is recorded by the command of the session.
        with self._broker.audit.attempt(actor, "stream.change", call.names["stream"], detail):
            return self._changed_stream(call)

    def _changed_stream(self, call: Call) -> Answer:
        name = call.names["stream"]
        self._broker.users.check(call.user, Permission.CONFIGURE, name)
        stream = found_stream(self._broker, call.user, name)
        arguments = call.body.arguments
        if not arguments.keys().isdisjoint(OF_REMOTE):
            # The server writes there with its own rights.
            check_administrator(self._broker.users, call.user)
        self._broker.streams.change(stream.name, arguments)
        declared = arguments_declared(self._broker.catalogue.get(stream.name))
        return Answer(StreamArguments(stream.name, declared))

    async def deleted(self, call: Call) -> Answer:
        name, is_forced = call.names["stream"], call.query.force
        self._broker.users.check(call.user, Permission.CONFIGURE, name)
        try:
            stream = found_stream(self._broker, call.user, name)
        except LogError as error:
            if not is_damage(error):
                raise
            if not is_forced:
                raise RequestRefusedError(409, str(error)) from error
            self._broker.streams.delete_damaged(name)
            return Answer(DeletedStream(None))
        if not is_forced and (used_by := lists.users_of(self._broker, call.user, stream)):
            raise RequestRefusedError(409, f"stream {name!r} is in use by {', '.join(used_by)}")
        return Answer(DeletedStream(self._broker.streams.delete(stream)))
