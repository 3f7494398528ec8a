"""Settings of the match index, under Headgate's names and RocketMQ's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headgate.derived.match_index.settings import IndexSettings, Layout
from headgate.errors import ConfigError


def test_without_settings_the_layout_is_exact_with_the_defaults_of_the_original() -> None:
    assert IndexSettings.parse({}) == IndexSettings(Layout.EXACT, False, 32, 20)


@pytest.mark.parametrize(
    "given",
    [
        {"calculate_filter_bitmap": True, "expected_consumers": 64, "max_error_rate_percent": 5},
        {"enableCalcFilterBitMap": True, "expectConsumerNumUseFilter": 64, "maxErrorRateOfBloomFilter": 5},
        {"enableCalcFilterBitMap": "true", "expectConsumerNumUseFilter": "64", "maxErrorRateOfBloomFilter": " 5 "},
        {"enableCalcFilterBitMap": True, "enableConsumeQueueExt": True, "expected_consumers": 64}
        | {"maxErrorRateOfBloomFilter": 5, "layout": "bloom"},
    ],
)
def test_both_sets_of_names_mean_the_same(given: Mapping[str, object]) -> None:
    assert IndexSettings.parse(given) == IndexSettings(Layout.BLOOM, True, 64, 5)


def test_the_defaults_of_the_original_are_accepted_as_they_are() -> None:
    original = {
        "enableCalcFilterBitMap": "false",
        "expectConsumerNumUseFilter": "32",
        "maxErrorRateOfBloomFilter": "20",
        "enableConsumeQueueExt": "false",
    }
    assert IndexSettings.parse(original) == IndexSettings(Layout.BLOOM, False, 32, 20)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"expected_consumer": 5}, "expected_consumer: no setting of the match index; there are layout"),
        ({"expectedConsumers": 5}, "no setting"),
        ({"expected_consumers": 5, "expectConsumerNumUseFilter": 5}, "found both"),
        ({"expected_consumers": 0}, "expected_consumers: found 0, expected 1 or more"),
        ({"max_error_rate_percent": 0}, "max_error_rate_percent: found 0, expected 1 to 99"),
        ({"maxErrorRateOfBloomFilter": 100}, "found 100, expected 1 to 99"),
        ({"expected_consumers": "many"}, "expected_consumers: found 'many', expected a whole number"),
        ({"expected_consumers": True}, "found True, expected a whole number"),
        ({"expected_consumers": 1.5}, "found 1.5"),
        ({"expected_consumers": 10**6}, "bytes per message, expected at most 32747"),
        ({"expected_consumers": 10**30}, "at most 2147483647"),
        ({"calculate_filter_bitmap": "yes"}, "found 'yes', expected true or false"),
        ({"calculate_filter_bitmap": 1}, "found 1, expected true or false"),
        ({"layout": "both"}, "found 'both', expected exact or bloom"),
        ({"layout": "exact", "expected_consumers": 5}, "expected_consumers: the layout exact has no bit arrays"),
        ({"enableConsumeQueueExt": True}, "enableConsumeQueueExt: found true, but here"),
        ({"enableConsumeQueueExt": False, "enableCalcFilterBitMap": True}, "give both the same value"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: Mapping[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        IndexSettings.parse(given)
    assert words in str(refused.value)
