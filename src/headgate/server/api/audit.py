"""The audit stream: who changed what, when and from where; for administrators."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

import msgspec

from headgate.broker import AUDIT_STREAM, AuditRow, read_audit
from headgate.server.api.rights import check_administrator
from headgate.server.context import ServerContext
from headgate.server.http import ADMINISTRATORS, Answer, Call, Endpoint, Group

_MOST_ROWS = 500


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which entries are shown."""

    start: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="The offset to begin at; without it the last entries are shown."),
    ] = msgspec.field(name="from", default=None)
    since_ms: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None, msgspec.Meta(description="Only entries from this time on.")
    ] = None
    user: Annotated[str | None, msgspec.Meta(description="Only what this user did.")] = None
    action: Annotated[
        str | None, msgspec.Meta(description="Only this action, such as `stream.delete`, or all on `stream`.")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=_MOST_ROWS, description="At most so many entries.")] = 100


class AuditCounts(msgspec.Struct, frozen=True):
    """Entries since the server started; `lost` ones could not be written, `left_out` were too many."""

    enabled: bool
    written: int
    lost: int
    left_out: int


def audit_group(context: ServerContext) -> Group:
    """The endpoints of the audit stream."""
    requests = _AuditRequests(context)
    only: dict[str, Any] = {"permission": ADMINISTRATORS}
    return Group(
        "Audit",
        f"Administrative changes over every protocol, from the stream `{AUDIT_STREAM}`.",
        (
            Endpoint(
                "GET",
                "audit",
                "Entries in order: who did what, to which, from where, with what outcome. A request examines at most "
                "10,000 entries.",
                requests.listed,
                query=AuditQuery,
                answer=list[AuditRow],
                **only,
            ),
            Endpoint(
                "GET", "audit/counts", "How many entries were written.", requests.counts, answer=AuditCounts, **only
            ),
        ),
    )


class _AuditRequests:
    def __init__(self, context: ServerContext) -> None:
        self._broker = context.broker

    async def listed(self, call: Call) -> Answer:
        check_administrator(self._broker.users, call.user)
        stream = self._broker.catalogue.find(AUDIT_STREAM)
        if stream is None:
            return Answer([])
        query: AuditQuery = call.query
        with stream.guarded():
            # In a thread: it reads many messages.
            read = partial(
                read_audit,
                stream.stream,
                start=query.start,
                since_ms=query.since_ms,
                limit=query.limit,
                user=query.user,
                action=query.action,
            )
            return Answer(await asyncio.to_thread(read))

    async def counts(self, call: Call) -> Answer:
        check_administrator(self._broker.users, call.user)
        audit = self._broker.audit
        counters = audit.counters
        return Answer(AuditCounts(audit.is_on, counters.written, counters.lost, counters.left_out))
