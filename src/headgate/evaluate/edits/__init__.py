"""Changing encoded messages in a kernel: the statements of an action as a program.

    compile_edits, EditProgram     statements that see the same message, compiled
    run_edits, Changed             many programs over a batch: copies, and a status for each message
    place_of, Place, RULE_NAME     the identity of a field; where copies have the name of their rule

Hidden: the words of a program (`layout.py`), and the kernel that runs them. The reference handles the messages that
the kernel leaves undecided (`headgate.evaluate.actions`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.evaluate.edits.program import (
        RULE_NAME,
        Changed,
        EditProgram,
        FieldKey,
        compile_edits,
        field_key,
        run_edits,
    )
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
