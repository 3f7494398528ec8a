"""Spans of the batches that a server writes and delivers, by OpenTelemetry's conventions for messaging systems.

A span is made in the event loop and handed to a queue, which a thread of the exporter empties; while the queue is full,
spans are dropped. Only servers with `[tracing] enabled` import this module.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable

from headgate.broker import BatchObserver
from headgate.errors import HeadgateError
from headgate.telemetry import AttributeValue, Context, Link, SpanKind, Status, StatusCode, sampled_contexts, tracer
from headgate.topic import QUEUE_SUBSCRIPTION, SubscriptionName

_SAMPLED_MESSAGES = 128
"""Limit: messages of a batch in which contexts are looked for."""
_SAMPLED_BYTES = 4096
"""Limit: first bytes of a message in which a context is looked for; the sections before the body are there."""
_NOBODY = Context()
"""Spans of the server have no parent: a batch has messages of many traces."""


class BatchTracing(BatchObserver):
    """Makes a span of each batch; see the head of this module."""

    def __init__(self, *, links: int) -> None:
        """At most `links` links in a span. Raises ConfigError without OpenTelemetry."""
        self._tracer = tracer("headgate.server", service="headgate")
        self._most_links = links

    def published(
        self, stream: str, count: int, messages: Iterable[memoryview], *, began_ms: int, error: HeadgateError | None
    ) -> None:
        """A span `publish STREAM`, from the beginning of the write to its end."""
        self._end("publish", "send", stream, {}, count, messages, began_ms=began_ms, error=error)

    def delivered(self, stream: str, reader: str, count: int, messages: Iterable[memoryview]) -> None:
        """A span `deliver NAME` of no length: the moment at which the batch is given to its connection."""
        named: dict[str, AttributeValue] = {}
        subscription = SubscriptionName.parse(reader)
        if subscription is not None:
            if subscription.subscription != QUEUE_SUBSCRIPTION:
                named["messaging.destination.subscription.name"] = subscription.subscription
        elif reader:
            named["messaging.consumer.group.name"] = reader
        self._end("deliver", "receive", stream, named, count, messages, began_ms=None, error=None)

    def _end(
        self,
        name: str,
        kind: str,
        stream: str,
        named: dict[str, AttributeValue],
        count: int,
        messages: Iterable[memoryview],
        *,
        began_ms: int | None,
        error: HeadgateError | None,
    ) -> None:
        now_ns = time.time_ns()
        looked_at = (part[:_SAMPLED_BYTES] for part in itertools.islice(messages, _SAMPLED_MESSAGES))
        span = self._tracer.start_span(
            f"{name} {stream}",
            context=_NOBODY,
            kind=SpanKind.SERVER,
            attributes={
                "messaging.system": "headgate",
                "messaging.operation.name": name,
                "messaging.operation.type": kind,
                "messaging.destination.name": stream,
                "messaging.batch.message_count": count,
                **named,
            },
            links=[Link(context) for context in sampled_contexts(looked_at, self._most_links)],
            start_time=now_ns if began_ms is None else min(began_ms * 1_000_000, now_ns),
        )
        if error is not None:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end(now_ns)
