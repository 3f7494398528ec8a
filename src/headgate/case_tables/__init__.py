"""Tables of cases: JSON lines that say what a filter must do with which messages, run against every engine.

Hides how a line's kind is recognised by its keys (`run`) and how the cases of each system are decided (`rabbitmq`). The
forms are in docs/reference/case-tables.md; the recorded verdicts of the original systems are such tables, and users
write their own.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.case_tables.run import TableFailure, TableResult, run_tables
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
