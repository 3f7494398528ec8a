"""Writes the pages on the Spark source, the sink and pipeline files: their templates, filled with tables of the code.

python tools/spark_pages.py            write the pages
python tools/spark_pages.py --check    exit status 1 if a page is out of date
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
from key_tables import default, meanings, plain_keys, tables, write_pages
from pyspark.sql import types

from headgate import Message
from headgate.errors import ConfigError
from headgate.message.arrow import COLUMNS as MESSAGE_COLUMNS
from headgate.message.arrow import DeclaredProperty, SparkType, columns_of
from headgate.message.arrow.encode.inputs import StructInput, inputs_of
from headgate.message.batch import EncodedMessages
from headgate.message.constructors import AmqpType
from headgate.message.types import AmqpValue
from headgate.spark.option_declarations import COLUMNS, SINK_OPTIONS, SOURCE_OPTIONS
from headgate.spark.option_reader import Option
from headgate.spark.pipeline.configuration import PipelineFile, Sink, Source
from headgate.spark.pipeline.topics import SubscriptionEntry
from headgate.spark.schema import COLUMN_MEANINGS, arrow_schema, stream_schema
from headgate.spark.sink import check_column_types
from headgate.topic import TopicLimits
from headgate.topic.limits import LIMIT_MEANINGS

PAGES = Path(__file__).parent.parent / "docs" / "reference"

_TYPES: Mapping[str, types.DataType] = {
    "boolean": types.BooleanType(),
    "tinyint": types.ByteType(),
    "smallint": types.ShortType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "decimal(p,0)": types.DecimalType(38, 0),
    "decimal(p,s)": types.DecimalType(10, 2),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "timestamp": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "date": types.DateType(),
    "array": types.ArrayType(types.StringType()),
    "struct": types.StructType(),
    "map": types.MapType(types.StringType(), types.StringType()),
    "variant": types.VariantType(),
}
"""Spark types to try for columns, by the name shown on the pages."""

_VALUES: Mapping[AmqpType, object] = {
    AmqpType.BOOLEAN: True,
    AmqpType.UBYTE: 1,
    AmqpType.USHORT: 1,
    AmqpType.UINT: 1,
    AmqpType.ULONG: 1,
    AmqpType.BYTE: 1,
    AmqpType.SHORT: 1,
    AmqpType.INT: 1,
    AmqpType.LONG: 1,
    AmqpType.FLOAT: 1.0,
    AmqpType.DOUBLE: 1.0,
    AmqpType.CHAR: 120,
    AmqpType.TIMESTAMP: 1,
    AmqpType.BINARY: b"x",
    AmqpType.STRING: "x",
    AmqpType.SYMBOL: "x",
}
"""A value of each type that a property can have and a column may take."""


def source_page() -> str:
    """The page of the source."""
    return _filled(
        "spark-source",
        options=_options(SOURCE_OPTIONS),
        columns=_source_columns(),
        fields=_table(("field", "type"), ((name, f"`{kind.simpleString()}`") for name, kind in _fields())),
        declared=_table(("declared", "takes of AMQP's types"), _declared()),
    )


def sink_page() -> str:
    """The page of the sink."""
    fields = ((name, _names(_taken_by_field(*name.split(".")))) for name, _ in _fields())
    return _filled(
        "spark-sink",
        columns=_table(("column", "takes", "meaning"), _sink_columns()),
        fields=_table(("field", "takes"), fields),
        types=_table(("Spark", "AMQP"), _amqp_types()),
        options=_options(SINK_OPTIONS),
    )


def pipeline_page() -> str:
    """The page of pipeline files."""
    return _filled("pipeline-files", keys=_key_tables())


def _filled(name: str, **parts: Iterable[str]) -> str:
    """The template of a page filled with its parts (lines), below a note that says where the page comes from."""
    text = (PAGES / f"{name}.template.md").read_text(encoding="utf-8")
    for key, lines in parts.items():
        text = text.replace(f"{{{{{key}}}}}", "\n".join(lines))
    return f"<!-- Written by tools/spark_pages.py from {name}.template.md and the code; `make docs`. -->\n{text}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """A table whose first cells are names."""
    yield _row(*head)
    yield _row(*("---" for _ in head))
    yield from (_row(f"`{name}`", *cells) for name, *cells in rows)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _options(sections: Mapping[str, Iterable[Option[object]]]) -> Iterator[str]:
    for title, options in sections.items():
        yield from (f"### {title}", "")
        rows = (
            (option.name, option.values.described, _without(option), f"`{option.example}`", option.meaning)
            for option in options
        )
        yield from _table(("option", "value", "default", "example", "meaning"), rows)
        yield ""


def _without(option: Option[object]) -> str:
    return f"`{option.default}`" if option.default is not None else option.otherwise


def _source_columns() -> Iterator[str]:
    yield from _table(
        ("column", "type", "nullable", "meaning"),
        (
            (
                field.name,
                "struct, see below" if field.name in _SECTIONS else f"`{field.dataType.simpleString()}`",
                "yes" if field.nullable else "no",
                COLUMN_MEANINGS[field.name],
            )
            for field in stream_schema(COLUMNS, ())
        ),
    )


_SECTIONS = ("header", "properties")
"""Columns that have fields of their own."""


def _fields() -> Iterator[tuple[str, types.DataType]]:
    schema = stream_schema(_SECTIONS, ())
    for column in _SECTIONS:
        section = schema[column].dataType
        assert isinstance(section, types.StructType)
        yield from ((f"{column}.{field.name}", field.dataType) for field in section)


def _declared() -> Iterator[tuple[str, str]]:
    for kind in SparkType:
        declared = DeclaredProperty("p", kind, 10 if kind is SparkType.DECIMAL else 0)
        taken = []
        for amqp, value in _VALUES.items():
            message = Message(b"", application_properties={"p": AmqpValue(amqp, value)}).encode()
            found = columns_of(EncodedMessages.of([message]), ["application_properties"], [declared])
            if found["application_properties"].to_pylist() != [{"p": None}]:
                taken.append(amqp.value)
        yield "decimal(p,0)" if kind is SparkType.DECIMAL else kind.value, _names(taken)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _taken(name: str) -> list[str]:
    """The types that the check of the sink takes for a column."""
    columns = (name,) if name in MESSAGE_COLUMNS else ("body",)
    needed = () if name in MESSAGE_COLUMNS else (("body", types.BinaryType()),)
    return [shown for shown, kind in _TYPES.items() if _accepts(_struct((name, kind), *needed), columns)]


def _taken_by_field(column: str, field: str) -> list[str]:
    """The types that the check of the sink takes for a field of a section."""
    return [shown for shown, kind in _TYPES.items() if _accepts(_struct((column, _struct((field, kind)))), (column,))]


def _struct(*fields: tuple[str, types.DataType]) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in fields])


def _accepts(schema: types.StructType, columns: tuple[str, ...]) -> bool:
    try:
        check_column_types(schema, columns, None)
    except ConfigError:
        return False
    return True


_SINK_MEANINGS: Mapping[str, str] = {
    "offset": "Ignored, so that rows read from a stream may be written unchanged. The stream gives new offsets.",
    "timestamp": "Ignored, as `offset`.",
    "filter_value": "The filter value of the message, unless the stream declares its source or the option "
    "`filter_value` names another; null for none. Not part of the message.",
    "header": "The header section.",
    "properties": "The properties section.",
    "application_properties": "The application properties, see below.",
    "message_annotations": "The message annotations, as application properties.",
    "body": "One data section. A null body, or no such column, gives an AMQP value that is null.",
    "message": "A whole encoded message, written unchanged. If it is null, the message is made from the other columns.",
}


def _sink_columns() -> Iterator[tuple[str, str, str]]:
    for name in COLUMNS:
        taken = _taken(name)
        yield name, "any type" if len(taken) == len(_TYPES) else _names(taken), _SINK_MEANINGS[name]


def _amqp_types() -> Iterator[tuple[str, str]]:
    for shown, kind in _TYPES.items():
        schema = _struct(("application_properties", _struct(("p", kind))))
        if not _accepts(schema, ("application_properties",)):
            continue
        (section,) = inputs_of(pa.RecordBatch.from_pylist([], schema=arrow_schema(schema))).sections
        assert isinstance(section, StructInput)
        yield shown, section.fields[0].form.amqp.value


_STREAM_KEYS: Mapping[type[msgspec.Struct], tuple[str, Mapping[str, Iterable[Option[object]]]]] = {
    Source: ("For streams, which are sources of format `headgate` ([examples](spark-source.md)):", SOURCE_OPTIONS),
    Sink: ("For streams, which are sinks of format `headgate` ([examples](spark-sink.md)):", SINK_OPTIONS),
    SubscriptionEntry: ("For the stream that copies go to ([examples](spark-sink.md)):", SINK_OPTIONS),
}
"""Structures with keys that are options of a stream, and the text above these keys on the page."""


def _key_tables() -> Iterator[str]:
    head = ("key", "value", "default", "meaning")
    for title, table in tables(PipelineFile):
        texts = dict(LIMIT_MEANINGS) if table is TopicLimits else meanings(table)
        heading, sections = _STREAM_KEYS.get(table, ("", {}))
        options = {option.name: option for section in sections.values() for option in section}
        own, of_streams = [], []
        for field, kind in plain_keys(table):
            if field.name in texts or field.name not in options:
                own.append((field.name, kind, default(field), texts.get(field.name, "")))
            else:
                option = options[field.name]
                taken = kind if "list" in kind else option.values.described
                of_streams.append((field.name, taken, _without(option), option.meaning))
        yield from (f"## {title}", "", str(inspect.getdoc(table)), "", *_table(head, own), "")
        if of_streams:
            yield from (heading, "", *_table(head, of_streams), "")


WRITERS: dict[str, Callable[[], str]] = {
    "spark-source.md": source_page,
    "spark-sink.md": sink_page,
    "pipeline-files.md": pipeline_page,
}


def main() -> int:
    """Write the pages, or check them."""
    return write_pages(PAGES, WRITERS, only_check="--check" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
