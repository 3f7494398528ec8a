"""What was refused of named publishers: runs of sequences say what the sequences one by one say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.broker import refusals
from headgate.broker.refusals import RefusedSequences

SEQUENCES = st.lists(st.integers(0, 30), min_size=1, max_size=6).map(lambda found: sorted(set(found)))
STEPS = st.lists(st.tuples(st.sampled_from(["refuse", "write", "declare"]), SEQUENCES), max_size=20)


def array(sequences: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(sequences, dtype=np.uint64)


@given(STEPS, SEQUENCES)
def test_runs_say_what_single_sequences_say(steps: list[tuple[str, list[int]]], asked: list[int]) -> None:
    refused, publishers = RefusedSequences(), [0]
    missing: dict[int, int] = {}
    last = -1
    for kind, sequences in steps:
        new = [each for each in sequences if each > last]
        if kind == "declare":
            publishers.append(refused.declare())
        elif kind == "refuse":
            refused.add(b"p", array(sequences))
            missing |= dict.fromkeys(new, len(publishers) - 1)
        elif new:
            refused.check(lambda _, last=last: None if last < 0 else last)  # type: ignore[misc]
            refused.taken(b"p", array(new))
            last = new[-1]
            missing = {each: when for each, when in missing.items() if each not in new}
        for publisher in publishers:
            held = [each for each, when in missing.items() if when >= publisher]
            wanted = [each for each in asked if each > last]
            before = [each for each in held if wanted and each < wanted[-1] and each not in wanted]
            found = refused.missing(b"p", publisher, None if last < 0 else last, array(wanted))
            assert found == (min(held) if before else None)
            if held:
                assert refused.holds_back(b"p", publisher)
    refused.check(lambda _: None if last < 0 else last)
    old = [each for each in asked if each <= last]
    assert refused.overtaken(b"p", array(old)) == any(each in missing for each in old)


def test_the_memory_for_runs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "MAX_RUNS", 4)
    refused = RefusedSequences()
    publisher = refused.declare()
    for number in range(0, 100, 10):
        refused.add(b"p", array([number]))
    refused.check(lambda _: None)
    assert refused.missing(b"p", publisher, None, array([100])) == 0
    assert sum(map(len, refused._runs.values())) <= 4
