"""Which columns of files become which fields, and that no value becomes another one on the way."""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.message import AmqpValue, FieldReference, Message, Section, holds_decimal
from headgate.message.arrow import variant_type
from headgate.tables import ColumnMapping, json_rows, open_rows

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "read-without-spark.md"
FIELDS = {
    "`string`": ("string",),
    "`binary`": ("binary",),
    "`boolean`": ("boolean",),
    "integers, `decimal`": ("tinyint", "smallint", "int", "bigint", "decimal(20,0)"),
    "`float`, `double`": ("float", "double"),
    "`timestamp`": ("timestamp",),
}
LIST = pa.list_(pa.int8())
TYPES: dict[str, tuple[pa.DataType, ...]] = {
    **{name: (getattr(pa, name)(),) for name in ("string", "large_string", "string_view", "null")},
    **{name: (getattr(pa, name)(),) for name in ("binary", "large_binary", "binary_view", "month_day_nano_interval")},
    **{name: (getattr(pa, name)(),) for name in ("uuid", "bool8", "float16", "float32", "float64", "date32", "date64")},
    **{f"{sign}int{bits}": (getattr(pa, f"{sign}int{bits}")(),) for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"decimal{bits}": (getattr(pa, f"decimal{bits}")(9, 2),) for bits in (32, 64, 128, 256)},
    "json": (pa.json_(), pa.json_(pa.string_view())),
    "fixed_size_binary": (pa.binary(16),),
    "bool": (pa.bool_(),),
    "timestamp": tuple(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "Asia/Tokyo")),
    "time32": (pa.time32("s"), pa.time32("ms")),
    "time64": (pa.time64("us"), pa.time64("ns")),
    "duration": (pa.duration("s"), pa.duration("ns")),
    "list": (LIST,),
    "large_list": (pa.large_list(pa.int8()),),
    "list_view": (pa.list_view(pa.int8()),),
    "large_list_view": (pa.large_list_view(pa.int8()),),
    "fixed_size_list": (pa.list_(pa.int8(), 2),),
    "struct": (pa.struct([("a", pa.int8())]),),
    "map": (pa.map_(pa.string(), pa.int8()),),
    "sparse_union": (pa.sparse_union([pa.field("a", pa.int8())]),),
    "dense_union": (pa.dense_union([pa.field("a", pa.int8())]),),
    "opaque": (pa.opaque(pa.string(), "a", "b"),),
    "dictionary": (),
    "run_end_encoded": (),
}


def table_of_the_page() -> dict[str, dict[str, str]]:
    """What the page says that each field does with columns of each type."""
    lines = PAGE.read_text().split("| column of the file |")[1].split("\n\n")[0].splitlines()
    fields = [cell.strip() for cell in lines[0].strip(" |").split("|")]
    found: dict[str, dict[str, str]] = {}
    for line in lines[2:]:
        kinds, *cells = (cell.strip() for cell in line.strip().strip("|").split("|"))
        # "`int8` … `int64`" stands for those between, too.
        for first in re.findall(r"`(u?int)8` … `u?int64`", kinds):
            kinds += "".join(f"`{first}{bits}`" for bits in (16, 32))
        for name in re.findall(r"`(\w+)`", kinds):
            found[name] = dict(zip(fields, cells, strict=True))
    return found


def accepts(kind: pa.DataType, mapping: str) -> bool:
    try:
        ColumnMapping.parse(mapping).check(pa.schema([("x", kind)]))
    except ConfigError:
        return False
    return True


def test_the_page_says_of_every_type_which_field_takes_it() -> None:
    page = table_of_the_page()
    assert page.keys() == TYPES.keys() - {"dictionary", "run_end_encoded"}
    for name, kinds in TYPES.items():
        for kind in kinds:
            for field, types in FIELDS.items():
                for each in types:
                    assert accepts(kind, f"x {each}") == (page[name][field] != "–"), (str(kind), each)
    ids = {kind.id for kinds in TYPES.values() for kind in kinds} | {pa.dictionary(pa.int8(), pa.string()).id}
    missing = {name for name in dir(pa.lib) if name.startswith("Type_") and getattr(pa.lib, name) not in ids}
    assert missing == {"Type_RUN_END_ENCODED", "Type_INTERVAL_MONTHS", "Type_INTERVAL_DAY_TIME"}


@pytest.mark.parametrize(
    "hidden", [lambda kind: pa.dictionary(pa.int8(), kind), lambda kind: pa.run_end_encoded(pa.int32(), kind)]
)
def test_dictionaries_and_runs_count_as_what_they_hold(hidden: Callable[[pa.DataType], pa.DataType]) -> None:
    for kind, mapping in ((pa.string(), "x string"), (pa.int64(), "x double"), (pa.binary(16), "x string")):
        assert accepts(hidden(kind), mapping) == accepts(kind, mapping)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["1.5", None]).dictionary_encode())
    assert values(runs, "x double") == [1.5, 1.5, None]


def values(column: pa.Array, mapping: str) -> list[Any]:
    messages = ColumnMapping.parse(mapping).messages(pa.record_batch([column], ["x"]))
    section = ColumnMapping.parse(mapping).single[0].section
    names = {Section.APPLICATION_PROPERTIES: FieldReference(section, key=b"x")}
    held = (Message.decode(each).value(names[section]) for each in messages.all_bytes())
    return [None if each is None else each.value for each in held]


@pytest.mark.parametrize(
    ("column", "field", "expected"),
    [
        (pa.array([uuid.UUID(int=7).bytes, None], pa.uuid()), "string", [str(uuid.UUID(int=7)), None]),
        (pa.array([uuid.UUID(int=7).bytes], pa.uuid()), "binary", [bytes(15) + b"\7"]),
        (pa.array([2, 0, None], pa.bool8()), "string", ["true", "false", None]),
        (pa.array([2, 0, None], pa.bool8()), "boolean", [True, False, None]),
        (pa.array(['{"a": 1}'], pa.json_()), "string", ['{"a": 1}']),
        (pa.array([np.float16(0.1)]), "double", [0.0999755859375]),
        (pa.array([np.float16(0.1)]), "float", [0.0999755859375]),
        (pa.array([2**54, -(2**63)]), "double", [2.0**54, -(2.0**63)]),
        (pa.array([2**64 - 2**11], pa.uint64()), "double", [float(2**64 - 2**11)]),
        (pa.array([2.0**53, -3.0, None]), "bigint", [2**53, -3, None]),
        (pa.array([1e18]), "decimal(20,0)", [10**18]),
        (pa.array([Decimal("12.10"), Decimal("0.10")]), "double", [12.1, 0.1]),
        (pa.array([Decimal("3.00")], pa.decimal256(60, 2)), "int", [3]),
        (pa.array(["1.0", "1e3", "+7", "007"]), "int", [1, 1000, 7, 7]),
        (pa.array(["TRUE", "false"]), "boolean", [True, False]),
        (pa.array([-1], pa.date32()), "timestamp", [-86_400_000]),
        (pa.array([-1_000_000], pa.timestamp("ns")), "timestamp", [-1]),
        (pa.array(["2026-01-02T00:00:00.1230000000Z"]), "timestamp", [1767312000123]),
        (pa.array([datetime.time(1, 2, 3)]), "string", ["01:02:03.000000"]),
    ],
)
def test_values_that_a_field_holds(column: pa.Array, field: str, expected: list[Any]) -> None:
    assert values(column, f"x {field}") == expected
    again = pa.DictionaryArray.from_arrays(pa.array(range(len(column)), pa.int8()), column)
    assert values(again, f"x {field}") == expected


INEXACT: list[tuple[Any, str, Any]] = [
    (pa.array(["16777217"]), "float", 16777216.0),
    (pa.array(["9007199254740993"]), "double", 2.0**53),
    (pa.array(["9007199254740993.0"]), "double", 2.0**53),
    (pa.array(["5e-324"]), "float", 0.0),
    (pa.array(["1e-400"]), "double", 0.0),
    (pa.array(["0.12345678901234567890"]), "double", 0.12345678901234568),
    (pa.array([16777217]), "float", 16777216.0),
    (pa.array([2**64 - 1], pa.uint64()), "double", 2.0**64),
    (pa.array([0.1]), "float", float(np.float32(0.1))),
    (pa.array([Decimal("9007199254740993")]), "double", 2.0**53),
    (pa.array([1.5]), "decimal(10,0)", 2),
    (pa.array([2.5]), "int", 2),
    (pa.array(["-2.5"]), "bigint", -2),
    (pa.array([Decimal("0.51")]), "smallint", 1),
    (pa.array([-1], pa.timestamp("ns")), "timestamp", -1),
    (pa.array([-1], pa.timestamp("us", "UTC")), "timestamp", -1),
    (pa.array(["2026-01-02T00:00:00.123456Z"]), "timestamp", 1767312000123),
    (pa.array(["2026-01-02 00:00:00.1234567"]), "timestamp", 1767312000123),
    (pa.array(["1969-12-31T23:59:59.9999999+00:00"]), "timestamp", -1),
    (pa.array(["12026-01-02T00:00:00.1234Z"]), "timestamp", 317336832000123),
]


@pytest.mark.parametrize(("column", "field", "nearest"), INEXACT)
def test_values_that_a_field_does_not_hold_are_taken_only_rounded(column: pa.Array, field: str, nearest: Any) -> None:
    with pytest.raises(ConfigError, match=r"^column 'x': found .*, expected .* \(it holds .*'rounded'"):
        values(column, f"x {field}")
    assert values(column, f"x {field} rounded") == [nearest]


@pytest.mark.parametrize(
    ("column", "field"),
    [
        (pa.array(["1e400"]), "double"),
        (pa.array([1e300]), "float"),
        (pa.array([Decimal(10**39)], pa.decimal256(50, 0)), "float"),
        (pa.array([float("nan")]), "int"),
        (pa.array([float("inf")]), "decimal(10,0)"),
        (pa.array([2.0**63]), "bigint"),
        (pa.array(["0xFFFFFFFF"]), "int"),
        (pa.array(["1e999999999"]), "bigint"),
        (pa.array(["1"]), "boolean"),
        (pa.array(["\u0661"]), "int"),
        (pa.array([" 1"]), "double"),
        (pa.array([b"\xff"]), "string"),
        (pa.array(["2026-01-02T00:00:00.12Z5"]), "timestamp"),
    ],
)
def test_what_is_no_value_of_a_field_is_refused_rounded_or_not(column: pa.Array, field: str) -> None:
    for mapping in (f"x {field}", f"x {field} rounded")[: 1 if field in ("boolean", "string") else 2]:
        with pytest.raises(ConfigError, match=r"^column 'x': found .*, expected [^(]+(\(10, 0\))?$"):
            values(column, mapping)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1074, 1023).map(lambda power: 2.0**power))
def test_every_notation_of_a_float_is_taken_for_it(number: float) -> None:
    texts = [repr(number), f"{number:.17g}", f"{number:.18e}", str(Decimal(number))]
    assert values(pa.array(texts), "x double") == [number] * 4
    with np.errstate(over="ignore"):
        narrow = np.float32(number)
    if np.isfinite(narrow):
        assert values(pa.array([str(narrow), f"{float(narrow):.9g}"]), "x float") == [float(narrow)] * 2


@given(st.decimals(allow_nan=False, allow_infinity=False), st.booleans())
def test_a_number_is_held_if_no_digit_of_it_is_lost(number: Decimal, is_double: bool) -> None:
    with np.errstate(over="ignore"):
        held = float(number) if is_double else float(np.float32(float(number)))
    if holds_decimal(number, held, is_double=is_double):
        shortest = repr(held) if is_double else str(np.float32(held))
        digits = len(number.as_tuple().digits)
        assert (
            number == held
            or number == Decimal(shortest)
            or f"{Decimal(held):.{digits - 1}e}" == f"{number:.{digits - 1}e}"
        )


UNEVEN = datetime.datetime(2026, 1, 2, 0, 0, 0, 1)
VARIANT_OF_1_US = {
    "value": bytes([2, 1, 0, 0, 9, 12 << 2]) + (1).to_bytes(8, "little"),
    "metadata": b"\x11\x01\x00\x01a",
}
VARIANT_OF_17_DIGITS = {
    "value": bytes([2, 1, 0, 0, 10, 9 << 2, 1]) + (90071992547409931).to_bytes(8, "little"),
    "metadata": b"\x11\x01\x00\x01a",
}


@pytest.mark.parametrize(
    ("section", "column"),
    [
        ("properties", pa.array([{"creation_time": UNEVEN}])),
        ("header", pa.array([{"ttl": 0.5}])),
        ("application_properties", pa.array([{"a": UNEVEN}])),
        ("message_annotations", pa.array([[("a", UNEVEN)]], pa.map_(pa.string(), pa.timestamp("us")))),
        ("application_properties", pa.array([VARIANT_OF_1_US], variant_type())),
        ("message_annotations", pa.array([VARIANT_OF_17_DIGITS], variant_type())),
    ],
)
def test_whole_sections_have_the_same_rule(section: str, column: pa.Array) -> None:
    rows = pa.record_batch([pa.concat_arrays([pa.nulls(1, column.type), column])], ["x"])
    mapping = ColumnMapping.parse(f"{section} as x")
    with pytest.raises(ConfigError, match=f"^row 2: column '?({section}|x).*rounded"):
        assert [len(part.messages) for part in mapping.mapped(rows, 1, None)] == [1]
    (part,) = ColumnMapping.parse(f"{section} rounded as x").mapped(rows, 1, None)
    assert len(part.messages) == 2


def test_sections_of_json_lines_have_it_too() -> None:
    for held in ("9007199254740993.0", '{"t": "double", "v": 9007199254740993}', '{"t": "float", "v": 16777217}'):
        line = b'{"application_properties": {"a": 0.1, "b": [%b]}}' % held.encode()
        with pytest.raises(ConfigError, match=r"row 1: column 'application_properties': found (9007199|16777217)"):
            list(json_rows(iter([[line]]), ColumnMapping.parse("application_properties")).mapped(None))
        rounded = ColumnMapping.parse("application_properties rounded")
        (part,) = json_rows(iter([[line]]), rounded).mapped(None)
        assert len(part.messages) == 1


def test_numbers_of_json_lines_keep_their_digits() -> None:
    line = b'{"x": 0.12345678901234567890}'
    (part,) = json_rows(iter([[line]]), ColumnMapping.parse("x string")).mapped(None)
    value = Message.decode(part.messages[0]).value(FieldReference(Section.APPLICATION_PROPERTIES, key=b"x"))
    assert isinstance(value, AmqpValue) and value.value == "0.12345678901234567890"


@pytest.mark.parametrize(
    "wrong", ["x string rounded", "p.subject rounded as x", "body rounded", "message rounded as x"]
)
def test_what_is_never_rounded_is_said(wrong: str) -> None:
    with pytest.raises(ConfigError, match="not rounded; expected that word behind a number, a time or a section"):
        ColumnMapping.parse(wrong)


def test_rounded_is_a_name_as_well() -> None:
    mapping = ColumnMapping.parse("rounded double rounded as rounded, `a rounded` int, n int as rounded2")
    assert [each.field for each in mapping.single] == ["rounded", "a rounded", "n"]
    assert mapping.rounded == {"application_properties.rounded"}


def test_parquet_and_arrow_files_have_the_same_types(tmp_path: Path) -> None:
    """Of a type that a field does not take no row is published, whatever its first values are."""
    rows = pa.table({"id": pa.array([b"abcdefghijklmnop", b"\xff" * 16], pa.binary(16)), "n": [1, 2]})
    for path in (tmp_path / "rows.parquet", tmp_path / "rows.arrow"):
        if path.suffix == ".parquet":
            pq.write_table(rows, path)
        else:
            with pa.ipc.new_file(path, rows.schema) as writer:
                writer.write_table(rows)
        with (
            pytest.raises(ConfigError, match=r"^column 'id': found fixed_size_binary\[16\], expected string$"),
            open_rows(path, ColumnMapping.parse("id string, n int")),
        ):
            pass
    shredded = pa.array([{"metadata": b"", "value": b"", "typed_value": 1}])
    mapping = ColumnMapping.parse("application_properties as x")
    with pytest.raises(ConfigError, match="found a shredded VARIANT"):
        mapping.check(pa.schema([("x", shredded.type)]))
