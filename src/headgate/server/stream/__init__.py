"""The stream protocol on a connection: its events become commands of the broker, its answers become frames.

Hides the course of a connection (`handler`), its publishers and their confirms (`publishers`), its subscriptions,
credit and who is active (`subscriptions`), and the commands about streams that have one answer (`administration`).
"""

from headgate.server.stream.handler import StreamHandler

__all__ = ["StreamHandler"]
