"""The example for Spark's declarative pipelines runs: its flows write into a stream, exactly once."""

from __future__ import annotations

import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.log import Stream, stream_folder
from headgate.message import Message

from ..log_streams import read_messages
from .conftest import NOW_MS, write_stream

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        importlib.util.find_spec("grpc_status") is None or importlib.util.find_spec("yaml") is None,
        reason="declarative pipelines need packages that are not installed: pip install 'pyspark[pipelines]'",
    ),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative"


def event(number: int) -> bytes:
    """Every second one an order, of rising priority; premium customers and euros in turn."""
    return Message(
        b"{}",
        subject="order.created" if number % 2 else "product.view",
        creation_time=NOW_MS + number,
        priority=number % 10,
        application_properties={
            "number": number,
            "price": 20.0 * (number % 7),
            "premium_customer": number % 3 == 0,
            "currency": "EUR" if number % 4 == 1 else "USD",
        },
    ).encode()


def write_events(folder: Path, numbers: range) -> None:
    values = [b"order.created" if number % 2 else b"product.view" for number in numbers]
    messages = [event(number) for number in numbers]
    write_stream(folder / "root", "customer-events", messages, filter_values=values, filter_source="properties.subject")


def urgent(numbers: range) -> list[int]:
    return [n for n in numbers if n % 2 and n % 10 > 7]


def premium(numbers: range) -> list[int]:
    return [n for n in numbers if n % 2 and n % 10 <= 7 and n % 3 == 0 and 20.0 * (n % 7) >= 99.99 and n % 4 == 1]


def run(folder: Path) -> None:
    project = folder / "declarative"
    if not project.exists():
        shutil.copytree(EXAMPLE, project)
        specification = project / "spark-pipeline.yml"
        text = specification.read_text()
        for place, here in (
            ("file:///tmp/headgate-declarative", f"file://{folder}/storage"),
            ('"headgate-data"', f'"{folder}/root"'),
        ):
            assert text.count(place) == 1
            text = text.replace(place, here)
        specification.write_text(text)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--spec", str(project / "spark-pipeline.yml")],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def attention(folder: Path) -> list[int]:
    """The numbers of the events in the stream that both flows write to."""
    found = read_messages(Stream.open(stream_folder(folder / "root", "attention")))
    events = [Message.decode(body).application_properties for _, body in found]
    return [each["number"].value for each in events if each is not None]


class Definitions:
    """Takes down what the files of a project define; Spark's runner hands them to a server."""

    def __init__(self) -> None:
        self.sinks: dict[str, Any] = {}
        self.flows: list[Any] = []

    def register_output(self, output: Any) -> None:
        self.sinks[output.name] = output

    def register_flow(self, flow: Any) -> None:
        self.flows.append(flow)


def test_the_definitions_of_the_example_are_queries_that_keep_what_their_filters_say(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context

    write_events(tmp_path, range(300))
    definitions = Definitions()
    spark.conf.set("shop.premium_price", "99.99")
    spark.conf.set("shop.root", str(tmp_path / "root"))
    with graph_element_registration_context(definitions):  # type: ignore[arg-type]
        runpy.run_path(str(EXAMPLE / "definitions" / "shop.py"))
    for flow in definitions.flows:
        sink = definitions.sinks[flow.target]
        writing = flow.func().writeStream.format(sink.format).options(**sink.options)
        query = writing.option("checkpointLocation", str(tmp_path / flow.name)).trigger(availableNow=True).start()
        query.awaitTermination()
    found, numbers = attention(tmp_path), range(300)
    assert premium(numbers)
    assert found == [*urgent(numbers), *premium(numbers)]


@pytest.mark.long
def test_the_flows_of_the_example_write_what_their_filters_keep(tmp_path: Path) -> None:
    write_events(tmp_path, range(300))
    run(tmp_path)
    found, numbers = attention(tmp_path), range(300)
    assert [n for n in found if n % 10 > 7] == urgent(numbers)
    assert [n for n in found if n % 10 <= 7] == premium(numbers)


@pytest.mark.long
def test_the_flows_of_the_example_continue_where_they_stopped(tmp_path: Path) -> None:
    for numbers in (range(300), range(300, 500)):
        write_events(tmp_path, numbers)
        run(tmp_path)
    run(tmp_path)
    found, numbers = attention(tmp_path), range(500)
    assert [n for n in found if n % 10 > 7] == urgent(numbers)
    assert [n for n in found if n % 10 <= 7] == premium(numbers)
