"""The inputs of a pipeline, checked before Spark starts: missing streams, files and columns are refused.

Only inputs that are certain to fail are refused. The pipeline's own outputs count as existing; patterns, other schemes
than `file`, catalogue tables, formats that are not Spark's own and results of Spark SQL are left to Spark. In the SQL
of a step only columns that it names for certain are checked (`statements`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from pathlib import Path

from headgate.errors import ConfigError, HeadgateError, StreamNotFoundError, did_you_mean
from headgate.log import shown_root, stream_folder, stream_names
from headgate.spark.options import SinkOptions, SourceOptions
from headgate.spark.pipeline.configuration import Mode, Pipeline, Sink, Source, Step, naming
from headgate.spark.pipeline.sinks import HEADGATE, check_format
from headgate.spark.pipeline.statements import columns_of_statement
from headgate.spark.pipeline.topics import RoutedTopic
from headgate.spark.planning import check_start, find_streams, now_ms
from headgate.spark.route import stream_exists

_PARQUET = "parquet"
_FILE_FORMATS = frozenset({_PARQUET, "orc", "json", "csv", "text", "xml", "binaryfile", "avro"})
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_STREAM_PATTERN = frozenset("*?[")
_PATH_PATTERN = frozenset("*?[]{}\\")
_MAX_SCHEMAS = 100
_NAMES_SHOWN = 20

_OTHER_FILE_SYSTEM = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS")
"""Variables by which Spark may find another default file system than this machine's."""


def check_inputs(pipeline: Pipeline, *, is_new_session: bool, local_paths: bool) -> None:
    """Refuse a pipeline that reads a missing stream, file or column, or writes an unknown format.

    ConfigError names the entry, its key, the found and the expected value, and similar names. `is_new_session` says
    that the session is made for the run: SQL sees no variables, and no format was registered; otherwise steps and
    formats are not checked. `local_paths` says that a path without a scheme is on this machine (`paths_are_local`);
    otherwise files are not checked. Reads `stream.json` of streams and footers of Parquet files.
    """
    made = _Made.by(pipeline)
    known: dict[str, _Columns] = {}
    for sink in pipeline.sinks:
        for source in pipeline.sources_of(sink.input):
            if source.name not in known:
                known[source.name] = _check_source(pipeline, source, made, local_paths=local_paths)
            if source.format == HEADGATE and not _goes_on(pipeline, sink):
                _check_start(pipeline, source, made)
        if sink.input in pipeline.sources:
            _check_columns(sink, known[sink.input])
        for step in pipeline.steps_of(sink.input) if is_new_session else ():
            _check_statement(step, known)
        if is_new_session:
            with naming(f"sink {sink.name!r}"):
                check_format(sink.format, pipeline.spark)
    for topic in pipeline.topics:
        _check_topic(pipeline, topic)


def paths_are_local(pipeline: Pipeline) -> bool:
    """Whether a session that is made here takes a path without a scheme for one of this machine, as far as is known."""
    settings = any("defaultfs" in name.lower() for name in pipeline.spark)
    return not settings and not any(os.environ.get(name) for name in _OTHER_FILE_SYSTEM)


@dataclass(frozen=True, slots=True)
class _Made:
    """The outputs of a run: folders and names of streams, and paths of files."""

    folders: frozenset[Path]
    names: frozenset[str]
    paths: frozenset[str]

    @staticmethod
    def by(pipeline: Pipeline) -> _Made:
        folders, names, paths = set(), set(), set()
        for job in pipeline.jobs:
            if isinstance(job, RoutedTopic):
                # A topic whose rules stand in the file makes its stream, too.
                written = [(pipeline.root, job.name), *((Path(o["root"]), o["stream"]) for o in job.outputs.values())]
            elif job.format == HEADGATE:
                options = SinkOptions.parse(pipeline.sink_options(job))
                written = [(options.root, options.stream)]
            else:
                written = []
                paths |= {_absolute(path) for path in (job.path, str(job.options.get("path", ""))) if path}
            for root, name in written:
                names.add(name)
                folders |= set(_folders(name, root))
        return _Made(frozenset(folders), frozenset(names), frozenset(paths))

    def has_stream(self, text: str, root: Path) -> bool:
        """Whether a run writes the stream, or one of a pattern, that a source names."""
        if _STREAM_PATTERN.isdisjoint(text):
            return text in self.names or not self.folders.isdisjoint(_folders(text, root))
        return any(fnmatchcase(name, text) for name in self.names) or any(
            fnmatchcase(str(folder), os.path.abspath(text)) for folder in self.folders
        )

    def has_path(self, path: str) -> bool:
        """Whether a run writes a path, something below it, or a folder above it."""
        return any(_is_below(path, made) or _is_below(made, path) for made in self.paths)


@dataclass(frozen=True)
class _Columns:
    """The columns of a source, where known: `declared`, or the columns of the Parquet files at `parquet`."""

    source: str
    declared: tuple[str, ...] | None = None
    parquet: Path | None = None

    @cached_property
    def names(self) -> frozenset[str] | None:
        """All that may be there; None where that is not known."""
        if self.declared is not None:
            return frozenset(self.declared)
        return None if self.parquet is None else _parquet_columns(self.parquet)

    def check(self, entry: str, key: str, text: str) -> None:
        """Raise ConfigError for a missing column; letter case does not count, as in Spark."""
        first = text.split(".")[0]
        if "`" in text or first.startswith("_") or self.names is None:
            return
        if not {text.lower(), first.lower()} & {name.lower() for name in self.names}:
            names = sorted(self.names)
            shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
            raise ConfigError(
                f"{entry}: key {key}: found {text!r}, expected a column of source {self.source!r}"
                f"{did_you_mean(text, names)} (it has {shown})"
            )


def _check_source(pipeline: Pipeline, source: Source, made: _Made, *, local_paths: bool) -> _Columns:
    columns = _Columns(source.name)
    if source.format == HEADGATE:
        options = SourceOptions.parse(pipeline.source_options(source))
        _check_streams(source, options, made)
        columns = _Columns(source.name, declared=_names(options))
    else:
        path = _checked_path(source, made, local_paths=local_paths)
        if path is not None and source.format.lower() == _PARQUET:
            columns = _Columns(source.name, parquet=path)
    if source.watermark is not None:
        columns.check(f"source {source.name!r}", "watermark.column", source.watermark.column)
    return columns


def _names(options: SourceOptions) -> tuple[str, ...]:
    return tuple(column if isinstance(column, str) else column.name for column in options.columns)


def _check_streams(source: Source, options: SourceOptions, made: _Made) -> None:
    missing = []
    for text in options.streams:
        if made.has_stream(text, options.root):
            continue
        try:
            find_streams(replace(options, streams=(text,)))
        except StreamNotFoundError:
            missing.append(text)
        except HeadgateError as error:
            raise ConfigError(f"source {source.name!r}: key stream: {error}") from error
    # A pattern may match no stream beside others that are there.
    named = [text for text in missing if _STREAM_PATTERN.isdisjoint(text)]
    if named or len(missing) == len(options.streams):
        text = (named or missing)[0]
        near = did_you_mean(text, {*stream_names(options.root), *made.names})
        raise ConfigError(
            f"source {source.name!r}: key stream: found {text!r}, expected a stream under "
            f"{shown_root(options.root)}, the folder of a stream, or one that this pipeline writes{near}"
        )


def _check_start(pipeline: Pipeline, source: Source, made: _Made) -> None:
    """Refuse a `start` behind the end: a run reads existing messages only, and does not wait."""
    options = SourceOptions.parse(pipeline.source_options(source))
    if any(made.has_stream(text, options.root) for text in options.streams):
        return
    with naming(f"source {source.name!r}"):
        check_start(options, find_streams(options).values(), now_ms=now_ms(options), subject="key start")


def _goes_on(pipeline: Pipeline, sink: Sink) -> bool:
    """Whether an earlier run says where a sink goes on, in place of `start`."""
    return sink.mode is Mode.APPEND and (pipeline.state / "checkpoints" / sink.name).exists()


def _checked_path(source: Source, made: _Made, *, local_paths: bool) -> Path | None:
    """The file or folder of a source if it exists on this machine; None if nothing is known of it.

    Raises ConfigError for a missing one.
    """
    path = None if source.path is None else _local(source.path, local_paths=local_paths)
    options = {name.lower() for name in source.options}
    if path is None or source.format.lower() not in _FILE_FORMATS or "ignoremissingfiles" in options:
        return None
    parts = Path(path).parts
    pattern_at = next((at for at, part in enumerate(parts) if not _PATH_PATTERN.isdisjoint(part)), len(parts))
    above = Path(*parts[:pattern_at])
    if made.has_path(str(above)):
        return None
    missing = next((each for each in (*reversed(above.parents), above) if _is_missing(each)), None)
    if missing is None:
        return above if pattern_at == len(parts) else None
    near = did_you_mean(missing.name, _listed(missing.parent))
    raise ConfigError(
        f"source {source.name!r}: key path: found {source.path!r}, expected a file or folder that is there, and there "
        f"is no {missing}{near}"
    )


def _check_columns(sink: Sink, columns: _Columns) -> None:
    """The columns that a sink names, of a source that it reads directly."""
    entry = f"sink {sink.name!r}"
    for key in ("key", "partition_by"):
        for text in getattr(sink, key) or ():
            columns.check(entry, key, text)
    # With a dot it may be a field of the message.
    if sink.filter_value is not None and "." not in sink.filter_value:
        columns.check(entry, "filter_value", sink.filter_value)


def _check_statement(step: Step, known: Mapping[str, _Columns]) -> None:
    """The columns that the SQL of a step names for certain."""
    source, columns = columns_of_statement(step.sql) or ("", [])
    if source in step.inputs and source in known:
        for column in columns:
            known[source].check(f"step {step.name!r}", "sql", column)


def _check_topic(pipeline: Pipeline, topic: RoutedTopic) -> None:
    """Refuse a topic that the run would make beside a stream of a similar name: its name may be misspelt."""
    outputs = {name for other in pipeline.topics for name in other.streams}
    sinks = {str(sink.stream) for sink in pipeline.sinks if sink.format == HEADGATE}
    if topic.name in outputs | sinks or stream_exists(pipeline.root, topic.name):
        return
    near = did_you_mean(topic.name, {*stream_names(pipeline.root), *sinks} - outputs)
    if near:
        raise ConfigError(
            f"topic {topic.name!r}: key name: expected a stream under {pipeline.root}, or one that this pipeline "
            f"writes; if it is new, make it with `headgate topic create {topic.name}`{near}"
        )


def _parquet_columns(path: Path) -> frozenset[str] | None:
    """The columns of all Parquet files at a path, and of folders like `day=2026-11-21`; None where not known."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = list(islice(_data_files(path), _MAX_SCHEMAS + 1))
    if not files or len(files) > _MAX_SCHEMAS:
        return None
    names = {part.partition("=")[0] for file in files for part in file.parts if "=" in part}
    try:
        for file in files:
            names.update(pq.read_schema(file).names)
    except (OSError, pa.ArrowException):
        return None
    return frozenset(names)


def _data_files(path: Path) -> Iterator[Path]:
    """The files that Spark reads at a path: not files or folders with names that begin with a dot or underscore."""
    if path.is_file():
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith((".", "_")) or "=" in name]
        yield from (Path(folder, name) for name in files if not name.startswith((".", "_")))


def _folders(name: str, root: Path) -> list[Path]:
    """The folders that the text of a stream may mean."""
    by_path = [Path(os.path.abspath(name))] if os.sep in name else []
    try:
        return [stream_folder(root, name).absolute(), *by_path]
    except ConfigError:
        return by_path


def _local(path: str, *, local_paths: bool) -> str | None:
    """A path of this machine, absolute; None for one that may be elsewhere."""
    if path.startswith(("file:///", "file:/")) and not re.match("file://[^/]", path):
        return os.path.abspath(re.sub("^file:(//)?", "", path))
    return None if _SCHEME.match(path) or not local_paths else os.path.abspath(path)


def _absolute(path: str) -> str:
    return _local(path, local_paths=True) or path


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
