"""How far an index reaches."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import CorruptSidecarError
from headgate.log import Sidecar, Stream


@dataclass(slots=True)
class Coverage:
    """The coverage of a stream by its sidecars, as these state it, unchecked.

    `messages` by filter (id, language, text hash); messages decided twice count twice. `size_bytes` of all sidecars;
    `damaged` says why some cannot be used.
    """

    messages: dict[tuple[str, str, str], int]
    size_bytes: int
    damaged: list[str]


def coverage(stream: Stream) -> Coverage:
    """How far the match index of a stream reaches. Reads the head of each sidecar."""
    found = Coverage({}, 0, [])
    for segment in stream.segments():
        try:
            sidecar = Sidecar.open(segment)
        except CorruptSidecarError as error:
            found.damaged.append(str(error))
            continue
        if sidecar is None:
            continue
        if sidecar.damage is not None:
            found.damaged.append(str(sidecar.damage))
        found.size_bytes += sidecar.size_bytes
        for block in sidecar.blocks:
            for each in block.filters:
                key = (each.id, each.dialect, each.text_hash)
                found.messages[key] = found.messages.get(key, 0) + block.directory.decided
    return found
