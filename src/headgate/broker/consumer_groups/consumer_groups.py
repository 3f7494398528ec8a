"""All consumer groups of a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.broker.consumer_groups.declarations import DEFAULT_GROUP, GroupDeclarations, GroupSettings, GroupStart
from headgate.broker.consumer_groups.pulling import Pulling
from headgate.broker.consumer_groups.receiving import ReceiveRequest, Receiving
from headgate.broker.consumer_groups.view import GroupView
from headgate.broker.consumer_groups.views import GroupViews
from headgate.broker.consumption import Settled
from headgate.errors import PreconditionFailedError, ResourceNotFoundError
from headgate.log import PRIVATE_FOLDER

if TYPE_CHECKING:
    from headgate.broker.broker import Broker


class ConsumerGroups:
    """The consumer groups of one broker; in its thread only."""

    def __init__(self, broker: Broker, make_views: Callable[[ConsumerGroups], GroupViews]) -> None:
        """Read the declarations. Raises ConfigError for a file that is wrong."""
        settings = self._settings = broker.settings
        self._declarations = GroupDeclarations(
            broker.root / PRIVATE_FOLDER / "consumer-groups.json",
            may_create=settings.create_groups,
            most=settings.consumer_groups,
            changed=self._changed,
        )
        self.views = make_views(self)
        """Their places in queues."""
        self.pulling = Pulling(self.views, broker.now_ms)
        """Those of members that read for themselves."""

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

    @property
    def may_create(self) -> bool:
        """Whether a group is declared by its first use."""
        return self._settings.create_groups

    def remove(self, name: str) -> None:
        """Forget a group, and its places in all queues. Raises ResourceNotFoundError, LogError."""
        if self.find(name) is None:
            raise ResourceNotFoundError("no such consumer group", subject=name)
        # The declaration last: while a place cannot be forgotten, the same can be asked again.
        self.views.removed(name)
        self._declarations.remove(name)

    def reset(self, stream: str, group: str, offset: int, then: Settled) -> None:
        """A group goes on at an offset of a queue, whatever it has settled there, or not; `then` behind the commit.

        Raises PreconditionFailedError while a member reads the queue for itself, who would go on from where it is;
        ResourceNotFoundError, StreamLockedError, LogError.
        """
        view = self.views.find_view(stream, group)
        if view is not None and view.is_pulled:
            raise PreconditionFailedError(
                f"a member of {group!r} reads it for itself, or did a moment ago, and would go on from where it is; "
                "stop it first",
                subject=stream,
            )
        self.pulling.forget_place(stream, group)
        self.views.reset(stream, group, offset, then)

    def settings_of(self, name: str) -> GroupSettings:
        """The settings of a group that has messages, declared or not."""
        return self.find(name) or DEFAULT_GROUP

    def start_of(self, name: str) -> GroupStart:
        """Where a group begins in a queue that is new to it."""
        return self.settings_of(name).start or self._settings.group_start

    # consuming

    def receive(self, request: ReceiveRequest) -> Receiving:
        """Give messages to a member of a group, as soon as there are some; see `ReceiveRequest`.

        Streams that cannot be used are passed over, as long as there is another one; where there is none the error of
        the last one is raised: ResourceNotFoundError, StreamLockedError, other LogErrors. Errors of `ensure`, too.
        """
        self.ensure(request.group)
        return self.views.receive(request)

    def view(self, stream: str, group: str) -> GroupView:
        """The place of a group in a queue, to settle what was received of it; a new one begins as `start_of` says.

        Raises ResourceNotFoundError, StreamLockedError that names who has the ledger, LogError.
        """
        return self.views.view(stream, group)

    def tick(self) -> None:
        """About once a second. Raises ConfigError, LogError."""
        self._declarations.tick()

    def _changed(self, name: str) -> None:
        """The settings of a group are others, or it is gone."""
        if self.find(name) is None:
            self.views.removed(name)
        else:
            self.views.changed(name)
