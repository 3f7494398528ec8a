"""The filter kernel over a million encoded events, against decoding them one at a time, in the same run.

The baseline decodes with python-qpid-proton where it can be imported, else with the reference evaluator, and asks the
complex filter in plain Python. One core, messages in memory. Also: how long a new filter takes to its first verdict.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from harness import Measurement, measure, report
from messages import event_batch

from headgate.evaluate.program import Program, compile_program
from headgate.evaluate.reference import verdict_of_bytes
from headgate.evaluate.verdict import Verdict
from headgate.language import bind, parse
from headgate.message.batch import EncodedMessages

MESSAGES = 1_000_000
DECODED_ONE_BY_ONE = 20_000
CREATED_AFTER_MS = 1_700_000_000_000
COMPLEX = (
    f"p.subject = 'order.created' AND p.creation_time > {CREATED_AFTER_MS} AND region IN ('AMER','EMEA','APJ') "
    "AND (h.priority > 4 OR price >= 99.99 OR premium_customer = TRUE)"
)
FILTERS = {
    "the combined filter of the documentation": COMPLEX,
    "region = 'AMER'": "region = 'AMER'",
    "region = 'LATAM' (nothing matches)": "region = 'LATAM'",
    "LIKE, arithmetic, NOT IN, IS NULL": (
        "order_id LIKE 'o-%7%' AND price * quantity > 100 AND currency NOT IN ('JPY') AND campaign IS NULL"
    ),
    "OR over four keys": "campaign LIKE '%fri%' OR order_id IS NOT NULL OR customer_id % 7 = 3 OR channel = 'store'",
}
SHAPES = {
    "equality": "region = 'AMER'",
    "equality and order": "region = 'AMER' AND price > {ten}",
    "IN and OR": "region IN ('AMER', 'EMEA') AND (price >= 99.99 OR premium_customer = TRUE)",
    "order alone": "price > {ten}",
}
LANGUAGES = ("rabbitmq", "servicebus", "rocketmq")


def compiled(text: str, dialect: str = "rabbitmq") -> Program:
    program = compile_program(bind(parse(text, dialect), dialect, text))
    if program is None:
        raise SystemExit(f"not compiled: {text}")
    return program


def decode_with_proton() -> Callable[[bytes], bool] | None:
    """The complex filter in Python over a message decoded by python-qpid-proton; None where that is not installed."""
    try:
        from proton import Message as ProtonMessage
    except ImportError:
        return None
    message = ProtonMessage()

    def matches(data: bytes) -> bool:
        message.decode(data)
        values = message.properties or {}
        return (
            message.subject == "order.created"
            and message.creation_time * 1000 > CREATED_AFTER_MS
            and values.get("region") in ("AMER", "EMEA", "APJ")
            and (message.priority > 4 or values.get("price", 0) >= 99.99 or values.get("premium_customer") is True)
        )

    return matches


def matches_by_reference(data: bytes) -> bool:
    return verdict_of_bytes(TREE, data, 0) is Verdict.TRUE


TREE = bind(parse(COMPLEX), "rabbitmq", COMPLEX)


def one_by_one(batch: EncodedMessages) -> tuple[Measurement, list[bool]]:
    rows = [batch.message(row) for row in range(DECODED_ONE_BY_ONE)]
    matches = decode_with_proton()
    name = "one at a time, python-qpid-proton" if matches else "one at a time, reference (no python-qpid-proton here)"
    decide = matches or matches_by_reference
    measurement = measure(name, lambda: [decide(row) for row in rows], len(rows), rounds=3)
    return measurement, [decide(row) for row in rows]


def across_languages() -> list[Measurement]:
    """Filters of one shape in each language, on typed properties, and on strings, which RocketMQ parses.

    A number in a string is an error to Service Bus and unlike every number to RabbitMQ. RocketMQ reads it as the type
    of the literal: `price > 10` is an error on nearly every text.
    """
    measurements = []
    for kind, only_strings in (("typed", False), ("strings", True)):
        batch = event_batch(MESSAGES, only_strings=only_strings)
        for shape, text in SHAPES.items():
            for dialect in LANGUAGES:
                program = compiled(text.format(ten="10.0" if dialect == "rocketmq" else "10"), dialect)
                for mode, exact in (("select", False), ("exact", True)):
                    title = f"{shape}, {kind}, {dialect}, {mode}"
                    measurements.append(measure(title, partial(program.verdicts, batch, 0, exact=exact), len(batch)))
        program = compiled("price > 10", "rocketmq")
        title = f"price > 10, {kind}, rocketmq, exact"
        measurements.append(measure(title, partial(program.verdicts, batch, 0), len(batch)))
    return measurements


def attach_seconds() -> list[float]:
    """From the text of a filter that was never seen to the verdicts of 100 messages, the kernel being loaded."""
    batch = event_batch(100)
    seconds = []
    for number in range(50):
        text = COMPLEX.replace("99.99", f"{number}.5")
        start = time.perf_counter()
        compiled(text).verdicts(batch, 0, exact=False)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def main() -> None:
    batch = event_batch(MESSAGES)
    size = int(batch.lengths.sum())
    baseline, expected = one_by_one(batch)
    found = compiled(COMPLEX).verdicts(batch, 0, exact=False)[:DECODED_ONE_BY_ONE] == Verdict.TRUE
    if found.tolist() != expected:
        raise SystemExit("the kernel and the decoder do not agree")
    measurements = [baseline]
    for name, text in FILTERS.items():
        program = compiled(text)
        share = float(np.mean(program.verdicts(batch, 0, exact=False) == Verdict.TRUE))
        for mode, exact in (("select", False), ("exact", True)):
            title = f"{name}, {mode}, {100 * share:.1f} % match"
            run = partial(program.verdicts, batch, 0, exact=exact)
            measurements.append(measure(title, run, len(batch), work_bytes=size))
    measurements += across_languages()
    seconds = attach_seconds()
    measurements.append(Measurement("attach: text to first verdicts", 1, seconds, "filters"))
    title = (
        f"{len(batch):,} messages, {batch.lengths.min()} to {batch.lengths.max()} B, {size / len(batch):.0f} on average"
    )
    report("filter_kernel", title, measurements, baseline=baseline.name)
    print(f"attach: {1e3 * statistics.median(seconds):.2f} ms")


if __name__ == "__main__":
    main()
