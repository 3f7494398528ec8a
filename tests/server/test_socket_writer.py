"""How much a sender takes before its thread has sent any of it."""

from __future__ import annotations

import asyncio
import mmap
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from headgate.server.socket_writer import MOST_BYTES, MOST_MAPPED_BYTES, Sender

PIECE_BYTES = 1 << 20
WAIT_S = 30


@pytest.fixture
def sender() -> Iterator[Sender]:
    """A sender whose thread does not get to run."""
    ended: list[Callable[[bool | BaseException], None]] = []
    loop = asyncio.new_event_loop()
    ours, theirs = socket.socketpair()

    def moved() -> None:
        raise AssertionError("nothing was sent")

    def failed(error: BaseException) -> None:
        raise error

    made = Sender(ours.fileno(), loop, lambda work, then: ended.append(then), moved=moved, failed=failed)
    yield made
    made.close()
    for then in ended:
        then(True)
    ours.close()
    theirs.close()
    loop.close()


def taken_bytes(sender: Sender, piece: memoryview) -> int:
    """How much of one piece after another it takes."""
    taken = 0
    while sender.has_room and taken < 10 * MOST_MAPPED_BYTES:
        sender.send([b"head", piece], 4 + len(piece))
        taken += len(piece)
    return taken


def piece_of_a_file(folder: Path) -> memoryview:
    """A view of a mapped file, as readers of segments give them."""
    path = folder / "00000000000000000000.segment"
    path.write_bytes(bytes(PIECE_BYTES))
    with path.open("rb") as file:
        mapping = np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), dtype=np.uint8)
    return mapping[1:].data


def test_what_lies_in_memory_waits_in_small_amounts_only(sender: Sender) -> None:
    taken = taken_bytes(sender, np.zeros(PIECE_BYTES, dtype=np.uint8).data)
    assert MOST_BYTES - 4096 < taken <= MOST_BYTES + PIECE_BYTES


def test_more_of_a_mapped_file_may_wait_because_it_takes_no_memory(sender: Sender, tmp_path: Path) -> None:
    taken = taken_bytes(sender, piece_of_a_file(tmp_path))
    assert MOST_MAPPED_BYTES - 4096 < taken <= MOST_MAPPED_BYTES + PIECE_BYTES


def test_memory_does_not_wait_behind_a_mapped_file_that_fills_its_room(sender: Sender, tmp_path: Path) -> None:
    for _ in range(MOST_BYTES // PIECE_BYTES):
        sender.send([piece_of_a_file(tmp_path)], PIECE_BYTES)
    assert sender.has_room
    sender.send([bytes(PIECE_BYTES)], PIECE_BYTES)
    assert not sender.has_room


def test_what_several_turns_gave_goes_out_in_order() -> None:
    pieces = [bytes([turn]) * count for turn in range(30) for count in (3, PIECE_BYTES)]
    assert asyncio.run(sent_and_received(pieces)) == b"".join(pieces)


async def sent_and_received(pieces: list[bytes]) -> bytes:
    """What comes out when all was given, two pieces a turn, before the thread gets to run."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=theirs)
    reading = asyncio.create_task(reader.read())
    works: asyncio.Queue[tuple[Callable[[], bool], Callable[[bool | BaseException], None]]] = asyncio.Queue()

    def failed(error: BaseException) -> None:
        raise error

    sender = Sender(ours.fileno(), loop, lambda *job: works.put_nowait(job), moved=lambda: None, failed=failed)
    for turn in range(0, len(pieces), 2):
        sender.send(pieces[turn : turn + 2], sum(map(len, pieces[turn : turn + 2])))
    while sender.is_busy:
        work, then = await asyncio.wait_for(works.get(), WAIT_S)
        then(await asyncio.to_thread(work))
    sender.close()
    ours.close()
    received = await asyncio.wait_for(reading, WAIT_S)
    writer.close()
    return received
