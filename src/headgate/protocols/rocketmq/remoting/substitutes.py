"""Substitutes in Headgate for requests that are not served; most requests come from `mqadmin` and `DefaultMQAdminExt`.

Source of the numbers: the class `RequestCode` of 5.5.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_GROUPS: tuple[tuple[str, Iterable[int]], ...] = (
    (
        "`headgate rocketmq topic create`, `change` and `rm` make, change and delete topics",
        (17, 18, 215, 216, 217, 513),
    ),
    (
        "`headgate rocketmq topic ls` and `headgate rocketmq topic show` list topics and what their queues hold",
        (21, 22, 23, 202, 206, 224, 304, 305, 311, 312, 313, 351),
    ),
    (
        "`headgate rocketmq group create`, `change` and `rm` make, change and delete consumer groups",
        (200, 207, 225),
    ),
    (
        "`headgate rocketmq group ls` and `headgate rocketmq group show` list groups, their members, places and lag",
        (43, 201, 203, 208, 221, 223, 300, 303, 307, 317, 343, 345, 352),
    ),
    ("`headgate rocketmq group reset` lets a consumer group go on elsewhere in a topic", (211, 212, 220, 222, 314)),
    ("GET /api/connections over HTTP lists connections", (204, 328)),
    ("`headgate key add`, `ls` and `rm` give and take rights", (353, *range(3001, 3011))),
    (
        "its settings are in the configuration that `headgate serve` is started with",
        (25, 26, 47, 318, 319, 401, 402, 2001, 2002, 2004, 5001),
    ),
    ("GET /metrics over HTTP has the counters", (28, 45, 60, 61, 315, 2003)),
    ("`headgate tail` shows what is in a queue, `headgate stream verify` whether it is whole", (321, 354, 355)),
    ("retention deletes by itself what is too old", (27, 306, 316, 329)),
    ("there are no key-value settings, and queues are always in order", (100, 101, 102, 219)),
    ("there are no transactions", (39, 323)),
    ("messages are pulled, or received over gRPC", (*range(200050, 200057), 200151)),
    ("there are no lite topics", range(200070, 200080)),
    (
        "one server is name server and broker; there are no replicas, containers and controllers",
        (103, 104, 205, 327, *range(901, 909), *range(1001, 1019)),
    ),
)

_SUBSTITUTES: Mapping[int, str] = {code: text for text, codes in _GROUPS for code in codes}


def not_supported(code: int) -> str:
    """The answer to a request that is not served: the original's words, and what to use instead, if known."""
    words = f" request type {code} not supported"
    substitute = _SUBSTITUTES.get(code)
    return words if substitute is None else f"{words} by Headgate: {substitute}"
