"""Topics and queues for clients of Service Bus, declared at the running server."""

from __future__ import annotations

import base64
import json
import urllib.parse
import urllib.request
from typing import Any

from interop.servers import Served
from waiting import LIMIT_S

_LOGIN = "Basic " + base64.b64encode(b"guest:guest").decode()
DEFAULT = [{"name": "$Default", "sql": "1=1"}]


def declare_topic(served: Served, name: str, **subscriptions: Any) -> str:
    """A topic; each subscription is a list of rules, or an object with its rules, settings and other properties."""
    given = [
        {"name": subscription, **(rules if isinstance(rules, dict) else {"rules": rules})}
        for subscription, rules in subscriptions.items()
    ]
    return _declare(served, name, {"subscriptions": given})


def declare_queue(served: Served, name: str, settings: dict[str, Any] | None = None, **delivery: Any) -> str:
    """A queue with settings of its own; keywords say how its messages are delivered."""
    return _declare(served, name, {"settings": {"kind": "queue", **(settings or {})}, "delivery": delivery})


def _declare(served: Served, name: str, body: object) -> str:
    request = urllib.request.Request(
        f"http://{served.host}:{served.http}/api/entities/{urllib.parse.quote(name, safe='')}",
        data=json.dumps(body).encode(),
        headers={"Authorization": _LOGIN},
        method="PUT",
    )
    urllib.request.urlopen(request, timeout=LIMIT_S).close()
    return name


def connection_string(served: Served) -> str:
    """That of an emulator; any secret will do."""
    return (
        f"Endpoint=sb://{served.host}:{served.amqp};SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )
