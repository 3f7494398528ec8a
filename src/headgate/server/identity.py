"""The server's product and version in every protocol: clients check them, and enable features by the version."""

from __future__ import annotations

from headgate.version import __version__

PRODUCT = "RabbitMQ"
VERSION = "4.3.6"
"""The server behaves as this version."""

NODE = "headgate@localhost"

PROPERTIES = {
    "product": PRODUCT,
    "version": VERSION,
    "cluster_name": NODE,
    "platform": f"Headgate {__version__}",
    "copyright": "the authors of Headgate",
    "information": "Headgate serves streams; licensed under the Apache License 2.0",
}
"""The server's properties at the start of a connection, in all protocols."""
