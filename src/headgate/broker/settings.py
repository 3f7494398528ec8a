"""Settings of a broker, as its owner chooses them at the start."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from headgate.broker.audit import AuditSettings
from headgate.broker.consumer_groups import GroupStart, MessageIds
from headgate.derived.match_index import IndexSettings
from headgate.log import DiskFile, Durability, OpenFile, StreamArguments


class TopicCreation(Enum):
    """The clients for which a missing topic is made."""

    NEVER = "never"
    PRODUCERS = "producers"
    ANYBODY = "anybody"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Storage, users and limits of a broker; `users_file` None: `.headgate/users.json` under the root.

    The default user is made if that file is missing; without a password it cannot log in by one.

    Limits: `filter_values` of a consumer, as each is looked for in every chunk; `entities`. `match_index` are the
    settings for the match index of a stream whose first expression comes from a consumer group. `open_file` opens the
    files that streams are written to: tests use one that fails. `placement` are the arguments `remote…` of new streams.
    `audit` None: administrative changes are not recorded.

    `message_ids` gives the ids of a message for RocketMQ's clients, see `MessageIds`; dead letters carry them.

    Missing message topics are made as `create_topics` says, with `topic_queues` queues; missing consumer groups if
    `create_groups`, at most `consumer_groups`, beginning at `group_start`.
    """

    durability: Durability = Durability.PROCESS
    users_file: Path | None = None
    default_user: str = "guest"
    default_has_password: bool = True
    filter_values: int = 1_000
    entities: int = 10_000
    match_index: IndexSettings = field(default_factory=IndexSettings)
    create_topics: TopicCreation = TopicCreation.PRODUCERS
    topic_queues: int = 4
    create_groups: bool = True
    consumer_groups: int = 10_000
    group_start: GroupStart = GroupStart.FIRST_WHILE_YOUNG
    message_ids: MessageIds | None = None
    open_file: OpenFile = DiskFile
    placement: StreamArguments = field(default_factory=StreamArguments)
    audit: AuditSettings | None = None
