"""One request about topics: the names in its path, and the session of its user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from headgate.broker import Broker, Session
from headgate.errors import ResourceNotFoundError
from headgate.ledger import MAX_OFFSET, MAX_RULE, copy_number
from headgate.server.http import Answer, Call, Endpoint
from headgate.server.listings import near_names
from headgate.topic import SubscriptionName

MOST_COPIES = 1000
"""Limit: copies that one request shows, receives or settles."""

_SHOWN_COPIES = 100


class PutQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a PUT may do."""

    only: Annotated[
        Literal["new", "existing"] | None,
        msgspec.Meta(description="`new`: 409 if it is there; `existing`: 404 if it is not."),
    ] = None


class CopiesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which copies are shown, and how."""

    offset: Annotated[int, msgspec.Meta(ge=0, le=MAX_OFFSET, description="The offset to begin at.")] = msgspec.field(
        name="from", default=0
    )
    rule: Annotated[int, msgspec.Meta(ge=0, le=MAX_RULE, description="The rule to begin at, at that offset.")] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_COPIES, description="At most so many copies.")] = _SHOWN_COPIES
    encoded: Annotated[bool, msgspec.Meta(description="Show each message as its bytes, in base64.")] = False

    @property
    def start(self) -> int:
        """The copy to begin at, by offset and rule."""
        return copy_number(self.offset, self.rule)


@dataclass(frozen=True, slots=True)
class TopicCall:
    """A call with the broker session of its user, which ends with the answer."""

    call: Call
    session: Session
    dead_letters: bool = False

    @property
    def topic(self) -> str:
        """The topic in the path."""
        return self.call.names["topic"]

    @property
    def subscription(self) -> str:
        """The subscription in the path."""
        return self.call.names["subscription"]

    @property
    def group(self) -> str:
        """The consumer group in the path."""
        return self.call.names["group"]

    @property
    def rule(self) -> str:
        """The rule in the path."""
        return self.call.names["rule"]

    @property
    def name(self) -> SubscriptionName:
        """The subscription, or its dead letters."""
        return SubscriptionName(self.topic, self.subscription, self.dead_letters)

    @property
    def query(self) -> Any:
        """The decoded query."""
        return self.call.query

    @property
    def body(self) -> Any:
        """The decoded body."""
        return self.call.body

    @property
    def only(self) -> str | None:
        """Whether a PUT may only create (`new`) or only change (`existing`); None: both."""
        only: str | None = self.call.query.only
        return only


TopicHandler = Callable[[TopicCall], Awaitable[Answer]]


class TopicEndpoints:
    """Makes endpoints whose handlers get a session of the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def endpoint(
        self, method: str, path: str, summary: str, handler: TopicHandler, *, dead_letters: bool = False, **more: Any
    ) -> Endpoint:
        """An endpoint; `more` are further fields of `Endpoint`."""
        return Endpoint(method, path, summary, partial(self._in_session, handler, dead_letters), **more)

    async def _in_session(self, handler: TopicHandler, dead_letters: bool, call: Call) -> Answer:
        session = self._broker.open_session(call.user, protocol="HTTP", connection=call.connection)
        try:
            return await handler(TopicCall(call, session, dead_letters))
        except ResourceNotFoundError as error:
            near = near_names(self._broker, call.user, error)
            raise ResourceNotFoundError(f"{error.reason}{near}", subject=error.subject) from error
        finally:
            session.close()
