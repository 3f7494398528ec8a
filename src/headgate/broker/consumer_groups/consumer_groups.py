"""All consumer groups of a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.broker.consumer_groups.dead_letters import DeadLetterStreams
from headgate.broker.consumer_groups.declarations import (
    DEFAULT_GROUP,
    GroupDeclarations,
    GroupSettings,
    GroupStart,
    declarations_path,
)
from headgate.broker.consumer_groups.group_view import GroupView
from headgate.broker.consumer_groups.group_views import GroupViews
from headgate.broker.consumer_groups.pull_consumers import PullConsumers
from headgate.broker.consumer_groups.receive_requests import PendingReceive, ReceiveRequest
from headgate.broker.consumers import Consumers
from headgate.broker.delivery import Settled
from headgate.broker.environment import Environment
from headgate.broker.stream import BrokerStream
from headgate.errors import PreconditionFailedError, ResourceNotFoundError

if TYPE_CHECKING:
    from headgate.broker.settings import BrokerSettings


class ConsumerGroups:
    """The consumer groups of one broker; in its thread only."""

    def __init__(
        self,
        environment: Environment,
        settings: BrokerSettings,
        consumers: Consumers,
        dead_letter_streams: DeadLetterStreams,
        keep_pinned: Callable[[BrokerStream], bool],
    ) -> None:
        """Read the declarations; `keep_pinned` as for `GroupViews`. Raises ConfigError for a wrong file."""
        self._settings = settings
        self._declarations = GroupDeclarations(
            declarations_path(environment.root),
            may_create=settings.create_groups,
            most=settings.consumer_groups,
            changed=self._changed,
        )
        self.views = GroupViews(
            environment,
            consumers,
            dead_letter_streams,
            settings_of=self.settings_of,
            start_of=self.start_of,
            keep_pinned=keep_pinned,
        )
        """The places of groups in queues."""
        self.pull_consumers = PullConsumers(self.views, environment.now_ms)
        """The places of members that read for themselves."""

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
        """The settings of a group before its use; it is declared if needed, where the broker allows that.

        Raises ResourceNotFoundError where it does not, EntityDisabledError, LimitExceededError,
        PreconditionFailedError for a bad name.
        """
        return self._declarations.ensure(name)

    @property
    def may_create(self) -> bool:
        """Whether a group is declared by its first use."""
        return self._settings.create_groups

    def remove(self, name: str) -> None:
        """Forget a group, and its places in all queues. Raises ResourceNotFoundError, LogError."""
        if self.find(name) is None:
            raise ResourceNotFoundError("no such consumer group", subject=name)
        # The declaration last: if a place cannot be forgotten, the call can be repeated.
        self.views.removed(name)
        self._declarations.remove(name)

    def reset(self, stream: str, group: str, offset: int, then: Settled) -> None:
        """Set the offset at which a group goes on in a queue, and forget its settlements; `then` follows the commit.

        Raises PreconditionFailedError while a member reads the queue for itself, as it would go on from its own place;
        ResourceNotFoundError, StreamLockedError, LogError.
        """
        view = self.views.find_view(stream, group)
        if view is not None and view.is_pulled:
            raise PreconditionFailedError(
                f"a member of {group!r} reads it for itself, or did a moment ago, and would go on from where it is; "
                "stop it first",
                subject=stream,
            )
        self.pull_consumers.forget_place(stream, group)
        self.views.reset(stream, group, offset, then)

    def settings_of(self, name: str) -> GroupSettings:
        """The settings of a group, declared or not."""
        return self.find(name) or DEFAULT_GROUP

    def start_of(self, name: str) -> GroupStart:
        """The start of a group in a queue that is new to it."""
        return self.settings_of(name).start or self._settings.group_start

    # consuming

    def receive(self, request: ReceiveRequest) -> PendingReceive:
        """Give messages to a member of a group, as soon as there are some; see `ReceiveRequest`.

        Streams that cannot be used are passed over if another one can. If none can, raises the error of the last one:
        ResourceNotFoundError, StreamLockedError, other LogErrors. Also raises the errors of `ensure`.
        """
        self.ensure(request.group)
        return self.views.receive(request)

    def view(self, stream: str, group: str) -> GroupView:
        """The place of a group in a queue, to settle received messages; a new one begins as `start_of` says.

        Raises ResourceNotFoundError, StreamLockedError that names the holder of the ledger, LogError.
        """
        return self.views.view(stream, group)

    def tick(self) -> None:
        """Look after the declarations; called about once a second. Raises ConfigError, LogError."""
        self._declarations.tick()

    def _changed(self, name: str) -> None:
        """The settings of a group changed, or it was removed."""
        if self.find(name) is None:
            self.views.removed(name)
        else:
            self.views.changed(name)
