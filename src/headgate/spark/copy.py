"""Copies of streams: the messages that a filter selects go to one or more streams, their bytes as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from headgate.errors import ConfigError
from headgate.evaluate import Filter
from headgate.log import find_stream
from headgate.message import FieldReference
from headgate.scan import ScanBatch
from headgate.spark.options import FILTER_OPTIONS, SinkOptions, SourceOptions, parse_filter
from headgate.spark.planning import ScanPartition, find_streams, refuse_streaming_options
from headgate.spark.running import only_run
from headgate.spark.target import Target, check_fields_of_bodies, open_target
from headgate.spark.transfer import Outlet, TransferResult, TransferSource, run_transfer
from headgate.spark.values import target_field
from headgate.tables import ANNOTATION, field_values

NAME = "headgate_copy"


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """One stream that is copied to: it gets the source's messages for which its own filter, if any, is true.

    `values` is None where neither option nor declaration names the field of filter values: then the source's
    declaration counts, else the annotation.
    """

    target: Target
    values: FieldReference | None
    filter: Filter | None


def copy_stream(
    spark: SparkSession,
    source: Mapping[str, str],
    target: Mapping[str, str] | Sequence[Mapping[str, str]],
    *,
    checkpoint: str | Path | None = None,
    retries: bool = True,
) -> TransferResult:
    """Copy the messages that `source` selects into one or more streams, exactly once.

    `source` has the options of a read; each `target` has options of a write, and its own `filter` + `dialect` or
    `property_filter`. With a `checkpoint` the copy goes on where an earlier one with the same checkpoint stopped, to
    the present end of the source; without one it is a batch. With `retries` a run whose Python worker did not connect
    in time is made once more. Blocks until all is committed. Raises ConfigError and FilterError before Spark runs,
    QueryRunningError if another process copies with this checkpoint; errors of tasks come as Spark's.
    """
    targets = [dict(target)] if isinstance(target, Mapping) else [dict(each) for each in target]
    reading = SourceOptions.parse(source)
    if checkpoint is None:
        refuse_streaming_options(reading)
    prepared = Copy(_prepare(targets, frozenset(stream.body_schema for stream in find_streams(reading).values())))
    with only_run(checkpoint):
        return run_transfer(
            spark, source, prepared, format_name=NAME, content=targets, checkpoint=checkpoint, retries=retries
        )


class HeadgateCopy(TransferSource):
    """The data source of `copy_stream`."""

    @classmethod
    def name(cls) -> str:
        """Registered beside the source itself; not for use by name."""
        return NAME

    def transfer(self, content: object) -> Copy:
        """The copy to the targets whose options `content` lists."""
        assert isinstance(content, list)
        # `copy_stream` made those that were missing.
        return Copy(_prepare(content, frozenset()))


def _prepare(targets: Sequence[Mapping[str, str]], schemas: frozenset[str | None]) -> tuple[CopyTarget, ...]:
    """The targets, created where missing; none is created if any of the options is wrong.

    `schemas` are those of the bodies in the streams that are copied. A new target has the same one.
    """
    checked = [_checked(options) for options in targets]
    if not checked:
        raise ConfigError("headgate copy: no target is given")
    if len({(options.root, options.stream) for options, _ in checked}) < len(checked):
        raise ConfigError("headgate copy: two targets are the same stream; give one, with a filter that joins theirs")
    if len({options.root for options, _ in checked}) > 1:
        raise ConfigError("headgate copy: all targets of one copy must lie under the same root")
    schema = next(iter(schemas), None)
    for options, _ in checked:
        is_new = find_stream(options.stream, options.root) is None
        if len(schemas) > 1 and is_new and options.body_schema is None:
            raise ConfigError(
                "headgate copy: the streams that are copied have bodies of different schemas, and a stream has one. "
                f"Copy them one by one, or make {options.stream!r} first"
            )
        if is_new:
            check_fields_of_bodies(options, options.body_schema or schema)
    prepared = []
    for options, kept in checked:
        target = open_target(options, body_schema=schema)
        prepared.append(
            CopyTarget(target, target_field(option=options.filter_value, declared=target.filter_source), kept)
        )
    if len({each.target.root for each in prepared}) > 1:
        raise ConfigError("headgate copy: all targets of one copy must lie under the same root")
    return tuple(prepared)


def _checked(options: Mapping[str, str]) -> tuple[SinkOptions, Filter | None]:
    own = {name: value for name, value in options.items() if name.lower() in FILTER_OPTIONS}
    checked = SinkOptions.parse({name: value for name, value in options.items() if name not in own})
    if checked.write_id is not None:
        raise ConfigError("headgate sink option write_id: a copy is known by its checkpoint; leave it out")
    target_field(option=checked.filter_value, declared=checked.filter_source)
    return checked, parse_filter(own, subject="headgate sink")


class Copy:
    """Each message goes to the targets whose filter is true of it."""

    def __init__(self, copies: tuple[CopyTarget, ...]) -> None:
        self._copies = copies

    @property
    def targets(self) -> Sequence[Target]:
        """The streams that are copied to."""
        return [copy.target for copy in self._copies]

    def begin(self, outlets: Sequence[Outlet], partition: ScanPartition) -> _Copying:
        """The work of one task."""
        return _Copying(list(zip(self._copies, outlets, strict=True)), partition.request.now_ms)


@dataclass(slots=True)
class _Copying:
    copies: list[tuple[CopyTarget, Outlet]]
    now_ms: int

    def add(self, batch: ScanBatch, declared: FieldReference | None, body_schema: str | None) -> None:
        for copy, outlet in self.copies:
            messages = batch.messages
            if copy.filter is not None:
                own = copy.filter.over(body_schema)
                messages = messages.take(np.flatnonzero(own.mask(messages, now_ms=self.now_ms)))
            if len(messages):
                outlet.add(messages, field_values(messages, copy.values or declared or ANNOTATION))

    def finish(self) -> Mapping[str, int]:
        return {}
