"""The bytes of a block: what is written is read, and no flipped byte is believed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import CorruptSidecarError
from headgate.log import ENTRY_DTYPE
from headgate.topic.decisions.block import BLOCK_OFFSETS, CHUNK_DTYPE, Block, BlockContent, Shared, encode_block
from headgate.topic.decisions.entries import Entries
from headgate.topic.decisions.pairs import Pairs
from headgate.topic.decisions.rule_states import RuleState
from headgate.topic.decisions.runs import CopyRuns
from headgate.topic.decisions.session_ids import OF_MESSAGES, SessionIds

BASE = 3 * BLOCK_OFFSETS
OFFSETS = st.one_of(st.integers(0, 40), st.just(BLOCK_OFFSETS - 1))
TRIPLES = st.lists(
    st.tuples(st.sampled_from([1, 2, 70_000]), OFFSETS, st.integers(0, 3)), unique=True, max_size=40
).map(sorted)
SESSIONS = st.dictionaries(
    st.tuples(st.sampled_from([OF_MESSAGES, 1, 70_000]), OFFSETS, st.integers(0, 3)),
    st.sampled_from([b"", b"a", b"session"]),
    max_size=40,
)
GROUPS = st.lists(
    st.tuples(st.lists(st.sampled_from([1, 2, 5]), unique=True, min_size=1), st.integers(1, 9)), max_size=3
)
Triples = list[tuple[int, int, int]]
Named = dict[tuple[int, int, int], bytes]


def pairs_of(triples: Triples) -> Pairs:
    table = np.array(triples, dtype=np.int64).reshape(-1, 3)
    return Pairs(table[:, 0], table[:, 1] + BASE, table[:, 2])


def shared_of(groups: list[tuple[list[int], int]], first: int) -> list[Shared]:
    """Groups of subscriptions, each with a run behind that of the group before."""
    found = []
    for numbers, length in groups:
        found.append((np.array(sorted(numbers)), np.array([first]), np.array([first + length])))
        first += length + 1
    return found


def sessions_of(named: Named) -> SessionIds:
    names = sorted(set(named.values()))
    places = [names.index(named[triple]) for triple in sorted(named)]
    return SessionIds(pairs_of(sorted(named)), np.array(places, dtype=np.int64), names)


def content_of(
    copies: Triples, failures: Triples, sound: list[Shared], malformed: list[Shared], sessions: Named
) -> BlockContent:
    some = np.zeros(len(SOME), dtype=ENTRY_DTYPE)
    some["crc"] = SOME
    entries = Entries(BASE + SOME, some)
    chunks = np.array([(BASE - 5, 1), (BASE + 9, 2**32 - 1)], dtype=CHUNK_DTYPE)
    rules = (RuleState(BASE, "a"), RuleState(BASE + 7, "b"))
    return BlockContent(
        "id",
        BASE,
        BASE + BLOCK_OFFSETS,
        rules,
        chunks,
        entries,
        pairs_of(copies),
        pairs_of(failures),
        sound,
        malformed,
        sessions_of(sessions),
    )


SOME = np.append(np.arange(0, 128, 2), BLOCK_OFFSETS - 2)
"""Messages that somebody has a copy of."""


def opened(data: bytes, *, before: bytes = b"before") -> Block:
    whole = before + data + b"behind"
    return Block(
        lambda position, count: whole[position : position + count],
        path=Path("postings"),
        position=len(before),
        size_bytes=len(data),
    )


@given(TRIPLES, TRIPLES, GROUPS, GROUPS, SESSIONS)
def test_what_is_written_is_read(
    copies: Triples,
    failures: Triples,
    sound: list[tuple[list[int], int]],
    malformed: list[tuple[list[int], int]],
    sessions: Named,
) -> None:
    # Copies of all messages, and failures of all bytes that are none, are at other offsets than single ones here.
    taking, failing = shared_of(sound, BASE + 100), shared_of(malformed, BASE + 200)
    block = opened(encode_block(content_of(copies, failures, taking, failing, sessions)))
    rows = block.rows()
    assert [state.name for state in block.directory.rules] == ["a", "b"]
    assert block.chunks().tolist() == [(BASE - 5, 1), (BASE + 9, 2**32 - 1)]
    assert block.entries(BASE + np.array([6, 7, 8, 9, 65_534]))["crc"].tolist() == [6, 0, 8, 0, 65_534]
    for number in (1, 2, 5, 70_000):

        def expected(triples: Triples, groups: list[Shared], number: int = number) -> list[tuple[int, int]]:
            own = [(BASE + offset, rule) for subscription, offset, rule in triples if subscription == number]
            for numbers, firsts, stops in groups:
                if number in numbers:
                    own += [(offset, 0) for offset in range(int(firsts[0]), int(stops[0]))]
            return sorted(own)

        wanted = expected(copies, taking), expected(failures, failing)
        own = [(offset, rule) for subscription, offset, rule in copies if subscription == number]
        assert session_ids(block, number, own) == [
            sessions.get((number if rule else OF_MESSAGES, offset, rule)) for offset, rule in own
        ]
        row = block.row_of(number)
        if row is None:
            assert wanted == ([], [])
            continue
        found = block.postings(rows, row)
        assert (found.copies.pairs(), found.failures.pairs()) == wanted
        assert (block.copies[row], block.failed[row]) == tuple(map(len, wanted))


def session_ids(block: Block, subscription: int, copies: list[tuple[int, int]]) -> list[bytes | None]:
    if not copies:
        return []
    offsets, rules = np.array(copies, dtype=np.int64).T
    return block.session_ids(block.rows(), subscription, offsets + BASE, rules)


def everything(block: Block) -> list[object]:
    """All that can be asked of a block."""
    rows = block.rows()

    def listed(runs: CopyRuns) -> list[tuple[int, int, int]]:
        return list(runs)

    found = [block.postings(rows, row) for row in range(len(rows))]
    return [
        block.directory,
        rows.tolist(),
        block.chunks().tolist(),
        block.entries(BASE + SOME).tobytes(),
        [(listed(each.copies), listed(each.failures)) for each in found],
        session_ids(block, 1, [(offset, rule) for offset in range(8) for rule in (0, 2)]),
    ]


def test_no_flipped_byte_is_believed() -> None:
    copies = [(1, offset, rule) for offset in range(8) for rule in (0, 2)] + [(2, 5, 0), (2, 9, 0)]
    groups = shared_of([([1, 2], 5), ([2], 3)], BASE + 100)
    sessions = {(OF_MESSAGES, 1, 0): b"a", (OF_MESSAGES, 3, 0): b"b", (1, 3, 2): b"acted"}
    data = encode_block(content_of(copies, [(1, 30, 4)], groups, shared_of([([1], 2)], BASE + 200), sessions))
    right = everything(opened(data))
    assert right[-1] == [None, None, b"a", None, None, None, b"b", b"acted", *[None] * 8]
    directory = opened(data).directory
    areas_at = len(data) - directory.session_names.position - directory.session_names.length
    entries_at, sessions_at = (areas_at + each.position for each in (directory.entries, directory.sessions))
    for place in [*range(entries_at), entries_at + 1, *range(sessions_at - 1, len(data))]:
        damaged = bytearray(data)
        damaged[place] ^= 0x20
        try:
            found = everything(opened(bytes(damaged)))
        except CorruptSidecarError:
            continue
        assert found == right, place


@pytest.mark.parametrize("cut", [0, 10, 16, 100, -1])
def test_a_block_that_is_cut_is_damaged(cut: int) -> None:
    data = encode_block(content_of([(1, 1, 0)], [], [], [], {}))[:cut]
    with pytest.raises(CorruptSidecarError):
        opened(data)


def test_what_cannot_be_read_is_damage() -> None:
    def read(position: int, count: int) -> bytes:
        raise OSError(5, "no device")

    with pytest.raises(CorruptSidecarError, match="no device"):
        Block(read, path=Path("postings"), position=0, size_bytes=100)
