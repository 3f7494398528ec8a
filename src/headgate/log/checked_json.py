"""Small JSON files with a checksum: `crc` is the CRC-32 of the other fields, so a flipped bit renames nothing."""

from __future__ import annotations

import zlib
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_CHECKSUM = "crc"
_MISSING = object()


def encode_checked(content: object) -> bytes:
    """The bytes of a file with the fields of a struct or a dict, a line for each."""
    fields: dict[str, Any] = msgspec.to_builtins(content, str_keys=True)
    # It comes first: users remove its line, and the line before would keep its comma.
    encoded = msgspec.json.encode({_CHECKSUM: _checksum(fields)} | fields)
    return msgspec.json.format(encoded, indent=1) + b"\n"


def decode_checked(raw: bytes) -> tuple[dict[str, Any], str | None]:
    """The other fields of a file, and the fault of its checksum, or None.

    A missing checksum, in a file of an earlier version or written by hand, is a fault as well. Raises
    msgspec.DecodeError and UnicodeDecodeError for bytes that are not a JSON object.
    """
    fields, noted = _decoded(raw)
    return fields, _fault(fields, noted)


def decode_checked_if_noted(raw: bytes, kind: type[T]) -> T:
    """The other fields of a file, as a `kind`; a file without a checksum is accepted as it is.

    Raises as `decode_checked`; msgspec.DecodeError for a wrong checksum, and where a `kind` cannot have these fields.
    """
    fields, noted = _decoded(raw)
    if noted is not _MISSING and (fault := _fault(fields, noted)) is not None:
        raise msgspec.DecodeError(
            f"{fault}: it is damaged, or was changed by hand; restore it, or remove its line {_CHECKSUM!r} to have it "
            "taken as it is"
        )
    return msgspec.convert(fields, kind, str_keys=True)


def _decoded(raw: bytes) -> tuple[dict[str, Any], object]:
    """The other fields, and the checksum in the file, or `_MISSING`."""
    fields = msgspec.json.decode(raw, type=dict[str, Any])
    return fields, fields.pop(_CHECKSUM, _MISSING)


def _fault(fields: dict[str, Any], noted: object) -> str | None:
    found = _checksum(fields)
    if noted == found:
        return None
    return f"their checksum is {found}, the file says {'none' if noted is _MISSING else noted}"


def _checksum(fields: dict[str, Any]) -> int:
    """CRC-32 of the fields as JSON without spaces, with sorted keys: the layout of the file does not matter."""
    return zlib.crc32(msgspec.json.encode(fields, order="sorted"))
