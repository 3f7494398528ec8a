"""The reference evaluator as the oracle of what compiled programs say."""

from __future__ import annotations

from headgate.evaluate.program import Program
from headgate.evaluate.reference import verdict_of_bytes
from headgate.evaluate.verdict import UNDECIDED, Verdict
from headgate.language.tree import Node
from headgate.message.batch import EncodedMessages


def assert_agrees(program: Program, tree: Node, text: str, messages: list[bytes], now_ms: int) -> int:
    """Both modes say what the oracle says wherever they decide; gives the number of messages left open."""
    batch = EncodedMessages.of(messages)
    exact = program.verdicts(batch, now_ms)
    select = program.verdicts(batch, now_ms, exact=False)
    for message, of_exact, of_select in zip(messages, exact, select, strict=True):
        expected = verdict_of_bytes(tree, message, now_ms)
        if of_exact != UNDECIDED:
            assert of_exact == expected, (text, message.hex())
        if of_select != UNDECIDED:
            assert (of_select == Verdict.TRUE) == (expected is Verdict.TRUE), (text, message.hex())
    return int((exact == UNDECIDED).sum())
