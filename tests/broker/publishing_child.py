"""Publishes through a broker until it is killed; says on its output what was confirmed.

    python publishing_child.py ROOT FIRST_UNNAMED FIRST_NAMED

Messages `u<number>` have no publisher name; `p<number>` are those of publisher `p`, their number is their sequence. A
line `u 10 25` says that the messages 10 to 24 were confirmed.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from brokers import batch
from headgate.broker.broker import Broker
from headgate.errors import HeadgateError


def main(root: str, first_unnamed: str, first_named: str) -> None:
    broker = Broker(Path(root), now_ms=lambda: time.time_ns() // 1_000_000)
    session = broker.open_session("guest", protocol="test", connection="child")
    publishers = {"u": session.publisher("s"), "p": session.publisher("s", reference="p")}
    numbers = {"u": int(first_unnamed), "p": int(first_named)}

    def told(kind: str, first: int, stop: int) -> Callable[[HeadgateError | None], None]:
        def written(error: HeadgateError | None) -> None:
            line = f"{kind} {first} {stop}\n" if error is None else f"error {error}\n"
            os.write(1, line.encode())

        return written

    # Another rhythm in each life, and the same again for the same beginning.
    rhythm = random.Random(first_named)
    while True:
        for _ in range(rhythm.randint(1, 4)):
            kind = rhythm.choice("up")
            first = numbers[kind]
            stop = numbers[kind] = first + rhythm.choice([1, 3, 50, 700])
            bodies = [b"%s%d" % (kind.encode(), number) for number in range(first, stop)]
            sequences = range(first, stop) if kind == "p" else None
            publishers[kind].publish(batch(bodies, told(kind, first, stop), sequences=sequences))
        session.store_offset("s", "reader", numbers["p"])
        broker.write_queued()
        broker.tick(broker.now_ms())


if __name__ == "__main__":
    main(*sys.argv[1:])
