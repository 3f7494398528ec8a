"""Lone messages to a subscription, over AMQP 1.0: from sending one until its copy is at the consumer, which settles it.

The load of `broker_live.py` (1 000 messages a second, each in a frame of its own, confirmed; a copy is accepted by a
disposition of its own), once from a plain stream and once by a subscription with an SQL rule, in turn.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import statistics
import urllib.request
import uuid
from collections.abc import Iterator

import broker_amqp10
from broker_live import WARM_UP_S, figures
from harness import report_table
from live_load import Window, run_load
from live_peers import ENOUGH_CREDIT, UNSETTLED, Address, Amqp10Consumer, Amqp10Publisher, Rig
from serving import served

RATE = 1_000
CREDENTIALS = base64.b64encode(b"guest:guest").decode()
SHOWN = ("cores", "confirm_p50_ms", "confirm_p99_ms", "delivery_p50_ms", "delivery_p99_ms")


def put(http: Address, path: str, body: object) -> None:
    request = urllib.request.Request(f"http://{http[0]}:{http[1]}/api/{path}", json.dumps(body).encode(), method="PUT")
    request.add_header("Authorization", f"Basic {CREDENTIALS}")
    request.add_header("Content-Type", "application/json")
    urllib.request.urlopen(request).close()


@contextlib.contextmanager
def rig(amqp: Address, http: Address, count: int, *, is_topic: bool) -> Iterator[Rig]:
    """Publishers and consumers, one of each per stream or topic."""
    run = uuid.uuid4()
    with contextlib.ExitStack() as stack:
        publishers, consumers = [], []
        for number in range(count):
            name = f"live-{run}-{number}"
            publisher, consumer = (
                stack.enter_context(broker_amqp10.connected(amqp)) for _ in ("publisher", "consumer")
            )
            if is_topic:
                put(http, f"topics/{name}", {})
                rules = [{"name": "all", "sql": "user.nothing IS NULL"}]
                put(http, f"topics/{name}/subscriptions/s", {"rules": rules})
            else:
                publisher.declare(name)
            publisher.sender(name)
            if is_topic:
                consumer.subscription(f"{name}%2FSubscriptions%2Fs", snd_settle_mode=UNSETTLED).grant(ENOUGH_CREDIT)
            else:
                consumer.receiver(name, (), snd_settle_mode=UNSETTLED).grant(ENOUGH_CREDIT)
            consumer.flush()
            publishers.append(Amqp10Publisher(publisher))
            consumers.append(Amqp10Consumer(consumer))
        yield Rig(publishers, consumers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="of a round after its warm-up")
    options = parser.parse_args()
    rounds: dict[str, list[dict[str, float]]] = {}
    with served("amqp", "http") as process:
        process.wait_for_children()
        amqp, http = (("127.0.0.1", process.ports[name]) for name in ("amqp", "http"))
        for _ in range(options.rounds):
            for count in (1, 20):
                for is_topic in (False, True):
                    what = f"{'subscription' if is_topic else 'stream'}, {count} publisher{'s' if count > 1 else ''}"
                    with rig(amqp, http, count, is_topic=is_topic) as peers:
                        window = Window(process.pid, os.getpid())
                        one = run_load(
                            peers.publishers,
                            peers.consumers,
                            rate=RATE,
                            seconds=options.seconds,
                            warm_up_s=WARM_UP_S,
                            window=window,
                        )
                    rounds.setdefault(what, []).append(figures(one))
                    print(what, {name: round(value, 3) for name, value in rounds[what][-1].items()}, flush=True)
    names = [name for name in SHOWN if name in next(iter(rounds.values()))[0]]
    cells = [
        [what, "", *(f"{statistics.median(one[name] for one in measured):.2f}" for name in names)]
        for what, measured in rounds.items()
    ]
    title = f"Lone messages to a subscription over AMQP 1.0, {RATE:,} a second"
    report_table("live_topics", title, ["what", "", *names], cells, [rounds])


if __name__ == "__main__":
    main()
