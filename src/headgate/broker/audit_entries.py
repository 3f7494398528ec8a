"""Entries of the audit stream: what an entry says, as a message and back, and reading them from the stream's files.

An entry is a message whose application properties are its facts, so that filters find it, and whose body is the detail
as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from headgate.errors import MessageError, OffsetOutOfRangeError
from headgate.log import MessageCounts, Stream
from headgate.message import Body, Message
from headgate.scan import MessageReader

MOST_READ = 10_000
"""Limit: entries that one call examines."""

_DETAIL_BYTES = 4_096
"""Limit: a longer detail is left out, and its length said instead."""

_SECRET = frozenset({"password", "secret", "token", "authorization_rules", "primary", "secondary"})
"""Keys of a detail whose values are not written down."""

_A_PAGE = 500


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what, to which, from where; the outcome is `done`, `refused` for want of a right, or `failed`."""

    user: str
    protocol: str
    connection: str
    action: str
    """Kind of object and what was done, such as `stream.delete`."""
    subject: str
    outcome: str = "done"
    detail: dict[str, Any] = {}

    def encode(self) -> bytes:
        """The entry as an encoded message."""
        detail = msgspec.json.encode(_written(self.detail), enc_hook=lambda value: _text(str(value)))
        if len(detail) > _DETAIL_BYTES:
            detail = msgspec.json.encode({"left_out": "the detail was too long", "size_bytes": len(detail)})
        facts = {name: getattr(self, name) for name in _FACTS}
        return Message(
            Body.data(detail),
            application_properties={name: _text(value) for name, value in facts.items()},
            content_type="application/json",
        ).encode()


_FACTS = ("user", "protocol", "connection", "action", "subject", "outcome")


class AuditRow(AuditEntry, frozen=True, kw_only=True):
    """An entry with its place and time in the stream."""

    offset: int
    timestamp_ms: int


def read_audit(
    stream: Stream,
    *,
    start: int | None = None,
    since_ms: int | None = None,
    limit: int = 100,
    user: str | None = None,
    action: str | None = None,
) -> list[AuditRow]:
    """Entries of an audit stream, in order, at most `limit`: from offset `start` on, or else the last ones.

    Only those of a `user`, whose `action` is or begins with the given one (`stream` is every action on streams), and
    not before `since_ms`. At most `MOST_READ` entries are examined. Reads files: in a thread. Raises LogError.
    """
    first, end = stream.first_offset(), stream.next_offset()
    is_backward = start is None
    begin = max(first, end - MOST_READ) if start is None else max(first, start)
    offsets = MessageCounts().messages(stream, begin, min(end, begin + MOST_READ))
    pages = [offsets[at : at + _A_PAGE] for at in range(0, len(offsets), _A_PAGE)]
    found: list[AuditRow] = []
    with MessageReader(stream) as reader:
        for page in reversed(pages) if is_backward else pages:
            rows = [
                row
                for row in _rows(reader, page)
                if (user is None or row.user == user)
                and (action is None or row.action == action or row.action.startswith(f"{action}."))
                and (since_ms is None or row.timestamp_ms >= since_ms)
            ]
            found = rows + found if is_backward else found + rows
            if len(found) >= limit:
                break
    return found[-limit:] if is_backward else found[:limit]


def _rows(reader: MessageReader, offsets: np.ndarray[Any, np.dtype[np.int64]]) -> list[AuditRow]:
    try:
        batch = reader.read(offsets)
    except OffsetOutOfRangeError:
        # Retention was faster.
        return []
    rows = []
    for place, (offset, timestamp_ms) in enumerate(zip(offsets.tolist(), batch.timestamps_ms.tolist(), strict=True)):
        row = _row(batch.messages.message(place), offset, timestamp_ms)
        if row is not None:
            rows.append(row)
    return rows


def _row(encoded: bytes, offset: int, timestamp_ms: int) -> AuditRow | None:
    """The row of a message; None for one that is no entry."""
    try:
        message = Message.decode(encoded)
        facts = {name: str(value.value) for name, value in (message.application_properties or {}).items()}
        body = b"" if message.body is None else message.body.parts[0]
        detail = msgspec.json.decode(body if isinstance(body, bytes) else b"", type=dict[str, Any])
        return AuditRow(
            **{name: facts[name] for name in _FACTS}, detail=detail, offset=offset, timestamp_ms=timestamp_ms
        )
    except (MessageError, msgspec.DecodeError, TypeError, KeyError):
        return None


def _written(value: Any) -> Any:
    """A value of a detail as JSON can hold it, without secrets."""
    if isinstance(value, Mapping):
        return {_text(str(key)): "…" if key in _SECRET else _written(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_written(each) for each in value]
    return _text(value) if isinstance(value, str) else value


def _text(value: str) -> str:
    """Text that can be written down: names that clients give may hold single surrogates."""
    return value.encode("utf-8", "replace").decode()
