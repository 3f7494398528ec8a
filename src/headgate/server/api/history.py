"""The last quarter of an hour, for charts."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headgate.errors import UnsupportedError
from headgate.server.api.rights import readable_stream
from headgate.server.context import ServerContext
from headgate.server.history import History, HistoryAnswer
from headgate.server.http import Answer, Call, Endpoint, Group
from headgate.server.listings import counted


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of what."""

    stream: Annotated[str | None, msgspec.Meta(description="The history of this stream, not of the server.")] = None


def history_group(context: ServerContext) -> Group:
    """The endpoint of the history."""
    requests = _HistoryRequests(context)
    return Group(
        "History",
        "What the server did in the last quarter of an hour.",
        (
            Endpoint(
                "GET",
                "history",
                "Samples of the last 15 minutes, one every 5 s: messages and bytes published and delivered per second, "
                "bytes spared by stage 1, messages removed by stage 2, the worst lag, dead letters, failures of rules, "
                "connections.",
                requests.shown,
                permission="any user; read the stream",
                query=HistoryQuery,
                answer=HistoryAnswer,
                errors=(403, 404),
            ),
        ),
    )


class _HistoryRequests:
    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def shown(self, call: Call) -> Answer:
        name = call.query.stream
        if name is None:
            # Lags count messages.
            await counted(self._context)
            return Answer(self._history().series())
        stream = readable_stream(self._context.broker, call.user, name)
        return Answer(self._history().stream_series(stream.name))

    def _history(self) -> History:
        if self._context.history is None:
            raise UnsupportedError("this server keeps no history")
        return self._context.history
