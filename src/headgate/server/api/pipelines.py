"""Pipelines: what jobs of Spark report of themselves."""

from __future__ import annotations

from headgate.client import PipelineReport
from headgate.server.api.answers import Named, Row
from headgate.server.context import ServerContext
from headgate.server.http import Answer, Call, Endpoint, Group, described
from headgate.server.listings import may_see_all


def pipeline_group(context: ServerContext) -> Group:
    """The endpoints of pipelines."""
    requests = _PipelineRequests(context)
    return Group(
        "Pipelines",
        "Jobs of Spark that report to this server (`headgate run --report`, `headgate.spark.report_to`), in memory.",
        (
            Endpoint(
                "GET",
                "pipelines",
                "The user's own pipelines, or all with the tag `administrator` or `monitoring`; the last reported "
                "first.",
                requests.listed,
                answer=list[described(Row, "The report, its user, when it came, and rows over time.")],  # type: ignore[misc]
            ),
            Endpoint(
                "PUT",
                "pipelines/{pipeline}",
                "Says how a job of Spark goes. A name belongs to the first user that reports it; the last 50 of each "
                "user are kept, with at most 8 MiB.",
                requests.reported,
                body=PipelineReport,
                example={
                    "state": "running",
                    "parts": [{"name": "orders", "kind": "sink", "state": "running", "rows": 9}],
                },
                answer=Named,
                errors=(403,),
                body_bytes=4 << 20,
            ),
        ),
    )


class _PipelineRequests:
    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def listed(self, call: Call) -> Answer:
        sees_all = may_see_all(self._context.broker.users, call.user)
        return Answer(list(self._context.pipelines.rows(call.user, sees_all=sees_all)))

    async def reported(self, call: Call) -> Answer:
        name = call.names["pipeline"]
        self._context.pipelines.put(name, call.body, call.user, self._context.clock.now_ms())
        return Answer(Named(name))
