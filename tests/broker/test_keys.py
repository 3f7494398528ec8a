"""Access keys: secrets and their rotation, rights by pattern, the file that keeps them, and who never shows them."""

from __future__ import annotations

import logging
import os
import stat
import time
import traceback
from pathlib import Path

import pytest
from rich.pretty import pretty_repr

from brokers import START_MS, open_broker
from headgate.broker.keys import AccessKeys, KeyRights, Right
from headgate.errors import (
    AccessRefusedError,
    ConfigError,
    HeadgateError,
    PreconditionFailedError,
    ResourceExistsError,
    ResourceNotFoundError,
)

ALL = KeyRights(manage=".*")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "keys.json"


@pytest.fixture
def keys(path: Path) -> AccessKeys:
    return AccessKeys(path)


def test_without_a_file_there_are_no_keys_and_none_is_made(keys: AccessKeys, path: Path) -> None:
    assert list(keys) == [] and "root" not in keys and not path.parent.exists()
    with pytest.raises(ResourceNotFoundError):
        keys.get("root")


def test_a_key_has_two_long_random_secrets_in_a_file_for_its_owner(keys: AccessKeys, path: Path) -> None:
    before = os.umask(0)
    try:
        made = keys.add("app", KeyRights("^orders", ".*"))
    finally:
        os.umask(before)
    others = keys.add("other", ALL)
    found = {made.primary, made.secondary, others.primary, others.secondary}
    assert len(found) == 4 and {len(secret) for secret in found} == {44}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = AccessKeys(path)
    assert (list(again), again.get("app"), again.get("other")) == (["app", "other"], made, others)


def test_the_file_is_never_there_for_others_to_read(
    keys: AccessKeys, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    rename = os.replace

    def watched(source: Path, target: Path) -> None:
        modes.append(stat.S_IMODE(source.stat().st_mode))
        rename(source, target)

    monkeypatch.setattr(os, "replace", watched)
    keys.add("app", ALL)
    keys.rotate("app")
    assert modes == [0o600, 0o600]


def test_rotation_keeps_the_primary_secret_as_the_secondary_once(keys: AccessKeys) -> None:
    first = keys.add("app", KeyRights(send="^o"), secret="one of mine")
    assert first.primary == "one of mine" != first.secondary
    second = keys.rotate("app")
    assert second.secondary == "one of mine" and second.primary not in (first.primary, first.secondary)
    third = keys.rotate("app", secret="two of mine")
    assert (third.primary, third.secondary, third.rights) == ("two of mine", second.primary, first.rights)
    assert keys.get("app") == third


@pytest.mark.parametrize(
    ("rights", "right", "entity", "allowed"),
    [
        (KeyRights(send="^orders"), Right.SEND, "orders", True),
        (KeyRights(send="^orders"), Right.SEND, "orders/Subscriptions/red", True),
        (KeyRights(send="^orders"), Right.LISTEN, "orders", False),
        (KeyRights(send="^orders"), Right.MANAGE, "orders", False),
        (KeyRights(send="^orders$"), Right.SEND, "orders/Subscriptions/red", False),
        (KeyRights(listen="/Subscriptions/red$"), Right.LISTEN, "orders/Subscriptions/red", True),
        (KeyRights(manage=".*"), Right.SEND, "orders", True),
        (KeyRights(manage=".*"), Right.LISTEN, "", True),
        (KeyRights(manage="^orders", send="^bills"), Right.SEND, "bills", True),
        (KeyRights(), Right.SEND, "orders", False),
        (KeyRights(), Right.LISTEN, "", False),
    ],
)
def test_rights_are_patterns_and_manage_includes_the_others(
    keys: AccessKeys, rights: KeyRights, right: Right, entity: str, allowed: bool
) -> None:
    keys.add("app", rights)
    if allowed:
        keys.check("app", right, entity)
    else:
        with pytest.raises(AccessRefusedError, match=f"'app' has no {right.value} right"):
            keys.check("app", right, entity)
    with pytest.raises(AccessRefusedError):
        keys.check("nobody", right, entity)


def test_wrong_changes_are_refused(keys: AccessKeys) -> None:
    kept = keys.add("app", ALL)
    with pytest.raises(ResourceExistsError):
        keys.add("app", ALL)
    for name in ("", "a;b", "a\n", "x" * 257):
        with pytest.raises(PreconditionFailedError, match="printable"):
            keys.add(name, ALL)
    for pattern in (KeyRights(send="("), KeyRights(listen="["), KeyRights(manage="*")):
        with pytest.raises(PreconditionFailedError, match="regular expression"):
            keys.add("new", pattern)
    for secret in ("", " ", "a;b", "tail ", "a\tb"):
        with pytest.raises(PreconditionFailedError, match="a secret has"):
            keys.add("new", ALL, secret=secret)
        with pytest.raises(PreconditionFailedError, match="a secret has"):
            keys.rotate("app", secret=secret)
    for change in (lambda: keys.rotate("nobody"), lambda: keys.remove("nobody")):
        with pytest.raises(ResourceNotFoundError):
            change()
    assert (list(keys), keys.get("app")) == (["app"], kept)


def test_no_secret_is_shown_by_what_is_printed_or_raised(keys: AccessKeys, path: Path) -> None:
    made = keys.add("app", ALL, secret="very-secret")
    shown = [repr(made), str(made), pretty_repr(made), repr(keys), repr([made]), f"{made}"]
    whole = path.read_text()
    for damage in (('"very-secret"', '["very-secret"]'), ('"very-secret"', '"very-secret'), ('"primary"', '"primry"')):
        path.write_text(whole.replace(*damage))
        with pytest.raises(ConfigError, match=r"keys\.json is no file of access keys") as caught:
            AccessKeys(path)
        shown.append("".join(traceback.format_exception(caught.value)))
    path.write_text(whole)
    for name, secret in (("app", "very-secret"), ("other", "very-secret;")):
        with pytest.raises(HeadgateError) as error:
            keys.add(name, ALL, secret=secret)
        shown.append(str(error.value))
    assert not [text for text in shown if "very-secret" in text or made.secondary in text]
    assert pretty_repr(made) == repr(made)


def test_a_broker_takes_over_what_another_process_changed_and_keeps_its_keys_where_the_file_is_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = open_broker(tmp_path)
    other = AccessKeys(broker.root / ".headgate" / "keys.json")
    made = other.add("app", ALL)
    broker.tick(START_MS + 1_000)
    assert broker.keys.get("app") == made
    broker.keys.rotate("app")
    other.add("second", ALL)
    assert list(AccessKeys(broker.root / ".headgate" / "keys.json")) == ["app", "second"]
    broker.tick(START_MS + 2_000)
    path = broker.root / ".headgate" / "keys.json"
    contents = [b"{", b'{"keys": {}, "format": 9}', path.read_bytes().replace(b".*", b"(")]
    for place, content in enumerate(contents):
        path.write_bytes(content)
        os.utime(path, (time.time() + 5, time.time() + 5))
        caplog.clear()
        broker.tick(START_MS + 10_000 + 1_000 * place)
        assert list(broker.keys) == ["app", "second"]
        # Whoever changes it would write over what is there.
        with pytest.raises((ConfigError, PreconditionFailedError)):
            broker.keys.add("third", ALL)
        (logged,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
        assert "the access keys stay as they were" in logged and made.primary not in logged
    path.unlink()
    broker.tick(START_MS + 20_000)
    assert list(broker.keys) == []
