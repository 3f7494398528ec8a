"""Messages as rows for people: nothing is lost or rounded, and no bytes break the JSON."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.log import StreamSettings
from headgate.message import AmqpType, AmqpValue, Body, Message, encode_value
from headgate.server.browsing import SHOWN_BODY_BYTES, message_row, rows
from message_values import bodies, sections

HUGE = 2**53 + 1


def row_of(message: Message | bytes, settings: StreamSettings | None = None) -> Any:
    """The row after a round through JSON."""
    encoded = message if isinstance(message, bytes) else message.encode()
    row = message_row(encoded, offset=7, timestamp_ms=1_000, settings=settings)
    return json.loads(msgspec.json.encode(row))


def test_a_row_has_the_sections_their_types_and_the_body() -> None:
    annotations = {"x-stream-filter-value": "emea"}
    message = Message(b"hello", subject="order", message_annotations=annotations, application_properties={"n": 5})
    row = row_of(message)
    assert (row["offset"], row["timestamp_ms"], row["filter_value"]) == (7, 1_000, "emea")
    assert row["message"]["properties"] == {"subject": "order"}
    assert row["typed"]["properties"] == {"subject": {"type": "string", "value": "order"}}
    assert row["typed"]["application_properties"]["n"]["value"] == row["message"]["application_properties"]["n"] == 5
    assert row["body"] == {
        "kind": "data",
        "type": None,
        "size_bytes": 5,
        "text": "hello",
        "base64": base64.b64encode(b"hello").decode(),
        "is_truncated": False,
    }


def test_integers_that_javascript_would_round_are_texts() -> None:
    given_properties = {
        "long": AmqpValue(AmqpType.LONG, -HUGE),
        "ulong": AmqpValue(AmqpType.ULONG, 2**64 - 1),
        "exact": AmqpValue(AmqpType.LONG, HUGE - 2),
        "true": True,
    }
    row = row_of(Message(b"", application_properties=given_properties))
    assert row["message"]["application_properties"] == {
        "long": str(-HUGE),
        "ulong": str(2**64 - 1),
        "exact": HUGE - 2,
        "true": True,
    }
    assert row["typed"]["application_properties"]["ulong"] == {"type": "ulong", "value": str(2**64 - 1)}
    assert row_of(Message(Body.value([HUGE])))["body"]["text"] == f'["{HUGE}"]'


@pytest.mark.parametrize(
    ("body", "kind", "of", "text"),
    [
        (Body.data(b'{"a": 1}', b"\n"), "data", None, '{"a": 1}\n'),
        (Body.data(b"\xff\x00"), "data", None, None),
        (Body.value("größer"), "value", "string", "größer"),
        (Body.value(None), "value", "null", "null"),
        (Body.value({"a": [1, 2.5]}), "value", "map", '{"a":[1,2.5]}'),
        (Body.value(b"\xff"), "value", "binary", None),
        (Body.sequence([1, "b"], [None]), "sequence", None, '[[1,"b"],[null]]'),
        (None, "none", None, ""),
    ],
)
def test_each_kind_of_body_is_shown(body: Body | None, kind: str, of: str | None, text: str | None) -> None:
    shown = row_of(Message(body, subject="s"))["body"]
    assert (shown["kind"], shown["type"], shown["text"], shown["is_truncated"]) == (kind, of, text, False)


def test_a_long_body_is_cut_between_characters() -> None:
    octets = b"x" + "é".encode() * SHOWN_BODY_BYTES
    shown = row_of(Message(octets))["body"]
    assert shown["is_truncated"] and shown["size_bytes"] == len(octets)
    assert base64.b64decode(shown["base64"]) == octets[:SHOWN_BODY_BYTES]
    assert shown["text"] == octets[: SHOWN_BODY_BYTES - 1].decode()
    value = row_of(Message(Body.value(["y" * SHOWN_BODY_BYTES])))["body"]
    assert value["is_truncated"] and value["text"].startswith('["yyy')


def test_many_values_are_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_DECODED_BYTES", 1_000)
    many = row_of(Message(Body.value([0] * 1_000), application_properties={"a": 1}, footer={"f": 1}))
    assert (many["body"]["kind"], many["body"]["text"], many["body"]["is_truncated"]) == ("value", None, True)
    assert many["message"] == {"application_properties": {"a": 1}}
    large = row_of(Message(b"", application_properties={"a": "x" * 1_000}))
    assert large["message"]["application_properties"]["left_out_bytes"] > 1_000


def test_hostile_names_are_kept_apart() -> None:
    names = [("__proto__", 1), ("a", 2), ("a", 3), ("\x00\u202e</script>", 4)]
    row = row_of(Message(b"", application_properties=names))
    assert row["message"]["application_properties"] == [[name, value] for name, value in names]
    assert [key for key, _ in row["typed"]["application_properties"]] == [name for name, _ in names]
    not_text = encode_value(AmqpValue(AmqpType.STRING, "\udcff"))
    encoded = b"\x00\x53\x74\xc1" + bytes([len(not_text) + 2, 2]) + not_text + b"\x40" + b"\x00\x53\x75\xa0\x00"
    assert row_of(encoded)["message"]["application_properties"] == [[{"hex": "ff"}, None]]


def test_bytes_that_are_no_message_are_shown_with_the_reason() -> None:
    row = row_of(b"\x00\x53\x75\xa0\xffcut")
    assert "bytes expected" in row["message"]["malformed"]
    assert row["body"]["kind"] == "malformed" and base64.b64decode(row["body"]["base64"]).endswith(b"cut")


@settings(max_examples=30)
@given(st.builds(Message.of_sections, sections, bodies) | st.binary(max_size=200))
def test_every_message_and_all_bytes_are_json(message: Message | bytes) -> None:
    row = row_of(message)
    assert row["typed"].keys() <= row["message"].keys()
    if isinstance(message, Message):
        assert "malformed" not in row["message"]
