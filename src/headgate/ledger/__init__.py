"""The ledger of a stream: the durable state of its copies. A view is a subscription or a consumer group.

    open       Ledger, read_ledger                                                  ledger, replay
    take       View: claim, postpone; Claim, Standing, Tokens, RowCounts            view, copy_numbers, table
    settle     View: complete, release, renew, move; Ledger.commit, LedgerWrite     view, ledger
    time       Ledger.due, Expired, NEVER                                           state, table
    carry out  Move, append_moves; Elsewhere, redirect_moves (target takes none)    state, moves
    copies     copy_number, offset_of, rule_of, NO_COPY                             copy_numbers
    tell       trace_copies: what became of some copies, TracedCopies, TraceEvent   copy_trace

Hidden: the state of a view's copies (`ranges`, `table`), the records of each change (`records`), snapshots that are cut
while the ledger goes on (`snapshot`), and reading it all back (`replay`). No clock, no threads.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.ledger.copy_numbers import MAX_OFFSET, MAX_RULE, NO_COPY, Tokens, copy_number, offset_of, rule_of
    from headgate.ledger.copy_trace import TracedCopies, TraceEvent, TraceKind, trace_copies
    from headgate.ledger.ledger import Ledger, LedgerWrite
    from headgate.ledger.moves import Elsewhere, Made, append_moves, redirect_moves
    from headgate.ledger.replay import LEDGER_FOLDER, ledger_folder, read_ledger
    from headgate.ledger.state import Expired, LedgerState, Move, Session, ViewState
    from headgate.ledger.table import IN_SESSION, NEVER, RowCounts
    from headgate.ledger.view import Claim, Standing, View
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
