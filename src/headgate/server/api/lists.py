"""Lists of what clients do: consumers, stored offsets, connections."""

from __future__ import annotations

from headgate.server import listings as lists
from headgate.server.api.answers import Row
from headgate.server.context import ServerContext
from headgate.server.http import Answer, Call, Endpoint, Group, described


def list_group(context: ServerContext) -> Group:
    """The endpoints of these lists."""
    requests = _ListRequests(context)
    return Group(
        "Consumers and connections",
        "Who reads what, how far they are, and over which connections.",
        (
            Endpoint(
                "GET",
                "consumers",
                "Consumers of the streams that the user may read, receivers of subscriptions and readers of consumer "
                "groups: the filter in force, lag, filtered lag, credit, counters.",
                requests.consumers,
                answer=list[described(Row, "`counters` have the processor time, `cpu_ns`.")],  # type: ignore[misc]
            ),
            Endpoint(
                "GET",
                "offsets",
                "Offsets that were stored in these streams; `error` if those of a stream cannot be read.",
                requests.offsets,
                answer=list[Row],
            ),
            Endpoint(
                "GET",
                "connections",
                "The user's own connections, or all with the tag `administrator` or `monitoring`; `state` is `flow` "
                "while the server does not read from one.",
                requests.connections,
                answer=list[  # type: ignore[misc]
                    described(Row, "`peer_host` and `peer_port` are the client's, `host` and `port` the server's.")
                ],
            ),
        ),
    )


class _ListRequests:
    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def consumers(self, call: Call) -> Answer:
        await lists.counted(self._context)
        return Answer(list(lists.consumer_rows(self._context.broker, call.user)))

    async def offsets(self, call: Call) -> Answer:
        await lists.counted(self._context)
        return Answer(list(lists.offset_rows(self._context.broker, call.user)))

    async def connections(self, call: Call) -> Answer:
        return Answer(list(lists.connection_rows(self._context, call.user)))
