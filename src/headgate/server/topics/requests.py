"""Endpoints of topics, subscriptions, rules, copies and entities.

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
    RuleExistsError,
    RuleNotFoundError,
)
from headgate.ledger import offset_of, rule_of
from headgate.server.http import Answer, Endpoint, Group, described, stored
from headgate.server.listings import may_read
from headgate.server.topics import bodies, rows
from headgate.server.topics.broker_answers import received, told
from headgate.server.topics.calls import MOST_COPIES, CopiesQuery, PutQuery, TopicCall, TopicEndpoints
from headgate.server.topics.dead_letters import DeadLetterRequests
from headgate.server.topics.message_topics import message_topic_group
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
_WAITING = 32
"""Limit: requests that wait for copies at a time; further ones are answered at once."""


BODY_BYTES = 1 << 20
"""Limit: larger than elsewhere; a new subscription may have many rules, and settling many tokens."""

_RULE_EXAMPLE = {"sql": "color = 'red'"}
_A_SUBSCRIPTION = "{topic}/subscriptions/{subscription}"


def topic_groups(broker: Broker) -> tuple[Group, ...]:
    """The endpoints of topics over one broker, answered in its loop."""
    requests = _TopicRequests(broker)
    return (
        Group(
            "Topics",
            "Topics, subscriptions and their rules; their copies of messages are received and settled.",
            tuple(requests.endpoints()),
        ),
        Group(
            "Entities",
            "Topics and queues as Service Bus has them, each all in one.",
            tuple(requests.entity_endpoints()),
        ),
        message_topic_group(broker),
    )


class _TopicRequests:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting = 0
        self._make = partial(TopicEndpoints(broker).endpoint, body_bytes=BODY_BYTES)

    def endpoints(self) -> Iterator[Endpoint]:
        """The endpoints of topics, subscriptions, rules and copies."""
        yield from self._topic_endpoints()
        yield from self._subscription_endpoints()
        yield from self._rule_endpoints()
        yield from self._copy_endpoints(dead_letters=False)
        yield from self._copy_endpoints(dead_letters=True)
        yield from DeadLetterRequests(self._broker).endpoints()

    def _topic_endpoints(self) -> Iterator[Endpoint]:
        configure: dict[str, Any] = {"permission": "configure the topic"}
        yield self._make(
            "GET",
            "topics",
            "The topics that the user may read, with sums over their subscriptions; `error` where files are damaged.",
            partial(self._list, rows.topic_rows),
            answer=list[rows.Row],
        )
        yield self._make(
            "GET",
            "topics/{topic}",
            "One topic: limits, subscriptions with counts and rules, `undecided` offsets.",
            self._topic,
            permission="read the topic",
            answer=rows.Row,
        )
        yield self._make(
            "PUT",
            "topics/{topic}",
            "Makes a topic, and its stream if it is not there, or changes its limits.",
            self._put_topic,
            **configure,
            query=PutQuery,
            body=bodies.TopicBody,
            example={"limits": {"sql_filters": 5000}},
            answer=described(
                rows.Row, "`name` of a new topic; else `in_force_from`, the offset from which the limits apply."
            ),
            statuses=(201, 200),
            errors=(409,),
        )
        yield self._make(
            "DELETE",
            "topics/{topic}",
            "Makes a topic a plain stream again.",
            self._delete_topic,
            **configure,
            answer=bodies.NamedAnswer,
            errors=(409,),
        )
        yield self._make(
            "GET",
            "topics/{topic}/history",
            "Every version of every rule.",
            self._history,
            permission="read the topic",
            answer=list[rows.Row],
        )

    def _subscription_endpoints(self) -> Iterator[Endpoint]:
        change: dict[str, Any] = {"answer": bodies.ChangeAnswer, "errors": (409,)}
        yield self._make(
            "GET",
            "subscriptions",
            "The subscriptions of all topics that the user may read, with the counts of their copies.",
            partial(self._list, rows.subscription_rows),
            answer=list[rows.Row],
        )
        yield self._make(
            "GET",
            f"topics/{_A_SUBSCRIPTION}",
            "One subscription: settings, rules; `active`, `locked`, `waiting`, `deferred`, `dead_lettered`, "
            "`forwarding` (on their way to other streams); `pins`, `held_back_bytes`; `counters`.",
            self._subscription,
            permission="read the topic, or the subscription",
            answer=rows.Row,
        )
        yield self._make(
            "PUT",
            f"topics/{_A_SUBSCRIPTION}",
            "Makes a subscription, or changes one; omitted keys stay. A new one has `rules`, a list, or else the rule "
            "`$Default`.",
            self._put_subscription,
            permission="configure the topic; *write* on a new target",
            query=PutQuery,
            body=described(rows.Row, "Properties of the subscription, `settings`; of a new one also `rules`."),
            example={"dead_letter_on_errors": True, "settings": {"lock_ms": 30000}},
            statuses=(201, 200),
            **change,
        )
        yield self._make(
            "DELETE",
            f"topics/{_A_SUBSCRIPTION}",
            "Removes a subscription.",
            self._delete_subscription,
            permission="configure the topic",
            **change,
        )

    def _rule_endpoints(self) -> Iterator[Endpoint]:
        change: dict[str, Any] = {"permission": "configure the topic", "answer": bodies.ChangeAnswer, "errors": (409,)}
        path = f"topics/{_A_SUBSCRIPTION}/rules/{{rule}}"
        yield self._make(
            "GET",
            "rules",
            f"The first {rows.RULES_LISTED} rules in force of all topics that the user may read.",
            partial(self._list, rows.rule_rows),
            answer=list[rows.Row],
        )
        yield self._make(
            "PUT",
            path,
            "Makes a rule, or replaces one.",
            self._put_rule,
            query=PutQuery,
            body=described(rows.Row, "A rule in its written form; its name may be left out."),
            example=_RULE_EXAMPLE,
            statuses=(201, 200),
            **change,
        )
        yield self._make("DELETE", path, "Removes a rule.", self._delete_rule, **change)
        yield self._make(
            "POST",
            f"{path}/dry-run",
            "The messages that a rule would select and change; nothing changes.",
            self._dry_run,
            permission="read the topic",
            body=bodies.DryRunBody,
            example={"rule": _RULE_EXAMPLE, "last": 1000, "samples": 3},
            answer=rows.Row,
            is_change=False,
        )

    def _copy_endpoints(self, *, dead_letters: bool) -> Iterator[Endpoint]:
        make = partial(self._make, dead_letters=dead_letters, permission="read the subscription")
        of_what = "copies"
        path = f"topics/{_A_SUBSCRIPTION}"
        if dead_letters:
            of_what, path = "dead letters", f"{path}/dead-letters"
        else:
            yield make(
                "GET",
                f"{path}/copies",
                "All copies that a subscription has, settled or not, and the `from` and `rule` of the next page.",
                self._copies,
                query=CopiesQuery,
                answer=bodies.CopiesAnswer,
            )
        yield make(
            "GET",
            f"{path}/messages",
            f"Unsettled {of_what}, claimed or not, from an offset and rule on.",
            self._peek,
            query=CopiesQuery,
            answer=list[rows.Row],
        )
        yield make("DELETE", f"{path}/messages", f"Settles all {of_what}.", self._purge, answer=bodies.PurgeAnswer)
        yield make(
            "POST",
            f"{path}/receive",
            f"Claims {of_what}, each with a `token`: the available ones, else the first that come within `wait_s`, at "
            f"most {LONGEST_WAIT_S:g}.",
            self._receive,
            body=bodies.ReceiveBody,
            example={"count": 10, "wait_s": 5},
            answer=list[rows.Row],
        )
        yield make(
            "POST",
            f"{path}/settle",
            f"Settles claimed {of_what} by their tokens; false where the lock had ended.",
            self._settle,
            body=bodies.SettleBody,
            example={"outcome": "complete", "tokens": ["00112233445566778899aabbccddeeff"]},
            answer=bodies.SettleAnswer,
        )

    def entity_endpoints(self) -> Iterator[Endpoint]:
        """The endpoints of entities."""
        yield self._make(
            "GET",
            "entities",
            "Topics and queues that the user may read, each in full: properties, `max_size_megabytes`, `delivery`, "
            "`forward_to`, `subscriptions` with `rules`.",
            self._entities,
            answer=list[rows.Row],
        )
        yield self._make(
            "PUT",
            "entities/{topic}",
            "Makes an entity, or changes it to the body, in one change; subscriptions that the body does not name "
            "stay.",
            self._put_entity,
            permission="configure the entity; *write* on a new target",
            body=described(rows.Row, "An entity; its name may be left out."),
            example={"settings": {"kind": "queue"}, "delivery": {"lock_ms": 30000}},
            answer=bodies.NamedAnswer,
            errors=(409,),
            action="entity.put",
        )

    # lists

    async def _list(self, listed: Callable[[Broker, str], Any], call: TopicCall) -> Answer:
        return Answer(list(listed(self._broker, call.session.user)))

    def _readable(self, call: TopicCall, *names: str) -> BrokerTopic:
        """The topic, if the user may read it or one of `names`."""
        user = call.session.user
        if not any(may_read(self._broker.users, user, name) for name in (call.topic, *names)):
            raise AccessRefusedError(f"user {user!r} may not read topic {call.topic!r}")
        return self._broker.topics.get(call.topic)

    async def _topic(self, call: TopicCall) -> Answer:
        return Answer(rows.topic_detail(self._readable(call)))

    async def _history(self, call: TopicCall) -> Answer:
        return Answer(rows.history_rows(self._readable(call).history))

    async def _subscription(self, call: TopicCall) -> Answer:
        topic = self._readable(call, str(call.name))
        info = topic.subscriptions.info(call.subscription)
        rules = rows.rules_in_force(topic, info.name)
        return Answer({**rows.subscription_row(topic, info, rows.HeldBack.of(topic)), "rules": rules})

    # changes

    async def _change(self, call: TopicCall, changes: list[Change], *, is_new: bool = False) -> Answer:
        offset = await told(partial(call.session.change_topic, call.topic, changes))
        return stored(bodies.ChangeAnswer(offset), is_new=is_new)

    async def _put_topic(self, call: TopicCall) -> Answer:
        given = call.body.limits
        unknown = sorted(given.keys() - set(TopicLimits.__struct_fields__))
        if unknown:
            raise ConfigError(f"limits: found {unknown[0]!r}, expected {', '.join(TopicLimits.__struct_fields__)}")
        if call.only != "existing":
            try:
                call.session.create_topic(call.topic, limits=TopicLimits(**given))
            except RuleExistsError:
                if call.only == "new":
                    raise
            else:
                return stored(bodies.NamedAnswer(call.topic), is_new=True)
        self._broker.users.check(call.session.user, Permission.CONFIGURE, call.topic)
        limits = self._broker.topics.get(call.topic).history.limits
        return await self._change(call, [ChangeLimits(msgspec.structs.replace(limits, **given))])

    async def _delete_topic(self, call: TopicCall) -> Answer:
        call.session.remove_topic(call.topic)
        return Answer(bodies.NamedAnswer(call.topic))

    async def _put_subscription(self, call: TopicCall) -> Answer:
        given = call.body
        # A user who may not change the topic learns nothing of it.
        self._broker.users.check(call.session.user, Permission.CONFIGURE, call.topic)
        history = self._broker.topics.get(call.topic).history
        is_there = history.has_subscription(call.subscription)
        if call.only == "existing" or (is_there and call.only is None):
            if "rules" in given:
                raise ConfigError("rules: found them for a subscription that is there; they are changed one by one")
            before = history.subscription(call.subscription)
            return await self._change(call, [ChangeSubscription.of(before, given, name=call.subscription)])
        return await self._change(call, bodies.new_subscription(call.subscription, given), is_new=True)

    async def _delete_subscription(self, call: TopicCall) -> Answer:
        return await self._change(call, [RemoveSubscription(call.subscription)])

    async def _put_rule(self, call: TopicCall) -> Answer:
        rule = bodies.named_rule(call.rule, call.body)
        replace, add = ReplaceRule(call.subscription, rule), AddRule(call.subscription, rule)
        if call.only != "new":
            try:
                return await self._change(call, [replace])
            except RuleNotFoundError as error:
                if call.only == "existing" or error.rule is None:
                    raise
        return await self._change(call, [add], is_new=True)

    async def _delete_rule(self, call: TopicCall) -> Answer:
        return await self._change(call, [RemoveRule(call.subscription, call.rule)])

    async def _dry_run(self, call: TopicCall) -> Answer:
        from headgate.topic.trial import dry_run

        body = call.body
        if not 1 <= body.last <= MOST_TRIED:
            raise ConfigError(f"last: found {body.last}, expected 1 to {MOST_TRIED}")
        self._broker.users.check(call.session.user, Permission.READ, call.topic)
        topic = self._broker.topics.get(call.topic)
        # Raises the error for a missing subscription.
        limits, version = topic.history.limits, topic.history.subscription(call.subscription)
        rule = Rule.of(bodies.named_rule(call.rule, body.rule), limits=limits.content)
        with topic.stream.guarded():
            # In a thread: it reads and decides many messages.
            found = await asyncio.to_thread(
                dry_run,
                topic.stream.stream,
                rule,
                topic=call.topic,
                subscription=version.name,
                limits=limits,
                last=body.last,
                samples=body.samples,
                others=[each.rule for each in topic.history.rules(version.name)],
            )
        return Answer(found.as_dict())

    # entities

    async def _entities(self, call: TopicCall) -> Answer:
        users, user = self._broker.users, call.session.user
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

    async def _put_entity(self, call: TopicCall) -> Answer:
        self._broker.users.check(call.session.user, Permission.CONFIGURE, call.topic)
        given = call.body
        if given.setdefault("name", call.topic) != call.topic:
            raise ConfigError(f"the body names {given['name']!r}, the path {call.topic!r}; expected one name")
        declare = partial(self._broker.entities.declare, check_target=call.session.check_writes)
        await told(partial(declare, EntityDeclaration.of(given)))
        return Answer(bodies.NamedAnswer(call.topic))

    # copies

    async def _copies(self, call: TopicCall) -> Answer:
        start, limit = call.query.start, call.query.limit
        topic = call.session.topic_of(call.name)
        copies, searched = topic.browser.copies(call.subscription, start, limit)
        return Answer(
            bodies.CopiesAnswer(
                [rows.copy_row(each, encoded=call.query.encoded) for each in copies],
                offset_of(searched),
                rule_of(searched),
                topic.stream.next_offset,
            )
        )

    async def _peek(self, call: TopicCall) -> Answer:
        start, limit = call.query.start, call.query.limit
        topic = call.session.topic_of(call.name)
        copies = topic.browser.peek(call.subscription, start, limit, dead_letters=call.dead_letters)
        return Answer([rows.copy_row(each, encoded=call.query.encoded) for each in copies])

    async def _purge(self, call: TopicCall) -> Answer:
        purge = partial(call.session.purge, call.name)
        return Answer(bodies.PurgeAnswer(await told(purge)))

    async def _receive(self, call: TopicCall) -> Answer:
        body = call.body
        if not 1 <= body.count <= MOST_COPIES:
            raise ConfigError(f"count: found {body.count}, expected 1 to {MOST_COPIES}")
        if not 0 <= body.wait_s <= LONGEST_WAIT_S:
            raise ConfigError(f"wait_s: found {body.wait_s}, expected 0 to {LONGEST_WAIT_S:g}")
        wait_s = body.wait_s if self._waiting < _WAITING else 0.0
        self._waiting += 1
        try:
            deliveries = await received(call.session, call.name, body.count, wait_s)
        finally:
            self._waiting -= 1
        return Answer([rows.delivery_row(each, encoded=body.encoded) for each in deliveries])

    async def _settle(self, call: TopicCall) -> Answer:
        body = call.body
        tokens = body.packed()
        if len(tokens) > MOST_COPIES:
            raise ConfigError(f"tokens: found {len(tokens)}, expected at most {MOST_COPIES}")
        receiver = call.session.receiver(
            call.name, ReceiverCalls(deliver=_not_call_for, ended=_not_call_for, tag="HTTP")
        )
        begin, until = _settling(receiver.settler, body, tokens)
        held = await told(begin)
        return Answer(bodies.SettleAnswer(held, until[0] if until else msgspec.UNSET))


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


def _not_call_for(_given: object) -> None:
    """Ignore copies and the end of a receiver that only settles."""
