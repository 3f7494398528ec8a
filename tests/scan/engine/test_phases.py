"""The table of phases: what is not in it raises, and its drawing says what it says."""

from __future__ import annotations

import itertools
import re

import pytest

from headgate.scan.engine import Event, Phase, phases
from headgate.scan.engine.phases import MOVES, after

FROM_EVERYWHERE = {Event.BEGUN: Phase.DUE, Event.STOPPED: Phase.IDLE, Event.CLOSE: Phase.CLOSED}


@pytest.mark.parametrize(("phase", "event"), list(itertools.product(Phase, Event)))
def test_every_move_is_in_the_table_or_raises(phase: Phase, event: Event) -> None:
    if event in MOVES[phase]:
        assert after(phase, event) is MOVES[phase][event]
    else:
        with pytest.raises(ValueError, match=f"a reader that is {phase.value} cannot have '{event.value}'"):
            after(phase, event)


def test_every_phase_is_reached_from_the_first_and_nothing_leaves_the_last() -> None:
    reached, found = {Phase.IDLE}, [Phase.IDLE]
    while found:
        following = set(MOVES[found.pop()].values()) - reached
        reached |= following
        found += following
    assert reached == set(Phase)
    assert MOVES[Phase.CLOSED] == {}


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.CLOSED])
def test_what_happens_from_everywhere_is_in_every_row(phase: Phase) -> None:
    assert MOVES[phase].items() >= FROM_EVERYWHERE.items()


def test_the_drawing_has_every_move_that_changes_a_phase_and_no_other() -> None:
    drawing = (phases.__doc__ or "").split("From everywhere")[0]
    words = set(re.findall(r"[A-Z_]{2,}", drawing))
    drawn = {(phase, event) for phase, moves in MOVES.items() for event, to in moves.items() if to is not phase}
    drawn -= {(phase, event) for phase in Phase for event in FROM_EVERYWHERE} - {(Phase.IDLE, Event.BEGUN)}
    named = {phase.name for move in drawn for phase in (move[0], MOVES[move[0]][move[1]])}
    assert {event.name for _, event in drawn} <= words
    assert named <= words
    assert words <= {phase.name for phase in Phase} | {event.name for event in Event}
