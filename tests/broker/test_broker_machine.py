"""What publishers were promised, against a small model: duplicates, failing writes, deaths, restarts, rollovers."""

from __future__ import annotations

import errno
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from brokers import Answers, SetClock, batch, open_broker, open_session, stored
from examples import examples
from headgate.broker.publishers import Publisher
from headgate.broker.settings import BrokerSettings
from log_streams import FailingFiles, abandon, quick_folder


class BrokerMachine(RuleBasedStateMachine):
    """One stream, publishers with and without a name, files that fail now and then, and a broker that dies."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = quick_folder()
        self.root = Path(self.folder.name)
        self.files = FailingFiles(OSError(errno.ENOSPC, "No space left on device"))
        self.clock = SetClock()
        self.answers = Answers()
        self.count = 0
        self.next_sequence = self.oldest_sequence = 1
        self.offsets: dict[str, int] = {}
        self.start()
        self.session.declare_stream("s", {"stream-max-segment-size-bytes": 400})

    def start(self) -> None:
        storage = BrokerSettings(open_file=self.files)
        self.broker = open_broker(self.root, clock=self.clock, settings=storage)
        self.session = open_session(self.broker)
        self.open: dict[str | None, Publisher] = {}

    def publisher(self, reference: str | None) -> Publisher:
        if reference not in self.open:
            self.open[reference] = self.session.publisher("s", reference=reference)
        return self.open[reference]

    @initialize()
    def begin(self) -> None:
        self.publisher(None)

    @rule(size=st.integers(1, 12))
    def publish_without_a_name(self, size: int) -> None:
        for _ in range(2):
            bodies = [b"u%d" % number for number in range(self.count, self.count + size)]
            self.count += size
            self.publisher(None).publish(batch(bodies, self.answers.to(bodies)))

    @rule()
    def publish_one_message(self) -> None:
        body = b"u%d" % self.count
        self.count += 1
        self.publisher(None).publish(batch([body], self.answers.to([body])))

    @rule(back=st.integers(0, 6), size=st.integers(1, 12))
    def publish_with_a_name(self, back: int, size: int) -> None:
        """Go on, after repeating some of the last messages."""
        first = max(self.oldest_sequence, self.next_sequence - back)
        sequences = range(first, first + size)
        self.next_sequence = max(self.next_sequence, sequences.stop)
        bodies = [b"p%d" % number for number in sequences]
        self.publisher("p").publish(batch(bodies, self.answers.to(bodies), sequences=sequences))

    @rule()
    def write(self) -> None:
        self.broker.write_queued()

    @rule(value=st.integers(0, 1000), reference=st.sampled_from(["one", "two"]))
    def store(self, value: int, reference: str) -> None:
        self.session.store_offset("s", reference, value)
        self.offsets[reference] = value

    @rule(budget=st.integers(0, 300), cannot_truncate=st.booleans())
    def let_files_fail(self, budget: int, cannot_truncate: bool) -> None:
        self.files.budget, self.files.fail_truncate = self.files.written + budget, cannot_truncate

    @rule()
    def let_files_be(self) -> None:
        self.files.budget, self.files.fail_truncate = None, False

    @rule(passed_ms=st.sampled_from([100, 1_000, 10_000]))
    def tick(self, passed_ms: int) -> None:
        self.clock.now += passed_ms
        self.broker.tick(self.clock.now)

    @rule(dies=st.booleans())
    def restart(self, dies: bool) -> None:
        self.let_files_be()
        if dies:
            writer = self.broker.catalogue.get("s").writer
            if writer is not None:
                abandon(writer)
            self.offsets.clear()
        else:
            self.broker.close()
        self.start()
        # What was refused and overtaken, or lost, is given up, as an application does that asks for the last sequence.
        last = self.session.last_sequence("s", "p") or 0
        if self.next_sequence > last + 1:
            self.oldest_sequence = self.next_sequence
        self.next_sequence = max(self.next_sequence, last + 1)

    @invariant()
    def what_was_confirmed_is_there_once_and_in_order(self) -> None:
        bodies = stored(self.root, "s")
        assert len(bodies) == len(set(bodies))
        for kind in (b"u", b"p"):
            numbers = [int(body[1:]) for body in bodies if body[:1] == kind]
            assert numbers == sorted(numbers)
        confirmed = {body for label in self.answers.confirmed for body in label}  # type: ignore[attr-defined]
        assert confirmed <= set(bodies)

    @invariant()
    def the_ends_are_those_of_the_files(self) -> None:
        info = self.session.stream_info("s")
        assert info.next_offset >= len(stored(self.root, "s"))

    @invariant()
    def stored_offsets_are_seen(self) -> None:
        for reference, value in self.offsets.items():
            assert self.session.stored_offset("s", reference) == value

    def teardown(self) -> None:
        self.let_files_be()
        self.broker.close()
        self.folder.cleanup()


TestBroker = BrokerMachine.TestCase
TestBroker.settings = examples(0.5)
