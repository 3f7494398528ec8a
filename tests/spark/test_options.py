"""Every option that is wrong is refused by name, before any work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from body_schemas import descriptor_set
from headgate.errors import ConfigError, FilterError, FilterSyntaxError
from headgate.log import OffsetSpecification
from headgate.message.arrow import SparkType
from headgate.spark.option_declarations import DEFAULT_COLUMNS, SINK_OPTIONS, SOURCE_OPTIONS, time_ms
from headgate.spark.option_reader import Option
from headgate.spark.options import SinkOptions, SourceOptions


def source(**options: str) -> SourceOptions:
    return SourceOptions.parse({"stream": "orders", **options})


def sink(**options: str) -> SinkOptions:
    return SinkOptions.parse({"stream": "orders", **options})


def test_a_stream_is_all_that_a_source_needs() -> None:
    options = source()
    assert options.streams == ("orders",)
    assert options.columns == DEFAULT_COLUMNS
    assert "message" not in options.columns
    assert options.verify_crc and options.fail_on_data_loss and not options.skip_corrupt


def test_names_of_options_ignore_case_and_all_of_them_are_taken() -> None:
    options = SourceOptions.parse(
        {
            "STREAM": '["a,b", "c"]',
            "Root": "/data",
            "filter": "region = 'AMER'",
            "Dialect": "rabbitmq",
            "filter_values": "x, y",
            "match_unfiltered": "TRUE",
            "start": "10m",
            "end": "next",
            "columns": "offset,body , application_properties",
            "properties": "region string, `unit price` double, n long",
            "max_messages_per_batch": "5",
            "max_bytes_per_batch": "6",
            "fail_on_data_loss": "false",
            "on_corrupt": "skip",
            "verify_crc": "false",
            "partitions": "3",
            "as_of": "2025-06-15T12:00:00Z",
            "counters": "token-1",
        }
    )
    assert options.streams == ("a,b", "c")
    assert options.root == Path("/data")
    assert options.filter is not None and options.filter.text == "region = 'AMER'"
    assert options.filter_values == (b"x", b"y") and options.match_unfiltered
    assert options.start == OffsetSpecification.parse("10m")
    assert options.columns == ("offset", "body", "application_properties")
    assert [(each.name, each.kind) for each in options.properties] == [
        ("region", SparkType.STRING),
        ("unit price", SparkType.DOUBLE),
        ("n", SparkType.BIGINT),
    ]
    assert options.as_of_ms == 1_749_988_800_000
    assert (options.max_messages_per_batch, options.max_bytes_per_batch, options.partitions) == (5, 6, 3)
    assert options.skip_corrupt and not options.verify_crc and not options.fail_on_data_loss


def test_fields_are_columns_as_one_text_or_as_a_list() -> None:
    as_text = source(columns="offset, region string, p.subject as kind, `a, b` decimal(5,0)")
    assert [each.name for each in as_text.fields] == ["region", "kind", "a, b"]
    assert source(columns='["offset", "region string", "p.subject as kind", "`a, b` decimal(5,0)"]') == as_text


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"filtre": "x"}, r"filtre is unknown; did you mean filter\?"),
        ({"zzz": "x"}, "zzz is unknown; there are as_of, column_files, columns"),
        ({"match_unfiltered": "yes"}, "match_unfiltered.*'yes'.*true or false"),
        ({"match_unfiltered": "true"}, "match_unfiltered and filter_values"),
        ({"start": "middle"}, "start: 'middle'"),
        ({"end": "-1"}, "end: '-1'"),
        ({"columns": "offset,key"}, "columns: found 'key'"),
        ({"columns": "offset,offset"}, "columns.*two columns 'offset'"),
        ({"columns": "offset,,body"}, "columns.*cannot read ',body'"),
        ({"columns": "offset, region string", "on_mismatch": "cast"}, "on_mismatch and columns"),
        ({"columns": "Offset string"}, "columns: found 'Offset', expected another name"),
        ({"properties": "region text"}, "properties.*region.*text"),
        ({"properties": "region string", "columns": "offset"}, "properties and columns"),
        ({"max_messages_per_batch": "0"}, "max_messages_per_batch: found '0'"),
        ({"max_bytes_per_batch": "1.5"}, "max_bytes_per_batch: found '1.5'"),
        ({"fail_on_data_loss": ""}, "fail_on_data_loss: found ''"),
        ({"on_corrupt": "ignore"}, "on_corrupt: found 'ignore', expected fail or skip"),
        ({"partitions": "many"}, "partitions: found 'many'"),
        ({"as_of": "yesterday"}, "as_of: found 'yesterday'"),
        ({"counters": "../up"}, "counters: found '../up'"),
        ({"dialect": "rabbitmq"}, "dialect and filter"),
        ({"filter": "TRUE", "dialect": "sql92"}, "dialect: found dialect 'sql92', expected one of"),
        ({"filter": "TRUE", "property_filter": "{}"}, "filter and property_filter"),
        ({"property_filter": "subject"}, "property_filter: found 'subject', expected a JSON object"),
        ({"property_filter": '{"body": {}}'}, "property_filter: found 'body'"),
        ({"property_filter": '{"properties": {"colour": "x"}}'}, "property_filter: .*colour"),
        ({"filter_values": "[1]"}, "filter_values: found .*JSON list of strings"),
        ({"filter_values": "[]"}, "filter_values: .*at least one"),
        ({"path": "elsewhere"}, "stream and path"),
    ],
)
def test_a_wrong_source_option_is_named(options: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        source(**options)


def test_a_source_without_a_stream_is_refused_and_a_path_is_one() -> None:
    with pytest.raises(ConfigError, match="stream is missing"):
        SourceOptions.parse({})
    assert SourceOptions.parse({"path": "folder/of/stream"}).streams == ("folder/of/stream",)


def test_a_filter_that_is_refused_shows_its_place() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        source(filter="region = ")
    assert "^" in str(caught.value)
    with pytest.raises(FilterError):
        source(property_filter='{"properties": {"subject": "&x"}}')


def test_a_property_filter_is_one_filter_of_both_maps() -> None:
    text = '{"properties": {"subject": "&p:order."}, "application_properties": {"region": "AMER"}}'
    parsed = source(property_filter=text).filter
    assert parsed is not None
    assert len(parsed.fields) == 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"filter": "TRUE"}, "filter is unknown"),
        ({"filter_size_bytes": "15"}, "filter_size_bytes: found '15', expected a whole number from 16 to 255"),
        ({"max_age": "7 days"}, "max_age: '7 days'"),
        ({"max_age": "first"}, "max_age: found 'first', expected a number and a unit"),
        ({"stream": "a,b"}, "stream: found 'a, b', expected one stream"),
        ({"stream": "orders-*"}, r"stream: found 'orders-\*', expected one stream"),
        ({"filter_source": "region"}, "filter_source: 'region'"),
        ({"filter_source": "properties.colour"}, "filter_source: .*colour"),
        (
            {"filter_source": "properties.subject", "filter_value": "application_properties.region"},
            "filter_value and filter_source",
        ),
        ({"durability": "none"}, "durability: found 'none', expected process or disk"),
        (
            {"compression": "brotli"},
            "compression: found 'brotli', expected none or gzip or snappy or lz4 or zstd",
        ),
        (
            {"server": "here", "compression": "gzip", "filter_value": "application_properties.region"},
            "compression and filter_value: the stream protocol has no room",
        ),
        ({"write_id": "a/b"}, "write_id: found 'a/b'"),
        ({"batch_id": "4"}, "batch_id and write_id"),
    ],
)
def test_a_wrong_sink_option_is_named(options: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        sink(**options)


def test_sink_options_that_spark_adds_are_no_concern() -> None:
    options = sink(checkpointLocation="/tmp/somewhere", max_age="7D", filter_source="properties.subject")
    assert options.max_age_ms == 7 * 86_400_000
    assert options.filter_source == "properties.subject"


def test_times_are_milliseconds_or_iso_texts_in_utc() -> None:
    assert time_ms("1750000000000") == 1_750_000_000_000
    assert time_ms("2025-06-15T15:06:40") == time_ms("2025-06-15T17:06:40+02:00") == 1_750_000_000_000


def test_the_root_comes_from_the_environment_when_it_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_ROOT", "/srv/streams")
    assert source().root == Path("/srv/streams")
    monkeypatch.delenv("HEADGATE_ROOT")
    assert source().root == Path.cwd() / "headgate-data"


@pytest.mark.parametrize(("start", "end"), [("8", "5"), ("10m", "1h"), ("2026-01-02", "2026-01-01"), ("next", "first")])
def test_a_start_behind_the_end_of_the_read_is_refused(start: str, end: str) -> None:
    with pytest.raises(ConfigError, match=r"options start and end: found .* which lies behind the end"):
        source(start=start, end=end)
    assert source(start=end, end=start).end is not None


NEEDED = {
    "dialect": {"filter": "region = 'EMEA'"},
    "match_unfiltered": {"filter_values": "EMEA"},
    "user": {"server": "broker"},
    "password": {"server": "broker"},
    "staging": {"server": "broker"},
    "batch_id": {"write_id": "nightly"},
    "topic": {"subscription": "red"},
    "subscription": {"topic": "orders"},
}
"""What an option cannot stand without."""


def declared(sections: Mapping[str, tuple[Option[object], ...]]) -> list[Option[object]]:
    return [option for section in sections.values() for option in section]


@pytest.mark.parametrize(
    ("options", "option"),
    [
        *((SourceOptions, option) for option in declared(SOURCE_OPTIONS)),
        *((SinkOptions, option) for option in declared(SINK_OPTIONS)),
    ],
    ids=lambda value: value.name if isinstance(value, Option) else value.__name__,
)
def test_the_example_of_each_option_is_taken_and_its_default_is_what_holds_without_it(
    options: type[SourceOptions | SinkOptions],
    option: Option[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if option.name == "body_schema":
        (tmp_path / "orders.desc").write_bytes(descriptor_set())
        monkeypatch.chdir(tmp_path)
    place = {} if option.name in ("stream", "path", "topic", "subscription") else {"stream": "events"}
    without = {**place, **NEEDED.get(option.name, {})}
    taken = options.parse({**without, option.name: option.example})
    if place:
        assert taken != options.parse(without)
    if option.default is not None:
        assert options.parse({**without, option.name: option.default}) == options.parse(without)
