"""A broker with a queue or some, in process: turns of its loop, and members of consumer groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from brokers import Background, SetClock, open_broker, open_session, publish
from headgate.broker import Broker, Session
from headgate.broker.consumer_groups import (
    GroupSettings,
    GroupView,
    PendingReceive,
    Received,
    ReceivedMessage,
    ReceiveRequest,
)
from headgate.broker.environment import RunInWorker
from headgate.broker.settings import BrokerSettings
from headgate.errors import HeadgateError
from headgate.evaluate import Filter
from headgate.log import DiskFile, Durability, OpenFile
from headgate.message import Message

INVISIBLE_MS = 10_000
MOST_TURNS = 60


def message(number: int, *, group: str | None = None, **properties: object) -> bytes:
    return Message(b"%d" % number, group_id=group, application_properties=properties or None).encode()


def number_of(encoded: bytes) -> int:
    body = Message.decode(encoded).body
    assert body is not None
    return int(body.octets() or b"")


@dataclass(slots=True)
class Asked:
    """A request, and its answer."""

    request: ReceiveRequest
    answers: list[Received | HeadgateError] = field(default_factory=list)
    receiving: PendingReceive = field(init=False)
    queues: tuple[int, ...] = (0,)
    """Which queues of the lab it is over."""

    @property
    def answer(self) -> Received:
        """It was answered once, and not with an error."""
        (answer,) = self.answers
        assert isinstance(answer, Received), answer
        return answer

    @property
    def messages(self) -> list[ReceivedMessage]:
        """What it was given."""
        return self.answer.messages

    @property
    def offsets(self) -> list[int]:
        return [each.offset for each in self.messages]

    @property
    def places(self) -> list[tuple[int, int]]:
        """Queue and offset of each."""
        return [(each.queue, each.offset) for each in self.messages]

    @property
    def tokens(self) -> list[bytes]:
        return [each.token for each in self.messages]

    @property
    def attempts(self) -> list[int]:
        return [each.attempt for each in self.messages]

    @property
    def error(self) -> HeadgateError:
        (answer,) = self.answers
        assert isinstance(answer, HeadgateError), answer
        return answer


class GroupLab:
    """A broker, and turns of its loop."""

    def __init__(
        self, root: Path, *, open_file: OpenFile = DiskFile, queues: int = 1, body_schema: str | None = None
    ) -> None:
        self.root = root
        self.settings = BrokerSettings(open_file=open_file)
        self.worker: RunInWorker | None = None
        self.clock = SetClock()
        self.streams = tuple(f"q{number}" for number in range(queues))
        self._is_woken = False
        self.broker: Broker = self.opened()
        for name in self.streams:
            self.session.declare_stream(name, {}, body_schema=body_schema)

    def opened(self) -> Broker:
        self.broker = open_broker(
            self.root, clock=self.clock, settings=self.settings, wake=self._wake, run_in_worker=self.worker
        )
        self.session: Session = open_session(self.broker)
        return self.broker

    def restart(self) -> None:
        self.broker.close()
        self.opened()

    def restart_to_disk(self) -> Background:
        """From now on commits and appends wait for a worker, which works when the test says so."""
        background = Background()
        self.worker = background
        self.settings = BrokerSettings(durability=Durability.DISK, open_file=self.settings.open_file)
        self.restart()
        return background

    def _wake(self) -> None:
        self._is_woken = True

    def turn(self, after_ms: int = 0) -> None:
        """Time passes, then turns of the loop until there is nothing to do."""
        self.clock.now += after_ms
        self.broker.tick(self.clock.now)
        self._is_woken = True
        for _ in range(MOST_TURNS):
            if not self._is_woken:
                return
            self._is_woken = False
            self.broker.write_queued()
            self.broker.end_turn()
        raise AssertionError("it never rests")

    def declare(self, group: str, settings: GroupSettings) -> None:
        self.broker.consumer_groups.declare(group, settings)

    def publish(self, messages: Sequence[bytes], queue: int = 0, *, turns: bool = True) -> None:
        publisher = self.session.publisher(self.streams[queue])
        assert publish(self.broker, publisher, messages) is None
        publisher.close()
        if turns:
            self.turn()

    def ask(
        self,
        count: int = 32,
        *,
        group: str = "g",
        streams: Sequence[str] | None = None,
        only: Filter | None = None,
        again: Filter | None = None,
        invisible_ms: int = INVISIBLE_MS,
        turns: bool = True,
    ) -> Asked:
        """A request, and a turn."""
        asked = Asked(ReceiveRequest(group, streams or self.streams, only, again, count, invisible_ms, lambda _: None))
        asked.request.then = asked.answers.append
        asked.receiving = self.broker.consumer_groups.receive(asked.request)
        if turns:
            self.turn()
        return asked

    def receive(self, count: int = 32, **more: object) -> Asked:
        """A request that is answered by what is there now."""
        asked = self.ask(count, **more)  # type: ignore[arg-type]
        asked.receiving.end()
        return asked

    def view(self, group: str = "g", queue: int = 0) -> GroupView:
        return self.broker.consumer_groups.view(self.streams[queue], group)

    def settle(self, asked: Asked, *, group: str = "g") -> list[bool]:
        """Settle all that a request was given; which claims stood."""
        held: list[bool] = []
        for queue in sorted({each.queue for each in asked.messages}):
            answers: list[list[bool] | HeadgateError] = []
            tokens = [each.token for each in asked.messages if each.queue == queue]
            self.broker.consumer_groups.view(asked.request.streams[queue], group).complete(tokens, answers.append)
            self.turn()
            (answer,) = answers
            assert isinstance(answer, list), answer
            held += answer
        return held
