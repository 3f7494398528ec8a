"""STOMP on the network: `StompHandler` binds the core of a connection to the broker."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.stomp.handler import StompHandler
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
