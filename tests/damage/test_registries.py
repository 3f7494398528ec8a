"""Damage of the files in which a broker keeps users, keys and exchanges: the truth, or an error that names the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from headgate.broker.exchanges import Exchanges
from headgate.broker.keys import AccessKeys, KeyRights
from headgate.broker.private_file import PrivateFile
from headgate.broker.users import Users
from headgate.errors import ConfigError, HeadgateError


def _users(path: Path) -> object:
    users = Users(path, default_user="guest")
    return {name: users.get(name) for name in users}


def _keys(path: Path) -> object:
    keys = AccessKeys(path)
    return {name: keys.get(name) for name in keys}


def _exchanges(path: Path) -> object:
    exchanges = Exchanges(path)
    return exchanges.all(), exchanges.super_streams(), exchanges.partitions("parts")


def _make(path: Path) -> None:
    if path.name == "users.json":
        Users(path, default_user="guest").add("anna", None)
    elif path.name == "keys.json":
        AccessKeys(path).add("sender", KeyRights(send="^a$"))
    else:
        Exchanges(path).create_super_stream("parts", [("parts-0", "0"), ("parts-1", "1")])


@pytest.mark.parametrize(
    ("name", "read"), [("users.json", _users), ("keys.json", _keys), ("exchanges.json", _exchanges)]
)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, name: str, read: Callable[[Path], object]) -> None:
    path = tmp_path / name
    _make(path)
    whole, truth = path.read_bytes(), read(path)
    flips = [(at, bytes([whole[at] ^ 1 << at % 8])) for at in range(len(whole))]
    damaged = [whole[:at] + byte + whole[at + 1 :] for at, byte in flips]
    damaged += [whole[:at] for at in range(0, len(whole) - 1, 7)]
    damaged += [bytes(len(whole)), whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2)]
    wrong = []
    for content in damaged:
        path.write_bytes(content)
        try:
            if read(path) != truth:
                wrong.append((content, "silent"))
        except HeadgateError as error:
            if str(path) not in str(error):
                wrong.append((content, str(error)))
    assert not wrong, (len(wrong), wrong[:3])


class _Content(msgspec.Struct):
    format: int = 1


def test_a_content_that_is_refused_names_its_file(tmp_path: Path) -> None:
    def refuse(_: _Content) -> None:
        raise ConfigError("a number is too large")

    file = PrivateFile(tmp_path / "numbers.json", _Content, what="numbers", format=1, check=refuse)
    file.write(_Content())
    with pytest.raises(ConfigError, match=r"numbers\.json"):
        file.read()
