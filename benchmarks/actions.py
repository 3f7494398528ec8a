"""Actions of rules: changed copies of encoded events, by the kernel of edits and by the reference.

A million events, one core, messages in memory; the reference makes the copies of a part of them. The last rows are a
topic of a thousand rules with an action each: what a router makes of matches that were found before.
"""

from __future__ import annotations

import numpy as np
from harness import Measurement, measure, report
from messages import event_batch

from headgate.evaluate import Action, Engine, changed_copies
from headgate.message.batch import EncodedMessages
from headgate.topic import Router, Rule, Subscription, Topic

MESSAGES = 1_000_000
BY_REFERENCE = 10_000
WITH_NEW_IDS = 100_000
RULES = 1_000
BOTH = "SET quantity = quantity * 2 + 1; REMOVE channel"
ACTIONS = (
    BOTH,
    "SET quantity = quantity * 2 + 1",
    "REMOVE channel",
    "SET campaign = region + '/' + customer_id",
    "SET sys.Label = region; SET sys.PartitionKey = session",
    "SET a = quantity + 1; SET b = a * 2",
)


def copied(text: str, batch: EncodedMessages, engine: Engine = Engine.KERNEL) -> Measurement:
    """Copies of all messages by one rule."""
    action = Action.parse(text)
    which, times = np.zeros(len(batch), dtype=np.int64), np.zeros(len(batch), dtype=np.int64)

    def run() -> None:
        changed_copies(
            [(action, "rule")], which, batch, now_ms=times, identity_of=lambda row: b"events/%d" % row, engine=engine
        )

    return measure(f"{text}, {engine.value}", run, len(batch), unit="copies", work_bytes=int(batch.lengths.sum()))


def by_many_rules(batch: EncodedMessages) -> Measurement:
    """Copies by a thousand rules, two of which select each message."""
    subscriptions = [
        Subscription(
            f"s{number}",
            (
                Rule(
                    "r",
                    f"customer_id >= {5000 * number} AND customer_id < {5000 * number + 10_000}",
                    BOTH,
                    dialect="amqp",
                ),
            ),
        )
        for number in range(RULES)
    ]
    router = Router(Topic("events", tuple(subscriptions)), stream="events")
    zeros = np.zeros(len(batch), dtype=np.int64)
    decided = router.decide(batch, zeros)
    return measure(
        f"{RULES:,} rules with {BOTH}, decided before",
        lambda: router.copies(decided, batch, zeros, zeros),
        len(decided.rows),
        unit="copies",
    )


def main() -> None:
    batch = event_batch(MESSAGES)
    baseline = copied(BOTH, batch.take(slice(0, BY_REFERENCE)), Engine.REFERENCE)
    measurements = [baseline, *(copied(text, batch) for text in ACTIONS)]
    measurements.append(copied("SET id = newid()", batch.take(slice(0, WITH_NEW_IDS))))
    measurements.append(by_many_rules(batch))
    report("actions", f"{MESSAGES:,} messages, actions of rules", measurements, baseline=baseline.name)


if __name__ == "__main__":
    main()
