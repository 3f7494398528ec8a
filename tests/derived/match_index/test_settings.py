"""Settings of the match index, under Headgate's names and RocketMQ's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headgate.derived.match_index.settings import IndexSettings
from headgate.errors import ConfigError

ORIGINAL = {
    "enableCalcFilterBitMap": "false",
    "expectConsumerNumUseFilter": "32",
    "maxErrorRateOfBloomFilter": "20",
    "enableConsumeQueueExt": "false",
}


@pytest.mark.parametrize(
    ("given", "is_calculated"),
    [
        ({}, False),
        (ORIGINAL, False),
        ({**ORIGINAL, "enableCalcFilterBitMap": " true ", "enableConsumeQueueExt": "true"}, True),
        ({"calculate_filter_bitmap": True, "enableConsumeQueueExt": True, "expectConsumerNumUseFilter": 64}, True),
    ],
)
def test_both_sets_of_names_mean_the_same(given: Mapping[str, object], is_calculated: bool) -> None:
    assert IndexSettings.parse(given) == IndexSettings(is_calculated)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"layout": "bloom"}, "layout: no setting of the match index; there are calculate_filter_bitmap"),
        ({"calculate_filter_bitmap": True, "enableCalcFilterBitMap": True}, "found both"),
        ({"calculate_filter_bitmap": "yes"}, "found 'yes', expected true or false"),
        ({"calculate_filter_bitmap": 1}, "found 1, expected true or false"),
        ({"enableConsumeQueueExt": True}, "enableConsumeQueueExt: found true, but here"),
        ({"enableConsumeQueueExt": False, "enableCalcFilterBitMap": True}, "give both the same value"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: Mapping[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        IndexSettings.parse(given)
    assert words in str(refused.value)
