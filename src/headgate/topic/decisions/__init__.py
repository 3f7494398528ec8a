"""Deciding a topic once, behind its writer: which copies each message gives to which subscription, written down.

    Decider, Step              decides in steps of bounded work; the one at a time for a topic
    Postings, CopyRuns         its results: counts, the first copy, runs of (offset, rule) of a subscription
    CopyReader, CopyBatch      the bytes of copies, and of dead letters
    Selected, Pairs            the copies that the messages of a step give
    RuleCounts                 how many messages each rule selected, and failed for
    MAX_SESSION_ID_BYTES       a longer session id counts as none

Hidden: the bytes of a block (`block`) and its making (`open_block`, `selection`), how chunks are read (`source`), and
when postings are valid (`postings`, `rule_states`). docs/design/decisions.md has the reasons.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.topic.decisions.copy_reader import CopyBatch, CopyReader
    from headgate.topic.decisions.decider import Decider, Step
    from headgate.topic.decisions.pairs import Pairs
    from headgate.topic.decisions.postings import Postings
    from headgate.topic.decisions.rule_counts import RuleCounts
    from headgate.topic.decisions.runs import CopyRuns
    from headgate.topic.decisions.selection import Selected
    from headgate.topic.decisions.session_ids import MAX_SESSION_ID_BYTES
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
