"""Declarations of consumer groups: settings, the file that keeps them, and groups that are declared by their use."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from brokers import open_broker
from headgate.broker import Broker, GroupSettings, GroupStart
from headgate.broker.consumer_groups.declarations import DEFAULT_GROUP, GroupDeclarations
from headgate.broker.settings import BrokerSettings
from headgate.errors import (
    ConfigError,
    EntityDisabledError,
    LimitExceededError,
    PreconditionFailedError,
    ResourceNotFoundError,
)

STRICT = GroupSettings(fifo=True, max_attempts=3, backoff_ms=(10, 20), broadcast=False, start=GroupStart.LAST)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".headgate" / "consumer-groups.json"


def opened(path: Path, *, may_create: bool = True, most: int = 100) -> tuple[GroupDeclarations, list[str]]:
    changed: list[str] = []
    return GroupDeclarations(path, may_create=may_create, most=most, changed=changed.append), changed


def test_a_group_is_declared_changed_and_removed_in_a_file_for_its_owner(path: Path) -> None:
    groups, changed = opened(path)
    assert groups.find("billing") is None and groups.names() == [] and not path.exists()
    groups.declare("billing", STRICT)
    groups.declare("audit", DEFAULT_GROUP)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again, _ = opened(path)
    assert (again.names(), again.find("billing"), again.find("audit")) == (["audit", "billing"], STRICT, DEFAULT_GROUP)
    groups.declare("billing", STRICT)
    assert changed == [], "the same again is no change"
    groups.declare("billing", DEFAULT_GROUP)
    groups.remove("audit")
    assert changed == ["billing", "audit"] and opened(path)[0].names() == ["billing"]
    with pytest.raises(ResourceNotFoundError):
        groups.remove("audit")


def test_the_default_is_what_rocketmq_has() -> None:
    assert DEFAULT_GROUP.max_attempts == 17 and not DEFAULT_GROUP.fifo and DEFAULT_GROUP.enabled
    assert [each // 1_000 for each in DEFAULT_GROUP.backoff_ms][:4] == [1, 5, 10, 30]
    assert DEFAULT_GROUP.backoff_ms[-1] == 7_200_000


def test_a_group_that_is_used_is_declared_and_written_with_the_next_tick(path: Path) -> None:
    groups, changed = opened(path)
    assert groups.ensure("billing") == DEFAULT_GROUP and groups.names() == ["billing"]
    assert not path.exists()
    other, _ = opened(path)
    other.declare("audit", STRICT)
    groups.tick()
    assert opened(path)[0].names() == ["audit", "billing"], "what another process declared meanwhile stays"
    assert groups.ensure("audit") == STRICT and changed == []
    stamp = path.stat().st_mtime_ns
    groups.tick()
    assert path.stat().st_mtime_ns == stamp


def test_what_another_process_declares_wins_over_a_first_use(path: Path) -> None:
    groups, changed = opened(path)
    groups.ensure("billing")
    opened(path)[0].declare("billing", STRICT)
    groups.tick()
    assert groups.find("billing") == STRICT and changed == ["billing"]
    opened(path)[0].remove("billing")
    groups.tick()
    assert groups.find("billing") is None and changed == ["billing", "billing"]


def test_use_declares_nothing_where_groups_have_to_be_declared(path: Path) -> None:
    groups, _ = opened(path, may_create=False)
    with pytest.raises(ResourceNotFoundError):
        groups.ensure("billing")
    groups.declare("billing", STRICT)
    assert groups.ensure("billing") == STRICT


def test_a_disabled_group_is_not_used(path: Path) -> None:
    groups, _ = opened(path)
    groups.declare("billing", GroupSettings(enabled=False))
    with pytest.raises(EntityDisabledError):
        groups.ensure("billing")


def test_there_are_so_many_groups_at_most(path: Path) -> None:
    groups, _ = opened(path, most=2)
    groups.ensure("a")
    groups.declare("b", STRICT)
    for add in (groups.ensure, lambda name: groups.declare(name, STRICT)):
        with pytest.raises(LimitExceededError):
            add("c")
    groups.declare("a", STRICT)
    assert groups.names() == ["a", "b"]


@pytest.mark.parametrize(
    "settings",
    [
        GroupSettings(max_attempts=0),
        GroupSettings(max_attempts=10_001),
        GroupSettings(backoff_ms=()),
        GroupSettings(backoff_ms=(1_000, 0)),
        GroupSettings(backoff_ms=(86_400_001,)),
        GroupSettings(backoff_ms=(1,) * 129),
    ],
)
def test_settings_out_of_range_are_refused_and_in_a_file_too(path: Path, settings: GroupSettings) -> None:
    groups, _ = opened(path)
    with pytest.raises(PreconditionFailedError):
        groups.declare("billing", settings)
    assert groups.names() == []


@pytest.mark.parametrize("name", ["", "x" * 256, "\ud800"])
def test_names_that_no_file_holds_are_refused(path: Path, name: str) -> None:
    groups, _ = opened(path)
    for add in (groups.ensure, lambda name: groups.declare(name, STRICT)):
        with pytest.raises(PreconditionFailedError):
            add(name)


@pytest.mark.parametrize("text", ["{", '{"format": 2, "groups": {}}', '{"format": 1, "groups": {"a": {"fif": true}}}'])
def test_a_wrong_file_is_refused_at_start_and_changes_nothing_later(path: Path, text: str) -> None:
    groups, _ = opened(path)
    groups.declare("billing", STRICT)
    path.write_text(text)
    with pytest.raises(ConfigError):
        groups.tick()
    assert groups.find("billing") == STRICT
    with pytest.raises(ConfigError):
        opened(path)


def test_a_broker_keeps_its_groups_and_hears_of_others_within_a_second(tmp_path: Path) -> None:
    clock_ms = [0]

    def made(**settings: bool) -> Broker:
        return open_broker(tmp_path, clock=lambda: clock_ms[0], settings=BrokerSettings(**settings))

    broker = made()
    assert broker.consumer_groups.ensure("billing") == DEFAULT_GROUP
    clock_ms[0] = 1_000
    broker.tick(1_000)
    other = made(create_groups=False)
    assert other.consumer_groups.names() == ["billing"]
    other.consumer_groups.declare("billing", STRICT)
    clock_ms[0] = 2_000
    broker.tick(2_000)
    assert broker.consumer_groups.find("billing") == STRICT
