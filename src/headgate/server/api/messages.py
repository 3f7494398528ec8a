"""Looking at the messages of a stream: a page of them, without moving an offset."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec

from headgate.broker import BrokerStream, Permission
from headgate.derived import sources_of
from headgate.errors import LogError
from headgate.evaluate import Filter
from headgate.language import DEFAULT_DIALECT
from headgate.log import OffsetSpecification
from headgate.scan import OnCorrupt, ScanRequest
from headgate.server.api.answers import Row
from headgate.server.api.rights import found_stream
from headgate.server.browsing import Budget, Page, browse, counters_shown
from headgate.server.context import ServerContext
from headgate.server.http import Answer, Call, Endpoint, Group, RequestRefusedError

MOST_ROWS = 500
MOST_BUDGET_MS = 10_000
READS = 4
"""Limit: pages that are being read at a time; each has a thread."""


class SelectionQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages of a stream are shown."""

    filter: Annotated[str, msgspec.Meta(description="Only messages for which this filter is true.")] = ""
    language: Annotated[str, msgspec.Meta(description="The language of `filter`, as in `GET /api/languages`.")] = (
        DEFAULT_DIALECT
    )
    filter_value: Annotated[
        list[str], msgspec.Meta(description="Only chunks that may hold one of these filter values (stage 1).")
    ] = []
    match_unfiltered: Annotated[
        bool, msgspec.Meta(description="With `filter_value`: also messages without a filter value.")
    ] = False
    skip_damaged: Annotated[
        bool, msgspec.Meta(description="Pass over damaged chunks; otherwise they are an error.")
    ] = False

    def request(self, *, now_ms: int) -> ScanRequest:
        """The request of the read. Raises FilterError, ConfigError."""
        return ScanRequest(
            filter=Filter.stated(self.filter, self.language) if self.filter.strip() else None,
            filter_values=tuple(value.encode() for value in self.filter_value),
            match_unfiltered=self.match_unfiltered,
            now_ms=now_ms,
            on_corrupt=OnCorrupt.SKIP if self.skip_damaged else OnCorrupt.FAIL,
            sources=sources_of(),
        )


_PLACE = (
    "An offset, `first`, `last` (the newest chunk), `next` (the end), a time such as `2026-11-21T08:00:00Z`, or an "
    "interval before now such as `10m`."
)


class PageQuery(SelectionQuery, frozen=True, forbid_unknown_fields=True):
    """Which messages of a stream are shown, how many, and how long they are looked for."""

    start: Annotated[str, msgspec.Meta(description=_PLACE)] = msgspec.field(name="from", default="first")
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_ROWS, description="At most so many messages.")] = 50
    budget_ms: Annotated[
        int, msgspec.Meta(ge=0, le=MOST_BUDGET_MS, description="After this time what was found so far is shown.")
    ] = 1_000
    budget_messages: Annotated[
        int, msgspec.Meta(ge=1, description="After so many messages were examined what was found so far is shown.")
    ] = 10_000_000


class MessagesPage(msgspec.Struct, frozen=True):
    """Messages in stream order, and where to go on."""

    messages: Annotated[
        list[Row],
        msgspec.Meta(
            description="Rows with `offset`, `timestamp_ms`, `filter_value`, `message` (sections by name), `typed` "
            "(the same, each value with its AMQP type), and `body` with `kind` (data, value, sequence, none, "
            "malformed), `type` of a value, `size_bytes`, `text` (null if it is no text), `base64`, `is_truncated`. "
            "Integers beyond 2^53 are texts."
        ),
    ]
    next_from: Annotated[int | None, msgspec.Meta(description="`from` of the next page; null at the end.")]
    is_end: Annotated[bool, msgspec.Meta(description="Whether there was nothing more in the stream.")]
    end_offset: Annotated[int, msgspec.Meta(description="The offset behind the last message that was examined.")]
    counters: Annotated[
        dict[str, Any],
        msgspec.Meta(
            description="What was read for this page: chunks are read whole, so it may be more than its messages. "
            "`stage_1` is what was skipped unread, `stage_2` what was examined."
        ),
    ]
    error: Annotated[
        str | None, msgspec.Meta(description="Why the page ends at `next_from`, where messages cannot be read.")
    ] = None


def message_group(context: ServerContext) -> Group:
    """The endpoints of messages."""
    requests = _MessageRequests(context)
    return Group(
        "Messages",
        "The messages of a stream, for looking at them: no offset moves.",
        (
            Endpoint(
                "GET",
                "streams/{stream}/messages",
                "Messages of a stream from some place on, those that pass a filter; no offset moves. A rare message "
                "in a large stream takes several requests: each ends in time and says where to go on.",
                requests.page,
                permission="read the stream",
                query=PageQuery,
                answer=MessagesPage,
                errors=(404,),
            ),
        ),
    )


class _MessageRequests:
    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._broker = context.broker
        self._reads = 0

    async def page(self, call: Call) -> Answer:
        query: PageQuery = call.query
        stream = self._readable(call)
        now_ms, clock = self._context.clock.now_ms(), self._context.clock
        start = OffsetSpecification.parse(query.start)
        # In a thread: a long filter takes a while.
        request = await asyncio.to_thread(query.request, now_ms=now_ms)
        budget = Budget(query.limit, query.budget_ms / 1_000, query.budget_messages)
        if self._reads >= READS:
            raise RequestRefusedError(503, f"{READS} such requests are being answered, ask again later")
        self._reads += 1
        try:
            # In a thread: it reads files.
            with stream.guarded():
                page = await asyncio.to_thread(
                    browse, stream.stream, request, start, budget, now_ms=now_ms, clock=clock
                )
        finally:
            self._reads -= 1
        return Answer(_answered(page, stream))

    def _readable(self, call: Call) -> BrokerStream:
        """The stream of a request. Raises AccessRefusedError, ResourceNotFoundError, LogError."""
        name = call.names["stream"]
        self._broker.users.check(call.user, Permission.READ, name)
        return found_stream(self._broker, call.user, name)


def _answered(page: Page, stream: BrokerStream) -> MessagesPage:
    """The answer of a page; damage before its first message is an error."""
    error = None if page.error is None else unreadable(page.error, page.end_offset, stream)
    if error is not None and not page.messages:
        raise RequestRefusedError(500, error)
    return MessagesPage(
        page.messages,
        None if page.is_end else page.end_offset,
        page.is_end,
        page.end_offset,
        counters_shown(page.counters),
        error,
    )


def unreadable(error: LogError, offset: int, stream: BrokerStream) -> str:
    """The reason why a stream cannot be read from an offset on; damage becomes known to the server."""
    try:
        with stream.guarded():
            raise error
    except LogError as known:
        return f"offset {offset}: {known}; skip_damaged=true passes over damaged chunks"
