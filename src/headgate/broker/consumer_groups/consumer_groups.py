"""All consumer groups of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.broker.consumer_groups.declarations import GroupDeclarations, GroupSettings
from headgate.log import PRIVATE_FOLDER

if TYPE_CHECKING:
    from headgate.broker.broker import Broker


class ConsumerGroups:
    """The consumer groups of one broker; in its thread only."""

    def __init__(self, broker: Broker) -> None:
        """Read the declarations. Raises ConfigError for a file that is wrong."""
        settings = broker.settings
        self._declarations = GroupDeclarations(
            broker.root / PRIVATE_FOLDER / "consumer-groups.json",
            may_create=settings.create_groups,
            most=settings.consumer_groups,
            changed=self._changed,
        )

    def find(self, name: str) -> GroupSettings | None:
        """The settings of a group; None if it is not declared."""
        return self._declarations.find(name)

    def names(self) -> list[str]:
        """The names of all groups, in order."""
        return self._declarations.names()

    def declare(self, name: str, settings: GroupSettings) -> None:
        """Declare a group, or give it other settings. Raises PreconditionFailedError, LimitExceededError, LogError."""
        self._declarations.declare(name, settings)

    def ensure(self, name: str) -> GroupSettings:
        """The settings of a group that is about to be used; it is declared if need be, and the broker allows it.

        Raises ResourceNotFoundError where it does not, EntityDisabledError, LimitExceededError,
        PreconditionFailedError for a name.
        """
        return self._declarations.ensure(name)

    def remove(self, name: str) -> None:
        """Forget a group, and its places in all queues. Raises ResourceNotFoundError, LogError."""
        self._declarations.remove(name)

    def tick(self) -> None:
        """About once a second. Raises ConfigError, LogError."""
        self._declarations.tick()

    def _changed(self, name: str) -> None:
        """The settings of a group are others, or it is gone."""
