"""Many filters on one stream: correlation filters by the index, SQL filters by bitmaps, against each alone.

A million encoded events, one core, messages in memory. Evaluating each filter alone is measured in the same run on a
part of the filters and the messages, and counted for all of them. Also: how long the first match after adding a filter
takes.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence

from harness import Measurement, measure, report
from messages import event_batch

from headgate.evaluate import Filter
from headgate.evaluate.rules import RuleSet
from headgate.message.batch import EncodedMessages

MESSAGES = 1_000_000
CORRELATION_FILTERS = 100_000
SQL_FILTERS = 2_000
ALONE_FILTERS = 100
ADDED = 50
KINDS = ("order.created", "order.paid", "order.shipped", "cart.add", "product.view", "search.query")
REGIONS = ("AMER", "EMEA", "APJ")


Demands = tuple[dict[str, object], dict[str, object]]
"""Values that fields of the properties section, and application properties, must have."""


def correlation_demands(count: int, seed: int = 1) -> list[Demands]:
    """Equalities on one customer, order or session, and some of region and kind of event."""
    chance = random.Random(seed)
    made: list[Demands] = []
    for _ in range(count):
        demanded: dict[str, object] = {}
        properties: dict[str, object] = {}
        which = chance.random()
        if which < 0.5:
            demanded["customer_id"] = chance.randrange(1, 5_000_000)
        elif which < 0.8:
            demanded["session"] = f"{chance.randrange(16**5):05x}"
        else:
            demanded["order_id"] = f"o-{chance.randrange(10**9):09d}"
        if chance.random() < 0.5:
            demanded["region"] = chance.choice(REGIONS)
        if chance.random() < 0.5:
            properties["subject"] = chance.choice(KINDS)
        made.append((properties, demanded))
    return made


def correlation_filters(count: int, seed: int = 1) -> list[Filter]:
    """Filters with these demands."""
    return [Filter.from_properties(fields or None, demanded) for fields, demanded in correlation_demands(count, seed)]


def sql_filters(count: int, seed: int = 2) -> list[Filter]:
    """A dozen operations each, from some 270 predicates on nine fields."""
    chance = random.Random(seed)
    prices = [round(1.1**step, 2) for step in range(1, 60)]
    made = []
    for _ in range(count):
        low, high = sorted(chance.sample(prices, 2))
        customers = 50_000 * chance.randrange(1, 90)
        predicates = [
            f"p.subject = '{chance.choice(KINDS)}'",
            f"region {chance.choice(('=', '=', '<>'))} '{chance.choice(REGIONS)}'",
            f"customer_id > {customers} AND customer_id <= {customers + 500_000}",
            f"(price > {low} OR quantity >= {chance.randrange(2, 9)})",
            f"NOT (price > {high} AND quantity < {chance.randrange(2, 9)})",
            f"(campaign IS NULL OR campaign = '{chance.choice(('spring', 'friday', 'mail-41'))}')",
            f"(premium_customer = TRUE OR channel IN ('{chance.choice(('web', 'app', 'store'))}', 'kiosk')"
            f" OR session LIKE '{chance.randrange(16):x}%')",
        ]
        chance.shuffle(predicates)
        made.append(Filter.parse(" AND ".join(predicates), "rabbitmq"))
    return made


def alone(name: str, filters: Sequence[Filter], batch: EncodedMessages) -> Measurement:
    """Each filter by its own program, one after the other: the time of some, counted for all of them."""
    some = filters[:: max(1, len(filters) // ALONE_FILTERS)][:ALONE_FILTERS]
    part = batch.take(slice(0, 100_000))
    measurement = measure(name, lambda: [given.mask(part, now_ms=0) for given in some], len(part), rounds=3)
    measurement.seconds = [seconds * len(filters) / len(some) for seconds in measurement.seconds]
    return measurement


def together(name: str, rules: RuleSet, batch: EncodedMessages) -> Measurement:
    found = rules.match(batch, now_ms=0)
    size = int(batch.lengths.sum())
    title = f"{name}, together, {len(found) / len(batch):.3g} matches a message"
    return measure(title, lambda: rules.match(batch, now_ms=0), len(batch), work_bytes=size)


def adding(rules: RuleSet, batch: EncodedMessages) -> list[float]:
    """From a parsed filter to the first match of a hundred messages in the set that has it."""
    seconds = []
    for given in correlation_filters(ADDED, seed=3):
        start = time.perf_counter()
        rules = rules.with_filter(given)
        rules.match(batch, now_ms=0)
        seconds.append(time.perf_counter() - start)
    return seconds


def main() -> None:
    batch = event_batch(MESSAGES)
    measurements = []
    correlation = correlation_filters(CORRELATION_FILTERS)
    start = time.perf_counter()
    correlation_rules = RuleSet(correlation)
    building = time.perf_counter() - start
    sql = sql_filters(SQL_FILTERS)
    baseline = alone(f"{SQL_FILTERS:,} SQL filters, each alone", sql, batch)
    measurements.append(baseline)
    for count in (10, 100, SQL_FILTERS):
        measurements.append(together(f"{count:,} SQL filters", RuleSet(sql[:count]), batch))
    measurements.append(alone(f"{CORRELATION_FILTERS:,} correlation filters, each alone", correlation, batch))
    for count in (10, 1_000, CORRELATION_FILTERS):
        rules = correlation_rules if count == CORRELATION_FILTERS else RuleSet(correlation[:count])
        measurements.append(together(f"{count:,} correlation filters", rules, batch))
    measurements.append(
        Measurement(f"compile {CORRELATION_FILTERS:,} filters", CORRELATION_FILTERS, [building], "filters")
    )
    seconds = adding(correlation_rules, batch.take(slice(0, 100)))
    measurements.append(Measurement("add one filter, to the first match", 1, seconds, "filters"))
    report("rules", f"{MESSAGES:,} messages, many filters", measurements, baseline=baseline.name)
    print(f"adding: median {1e3 * statistics.median(seconds):.2f} ms, slowest {1e3 * max(seconds):.2f} ms")


if __name__ == "__main__":
    main()
