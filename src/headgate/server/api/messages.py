"""Looking at the messages of a stream, without moving an offset: a page of them, or live as they come.

Files are read in threads. A follower reads for a few hundredths of a second at a time, and then waits for nine times as
long, so whatever its filter it takes a tenth of a core at most; two followers read at a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec

from headgate.broker import Broker, BrokerStream, Permission
from headgate.derived import sources_of
from headgate.errors import (
    AccessRefusedError,
    HeadgateError,
    LogError,
    StreamNotFoundError,
    StreamReplacedError,
)
from headgate.evaluate import Filter
from headgate.language import DEFAULT_DIALECT
from headgate.log import OffsetSpecification
from headgate.scan import OnCorrupt, ScanRequest
from headgate.server.api.answers import Row
from headgate.server.api.rights import found_stream
from headgate.server.browsing import Budget, Follower, Page, Turn, browse, counters_shown
from headgate.server.context import ServerContext
from headgate.server.http import (
    Access,
    Answer,
    Call,
    Endpoint,
    EventStream,
    Group,
    Problem,
    RequestRefusedError,
    described,
    problem_of,
)

MOST_ROWS = 500
MOST_BUDGET_MS = 10_000
READS = 4
"""Limit: pages that are being read at a time; each has a thread."""

FOLLOWERS = 16
FOLLOWERS_PER_USER = 4
"""Limits: followers that are open at a time."""
READERS = 2
"""Limit: followers that read at a time; each has a thread then."""
BUDGET_S = 0.025
"""After this time a turn of a follower ends, behind the mebibytes that it looks at."""
TURN_S = 0.25
"""A follower has a turn at most this often."""
WAITING_PER_READING = 9
"""After a turn a follower waits at least so many times as long as the turn took."""
MOST_PAUSE_S = 2.0
QUIET_S = 1.0
"""While nothing matches, counters are sent at most this often."""
HEARTBEAT_S = 10.0
"""While nothing happens, a comment is sent this often."""


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


class FollowQuery(SelectionQuery, frozen=True, forbid_unknown_fields=True):
    """Which messages of a stream are shown as they come."""

    start: Annotated[str, msgspec.Meta(description="Where to begin, as for `messages`.")] = msgspec.field(
        name="from", default="next"
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


def message_group(context: ServerContext, access: Access) -> Group:
    """The endpoints of messages."""
    requests = _MessageRequests(context)
    following = _Following(context, access)
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
            Endpoint(
                "GET",
                "streams/{stream}/follow",
                "Messages of a stream as they come, those that pass a filter, as server-sent events; no offset moves. "
                "All are counted; where many pass, a sample is shown.",
                following.follow,
                permission="read the stream",
                query=FollowQuery,
                answer=described(str, "Events `batch` and `error`, and comments while nothing happens."),
                media_type="text/event-stream",
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
        stream = _readable(self._broker, call)
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


class _Following:
    """Followers of streams, as server-sent events."""

    def __init__(self, context: ServerContext, access: Access) -> None:
        self._context = context
        self._broker = context.broker
        self._access = access
        self._open: Counter[str] = Counter()
        """How many each user has."""
        self._reading = asyncio.Semaphore(READERS)

    async def follow(self, call: Call) -> Answer:
        stream = _readable(self._broker, call)
        query: FollowQuery = call.query
        start = OffsetSpecification.parse(_resumed(call) or query.start)
        now_ms = self._context.clock.now_ms()
        # In threads: a long filter takes a while, and files are read.
        request = await asyncio.to_thread(query.request, now_ms=now_ms)
        if self._open.total() >= FOLLOWERS or self._open[call.user] >= FOLLOWERS_PER_USER:
            raise RequestRefusedError(
                503,
                f"{self._open[call.user]} followers of the user are open, {self._open.total()} in all; at most "
                f"{FOLLOWERS_PER_USER} of a user and {FOLLOWERS} in all",
            )
        self._open[call.user] += 1
        try:
            with stream.guarded():
                follower = await asyncio.to_thread(Follower, stream.stream, request, start, now_ms=now_ms)
        except BaseException:
            self._open[call.user] -= 1
            raise

        def on_end() -> None:
            self._open[call.user] -= 1
            # In a thread: a turn may be going on, and ends before the files are closed.
            asyncio.get_running_loop().run_in_executor(None, follower.close)

        return Answer(EventStream(self._events(call, stream, follower), on_end))

    async def _events(self, call: Call, stream: BrokerStream, follower: Follower) -> AsyncIterator[bytes]:
        """The events, until the right to read is over, the stream cannot be read, or the server stops."""
        clock = self._context.clock
        password_hash = self._password_hash(call.user)
        yield b": headgate\n\n"
        examined, quiet_s = 0, 0.0
        while self._context.is_started:
            if (reason := self._ended(call, stream, password_hash)) is not None:
                yield _error(Problem.of(403, reason))
                return
            try:
                with stream.guarded():
                    async with self._reading:
                        turn = await asyncio.to_thread(follower.turn, clock, BUDGET_S)
            except (StreamNotFoundError, StreamReplacedError):
                yield _error(Problem.of(404, f"{stream.name}: the stream was deleted"))
                return
            except HeadgateError as error:
                yield _error(problem_of(error))
                return
            pause_s = min(MOST_PAUSE_S, max(TURN_S, turn.took_s * WAITING_PER_READING))
            quiet_s += pause_s
            is_news = turn.matched > 0 or turn.lost > 0
            if is_news or (turn.counters.chunks_examined > examined and quiet_s >= QUIET_S):
                yield await asyncio.to_thread(_batch, turn, stream.next_offset)
                examined, quiet_s = turn.counters.chunks_examined, 0.0
            elif quiet_s >= HEARTBEAT_S:
                yield b": still here\n\n"
                quiet_s = 0.0
            await asyncio.sleep(pause_s)

    def _ended(self, call: Call, stream: BrokerStream, password_hash: str | None) -> str | None:
        """Why the user may not read on; None: the user may."""
        identity = call.identity
        if identity is None or not self._access.is_still_known(identity):
            return "the login has ended"
        if identity.token is None and self._password_hash(call.user) != password_hash:
            return "the login has ended"
        try:
            self._broker.users.check(call.user, Permission.READ, stream.name)
        except AccessRefusedError as error:
            return str(error)
        return None

    def _password_hash(self, user: str) -> str | None:
        users = self._broker.users
        return users.get(user).password_hash if user in users else None


def _resumed(call: Call) -> str | None:
    """Where a browser goes on after its connection was lost."""
    last = None if call.request is None else call.request.headers.get("last-event-id")
    return last if last is not None and last.isascii() and last.isdigit() else None


def _batch(turn: Turn, end: int) -> bytes:
    value = {
        "messages": turn.messages,
        "matched": turn.matched,
        "shown": len(turn.messages),
        "lost": turn.lost,
        "counters": counters_shown(turn.counters),
        "next_offset": turn.next_offset,
        "lag": max(0, end - turn.next_offset),
    }
    return b"event: batch\nid: %d\ndata: %s\n\n" % (turn.next_offset, msgspec.json.encode(value))


def _error(problem: Problem) -> bytes:
    return b"event: error\ndata: %s\n\n" % msgspec.json.encode(problem)


def _readable(broker: Broker, call: Call) -> BrokerStream:
    """The stream of a request. Raises AccessRefusedError, ResourceNotFoundError, LogError."""
    name = call.names["stream"]
    broker.users.check(call.user, Permission.READ, name)
    return found_stream(broker, call.user, name)


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
