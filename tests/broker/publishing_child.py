"""Publishes through a broker until it is killed; says on its output what was confirmed.

    python publishing_child.py ROOT FIRST_UNNAMED FIRST_NAMED [full]

Messages `u<number>` have no publisher name; `p<number>` are those of publisher `p`, their number is their sequence. A
line `u 10 25` says that the messages 10 to 24 were confirmed. With `full` the disk is full now and then; what was
refused of `p` is sent again, and sometimes what lies behind it is sent before.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from brokers import batch
from headgate.broker.broker import Broker
from headgate.errors import HeadgateError
from headgate.log import stream_folder


def main(root: str, first_unnamed: str, first_named: str, full: str = "") -> None:
    broker = Broker(Path(root), now_ms=lambda: time.time_ns() // 1_000_000)
    session = broker.open_session("guest", protocol="test", connection="child")
    publishers = {"u": session.publisher("s"), "p": session.publisher("s", reference="p")}
    numbers = {"u": int(first_unnamed), "p": int(first_named)}
    refused: list[int] = []

    def told(kind: str, first: int, stop: int) -> Callable[[HeadgateError | None], None]:
        def written(error: HeadgateError | None) -> None:
            if error is None:
                os.write(1, f"{kind} {first} {stop}\n".encode())
            elif not full:
                os.write(1, f"error {error}\n".encode())
            elif kind == "p":
                refused.append(first)

        return written

    # Another rhythm in each life, and the same again for the same beginning.
    rhythm = random.Random(first_named)
    while True:
        if full:
            # Files end soon: writing behind that fails as on a full disk.
            newest = max(stream_folder(Path(root), "s").glob("*.segment"))
            room = rhythm.choice([newest.stat().st_size + rhythm.randint(0, 200), resource.RLIM_INFINITY])
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
            if refused and rhythm.random() < 0.5:
                numbers["p"] = min(refused)
                refused.clear()
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
