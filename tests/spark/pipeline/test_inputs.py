"""A pipeline that names a stream, a file or a column that is not there is refused before Spark starts, and no other."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.cli import main
from headgate.errors import ConfigError
from headgate.spark.pipeline.configuration import check
from headgate.spark.pipeline.inputs import check_inputs, paths_are_local

from ..conftest import order, write_stream


@pytest.fixture
def there(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: stream `orders` of 30 messages, files `in/part.parquet` and `days/day=1/part.parquet`."""
    monkeypatch.chdir(tmp_path)
    write_stream(root, "orders", [order(number) for number in range(30)])
    for folder in ("in", "days/day=1"):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"region": ["EMEA"], "unit price": [1.5]}), tmp_path / folder / "part.parquet")
    return tmp_path


def checked(root: Path, source: dict[str, Any], *others: dict[str, Any], **sink: Any) -> None:
    """Check a pipeline of one source, which a sink reads, and of further sinks that read a file."""
    files = {"name": "files", "format": "parquet", "path": "in"}
    sinks = [
        {"name": "out", "input": "read", "format": "parquet", **({} if "stream" in sink else {"path": "out"}), **sink}
    ]
    content = {
        "name": "p",
        "root": str(root),
        "source": [{"name": "read", **source}, files],
        "sink": [*sinks, *({"name": f"more{number}", "input": "files", **each} for number, each in enumerate(others))],
    }
    check_inputs(check(content), is_new_session=True, local_paths=True)


ORDERS = {"stream": "orders"}
FILES = {"format": "parquet", "path": "in"}


@pytest.mark.parametrize(
    ("source", "sink", "message"),
    [
        ({"stream": "ordesr"}, {}, "source 'read': key stream: found 'ordesr', expected a stream under .* 'orders'"),
        ({"stream": ["orders", "zebra"]}, {}, "source 'read': key stream: found 'zebra'"),
        ({"stream": "zebra*"}, {}, "source 'read': key stream: found 'zebra\\*'"),
        ({"stream": "./in"}, {}, "source 'read': key stream: found './in'"),
        ({**ORDERS, "start": 31}, {}, "source 'read': key start: stream 'orders': found 31, .* offsets 0 to 29"),
        ({**ORDERS, "start": "2999-01-01"}, {}, "source 'read': key start: .* 2999-01-01"),
        ({**FILES, "path": "inn"}, {}, "source 'read': key path: found 'inn', .* no .*/inn; did you mean 'in'"),
        ({**FILES, "path": "in/prat.parquet"}, {}, "key path: .*/in/prat.parquet; did you mean 'part.parquet'"),
        ({**FILES, "path": "inn/*.parquet"}, {}, "key path: found 'inn/\\*.parquet', .* no .*/inn; did you mean 'in'"),
        ({**FILES, "path": "file:///nonexistent/x"}, {}, "key path: found 'file:///nonexistent/x', .* no /nonexistent"),
        ({"format": "CSV", "path": "in.csv"}, {}, "source 'read': key path: found 'in.csv'"),
        (
            {**ORDERS, "watermark": {"column": "tiemstamp", "delay": "1s"}},
            {},
            "'read': key watermark.column: .* 'timestamp'",
        ),
        (
            {**ORDERS, "columns": ["offset", "body"], "watermark": {"column": "timestamp", "delay": "1s"}},
            {},
            "'read': key watermark.column: found 'timestamp', .*it has body, offset",
        ),
        (FILES, {"format": "delta", "partition_by": ["regoin"]}, "sink 'out': key partition_by: .* mean 'region'"),
        (
            FILES,
            {"format": "headgate", "stream": "s", "filter_value": "regoin"},
            "'out': key filter_value: .* 'region'",
        ),
        (
            FILES,
            {"format": "jdbc", "path": None, "options": {"url": "jdbc:x", "dbtable": "t"}, "key": ["id"]},
            "sink 'out': key key: found 'id', expected a column of source 'read' .*it has region, unit price",
        ),
    ],
)
def test_what_is_not_there_is_named_with_key_and_similar_names(
    there: Path, root: Path, source: dict[str, Any], sink: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        checked(root, source, **sink)


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        (ORDERS, {}),
        ({"stream": ["orders", "zebra*"]}, {}),
        ({"stream": "ord*"}, {}),
        ({"stream": "root/streams/orders"}, {}),
        ({**ORDERS, "start": 30}, {}),
        ({**ORDERS, "start": "next"}, {}),
        ({**ORDERS, "start": "1s"}, {}),
        ({**ORDERS, "watermark": {"column": "TIMESTAMP", "delay": "1s"}}, {}),
        ({**ORDERS, "watermark": {"column": "properties.creation_time", "delay": "1s"}}, {}),
        (FILES, {}),
        ({**FILES, "path": "in/part.parquet"}, {}),
        ({**FILES, "path": "in/*.nothing"}, {}),
        ({**FILES, "path": "{in,nonexistent}/*"}, {}),
        ({**FILES, "path": "s3a://bucket/in"}, {}),
        ({**FILES, "path": "hdfs:/in"}, {}),
        ({**FILES, "path": "nonexistent", "options": {"ignoreMissingFiles": True}}, {}),
        ({"format": "iceberg", "path": "catalog.database.table"}, {}),
        ({"format": "delta", "path": "table@v1"}, {}),
        ({"format": "rate"}, {}),
        ({**FILES, "watermark": {"column": "_metadata.file_modification_time", "delay": "1s"}}, {}),
        ({**FILES, "path": "days"}, {"format": "delta", "partition_by": ["day", "Region"]}),
        (FILES, {"format": "headgate", "stream": "s", "filter_value": "application_properties.region"}),
        ({"format": "json", "path": "in"}, {"format": "delta", "partition_by": ["anything"]}),
    ],
)
def test_what_may_be_there_for_spark_is_left_to_spark(
    there: Path, root: Path, source: dict[str, Any], sink: dict[str, Any]
) -> None:
    checked(root, source, **sink)


def with_step(root: Path, sql: str, source: dict[str, Any], *, is_new_session: bool = True) -> None:
    """Check a pipeline of a source `read`, a step over it, and a sink."""
    content = {
        "name": "p",
        "root": str(root),
        "source": [{"name": "read", **source}],
        "step": [{"name": "rows", "inputs": ["read"], "sql": sql}],
        "sink": [{"name": "out", "input": "rows", "format": "noop"}],
    }
    check_inputs(check(content), is_new_session=is_new_session, local_paths=True)


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT regoin FROM read", "regoin"),
        ("select REGION, upper(regoin) AS up\nfrom read where region = 'EMEA'", "regoin"),
        ("SELECT * FROM read AS r WHERE prize > 1 AND region IS NOT NULL", "prize"),
        ("SELECT named_struct('region', region, 'price', prize) AS application_properties FROM read", "prize"),
        ("SELECT region, count(*) AS n FROM read GROUP BY regoin HAVING n > 2 ORDER BY n DESC LIMIT 3", "regoin"),
        ("SELECT CASE WHEN colour = 'red' THEN 1 ELSE 0 END FROM read -- the end", "colour"),
        ("SELECT region, prize.amount + 1 FROM read", "prize.amount"),
        ("SELECT cast(prize AS int) price FROM read;", "prize"),
    ],
)
def test_a_column_that_the_sql_of_a_step_names_is_checked(there: Path, root: Path, sql: str, found: str) -> None:
    with pytest.raises(ConfigError, match=f"step 'rows': key sql: found '{found}', expected a column of source 'read'"):
        with_step(root, sql, FILES)
    with_step(root, sql, FILES, is_new_session=False)
    with_step(root, sql, {"format": "json", "path": "in"})


def test_the_columns_of_a_stream_are_those_that_the_source_asks_for(there: Path, root: Path) -> None:
    source = {**ORDERS, "columns": ["offset", "application_properties"], "properties": "region string"}
    with_step(root, "SELECT application_properties.region FROM read WHERE offset > 3", source)
    with pytest.raises(ConfigError, match=r"found 'region', .*\(it has application_properties, offset\)"):
        with_step(root, "SELECT region FROM read", source)


def test_a_step_that_no_sink_reads_and_a_table_that_is_no_input_are_not_checked(there: Path, root: Path) -> None:
    content: dict[str, Any] = {
        "name": "p",
        "root": str(root),
        "source": [{"name": "read", **FILES}, {"name": "other", **FILES}],
        "step": [
            {"name": "rows", "inputs": ["read"], "sql": "SELECT regoin FROM read"},
            {"name": "table", "inputs": ["other"], "sql": "SELECT regoin FROM read"},
        ],
        "sink": [{"name": f"out{name}", "input": name, "format": "noop"} for name in ("read", "table")],
    }
    check_inputs(check(content), is_new_session=True, local_paths=True)


def test_what_the_pipeline_writes_counts_as_there(there: Path, root: Path) -> None:
    made = {"stream": "made/eu"}
    for stream in ("made/eu", "made*", ["made/eu"], f"{root}/streams/made%2Feu"):
        checked(root, {"stream": stream, "start": 100}, made)
    for path in ("later", "later/day=1", "later/*/x", f"file:{there}/later"):
        checked(root, {**FILES, "path": path}, {"format": "parquet", "path": "later"})
    with pytest.raises(ConfigError, match=r"found 'mad/eu', .* did you mean 'made/eu'"):
        checked(root, {"stream": "mad/eu"}, made)


def test_streams_of_topics_count_as_there(there: Path, root: Path) -> None:
    red = {"name": "red", "rule": [{"name": "r", "sql": "color = 'red'"}], "dead_letter": "broken"}
    topics = [
        {"name": "shop", "subscription": [red, {"name": "on", "forward_to": "billing"}]},
        {"name": "billing", "subscription": [{"name": "all", "stream": "bills"}]},
    ]
    for stream in ("shop", "shop.red", "broken", "billing", "bills"):
        content = {
            "name": "p",
            "root": str(root),
            "source": [{"name": "read", "stream": stream}],
            "sink": [{"name": "out", "input": "read", "format": "noop"}],
            "topic": topics,
        }
        check_inputs(check(content), is_new_session=True, local_paths=True)


def with_topic(root: Path, name: str, **more: Any) -> None:
    topic = {"name": name, "subscription": [{"name": "all"}, {"name": "bills", "stream": "billing"}]}
    check_inputs(
        check({"name": "p", "root": str(root), "topic": [topic], **more}), is_new_session=True, local_paths=True
    )


def test_a_topic_that_would_be_made_beside_a_similar_name_is_refused(there: Path, root: Path) -> None:
    with pytest.raises(ConfigError, match=r"topic 'ordesr': key name: .*`headgate topic create ordesr`.* 'orders'\?"):
        with_topic(root, "ordesr")
    assert main(["topic", "create", "ordesr", "--root", str(root)]) == 0
    for name in ("orders", "ordesr", "zebra"):
        with_topic(root, name)


def test_a_topic_may_have_a_name_like_that_of_its_own_streams(there: Path, root: Path) -> None:
    write_stream(root, "billing", [order(0)])
    with_topic(root, "billings")
    made = {
        "source": [{"name": "files", **FILES}],
        "sink": [{"name": "made", "input": "files", "stream": "shops"}],
    }
    with_topic(root, "shops", **made)
    with pytest.raises(ConfigError, match="did you mean 'shops'"):
        with_topic(root, "shosp", **made)


def test_a_format_that_spark_has_not_is_refused(there: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(variable, raising=False)

    def written(name: str, *, is_new_session: bool = True, **more: Any) -> None:
        sink = {"name": "out", "input": "read", "format": name, "path": "out"}
        content = {"name": "p", "root": str(root), "source": [{"name": "read", **FILES}], "sink": [sink], **more}
        check_inputs(check(content), is_new_session=is_new_session, local_paths=True)

    for name in ("parqet", "mongo"):
        with pytest.raises(ConfigError, match=f"sink 'out': key format: found '{name}', expected one of avro, "):
            written(name)
        written(name, is_new_session=False)
        written(name, spark={"spark.jars.packages": "org.mongodb:x:1"})
    with pytest.raises(ConfigError, match="did you mean 'parquet'"):
        written("parqet", spark={"spark.executor.memory": "1g"})
    for name in ("Parquet", "xml", "kafka", "org.example.Sink"):
        written(name)
    (there / "pyspark_mongo.py").touch()
    monkeypatch.syspath_prepend(there)
    written("mongo")


def test_a_source_that_no_sink_reads_and_the_start_of_a_sink_that_goes_on_are_not_checked(
    there: Path, root: Path
) -> None:
    checked(root, {"stream": "zebra"}, input="files")
    (root / ".headgate/pipelines/p/checkpoints/out").mkdir(parents=True)
    checked(root, {**ORDERS, "start": 31})
    with pytest.raises(ConfigError, match="key start"):
        checked(root, {**ORDERS, "start": 31}, mode="complete")


@pytest.mark.parametrize("name", ["HADOOP_CONF_DIR", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"])
def test_paths_are_left_to_spark_where_its_file_system_may_be_another(
    there: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    content: dict[str, Any] = {
        "name": "p",
        "source": [{"name": "read", **FILES, "path": "inn"}],
        "sink": [{"name": "out", "input": "read", "format": "noop"}],
    }
    for variable in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(variable, raising=False)
    assert paths_are_local(check(content))
    assert not paths_are_local(check({**content, "spark": {"spark.hadoop.fs.defaultFS": "hdfs://x"}}))
    check_inputs(check(content), is_new_session=True, local_paths=False)
    monkeypatch.setenv(name, "x")
    assert not paths_are_local(check(content))


def test_the_command_line_names_the_file_and_starts_no_spark(
    there: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark starts")

    monkeypatch.setattr(sys.modules["headgate.spark.pipeline.run"], "session", start)
    Path("p.toml").write_text(
        'name = "p"\nroot = "root"\n[[source]]\nname = "read"\nstream = "ordesr"\n'
        '[[sink]]\nname = "out"\ninput = "read"\nformat = "parquet"\npath = "out"\n'
    )
    assert main(["run", "p.toml"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("headgate: p.toml: source 'read': key stream: found 'ordesr'")
    assert shown.endswith("did you mean 'orders'?\n")
    assert shown.count("\n") == 1
