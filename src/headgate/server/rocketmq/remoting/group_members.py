"""Members of consumer groups: heartbeats, lists of members, locks of queues, and messages that are sent back."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence

from headgate.broker import Session
from headgate.errors import (
    BrokerError,
    ConfigError,
    FilterError,
    HeadgateError,
    LimitExceededError,
    LogError,
)
from headgate.protocols.rocketmq import RETRY_PREFIX, delay_ms
from headgate.protocols.rocketmq.remoting import (
    Command,
    RequestCode,
    ResponseCode,
    decode_body,
    encode_body,
    read_header,
    subscriptions_of,
)
from headgate.protocols.rocketmq.remoting import bodies as b
from headgate.protocols.rocketmq.remoting import headers as h
from headgate.server.context import ServerContext
from headgate.server.rocketmq.remoting.answers import Answer, Tell, settled
from headgate.server.rocketmq.remoting.request_reply import RequestReply
from headgate.server.rocketmq.remoting.routes import BROKER_NAME
from headgate.server.rocketmq.remoting.subscriptions import announcement_of, check_expression, find_message
from headgate.server.transport import Transport

_ASKED_AGAIN_MS = 1_000

_MOST_MEMBERSHIPS = 10_000
_BROADCASTING = "BROADCASTING"
_IN_TURN = "AVG_BY_CIRCLE"
"""The strategy by which members take queues in turn; with any other, each member gets a contiguous part."""

logger = logging.getLogger("headgate.server.rocketmq")


class GroupMembers:
    """Serves the requests of the members on one connection, except pulls."""

    def __init__(
        self, transport: Transport, context: ServerContext, answer: Answer, tell: Tell, request_reply: RequestReply
    ) -> None:
        """`request_reply` is told of clients that send messages."""
        self._transport = transport
        self._context = context
        self._broker = context.broker
        self._members = context.broker.members
        self._pulls = context.broker.consumer_groups.pull_consumers
        self._answer = answer
        self._tell = tell
        self._request_reply = request_reply
        self._connection = context.connections.of(transport).name
        self._asked_ms: dict[str, int] = {}
        """Group → when its members on this connection were last asked for their subscriptions."""
        self._memberships: dict[tuple[str, str], int] = {}
        """Group and client id → the fingerprint in the client's last heartbeat: a number for all its subscriptions."""
        self.requests: Mapping[int, Callable[[Session, Command], None]] = {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_client,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._list,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
            RequestCode.QUERY_ASSIGNMENT: self._assign,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
        }

    def has_retries(self, group: str) -> bool:
        """Whether a consumer group has a retry topic: if it exists, or its first heartbeat would create it.

        Clients ask before they send that heartbeat, and then not again for half a minute.
        """
        groups = self._broker.consumer_groups
        return bool(group) and (groups.find(group) is not None or groups.may_create)

    def is_member(self, group: str) -> bool:
        """Whether the client of this connection is a member of a group."""
        return any(of_group == group for of_group, _ in self._memberships)

    def end(self) -> None:
        """The connection is gone."""
        memberships, self._memberships = self._memberships, {}
        for group, client_id in memberships:
            self._members.lost(group, client_id, self)

    # members

    def _heartbeat(self, session: Session, command: Command) -> None:
        heartbeat = decode_body(command.body, b.Heartbeat)  # type: ignore[arg-type]
        has_changed = heartbeat.heartbeat_fingerprint == 0
        if heartbeat.producer_data_set:
            self._request_reply.heard(heartbeat.client_id)
        for consumer in heartbeat.consumer_data_set or ():
            try:
                self._broker.consumer_groups.ensure(consumer.group_name)
            except (BrokerError, LogError) as error:
                # As in the original the client is told when it asks for messages.
                logger.debug("%s: group %r: %s", self._connection, consumer.group_name, error)
                continue
            has_changed |= self._join(session, heartbeat, consumer)
        fields = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": str(has_changed).lower()}
        self._answer(command, command.answer(ResponseCode.SUCCESS, fields=fields))

    def _join(self, session: Session, heartbeat: b.Heartbeat, consumer: b.ConsumerData) -> bool:
        """Record one membership; returns whether it is new or has changed."""
        key = (consumer.group_name, heartbeat.client_id)
        known = self._memberships.get(key)
        if known is None and len(self._memberships) >= _MOST_MEMBERSHIPS:
            raise LimitExceededError(f"more than {_MOST_MEMBERSHIPS} members of groups on one connection")
        self._memberships[key] = heartbeat.heartbeat_fingerprint
        subscribed = None if heartbeat.without_sub else consumer.subscription_data_set or []
        self._heard(session, *key, subscribed, is_shared=consumer.message_model != _BROADCASTING)
        return known != heartbeat.heartbeat_fingerprint

    def _heard(
        self,
        session: Session,
        group: str,
        client_id: str,
        subscribed: Sequence[b.SubscriptionData] | None,
        *,
        is_shared: bool,
    ) -> None:
        limit = self._context.settings.limits.filter_bytes
        subscriptions = None
        if subscribed is not None:
            subscriptions = {
                each.topic: announcement_of(each, limit)
                for each in subscribed
                if not each.topic.startswith(RETRY_PREFIX) and session.reads(each.topic)
            }
        self._members.heartbeat(
            group,
            client_id,
            subscriptions,
            now_ms=self._context.clock.now_ms(),
            changed=functools.partial(self._others_changed, group),
            is_shared=is_shared,
            by=self,
        )

    def _others_changed(self, group: str) -> None:
        # After the answer to the heartbeat in progress: a client sends no other heartbeat before it has that answer.
        fields = {"consumerGroup": group}
        self._transport.call_soon(lambda: self._tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields))

    def refresh(self, session: Session, group: str) -> None:
        """Ask a group's members on this connection for their subscriptions: a pull is newer than the last heartbeat.

        A client that divides queues anew announces that with a heartbeat, but not while another heartbeat is under way.
        """
        now_ms = self._context.clock.now_ms()
        if 0 <= now_ms - self._asked_ms.get(group, 0) < _ASKED_AGAIN_MS:
            return
        self._asked_ms[group] = now_ms
        for of_group, client_id in self._memberships:
            if of_group == group:
                fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "false"}
                told = functools.partial(self._refreshed, session, group, client_id)
                self._tell(RequestCode.GET_CONSUMER_RUNNING_INFO, fields, told)

    def _refreshed(self, session: Session, group: str, client_id: str, answer: Command | None) -> None:
        if answer is None or answer.code != ResponseCode.SUCCESS or (group, client_id) not in self._memberships:
            return
        try:
            subscribed = subscriptions_of(answer.body)  # type: ignore[arg-type]
            self._heard(session, group, client_id, subscribed, is_shared=self._members.is_shared(group))
        except HeadgateError as error:
            logger.info("%s: member %r of %r: %s", self._connection, client_id, group, error)

    def _unregister(self, session: Session, command: Command) -> None:
        request = read_header(command, h.UnregisterRequest)
        if request.consumer_group is not None:
            self._memberships.pop((request.consumer_group, request.client_id), None)
            self._members.leave(request.consumer_group, request.client_id)
        if request.producer_group is not None:
            self._request_reply.left(request.client_id)
        self._answer(command, command.answer(ResponseCode.SUCCESS))

    def _check_client(self, session: Session, command: Command) -> None:
        data = decode_body(command.body, b.CheckClient).subscription_data  # type: ignore[arg-type]
        if data is not None:
            try:
                check_expression(announcement_of(data, self._context.settings.limits.filter_bytes))
            except (FilterError, ConfigError) as error:
                answer = command.answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=str(error))
                self._answer(command, answer)
                return
        self._answer(command, command.answer(ResponseCode.SUCCESS))

    def _list(self, session: Session, command: Command) -> None:
        group = read_header(command, h.GroupRequest).consumer_group
        members = self._members.of(group)
        if members:
            answer = command.answer(ResponseCode.SUCCESS, body=encode_body(b.ConsumerList(members)))
        else:
            answer = command.answer(ResponseCode.SYSTEM_ERROR, remark=f"no consumer for this group, {group}")
        self._answer(command, answer)

    # queues for one member

    def _lock(self, session: Session, command: Command) -> None:
        request = decode_body(command.body, b.LockRequest)  # type: ignore[arg-type]
        by_stream = self._streams(session, request)
        held = self._members.lock(
            request.consumer_group, request.client_id, by_stream, now_ms=self._context.clock.now_ms()
        )
        body = encode_body(b.LockAnswer([by_stream[stream] for stream in held]))
        self._answer(command, command.answer(ResponseCode.SUCCESS, body=body))

    def _unlock(self, session: Session, command: Command) -> None:
        request = decode_body(command.body, b.LockRequest)  # type: ignore[arg-type]
        self._members.unlock(request.consumer_group, request.client_id, self._streams(session, request))
        self._answer(command, command.answer(ResponseCode.SUCCESS))

    def _streams(self, session: Session, request: b.LockRequest) -> dict[str, b.MessageQueue]:
        """The queues of a request that the client may read, by their streams; the retry queue counts as one."""
        found = {}
        for queue in request.queues:
            if queue.topic.startswith(RETRY_PREFIX):
                found[queue.topic] = queue
                continue
            topic = self._broker.message_topics.find(queue.topic)
            if topic is not None and 0 <= queue.queue_id < len(topic.streams) and session.reads(topic.name):
                found[topic.streams[queue.queue_id]] = queue
        return found

    def _assign(self, session: Session, command: Command) -> None:
        """Answer with the queues of a member that lets the server divide them; it pulls from them like any member."""
        request = decode_body(command.body, b.AssignmentRequest)  # type: ignore[arg-type]
        count = self._queues_of(session, request.topic)
        numbers: Sequence[int] = range(count)
        if request.message_model != _BROADCASTING:
            members = sorted(self._members.of(request.consumer_group))
            in_turn = request.strategy_name == _IN_TURN
            numbers = share_of(count, members, request.client_id, in_turn=in_turn)
        queues = [b.QueueAssignment(b.MessageQueue(request.topic, number, BROKER_NAME)) for number in numbers]
        self._answer(command, command.answer(ResponseCode.SUCCESS, body=encode_body(b.AssignmentAnswer(queues))))

    def _queues_of(self, session: Session, topic: str) -> int:
        """How many queues of a topic the members divide; 0 for a topic that does not exist."""
        if topic.startswith(RETRY_PREFIX):
            return int(self.has_retries(topic.removeprefix(RETRY_PREFIX)))
        session.check_reads(topic)
        found = self._broker.message_topics.find(topic)
        return 0 if found is None else len(found.streams)

    # messages that are sent back

    def _send_back(self, session: Session, command: Command) -> None:
        request = read_header(command, h.SendBackRequest)
        if self._broker.consumer_groups.find(request.group) is None:
            remark = f"subscription group not exist, {request.group}"
            self._answer(command, command.answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark))
            return
        place = find_message(session, self._broker, request.offset, request.origin_topic)
        settings = self._broker.consumer_groups.settings_of(request.group)
        most = settings.max_attempts - 1 if request.max_reconsume_times is None else request.max_reconsume_times

        def delay_after(again: int) -> int | None:
            if again >= most or request.delay_level < 0:
                return None
            return delay_ms(request.delay_level or 3 + again)

        self._pulls.send_back(
            place.stream, request.group, place.offset, delay_ms=delay_after, then=settled(self._answer, command)
        )


def share_of(count: int, members: Sequence[str], member: str, *, in_turn: bool) -> range:
    """The queues of one member when `count` are divided; none for a client that is not a member.

    The division is that of the clients: if the queues do not divide evenly, the first members get one more.
    """
    if member not in members:
        return range(0)
    index, each = members.index(member), len(members)
    if in_turn:
        return range(index, count, each)
    least, left = divmod(count, each)
    first = index * least + min(index, left)
    return range(first, first + least + (index < left))
