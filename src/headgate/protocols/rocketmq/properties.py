"""The property map of a message as clients of the classic protocol write it: `name 0x01 value 0x02 …`.

Names and values are bytes here: between the wire and the stored message they need no decoding. Source:
rocketmq_filters, section 2; `MessageDecoder` of RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

MAX_PROPERTIES_BYTES = 32767
"""The longest property text: its length is a signed number of 16 bits."""

_NAME_END = b"\x01"
_VALUE_END = b"\x02"


def read_properties(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Names and values; entries of fewer than three bytes, or with an empty name or value, are left out.

    Bytes that are not UTF-8 become U+FFFD. A name may come more than once: the last counts.
    """
    if not text.isascii():
        text = text.decode("utf-8", "replace").encode()
    for entry in text.split(_VALUE_END):
        name, _, value = entry.partition(_NAME_END)
        if name and value:
            yield name, value


def write_properties(pairs: Iterable[tuple[bytes, bytes]], room: int = MAX_PROPERTIES_BYTES) -> bytes:
    """The text of names and values, at most `room` bytes; it ends before the first entry that does not fit.

    Entries with an empty name or value, or with a separator in them, are left out.
    """
    held = list(pairs)
    text = b"".join([b"%b\x01%b\x02" % pair for pair in held])
    if len(text) <= room and text.count(_NAME_END) == len(held) == text.count(_VALUE_END):
        return text
    written = bytearray()
    for name, value in held:
        if not name or not value or _NAME_END in name or _VALUE_END in name or _VALUE_END in value:
            continue
        if len(written) + len(name) + len(value) + 2 > room:
            break
        written += b"%b\x01%b\x02" % (name, value)
    return bytes(written)


def property_text(properties: Mapping[str, str]) -> bytes:
    """As `write_properties`, of a map of texts."""
    return write_properties(
        (name.encode("utf-8", "replace"), value.encode("utf-8", "replace")) for name, value in properties.items()
    )
