"""Back-tests and builds that users start, as jobs of Spark."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from headgate.broker import Permission
from headgate.errors import AccessRefusedError, ConfigError, ResourceNotFoundError, UnsupportedError
from headgate.server.api.rights import readable_stream
from headgate.server.context import ServerContext
from headgate.server.http import Answer, Call, Endpoint, Group
from headgate.server.listings import may_see_all
from headgate.server.spark_jobs import SparkWork


class SparkJobKind(StrEnum):
    """What a job does; the others make what is missing for sealed segments."""

    BACK_TEST = "back-test"
    COLUMNS = "columns"
    LOOKUP = "lookup"
    """Lookup files are made by one process, without Spark."""
    MATCH_INDEX = "match-index"


class SparkJobBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job over one stream.

    A back-test tries `rules`, each as in `PUT …/rules/R`, or without any those of the topic, over the messages from
    `from` to `until` (an offset, `first`, `next`, an interval or a time).
    """

    kind: SparkJobKind
    stream: str
    rules: list[dict[str, Any]] = []
    start: str = msgspec.field(name="from", default="first")
    until: str | None = None
    samples: Annotated[int, msgspec.Meta(ge=0, le=100)] = 3


class SparkOffer(msgspec.Struct, frozen=True):
    """Whether this server starts jobs of Spark."""

    is_offered: bool


class StartedSparkJob(msgspec.Struct, frozen=True):
    """The id of the job, for `GET /api/jobs/ID`."""

    job: str


def spark_job_group(context: ServerContext) -> Group:
    """The endpoints of these jobs."""
    requests = _SparkJobRequests(context)
    return Group(
        "Jobs of Spark",
        "Back-tests and builds, where `[spark] master` is configured. They are jobs as others: `GET /api/jobs` shows "
        "them, `DELETE` cancels.",
        (
            Endpoint("GET", "spark-jobs", "Whether this server starts them.", requests.offer, answer=SparkOffer),
            Endpoint(
                "POST",
                "spark-jobs",
                "Starts a back-test, which writes nothing, or a build of column files, lookup files or of the match "
                "index.",
                requests.started,
                permission="read the stream for a back-test, configure it for a build",
                body=SparkJobBody,
                example={"kind": "back-test", "stream": "orders", "rules": [{"name": "big", "sql": "quantity > 100"}]},
                answer=StartedSparkJob,
                statuses=(202,),
                errors=(403, 404, 405),
                action="spark.start",
            ),
            Endpoint(
                "GET",
                "spark-jobs/{job}/report",
                "What a job of Spark wrote, when it has ended: a back-test one object, a build one for each stream.",
                requests.reported,
                permission="the job's user, or the tag `administrator` or `monitoring`",
                answer=list[dict[str, Any]],
                errors=(403, 404),
            ),
        ),
    )


class _SparkJobRequests:
    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._broker = context.broker

    async def offer(self, _call: Call) -> Answer:
        return Answer(SparkOffer(self._context.settings.spark.master is not None))

    async def started(self, call: Call) -> Answer:
        master = self._context.settings.spark.master
        if master is None:
            raise UnsupportedError("this server starts no jobs of Spark; its operator can set [spark] master")
        body: SparkJobBody = call.body
        if body.kind is not SparkJobKind.BACK_TEST:
            self._broker.users.check(call.user, Permission.CONFIGURE, body.stream)
            if body.rules:
                raise ConfigError(f"rules: found some for a job of kind {body.kind}; expected none")
        stream = readable_stream(self._broker, call.user, body.stream)
        common = [str(stream.stream.path), "--json", f"--root={self._broker.root}"]
        work = SparkWork([*_command(body, master), *common])
        job = self._broker.jobs.start(f"spark {body.kind}", call.user, stream.name, work)
        return Answer(StartedSparkJob(job.id), 202, made=job.id)

    async def reported(self, call: Call) -> Answer:
        job = self._broker.jobs.get(call.names["job"])
        if job.user != call.user and not may_see_all(self._broker.users, call.user):
            raise AccessRefusedError(f"job {job.id} is that of another user")
        if not isinstance(job.work, SparkWork):
            raise ResourceNotFoundError("it is no job of Spark", subject=job.id)
        return Answer(job.work.report)


def _command(body: SparkJobBody, master: str) -> list[str]:
    if body.kind is SparkJobKind.LOOKUP:
        return ["lookup", "build"]
    on_spark = f"--master={master}"
    if body.kind is SparkJobKind.COLUMNS:
        return ["columns", "build", on_spark]
    if body.kind is SparkJobKind.MATCH_INDEX:
        return ["index", "build", on_spark]
    # After `=` a text that begins with a hyphen is a value, too.
    options = [f"--from={body.start}", f"--samples={body.samples}"]
    if body.until is not None:
        options.append(f"--until={body.until}")
    options += [f"--rule={msgspec.json.encode(rule).decode()}" for rule in body.rules]
    return ["rule", "test", on_spark, *options]
