"""Requests of clients: tokens to `$cbs`, and the operations of an entity's `$management`.

Source: servicebus_wire, sections 3 and 7.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.broker import (
    CopyState,
    Delivery,
    ReadCopy,
    Receiver,
    Right,
    SessionReceiver,
    Settler,
    copy_of,
    is_deferred,
    sequence_number,
)
from headgate.errors import AuthenticationError, ConfigError, HeadgateError
from headgate.message import AmqpValue, EncodedMessages
from headgate.protocols.amqp10 import Condition, Coordinator, Link
from headgate.protocols.servicebus import (
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    SESSION_LOCK_LOST,
    Refusal,
    RequestMessage,
    ServiceBusCondition,
    deleted,
    enumerated,
    listed_sessions,
    not_implemented,
    peeked,
    received,
    refusal_of,
    renewed,
    renewed_session,
    scheduled,
    told_rule,
    told_state,
)
from headgate.protocols.servicebus.requests import (
    NO_CONTENT,
    AddRule,
    CancelScheduled,
    DeleteMessages,
    Disposition,
    EnumerateRules,
    GetSessionState,
    ListSessions,
    PeekMessages,
    ReceiveDeferred,
    RemoveRule,
    RenewLocks,
    RenewSession,
    ScheduleMessages,
    SetSessionState,
    UnknownOperation,
    UpdateDispositions,
)
from headgate.server.amqp10 import Request, RequestNode
from headgate.server.servicebus.descriptions import rule_definition, rule_description
from headgate.server.servicebus.entity_link import EntityNode, RefusedError
from headgate.server.servicebus.receiver_link import given_message, reason_of
from headgate.server.servicebus.sender_link import Outgoing

if TYPE_CHECKING:
    from headgate.server.amqp10 import Amqp10Handler
    from headgate.server.servicebus.access import ConnectionAccess

T = TypeVar("T")

MOST_PEEKED = 1_000
"""Limit: peeked messages per response."""

MOST_DELETED = 4_000
"""Limit: messages deleted by one request."""


class _ReplyingNode(RequestNode):
    """A node that sends each response on the link that the request names."""

    def route(self, request: Request, links: Sequence[Link]) -> Link | None:
        """The link with the target or the name in the request's `reply-to`; without one, the newest of its session."""
        reply_to = RequestMessage(request.message).reply_to
        if reply_to is not None:
            return next((link for link in links if reply_to in (_target(link), link.name)), None)
        return next((link for link in reversed(links) if link.session is request.link.session), None)


class ClaimsNode(_ReplyingNode):
    """`$cbs`: clients get their rights by tokens."""

    def __init__(self, handler: Amqp10Handler, access: ConnectionAccess) -> None:
        super().__init__(handler)
        self._access = access

    def respond(self, request: Request) -> bytes:
        """The response to a request with a token. Raises MessageError for bytes that are no message."""
        message = RequestMessage(request.message)
        try:
            token = message.put_token()
            self._access.put(token.audience, token.token)
        except (ConfigError, AuthenticationError) as error:
            return message.claim_refused(refusal_of(error))
        return message.claimed()


class ManagementNode(_ReplyingNode):
    """The management of an entity, a subscription or dead letters."""

    def __init__(self, handler: Amqp10Handler, access: ConnectionAccess, node: EntityNode) -> None:
        super().__init__(handler)
        self._access = access
        self._node = node

    def respond(self, request: Request) -> bytes | None:
        """The response to a request; None if it comes later. Raises MessageError for bytes that are no message."""
        message = RequestMessage(request.message)
        try:
            return self._respond(message, request.answer)
        except RefusedError as error:
            return message.refused(error.refusal)
        except HeadgateError as error:
            return message.refused(refusal_of(error, str(self._node)))

    def _respond(self, message: RequestMessage, later: Callable[[bytes], None]) -> bytes | None:
        operation = message.operation()
        sends = isinstance(operation, ScheduleMessages | CancelScheduled)
        self._access.check(Right.SEND if sends else Right.LISTEN, self._node.path)
        match operation:
            case PeekMessages() as asked:
                return self._peek(message, asked, later)
            case RenewLocks(tokens):
                settler, until = self._settler(tokens), list[int]()
                answer = self._answer(message, later, lambda: renewed(len(tokens), until[0]))
                until.append(settler.renew(tokens, answer))
                return None
            case UpdateDispositions() as asked:
                session = self._session_of(message, asked.session)
                self._settle(asked, session, self._answer(message, later, dict))
                return None
            case ReceiveDeferred() as asked:
                self._receive_deferred(message, asked, later)
                return None
            case ScheduleMessages(messages):
                self._schedule(message, messages, later)
                return None
            case CancelScheduled(numbers):
                self._cancel(message, numbers, later)
                return None
            case DeleteMessages() as asked:
                self._delete(message, asked, later)
                return None
            case RenewSession(session):
                held = self._held(session)
                body = functools.partial(_renewed_session, held)
                held.renew_lock(self._answer(message, later, body, lost=SESSION_LOCK_LOST))
                return None
            case GetSessionState(session):
                return message.answered(told_state(self._held(session).state()))
            case SetSessionState(session, state):
                self._held(session).set_state(state, self._answer(message, later, dict, lost=SESSION_LOCK_LOST))
                return None
            case ListSessions() as asked:
                self._list_sessions(message, asked, later)
                return None
            case AddRule(rule):
                topic, subscription = self._subscription
                told = self._recorded("rule.create", rule.name, message, later)
                self._handler.context.broker.entities.add_rule(topic, subscription, rule_definition(rule), told)
                return None
            case RemoveRule(name):
                topic, subscription = self._subscription
                told = self._recorded("rule.delete", name, message, later)
                self._handler.context.broker.entities.remove_rule(topic, subscription, name, told)
                return None
            case EnumerateRules() as asked:
                return self._enumerate(message, asked)
            case UnknownOperation(name):
                raise RefusedError(not_implemented(f"the operation {name!r} is not served"))

    # messages

    def _peek(self, message: RequestMessage, asked: PeekMessages, later: Callable[[bytes], None]) -> bytes | None:
        name, topic = self._node.receivable, self._node.entity.topic
        first, count = copy_of(asked.from_sequence_number), min(asked.count, MOST_PEEKED)
        tell = functools.partial(self._peeked, message)
        session = self._session_of(message, asked.session)
        if session is None:
            return tell(topic.browser.peek(name.subscription, first, count, dead_letters=name.is_dead_letter))
        if name.is_dead_letter:
            raise RefusedError(Refusal(Condition.NOT_ALLOWED, 400, f"{self._node}: dead letters are in no session"))
        topic.browser.peek_session(name.subscription, session, first, count, self._told(message, later, tell))
        return None

    def _peeked(self, message: RequestMessage, copies: Sequence[ReadCopy]) -> bytes:
        if not copies:
            return message.answered(status=NO_CONTENT)
        time_to_live_ms = self._node.time_to_live_ms
        return message.answered(peeked([given_message(self._node, copy, time_to_live_ms) for copy in copies]))

    def _settler(self, tokens: Sequence[bytes], session: str | None = None) -> Settler[Receiver]:
        """The settler for messages by their tokens, on whichever link they were received.

        With a session it is the receiver of that session on this connection, whose lock holds all messages that are
        not deferred.
        """
        held = None if session is None else self._held(session)
        if held is not None and not any(map(is_deferred, tokens)):
            return held.settler
        name, kinds = self._node.receivable, set(map(is_deferred, tokens))
        if len(kinds) > 1:
            raise _refusal("locks of deferred messages and of others are for two requests")
        return self._node.entity.topic.receivers.settler(
            name.subscription, dead_letters=name.is_dead_letter, deferred=kinds == {True}
        )

    def _settle(
        self, asked: UpdateDispositions, session: str | None, answer: Callable[[list[bool] | HeadgateError], None]
    ) -> None:
        settler = self._settler(asked.tokens, session)
        properties = self._node.kept(asked.properties)
        match asked.disposition:
            case Disposition.COMPLETED:
                settler.complete(asked.tokens, answer)
            case Disposition.ABANDONED:
                settler.release(asked.tokens, answer, counts=True, properties=properties)
            case Disposition.SUSPENDED:
                why = reason_of(self._node, asked.properties, asked.reason, asked.description)
                settler.dead_letter(asked.tokens, answer, why=why)
            case Disposition.DEFERRED:
                settler.defer(asked.tokens, answer, properties=properties)

    def _receive_deferred(
        self, message: RequestMessage, asked: ReceiveDeferred, later: Callable[[bytes], None]
    ) -> None:
        name, time_to_live_ms = self._node.receivable, self._node.time_to_live_ms
        if name.is_dead_letter:
            raise RefusedError(MESSAGE_NOT_FOUND)
        session = self._session_of(message, asked.session)
        if session is not None:
            self._held(session)

        def told(result: list[Delivery]) -> bytes:
            if not result:
                return message.refused(MESSAGE_NOT_FOUND)
            state = CopyState.DEFERRED
            found = [(each.token, given_message(self._node, each, time_to_live_ms, state=state)) for each in result]
            return message.answered(received(found))

        self._node.entity.topic.receivers.receive_deferred(
            name.subscription,
            [number - 1 for number in asked.sequence_numbers],
            self._told(message, later, told),
            settles_first=asked.settles_first,
            session=session,
        )

    def _delete(self, message: RequestMessage, asked: DeleteMessages, later: Callable[[bytes], None]) -> None:
        if asked.session is not None:
            raise RefusedError(not_implemented("messages of a session are not deleted apart"))
        if not 1 <= asked.count <= MOST_DELETED:
            text = f"message-count is {asked.count}; expected 1 to {MOST_DELETED}"
            raise RefusedError(Refusal(ServiceBusCondition.ARGUMENT_OUT_OF_RANGE, 400, text))
        name = self._node.receivable

        def told(count: int) -> bytes:
            return message.answered(deleted(count)) if count else message.answered(status=NO_CONTENT)

        self._node.entity.topic.receivers.delete(
            name.subscription,
            asked.count,
            self._told(message, later, told),
            before_ms=asked.before_ms,
            dead_letters=name.is_dead_letter,
        )

    # scheduled messages

    def _schedule(self, message: RequestMessage, messages: list[bytes], later: Callable[[bytes], None]) -> None:
        self._check_sendable()
        outgoing = Outgoing.of(EncodedMessages.of(messages), self._node)
        if outgoing.refused:
            raise outgoing.refused[min(outgoing.refused)]

        def told(numbers: list[int]) -> bytes:
            return message.answered(scheduled([sequence_number(number) for number in numbers]))

        due_ms = outgoing.due_ms(self._handler.context.clock.now_ms())
        self._node.entity.topic.scheduled.schedule(
            outgoing.messages.all_bytes(), due_ms.tolist(), self._told(message, later, told)
        )

    def _cancel(self, message: RequestMessage, numbers: list[int], later: Callable[[bytes], None]) -> None:
        self._check_sendable()

        def told(are_canceled: bool) -> bytes:
            return message.answered() if are_canceled else message.refused(MESSAGE_NOT_FOUND)

        self._node.entity.topic.scheduled.cancel([number - 1 for number in numbers], self._told(message, later, told))

    def _check_sendable(self) -> None:
        if self._node.subscription is not None or self._node.is_dead_letter:
            raise _refusal(f"{self._node}: messages are scheduled for a topic or a queue")

    # answers

    def _answer(
        self,
        message: RequestMessage,
        later: Callable[[bytes], None],
        body: Callable[[], dict[str, AmqpValue]],
        *,
        lost: Refusal = LOCK_LOST,
    ) -> Callable[[list[bool] | HeadgateError], None]:
        """A callback that answers a request when its tokens were checked: all locks are held, or one is lost."""

        def tell(held: list[bool]) -> bytes:
            return message.answered(body()) if all(held) else message.refused(lost)

        return self._told(message, later, tell)

    def _told(
        self, message: RequestMessage, later: Callable[[bytes], None], tell: Callable[[T], bytes]
    ) -> Callable[[T | HeadgateError], None]:
        """A callback that answers a request with a later result."""

        def told(result: T | HeadgateError) -> None:
            if isinstance(result, HeadgateError):
                later(message.refused(refusal_of(result, str(self._node))))
            else:
                later(tell(result))

        return told

    def _recorded(
        self, action: str, rule: str, message: RequestMessage, later: Callable[[bytes], None]
    ) -> Callable[[Any], None]:
        """A callback that answers a request to change a rule, and records it in the audit stream."""
        told = self._told(message, later, lambda _: message.answered())
        audit, subject = self._handler.context.broker.audit, f"{self._node}/Rules/{rule}"
        return audit.answered(self._access.actor, action, subject, {}, told)

    # sessions

    def _held(self, session: str) -> SessionReceiver:
        """The receiver on this connection that holds a session. Raises RefusedError."""
        found = self._access.sessions.get((self._node.path, session))
        if found is None or self._node.is_dead_letter:
            raise RefusedError(SESSION_LOCK_LOST)
        return found

    def _session_of(self, message: RequestMessage, said: str | None) -> str | None:
        """The session in a request, or else that of the receiver's link that it names: Go's client sends only that."""
        if said is not None or message.link is None:
            return said
        held = (each for (path, _), each in self._access.sessions.items() if path == self._node.path)
        return next((each.session for each in held if each.tag == message.link), None)

    def _list_sessions(self, message: RequestMessage, asked: ListSessions, later: Callable[[bytes], None]) -> None:
        def tell(sessions: list[str]) -> bytes:
            page = sessions[asked.skip : asked.skip + asked.top]
            return message.answered(listed_sessions(page, asked.skip)) if page else message.answered(status=NO_CONTENT)

        topic, name = self._node.entity.topic, self._node.receivable
        topic.browser.sessions(name.subscription, self._told(message, later, tell), set_after_ms=asked.set_after_ms)

    # rules

    @property
    def _subscription(self) -> tuple[str, str]:
        """Topic and subscription. Raises RefusedError for a node without rules."""
        if self._node.subscription is None:
            raise _refusal(f"{self._node} is no subscription, it has no rules")
        return self._node.entity.name, self._node.subscription

    def _enumerate(self, message: RequestMessage, asked: EnumerateRules) -> bytes:
        _, subscription = self._subscription
        rules = self._node.entity.subscription(subscription).rules[asked.skip : asked.skip + asked.top]
        if not rules:
            return message.answered(status=NO_CONTENT)
        return message.answered(enumerated([told_rule(rule_description(each)) for each in rules]))


def _renewed_session(held: SessionReceiver) -> dict[str, AmqpValue]:
    return renewed_session(held.locked_until_ms)


def _target(link: Link) -> str | None:
    target = link.attach.target
    if target is None or isinstance(target, Coordinator) or target.address is None:
        return None
    found = target.address.value
    return found if isinstance(found, str) else None


def _refusal(text: str) -> RefusedError:
    return RefusedError(Refusal(ServiceBusCondition.ARGUMENT_ERROR, 400, text))
