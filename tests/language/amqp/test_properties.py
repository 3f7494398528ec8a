"""Property filters → trees (rabbitmq_filters, section 3); what they match is in the recorded tables."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest

from headgate.errors import ConfigError, FilterLimitError, FilterTypeError
from headgate.language.amqp.properties import (
    application_properties_entries,
    application_properties_filter,
    joined,
    properties_entries,
    properties_filter,
)
from headgate.language.tree import (
    And,
    Compare,
    CompareOperator,
    Constant,
    Field,
    HasSimple,
    Like,
    LikePattern,
    LikeShape,
    Node,
    children,
)
from headgate.message import AmqpType, AmqpValue
from headgate.message.fields import FieldReference, Section
from spans import without_spans


def key(name: str) -> Field:
    return Field(FieldReference(Section.APPLICATION_PROPERTIES, key=name.encode()))


def equal(field: Field, value: bool | int | float | bytes) -> Node:
    return Compare(CompareOperator.EQUAL, field, Constant(value))


NAN = AmqpValue(AmqpType.DOUBLE, float("nan"))
LIST = AmqpValue(AmqpType.LIST, (AmqpValue(AmqpType.INT, 5),))

APPLICATION_PROPERTIES: list[tuple[object, Node]] = [
    ("red", equal(key("k"), b"red")),
    (5, equal(key("k"), 5)),
    (5.5, equal(key("k"), 5.5)),
    (True, equal(key("k"), True)),
    (b"\xff", equal(key("k"), b"\xff")),
    (uuid.UUID(int=1), equal(key("k"), bytes(15) + b"\x01")),
    (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), equal(key("k"), 1000)),
    (None, HasSimple(key("k"))),
    ("&p:or", Like(key("k"), LikePattern(LikeShape.PREFIX, prefix=b"or"))),
    ("&s:ed", Like(key("k"), LikePattern(LikeShape.SUFFIX, suffix=b"ed"))),
    ("&p:", Like(key("k"), LikePattern(LikeShape.PREFIX))),
    ("&&x", equal(key("k"), b"&x")),
    (AmqpValue(AmqpType.SYMBOL, "&p:or"), equal(key("k"), b"&p:or")),
    (NAN, Constant(False)),
    (LIST, Constant(False)),
    (AmqpValue(AmqpType.DECIMAL32, b"\0\0\0\5"), Constant(False)),
]


@pytest.mark.parametrize(("wanted", "tree"), APPLICATION_PROPERTIES, ids=[repr(w) for w, _ in APPLICATION_PROPERTIES])
def test_a_wanted_value_becomes_its_test(wanted: object, tree: Node) -> None:
    found = application_properties_filter(application_properties_entries({"k": wanted}))
    assert without_spans(found.tree) == tree


def test_all_entries_are_required_in_order_and_equal_keys_are_kept() -> None:
    entries = [
        (AmqpValue(AmqpType.STRING, name), AmqpValue(AmqpType.INT, number))
        for name, number in (("b", 1), ("a", 2), ("b", 3))
    ]
    found = application_properties_filter(entries)
    assert without_spans(found.tree) == And((equal(key("b"), 1), equal(key("a"), 2), equal(key("b"), 3)))


@pytest.mark.parametrize(
    ("name", "wanted", "kind"),
    [
        ("message-id", "a", AmqpType.STRING),
        ("message_id", 5, AmqpType.ULONG),
        ("correlation_id", uuid.UUID(int=2), AmqpType.UUID),
        ("correlation_id", b"x", AmqpType.BINARY),
        ("user_id", b"me", AmqpType.BINARY),
        ("subject", "order", AmqpType.STRING),
        ("content_type", "text/plain", AmqpType.SYMBOL),
        ("creation_time", 1000, AmqpType.TIMESTAMP),
        ("creation_time", datetime(2026, 1, 1, tzinfo=UTC), AmqpType.TIMESTAMP),
        ("group_sequence", 7, AmqpType.UINT),
    ],
)
def test_a_plain_value_gets_the_type_of_its_field(name: str, wanted: object, kind: AmqpType) -> None:
    entries = properties_entries({name: wanted})
    assert entries[0][0] == AmqpValue(AmqpType.SYMBOL, name.replace("_", "-"))
    assert entries[0][1].type is kind
    assert isinstance(properties_filter(entries).tree, Compare)


@pytest.mark.parametrize(
    ("name", "wanted", "reason"),
    [
        ("Subject", "x", "found property 'Subject', expected one of message-id"),
        ("subject", 5, "property 'subject': found 5, expected a value of type string"),
        ("subject", None, "found None"),
        ("creation_time", True, "expected a value of type timestamp"),
        ("user_id", "me", "expected a value of type binary"),
    ],
)
def test_a_plain_value_that_its_field_cannot_have_is_named(name: str, wanted: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        properties_entries({name: wanted})


def test_a_typed_value_of_another_type_than_its_field_is_refused_at_its_entry() -> None:
    entries = properties_entries({"to": "a", "subject": AmqpValue(AmqpType.SYMBOL, "b")})
    with pytest.raises(FilterTypeError) as refused:
        properties_filter(entries)
    start, stop = refused.value.span
    assert refused.value.text[start:stop] == "subject: symbol 'b'"
    assert "subject is compared with string, found symbol 'b'" in refused.value.reason


@pytest.mark.parametrize("value", ["&", "&x", "&P:x", "&p", "&s"])
def test_an_unknown_modifier_refuses_the_filter(value: str) -> None:
    with pytest.raises(FilterTypeError, match="expected &p:…, &s:… or &&"):
        application_properties_filter(application_properties_entries({"ok": 1, "k": value}))


@pytest.mark.parametrize(
    ("entry_key", "read"),
    [
        (AmqpValue(AmqpType.STRING, "subject"), properties_filter),
        (AmqpValue(AmqpType.SYMBOL, "message_id"), properties_filter),
        (AmqpValue(AmqpType.SYMBOL, "k"), application_properties_filter),
        (AmqpValue(AmqpType.INT, 5), application_properties_filter),
    ],
)
def test_a_key_of_the_wrong_type_or_name_refuses_the_filter(entry_key: AmqpValue, read: object) -> None:
    with pytest.raises(FilterTypeError, match="found key"):
        read([(entry_key, AmqpValue(AmqpType.STRING, "x"))])  # type: ignore[operator]


@pytest.mark.parametrize("count", [0, 17])
def test_a_map_has_one_to_sixteen_entries(count: int) -> None:
    application_properties_filter(application_properties_entries({f"k{i}": i for i in range(16)}))
    with pytest.raises(FilterLimitError, match=f"{count} entries, expected 1 to 16"):
        application_properties_filter(application_properties_entries({f"k{i}": i for i in range(count)}))


def test_joined_filters_keep_the_places_of_their_entries() -> None:
    text, tree = joined(
        [
            properties_filter(properties_entries({"subject": "a", "to": "b"})),
            application_properties_filter(application_properties_entries({"region": "AMER"})),
        ]
    )
    assert isinstance(tree, And)
    assert [text[slice(*part.span)] for part in children(tree)] == [
        "subject: string 'a', to: string 'b'",
        "region: string 'AMER'",
    ]
    assert text[slice(*children(children(tree)[0])[1].span)] == "to: string 'b'"
