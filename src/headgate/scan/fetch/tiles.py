"""Tiles: parts of a stream that are kept in memory for its readers, found by offset."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Generic, TypeVar

from headgate.scan.fetch.segments import SegmentView


class Tile:
    """The chunks `start_row … stop_row` of a segment, which are the offsets `first_offset … next_offset`.

    `charged_bytes` is the memory that it takes, `touched_at` when it was used; both belong to `SharedReads`.
    """

    __slots__ = ("charged_bytes", "first_offset", "next_offset", "segment_id", "start_row", "stop_row", "touched_at")

    def __init__(self, segment_id: int, start_row: int, stop_row: int, view: SegmentView) -> None:
        self.segment_id = segment_id
        self.start_row = start_row
        self.stop_row = stop_row
        self.first_offset = view.offset_at(start_row)
        self.next_offset = view.offset_at(stop_row)
        self.charged_bytes = self.touched_at = 0


T = TypeVar("T", bound=Tile)


class Tiles(Generic[T]):
    """Tiles of one log that do not overlap, by offset. Not safe for several threads."""

    def __init__(self) -> None:
        self._tiles: list[T] = []

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._tiles))

    def at(self, offset: int) -> T | None:
        """The tile that holds an offset."""
        place = bisect.bisect_right(self._tiles, offset, key=_first_offset)
        tile = self._tiles[place - 1] if place else None
        return tile if tile is not None and offset < tile.next_offset else None

    def stop_row(self, segment_id: int, offset: int, stop_row: int) -> int:
        """The row where a new tile at an offset has to end: before the next tile, at `stop_row` at the latest."""
        place = bisect.bisect_right(self._tiles, offset, key=_first_offset)
        if place < len(self._tiles) and self._tiles[place].segment_id == segment_id:
            return min(stop_row, self._tiles[place].start_row)
        return stop_row

    def add(self, tile: T) -> None:
        """Add a tile where there is none."""
        self._tiles.insert(bisect.bisect_right(self._tiles, tile.first_offset, key=_first_offset), tile)

    def remove(self, tile: T) -> None:
        """Remove a tile."""
        self._tiles.remove(tile)


def _first_offset(tile: Tile) -> int:
    return tile.first_offset
