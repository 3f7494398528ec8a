"""The files of users, keys, topics, groups, numbers and exchanges: no flipped bit is taken for another content."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from headgate.broker.private_file import PrivateFile
from headgate.errors import ConfigError
from headgate.log import decode_checked_if_noted, encode_checked


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    names: dict[str, str]
    numbers: dict[int, bytes]
    format: int = 1


def file_at(path: Path) -> PrivateFile[Content]:
    return PrivateFile(path, Content, what="names", format=1, check=lambda _content: None)


def test_a_flipped_bit_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    path, content = tmp_path / "names.json", Content({"anna": "^a$", "bert": ""}, {7: b"\xff"})
    file_at(path).write(content)
    whole = path.read_bytes()
    assert file_at(path).read() == content
    refused = 0
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert file_at(path).read() == content, bit
        except ConfigError:
            refused += 1
    assert refused > 7 * len(whole)


def test_a_file_of_an_earlier_version_has_no_checksum_and_is_taken(tmp_path: Path) -> None:
    path, content = tmp_path / "names.json", Content({"anna": "^a$"}, {})
    file_at(path).write(content)
    fields = json.loads(path.read_bytes())
    assert fields.pop("crc")
    path.write_text(json.dumps(fields))
    assert file_at(path).read() == content


def test_what_was_changed_by_hand_says_how_it_is_taken() -> None:
    changed = encode_checked({"name": "anna"}).replace(b"anna", b"bert")
    with pytest.raises(msgspec.DecodeError, match="remove its line 'crc'"):
        decode_checked_if_noted(changed, dict)
    without = b"".join(line for line in changed.splitlines(keepends=True) if b'"crc"' not in line)
    assert decode_checked_if_noted(without, dict) == {"name": "bert"}


def test_a_content_that_is_refused_names_its_file(tmp_path: Path) -> None:
    def refuse(_content: Content) -> None:
        raise ConfigError("a number is too large")

    file = PrivateFile(tmp_path / "numbers.json", Content, what="numbers", format=1, check=refuse)
    file.write(Content({}, {}))
    with pytest.raises(ConfigError, match=r"numbers\.json"):
        file.read()
