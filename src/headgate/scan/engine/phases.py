"""The phases of a reader, and the events that move it from one to another.

           BEGUN                SCAN                 FOUND, FAILED
    IDLE ─────────► DUE ─────────────────► SCANNING ───────────────► DUE
                    │ │ GATHER      SCAN ▲    │
                    │ └──────► GATHERING ┘    │ SAW_END
                    │ SAW_END                 ▼
                    └────────────────────► WAITING ──GREW──► DUE

From everywhere BEGUN leads to DUE, STOPPED to IDLE and CLOSE to CLOSED. A scan may still be under way then; its result
belongs to an earlier generation and is dropped, and no other scan begins before it has ended.
"""

from __future__ import annotations

import enum


class Phase(enum.StrEnum):
    """The phase of a reader."""

    IDLE = "idle"
    """It has no place in the stream: for instance a single active consumer whose turn has not come."""
    DUE = "due"
    """Committed messages behind its place were not looked at."""
    GATHERING = "gathering"
    """A scan is due, but the reader waits for others to come up to it."""
    SCANNING = "scanning"
    """A scan from its place is under way."""
    WAITING = "waiting"
    """Everything committed was looked at."""
    CLOSED = "closed"


class Event(enum.StrEnum):
    """An event of a reader."""

    BEGUN = "begun"
    """It got a place, or goes back to the first message that it was not given."""
    STOPPED = "stopped"
    GREW = "grew"
    """The stream has more than before, or its end cannot be read."""
    GATHER = "gather"
    SCAN = "scan"
    FOUND = "found"
    """A scan ended, with or without messages for it, and there is more to look at."""
    SAW_END = "saw the end"
    """There is nothing more to look at."""
    FAILED = "failed"
    """A scan raised an error: the reader keeps its place."""
    CLOSE = "close"


MOVES: dict[Phase, dict[Event, Phase]] = {
    Phase.IDLE: {},
    Phase.DUE: {
        Event.GATHER: Phase.GATHERING,
        Event.SCAN: Phase.SCANNING,
        Event.SAW_END: Phase.WAITING,
    },
    Phase.GATHERING: {
        Event.GATHER: Phase.GATHERING,
        Event.SCAN: Phase.SCANNING,
    },
    Phase.SCANNING: {
        Event.FOUND: Phase.DUE,
        Event.SAW_END: Phase.WAITING,
        Event.FAILED: Phase.DUE,
    },
    Phase.WAITING: {
        Event.GREW: Phase.DUE,
    },
}
for _moves in MOVES.values():
    _moves |= {Event.BEGUN: Phase.DUE, Event.STOPPED: Phase.IDLE, Event.CLOSE: Phase.CLOSED}
MOVES[Phase.CLOSED] = {}


def after(phase: Phase, event: Event) -> Phase:
    """The phase that follows. Raises ValueError where the event is impossible, which is an error in our own code."""
    try:
        return MOVES[phase][event]
    except KeyError:
        raise ValueError(f"a reader that is {phase.value} cannot have {event.value!r}") from None
