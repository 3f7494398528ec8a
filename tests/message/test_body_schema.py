"""Bodies of a declared schema: the table of types for both formats, what does not decode, and what is refused."""

from __future__ import annotations

import io
import json
import pickle
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from body_schemas import TYPE, descriptor_set, order_body, order_schema
from headgate.errors import ConfigError
from headgate.evaluate import Engine, Filter, Verdict
from headgate.evaluate.rules import RuleSet
from headgate.message import EncodedMessages, Message
from headgate.message.body_schema import BodySchema, read_body_schema
from headgate.message.body_schema.schema import SchemaFormat, _decoders
from headgate.message.json_body import MAX_JSON_BYTES

FULL = order_body(
    id=2**64 - 1, total=19.99, rate=0.5, paid=True, customer_name="Zoë", key="AQI=", count=-7, state="PAID",
    main={"sku": "M"}, lines=[{"sku": "A-1"}, {"sku": "B", "parts": [{"sku": "C"}]}], labels={"gift": 1}, note="",
)  # fmt: skip
TABLE = [
    ("body.id = 18446744073709551615", True, False),
    ("body.id > 18446744073709551614", True, False),
    ("body.total = 19.99", True, False),
    ("body.rate = 0.5", True, False),
    ("body.paid = TRUE", True, False),
    ("body.customer_name = 'Zoë'", True, False),
    ("body.key = 'AQI='", True, False),
    ("body.count = -7", True, False),
    ("body.state = 'PAID'", True, False),
    ("body.state = 'NEW'", False, True),
    ("body.main.sku = 'M'", True, None),
    ("EXISTS(body.main)", True, False),
    ("body.lines[*].sku LIKE 'A-%'", True, False),
    ("body.lines[1].parts[0].sku = 'C'", True, None),
    ("EXISTS(body.lines[*])", True, False),
    ("body.labels.gift = 1", True, None),
    ("EXISTS(body.note)", True, False),
    ("body.total = 0", False, True),
    ("EXISTS(body.total)", True, True),
    ("EXISTS(body.customerName)", False, False),
    ("body.note IS NULL", False, True),
]


def verdict(text: str, schema: BodySchema, body: bytes) -> bool | None:
    own = Filter.parse(text).over(schema.text)
    messages = EncodedMessages.of([Message(body).encode()])
    found = own.verdict(Message(body))
    for engine in Engine:
        assert own.verdicts(messages, engine=engine).tolist() == [found]
    return {Verdict.TRUE: True, Verdict.FALSE: False, Verdict.UNKNOWN: None}[found]


@pytest.mark.parametrize(("text", "full", "empty"), TABLE)
def test_fields_of_protobuf_are_values(text: str, full: bool | None, empty: bool | None) -> None:
    assert verdict(text, order_schema(), FULL) is full
    assert verdict(text, order_schema(), b"") is empty


def test_an_unknown_number_of_an_enum_stays_a_number() -> None:
    assert verdict("body.state = 9", order_schema(), b"\x50\x09") is True


@pytest.mark.parametrize("body", [FULL[:-1], b"\xff", b'{"id": 1}', FULL + b"\x00"])
def test_in_a_body_that_does_not_decode_every_path_is_unknown(body: bytes) -> None:
    assert order_schema().document(body) is None
    assert verdict("body.id >= 0", order_schema(), body) is None
    assert verdict("EXISTS(body.id)", order_schema(), body) is False
    explained = Filter.parse("body.id >= 0").over(order_schema().text).explain(Message(body))
    assert explained.reasons == ("`body.id >= 0` is unknown (the body is not protobuf shop.Order)",)


def test_json_is_no_body_of_a_schema_and_a_filter_without_paths_stays_itself() -> None:
    plain = Filter.parse("region = 'EMEA'")
    assert plain.over(order_schema().text) is plain
    events = Filter.parse("type = 'x'", "cesql")
    assert events.over(order_schema().text) is events
    paths = Filter.parse("body.id = 1")
    assert paths.over(None) is paths
    assert paths.over(order_schema().text).program is None


def test_nesting_beyond_the_librarys_limit_and_too_many_values_do_not_decode() -> None:
    def nested(levels: int) -> bytes:
        line = b""
        for _ in range(levels):
            line = b"\x12" + _varint(len(line)) + line
        return b"\x5a" + _varint(len(line)) + line

    assert order_schema().document(nested(50)) is not None
    assert order_schema().document(nested(20_000)) is None
    began = time.monotonic()
    assert order_schema().document(b"\x62\x00" * (MAX_JSON_BYTES // 2)) is None
    assert order_schema().document(bytes(MAX_JSON_BYTES + 1)) is None
    assert time.monotonic() - began < 60


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + _varint(number >> 7)


def one_message(syntax: str, fields: dict[str, Any]) -> BodySchema:
    """The schema of a message with fields 1, 2 …, named with their types."""
    file = FileDescriptorProto(name="one.proto", syntax=syntax)
    message = file.message_type.add(name="One")
    message.oneof_decl.add(name="chosen")
    for number, (name, kind) in enumerate(fields.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL, oneof_index=0)
    return BodySchema(SchemaFormat.PROTOBUF, ((None, FileDescriptorSet(file=[file]).SerializeToString()),), "One")


def test_strings_of_proto2_that_are_no_utf_8_do_not_decode() -> None:
    schema = one_message("proto2", {"text": FieldDescriptorProto.TYPE_STRING})
    assert verdict("body.text = 'x'", schema, b"\x0a\x01x") is True
    assert verdict("body.text = '/w=='", schema, b"\x0a\x01\xff") is None


def test_a_message_of_proto2_without_a_required_field_does_not_decode() -> None:
    file = FileDescriptorProto(name="two.proto", syntax="proto2")
    message = file.message_type.add(name="Two")
    number = FieldDescriptorProto.TYPE_INT32
    message.field.add(name="a", number=1, type=number, label=FieldDescriptorProto.LABEL_REQUIRED)
    message.field.add(name="b", number=2, type=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    content = FileDescriptorSet(file=[file]).SerializeToString()
    schema = BodySchema(SchemaFormat.PROTOBUF, ((None, content),), "Two")
    assert verdict("body.b = 5", schema, b"\x08\x01\x10\x05") is True
    assert verdict("body.b = 5", schema, b"\x10\x05") is None


@pytest.mark.parametrize("name", ["DESCRIPTOR", "HasField", "IsInitialized"])
def test_fields_may_have_names_that_the_library_uses(name: str) -> None:
    schema = one_message("proto3", {name: FieldDescriptorProto.TYPE_INT32, "other": FieldDescriptorProto.TYPE_INT32})
    assert verdict(f"body.{name} = 5 AND NOT EXISTS(body.other)", schema, b"\x08\x05") is True


def test_confluents_header_names_the_file_and_the_type() -> None:
    schema = order_schema(number=258)
    header, place = b"\0\0\0\1\2", b"\2\2"  # One number, zigzag: the type is 1 in its file.
    assert verdict("body.count = -7", schema, header + place + FULL) is True
    for body in (FULL, header + FULL, header + b"\0" + FULL, b"\0\0\0\1\3" + place + FULL, b"\1\0\0\1\2" + FULL, b""):
        assert schema.document(body) is None


def test_a_schema_is_a_text_and_may_be_pickled() -> None:
    for schema in (order_schema(), order_schema(number=7)):
        assert BodySchema.parse(schema.text) == schema
        own = Filter.parse("body.id = 1").over(schema.text)
        assert pickle.loads(pickle.dumps(own)) == own
        assert own != Filter.parse("body.id = 1")
    with pytest.raises(ConfigError, match="no schema of bodies"):
        BodySchema.parse('{"format": "xml", "files": {}}')


def test_many_rules_share_the_decoded_body() -> None:
    text = order_schema().text
    rules = [Filter.parse(f"body.count = {-number} AND NOT region = 'x{number}'").over(text) for number in range(20)]
    message = Message(FULL, application_properties={"region": "x8"})
    found = RuleSet([*rules, Filter.parse("region = 'x8'")]).match(EncodedMessages.of([message.encode()]), now_ms=0)
    assert found.rules.tolist() == [7, 20]


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("https://registry/subjects/orders", "no registry is asked"),
        ("confluent:17", "no registry is asked"),
        ("missing.desc#shop.Order", "cannot be read"),
        ("orders.desc", "needs #package.Message"),
        ("orders.avsc#x", "one of Avro has no types"),
        ("orders.txt", "expected a file"),
        ("orders.desc#shop.Missing", "has no message 'shop.Missing'"),
        ("wrong.desc#shop.Order", "protoc"),
        ("part.desc#shop.Order", "--include_imports"),
        ("mixed", "id of the registry as its name"),
        ("empty", "expected a file"),
    ],
)
def test_wrong_references_are_refused(
    reference: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("orders.desc").write_bytes(descriptor_set())
    Path("wrong.desc").write_bytes(b"\xff\xff")
    files = FileDescriptorSet.FromString(descriptor_set()).file
    Path("part.desc").write_bytes(FileDescriptorSet(file=files[:1]).SerializeToString())
    Path("orders.avsc").write_text('"string"')
    Path("empty").mkdir()
    Path("mixed").mkdir()
    Path("mixed/name.desc").write_bytes(b"")
    with pytest.raises(ConfigError, match=reason):
        read_body_schema(reference)


def test_a_folder_has_a_file_for_each_id(tmp_path: Path) -> None:
    for number in (7, 258):
        (tmp_path / f"{number}.binpb").write_bytes(descriptor_set())
    schema = read_body_schema(f"{tmp_path}#{TYPE}")
    assert [number for number, _ in schema.files] == [258, 7]
    for number in (7, 258):
        assert schema.document(b"\0" + number.to_bytes(4, "big") + b"\2\2" + FULL) is not None


# -- Avro --------------------------------------------------------------------------------------------------------------

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "rate", "type": "float"},
        {"name": "weight", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "paid", "type": "boolean"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "key", "type": {"type": "fixed", "name": "Key", "size": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "labels", "type": {"type": "map", "values": "int"}},
    ],
}
ORDER = {
    "id": 9007199254740993, "total": Decimal("120.50"), "at": 1_700_000_000_123, "rate": 0.1, "weight": 0.1,
    "note": None, "paid": True, "state": "PAID", "before": "NEW", "key": b"\1\2", "tags": ["a", "b"],
    "labels": {"gift": 1},
}  # fmt: skip


def nested_records(count: int, fields: str = "a") -> list[object]:
    """A union of records, each of the others after the first with the one before it in each of its fields."""
    first: list[object] = [{"type": "record", "name": "R0", "fields": [{"name": "n", "type": "null"}]}]
    return first + [
        {"type": "record", "name": f"R{at}", "fields": [{"name": field, "type": f"R{at - 1}"} for field in fields]}
        for at in range(1, count)
    ]


RECURSIVE = {"type": "record", "name": "A", "fields": [{"name": "n", "type": ["null", "A"]}]}
FLAG = {"name": "b", "type": "boolean"}


def avro_schema(stated: object, number: int | None = None) -> BodySchema:
    return BodySchema(SchemaFormat.AVRO, ((number, json.dumps(stated).encode()),))


def avro_body(**changes: object) -> bytes:
    fastavro = pytest.importorskip("fastavro", reason="headgate[avro] is not installed")
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(AVRO), {**ORDER, **changes})
    return file.getvalue()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("body.id = 9007199254740993", True),
        ("body.id = 9007199254740992", False),
        ("body.total = 120.5", True),
        ("body.total > 120.49 AND body.total < 120.51", True),
        ("body.at = 1700000000123", True),
        ("body.rate = 0.1", False),
        ("body.rate > 0.1 AND body.rate < 0.1001", True),
        ("body.weight = 0.1", True),
        ("body.note IS NULL AND EXISTS(body.note)", True),
        ("body.note = 'x'", None),
        ("body.paid = TRUE", True),
        ("body.state = 'PAID' AND body.before = 'NEW'", True),
        ("body.key = 'AQI='", True),
        ("body.tags[*] = 'b'", True),
        ("body.labels.gift = 1", True),
        ("EXISTS(body.labels.other)", False),
    ],
)
def test_fields_of_avro_are_values(text: str, expected: bool | None) -> None:
    assert verdict(text, avro_schema(AVRO), avro_body()) is expected


def test_numbers_that_filters_do_not_have_are_unknown() -> None:
    assert verdict("body.weight IS NULL AND EXISTS(body.weight)", avro_schema(AVRO), avro_body(weight=float("inf")))
    schema = avro_schema({"type": "record", "name": "R", "fields": [AVRO["fields"][1]]})
    digits = (10**700).to_bytes(300, "big")
    assert verdict("body.total IS NULL", schema, b"\xd8\x04" + digits) is True


def test_avro_that_is_cut_or_has_bytes_behind_it_does_not_decode() -> None:
    schema, body = avro_schema(AVRO), avro_body()
    assert schema.document(body) is not None
    assert [stop for stop in range(len(body)) if schema.document(body[:stop]) is not None] == []
    assert schema.document(body + b"\0") is None
    framed = avro_schema(AVRO, 3)
    assert framed.document(b"\0\0\0\0\3" + body) is not None
    assert framed.document(body) is None


@pytest.mark.parametrize(
    ("stated", "right", "wrong"),
    [
        (AVRO["fields"][7]["type"], b"\x02", [b"\x04", b"\x01", b"\x03"]),  # Symbols -1 and -2 are none.
        (["null", "int"], b"\x02\x02", [b"\x04\x02", b"\x01\x02", b"\x03"]),  # Nor are branches.
        ("int", b"\xff\xff\xff\xff\x0f", [b"\x80\x80\x80\x80\x10"]),
        ("long", b"\xff" * 9 + b"\x01", [b"\xff" * 9 + b"\x03", b"\x80" * 10 + b"\x00"]),
        ("boolean", b"\x01", [b"\x02", b"\xff"]),
        ("string", b"\x02a", [b"\x01a", b"\x02\xff"]),
        ({"type": "array", "items": "int"}, b"\x03\x04\x02\x04\x02\x06\x00", [b"\x03\x02\x02\x04\x00"]),
        ({"type": "map", "values": "int"}, b"\x01\x06\x02a\x02\x00", [b"\x01\x04\x02a\x02\x00"]),
    ],
    ids=["enum", "union", "int", "long", "boolean", "string", "array", "map"],
)
def test_numbers_that_a_schema_of_avro_does_not_have_do_not_decode(
    stated: object, right: bytes, wrong: list[bytes]
) -> None:
    pytest.importorskip("fastavro", reason="headgate[avro] is not installed")
    schema = avro_schema(stated)
    assert schema.document(right) is not None
    assert [body for body in wrong if schema.document(body) is not None] == []


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        (RECURSIVE, "contains itself"),
        ({"type": "array", "items": "null"}, "take no bytes"),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, "take no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "take no bytes"),
        ({"type": "map", "values": {"type": "array", "items": {"type": "null"}}}, "take no bytes"),
        (nested_records(65), "more than 64 levels"),
        ("strin", "not a schema of Avro"),
        ({"type": "record"}, "not a schema of Avro"),
        (3, "not a schema of Avro"),
    ],
)
def test_schemas_of_avro_that_a_body_could_misuse_are_refused(stated: object, reason: str) -> None:
    pytest.importorskip("fastavro", reason="headgate[avro] is not installed")
    with pytest.raises(ConfigError, match=reason):
        avro_schema(stated).check()


def test_the_library_is_given_no_notes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    fastavro = pytest.importorskip("fastavro", reason="headgate[avro] is not installed")
    parse, given = fastavro.parse_schema, []
    monkeypatch.setattr(fastavro, "parse_schema", lambda stated: given.append(json.dumps(stated)) or parse(stated))
    fields = [{"name": "n", "type": {"type": "array", "items": "int", "__note": 1}}]
    avro_schema([{"type": "record", "name": "N", "fields": fields, "__note": 2}]).check()
    assert given
    assert "__note" not in "".join(given)


def test_values_of_avro_that_take_no_bytes_are_counted() -> None:
    pytest.importorskip("fastavro", reason="headgate[avro] is not installed")
    schema = avro_schema(nested_records(16, "ab"))
    schema.check()
    assert schema.document(bytes([2 * 7])) is not None
    assert schema.document(bytes([2 * 15])) is None
    wide = avro_schema({"type": "array", "items": {"type": "record", "name": "B", "fields": [FLAG]}})
    count = MAX_JSON_BYTES // len('{"b":true},')
    assert wide.document(_varint(2 * count) + b"\1" * count + b"\0") is not None


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ((), "one file, or one for each id"),
        (((None, b'"int"'), (1, b'"int"')), "one file, or one for each id"),
        (((-1, b'"int"'),), "one file, or one for each id"),
        (((1 << 32, b'"int"'),), "one file, or one for each id"),
    ],
)
def test_a_schema_has_one_file_or_one_for_each_id(files: tuple[tuple[int | None, bytes], ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        BodySchema(SchemaFormat.AVRO, files).check()


def test_without_fastavro_the_declaration_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ConfigError, match=r"pip install headgate\[avro\]"):
        avro_schema({"type": "record", "name": "Unseen", "fields": []}).check()


def test_without_fastavro_a_filter_does_not_reach_the_messages_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastavro", reason="headgate[avro] is not installed")
    sent = pickle.dumps(Filter.parse("body.id = 1").over(avro_schema(AVRO).text))
    monkeypatch.setitem(sys.modules, "fastavro", None)
    _decoders.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install headgate\[avro\]"):
        pickle.loads(sent)
