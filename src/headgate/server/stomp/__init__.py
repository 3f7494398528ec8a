"""STOMP on the network: `StompHandler` binds the core of a connection to the broker."""

from headgate.server.stomp.handler import StompHandler

__all__ = ["StompHandler"]
