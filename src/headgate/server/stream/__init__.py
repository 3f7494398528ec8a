"""The stream protocol on a connection: its events become commands of the broker, its answers become frames.

Hides the course of a connection (`handler`), its publishers and their confirms (`publishers`), its subscriptions, their
credit and the active one of a group (`subscriptions`), and the commands with a single answer (`administration`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.stream.handler import StreamHandler
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
