"""The filter map of a receiver: its entries in force, and the start offset. Nothing in it closes the connection.

Source: rabbitmq_filters, sections 1 and 5; amqp10_rabbit, section 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.errors import MessageError
from headgate.evaluate import Filter
from headgate.language.amqp import FilterEntry, OffsetRequest, RefusedEntry, read_filter_set
from headgate.log import OffsetKind, OffsetSpecification
from headgate.protocols.amqp10 import RawEntry


@dataclass(frozen=True, slots=True)
class RequestedFilters:
    """A filter map as read; `in_force` are its entries that are in force, byte for byte.

    `refused` says why the other entries are not. `attach_refused` is the reason to refuse the link.
    """

    in_force: tuple[RawEntry, ...]
    refused: tuple[RefusedEntry, ...]
    start: OffsetSpecification
    filter_values: tuple[bytes, ...]
    match_unfiltered: bool
    expression: Filter | None
    attach_refused: str | None


def read_filters(entries: Sequence[RawEntry], dialect: str, *, sql_bytes: int) -> RequestedFilters:
    """Read a filter map; SQL filters are texts of `dialect`, of `sql_bytes` at most."""
    readable: list[FilterEntry] = []
    places: list[int] = []
    refused: list[RefusedEntry] = []
    for index, entry in enumerate(entries):
        try:
            readable.append(entry.read())
        except MessageError as error:
            refused.append(RefusedEntry(index, str(error)))
        else:
            places.append(index)
    found = read_filter_set(readable, dialect, sql_bytes=sql_bytes)
    refused += [RefusedEntry(places[entry.index], entry.reason) for entry in found.refused]
    effective = [places[index] for index in found.effective]
    return RequestedFilters(
        in_force=tuple(entries[index] for index in effective),
        refused=tuple(sorted(refused, key=lambda entry: entry.index)),
        start=_start(found.offset),
        filter_values=found.filter_values,
        match_unfiltered=found.match_unfiltered,
        expression=Filter.from_set(found),
        attach_refused=None if found.attach_refused is None else found.attach_refused.reason,
    )


def _start(request: OffsetRequest | None) -> OffsetSpecification:
    if request is None:
        return OffsetSpecification.next()
    return OffsetSpecification(OffsetKind(request.kind.value), request.value)
