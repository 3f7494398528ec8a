"""What all filters demand: true wherever one of them is, and made of what stands in every one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.evaluate import Filter
from headgate.evaluate.rules import common_filter
from headgate.message import EncodedMessages, Message

CLAUSES = (
    "n > 3",
    "n % 2 = 0",
    "NOT (n = 6)",
    "(region = 'AMER' OR n < 5)",
    "region LIKE 'A%'",
    "absent IS NULL",
    "absent > 5",
    "n / 0 = 1",
)
BATCH = EncodedMessages.of(
    [
        Message(application_properties={"n": number, "region": region}).encode()
        for number in range(10)
        for region in ("AMER", "APAC", "EMEA")
    ]
)


@given(chosen=st.lists(st.lists(st.sampled_from(CLAUSES), min_size=1, unique=True), min_size=1, max_size=5))
def test_no_message_is_lost_by_asking_first_what_all_filters_demand(chosen: list[list[str]]) -> None:
    filters = [Filter.parse(" AND ".join(clauses), "amqp") for clauses in chosen]
    common = common_filter(filters)
    in_all = set(chosen[0]).intersection(*chosen[1:])
    assert (common is None) == (not in_all)
    if common is not None:
        alone = [Filter.parse(clause, "amqp").mask(BATCH, now_ms=0) for clause in in_all]
        asked = common.mask(BATCH, now_ms=0)
        assert asked.tolist() == [all(verdicts) for verdicts in zip(*alone, strict=True)]
        for each in filters:
            assert not (each.mask(BATCH, now_ms=0) & ~asked).any()


def test_ands_within_an_and_are_demands_and_ors_are_one() -> None:
    one = Filter.parse("a = 1 AND (b = 2 AND c = 3) AND (d = 4 OR e = 5)")
    other = Filter.parse("(d = 4 OR e = 5) AND z = 7 AND c = 3")
    common = common_filter([one, other])
    assert common is not None
    assert common.matches(Message(application_properties={"c": 3, "e": 5}), now_ms=0)
    assert not common.matches(Message(application_properties={"c": 3}), now_ms=0)
    assert not common.matches(Message(application_properties={"d": 4}), now_ms=0)


def test_filters_without_a_common_demand_have_no_common_filter() -> None:
    assert common_filter([]) is None
    assert common_filter([Filter.parse("a = 1 OR b = 2"), Filter.parse("a = 1")]) is None
    assert common_filter([Filter.parse("a = 1"), Filter.parse("a = 1.0")]) is None
