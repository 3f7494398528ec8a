"""Looking at the messages of a stream, for the console and scripts: no offset moves, and no consumer knows of it.

    browse, Page, Budget     a bounded read from some place on
    message_row              a message as JSON for reading: sections, types, the beginning of its body

Plain functions, to be called in threads: they read files, for a bounded time.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.browsing.pages import Budget, Page, browse, counters_shown
    from headgate.server.browsing.rows import SHOWN_BODY_BYTES, message_row
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
