"""Cache warming: between messages that come one by one, the server takes some that nobody sent.

After a few milliseconds of sleep most of what a lone message costs is code and data that left the processor's caches.
So the way from its bytes to its confirm is gone every now and then, through the same classes: a driver, a broker and
connections of their own (`warming`), on which the cores of our own clients publish (`clients`).
"""

from headgate.server.warming.warming import CacheWarming

__all__ = ["CacheWarming"]
