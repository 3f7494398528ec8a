from __future__ import annotations

from pathlib import Path

import pytest

from headgate.broker.tokens import TOKENS_PER_USER, Tokens
from headgate.broker.users import Users
from headgate.errors import LimitExceededError, PreconditionFailedError, ResourceNotFoundError


def test_a_token_is_found_by_its_text_and_only_its_digest_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    name, text = Tokens(path).create("anna", "report", now_ms=1, read_only=True)
    secret = text.removeprefix("headgate_")
    assert len(secret) >= 43 and secret not in path.read_text() and path.stat().st_mode & 0o077 == 0
    again = Tokens(path)
    found = again.find(text, now_ms=2)
    assert found is not None and (found.user, found.description, found.read_only) == ("anna", "report", True)
    assert again.find(secret, now_ms=2) is again.find(text + "x", now_ms=2) is again.find("", now_ms=2) is None
    again.revoke([name])
    assert again.find(text, now_ms=2) is Tokens(path).find(text, now_ms=2) is None
    with pytest.raises(ResourceNotFoundError):
        again.get(name)


def test_a_token_expires_to_the_millisecond_and_is_forgotten_with_the_next_one() -> None:
    tokens = Tokens(None)
    _, text = tokens.create("anna", "", now_ms=1, expires_ms=5)
    assert tokens.find(text, now_ms=4) is not None and tokens.find(text, now_ms=5) is None
    assert list(tokens.all(now_ms=5)) == []
    tokens.create("anna", "", now_ms=5)
    assert tokens.find(text, now_ms=4) is None


def test_tokens_are_limited_per_user_and_in_their_descriptions() -> None:
    tokens = Tokens(None)
    for _ in range(TOKENS_PER_USER):
        tokens.create("anna", "x", now_ms=1)
    with pytest.raises(LimitExceededError):
        tokens.create("anna", "x", now_ms=1)
    tokens.create("ben", "x", now_ms=1)
    with pytest.raises(PreconditionFailedError):
        tokens.create("ben", "x" * 201, now_ms=1)


def test_tokens_end_with_their_user_also_where_another_process_deletes_it(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    users = Users(path, default_user="guest")
    users.add("anna", "x")
    _, of_anna = users.tokens.create("anna", "", now_ms=1)
    _, of_guest = users.tokens.create("guest", "", now_ms=1)
    other = Users(path, default_user="guest")
    other.remove("anna")
    other.add("anna", "x")
    # A change here brings none of them back.
    users.tokens.create("guest", "", now_ms=2)
    users.reload()
    assert users.tokens.find(of_anna, now_ms=2) is None
    assert Users(path, default_user="guest").tokens.find(of_anna, now_ms=2) is None
    assert users.tokens.find(of_guest, now_ms=2) is not None
