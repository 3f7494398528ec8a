"""Values that text formats, CSV and JSON lines, have no form of their own for.

Bytes are text where they are UTF-8, else base64 behind `base64:`; so is text that begins like that, which makes each
text mean one byte string. Times are ISO 8601 in UTC, with more digits for years after 9999.
"""

from __future__ import annotations

import base64
import binascii

import numpy as np
import pyarrow as pa

_MARK = "base64:"


def text_of_bytes(octets: bytes) -> str:
    """The text from which `bytes_of_text` makes these bytes."""
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        return _MARK + base64.b64encode(octets).decode()
    return _MARK + base64.b64encode(octets).decode() if text.startswith(_MARK) else text


def bytes_of_text(text: str) -> bytes:
    """The bytes that a text stands for. Raises ValueError for invalid base64."""
    if not text.startswith(_MARK):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix(_MARK), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def texts_of_times(times: pa.Array) -> list[str | None]:
    """A column of timestamps as text."""
    # Not as Python's datetimes, which end with the year 9999.
    held = times.cast(pa.timestamp("us", tz="UTC")).view(pa.int64())
    moments = held.fill_null(0).to_numpy(zero_copy_only=False).view("M8[us]")
    texts = np.datetime_as_string(moments, unit="us").tolist()
    valid = held.is_valid().to_pylist()
    return [f"{text}Z" if is_valid else None for text, is_valid in zip(texts, valid, strict=True)]
