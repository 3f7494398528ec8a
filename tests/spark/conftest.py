"""One Spark session for all tests of this folder, and streams made without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.log import Stream, StreamArguments, Writer, stream_folder
from headgate.message import Message

from .. import jars
from .sink_faults import Faults

NOW_MS = 1_750_000_000_000
"""When the chunks of `write_stream` were written."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as `headgate.spark.session` makes it, with Spark's own checks of what Python gives it switched on.

    It serves clients of Spark Connect on a free port of the loopback (`connect_address`).
    """
    from headgate.spark import session

    made = session(
        "tests",
        master="local[2]",
        config={
            "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
            "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            **({"spark.jars": str(jars.jar_of(jars.SQLITE))} if jars.fits(jars.SQLITE) else {}),
        },
    )
    yield made
    made.stop()


@pytest.fixture(scope="session")
def connect_address(spark: SparkSession) -> str:
    """Where clients of Spark Connect find the session of these tests."""
    service = getattr(spark.sparkContext._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return f"sc://127.0.0.1:{getattr(service, 'MODULE$').localPort()}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root folder for streams."""
    return tmp_path / "root"


def order(number: int) -> bytes:
    """Message `number` of a small shop: regions in turn, a price, the subject in runs of a hundred."""
    return Message(
        b'{"order": %d}' % number,
        subject="order.created" if number // 100 % 2 else "product.view",
        creation_time=NOW_MS + number,
        priority=number % 10,
        application_properties={"region": ("AMER", "EMEA", "APJ")[number % 3], "price": number / 4, "number": number},
        message_annotations={"x-stream-filter-value": "order.created" if number // 100 % 2 else "product.view"},
    ).encode()


def write_stream(
    root: Path,
    name: str,
    messages: Sequence[bytes],
    *,
    chunk_messages: int = 50,
    filter_values: Sequence[bytes | None] | None = None,
    arguments: StreamArguments | None = None,
    filter_source: str | None = None,
    now_ms: int = NOW_MS,
) -> Stream:
    """A stream with these messages behind those that it has; chunk by chunk, each a second after the one before."""
    folder = stream_folder(root, name)
    if folder.exists():
        stream = Stream.open(folder)
    else:
        stream = Stream.create(folder, name=name, now_ms=now_ms, arguments=arguments, filter_source=filter_source)
    values = filter_values or [None] * len(messages)
    with Writer.open(stream, now_ms=now_ms) as writer:
        for number, first in enumerate(range(0, len(messages), chunk_messages)):
            part = list(zip(messages, values, strict=True))[first : first + chunk_messages]
            writer.append(part, now_ms=now_ms + 1000 * number, filter_source=filter_source)
    return Stream.open(folder)


def subject_values(count: int) -> list[bytes | None]:
    """The filter value of each `order`."""
    return [b"order.created" if number // 100 % 2 else b"product.view" for number in range(count)]


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.long)], ids=["raises", "killed"])
def faults(request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(spark, monkeypatch, kills=request.param)
