"""Settings of a topic for the publishers of its stream: its status, and duplicate detection."""

from __future__ import annotations

from headgate.broker.duplicates import RecentIds
from headgate.broker.stream import BrokerStream
from headgate.errors import EntityDisabledError
from headgate.topic import TopicSettings


def obey(stream: BrokerStream, settings: TopicSettings) -> None:
    """Apply the settings of a topic to its stream."""
    status = settings.status
    stream.refusal = None
    if not status.takes_messages:
        stream.refusal = EntityDisabledError(
            f"the topic takes no messages: its status is {status}", subject=stream.name
        )
    if not settings.requires_duplicate_detection:
        stream.recent_ids = None
    elif stream.recent_ids is None:
        stream.recent_ids = RecentIds(settings.duplicate_detection_window_ms)
    else:
        stream.recent_ids.set_window(settings.duplicate_detection_window_ms)
