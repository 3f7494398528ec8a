"""Any damage of a folder is harmless or named: flipped, zeroed, cut, swapped, deleted, doubled bytes, and every reader.

`HEADGATE_DAMAGE_SEED` gives the seed of a run again, with `HEADGATE_DAMAGE_NUMBER` one mutation of it.
"""

from __future__ import annotations

import os
import random
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from brokers import START_MS, open_broker, open_session
from headgate.broker.broker import Broker
from headgate.broker.session import Session
from headgate.client import Client, Retry
from headgate.errors import ConfigError, HeadgateError
from headgate.log.settings import SETTINGS_NAME, load_settings, save_settings
from headgate.server.stream import StreamHandler
from log_streams import quick_folder
from server.running import RunningServer, running_server

from . import readers
from .judging import Truth, message_counts, names_file, truths, truths_of_writers
from .limits import no_hang, quiet
from .mutations import Mutation, draw
from .originals import NEW_BODY, Original, make_originals
from .plain_log import Request, Row, expected, tracking

SEED = 20_261_123


@dataclass(frozen=True)
class Failure:
    """A reader that broke the rule."""

    mutation: Mutation
    number: int
    reader: str
    what: str
    detail: str

    @property
    def group(self) -> tuple[str, str, str, str]:
        return self.mutation.kind, self.mutation.file_kind, self.reader, self.what


@dataclass
class Campaign:
    """Where the readers find damaged folders, and what they did wrong."""

    root: Path
    originals: list[Original]
    broker: Broker
    session: Session
    served: RunningServer
    failures: list[Failure] = field(default_factory=list)
    mutation: Mutation = field(init=False)
    number: int = 0
    said: list[str] = field(default_factory=list)
    """Errors of readers in the folder that named the damage."""

    def examine(self, mutation: Mutation, number: int) -> None:
        """Let every reader at it."""
        self.mutation, self.number, self.said = mutation, number, []
        chance = random.Random(number)
        requests = requests_of(mutation.original)
        allowed, after_recovery = truths(mutation), truths_of_writers(mutation)
        with self.folder("reading") as folder:
            for request in requests:
                self.reads("tail", request, allowed, lambda rows, at=request: readers.tail(folder, at, rows))
            for request in some(requests, chance):
                self.reads("spark", request, allowed, lambda rows, at=request: readers.spark(folder, at, rows))
            self.reads(
                "spark streaming", Request(), allowed, lambda rows: readers.spark_streaming(folder, Request(), rows)
            )
            amer = Request(only_amer=True)
            if mutation.original.has_regions:
                counts = {len(self.expected(truth, amer)) for truth in allowed}
                self.gives("index count", lambda: readers.index_count(folder), counts.__contains__)
            totals = message_counts(mutation)
            self.gives("stream info", lambda: readers.info_count(folder), totals.__contains__)
            kept = [tracking_of(truth) for truth in allowed]
            self.gives("tracking", lambda: readers.tracked(folder), lambda found: found in kept)
            if mutation.original.rules is not None:
                rules = mutation.original.rules
                self.gives("rules", lambda: readers.rules_in_force(folder), rules.__eq__)
            # Where the damage may look like something else, an error is more than has to be said.
            said = list(self.said) if len(allowed) == 2 else []
            must_say = bool(said) or mutation.is_short_index
            self.gives("verify", lambda: readers.verified(folder), lambda found: bool(found) or not must_say)
            if mutation.original.has_regions:
                self.gives("index build", lambda: readers.index_build_and_count(folder), counts.__contains__)
        with self.folder("broker") as folder:
            name = name_of(folder)
            for request in some(requests, chance):
                self.reads(
                    "broker messages",
                    request,
                    after_recovery,
                    lambda rows, at=request: readers.broker_messages(self.session, name, at, rows),
                )
            for request in (Request(), Request(only_amer_chunks=True)):
                self.reads(
                    "broker chunks",
                    request,
                    after_recovery,
                    lambda rows, at=request: readers.broker_chunks(self.session, name, at, rows),
                )
            if mutation.original.is_own:
                self.publishes(name, after_recovery)
            self.broker.consumers.close()
        # It notices that the folder is gone, and closes what it had open of it.
        self.broker.tick(START_MS + 1_000 * (number + 1))
        if mutation.original.is_own:
            with self.folder("writing") as folder:
                self.writes(folder, after_recovery)
        if number % 4 == 0:
            with self.folder("server/data") as folder:
                self.asks_server(name_of(folder), after_recovery)

    @contextmanager
    def folder(self, part: str) -> Iterator[Path]:
        """The damaged folder under a root; its name was never used before, so that no one remembers it."""
        own = self.mutation.original
        name = f"{own.name}-{self.number}" if own.is_own else f"{own.name.removesuffix('_1')}-{self.number}_1"
        folder = self.root / part / "streams" / name
        folder.mkdir(parents=True)
        for file, content in self.mutation.files.items():
            (folder / file).write_bytes(content)
        if own.is_own and SETTINGS_NAME not in self.mutation.names:
            settings = load_settings(folder)
            assert settings is not None
            save_settings(folder, msgspec.structs.replace(settings, name=name), flushed=False)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def fail(self, reader: str, what: str, detail: str) -> None:
        self.failures.append(Failure(self.mutation, self.number, reader, what, detail))

    def expected(self, truth: Truth, request: Request) -> list[Row]:
        own = self.mutation.original
        return expected(truth, request, is_amer=own.is_amer, is_declared=own.is_declared)

    def reads(
        self,
        reader: str,
        request: Request,
        allowed: list[Truth],
        read: Callable[[list[Row]], None],
        *,
        more: tuple[bytes, ...] = (),
    ) -> list[Row] | None:
        """What a reader gave, if it ended without an error and was right; `more`: the messages written since."""
        rows: list[Row] = []
        wanted = [self.expected(truth, request) for truth in allowed]
        error = self.attempt(reader, str(request), lambda: read(rows))
        plain = rows if not more else rows[: -len(more)]
        if error is not None:
            if not any(each[: len(rows)] == rows for each in wanted):
                self.fail(reader, "wrong messages before an error", f"{request}: {difference(rows, wanted[0])}")
        elif more and tuple(row[2] for row in rows[-len(more) :]) != more:
            self.fail(reader, "a confirmed message is not there", str(request))
        elif plain not in wanted:
            lost = set(wanted[0]) - set(plain)
            what = "messages missing" if len(lost) == len(wanted[0]) - len(plain) and lost else "wrong messages"
            self.fail(reader, what, f"{request}: {difference(plain, wanted[0])}")
        else:
            return rows
        return None

    def gives(self, reader: str, ask: Callable[[], object], is_right: Callable[[object], bool]) -> None:
        """Check a reader that gives one value."""
        found: list[object] = []
        if self.attempt(reader, "", lambda: found.append(ask())) is None and found and not is_right(found[0]):
            self.fail(reader, "says nothing" if reader == "verify" else "a wrong answer", f"{found[0]!r}"[:300])

    def attempt(self, reader: str, request: str, action: Callable[[], object]) -> Exception | None:
        """The error that an action ended with, which is a failure itself unless it names the file."""
        try:
            action()
        except HeadgateError as error:
            if reader == "client" or isinstance(error, readers.DeliveredDamageError):
                # A protocol has codes for errors, and no files; the server's log has.
                return error
            # Where less may be there, a read that was to begin behind it is told which offsets there are.
            is_behind = isinstance(error, ConfigError) and "lies behind the end" in str(error)
            if names_file(self.mutation, error) or (is_behind and len(truths(self.mutation)) > 2):
                if reader in ("tail", "spark"):
                    self.said.append(str(error))
            else:
                self.fail(reader, f"{type(error).__name__} without the file", f"{request}: {error}")
            return error
        except Exception as error:
            self.fail(reader, f"ended with {type(error).__name__}", f"{request}: {error}")
            return error
        return None

    def writes(self, folder: Path, allowed: list[Truth]) -> None:
        """A writer refuses, or what it confirms is there behind what was confirmed before."""
        offsets: list[int] = []
        with readers.logged() as texts:
            if self.attempt("writer", "", lambda: offsets.append(readers.write(folder))) is not None or not offsets:
                return
        self.confirmed("writer", offsets[0], allowed, lambda at, rows: readers.tail(folder, at, rows))
        last = self.mutation.original.last_stem
        rows: list[Row] = []
        if self.attempt("writer", "", lambda: readers.tail(folder, Request(), rows)) is None:
            is_shorter = len(rows) - 1 < len(self.expected(self.mutation.original.chunks, Request()))
            cuts = (self.mutation.is_cut_tail or self.mutation.is_in_last_chunk) and len(self.mutation.names) == 1
            present = all(name in self.mutation.files for name in self.mutation.names)
            if is_shorter and cuts and present and not any(last in text for text in texts):
                self.fail("writer", "cut confirmed messages without logging it", f"{len(rows) - 1} left")

    def publishes(self, name: str, allowed: list[Truth]) -> None:
        """The same through the broker."""
        reader = "broker publishing"
        ended: list[bool] = []

        def action() -> None:
            readers.publish(self.session, name, self.broker.write_queued)
            ended.append(True)

        if self.attempt(reader, "", action) is None and ended:
            self.confirmed(
                reader, None, allowed, lambda at, rows: readers.broker_messages(self.session, name, at, rows)
            )
        stream = None
        try:
            stream = self.broker.catalogue.find(name)
        except HeadgateError:
            return
        if stream is not None:
            stream.close_writer()

    def confirmed(
        self, reader: str, offset: int | None, allowed: list[Truth], read: Callable[[Request, list[Row]], None]
    ) -> None:
        """A message was confirmed: it is there, and all before it, or readers say what is not."""
        new = Request("last") if offset is None else Request("offset", offset)
        found: list[Row] = []
        error = self.attempt(f"{reader}, then reading", "", lambda: read(new, found))
        if error is not None or [row[2] for row in found] != [NEW_BODY]:
            self.fail(reader, "a confirmed message is not there", f"{new}: {error or len(found)}")
        self.reads(f"{reader}, then reading", Request(), allowed, lambda rows: read(Request(), rows), more=(NEW_BODY,))

    def asks_server(self, name: str, allowed: list[Truth]) -> None:
        """A client of the stream protocol."""
        retry = Retry(first_s=0.01, most_s=0.05, give_up_after_s=0.3)
        with Client.connect(f"127.0.0.1:{self.served.ports['stream']}", retry=retry) as client:
            for request in (Request(), Request(only_amer_chunks=True)):
                self.reads("client", request, allowed, lambda rows, at=request: readers.client(client, name, at, rows))


def tracking_of(truth: Truth) -> object:
    """What a stream keeps, None where damaged trailers cannot be read."""
    try:
        return tracking(truth)
    except IndexError:
        return None


def difference(found: list[Row], wanted: list[Row]) -> str:
    missing = [row[0] for row in wanted if row not in found]
    other = [row[:2] for row in found if row not in wanted]
    return f"{len(found)} messages of {len(wanted)}, not there {missing[:8]}, too many {other[:4]}"


def name_of(folder: Path) -> str:
    """The name of the stream in a folder."""
    return folder.name[2:-2] if folder.name.startswith("__") else folder.name


def requests_of(original: Original) -> list[Request]:
    """Everything that readers are asked of a stream: from everywhere, with and without filters."""
    found = [Request(), Request("last"), Request("next"), Request(only_amer_chunks=True)]
    if original.has_regions:
        found += [Request(only_amer=True), Request(only_amer=True, only_amer_chunks=True)]
    for stem in dict.fromkeys(chunk.stem for chunk in original.chunks):
        chunks = [chunk for chunk in original.chunks if chunk.stem == stem]
        middle = chunks[len(chunks) // 2]
        found += [Request("offset", middle.chunk_id), Request("time", middle.time_ms)]
        found.append(Request("offset", middle.chunk_id + middle.num_records - 1, only_amer_chunks=True))
    return found


def some(requests: list[Request], chance: random.Random) -> list[Request]:
    """Those from the first message on, and two others."""
    first = [request for request in requests if request.start == "first"]
    return [*first, *chance.sample([request for request in requests if request.start != "first"], 2)]


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with quick_folder() as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def originals(root: Path, rabbitmq_streams: Path) -> list[Original]:
    return make_originals(root / "originals", rabbitmq_streams)


@pytest.fixture(scope="module")
def campaign(root: Path, originals: list[Original]) -> Iterator[Campaign]:
    broker = open_broker(root / "broker")
    with running_server(root / "server", handlers={"stream": StreamHandler}) as served:
        yield Campaign(root, originals, broker, open_session(broker), served)
    broker.close()


def run(campaign: Campaign, seed: int, count: int) -> None:
    """The first mutations of a seed; fails with a table of what readers did wrong."""
    only = os.environ.get("HEADGATE_DAMAGE_NUMBER")
    numbers = range(count) if only is None else range(int(only), int(only) + 1)
    print(f"HEADGATE_DAMAGE_SEED={seed}, {len(numbers)} mutations")
    campaign.failures.clear()
    kinds: Counter[str] = Counter()
    for number in numbers:
        mutation = draw(campaign.originals, seed, number)
        kinds[mutation.kind] += 1
        with no_hang(), quiet(), warnings.catch_warnings():
            # A match index that does not check is passed over with a warning.
            warnings.simplefilter("ignore")
            campaign.examine(mutation, number)
    print(", ".join(f"{kind}: {times}" for kind, times in sorted(kinds.items())))
    if campaign.failures:
        pytest.fail(report(campaign.failures, seed), pytrace=False)


def report(failures: list[Failure], seed: int) -> str:
    """The failures by kind of damage, file, reader, and what the reader did, with an example of each."""
    groups: dict[tuple[str, str, str, str], list[Failure]] = {}
    for failure in failures:
        groups.setdefault(failure.group, []).append(failure)
    lines = [
        f"{len(failures)} failures in {len({failure.number for failure in failures})} mutations, in {len(groups)} "
        f"groups; HEADGATE_DAMAGE_SEED={seed} HEADGATE_DAMAGE_NUMBER=… gives one mutation again"
    ]
    for (kind, file_kind, reader, what), members in sorted(groups.items()):
        first = members[0]
        lines.append(f"{len(members):4} × {kind} | {file_kind} | {reader} | {what}")
        lines.append(f"       number {first.number}: {first.mutation}: {first.detail}")
    return "\n".join(lines)


def test_readers_of_undamaged_folders_are_right(campaign: Campaign, originals: list[Original]) -> None:
    campaign.failures.clear()
    for number, original in enumerate(originals):
        with no_hang(), quiet():
            campaign.examine(Mutation(original, "nothing", (), "", original.files), 4 * number)
    assert not campaign.failures, report(campaign.failures, 0)


def test_damage_is_harmless_or_an_error_that_names_the_file(campaign: Campaign) -> None:
    run(campaign, int(os.environ.get("HEADGATE_DAMAGE_SEED", SEED)), 75)


@pytest.mark.long
def test_much_damage_is_harmless_or_an_error_that_names_the_file(campaign: Campaign, seed: int) -> None:
    run(campaign, int(os.environ.get("HEADGATE_DAMAGE_SEED", seed)), 5_000)
