"""The subscriptions of one topic at work: opened, changed and ended by the rules that its decider follows."""

from __future__ import annotations

import shutil
from collections.abc import ItemsView, Iterator

import msgspec

from headgate.broker.damage import is_damage
from headgate.broker.delivery import Consumption, TargetKind
from headgate.broker.environment import Environment
from headgate.broker.stream import BrokerStream
from headgate.broker.topics.copy_mover import transfers
from headgate.broker.topics.dispatcher import Dispatcher
from headgate.broker.topics.policy import SubscriptionPolicy
from headgate.broker.topics.sessions import SessionDispatcher
from headgate.broker.topics.subqueues import Subqueues
from headgate.broker.topics.subscription import BrokerSubscription, SubscriptionInfo
from headgate.broker.topics.subscription_source import SubscriptionSource
from headgate.broker.topics.topic_decider import TopicDecider
from headgate.errors import (
    EntityDisabledError,
    HeadgateError,
    LogError,
    PreconditionFailedError,
    ResourceNotFoundError,
    did_you_mean,
)
from headgate.ledger import copy_number
from headgate.topic import (
    MAX_TIME_MS,
    RuleHistory,
    SubscriptionName,
    SubscriptionSettings,
    SubscriptionStatus,
    SubscriptionVersion,
    TopicStatus,
    folded,
    subscription_folder,
    view_key,
)


class BrokerSubscriptions:
    """The subscriptions of one topic, in order of creation; in the broker's thread only."""

    def __init__(
        self,
        stream: BrokerStream,
        consumption: Consumption,
        decider: TopicDecider,
        subqueues: Subqueues,
        environment: Environment,
    ) -> None:
        self.forwarding: list[BrokerSubscription] = []
        """The subscriptions that now forward their copies to other streams."""
        self._stream = stream
        self._consumption = consumption
        self._topic_decider = decider
        self._subqueues = subqueues
        self._now_ms = environment.now_ms
        self.used_ms = environment.now_ms()
        """When the last message or receiver came; before the first one, when the topic was opened."""
        self.history = decider.decider.postings.history
        """The rules as now followed."""
        self._by_number: dict[int, BrokerSubscription] = {}
        self._by_name: dict[str, BrokerSubscription] = {}

    # which there are

    def __iter__(self) -> Iterator[BrokerSubscription]:
        return iter(self._by_number.values())

    def __len__(self) -> int:
        return len(self._by_number)

    def __getitem__(self, number: int) -> BrokerSubscription:
        return self._by_number[number]

    def get(self, number: int) -> BrokerSubscription | None:
        """The subscription with a number; None where it was removed."""
        return self._by_number.get(number)

    def items(self) -> ItemsView[int, BrokerSubscription]:
        """All with their numbers."""
        return self._by_number.items()

    def find(self, name: str) -> BrokerSubscription:
        """The subscription of that name, in any case of letters; ResourceNotFoundError."""
        found = self._by_name.get(folded(name))
        if found is None:
            near = did_you_mean(name, (each.version.name for each in self._by_number.values()))
            raise ResourceNotFoundError(
                f"topic {self._stream.name!r} has no such subscription{near}", subject=f"{self._stream.name}/{name}"
            )
        return found

    def enabled(self, name: str) -> BrokerSubscription:
        """The same, for a client that receives. Raises ResourceNotFoundError, EntityDisabledError."""
        self.used_ms = self._now_ms()
        found = self.find(name)
        disabled = self._disabled(found)
        if disabled is not None:
            raise disabled
        return found

    def named(self, name: SubscriptionName) -> SubscriptionName:
        """The name of a subscription in the case in which it was created; ResourceNotFoundError."""
        subscription = self.find(name.subscription).version.name
        return SubscriptionName(self._stream.name, subscription, name.is_dead_letter)

    # what gives out copies

    def dispatcher(self, found: BrokerSubscription, *, dead_letters: bool) -> Dispatcher:
        """The dispatcher of a subscription's copies, or of its dead letters. Raises LogError."""
        if not dead_letters:
            return found.dispatcher
        return self._subqueues.get(TargetKind.DEAD_LETTERS, found).dispatcher()

    def by_session(self, found: BrokerSubscription) -> SessionDispatcher:
        """The dispatcher that gives out its copies by session. Raises PreconditionFailedError."""
        if not isinstance(found.dispatcher, SessionDispatcher):
            raise PreconditionFailedError("the copies are not received by session", subject=found.dispatcher.name)
        return found.dispatcher

    @property
    def are_received(self) -> bool:
        """Whether one of them, or its dead letters, has a receiver."""
        return any(
            each.dispatcher.receivers or self._subqueues.is_received(number) for number, each in self._by_number.items()
        )

    @property
    def damage(self) -> LogError | None:
        """The damage that stops giving out copies; None without damage, or without subscriptions."""
        error = self._topic_decider.stopped_by or self._consumption.stuck_by
        return error if error is not None and is_damage(error) and self._by_number else None

    # how users see them

    def info(self, name: str) -> SubscriptionInfo:
        """One subscription with its counts. Raises ResourceNotFoundError, LogError for damaged dead letters."""
        return self._counted(self.find(name))

    def infos(self) -> list[SubscriptionInfo]:
        """All subscriptions, in order of creation, with their counts. Raises LogError for damaged dead letters."""
        return [self._counted(each) for each in self]

    def known_infos(self) -> list[SubscriptionInfo]:
        """The same without opening a file; counts that are unknown after a start are known some ticks later."""
        count = self._subqueues.known_count
        return [
            self._info(each, count(TargetKind.DEAD_LETTERS, number), count(TargetKind.DEFERRED, number))
            for number, each in self._by_number.items()
        ]

    def _counted(self, found: BrokerSubscription) -> SubscriptionInfo:
        count, number = self._subqueues.count, found.version.number
        return self._info(found, count(TargetKind.DEAD_LETTERS, number), count(TargetKind.DEFERRED, number))

    def _info(self, found: BrokerSubscription, dead_lettered: int | None, deferred: int | None) -> SubscriptionInfo:
        dispatcher = found.dispatcher
        needed_from = found.needed_from(self._topic_decider.decided_until)
        return SubscriptionInfo(
            found.version.name,
            found.version.number,
            found.version.settings,
            dispatcher.counts(),
            dead_lettered=dead_lettered,
            deferred=deferred,
            receivers=len(dispatcher.receivers),
            forwarding=transfers(self._consumption.ledger, dispatcher.view.number),
            pins=needed_from if needed_from < self._stream.next_offset else None,
            counters=dispatcher.counters,
        )

    # following

    def follow(self, history: RuleHistory) -> None:
        """Open the views of new subscriptions, end the views of removed ones."""
        self.history = history
        versions = {version.number: version for version in history.subscriptions()}
        created = history.created()
        for number in self._by_number.keys() - versions.keys():
            self._remove(self._by_number.pop(number))
        for number, version in versions.items():
            found = self._by_number.get(number)
            if found is None:
                self._by_number[number] = self._add(version, created[number])
            else:
                if found.version != version:
                    found.dispatcher.used_ms = self._now_ms()
                found.follow(version, self._settings(version))
            if (disabled := self._disabled(self._by_number[number])) is not None:
                self._by_number[number].dispatcher.end(disabled)
                self._subqueues.end_receivers(number, disabled)
            elif version.forward_to is not None:
                self._by_number[number].dispatcher.end(self._by_number[number].refusal())
        self._by_name = {folded(each.version.name): each for each in self._by_number.values()}
        self.forwarding = [each for each in self._by_number.values() if self._forwards_now(each)]

    def _disabled(self, found: BrokerSubscription) -> HeadgateError | None:
        """The error for receivers of a subscription, or of its dead letters; None where they are accepted."""
        for what, status in (("topic", self.history.settings.status), ("subscription", found.version.settings.status)):
            if not status.gives_copies:
                return EntityDisabledError(f"nobody receives: the {what} is {status}", subject=found.dispatcher.name)
        return None

    def _settings(self, version: SubscriptionVersion) -> SubscriptionSettings:
        """The delivery settings of a subscription; its time to live is at most that of the topic."""
        of_topic, of_subscription = self.history.settings.default_time_to_live_ms, version.settings
        if of_topic is None or of_topic >= (of_subscription.default_time_to_live_ms or MAX_TIME_MS):
            return of_subscription
        return msgspec.structs.replace(of_subscription, default_time_to_live_ms=of_topic)

    def _add(self, version: SubscriptionVersion, created_at: int) -> BrokerSubscription:
        number = version.number
        view = self._consumption.ledger.view(view_key(number), copy_number(created_at))
        name = str(SubscriptionName(self._stream.name, version.name))
        source = SubscriptionSource(number, self._topic_decider.decider, self._topic_decider.reader)
        settings = self._settings(version)
        policy = SubscriptionPolicy(settings, deferred=TargetKind.DEFERRED.named(number), subscription=number)
        made = SessionDispatcher if version.settings.requires_session else Dispatcher
        dispatcher = made(name, view, source, self._consumption, policy, self._now_ms)
        subscription = BrokerSubscription(version, policy, source, dispatcher)
        subscription.follow(version, settings)
        self._subqueues.find(subscription)
        dispatcher.count_unseen()
        self._consumption.add(dispatcher)
        dispatcher.wake()
        return subscription

    def _remove(self, found: BrokerSubscription) -> None:
        gone = ResourceNotFoundError("the subscription was removed", subject=found.dispatcher.name)
        found.dispatcher.end(gone)
        self._consumption.remove(found.dispatcher.view)
        self._consumption.ledger.drop(found.dispatcher.view.key)
        self._subqueues.remove(found.version.number, gone)
        shutil.rmtree(subscription_folder(self._stream.stream, found.version.number), ignore_errors=True)

    def sweep_removed(self) -> None:
        """Drop the views and folders of subscriptions that were removed while the topic was not open."""
        ledger = self._consumption.ledger
        known = {view_key(number) for number in self._by_number}
        for view in ledger.views():
            if view.key.startswith(view_key("")) and view.key not in known:
                ledger.drop(view.key)
        for folder in subscription_folder(self._stream.stream, 0).parent.glob("*"):
            if view_key(folder.name) not in known:
                shutil.rmtree(folder, ignore_errors=True)

    def _forwards_now(self, found: BrokerSubscription) -> bool:
        return (
            found.version.forward_to is not None
            and found.policy.settings.status is not SubscriptionStatus.DISABLED
            and self.history.settings.status is not TopicStatus.DISABLED
        )
