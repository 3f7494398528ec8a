"""Carrying out moves whose target is a stream on this disk."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from headgate.ledger.ledger import Ledger
from headgate.ledger.state import Move
from headgate.log import Writer

MAX_PUBLISHERS = 200
"""Views whose moves one call appends: the target must remember all their sequences until the ledger is committed."""


MOVES_A_CALL = 16_384
"""Moves that one call carries out; more are left for the next."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What becomes of a move that its target does not take: it goes to another one, changed on its way as that says."""

    target: str
    change: bytes


Made = tuple[bytes, bytes | None] | Elsewhere | None
"""The message of a move, with its filter value, that of the field which the target declares, if it does; or where it
goes instead; None: nowhere, it is over."""


def append_moves(ledger: Ledger, target: str, writer: Writer, *, made: Callable[[Move], Made], now_ms: int) -> int:
    """Append the pending moves to a target, in order and each once; how many are not pending any more.

    `made` gives the message of a move: the copy, as the view's rules make it of the message at its offset, with the
    move's change. Commit the ledger afterwards, and call again if moves are left. Raises what `made` and
    `Writer.append` raise; the moves before that one are appended, and the ledger knows.
    """
    pending = ledger.moves().get(target, [])[:MOVES_A_CALL]
    last: dict[int, int | None] = {}
    done = 0
    for view, group in itertools.groupby(pending, key=lambda move: move.view):
        if view not in last:
            if len(last) == MAX_PUBLISHERS:
                break
            last[view] = writer.last_sequence(ledger.publisher(view))
        known, moves = last[view], list(group)
        taken: list[tuple[int, tuple[bytes, bytes | None]]] = []
        elsewhere: list[tuple[Move, Elsewhere]] = []
        for move in moves:
            if known is not None and move.sequence <= known:
                continue
            found = made(move)
            if isinstance(found, Elsewhere):
                elsewhere.append((move, found))
            elif elsewhere:
                # What is in the target counts as all before it: nothing is appended ahead of the commit of these.
                break
            elif found is not None:
                taken.append((move.sequence, found))
        if taken:
            writer.append(
                [message for _, message in taken],
                now_ms=now_ms,
                publisher=ledger.publisher(view),
                sequences=[sequence for sequence, _ in taken],
                filter_source=writer.settings.filter_source,
            )
            last[view] = taken[-1][0]
        for move, other in elsewhere:
            ledger.redirect(move, other.target, other.change)
        over = elsewhere[-1][0] if elsewhere else moves[-1]
        ledger.moved(target, over.sequence)
        done += sum(move.sequence <= over.sequence for move in moves)
        if elsewhere:
            break
    return done


def redirect_moves(
    ledger: Ledger, target: str, *, last_sequence: Callable[[str], int | None], elsewhere: Callable[[Move], Elsewhere]
) -> int:
    """Send the pending moves to a target that takes none elsewhere; how many are not pending any more.

    `last_sequence` gives the last one of a publisher in the target: what is there already stays. Commit and call again
    as for `append_moves`. Raises what the two raise.
    """
    moves = ledger.moves().get(target, [])[:MOVES_A_CALL]
    lasts = {view: last_sequence(ledger.publisher(view)) for view in {move.view for move in moves}}
    missing = [move for move in moves if (last := lasts[move.view]) is None or move.sequence > last]
    for move, other in [(move, elsewhere(move)) for move in missing]:
        ledger.redirect(move, other.target, other.change)
    if moves:
        ledger.moved(target, moves[-1].sequence)
    return len(moves)
