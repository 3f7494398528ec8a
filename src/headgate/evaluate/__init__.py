"""How a bound tree is decided: true, false, unknown or error for a message.

Hides the two evaluators, which always agree: the reference (one message, slow, obvious: the oracle) and the kernel (a
flat program interpreted over batches of encoded messages). `Filter` is the door; `prune` says of a chunk never or
maybe, `explain` says clause by clause why a message did or did not match.
"""

from headgate.evaluate.filter import Engine, Filter
from headgate.evaluate.verdict import Verdict

__all__ = ["Engine", "Filter", "Verdict"]
