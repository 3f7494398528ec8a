"""Publishers and subscriptions that tell OpenTelemetry of each batch, by the conventions for messaging systems.

A span `send STREAM` is one call that sends messages, until they are on their way; `receive STREAM` is one batch, from
the call that asks for it. Spans link to the sampled contexts that messages carry. Only clients with `tracing` import
this module.
"""

from __future__ import annotations

import time
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from headgate.client.connection import Connection
from headgate.client.publisher import Publisher
from headgate.client.subscription import Subscription
from headgate.log import FilterValues
from headgate.message import EncodedMessages
from headgate.scan import ScanBatch
from headgate.telemetry import (
    MOST_LINKS,
    AttributeValue,
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    sampled_contexts,
    tracer,
)


def traced() -> tuple[type[Publisher], type[Subscription]]:
    """The kinds of publisher and subscription of clients with tracing."""
    made = tracer("headgate.client")
    TracedPublisher.tracer = TracedSubscription.tracer = made
    return TracedPublisher, TracedSubscription


class TracedPublisher(Publisher):
    """A publisher with a span for each batch that it sends."""

    tracer: ClassVar[Tracer]

    def send_encoded(
        self, messages: EncodedMessages, values: FilterValues | None = None, *, ids: NDArray[np.uint64] | None = None
    ) -> None:
        """As of a publisher."""
        # A refusal of an earlier batch is raised here, so an error need not be this batch's.
        with self.tracer.start_as_current_span(
            f"send {self.stream}",
            kind=SpanKind.CLIENT,
            attributes=_attributes("send", self.stream, self._open_connection(), len(messages)),
            links=_links(messages),
        ) as span:
            try:
                super().send_encoded(messages, values, ids=ids)
            except Exception as error:
                span.set_attribute("error.type", type(error).__name__)
                raise


class TracedSubscription(Subscription):
    """A subscription with a span for each batch that it gives."""

    tracer: ClassVar[Tracer]

    def read(self, timeout_s: float | None = None) -> ScanBatch | None:
        """As of a subscription; a wait that ends without messages has no span."""
        began_ns = time.time_ns()
        connection = self._open_connection()
        try:
            batch = super().read(timeout_s)
        except Exception as error:
            span = self._span(began_ns, connection, None)
            span.set_attribute("error.type", type(error).__name__)
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, str(error)))
            span.end()
            raise
        if batch is not None and len(batch):
            self._span(began_ns, connection, batch.messages).end()
        return batch

    def _span(self, began_ns: int, connection: Connection, messages: EncodedMessages | None) -> Span:
        attributes = _attributes("receive", self.options.stream, connection, 0 if messages is None else len(messages))
        if self.options.name is not None:
            attributes["messaging.consumer.group.name"] = self.options.name
        return self.tracer.start_span(
            f"receive {self.options.stream}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=[] if messages is None else _links(messages),
            start_time=began_ns,
        )


def _attributes(operation: str, stream: str, connection: Connection, count: int) -> dict[str, AttributeValue]:
    return {
        "messaging.system": "headgate" if connection.is_headgate else "rabbitmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": stream,
        "messaging.batch.message_count": count,
        "server.address": connection.address.host,
        "server.port": connection.address.port,
    }


def _links(messages: EncodedMessages) -> list[Link]:
    """Links to the sampled contexts that the first messages with one carry, at most `MOST_LINKS`."""
    view, stops = messages.data.data, messages.starts + messages.lengths
    parts = (view[start:stop] for start, stop in zip(messages.starts.tolist(), stops.tolist(), strict=True))
    return [Link(context) for context in sampled_contexts(parts, MOST_LINKS)]
