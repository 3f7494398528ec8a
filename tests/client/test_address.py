"""Addresses of servers."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from headgate.client import ServerAddress, Tls
from headgate.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", ServerAddress("localhost")),
        ("localhost:1234", ServerAddress("localhost", 1234)),
        ("[::1]:1234", ServerAddress("::1", 1234)),
        ("::1", ServerAddress("::1")),
        ("headgate-stream://host", ServerAddress("host")),
        ("headgate-stream://me:a%40b@host:99/v%2Fh", ServerAddress("host", 99, "me", "a@b", None, "v/h")),
        ("headgate-stream+tls://me:x@host", ServerAddress("host", 5551, "me", "x", Tls())),
        ("headgate-stream://me@[::1]:5", ServerAddress("::1", 5, "me")),
    ],
)
def test_an_address_is_read(text: str, expected: ServerAddress) -> None:
    assert ServerAddress.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":5552",
        "host:",
        "host:x",
        "host:70000",
        "http://host",
        "headgate-stream://host?x=1",
        "[::1",
        "n" * 64,
        "a..b",
    ],
)
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="server"):
        ServerAddress.parse(text)


def test_a_user_in_the_short_form_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="long form") as raised:
        ServerAddress.parse("me:secret@host:5552")
    assert "secret" not in str(raised.value)


def test_what_is_given_beside_the_address_counts() -> None:
    parsed = ServerAddress.parse("headgate-stream://me:x@host", user="you", password="y")
    assert (parsed.user, parsed.password) == ("you", "y")


def test_no_password_is_shown() -> None:
    address = ServerAddress("host", user="me", password="secret")
    assert "secret" not in repr(address) + str(address)
    assert pickle.loads(pickle.dumps(address)) == address
    assert str(address) == "headgate-stream://me@host:5552"


def test_files_that_are_no_certificates_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(ConfigError, match="TLS"):
        Tls(ca=str(tmp_path / "ca.pem")).context()
