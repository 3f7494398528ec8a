"""A pipeline as a TOML file: read, checked and put in order here, before Spark starts.

`docs/reference/pipeline-files.md` lists all keys. `make docs` writes it from the structures below, whose texts after
the fields are Markdown, and from `headgate.spark.option_declarations` for keys that are options of a stream.

The streams, files and columns of sources must exist when a run begins, or be written by it (`inputs`). A run reads what
exists and does not wait for more. Topics and sinks that write streams run one after the other, sinks first, in the
order of the file, except that the writer of a stream or path runs before its readers; every other sink runs beside them
as soon as its input is written. Which sink gives which guarantee: `sinks`.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import msgspec.inspect

from headgate.errors import ConfigError, HeadgateError, did_you_mean
from headgate.spark.option_declarations import interval_ms
from headgate.spark.options import SinkOptions, SourceOptions
from headgate.spark.pipeline.sinks import DELTA, HEADGATE, JDBC, check_delta_sink, check_jdbc_options
from headgate.spark.pipeline.topics import RoutedTopic, TopicEntry, WrittenStream, check_topics
from headgate.tables import default_root

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PIPELINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Mode(enum.Enum):
    """How a sink continues from one run to the next."""

    APPEND = "append"
    COMPLETE = "complete"


class Watermark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How late rows may come, by an event-time column: Spark's `withWatermark`."""

    column: str
    """The column with the time of the event, a timestamp."""
    delay: str
    """How far behind the latest time a row may be, such as `10 minutes`."""


OptionValue = str | int | float | bool | list[str]


class ReadStream(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of a stream that is read: options of the source (`docs/reference/spark-source.md`)."""

    filter: str | None = None
    dialect: str | None = None
    filter_values: list[str] | None = None
    match_unfiltered: bool | None = None
    start: str | int | None = None
    columns: list[str] | None = None
    properties: str | None = None
    fail_on_data_loss: bool | None = None
    on_corrupt: str | None = None
    on_mismatch: str | None = None


class Source(ReadStream, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rows from a stream or from any Spark source."""

    name: str
    """The name for steps and sinks: a letter, then letters, digits and underscores; unique among sources and steps."""
    format: str = HEADGATE
    """`headgate` for a stream, or a format that Spark reads, such as `parquet`."""
    path: str | None = None
    """The file or folder to read, for formats other than `headgate`."""
    stream: str | list[str] | None = None
    options: dict[str, OptionValue] = {}
    """Options of the format, by their Spark names; for a stream, only options that have no key of their own here."""
    watermark: Watermark | None = None


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Spark SQL over sources and earlier steps."""

    name: str
    """The name for steps and sinks; same rules as for a source."""
    inputs: list[str]
    """The sources and earlier steps that `sql` reads as tables."""
    sql: str
    """A query in Spark SQL."""
    watermark: Watermark | None = None


class Sink(WrittenStream, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the rows of a source or step go."""

    name: str
    """Names the checkpoint and the line of the report: a letter, then letters, digits and underscores; unique among
    sinks."""
    input: str
    """The source or step whose rows are written."""
    format: str = HEADGATE
    """`headgate` for a stream, or a format that Spark writes: [which gives which guarantee](sinks.md)."""
    path: str | None = None
    """The folder to write, for formats other than `headgate`."""
    stream: str | None = None
    options: dict[str, OptionValue] = {}  # noqa: RUF012 - a structure copies it
    """Options of the format, by their Spark names; for a stream, only options that have no key of their own here."""
    mode: Mode = Mode.APPEND
    """`append`: new rows only; each run continues where the last one stopped. `complete`: each run computes the output
    from all rows of the inputs and replaces it; not for streams."""
    stall_timeout: str | None = None
    """After this time without a finished batch the sink is stopped and counts as failed (a number and a unit of Y, M,
    D, h, m, s). Default: never. In mode `append`, not for streams."""
    key: list[str] | None = None
    """For format `jdbc`, in mode `append`: a row replaces the one with the same values in these columns. Default:
    rows are added."""
    partition_by: list[str] | None = None
    """For format `delta`: the columns by which a new table is partitioned."""

    @property
    def stall_timeout_s(self) -> float | None:
        """After this many seconds without a finished batch the sink is stopped; None: never."""
        return None if self.stall_timeout is None else interval_ms(self.stall_timeout) / 1000


Job = Sink | RoutedTopic
"""A unit of a run: a sink or a topic."""


class PipelineFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The pipeline as a whole; `name`, and at least one sink or topic, are required."""

    name: str
    """Names the folder of checkpoints: letters, digits, dots, dashes and underscores, at most 100."""
    root: str | None = None
    """The folder under which streams are found, and created, by name. Default: the variable `HEADGATE_ROOT`,
    else `headgate-data`."""
    state: str | None = None
    """The folder of checkpoints and progress. Default: `ROOT/.headgate/pipelines/NAME`."""
    sinks_at_once: int = 4
    """At most this many sinks that are not streams run side by side."""
    build_columns: bool = False
    """Whether at the end of a run column files are built of the streams that it wrote, where columns are declared.
    Files are of sealed segments: the last segment of a stream is open, and read from its messages."""
    spark: dict[str, str] = {}
    """Configuration of the Spark session for the run, such as `spark.jars`."""
    source: list[Source] = []
    step: list[Step] = []
    sink: list[Sink] = []
    topic: list[TopicEntry] = []


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A checked pipeline: every name resolves, every option of a stream parses, every rule compiles.

    `jobs` are the sinks and the topics, each after the jobs whose output it reads; at most `sinks_at_once` of the jobs
    that do not write streams run side by side. `spark` is configuration for a session, `file` the file that was read.
    """

    name: str
    root: Path
    state: Path
    sources: Mapping[str, Source]
    steps: Mapping[str, Step]
    jobs: tuple[Job, ...]
    sinks_at_once: int
    spark: Mapping[str, str]
    build_columns: bool = False
    file: Path | None = None

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The sinks in the order in which they run."""
        return tuple(job for job in self.jobs if isinstance(job, Sink))

    @property
    def topics(self) -> tuple[RoutedTopic, ...]:
        """The topics in the order in which they run."""
        return tuple(job for job in self.jobs if isinstance(job, RoutedTopic))

    def needed_by(self, job: Job) -> tuple[Job, ...]:
        """The jobs that write an input of this one."""
        reads = _reads(self, job)
        return tuple(other for other in self.jobs if other is not job and _met(_writes(other), reads))

    def sources_of(self, name: str) -> Iterator[Source]:
        """The sources that a source, step or sink input reads, each once, in the order first met."""
        return (entry for entry in self._behind(name) if isinstance(entry, Source))

    def steps_of(self, name: str) -> Iterator[Step]:
        """The steps that a source, step or sink input is made by, each once."""
        return (entry for entry in self._behind(name) if isinstance(entry, Step))

    def _behind(self, name: str) -> Iterator[Source | Step]:
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            current = waiting.pop(0)
            if current in seen:
                continue
            seen.add(current)
            if current in self.sources:
                yield self.sources[current]
            else:
                yield self.steps[current]
                waiting.extend(self.steps[current].inputs)

    def source_options(self, source: Source) -> dict[str, str]:
        """The options of a source as Spark takes them."""
        return _options(self.root, source, ReadStream.__struct_fields__)

    def sink_options(self, sink: Sink) -> dict[str, str]:
        """The options of a sink as Spark takes them."""
        return _options(self.root, sink, WrittenStream.__struct_fields__)


def load(path: str | Path) -> Pipeline:
    """Read and check a pipeline file. Raises ConfigError or FilterError that names file, entry and key."""
    file = Path(path)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{file}: there is no such pipeline file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file}: not a TOML file that can be read: {error}") from error
    try:
        return replace(check(content), file=file)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error


def _with_names(reason: str, content: object) -> str:
    """A reason that ends with a path such as `$.topic[0].rule[2]`, after the names of the entries on that path."""
    path = reason.rpartition("`$")[2]
    names = []
    for key, index in re.findall(r"\.(\w+)(?:\[(\d+)\])?", path):
        content = content.get(key) if isinstance(content, Mapping) else None
        if index and isinstance(content, list) and int(index) < len(content):
            content = content[int(index)]
            if isinstance(content, Mapping) and isinstance(content.get("name"), str):
                names.append(f"{key} {content['name']!r}")
    return f"{', '.join(names)}: {reason}" if names else reason


def _unknown_key(reason: str) -> str | None:
    """The error for an unknown key, with the keys of the entry; None for other reasons of msgspec."""
    found = re.fullmatch(r"Object contains unknown field `(.+?)`(?: - at `(\$.*)`)?", reason, re.DOTALL)
    if found is None:
        return None
    key, path = found[1], found[2] or "$"
    entry: object = msgspec.inspect.type_info(PipelineFile)
    for name in re.findall(r"\.(\w+)", path):
        assert isinstance(entry, msgspec.inspect.StructType)
        entry = _entry_type(next(field.type for field in entry.fields if field.encode_name == name))
    assert isinstance(entry, msgspec.inspect.StructType)
    of_stream = getattr(entry.cls.__base__, "__struct_fields__", ())
    keys = sorted((field.encode_name for field in entry.fields), key=lambda key: key in of_stream)
    return f"key `{key}` is unknown at `{path}`; there are {', '.join(keys)}{did_you_mean(key, keys)}"


def _entry_type(declared: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """The struct in the type of a key, which may be a list or optional."""
    if isinstance(declared, msgspec.inspect.ListType):
        return _entry_type(declared.item_type)
    if isinstance(declared, msgspec.inspect.UnionType):
        return next(each for each in declared.types if not isinstance(each, msgspec.inspect.NoneType))
    return declared


def check(content: Mapping[str, object]) -> Pipeline:
    """The pipeline that a dict in the form of the TOML file describes. Raises as `load`, without the file's name."""
    try:
        parsed = msgspec.convert(content, PipelineFile)
    except msgspec.ValidationError as error:
        raise ConfigError(_with_names(_unknown_key(str(error)) or str(error), content)) from error
    if not _PIPELINE_NAME.fullmatch(parsed.name):
        raise ConfigError(f"name {parsed.name!r}: expected letters, digits, dots, dashes and underscores, at most 100")
    if not parsed.sink and not parsed.topic:
        raise ConfigError("the pipeline has no [[sink]] and no [[topic]]: nothing would run")
    for name, path in (("root", parsed.root), ("state", parsed.state)):
        if path is not None and "\0" in path:
            raise ConfigError(f"{name} {path!r}: found a NUL, which no path has")
    root = Path(parsed.root) if parsed.root is not None else default_root()
    pipeline = Pipeline(
        name=parsed.name,
        root=root.absolute(),
        state=(
            Path(parsed.state) if parsed.state is not None else root / ".headgate" / "pipelines" / parsed.name
        ).absolute(),
        sources={source.name: source for source in parsed.source},
        steps={step.name: step for step in parsed.step},
        jobs=(*parsed.sink, *check_topics(parsed.topic, root.absolute())),
        sinks_at_once=parsed.sinks_at_once,
        spark=parsed.spark,
        build_columns=parsed.build_columns,
    )
    if parsed.sinks_at_once < 1:
        raise ConfigError(f"sinks_at_once is {parsed.sinks_at_once}; expected 1 or more")
    _check_names(parsed)
    for source in parsed.source:
        with naming(f"source {source.name!r}"):
            _check_place(source, ReadStream.__struct_fields__)
            if source.format == HEADGATE:
                SourceOptions.parse(pipeline.source_options(source))
    for sink in parsed.sink:
        with naming(f"sink {sink.name!r}"):
            _check_place(sink, WrittenStream.__struct_fields__)
            _check_own_query(sink)
            if sink.format == HEADGATE:
                if sink.mode is Mode.COMPLETE:
                    raise ConfigError("mode: a stream is append only; use append, or another format")
                SinkOptions.parse(pipeline.sink_options(sink))
    return replace(pipeline, jobs=_in_order(pipeline))


@contextlib.contextmanager
def naming(prefix: str) -> Iterator[None]:
    """Put `prefix` in front of the errors of a block, which become ConfigErrors."""
    try:
        yield
    except HeadgateError as error:
        raise ConfigError(f"{prefix}: {error}") from error


def _check_names(parsed: PipelineFile) -> None:
    known: set[str] = set()
    for kind, entries in (("source", parsed.source), ("step", parsed.step)):
        for entry in entries:
            if not _IDENTIFIER.fullmatch(entry.name):
                raise ConfigError(f"{kind} name {entry.name!r}: expected a letter, then letters, digits, underscores")
            if entry.name in known:
                raise ConfigError(f"{kind} name {entry.name!r} is given twice")
            for needed in getattr(entry, "inputs", ()):
                if needed not in known:
                    raise ConfigError(f"step {entry.name!r}: input {needed!r} is no source and no step before it")
            known.add(entry.name)
    for step in parsed.step:
        if not step.inputs:
            raise ConfigError(f"step {step.name!r}: inputs is empty; name the sources and steps that its sql reads")
    sinks: set[str] = set()
    for sink in parsed.sink:
        if not _IDENTIFIER.fullmatch(sink.name):
            raise ConfigError(f"sink name {sink.name!r}: expected a letter, then letters, digits, underscores")
        if sink.name in sinks:
            raise ConfigError(f"sink name {sink.name!r} is given twice")
        if sink.input not in known:
            raise ConfigError(f"sink {sink.name!r}: input {sink.input!r} is no source and no step")
        sinks.add(sink.name)


def _check_place(entry: Source | Sink, keys: tuple[str, ...]) -> None:
    if entry.format == HEADGATE:
        if entry.stream is None or entry.path is not None:
            raise ConfigError("a Headgate stream is named by the key stream (a name or a folder), not by path")
        return
    given = [key for key in ("stream", *keys) if getattr(entry, key) is not None]
    if given:
        raise ConfigError(f"key {given[0]} is for Headgate streams; format is {entry.format!r}")


def _check_own_query(sink: Sink) -> None:
    """Check the keys of sinks that are separate queries over rows."""
    for key in ("stall_timeout", "key"):
        if getattr(sink, key) is not None and sink.mode is Mode.COMPLETE:
            raise ConfigError(f"{key}: is for mode append")
    if sink.stall_timeout is not None:
        if sink.format == HEADGATE:
            raise ConfigError("stall_timeout: is for sinks that are no streams")
        with naming("stall_timeout"):
            interval_ms(sink.stall_timeout)
    if sink.format.lower() == JDBC:
        if sink.path is not None:
            raise ConfigError("path: a jdbc sink is named by url and dbtable in options")
        check_jdbc_options({name: _as_text(value) for name, value in sink.options.items()}, sink.key or ())
    elif sink.key is not None:
        raise ConfigError(f"key: is for format jdbc; format is {sink.format!r}")
    if sink.format.lower() == DELTA:
        options = {name: _as_text(value) for name, value in sink.options.items()}
        check_delta_sink(sink.path, options, sink.partition_by)
    elif sink.partition_by is not None:
        raise ConfigError(f"partition_by: is for format delta; format is {sink.format!r}")


def _options(root: Path, entry: Source | Sink, keys: tuple[str, ...]) -> dict[str, str]:
    options = {name: _as_text(value) for name, value in entry.options.items()}
    if entry.format == HEADGATE:
        for key in ("stream", *keys):
            value = getattr(entry, key)
            if value is not None and key in options:
                raise ConfigError(f"{key} is given twice: as a key and in options")
            if value is not None:
                options[key] = _as_text(value)
        options.setdefault("root", str(root))
    return options


def _as_text(value: OptionValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return msgspec.json.encode(value).decode()
    return str(value)


def _in_order(pipeline: Pipeline) -> tuple[Job, ...]:
    """The jobs in file order, but writers of a stream or a path before its readers."""
    waiting = list(pipeline.jobs)
    ordered: list[Job] = []
    for job in waiting:
        if _met(_writes(job), _reads(pipeline, job)):
            raise ConfigError(f"{called(job)} writes the {'stream' if writes_streams(job) else 'path'} that it reads")
    while waiting:
        for job in waiting:
            reads = _reads(pipeline, job)
            if not any(_met(_writes(other), reads) for other in waiting if other is not job):
                ordered.append(job)
                waiting.remove(job)
                break
        else:
            names = ", ".join(map(called, waiting))
            raise ConfigError(f"{names} read each other's output in a circle")
    return tuple(ordered)


@dataclass(frozen=True, slots=True)
class _Dataset:
    """A stream by its name, or a path of files."""

    stream: str | None = None
    path: str | None = None


def _met(written: frozenset[_Dataset], read: frozenset[_Dataset]) -> bool:
    """Whether something that is written is read: the same stream, the same path or one below it."""
    return not written.isdisjoint(read) or any(
        each.path.startswith(f"{whole.path}/") for whole in written if whole.path for each in read if each.path
    )


def _reads(pipeline: Pipeline, job: Job) -> frozenset[_Dataset]:
    if isinstance(job, RoutedTopic):
        return frozenset({_Dataset(stream=job.name)})
    return frozenset(place for source in pipeline.sources_of(job.input) for place in _place(source))


def _writes(job: Job) -> frozenset[_Dataset]:
    if isinstance(job, RoutedTopic):
        return frozenset(_Dataset(stream=name) for name in job.streams)
    return frozenset(_place(job))


def _place(entry: Source | Sink) -> Iterator[_Dataset]:
    if entry.format == HEADGATE:
        names = entry.stream if isinstance(entry.stream, list) else [str(entry.stream)]
        yield from (_Dataset(stream=name) for name in names)
    elif entry.path is not None:
        yield _Dataset(path=entry.path if "://" in entry.path else os.path.abspath(entry.path))


def writes_streams(job: Job) -> bool:
    """Whether it is a topic, or a sink whose format is Headgate's."""
    return isinstance(job, RoutedTopic) or job.format == HEADGATE


def called(job: Job) -> str:
    """Its kind and name, for messages."""
    return f"{'topic' if isinstance(job, RoutedTopic) else 'sink'} {job.name!r}"
