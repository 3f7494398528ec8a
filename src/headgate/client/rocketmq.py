"""Topics and consumer groups as clients of RocketMQ have them, of a server or of the files of a root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.client.topics import Ask, DeadLetters, Row


class RocketTopics:
    """Topics and consumer groups of RocketMQ, of a server (`Management.rocketmq`) or of the files of a root.

    Every call raises ResourceNotFoundError for a missing one, ResourceExistsError (with a server its parent,
    PreconditionFailedError) for an existing one, AccessRefusedError, ConnectionLostError.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def topics(self) -> list[Row]:
        """The topics that the user may read: all streams but partitions, and all super streams."""
        return list(self._ask("GET", ["rocketmq", "topics"], {}, None))

    def topic(self, name: str) -> Row:
        """One topic, with its queues."""
        return dict(self._ask("GET", ["rocketmq", "topics", name], {}, None))

    def create_topic(self, name: str, *, queues: int | None = None, accepts: Sequence[str] | None = None) -> Row:
        """Make a topic; None: as the settings of the server say, and all kinds of messages."""
        return self._put("topics", name, "new", {"queues": queues, "accepts": accepts})

    def change_topic(self, name: str, *, queues: int | None = None, accepts: Sequence[str] | None = None) -> Row:
        """Give a topic more queues, or other kinds of messages."""
        return self._put("topics", name, "existing", {"queues": queues, "accepts": accepts})

    def remove_topic(self, name: str) -> None:
        """Delete a topic with its messages."""
        self._ask("DELETE", ["rocketmq", "topics", name], {}, None)

    def groups(self) -> list[Row]:
        """The consumer groups that the user may read."""
        return list(self._ask("GET", ["rocketmq", "groups"], {}, None))

    def group(self, name: str) -> Row:
        """One group."""
        return dict(self._ask("GET", ["rocketmq", "groups", name], {}, None))

    def create_group(self, name: str, settings: Mapping[str, object]) -> Row:
        """Declare a group; omitted settings have their defaults."""
        return self._put("groups", name, "new", settings)

    def change_group(self, name: str, settings: Mapping[str, object]) -> Row:
        """Give a group other settings; omitted settings stay."""
        return self._put("groups", name, "existing", settings)

    def reset_group(self, name: str, topic: str, *, to: str, queue: int | None = None) -> Row:
        """Let a group go on elsewhere in the queues of a topic, or in one; `to` as where a reader begins: `first`, …"""
        body = {"topic": topic, "to": to, "queue": queue}
        return dict(self._ask("POST", ["rocketmq", "groups", name, "reset"], {}, body))

    def remove_group(self, name: str) -> None:
        """Forget a group, and its places in all queues."""
        self._ask("DELETE", ["rocketmq", "groups", name], {}, None)

    def dead_letters(self, group: str) -> DeadLetters:
        """The dead letters of a group that were neither resubmitted nor deleted; without a target they go back."""
        return DeadLetters(self._ask, ["rocketmq", "groups", group, "dead-letters"])

    def _put(self, kind: str, name: str, only: str, given: Mapping[str, object]) -> Row:
        body = {key: value for key, value in given.items() if value is not None}
        return dict(self._ask("PUT", ["rocketmq", kind, name], {"only": only}, body))
