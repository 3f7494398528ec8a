"""Settings of the match index of a stream; RocketMQ's names are accepted as well (rocketmq_filters, section 8)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headgate.errors import ConfigError

_OURS = "calculate_filter_bitmap"
_ORIGINAL = "enableCalcFilterBitMap"
_EXTENSION = "enableConsumeQueueExt"
_SIZES = ("expectConsumerNumUseFilter", "maxErrorRateOfBloomFilter")
"""Settings of the original's bit arrays. Results are exact here, so that any size and error rate is kept to."""


class IndexSettings(msgspec.Struct, frozen=True):
    """The settings of one stream.

    With `calculate_filter_bitmap` a broker that writes the stream keeps the index up to date; without it only
    `headgate index build` does. Settings of earlier versions in a file are passed over.
    """

    calculate_filter_bitmap: bool = False

    @staticmethod
    def parse(given: Mapping[str, object]) -> IndexSettings:
        """Settings by name, ours or the original's; values may be text, as options and properties files have them.

        The sizes of the original's bit arrays have no effect. ConfigError names a setting that is unknown, wrong, given
        twice, or contradicts another.
        """
        known = (_OURS, _ORIGINAL, _EXTENSION, *_SIZES)
        for name in given:
            if name not in known:
                raise ConfigError(f"{name}: no setting of the match index; there are {', '.join(known)}")
        if _OURS in given and _ORIGINAL in given:
            raise ConfigError(f"{_OURS} and {_ORIGINAL}: found both, expected one of them")
        name = _ORIGINAL if _ORIGINAL in given else _OURS
        is_calculated = _flag(name, given.get(name, False))
        if _EXTENSION in given and _flag(_EXTENSION, given[_EXTENSION]) != is_calculated:
            raise ConfigError(
                f"{_EXTENSION}: found {str(not is_calculated).lower()}, but here it goes together with "
                f"{_OURS}: leave it out, or give both the same value"
            )
        return IndexSettings(is_calculated)


def _flag(name: str, value: object) -> bool:
    text = value.strip().lower() if isinstance(value, str) else value
    if text in ("true", "false"):
        return text == "true"
    if not isinstance(value, bool):
        raise ConfigError(f"{name}: found {value!r}, expected true or false")
    return value
