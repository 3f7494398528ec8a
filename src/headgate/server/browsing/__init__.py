"""Looking at the messages of a stream, for the console and scripts: no offset moves, and no consumer knows of it.

    browse, Page, Budget     a bounded read from some place on
    counters_shown           the counters of a read for people
    Follower, Turn           reads on as the stream grows: all matches counted, a sample of many shown
    message_row              a message as JSON for reading: sections, types, the beginning of its body

Plain functions, to be called in threads: they read files, for a bounded time.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.browsing.follow import Follower, Turn
    from headgate.server.browsing.pages import Budget, Page, browse, counters_shown
    from headgate.server.browsing.rows import SHOWN_BODY_BYTES, message_row
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
