"""What all kinds of derived files have in common."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.derived import COLUMN_FILES, LOOKUP_FILES, SealedKind, sources_of
from headgate.derived.columns import declaration_of, declare_columns
from headgate.derived.lookup import declare_lookup, lookup_fields
from headgate.derived.match_index.registry import REGISTRY_NAME, FilterRegistry
from headgate.errors import LogError
from headgate.log import Stream
from headgate.log.format import FILE_HEAD_BYTES
from headgate.log.seal import seal_path
from match_indexes import Write, create


def test_kinds_stay_the_same_objects_in_other_processes() -> None:
    kinds = sources_of()
    assert len(kinds) == 3 and all(pickle.loads(pickle.dumps(kind)) is kind for kind in kinds)


@pytest.mark.parametrize("kind", [COLUMN_FILES, LOOKUP_FILES], ids=lambda kind: kind.name)
def test_a_damaged_segment_is_missing_its_file_and_keeps_no_other_from_being_found(
    tmp_path: Path, kind: SealedKind[object]
) -> None:
    stream = create(tmp_path / "s", [Write((("AMER", 1),) * 5, packed=False)] * 40)
    declare_columns(stream, "region string")
    declare_lookup(stream, ["application_properties.region"])
    declared, sealed = kind.declared(stream), kind.segments(stream)
    assert declared is not None and len(sealed) > 2
    first = sealed[0].segment_path
    seal_path(first).unlink()
    raw = bytearray(first.read_bytes())
    raw[FILE_HEAD_BYTES] ^= 0xFF
    first.write_bytes(raw)
    assert kind.missing(stream, declared) == sealed
    reports = list(kind.build(stream, now_ms=1))
    assert [bool(report.trouble) for report in reports] == [True] + [False] * (len(sealed) - 1)
    assert kind.missing(stream, declared) == sealed[:1]


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("columns.json", declaration_of),
        ("lookup.json", lookup_fields),
        (REGISTRY_NAME, lambda stream: FilterRegistry(stream).read()),
    ],
)
def test_a_declaration_that_says_something_else_is_refused_and_one_without_a_checksum_is_taken(
    tmp_path: Path, name: str, read: Callable[[Stream], object]
) -> None:
    stream = create(tmp_path / "s", [])
    declare_columns(stream, "region string")
    declare_lookup(stream, ["application_properties.region"])
    FilterRegistry(stream).register("red", "region = 'AMER'", "amqp", now_ms=1)
    declared = read(stream)
    (path,) = stream.path.rglob(name)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"region", b"regioo"))
    with pytest.raises(LogError, match=r"their checksum is .*; restore it, or remove its line 'crc'") as raised:
        read(stream)
    assert raised.value.path == path
    fields = json.loads(whole)
    assert fields.pop("crc")
    path.write_text(json.dumps(fields))
    assert read(stream) == declared
