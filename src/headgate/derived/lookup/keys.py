"""The fingerprints that a block must have for a match of a filter, combined by AND and OR."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headgate.derived.lookup.declaration import field_text
from headgate.derived.lookup.fingerprints import fingerprints_of_values
from headgate.evaluate import Every, FieldAmong, Filter, KeyCondition, Some, needed_keys
from headgate.message import Section, parse_field

_MOST_KNOWN = 128


@dataclass(frozen=True, slots=True)
class FieldKeys:
    """A condition: the block may hold a value of a field with one of some fingerprints."""

    field: str
    fingerprints: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class BlockCondition:
    """A condition: all parts hold for a block, or at least one of them."""

    needs_all: bool
    parts: tuple[BlockKeys, ...]


BlockKeys: TypeAlias = FieldKeys | BlockCondition

BlocksOf = Callable[[str, NDArray[np.uint32]], NDArray[np.bool_] | None]
"""Gives the blocks that may hold a value of a field with one of some fingerprints, `(blocks,)`; None if not known."""

_known: OrderedDict[tuple[int, tuple[str, ...] | None], tuple[Filter, BlockKeys | bool | None]] = OrderedDict()
"""Results for recent filters; by identity, because equal filters may have the different parameters TRUE and 1."""


def may_ask(filter_: Filter) -> bool:
    """Whether blocks could be ruled out for a filter, if the fields that it names were lookup fields."""

    def found() -> bool:
        fields = {
            replace(each, default=None, only=None, ignore_case=False)
            for each in filter_.fields
            if not each.path or each.section is Section.DATA
        }
        needed = needed_keys(filter_.tree, tuple(fields))
        return needed is not None and _has_field(needed)

    return _kept(filter_, None, found) is True


def block_keys(filter_: Filter, fields: Sequence[str]) -> BlockKeys | None:
    """The conditions of a filter on some lookup fields; None if it has none."""

    def found() -> BlockKeys | None:
        needed = needed_keys(filter_.tree, [parse_field(field) for field in fields])
        return None if needed is None else compiled(needed)

    keys = _kept(filter_, tuple(fields), found)
    assert not isinstance(keys, bool)
    return keys


def _kept(
    filter_: Filter, fields: tuple[str, ...] | None, find: Callable[[], BlockKeys | bool | None]
) -> BlockKeys | bool | None:
    key = id(filter_), fields
    known = _known.get(key)
    if known is None:
        known = _known[key] = filter_, find()
        while len(_known) > _MOST_KNOWN:
            _known.popitem(last=False)
    return known[1]


def compiled(condition: KeyCondition) -> BlockKeys:
    """A condition with fingerprints in place of values."""
    match condition:
        case FieldAmong(field, values):
            return FieldKeys(field_text(field), fingerprints_of_values(values))
        case Every(conditions) | Some(conditions):
            return BlockCondition(isinstance(condition, Every), tuple(map(compiled, conditions)))


def matching_blocks(keys: BlockKeys, blocks_of: BlocksOf, count: int) -> NDArray[np.bool_] | None:
    """Which of `count` blocks may hold a match; None if too little is known of the fields to rule a block out."""
    if isinstance(keys, FieldKeys):
        return blocks_of(keys.field, keys.fingerprints)
    found = [matching_blocks(part, blocks_of, count) for part in keys.parts]
    known = [blocks for blocks in found if blocks is not None]
    if not known if keys.needs_all else len(known) < len(found):
        return None
    combined = np.full(count, keys.needs_all)
    for blocks in known:
        combined = combined & blocks if keys.needs_all else combined | blocks
    return combined


def _has_field(condition: KeyCondition) -> bool:
    match condition:
        case FieldAmong():
            return True
        case Every(conditions) | Some(conditions):
            return any(map(_has_field, conditions))
