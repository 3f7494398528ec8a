"""Settings of the match index of a stream; RocketMQ's names are accepted as well (rocketmq_filters, section 8)."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from headgate.derived.match_index.bit_map import (
    DEFAULT_EXPECTED_CONSUMERS,
    DEFAULT_MAX_ERROR_RATE_PERCENT,
    BitMapParameters,
)
from headgate.errors import ConfigError

_ORIGINAL_NAMES = {
    "enableCalcFilterBitMap": "calculate_filter_bitmap",
    "expectConsumerNumUseFilter": "expected_consumers",
    "maxErrorRateOfBloomFilter": "max_error_rate_percent",
}
_EXTENSION = "enableConsumeQueueExt"
_SIZES = ("expected_consumers", "max_error_rate_percent")
_MOST_ARRAY_BYTES = 32767 - 20
"""The capacity of an extension record of the original (section 8.5)."""


class Layout(enum.Enum):
    """The form of the results kept per message."""

    EXACT = "exact"
    """One bit per registered filter: no second evaluation, and counts without reading messages."""
    BLOOM = "bloom"
    """RocketMQ's bit array: a fixed size for any number of filters; messages not ruled out are evaluated again."""


class IndexSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of one stream.

    With `calculate_filter_bitmap` a broker that writes the stream keeps the index up to date; without it only
    `headgate index build` does. The two sizes are for the layout `bloom`.
    """

    layout: Layout = Layout.EXACT
    calculate_filter_bitmap: bool = False
    expected_consumers: int = DEFAULT_EXPECTED_CONSUMERS
    max_error_rate_percent: int = DEFAULT_MAX_ERROR_RATE_PERCENT

    @property
    def bit_map(self) -> BitMapParameters:
        """The parameters of the bit arrays."""
        return BitMapParameters.of(
            expected_consumers=self.expected_consumers, max_error_rate_percent=self.max_error_rate_percent
        )

    @staticmethod
    def parse(given: Mapping[str, object]) -> IndexSettings:
        """Settings by name, ours or the original's; values may be text, as options and properties files have them.

        A size without a layout chooses the layout `bloom`. ConfigError names a setting that is unknown, wrong, given
        twice, or contradicts another.
        """
        named = _renamed(given)
        values: dict[str, object] = {}
        if "layout" in named:
            values["layout"] = _layout(*named["layout"])
        if "calculate_filter_bitmap" in named:
            values["calculate_filter_bitmap"] = _flag(*named["calculate_filter_bitmap"])
        for size in _SIZES:
            if size in named:
                values[size] = _number(*named[size])
                if values.setdefault("layout", Layout.BLOOM) is Layout.EXACT:
                    raise ConfigError(
                        f"{named[size][0]}: the layout exact has no bit arrays; leave it out, or say bloom"
                    )
        if _EXTENSION in given:
            extension = _flag(_EXTENSION, given[_EXTENSION])
            if extension != values.get("calculate_filter_bitmap", False):
                raise ConfigError(
                    f"{_EXTENSION}: found {str(extension).lower()}, but here it goes together with "
                    "calculate_filter_bitmap: leave it out, or give both the same value"
                )
        settings = msgspec.convert(values, IndexSettings)
        settings.check()
        return settings

    def check(self) -> None:
        """Raises ConfigError for impossible sizes, in our names."""
        if not 1 <= self.max_error_rate_percent <= 99:
            raise ConfigError(f"max_error_rate_percent: found {self.max_error_rate_percent}, expected 1 to 99")
        if self.expected_consumers < 1:
            raise ConfigError(f"expected_consumers: found {self.expected_consumers}, expected 1 or more")
        if self.bit_map.byte_length > _MOST_ARRAY_BYTES:
            raise ConfigError(
                f"expected_consumers: {self.expected_consumers} at {self.max_error_rate_percent} % make "
                f"{self.bit_map.byte_length} bytes per message, expected at most {_MOST_ARRAY_BYTES}"
            )


def _renamed(given: Mapping[str, object]) -> dict[str, tuple[str, object]]:
    """Our name → the name that was given, and its value."""
    known = IndexSettings.__struct_fields__
    named: dict[str, tuple[str, object]] = {}
    for name, value in given.items():
        ours = _ORIGINAL_NAMES.get(name, name)
        if name == _EXTENSION:
            continue
        if ours not in known:
            names = ", ".join([*known, *_ORIGINAL_NAMES, _EXTENSION])
            raise ConfigError(f"{name}: no setting of the match index; there are {names}")
        if ours in named:
            raise ConfigError(f"{named[ours][0]} and {name}: found both, expected one of them")
        named[ours] = (name, value)
    return named


def _layout(name: str, value: object) -> Layout:
    if isinstance(value, Layout):
        return value
    found = next((layout for layout in Layout if layout.value == value), None)
    if found is None:
        raise ConfigError(f"{name}: found {value!r}, expected exact or bloom")
    return found


def _flag(name: str, value: object) -> bool:
    text = value.strip().lower() if isinstance(value, str) else value
    if text in ("true", "false"):
        return text == "true"
    if not isinstance(value, bool):
        raise ConfigError(f"{name}: found {value!r}, expected true or false")
    return value


def _number(name: str, value: object) -> int:
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name}: found {value!r}, expected a whole number")
    return value
