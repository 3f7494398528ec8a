"""Names of entities: compared without case, the exact spelling first."""

from __future__ import annotations

from pathlib import Path

from headgate.errors import RuleError, RuleExistsError, RuleLimitError
from headgate.log import STREAMS_FOLDER, stream_names
from headgate.topic import JOURNAL_NAME, SubscriptionName, folded


def spelled_alike(root: Path, name: str) -> list[str]:
    """The streams whose names equal this one without case, in order. Cost: a look at the folder with all streams."""
    wanted = folded(name)
    return sorted(found for found in stream_names(root) if folded(found) == wanted)


def check_new_name(root: Path, name: str, *, most: int) -> None:
    """Raise RuleExistsError if a stream has that name in another case, RuleError for a name with another meaning.

    RuleLimitError if there are `most` entities. A plain stream of exactly that name becomes the entity.
    """
    if SubscriptionName.parse(name) is not None:
        raise RuleError("the name means a subscription of a topic", topic=name)
    if name.startswith("$"):
        raise RuleError("the name begins with $, as those of the places of the service do", topic=name)
    if len(stream_names(root)) >= most and len(list(root.glob(f"{STREAMS_FOLDER}/*/{JOURNAL_NAME}"))) >= most:
        raise RuleLimitError(f"there are {most} topics and queues, as many as may be", topic=name)
    others = [found for found in spelled_alike(root, name) if found != name]
    if others:
        raise RuleExistsError(f"is there already, written {others[0]!r}: names are compared without case", topic=name)
