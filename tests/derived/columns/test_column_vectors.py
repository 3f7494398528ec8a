"""The recorded verdicts of the original systems by columns, declared with each type and as the messages have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from column_oracle import assert_same, declaration_of, declared, rows_of
from headgate.derived.columns.declaration import ColumnDeclaration
from headgate.errors import FilterError
from headgate.evaluate import Filter
from headgate.message import EncodedMessages, FieldReference, Section, body_path_text
from headgate.message.arrow import HEADER_TYPES, PROPERTIES_TYPES
from recordings import PropertyMaps, lines_of, servicebus_filter, servicebus_message

NOW_MS = 1_767_225_600_000
KINDS = ("string", "bigint", "double", "boolean")
LISTS = {Section.HEADER: ("h", tuple(HEADER_TYPES)), Section.PROPERTIES: ("p", tuple(PROPERTIES_TYPES))}
LETTERS = {Section.APPLICATION_PROPERTIES: "a", Section.MESSAGE_ANNOTATIONS: "m"}


@dataclass(frozen=True, slots=True)
class Case:
    """A filter of a table, and for which messages it is true."""

    id: str
    filter: Filter
    matches: frozenset[int]


@dataclass(frozen=True, slots=True)
class Table:
    """The cases of a table over its messages."""

    messages: tuple[bytes, ...]
    cases: tuple[Case, ...]

    @property
    def fields(self) -> tuple[FieldReference, ...]:
        """The fields that filters of the table name, as far as a column can be declared for them."""
        named = {field for case in self.cases for field in case.filter.fields}
        return tuple(field for field in sorted(named, key=repr) if column_of(field, "string") is not None)

    def fitting(self, field: FieldReference) -> str:
        """The column of the type that most messages have a field with."""
        texts = [found for kind in KINDS if (found := column_of(field, kind)) is not None]
        declaration = declaration_of(declared(", ".join(f"{text} as c{number}" for number, text in enumerate(texts))))
        rows = rows_of(self.messages, declaration)
        doubts = rows["inexact"].fill_null(0).to_numpy()
        exact = [
            int((rows[f"c{bit}"].is_valid().to_numpy(zero_copy_only=False) & ~(doubts >> bit & 1).astype(bool)).sum())
            for bit in range(len(texts))
        ]
        return texts[int(np.argmax(exact))]


def column_of(field: FieldReference, kind: str) -> str | None:
    """The declaration of a column for a field; None where there is none. Columns of lists have types of their own."""
    if field.section is Section.DATA:
        return f"{body_path_text(field.path)} {kind}" if field.path else None
    if field.position is not None and field.section in LISTS:
        letter, names = LISTS[field.section]
        return f"{letter}.{names[field.position]}"
    if field.section not in LETTERS or field.key is None or not field.key.decode().isprintable() or not field.key:
        return None
    return f"{LETTERS[field.section]}.`{field.key.decode()}` {kind}"


def of_rabbitmq(*names: str, messages: str, dialect: str = "rabbitmq") -> Table:
    encoded = {line["idx"]: bytes.fromhex(line["encoded_hex"]) for line in lines_of(messages)}
    assert list(encoded) == list(range(len(encoded)))
    cases = [
        Case(row["id"], Filter.parse(row["sql"], row.get("dialect", dialect)), frozenset(row["matches"]))
        for name in names
        for row in lines_of(name)
        if row.get("accepted") is True
    ]
    return Table(tuple(encoded.values()), tuple(cases))


def of_rocketmq(*names: str) -> Table:
    rows = [row for name in names for row in lines_of(name)]
    maps = PropertyMaps.of(rows)
    found = [(row["id"], Filter.parse(row["expr"], "rocketmq")) for row in rows if row.get("compile") == "ok"]
    return Table(tuple(maps.messages), cases(found, maps.messages))


def of_servicebus(*names: str) -> Table:
    found, messages = [], []
    for row in (row for name in names for row in lines_of(name)):
        try:
            found.append((row["id"], servicebus_filter(row)))
        except FilterError:
            assert row["expect"] == "error", row["id"]
        messages.append(servicebus_message(row).encode())
    return Table(tuple(messages), cases(found, messages))


def cases(found: Iterable[tuple[str, Filter]], messages: Sequence[bytes]) -> tuple[Case, ...]:
    """By the evaluator, which gives the recorded verdicts of these tables in tests of its own."""
    batch = EncodedMessages.of(list(messages))
    return tuple(
        Case(id, filter, frozenset(np.flatnonzero(filter.mask(batch, now_ms=NOW_MS)).tolist())) for id, filter in found
    )


TABLES: dict[str, Callable[[], Table]] = {
    "rabbitmq": lambda: of_rabbitmq("rabbitmq_sql", messages="rabbitmq_messages"),
    "own rabbitmq": lambda: of_rabbitmq("own/rabbitmq_sql", messages="own/rabbitmq_messages"),
    "amqp": lambda: of_rabbitmq("own/amqp_extensions", messages="own/amqp_messages", dialect="amqp"),
    "bodies": lambda: of_rabbitmq("own/body_paths", messages="own/body_messages", dialect="amqp"),
    "rocketmq": lambda: of_rocketmq("rocketmq_sql"),
    "own rocketmq": lambda: of_rocketmq("own/rocketmq_sql"),
    "servicebus": lambda: of_servicebus("servicebus_sql", "servicebus_correlation"),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_recorded_verdicts_by_columns(name: str) -> None:
    table = TABLES[name]()
    fitting = {field: table.fitting(field) for field in table.fields}
    known: dict[tuple[str, ...], tuple[ColumnDeclaration, pa.RecordBatch]] = {}
    deciding = 0
    for case in table.cases:
        fields = [field for field in table.fields if field in case.filter.fields]
        verdicts = [row in case.matches for row in range(len(table.messages))]
        decides = False
        for texts in {
            tuple(fitting[field] for field in fields),
            *(tuple(column_of(field, kind) for field in fields) for kind in KINDS if name != "bodies"),
        }:
            if not texts:
                continue
            if texts not in known:
                declaration = declaration_of(
                    declared(", ".join(f"{text} as c{number}" for number, text in enumerate(texts)))
                )
                known[texts] = declaration, rows_of(table.messages, declaration)
            declaration, rows = known[texts]
            decides |= assert_same(case.filter, rows, declaration, verdicts, NOW_MS)
        deciding += decides
    assert deciding > len(table.cases) // 5, deciding
