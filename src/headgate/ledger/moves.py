"""Carrying out moves whose target is a stream on this disk."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from headgate.ledger.ledger import Ledger
from headgate.ledger.state import Move
from headgate.log import Writer

MAX_PUBLISHERS = 200
"""Limit: views whose moves one call appends. The target must remember their sequences until the ledger commits."""


MOVES_A_CALL = 16_384
"""Limit: moves that one call carries out; more are left for the next."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another target for a move that its target refuses, and the change of the copy on its way there."""

    target: str
    change: bytes


Made = tuple[bytes, bytes | None] | Elsewhere | None
"""The message of a move, with its filter value if the target declares a field for these; or another target; None: the
move is dropped."""


def append_moves(ledger: Ledger, target: str, writer: Writer, *, made: Callable[[Move], Made], now_ms: int) -> int:
    """Append the pending moves to a target, in order and each once; gives how many are not pending any more.

    `made` gives the message of a move: the copy, as the view's rules make it from the message at its offset, with the
    move's change. Commit the ledger afterwards, and call again if moves are left. Raises what `made` and
    `Writer.append` raise; the moves before the failed one are appended, and noted in the ledger.
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
                # A move in the target counts for all moves before it, so append none until the redirects are committed.
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
    """Redirect the pending moves of a target that takes none; gives how many are not pending any more.

    `last_sequence` gives the last sequence of a publisher in the target: moves that are there already stay. Commit and
    call again as for `append_moves`. Raises what the two callables raise.
    """
    moves = ledger.moves().get(target, [])[:MOVES_A_CALL]
    lasts = {view: last_sequence(ledger.publisher(view)) for view in {move.view for move in moves}}
    missing = [move for move in moves if (last := lasts[move.view]) is None or move.sequence > last]
    for move, other in [(move, elsewhere(move)) for move in missing]:
        ledger.redirect(move, other.target, other.change)
    if moves:
        ledger.moved(target, moves[-1].sequence)
    return len(moves)
