"""Filters that look into JSON bodies of 200 to 400 bytes, in memory, on one core; beside it Spark on the same rows.

Spark has one core, too, and reads the bodies as strings from Parquet: `from_json` with a schema of the one value that
is asked for, and Variant. All take turns, and must count the same. Times are those of the processor, in this process or
in Spark's JVM, so that other programs on the machine matter less. HEADGATE_BENCH_MESSAGES sets the number.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from harness import Measurement, report

from headgate.evaluate import Filter, Verdict
from headgate.message import EncodedMessages, Message
from headgate.spark import session

MESSAGES = int(os.environ.get("HEADGATE_BENCH_MESSAGES", "500000"))
ROUNDS = 5
WARM_UP = 4
"""Rounds until the JVM has compiled what it runs."""
PROPERTY = "region = 'AMER'"
URGENT = "body.status = 'urgent'"
TOTAL = "body.order.total > 100"
SEVERAL = "body.order.total > 100 AND body.customer.country = 'DE' AND body.items[0].sku LIKE 'A-%'"
ANY = "body.items[*].quantity > 3"


class _Order(msgspec.Struct):
    total: float


class _Body(msgspec.Struct):
    order: _Order


def bodies(count: int) -> list[bytes]:
    """Orders as JSON without blanks; one in a hundred is urgent."""
    chance = random.Random(1)
    made = []
    for number in range(count):
        body = {
            "id": number * 7919,
            "event": "order.created",
            "status": "urgent" if chance.random() < 0.01 else chance.choice(("open", "closed", "paid")),
            "customer": {
                "id": chance.randrange(10**6),
                "name": chance.choice(("Anna Schmidt", "Bob", "Carla Gomez Diaz", "D. Lee")),
                "country": chance.choice(("DE", "US", "FR")),
            },
            "order": {
                "total": round(chance.random() * 200, 2),
                "currency": "EUR",
                "created": f"2026-11-28T18:{chance.randrange(60):02d}:00Z",
            },
            "items": [
                {"sku": f"{chance.choice('ABC')}-{chance.randrange(10**4)}", "quantity": chance.randrange(1, 5)}
                for _ in range(chance.randrange(1, 5))
            ],
            "flags": ["new", "web"],
        }
        made.append(json.dumps(body, separators=(",", ":")).encode())
    return made


def counted(text: str, batch: EncodedMessages, *, exact: bool) -> Callable[[], int]:
    """How many messages a filter matches, by the kernel."""
    made = Filter.parse(text)
    return lambda: int(np.count_nonzero(made.verdicts(batch, exact=exact) == Verdict.TRUE))


def decoded(made: list[bytes]) -> int:
    """The same for TOTAL, each body decoded by msgspec as far as it is asked for."""
    decoder = msgspec.json.Decoder(_Body)
    return sum(decoder.decode(body).order.total > 100 for body in made)


def in_turn(runs: dict[str, Callable[[], object]], jvm: psutil.Process) -> list[Measurement]:
    """Rounds of all in turn, by the time of the processor."""

    def taken(name: str) -> float:
        return sum(jvm.cpu_times()[:2]) if ", Spark" in name else time.process_time()

    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(WARM_UP + ROUNDS):
        for name, run in runs.items():
            start = taken(name)
            run()
            if number >= WARM_UP:
                seconds[name].append(taken(name) - start)
    return [Measurement(name, MESSAGES, times) for name, times in seconds.items()]


def java_process() -> psutil.Process:
    """The JVM of Spark."""
    return next(child for child in psutil.Process().children(recursive=True) if child.name() == "java")


def main() -> None:
    made = bodies(MESSAGES)
    batch = EncodedMessages.of(
        [
            Message(body, application_properties={"region": "AMER" if len(body) % 3 else "EMEA"}).encode()
            for body in made
        ]
    )
    spark = session("benchmark", master="local[1]", config={"spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        place = Path(folder) / "bodies.parquet"
        pq.write_table(pa.table({"body": pa.array([body.decode() for body in made])}), place)
        rows = spark.read.parquet(str(place))
        variant = rows.selectExpr("parse_json(body) AS v")
        queries = {
            f"{TOTAL}, Spark from_json": rows.where("from_json(body, 'order STRUCT<total: DOUBLE>').order.total > 100"),
            f"{TOTAL}, Spark get_json_object": rows.where(
                "cast(get_json_object(body, '$.order.total') AS DOUBLE) > 100"
            ),
            f"{TOTAL}, Spark Variant": variant.where("variant_get(v, '$.order.total', 'double') > 100"),
            f"{URGENT}, Spark from_json": rows.where("from_json(body, 'status STRING').status = 'urgent'"),
            f"{URGENT}, Spark Variant": variant.where("variant_get(v, '$.status', 'string') = 'urgent'"),
        }
        runs: dict[str, Callable[[], object]] = {
            f"{TOTAL}, one at a time, msgspec with a schema": partial(decoded, made),
            **{name: query.count for name, query in queries.items()},
            f"{PROPERTY} (no body)": counted(PROPERTY, batch, exact=False),
            f"{URGENT}, select": counted(URGENT, batch, exact=False),
            f"{URGENT}, exact: each body is walked": counted(URGENT, batch, exact=True),
            f"{TOTAL}, each body is walked": counted(TOTAL, batch, exact=False),
            f"{SEVERAL}, select": counted(SEVERAL, batch, exact=False),
            f"{SEVERAL}, exact": counted(SEVERAL, batch, exact=True),
            f"{ANY}, each body is walked": counted(ANY, batch, exact=True),
        }
        for text in (TOTAL, URGENT):
            counts = {name: run() for name, run in runs.items() if name.startswith(f"{text}, ")}
            if len(set(counts.values())) > 1:
                raise SystemExit(f"counted differently: {counts}")
        lengths = np.array([len(body) for body in made])
        title = f"{MESSAGES:,} messages, bodies of {lengths.min()} to {lengths.max()} B, mean {lengths.mean():.0f}"
        report("bodies", title, in_turn(runs, java_process()), baseline=f"{TOTAL}, Spark from_json")
    spark.stop()


if __name__ == "__main__":
    main()
