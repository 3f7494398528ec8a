"""What clients and servers share to tell OpenTelemetry of batches; the only module that imports it.

A message carries the context of its trace as `traceparent` (W3C Trace Context), in its application properties or, set
on the way, in its message annotations. Nothing imports this module unless tracing is switched on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headgate.errors import ConfigError, how_to_install
from headgate.version import __version__

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer
    from opentelemetry.util.types import AttributeValue
except ImportError as error:
    raise ConfigError(f"tracing needs OpenTelemetry: {how_to_install('otel')}") from error

__all__ = [
    "MOST_LINKS",
    "AttributeValue",
    "Context",
    "Link",
    "Span",
    "SpanKind",
    "Status",
    "StatusCode",
    "Tracer",
    "sampled_contexts",
    "tracer",
]

MOST_LINKS = 128
"""At most this many links in a span, the limit of OpenTelemetry."""

_CONTEXT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_ENCODED = re.compile(
    # A string or symbol of 11 bytes, then a string of 55 bytes with a short or a long length, as AMQP 1.0 encodes them.
    rb"\x0btraceparent(?:\xa1\x37|\xb1\x00\x00\x00\x37)"
    # The last hexadecimal digit is odd where the trace is sampled.
    rb"(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf])"
)


def tracer(name: str, *, service: str | None = None) -> Tracer:
    """The tracer of the application's provider.

    Without one, a provider is made that sends spans over OTLP, in a thread of its own, as the variables `OTEL_…` say;
    `service` is the name of the service where they say none.
    """
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        resource = Resource.create()
        if service is not None and str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: service}))
        provider = TracerProvider(resource=resource)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
    return trace.get_tracer(name, __version__)


def _sampled(text: str) -> SpanContext | None:
    """The context of a `traceparent`; None for one that is not sampled, or is no `traceparent`."""
    parts = _CONTEXT.fullmatch(text)
    if parts is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in parts.groups())
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid and context.trace_flags.sampled else None


def sampled_contexts(encoded: Iterable[memoryview], most: int) -> list[SpanContext]:
    """The different sampled contexts in encoded messages, or chunks of them, at most `most`.

    Found by their bytes, without decoding: a body that is a map of AMQP with such a key counts, too.
    """
    found: dict[str, SpanContext] = {}
    for part in encoded:
        for match in _ENCODED.finditer(part):
            text = match[1].decode()
            context = _sampled(text)
            if context is not None and text not in found:
                found[text] = context
                if len(found) == most:
                    return list(found.values())
    return list(found.values())
