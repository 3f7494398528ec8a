"""Deciding the messages of a topic: a few in the loop's own turn, many by a worker, step by step.

appended ──► decide ──► taken(step)                    at once, where little is left and no rule is new
               └─► a worker's step ──► taken(step)     else; copies are given out between the steps
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from headgate.broker.environment import Environment, RunInWorker
from headgate.broker.intervals import is_over
from headgate.broker.repeated_failure import RepeatedFailure
from headgate.broker.stream import BrokerStream
from headgate.errors import HeadgateError, LogError
from headgate.scan.fetch import AppendedChunks
from headgate.topic.decisions import CopyReader, Decider, Step

DECIDED_HERE = 512
"""Limit: messages decided in the loop's own turn."""

DECIDED_A_STEP = 16_384
"""Limit: messages that a worker decides in one step; meanwhile the topic's copies wait."""

_LEAST_STEP = 64
_LONG_STEP_MS = 200
"""After a longer step the next one has a quarter of its messages, until steps are short again: before kernels are
compiled a message takes about a hundred times as long."""

_REST = 9
_MOST_REST_MS = 500
"""While messages are published and no receiver waits, deciding takes a tenth of the time. The rest comes first, so
that a burst is published undisturbed. The first step after a change of many rules takes seconds, and is no measure."""


class TopicDecider:
    """The decider of a topic, and the reader of its copies, at work; in the broker's thread but for a worker's steps.

    `is_awaited` says whether a receiver waits for copies; `taken` is called after every step, `failed` after a failed
    one, which is tried again a second later. `took_ns` is the processor time of all steps.
    """

    def __init__(
        self,
        stream: BrokerStream,
        decider: Decider,
        environment: Environment,
        *,
        is_awaited: Callable[[], bool],
        taken: Callable[[Step], None],
        failed: Callable[[], None],
    ) -> None:
        self.decider = decider
        self.reader = CopyReader(decider.postings)
        self.decided_until = decider.next_offset
        """The first offset that no finished step has decided."""
        self.stopped_by: LogError | None = None
        """Why deciding stopped: a damaged message, or a file that cannot be written; None while it goes on."""
        self.is_busy = False
        """Whether a worker runs a step: meanwhile it alone uses the postings, and the reader of copies."""
        self.step_lock = threading.Lock()
        """Held during a worker's step; taken by callers that have to read postings meanwhile."""
        self._stream = stream
        self.took_ns = 0
        self._now_ms = environment.now_ms
        self._cpu_ns = environment.cpu_ns
        self._touch = environment.wake
        self._run_in_worker = environment.workers.background
        self._run_in_storage = environment.workers.storage or self._run_in_worker
        self._is_awaited = is_awaited
        self._taken = taken
        self._failed = failed
        self._appended: AppendedChunks | None = None
        self._appends = 0
        """Appends since the last step."""
        self._step_messages = DECIDED_A_STEP
        """How many messages a worker decides in the next step."""
        self._first_rest_ms = 0
        """The rest before a first step: it may be a whole one."""
        self._rest_until_ms = 0
        self._is_closed = False
        self._trouble = RepeatedFailure()

    @property
    def is_behind(self) -> bool:
        """Whether there are messages that are not decided."""
        return self.decided_until < self._stream.next_offset

    def appended(self, chunks: AppendedChunks | None) -> None:
        """The stream has new messages; `chunks` has all of them if nothing else came since the last step."""
        self._appends += 1
        self._appended = chunks if self._appends == 1 else None
        now_ms = self._now_ms()
        if self._appends == 1 and not self.is_busy:
            self._rest_until_ms = now_ms + self._first_rest_ms
        # The end of a step asks for a turn, and so does a tick while something is left.
        if not self.is_busy and not self._rests(now_ms, self._stream.next_offset - self.decided_until):
            self._touch()

    def _rests(self, now_ms: int, left: int) -> bool:
        """Whether the messages left are to be decided later."""
        is_much = self._run_in_worker is not None and left > DECIDED_HERE
        if not is_much or is_over(self._rest_until_ms - _MOST_REST_MS, _MOST_REST_MS, now_ms):
            return False
        return not self._is_awaited()

    def decide(self, now_ms: int, *, has_new_rules: bool) -> None:
        """Run a step, here or in a worker, if there are messages to decide or new rules."""
        left = self._stream.next_offset - self.decided_until
        if self.is_busy or not (left or has_new_rules or self.decider.postings.has_unverified):
            return
        if self._trouble.rests(now_ms):
            return
        # The cost of new rules is unknown, so a worker pays it, not the loop.
        if self._run_in_worker is None or (left <= DECIDED_HERE and not has_new_rules):
            appended, self._appended, self._appends = self._appended, None, 0
            try:
                step = self._step(max(left, 1), now_ms, appended)
            except HeadgateError as error:
                self._note(error, now_ms)
            else:
                self._take(step)
        elif has_new_rules or not self._rests(now_ms, left):
            # One that waits for object storage must not keep other topics from being decided.
            is_far = self._stream.stream.may_be_remote(self.decided_until)
            run = self._run_in_storage if is_far and self._run_in_storage is not None else self._run_in_worker
            self._decide_in_worker(run, now_ms)

    def _decide_in_worker(self, run_in_worker: RunInWorker, now_ms: int) -> None:
        self.is_busy = True
        self._appended, self._appends = None, 0
        steps: list[Step] = []
        most = self._step_messages

        def decide() -> None:
            with self.step_lock:
                steps.append(self._step(most, now_ms, None))

        run_in_worker(decide, lambda error: self._decided(steps, error, begun_ms=now_ms))

    def _step(self, most: int, now_ms: int, appended: AppendedChunks | None) -> Step:
        """A step, in any thread."""
        begun_ns = self._cpu_ns()
        with self._stream.guarded():
            step = self.decider.step(most, now_ms=now_ms, appended=appended)
        self.took_ns += self._cpu_ns() - begun_ns
        return step

    def _decided(self, steps: list[Step], error: BaseException | None, *, begun_ms: int) -> None:
        """A worker has ended a step."""
        self.is_busy = False
        if self._is_closed:
            self._close()
            return
        if isinstance(error, HeadgateError):
            self._note(error, self._now_ms())
        elif error is not None:
            raise error
        for step in steps:
            self._take(step)
        ended_ms = self._now_ms()
        took_ms = ended_ms - begun_ms
        if took_ms > _LONG_STEP_MS:
            self._step_messages = max(self._step_messages // 4, _LEAST_STEP)
        elif 4 * took_ms <= _LONG_STEP_MS:
            self._step_messages = min(self._step_messages * 4, DECIDED_A_STEP)
        rest_ms = min(_REST * took_ms, _MOST_REST_MS)
        self._rest_until_ms = ended_ms + rest_ms if self._appends else 0
        if steps and steps[0].stop - steps[0].start == DECIDED_A_STEP:
            self._first_rest_ms = rest_ms
        self._touch()

    def _take(self, step: Step) -> None:
        self._trouble.clear()
        self.stopped_by = None
        self.decided_until = step.next_offset
        self._taken(step)

    def _note(self, error: HeadgateError, now_ms: int) -> None:
        self._trouble.note(f"topic {self._stream.name!r} cannot be decided", error, now_ms)
        self.stopped_by = error if isinstance(error, LogError) else None
        self._failed()

    def close(self) -> None:
        """Close the files, at once or when a worker's step ends. Again is harmless."""
        self._is_closed = True
        if not self.is_busy:
            self._close()

    def _close(self) -> None:
        self.reader.close()
        self.decider.close()
