"""The examples of the pages on the Spark source and sink run as they stand there, but for their folders."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headgate.log import Stream, stream_folder
from headgate.message import Message
from headgate.spark.route import declare_topic
from headgate.topic import Rule, Subscription, Topic

from .conftest import write_stream

pytestmark = pytest.mark.spark

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def blocks(page: str, language: str, folder: Path) -> list[str]:
    """The examples of a page; relative folders lie under `folder`."""
    found = re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    return [
        re.sub(r"([\"'])(headgate-data|checkpoint|events)\1", rf"\g<1>{folder}/\g<2>\g<1>", block) for block in found
    ]


def test_the_examples_of_the_source_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = [
        {"region": region, "price": price} for region, price in (("EMEA", 120.5), ("EMEA", 9.0), ("APJ", 500.0))
    ]
    messages = [Message(b"{}", application_properties=each).encode() for each in properties]
    write_stream(tmp_path / "headgate-data", "customer-events", messages)
    topic = Topic("orders", (Subscription("red", (Rule("dear", "price > 100"),)),))
    declare_topic(tmp_path / "headgate-data", topic)
    write_stream(tmp_path / "headgate-data", "orders", messages)
    scope: dict[str, object] = {}
    for code in blocks("spark-source.md", "python", tmp_path):
        exec(compile(code, "spark-source.md", "exec"), scope)
    assert re.search(r"\|\s*EMEA\|\s*1\|", capsys.readouterr().out)
    assert spark.read.parquet(f"{tmp_path}/events").count() == 3
    assert isinstance(scope["red"], DataFrame) and scope["red"].isStreaming
    (statement,) = blocks("spark-source.md", "sql", tmp_path)
    spark.sql(statement)
    try:
        rows = spark.sql("SELECT * FROM customer_events")
        assert rows.columns == ["offset", "body"] and rows.count() == 3
    finally:
        spark.sql("DROP TABLE customer_events")


def test_the_examples_of_the_sink_run(spark: SparkSession, tmp_path: Path) -> None:
    scope: dict[str, object] = {}
    for code in blocks("spark-sink.md", "python", tmp_path):
        exec(compile(code, "spark-sink.md", "exec"), scope)
    orders, created = (
        Stream.open(stream_folder(tmp_path / "headgate-data", name)) for name in ("orders", "created-orders")
    )
    assert orders.settings is not None and orders.settings.filter_source == "application_properties.region"
    assert (orders.next_offset(), created.next_offset()) == (2, 1)
