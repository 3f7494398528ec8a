"""Requests about topics, by method and path, and their answers.

    GET    topics, subscriptions, rules                       lists of what the user may read
    GET    topics/T                                           limits, subscriptions with counts, rules
    PUT    topics/T                                           {"limits": {…}}
    DELETE topics/T                                           a plain stream again
    GET    topics/T/history                                   every version of every rule
    GET    topics/T/subscriptions/S                           one subscription
    PUT    topics/T/subscriptions/S                           properties, "settings"; of a new one also "rules"
    DELETE topics/T/subscriptions/S
    PUT    topics/T/subscriptions/S/rules/R                   a rule in its written form
    DELETE topics/T/subscriptions/S/rules/R
    POST   topics/T/subscriptions/S/rules/R/dry-run           {"rule", "last", "samples"}: changes nothing
    GET    topics/T/subscriptions/S/copies                    all copies that it has, settled or not
    GET    topics/T/subscriptions/S[/dead-letters]/messages   those that are not settled; claims nothing
    DELETE topics/T/subscriptions/S[/dead-letters]/messages   settles all
    POST   topics/T/subscriptions/S[/dead-letters]/receive    {"count", "wait_s", "encoded"}
    POST   topics/T/subscriptions/S[/dead-letters]/settle     {"outcome", "tokens", …}
    GET    entities                                           topics and queues, each all in one
    PUT    entities/E                                         makes one, or changes one to what the body declares
    *      rocketmq/…                                         topics and consumer groups of RocketMQ: `message_topics`

A PUT creates something new or changes something that exists; the query `only=new` or `only=existing` allows only one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from headgate.broker import (
    Broker,
    BrokerTopic,
    DeadLetterReason,
    EntityDeclaration,
    Permission,
    Receiver,
    ReceiverCalls,
    Settler,
)
from headgate.errors import (
    AccessRefusedError,
    ConfigError,
    ResourceNotFoundError,
    RuleExistsError,
    RuleNotFoundError,
    UnsupportedError,
)
from headgate.ledger import offset_of, rule_of
from headgate.server.listings import may_read, near_names
from headgate.server.topics import bodies, rows
from headgate.server.topics.broker_answers import received, told
from headgate.server.topics.message_topics import MessageTopicRequests
from headgate.server.topics.routes import MOST_COPIES, Answer, Asked, Endpoint, TopicRequest
from headgate.topic import (
    AddRule,
    Change,
    ChangeLimits,
    ChangeSubscription,
    RemoveRule,
    RemoveSubscription,
    ReplaceRule,
    Rule,
    TopicLimits,
)

MOST_TRIED = 100_000
"""Limit: offsets that one dry run examines."""

LONGEST_WAIT_S = 20.0
_WAITING = 64
"""Limit: requests that wait for copies at a time; further ones are answered at once."""


class TopicRequests:
    """Answers requests over one broker, in its loop, in which `Broker.wake` schedules the broker's next turn."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.routes = (*self._own_routes(), *MessageTopicRequests(broker).routes())
        """Every path that is answered here."""
        self._waiting = 0

    async def answer(self, request: TopicRequest, user: str, *, connection: str = "") -> Answer:
        """The answer to a request of a user.

        Raises ResourceNotFoundError, also for an unknown path, UnsupportedError for a method that the path does not
        have, AccessRefusedError, RuleError and its kinds, ConfigError for query and body, PreconditionFailedError,
        LogError.
        """
        route, names = self._found(request.path)
        handler = route.handlers.get(request.method)
        if handler is None:
            raise UnsupportedError(f"{request.method} is not for this path; expected {', '.join(route.handlers)}")
        session = self._broker.open_session(user, protocol="HTTP", connection=connection)
        try:
            return await handler(Asked(request, session, dead_letters=route.dead_letters, **names))
        except ResourceNotFoundError as error:
            near = near_names(self._broker, user, error)
            raise ResourceNotFoundError(f"{error.reason}{near}", subject=error.subject) from error
        finally:
            session.close()

    def _found(self, path: tuple[str, ...]) -> tuple[Endpoint, dict[str, str]]:
        """The route of a path, and the names in it. Raises ResourceNotFoundError."""
        for route in self.routes:
            names = route.names(path)
            if names is not None:
                return route, names
        raise ResourceNotFoundError("there is nothing at this path; a / in a name is written %2F")

    def _own_routes(self) -> Iterator[Endpoint]:
        yield Endpoint("topics", {"GET": partial(self._list, rows.topic_rows)})
        yield Endpoint("subscriptions", {"GET": partial(self._list, rows.subscription_rows)})
        yield Endpoint("rules", {"GET": partial(self._list, rows.rule_rows)})
        topic = "topics/{topic}"
        yield Endpoint(topic, {"GET": self._topic, "PUT": self._put_topic, "DELETE": self._delete_topic})
        yield Endpoint(f"{topic}/history", {"GET": self._history})
        subscription = f"{topic}/subscriptions/{{subscription}}"
        handlers = {"GET": self._subscription, "PUT": self._put_subscription, "DELETE": self._delete_subscription}
        yield Endpoint(subscription, handlers)
        yield Endpoint(f"{subscription}/copies", {"GET": self._copies})
        rule = f"{subscription}/rules/{{rule}}"
        yield Endpoint(rule, {"PUT": self._put_rule, "DELETE": self._delete_rule})
        yield Endpoint(f"{rule}/dry-run", {"POST": self._dry_run})
        for copies, dead_letters in ((subscription, False), (f"{subscription}/dead-letters", True)):
            yield Endpoint(f"{copies}/messages", {"GET": self._peek, "DELETE": self._purge}, dead_letters)
            yield Endpoint(f"{copies}/receive", {"POST": self._receive}, dead_letters)
            yield Endpoint(f"{copies}/settle", {"POST": self._settle}, dead_letters)
        yield Endpoint("entities", {"GET": self._entities})
        yield Endpoint("entities/{topic}", {"PUT": self._put_entity})

    # lists

    async def _list(self, listed: Callable[[Broker, str], Any], asked: Asked) -> Answer:
        return Answer(list(listed(self._broker, asked.session.user)))

    def _readable(self, asked: Asked, *names: str) -> BrokerTopic:
        """The topic, if the user may read it or one of `names`."""
        user = asked.session.user
        if not any(may_read(self._broker.users, user, name) for name in (asked.topic, *names)):
            raise AccessRefusedError(f"user {user!r} may not read topic {asked.topic!r}")
        return self._broker.topics.get(asked.topic)

    async def _topic(self, asked: Asked) -> Answer:
        return Answer(rows.topic_detail(self._readable(asked)))

    async def _history(self, asked: Asked) -> Answer:
        return Answer(rows.history_rows(self._readable(asked).history))

    async def _subscription(self, asked: Asked) -> Answer:
        topic = self._readable(asked, str(asked.name))
        info = topic.subscriptions.info(asked.subscription)
        rules = rows.rules_in_force(topic, info.name)
        return Answer({**rows.subscription_row(topic, info, rows.HeldBack.of(topic)), "rules": rules})

    # changes

    async def _change(self, asked: Asked, changes: list[Change], *, is_new: bool = False) -> Answer:
        offset = await told(partial(asked.session.change_topic, asked.topic, changes))
        return Answer({"in_force_from": offset}, is_new)

    async def _put_topic(self, asked: Asked) -> Answer:
        given = bodies.decoded(asked.request.body, bodies.TopicBody).limits
        unknown = sorted(given.keys() - set(TopicLimits.__struct_fields__))
        if unknown:
            raise ConfigError(f"limits: found {unknown[0]!r}, expected {', '.join(TopicLimits.__struct_fields__)}")
        if asked.only != "existing":
            try:
                asked.session.create_topic(asked.topic, limits=TopicLimits(**given))
            except RuleExistsError:
                if asked.only == "new":
                    raise
            else:
                return Answer({"name": asked.topic}, is_new=True)
        self._broker.users.check(asked.session.user, Permission.CONFIGURE, asked.topic)
        limits = self._broker.topics.get(asked.topic).history.limits
        return await self._change(asked, [ChangeLimits(msgspec.structs.replace(limits, **given))])

    async def _delete_topic(self, asked: Asked) -> Answer:
        asked.session.remove_topic(asked.topic)
        return Answer({"name": asked.topic})

    async def _put_subscription(self, asked: Asked) -> Answer:
        given = bodies.decoded(asked.request.body, dict[str, Any])
        # A user who may not change the topic learns nothing of it.
        self._broker.users.check(asked.session.user, Permission.CONFIGURE, asked.topic)
        history = self._broker.topics.get(asked.topic).history
        is_there = history.has_subscription(asked.subscription)
        if asked.only == "existing" or (is_there and asked.only is None):
            if "rules" in given:
                raise ConfigError("rules: found them for a subscription that is there; they are changed one by one")
            before = history.subscription(asked.subscription)
            return await self._change(asked, [ChangeSubscription.of(before, given, name=asked.subscription)])
        return await self._change(asked, bodies.new_subscription(asked.subscription, given), is_new=True)

    async def _delete_subscription(self, asked: Asked) -> Answer:
        return await self._change(asked, [RemoveSubscription(asked.subscription)])

    async def _put_rule(self, asked: Asked) -> Answer:
        rule = bodies.named_rule(asked.rule, bodies.decoded(asked.request.body, dict[str, Any]))
        replace, add = ReplaceRule(asked.subscription, rule), AddRule(asked.subscription, rule)
        if asked.only != "new":
            try:
                return await self._change(asked, [replace])
            except RuleNotFoundError as error:
                if asked.only == "existing" or error.rule is None:
                    raise
        return await self._change(asked, [add], is_new=True)

    async def _delete_rule(self, asked: Asked) -> Answer:
        return await self._change(asked, [RemoveRule(asked.subscription, asked.rule)])

    async def _dry_run(self, asked: Asked) -> Answer:
        from headgate.topic.trial import dry_run

        body = bodies.decoded(asked.request.body, bodies.DryRunBody)
        if not 1 <= body.last <= MOST_TRIED:
            raise ConfigError(f"last: found {body.last}, expected 1 to {MOST_TRIED}")
        self._broker.users.check(asked.session.user, Permission.READ, asked.topic)
        topic = self._broker.topics.get(asked.topic)
        # Raises the error for a missing subscription.
        limits, version = topic.history.limits, topic.history.subscription(asked.subscription)
        rule = Rule.of(bodies.named_rule(asked.rule, body.rule), limits=limits.content)
        with topic.stream.guarded():
            # In a thread: it reads and decides many messages.
            found = await asyncio.to_thread(
                dry_run,
                topic.stream.stream,
                rule,
                topic=asked.topic,
                subscription=version.name,
                limits=limits,
                last=body.last,
                samples=body.samples,
            )
        return Answer(found.as_dict())

    # entities

    async def _entities(self, asked: Asked) -> Answer:
        users, user = self._broker.users, asked.session.user
        declared = [each for each in self._broker.entities.declarations() if may_read(users, user, each.name)]
        return Answer(
            [msgspec.to_builtins(each if self._may_change(user, each) else _public(each)) for each in declared]
        )

    def _may_change(self, user: str, entity: EntityDeclaration) -> bool:
        try:
            self._broker.users.check(user, Permission.CONFIGURE, entity.name)
        except AccessRefusedError:
            return False
        return True

    async def _put_entity(self, asked: Asked) -> Answer:
        self._broker.users.check(asked.session.user, Permission.CONFIGURE, asked.topic)
        given = bodies.decoded(asked.request.body, dict[str, Any])
        if given.setdefault("name", asked.topic) != asked.topic:
            raise ConfigError(f"the body names {given['name']!r}, the path {asked.topic!r}; expected one name")
        declare = partial(self._broker.entities.declare, check_target=asked.session.check_writes)
        await told(partial(declare, EntityDeclaration.of(given)))
        return Answer({"name": asked.topic})

    # copies

    async def _copies(self, asked: Asked) -> Answer:
        start, limit = asked.start, asked.limit
        topic = asked.session.topic_of(asked.name)
        copies, searched = topic.browser.copies(asked.subscription, start, limit)
        return Answer(
            {
                "messages": [rows.copy_row(each, encoded=asked.encoded) for each in copies],
                "from": offset_of(searched),
                "rule": rule_of(searched),
                "next_offset": topic.stream.next_offset,
            }
        )

    async def _peek(self, asked: Asked) -> Answer:
        start, limit = asked.start, asked.limit
        topic = asked.session.topic_of(asked.name)
        copies = topic.browser.peek(asked.subscription, start, limit, dead_letters=asked.dead_letters)
        return Answer([rows.copy_row(each, encoded=asked.encoded) for each in copies])

    async def _purge(self, asked: Asked) -> Answer:
        topic = asked.session.topic_of(asked.name)
        purge = partial(topic.receivers.purge, asked.subscription, dead_letters=asked.dead_letters)
        return Answer({"purged": await told(purge)})

    async def _receive(self, asked: Asked) -> Answer:
        body = bodies.decoded(asked.request.body, bodies.ReceiveBody)
        if not 1 <= body.count <= MOST_COPIES:
            raise ConfigError(f"count: found {body.count}, expected 1 to {MOST_COPIES}")
        if not 0 <= body.wait_s <= LONGEST_WAIT_S:
            raise ConfigError(f"wait_s: found {body.wait_s}, expected 0 to {LONGEST_WAIT_S:g}")
        wait_s = body.wait_s if self._waiting < _WAITING else 0.0
        self._waiting += 1
        try:
            deliveries = await received(asked.session, asked.name, body.count, wait_s)
        finally:
            self._waiting -= 1
        return Answer([rows.delivery_row(each, encoded=body.encoded) for each in deliveries])

    async def _settle(self, asked: Asked) -> Answer:
        body = bodies.decoded(asked.request.body, bodies.SettleBody)
        tokens = body.packed()
        if len(tokens) > MOST_COPIES:
            raise ConfigError(f"tokens: found {len(tokens)}, expected at most {MOST_COPIES}")
        receiver = asked.session.receiver(
            asked.name, ReceiverCalls(deliver=_not_asked_for, ended=_not_asked_for, tag="HTTP")
        )
        begin, until = _settling(receiver.settler, body, tokens)
        held = await told(begin)
        answer: dict[str, object] = {"settled": held}
        if until:
            answer["locked_until_ms"] = until[0]
        return Answer(answer)


def _settling(
    settler: Settler[Receiver], body: bodies.SettleBody, tokens: list[bytes]
) -> tuple[Callable[[Callable[[object], None]], None], list[int]]:
    """The function that begins to settle, and the list in which it puts the end of renewed claims."""
    until: list[int] = []
    match body.outcome:
        case bodies.Outcome.COMPLETE:
            return partial(settler.complete, tokens), until
        case bodies.Outcome.ABANDON:
            return partial(settler.release, tokens, counts=True, delay_ms=body.delay_ms), until
        case bodies.Outcome.DEAD_LETTER:
            why = DeadLetterReason(body.reason, body.description, body.properties or {})
            return partial(settler.dead_letter, tokens, why=why), until
        case bodies.Outcome.DEFER:
            return partial(settler.defer, tokens), until
        case bodies.Outcome.RENEW:
            return lambda then: until.append(settler.renew(tokens, then)), until


def _public(entity: EntityDeclaration) -> EntityDeclaration:
    """An entity without the keys of its authorization rules."""
    replace = msgspec.structs.replace
    return replace(entity, settings=replace(entity.settings, authorization_rules=()))


def _not_asked_for(_given: object) -> None:
    """Ignore copies and the end of a receiver that only settles."""
