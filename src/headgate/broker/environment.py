"""The surroundings of the parts of one broker: its folder, its clock, its workers, and calls to look after streams."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headgate.broker.observer import BatchObserver, Delivered
from headgate.broker.stream import BrokerStream
from headgate.scan.fetch import CpuTime

RunInWorker = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]
"""Runs its first argument in another thread, and calls the second in the broker's with None or the error."""


def run_here(work: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
    """Run work at once, for a broker without workers."""
    try:
        work()
    except Exception as error:
        ended(error)
    else:
        ended(None)


@dataclass(frozen=True, slots=True)
class Workers:
    """The threads for work that takes long; where one is None, the broker's thread does that work at once.

    `urgent` does work that a client waits for, `background` work that may wait. `commits` writes ledgers that wait for
    the device. `storage` does reads that may wait for object storage, by default where others are done, `transfers`
    moves segments there: with None they stay.
    """

    urgent: RunInWorker | None = None
    background: RunInWorker | None = None
    commits: RunInWorker | None = None
    storage: RunInWorker | None = None
    transfers: RunInWorker | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of the parts of a broker; all calls are made in the broker's thread.

    `cpu_ns` gives the processor time of the calling thread. `wake` asks for a turn of the part. `find` gives an open
    stream by its name. `watch` has the broker look after a stream: messages of other writers, and its own writer once
    it is unused. `know_ids` says whether the message ids of a stream, by which duplicates are found, are known.
    `observer` is told of each batch, if there is one.
    """

    root: Path
    now_ms: Callable[[], int]
    cpu_ns: CpuTime
    wake: Callable[[], None]
    workers: Workers
    find: Callable[[str], BrokerStream | None]
    watch: Callable[[BrokerStream], None]
    know_ids: Callable[[BrokerStream], bool]
    observer: BatchObserver | None = None

    def delivered_of(self, stream: BrokerStream) -> Delivered | None:
        """The observer's call for batches of copies of one stream."""
        return None if self.observer is None else functools.partial(self.observer.delivered, stream.name)
