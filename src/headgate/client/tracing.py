"""Publishers and subscriptions that tell OpenTelemetry of each batch, by the conventions for messaging systems.

A span `send STREAM` is one call that sends messages, until they are on their way; `receive STREAM` is one batch, from
the call that asks for it. Spans link to the sampled contexts that messages carry in the application property
`traceparent` (W3C Trace Context). Only this module imports OpenTelemetry, and only clients with `tracing` import it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from headgate.client.connection import Connection
from headgate.client.publisher import Publisher
from headgate.client.subscription import Subscription
from headgate.errors import ConfigError, MessageError, how_to_install
from headgate.log import FilterValues
from headgate.message import EncodedMessages, Message
from headgate.scan import ScanBatch
from headgate.version import __version__

try:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer
    from opentelemetry.util.types import AttributeValue
except ImportError as error:
    raise ConfigError(f"tracing needs OpenTelemetry: {how_to_install('otel')}") from error

MOST_LINKS = 128
"""At most this many links in a span, the limit of OpenTelemetry."""

_PROPERTY = "traceparent"
_CONTEXT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_NAME = re.compile(_PROPERTY.encode())


def tracer() -> Tracer:
    """The tracer of the application's provider.

    Without one, a provider is made that sends spans over OTLP, as the variables `OTEL_…` say.
    """
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
    return trace.get_tracer("headgate.client", __version__)


def traced() -> tuple[type[Publisher], type[Subscription]]:
    """The kinds of publisher and subscription of clients with tracing."""
    made = tracer()
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
            links=list(_links(messages)),
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

    def _span(self, began_ns: int, connection: Connection, messages: EncodedMessages | None) -> trace.Span:
        attributes = _attributes("receive", self.options.stream, connection, 0 if messages is None else len(messages))
        if self.options.name is not None:
            attributes["messaging.consumer.group.name"] = self.options.name
        return self.tracer.start_span(
            f"receive {self.options.stream}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=[] if messages is None else list(_links(messages)),
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


def _links(messages: EncodedMessages) -> Iterator[Link]:
    """Links to the sampled contexts that the first messages with one carry, at most `MOST_LINKS`."""
    left = MOST_LINKS
    behind = -1
    order = np.argsort(messages.starts, kind="stable")
    starts = messages.starts[order]
    # One search through the bytes finds the few messages that are worth decoding.
    for found in _NAME.finditer(messages.data.data):
        row = int(np.searchsorted(starts, found.start(), side="right")) - 1
        if row <= behind:
            continue
        behind = row
        context = _context_of(messages.message(int(order[row])))
        if context is not None:
            yield Link(context)
            left -= 1
            if left == 0:
                return


def _context_of(encoded: bytes) -> SpanContext | None:
    """The sampled context that a message carries; None for none, and for bytes that are no message."""
    try:
        found = (Message.decode(encoded).application_properties or {}).get(_PROPERTY)
    except MessageError:
        return None
    parts = None if found is None else _CONTEXT.fullmatch(str(found.value))
    if parts is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in parts.groups())
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid and context.trace_flags.sampled else None
