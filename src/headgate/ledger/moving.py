"""Carrying out moves whose target is a stream on this disk."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from headgate.ledger.ledger import Ledger
from headgate.ledger.state import Move
from headgate.log import Writer

MAX_PUBLISHERS = 200
"""Views whose moves one call appends: the target must remember all their sequences until the ledger is committed."""


def append_moves(
    ledger: Ledger, target: str, writer: Writer, *, made: Callable[[Move], tuple[bytes, bytes | None]], now_ms: int
) -> int:
    """Append the pending moves to a target, in order and each once; how many are not pending any more.

    `made` gives the message of a move: the copy, as the view's rules make it of the message at its offset, with the
    move's change; and its filter value, that of the field which the target declares, if it does. Commit the ledger
    afterwards, and call again if moves are left. Raises what `made` and `Writer.append` raise; the moves before that
    one are appended, and the ledger knows.
    """
    before = ledger.moves().get(target, [])
    last: dict[int, int | None] = {}
    done = 0
    for view, group in itertools.groupby(before[:], key=lambda move: move.view):
        if view not in last:
            if len(last) == MAX_PUBLISHERS:
                break
            last[view] = writer.last_sequence(ledger.publisher(view))
        known = last[view]
        moves = list(group)
        missing = [move for move in moves if known is None or move.sequence > known]
        if missing:
            writer.append(
                [made(move) for move in missing],
                now_ms=now_ms,
                publisher=ledger.publisher(view),
                sequences=[move.sequence for move in missing],
                filter_source=writer.settings.filter_source,
            )
            last[view] = missing[-1].sequence
        ledger.moved(target, moves[-1].sequence)
        done += len(moves)
    return done
