"""Ledgers for tests: streams, plain copies, messages of moves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headgate.ledger import Ledger, Move, Tokens, View, copy_number
from headgate.log import Stream, Writer

UNTIL = 1_000_000


def new_stream(folder: Path, name: str = "orders") -> Stream:
    return Stream.create(folder / name, name=name, now_ms=0)


def plain(*offsets: int) -> list[int]:
    return [copy_number(offset) for offset in offsets]


def messages(start: int, stop: int) -> tuple[int, int]:
    """The range of all copies of these messages."""
    return copy_number(start), copy_number(stop)


def claim(view: View, start: int, stop: int, *, until_ms: int = UNTIL) -> Tokens:
    """The plain copies of messages, of which the view has no other copies."""
    return view.claim(plain(*range(start, stop)), until_ms, covered=[messages(start, stop)]).tokens


def message_of(move: Move) -> tuple[bytes, bytes | None]:
    return b"%d %d %s" % (move.view, move.copy, move.change), None


def floors(ledger: Ledger) -> dict[str, int]:
    return {view.key: view.floor >> 20 for view in ledger.views()}


def append_bodies(stream: Stream, bodies: Iterable[bytes]) -> None:
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(body, None) for body in bodies], now_ms=0)
