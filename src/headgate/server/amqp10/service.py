"""The interface between a connection and the services that it carries.

    Service                 one kind of AMQP 1.0 service on one connection: its addresses, and what serves links to them
    ServedLink              what serves one link: it hears what the peer does there
    RefusedAttachError      why a link is not served

The handler of the connection knows only these. RabbitMQ's service is `rabbitmq`; another service is added beside it, in
the tuple that the handler is made with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from headgate.errors import ConfigError, HeadgateError
from headgate.protocols.amqp10 import Condition, Coordinator, Link, Source, Target, address_text
from headgate.protocols.amqp10.events import Deliveries, Outcomes
from headgate.protocols.amqp10.performatives import RECEIVER, SECOND, Attach
from headgate.protocols.sasl import Credentials

if TYPE_CHECKING:
    from headgate.server.amqp10.handler import Amqp10Handler


class ServedLink:
    """Serves one link; by default its methods do nothing."""

    def __init__(self, handler: Amqp10Handler, link: Link) -> None:
        self._handler = handler
        self._link = link
        self._is_closed = False

    @property
    def may_speak(self) -> bool:
        """Whether the link may still send. Ask again in each later turn than the calls below."""
        return not self._is_closed and self._link.is_attached

    def attached(self) -> None:
        """The link is attached: credit may be granted, deliveries may begin."""

    def take(self, deliveries: Deliveries) -> None:
        """The peer sent messages."""

    def aborted(self) -> None:
        """The peer aborted a message of which some has arrived."""

    def credit_changed(self) -> None:
        """The peer granted credit, or drains it."""

    def go_on(self) -> None:
        """The connection, or a session of it, takes deliveries again."""

    def tick(self, now_ms: int) -> None:
        """Time passes; about twice a second."""

    def decided(self, outcomes: Outcomes) -> None:
        """The peer sent the outcome of deliveries with tags of our own; `Link.settle` answers, now or later."""

    def has_lost(self, stream: str) -> bool:
        """Whether it served this deleted stream, even if one of the same name exists again."""
        return False

    def close(self) -> None:
        """The link has ended, or its connection. The last call."""
        self._is_closed = True


class Service(Protocol):
    """One kind of service on one connection, made with it."""

    refuses_without_termini: bool
    """Whether the answer to a refused attach has neither source nor target; else it lacks only our end's terminus."""

    ignores_strays: bool
    """Whether its clients may send frames for channels and handles that do not exist (any more)."""

    def mechanisms(self) -> Sequence[str]:
        """The SASL mechanisms of its clients, beside the mechanisms of users."""

    def knows(self, credentials: Credentials) -> bool:
        """Whether it accepts a client with these credentials, which need not be a user's. Called once, at login."""

    def claims(self, address: str | None) -> bool:
        """Whether an address is one of its own; None for a link that has none."""

    def serve(self, link: Link, attach: Attach) -> tuple[ServedLink, Attach | None]:
        """The server side of a link, and the answer to its attach; None if the answer comes in a later turn.

        A later answer is a call of the handler's `answer_attach` or `refuse_attach`. Raises RefusedAttachError;
        BrokerError, LogError, ConfigError and MessageError become the usual conditions.
        """

    def close(self) -> None:
        """The connection has ended, after its links."""


ServiceFactory: TypeAlias = Callable[["Amqp10Handler"], Service]
"""Makes the service of a connection."""


class RefusedAttachError(HeadgateError):
    """An attach that is answered with a detach; `condition` is a standard one or the service's own."""

    def __init__(self, condition: str, reason: str) -> None:
        super().__init__(reason)
        self.condition = condition
        self.reason = reason


def address_of(link: Link, attach: Attach) -> str | None:
    """The address that a link attaches to; None if there is none, or it is not text."""
    terminus = attach.target if link.role is RECEIVER else attach.source
    if terminus is None or isinstance(terminus, Coordinator):
        return None
    try:
        return address_text(terminus)
    except ConfigError:
        return None


def our_terminus(link: Link, attach: Attach, *, second: bool, dynamic: bool = False) -> Source | Target:
    """The terminus at our end of a link. Raises RefusedAttachError for a link that asks for something unsupported.

    `second`: whether receivers may settle second; `dynamic`: whether the node is made for the link.
    """
    if isinstance(attach.target, Coordinator):
        raise RefusedAttachError(Condition.NOT_IMPLEMENTED, "transactions are not served")
    if attach.incomplete_unsettled or (attach.unsettled is not None and attach.unsettled.value):
        raise RefusedAttachError(Condition.NOT_IMPLEMENTED, "links are not recovered: unsettled deliveries were given")
    if attach.rcv_settle_mode == SECOND and not second:
        raise RefusedAttachError(Condition.NOT_IMPLEMENTED, "rcv-settle-mode second is not served")
    terminus = attach.target if link.role is RECEIVER else attach.source
    if terminus is None:
        raise RefusedAttachError(Condition.INVALID_FIELD, "a link has a target or a source to attach to")
    if terminus.dynamic and not dynamic:
        raise RefusedAttachError(Condition.NOT_IMPLEMENTED, "nodes are not made for a link: dynamic")
    return terminus
