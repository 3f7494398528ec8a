"""Many filters at once: which messages of a batch match which of them, in one pass.

Hides how the work is shared: a hash index for the equalities that filters demand, predicates that are evaluated once
for all filters that hold them and 1 024 messages at a time, and small parts for filters that were added lately
(docs/design/rules.md). The result is that of evaluating every filter alone.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.evaluate.rules.common import common_filter
    from headgate.evaluate.rules.rule_set import Matches, RuleSet
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
