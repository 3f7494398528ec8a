"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

DEFAULT_ROOT = Path("headgate-data")

Root: TypeAlias = Annotated[
    Path, Parameter(name="--root", env_var="HEADGATE_ROOT", help="Folder that holds the streams.")
]
AsJson: TypeAlias = Annotated[bool, Parameter(name="--json", negative=(), help="Write JSON lines.")]
StreamText: TypeAlias = Annotated[str, Parameter(help="Name of a stream under --root, or the folder of any stream.")]
TopicName: TypeAlias = Annotated[str, Parameter(help="Name of the topic.")]
SubscriptionName: TypeAlias = Annotated[str, Parameter(help="Name of the subscription.")]
LockTimeout: TypeAlias = Annotated[float, Parameter(help="Seconds to wait for another writer.")]
Dialect: TypeAlias = Annotated[
    str | None, Parameter(name="--dialect", help="Language of the filter; the default is `amqp`.")
]
FilterValues: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--filter-value",
        negative=(),
        help="Wanted filter value (stage 1): chunks without it are skipped. Repeatable.",
    ),
]
MatchUnfiltered: TypeAlias = Annotated[
    bool,
    Parameter(negative=(), help="With --filter-value: also read chunks with messages that have no filter value."),
]
