"""Deciding a topic once, behind its writer: which copies each message gives to which subscription, written down.

    Decider, Step              decides in steps of bounded work; the one at a time for a topic
    Postings, CopyRuns         its results: counts, the first copy, runs of (offset, rule) of a subscription
    CopyReader, CopyBatch      the bytes of copies, and of dead letters
    Selected, Pairs            the copies that the messages of a step give
    RuleCounts                 how many messages each rule selected, and failed for
    MAX_SESSION_ID_BYTES       a longer session id counts as none

Hidden: the bytes of a block (`block`) and its making (`open_block`, `selection`), how chunks are read (`source`), and
when postings are valid (`postings`, `rule_states`). docs/design/deciding.md has the reasons.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.topic.deciding.decider import Decider, Step
    from headgate.topic.deciding.pairs import Pairs
    from headgate.topic.deciding.postings import Postings
    from headgate.topic.deciding.reading import CopyBatch, CopyReader
    from headgate.topic.deciding.rule_counts import RuleCounts
    from headgate.topic.deciding.runs import CopyRuns
    from headgate.topic.deciding.selection import Selected
    from headgate.topic.deciding.session_ids import MAX_SESSION_ID_BYTES
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
