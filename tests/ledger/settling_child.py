"""A process that claims, completes and moves copies of a stream until it is killed; it says what is committed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from headgate.ledger import Ledger, append_moves
from headgate.ledger import ledger as ledger_module
from headgate.log import Stream, Writer
from ledgers import claim, message_of


def main(folder: Path, target: Path) -> None:
    """Three copies a turn: the first is completed, the second moved, the third stays claimed for the next process."""
    ledger_module.LEAST_BYTES_BETWEEN_SNAPSHOTS = 2_000
    ledger_module.SEGMENT_BYTES = 2_000
    with (
        Ledger.open(Stream.open(folder), now_ms=0) as ledger,
        Writer.open(Stream.open(target), now_ms=0) as writer,
    ):
        view = ledger.view("red", 0)
        append_moves(ledger, "dead", writer, made=message_of, now_ms=0)
        ledger.commit(0)
        while True:
            offset = (view.available()[-1][0] + (1 << 20) - 1) >> 20
            tokens = claim(view, offset, offset + 3)
            ledger.commit(0)
            print("claimed", offset, int(tokens.claims[0]), flush=True)
            view.complete(tokens.take(np.array([True, False, False])))
            view.move(tokens.take(np.array([False, True, False])), "dead", b"why")
            ledger.commit(0)
            print("settled", offset, flush=True)
            append_moves(ledger, "dead", writer, made=message_of, now_ms=0)


main(Path(sys.argv[1]), Path(sys.argv[2]))
