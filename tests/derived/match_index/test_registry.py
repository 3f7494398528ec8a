"""Registration of filters: versions and liveness as RocketMQ has them, and which filters are refused."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from body_schemas import order_schema
from headgate.derived.match_index.identity import EVALUATOR, FilterKey, check_registrable, key_of, text_hash
from headgate.derived.match_index.registry import (
    KEPT_DEAD_MS,
    REGISTRY_NAME,
    Announcement,
    Change,
    FilterRegistry,
    RegisteredFilter,
)
from headgate.derived.match_index.settings import IndexSettings
from headgate.errors import ConfigError, FilterError, FilterTypeError, LogError, StreamReadOnlyError
from headgate.evaluate.filter import Filter
from headgate.language.tree import Field, IsNull, OwnRules
from headgate.log import Stream, StreamArguments
from headgate.message.fields import parse_field
from match_indexes import build_index

ID = "group#orders"
SQL = "rocketmq"


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream.create(tmp_path / "orders", name="orders", now_ms=0)


@pytest.fixture
def registry(stream: Stream) -> Registry:
    return Registry(stream)


class Registry(FilterRegistry):
    """A registry with each change of consumers as one call."""

    def announce(self, filter_id: str, announcement: Announcement, *, now_ms: int) -> Change:
        with self.changing() as change:
            return change.announce(filter_id, announcement, now_ms=now_ms)

    def retire(self, filter_id: str, *, now_ms: int) -> bool:
        with self.changing() as change:
            return change.retire(filter_id, now_ms=now_ms)

    def clean(self, *, now_ms: int) -> list[str]:
        with self.changing() as change:
            return change.clean(now_ms=now_ms)

    def restart(self, *, now_ms: int) -> None:
        with self.changing() as change:
            change.restart(now_ms=now_ms)


def announced(text: str, version: int, dialect: str = SQL) -> Announcement:
    return Announcement(text, dialect, version)


def only(registry: FilterRegistry) -> RegisteredFilter:
    (found,) = registry.read().filters
    return found


def test_a_stream_without_a_registry_has_no_filters_and_the_default_settings(registry: Registry) -> None:
    assert registry.read().filters == ()
    assert registry.read().settings == IndexSettings()


def test_the_first_announcement_of_a_filter_is_its_birth(registry: Registry) -> None:
    assert registry.announce(ID, announced("a = 1", 7), now_ms=100) is Change.NEW
    assert only(registry) == RegisteredFilter(ID, "a = 1", SQL, 7, 100)


def test_a_first_announcement_that_does_not_compile_stores_nothing(registry: Registry) -> None:
    assert registry.announce(ID, announced("a =", 7), now_ms=100) is Change.REFUSED
    assert registry.read().filters == ()


def test_what_looks_into_bodies_of_a_declared_schema_is_not_registered(tmp_path: Path) -> None:
    arguments = StreamArguments(body_schema=order_schema().text)
    registry = Registry(Stream.create(tmp_path / "paid", name="paid", now_ms=0, arguments=arguments))
    assert registry.announce(ID, announced("region = 'EMEA'", 7, "amqp"), now_ms=100) is Change.NEW
    assert registry.announce(ID, announced("body.total > 100", 8, "amqp"), now_ms=200) is Change.REFUSED
    assert registry.read().filters == ()


@pytest.mark.parametrize(
    "announcement", [announced("", 9), announced("TagA || TagB", 9, "tags"), announced("", 9, "tags")]
)
def test_tags_and_empty_expressions_are_ignored(registry: Registry, announcement: Announcement) -> None:
    assert registry.announce(ID, announcement, now_ms=100) is Change.IGNORED
    assert registry.read().filters == ()


@pytest.mark.parametrize("version", [6, 7])
def test_an_old_version_is_ignored_even_with_another_expression(registry: Registry, version: int) -> None:
    registry.announce(ID, announced("a = 1", 7), now_ms=100)
    assert registry.announce(ID, announced("a = 2", version), now_ms=200) is Change.IGNORED
    assert only(registry) == RegisteredFilter(ID, "a = 1", SQL, 7, 100)


def test_the_same_version_brings_a_dead_filter_back_to_life_with_its_birth_kept(registry: Registry) -> None:
    registry.announce(ID, announced("a = 1", 7), now_ms=100)
    assert registry.retire(ID, now_ms=150)
    assert only(registry).dead_ms == 150
    assert registry.announce(ID, announced("a = 1", 6), now_ms=200) is Change.IGNORED
    assert registry.announce(ID, announced("a = 2", 7), now_ms=200) is Change.REVIVED
    assert only(registry) == RegisteredFilter(ID, "a = 1", SQL, 7, 100)


def test_a_newer_version_with_another_expression_replaces_the_filter(registry: Registry) -> None:
    registry.announce(ID, announced("a = 1", 7), now_ms=100)
    assert registry.announce(ID, announced("a = 2", 8), now_ms=200) is Change.REPLACED
    assert only(registry) == RegisteredFilter(ID, "a = 2", SQL, 8, 200)


def test_a_newer_version_in_another_language_replaces_the_filter(registry: Registry) -> None:
    registry.announce(ID, announced("a = 1", 7), now_ms=100)
    assert registry.announce(ID, announced("a = 1", 8, "rabbitmq"), now_ms=200) is Change.REPLACED
    assert only(registry).dialect == "rabbitmq"


def test_a_newer_version_that_does_not_compile_removes_the_old_filter(registry: Registry) -> None:
    registry.announce(ID, announced("a = 1", 7), now_ms=100)
    assert registry.announce(ID, announced("a =", 8), now_ms=200) is Change.REFUSED
    assert registry.read().filters == ()


def test_a_newer_version_unchanged_is_only_noted(registry: Registry) -> None:
    registry.announce(ID, announced("a = 1", 7), now_ms=100)
    assert registry.announce(ID, announced("a = 1", 8), now_ms=200) is Change.UPDATED
    assert only(registry) == RegisteredFilter(ID, "a = 1", SQL, 8, 100)
    registry.retire(ID, now_ms=250)
    assert registry.announce(ID, announced("a = 1", 9), now_ms=300) is Change.REVIVED
    assert only(registry) == RegisteredFilter(ID, "a = 1", SQL, 9, 100)


def test_death_is_never_before_birth_and_comes_once(registry: Registry) -> None:
    registry.announce(ID, announced("a = 1", 7), now_ms=100)
    assert registry.retire(ID, now_ms=50)
    assert only(registry).dead_ms == 100
    assert not registry.retire(ID, now_ms=400)
    assert not registry.retire("nobody#orders", now_ms=400)


def test_a_filter_is_forgotten_a_day_after_its_death(registry: Registry) -> None:
    registry.announce(ID, announced("a = 1", 7), now_ms=100)
    registry.announce("other#orders", announced("a = 1", 7), now_ms=100)
    registry.retire(ID, now_ms=100)
    assert registry.clean(now_ms=100 + KEPT_DEAD_MS - 1) == []
    assert registry.clean(now_ms=100 + KEPT_DEAD_MS) == [ID]
    assert only(registry).id == "other#orders"


def test_after_a_restart_filters_are_dead_until_their_consumers_come_back(registry: Registry) -> None:
    registry.announce("old#orders", announced("a = 1", 7), now_ms=100)
    registry.announce("young#orders", announced("a = 1", 7), now_ms=90_000)
    registry.register("by hand", "a = 1", SQL, now_ms=100)
    registry.restart(now_ms=100_000)
    assert {each.id: each.dead_ms for each in registry.read().filters} == {
        "old#orders": 70_000,
        "young#orders": 90_000,
        "by hand": None,
    }
    registry.restart(now_ms=200_000)
    assert registry.read().filters[0].dead_ms == 70_000


def test_a_standing_filter_dies_of_nothing(registry: Registry) -> None:
    assert registry.register(ID, "a = 1", SQL, now_ms=5) is Change.NEW
    assert only(registry).version == 5
    assert not registry.retire(ID, now_ms=10)
    assert registry.register(ID, "a = 2", SQL, now_ms=6) is Change.REPLACED
    assert registry.remove(ID)
    assert not registry.remove(ID)


def test_a_wrong_text_by_hand_leaves_the_old_one(registry: Registry) -> None:
    registry.register(ID, "a = 1", SQL, now_ms=5)
    with pytest.raises(FilterError):
        registry.register(ID, "a =", SQL, now_ms=6)
    with pytest.raises(ConfigError, match="nonsense"):
        registry.register(ID, "a = 1", "nonsense", now_ms=6)
    assert only(registry).text == "a = 1"


@pytest.mark.parametrize("filter_id", ["", "  ", "a\nb", "x" * 1001])
def test_an_id_that_cannot_be_shown_is_refused(registry: Registry, filter_id: str) -> None:
    with pytest.raises(ConfigError, match="filter id"):
        registry.register(filter_id, "a = 1", SQL, now_ms=5)


@pytest.mark.parametrize(
    ("text", "dialect", "place"),
    [
        ("a > 1 AND p.creation_time < UTC()", "rabbitmq", "UTC()"),
        ("id = newid()", "servicebus", "newid()"),
        ("h.delivery_count > 1", "amqp", "h.delivery_count"),
        ("h.first_acquirer = TRUE", "amqp", "h.first_acquirer"),
    ],
)
def test_a_filter_that_depends_on_more_than_the_message_is_refused_with_its_place(
    registry: Registry, text: str, dialect: str, place: str
) -> None:
    with pytest.raises(FilterTypeError, match="more than the stored message") as refused:
        registry.register(ID, text, dialect, now_ms=5)
    start, stop = refused.value.span
    assert text[start:stop].lower() == place.lower()
    assert key_of(Filter.parse(text, dialect)) is None


def test_a_key_names_language_text_and_program() -> None:
    key = key_of(Filter.parse("a = 1", "rabbitmq"))
    assert key is not None
    assert key == key_of(pickle.loads(pickle.dumps(Filter.parse("a = 1", "rabbitmq"))))
    assert key == FilterKey("rabbitmq", text_hash("a = 1"), key.evaluator)
    assert key.evaluator.startswith(f"{EVALUATOR}/")
    assert key != key_of(Filter.parse("a = 1", "amqp"))
    assert key != key_of(Filter.parse("a  = 1", "rabbitmq"))


def test_filters_that_their_text_alone_does_not_state_have_no_key() -> None:
    assert key_of(Filter.parse("a = @size", "servicebus", parameters={"size": 5})) is None
    assert key_of(Filter.from_properties(application_properties={"region": "AMER"})) is None
    assert key_of(Filter.from_correlation(label="red")) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("(" * 900 + "a = 1" + ")" * 900, "rocketmq"),
        (" OR ".join(["a = 1"] * 5000), "rocketmq"),
        ("NOT " * 150 + "(a = 1)", "rabbitmq"),
        ("a IN (1, 2.5, 'x') AND b LIKE 'p%_' AND NOT (c IS NULL OR d + 1 > -2)", "rabbitmq"),
    ],
)
def test_deep_long_and_mixed_filters_have_a_key_that_stays_the_same(text: str, dialect: str) -> None:
    key = key_of(Filter.parse(text, dialect))
    assert key is not None
    code = f"from headgate.derived.match_index.identity import *; print(key_of(Filter.stated({text!r}, {dialect!r})))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == str(key)


def test_another_tree_for_the_same_text_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(Filter.parse("a = 1", "rabbitmq"))
    changed = Filter.parse("a = TRUE", "rabbitmq")
    monkeypatch.setattr(Filter, "stated", lambda _text, _dialect: changed)
    after = key_of(Filter(changed.tree, "a = 1", "rabbitmq"))
    assert before is not None and after is not None
    assert (before.text_hash, before.evaluator != after.evaluator) == (after.text_hash, True)
    assert key_of(Filter.parse("a = 1", "rabbitmq")) is None


def test_a_language_with_operators_of_its_own_has_no_results() -> None:
    reference = parse_field("application_properties.a")
    foreign = Filter(
        IsNull(Field(reference, OwnRules("headgate.evaluate.semantics.rabbitmq"), (2, 3)), span=(0, 9)),
        "a IS NULL",
        "rabbitmq",
    )
    assert key_of(foreign) is None
    with pytest.raises(FilterTypeError, match="operators of its own, and nothing says when they change"):
        check_registrable(foreign)


def test_tags_have_a_key_of_their_own(registry: Registry) -> None:
    key = key_of(Filter.from_tags("TagA || TagB"))
    assert key is not None and key.dialect == "tags"
    assert registry.register(ID, "TagA || TagB", "tags", now_ms=5) is Change.NEW
    assert key_of(only(registry).parsed()) == key


def test_a_registry_that_is_wrong_is_an_error_with_its_path(stream: Stream, registry: Registry) -> None:
    for content in (
        b"{",
        b'{"filters": 5}',
        b'{"format": 2}',
        b'{"settings": {"calculate_filter_bitmap": 0}}',
        b"\xff",
    ):
        (stream.path / REGISTRY_NAME).write_bytes(content)
        with pytest.raises(LogError, match="match-filters"):
            registry.read()
        with pytest.raises(LogError):
            build_index(stream, now_ms=0)


def test_a_stream_that_rabbitmq_wrote_is_left_alone(stream: Stream) -> None:
    foreign = Stream(stream.path, None)
    with pytest.raises(StreamReadOnlyError, match="headgate stream adopt"):
        FilterRegistry(foreign).register(ID, "a = 1", SQL, now_ms=1)
    with pytest.raises(StreamReadOnlyError):
        build_index(foreign, now_ms=1)
    assert "match-filters.json" not in os.listdir(stream.path)


def test_changes_by_several_writers_at_once_are_all_kept(stream: Stream) -> None:
    def add(first: int) -> None:
        for number in range(first, first + 10):
            FilterRegistry(stream).register(f"filter {number}", "a = 1", SQL, now_ms=1)

    threads = [threading.Thread(target=add, args=(10 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.id for each in FilterRegistry(stream).read().filters) == sorted(f"filter {n}" for n in range(40))


def test_the_file_says_what_is_registered(stream: Stream, registry: Registry) -> None:
    registry.configure(IndexSettings(calculate_filter_bitmap=True))
    registry.register(ID, "a = 1", SQL, now_ms=5)
    content = json.loads((stream.path / REGISTRY_NAME).read_bytes())
    assert content["settings"] == {"calculate_filter_bitmap": True}
    assert content["filters"][0]["text"] == "a = 1"


def test_settings_of_earlier_versions_are_passed_over(stream: Stream, registry: Registry) -> None:
    registry.register(ID, "a = 1", SQL, now_ms=5)
    path = stream.path / REGISTRY_NAME
    content = json.loads(path.read_bytes())
    del content["crc"]
    content["settings"] = {"layout": "bloom", "calculate_filter_bitmap": True, "expected_consumers": 64}
    path.write_text(json.dumps(content))
    assert registry.read().settings == IndexSettings(calculate_filter_bitmap=True)
    assert only(registry).text == "a = 1"
