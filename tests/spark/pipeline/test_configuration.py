"""A wrong pipeline file is refused before Spark starts, and the error names the entry and the key."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.spark.pipeline.configuration import check, load

EXAMPLE = Path(__file__).parents[3] / "examples" / "orders" / "pipeline.toml"

GOOD: dict[str, Any] = {
    "name": "p",
    "source": [
        {"name": "files", "format": "parquet", "path": "in"},
        {"name": "orders", "stream": "events", "filter": "region = 'AMER'", "filter_values": ["order.created"]},
    ],
    "step": [{"name": "lines", "inputs": ["orders"], "sql": "SELECT * FROM orders"}],
    "sink": [
        {"name": "out", "input": "lines", "format": "parquet", "path": "out"},
        {"name": "ingest", "input": "files", "stream": "events", "filter_source": "properties.subject"},
    ],
}


def _changed(path: str, value: object) -> dict[str, Any]:
    content = copy.deepcopy(GOOD)
    place: Any = content
    *parents, last = path.split(".")
    for part in parents:
        place = place[int(part)] if part.isdigit() else place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return content


def test_the_example_of_the_main_job_is_accepted() -> None:
    pipeline = load(EXAMPLE)
    assert pipeline.sinks[0].name == "ingest"


def test_a_sink_that_writes_a_stream_runs_before_the_sinks_that_read_it() -> None:
    assert [sink.name for sink in check(GOOD).sinks] == ["ingest", "out"]


def test_options_of_a_stream_are_keys_or_options_and_reach_spark_as_text() -> None:
    pipeline = check(_changed("source.1.options", {"fail_on_data_loss": False, "max_messages_per_batch": 1000}))
    options = pipeline.source_options(pipeline.sources["orders"])
    assert options["fail_on_data_loss"] == "false"
    assert options["max_messages_per_batch"] == "1000"
    assert options["filter_values"] == '["order.created"]'
    assert options["filter"] == "region = 'AMER'"
    compressed = check(_changed("sink.1.compression", "zstd"))
    assert compressed.sink_options(compressed.sinks[0])["compression"] == "zstd"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("name", "a b", "name 'a b'"),
        ("name", None, "name"),
        ("root", "da\0ta", r"root 'da\\x00ta': found a NUL"),
        ("state", "\0", "state .* found a NUL"),
        ("colour", "red", "colour"),
        ("sink", [], r"no \[\[sink\]\]"),
        ("sink.0.colour", "red", "sink 'out': .*colour"),
        ("sink.0.name", 5, r"str.*sink\[0\]"),
        ("sink.0.mode", "update", "mode"),
        ("sink.0.input", "nothing", "sink 'out': input 'nothing'"),
        ("sink.0.stream", "s", "sink 'out': key stream is for Headgate streams"),
        ("sink.0.name", "ingest", "sink name 'ingest' is given twice"),
        ("sink.1.mode", "complete", "sink 'ingest': mode: a stream is append only"),
        ("sink.1.filter_source", "subject", "sink 'ingest'.*filter_source"),
        ("sink.1.max_age", "5 days", "sink 'ingest'.*max_age"),
        ("sink.1.compression", "brotli", "sink 'ingest'.*compression: found 'brotli', expected none or gzip"),
        ("sink.0.compression", "zstd", "sink 'out': key compression is for Headgate streams"),
        ("sink.1.path", "out", "sink 'ingest': a Headgate stream is named by the key stream"),
        ("sink.1.options", {"filter_source": "properties.to"}, "filter_source is given twice"),
        ("sink.1.options", {"colour": "red"}, "sink 'ingest'.*colour"),
        ("source.1.filter", "region = ", r"source 'orders'.*\n.*region = ?\n +\^"),
        ("source.1.dialect", "sql92", "source 'orders'.*dialect.*sql92"),
        ("source.1.start", "tomorrow", "source 'orders'.*start.*tomorrow"),
        ("source.1.match_unfiltered", "yes", "match_unfiltered"),
        ("source.1.columns", ["colour"], "source 'orders'.*columns.*colour"),
        ("source.0.filter", "a = 1", "source 'files': key filter is for Headgate streams"),
        ("source.0.name", "orders", "source name 'orders' is given twice"),
        ("source.0.name", "two words", "source name 'two words'"),
        ("step.0.inputs", ["later"], "step 'lines': input 'later'"),
        ("step.0.inputs", [], "step 'lines': inputs is empty"),
        ("step.0.watermark", {"column": "t"}, "delay"),
    ],
)
def test_what_is_wrong_is_named(path: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        check(_changed(path, value))


def test_what_is_wrong_in_a_rule_is_said_with_topic_subscription_and_rule() -> None:
    rules = [{"name": "plain"}, {"name": "red-orders", "colour": "red"}]
    topic = {"name": "orders", "subscription": [{"name": "all"}, {"name": "red", "rule": rules}]}
    with pytest.raises(ConfigError, match=r"^topic 'orders', subscription 'red', rule 'red-orders': .*`colour`"):
        check({"name": "p", "topic": [topic]})


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("sinks", [], r"^key `sinks` is unknown at `\$`; there are name, root, .*topic; did you mean 'sink'\?$"),
        ("colour", "red", r"^key `colour` is unknown at `\$`; there are name, root, .*topic$"),
        (
            "sink.0.inptu",
            "x",
            "^sink 'out': key `inptu` is unknown at .* there are name, input, .*; did you mean 'input'",
        ),
        (
            "step.0.watermark",
            {"colum": "t", "delay": "1s"},
            "^step 'lines': .*`colum`.* there are column, delay; did you",
        ),
        ("topic", [{"name": "t", "limits": {"sql_filter": 1}}], "^topic 't': .* did you mean 'sql_filters'"),
    ],
)
def test_a_key_that_is_unknown_brings_up_those_that_are_known(path: str, value: object, expected: str) -> None:
    content = _changed(path, value)
    with pytest.raises(ConfigError, match=expected):
        check(content)


def test_sinks_that_feed_each_other_in_a_circle_are_refused() -> None:
    content = copy.deepcopy(GOOD)
    content["source"].append({"name": "second", "stream": "events2"})
    content["sink"] = [
        {"name": "back", "input": "orders", "stream": "events2"},
        {"name": "forth", "input": "second", "stream": "events"},
    ]
    with pytest.raises(ConfigError, match="read each other's output in a circle"):
        check(content)


def test_a_sink_that_writes_what_it_reads_is_refused() -> None:
    content = _changed("sink", [{"name": "self", "input": "orders", "stream": "events"}])
    with pytest.raises(ConfigError, match="sink 'self' writes the stream that it reads"):
        check(content)


@pytest.mark.parametrize(
    ("text", "message"), [("name = ", "not a TOML file"), (None, "there is no such pipeline file")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "pipeline.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load(file)
    assert str(file) in str(caught.value)
