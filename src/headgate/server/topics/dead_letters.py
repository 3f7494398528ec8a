"""Endpoints of dead letters: resubmission, with a dry run and as a job, and deletion of chosen ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

import msgspec

from headgate.broker import Broker, Resubmission, ResubmissionTrial, Resubmitter
from headgate.errors import ConfigError
from headgate.ledger import MAX_OFFSET, copy_number
from headgate.server.http import Answer, Endpoint, described
from headgate.server.listings import may_read
from headgate.server.topics.broker_answers import told
from headgate.server.topics.calls import CopiesQuery, TopicCall, TopicEndpoints
from headgate.server.topics.rows import Row, copy_row
from headgate.topic import SubscriptionName

MOST_CHOSEN = 10_000
"""Limit: dead letters that one request chooses; all of them have no limit."""

MOST_TRIED = 100_000
"""Limit: dead letters that one dry run examines."""

_BODY_BYTES = 1 << 20
"""Limit: larger than elsewhere, for chosen dead letters."""

_A_PAGE = 256
_PATH = "topics/{topic}/subscriptions/{subscription}/dead-letters"


class ChosenCopy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One dead letter, by its place among the dead letters, as lists of them show it."""

    offset: Annotated[int, msgspec.Meta(ge=0, le=MAX_OFFSET)]
    rule: Annotated[int, msgspec.Meta(ge=0, le=0)] = 0


Chosen = Annotated[
    list[ChosenCopy] | None, msgspec.Meta(description=f"Null: all that there are now; at most {MOST_CHOSEN} chosen.")
]


class ResubmissionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters are published again, where, and how they are changed."""

    copies: Chosen = None
    to: Annotated[
        str | None, msgspec.Meta(description="A topic, queue or stream; null: the topic that they came from.")
    ] = None
    properties: dict[str, Any] = msgspec.field(name="set", default_factory=dict)
    """Application properties, plain or typed JSON."""
    removed: list[str] = msgspec.field(name="remove", default_factory=list)
    """Names of application properties."""
    rate_per_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """At most so many a second; null: as fast as the server has time."""
    dry_run: bool = False
    """Say what the rules would do; nothing changes."""
    include_untaken: bool = False
    """Publish those that no rule of the target takes, too; nobody gets them there."""


class DeletionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters are deleted."""

    copies: Chosen = None


class Deleted(msgspec.Struct, frozen=True):
    """How many dead letters were deleted; those that a receiver holds stay, unless all were to be deleted."""

    deleted: int


class DeadLetterRequests:
    """The endpoints of the dead letters of subscriptions, and of consumer groups."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._make = partial(TopicEndpoints(broker).endpoint, dead_letters=True, body_bytes=_BODY_BYTES)

    def group_endpoints(self) -> Iterator[Endpoint]:
        """Those of consumer groups."""
        path = "rocketmq/groups/{group}/dead-letters"
        yield self._make(
            "GET",
            f"{path}/messages",
            "Dead letters of a group that were neither resubmitted nor deleted, from an offset on. The stream "
            "`%DLQ%GROUP` keeps all of them for its consumers.",
            self._group_messages,
            permission="read the group",
            query=CopiesQuery,
            answer=list[Row],
        )
        yield self._make(
            "POST",
            f"{path}/resubmissions",
            "Publishes dead letters of a group again, as a job, as for subscriptions. With `to` null each goes to the "
            "queue that it came from.",
            self._resubmit_group,
            permission="read the group; *write* on the topics that they go to",
            body=ResubmissionBody,
            example={"set": {"retried": True}, "dry_run": True},
            answer=described(Row, "As for subscriptions."),
            statuses=(HTTPStatus.OK, HTTPStatus.ACCEPTED),
        )
        yield self._make(
            "POST",
            f"{path}/delete",
            "Deletes chosen dead letters of a group, or all, from this list.",
            self._delete_of_group,
            permission="read the group",
            body=DeletionBody,
            example={"copies": [{"offset": 0}]},
            answer=Deleted,
        )

    def endpoints(self) -> Iterator[Endpoint]:
        """Resubmission and deletion."""
        yield self._make(
            "POST",
            f"{_PATH}/resubmissions",
            "Publishes dead letters again, as a job: each once, also if the server is killed meanwhile. With `dry_run` "
            "it says which rules would take them, and changes nothing.",
            self._resubmit,
            permission="read the subscription; *write* on the target",
            body=ResubmissionBody,
            example={"copies": [{"offset": 0, "rule": 0}], "set": {"retried": True}, "dry_run": True},
            answer=described(
                Row,
                "`job`, the id of the job, with status 202; or of a dry run `copies`, `taken` and `failing` by "
                "subscription and rule, as far as the user may read these, "
                f"the first `taken_by_none`, `num_taken_by_none`, `is_complete`: false after {MOST_TRIED:,} copies.",
            ),
            statuses=(HTTPStatus.OK, HTTPStatus.ACCEPTED),
        )
        yield self._make(
            "POST",
            f"{_PATH}/delete",
            "Deletes chosen dead letters, or all.",
            self._delete,
            permission="read the subscription",
            body=DeletionBody,
            example={"copies": [{"offset": 0, "rule": 0}]},
            answer=Deleted,
        )

    async def _resubmit(self, call: TopicCall) -> Answer:
        body, request = call.body, _request(call.body)
        if not body.dry_run:
            job = call.session.resubmit(call.name, request, rate_per_s=body.rate_per_s)
            return Answer({"job": job.id}, HTTPStatus.ACCEPTED)
        return await self._tried(call, call.session.resubmitter(call.name, request), body.to or call.topic)

    async def _resubmit_group(self, call: TopicCall) -> Answer:
        body, request = call.body, _request(call.body)
        if not body.dry_run:
            job = call.session.resubmit_of_group(call.group, request, rate_per_s=body.rate_per_s)
            return Answer({"job": job.id}, HTTPStatus.ACCEPTED)
        return await self._tried(call, call.session.group_resubmitter(call.group, request), body.to or "")

    async def _tried(self, call: TopicCall, resubmitter: Resubmitter, target: str) -> Answer:
        """The answer of a dry run. Who may publish to its target need not know which rules that has."""
        trial = ResubmissionTrial()
        while not resubmitter.is_over and trial.copies < MOST_TRIED:
            page = resubmitter.page(_A_PAGE)
            if page:
                # In a thread: the rules of a topic may be many.
                trial.add(page, await asyncio.to_thread(resubmitter.decision(page)))
        trial.is_complete = resubmitter.is_over

        def is_known(subscription: str) -> bool:
            names = (target, str(SubscriptionName(target, subscription)))
            return any(may_read(self._broker.users, call.session.user, name) for name in names)

        told = trial.as_dict()
        for kind in ("taken", "failing"):
            told[kind] = [row for row in told[kind] if is_known(row["subscription"])]
        return Answer(told)

    async def _group_messages(self, call: TopicCall) -> Answer:
        letters = call.session.group_dead_letters(call.group)
        if letters is None:
            return Answer([])
        query: CopiesQuery = call.query
        copies, _ = letters.peek(query.start, query.limit)
        return Answer([copy_row(each, encoded=query.encoded) for each in copies])

    async def _delete_of_group(self, call: TopicCall) -> Answer:
        chosen = _chosen(call.body.copies)
        return Answer(Deleted(await told(partial(call.session.delete_dead_letters_of_group, call.group, chosen))))

    async def _delete(self, call: TopicCall) -> Answer:
        chosen = _chosen(call.body.copies)
        if chosen is None:
            return Answer(Deleted(await told(partial(call.session.purge, call.name))))
        deleted = await told(partial(call.session.delete_dead_letters, call.name, chosen))
        return Answer(Deleted(len(deleted)))


def _request(body: ResubmissionBody) -> Resubmission:
    return Resubmission(
        body.to, _chosen(body.copies), body.properties, tuple(body.removed), includes_untaken=body.include_untaken
    )


def _chosen(copies: list[ChosenCopy] | None) -> list[int] | None:
    if copies is not None and len(copies) > MOST_CHOSEN:
        raise ConfigError(f"copies: found {len(copies)}, expected at most {MOST_CHOSEN}, or null for all")
    return None if copies is None else [copy_number(each.offset, each.rule) for each in copies]
