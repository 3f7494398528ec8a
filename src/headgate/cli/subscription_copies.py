"""`headgate subscription peek|receive|settle|purge`: the copies of a subscription, or its dead letters."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter

from headgate.cli.dead_letters import Offsets
from headgate.cli.messages import Count, Start, Typed, write_copies
from headgate.cli.options import AsJson, LockTimeout, SubscriptionName, TopicName
from headgate.cli.output import write_line, write_note
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.cli.units import duration_ms
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.client import SubscriptionReceiver

DeadLetters: TypeAlias = Annotated[
    bool, Parameter(name="--dead-letters", negative=(), help="Its dead letters in place of its copies.")
]
Outcome = Literal["complete", "abandon", "dead-letter", "defer", "renew"]


def peek(
    topic: TopicName,
    subscription: SubscriptionName,
    /,
    *,
    start: Start = 0,
    count: Count = 100,
    dead_letters: DeadLetters = False,
    as_json: AsJson = False,
    typed: Typed = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Show unsettled copies, as their actions make them, claimed ones as well; nothing changes."""
    with location.topics(topic, lock_timeout_s=lock_timeout) as topics:
        copies = list(topics.peek(topic, subscription, offset=start, limit=count, dead_letters=dead_letters))
    write_copies(copies, as_json=as_json, typed=typed)
    return 0


def receive(
    topic: TopicName,
    subscription: SubscriptionName,
    /,
    *,
    count: Count = 1,
    wait: Annotated[str, Parameter(help="How long to wait for the first one, such as 10s.")] = "0s",
    outcome: Annotated[
        Outcome | None, Parameter(help="Settle them with this when they are written; without it they stay locked.")
    ] = None,
    dead_letters: DeadLetters = False,
    as_json: AsJson = False,
    typed: Typed = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Receive copies: nobody else is given them until their locks end, or `subscription settle` is given their tokens.

    The exit status is 0 also where none came.
    """
    wait_s = duration_ms(wait, option="--wait") / 1000
    with location.topics(topic, lock_timeout_s=lock_timeout) as topics:
        receiver = topics.receiver(topic, subscription, dead_letters=dead_letters)
        copies = receiver.receive(count, wait_s=wait_s)
        write_copies(copies, as_json=as_json, typed=typed)
        if outcome is None or not copies:
            return 0
        # What was not written is not settled.
        sys.stdout.flush()
        return _settle(receiver, outcome, [each.token for each in copies])


def settle(
    topic: TopicName,
    subscription: SubscriptionName,
    outcome: Annotated[Outcome, Parameter(help="complete, abandon, dead-letter, defer; renew: keep them locked.")],
    /,
    *tokens: Annotated[str, Parameter(help="Tokens that `subscription receive` showed.")],
    reason: Annotated[str | None, Parameter(help="With dead-letter: why, in a word.")] = None,
    description: Annotated[str | None, Parameter(help="With dead-letter: why.")] = None,
    delay: Annotated[
        str | None, Parameter(help="With abandon: when they come back, such as 30s; by default after the backoff.")
    ] = None,
    dead_letters: DeadLetters = False,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Settle copies by their tokens. The exit status is 1 if a lock had ended before."""
    if not tokens:
        raise ConfigError("found no token: give those that subscription receive showed")
    if outcome != "dead-letter" and (reason is not None or description is not None):
        raise ConfigError("--reason and --description belong to dead-letter")
    if outcome != "abandon" and delay is not None:
        raise ConfigError("--delay belongs to abandon")
    more: dict[str, object] = {
        "reason": reason,
        "description": description,
        "delay_ms": None if delay is None else duration_ms(delay, option="--delay"),
    }
    with location.topics(topic, lock_timeout_s=lock_timeout) as topics:
        receiver = topics.receiver(topic, subscription, dead_letters=dead_letters)
        return _settle(receiver, outcome, tokens, **more)


def purge(
    topic: TopicName,
    subscription: SubscriptionName,
    /,
    *,
    dead_letters: DeadLetters = False,
    offset: Offsets = None,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Settle all copies that are there now, or chosen dead letters, and print how many."""
    if offset is not None and not dead_letters:
        raise ConfigError("--offset belongs to --dead-letters")
    with location.topics(topic, lock_timeout_s=lock_timeout) as topics:
        if offset is not None:
            write_line(str(topics.dead_letters(topic, subscription).delete(offset)))
            return 0
        write_line(str(topics.purge(topic, subscription, dead_letters=dead_letters)))
    return 0


def _settle(receiver: SubscriptionReceiver, outcome: str, tokens: Sequence[str], **more: object) -> int:
    held = receiver.settle(outcome, tokens, **more)
    for token, still in zip(tokens, held, strict=True):
        if not still:
            write_note(
                f"headgate: {token}: its lock has ended, or it was settled before; somebody may be given it again"
            )
    if all(held):
        write_note(f"{outcome}: {len(held)} settled")
        return 0
    return 1
