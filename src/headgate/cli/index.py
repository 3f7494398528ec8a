"""`headgate index`: filters whose results are precomputed, so that readers need not evaluate them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from headgate.cli.derived import build_here, declared_streams
from headgate.cli.options import (
    DEFAULT_ROOT,
    AsJson,
    Dialect,
    FilterText,
    IsTags,
    Master,
    Root,
    Start,
    StreamText,
    Until,
    chosen,
    named_streams,
    naming_option,
    places_of,
)
from headgate.cli.output import write_facts, write_json, write_line, write_note, write_rows
from headgate.cli.units import counted, shown_count, shown_share, shown_size
from headgate.clock import now_ms, shown_time
from headgate.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from headgate.derived.match_index import BuildCounters, Registration
    from headgate.log import Stream

commands = App(name="index", help="Match indexes: results of registered filters, calculated ahead.")

_COLUMNS = ("stream", "id", "state", "dialect", "filter", "version", "born", "indexed", "missing")


@commands.command
def register(
    stream: StreamText,
    filter_id: Annotated[str, Parameter(name="ID", help="Name of the filter; `group#topic` for a consumer group.")],
    /,
    *,
    filter_text: FilterText,
    dialect: Dialect = None,
    tags: IsTags = False,
    version: Annotated[
        int | None,
        Parameter(help="Version of this text; older ones than the registered are ignored. Default: now, ms."),
    ] = None,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Register a filter, or a new version of one. `headgate index build` then calculates its results."""
    from headgate.derived.match_index import Change, FilterRegistry
    from headgate.language.rocketmq import TAGS
    from headgate.log import resolve_stream

    if tags and dialect is not None:
        raise ConfigError("--tags and --dialect: found both, expected one of them")
    registry = FilterRegistry(resolve_stream(stream, root))
    language = TAGS if tags else chosen(dialect)
    change = registry.register(filter_id, filter_text, language, now_ms=now_ms(), version=version)
    if change is Change.IGNORED:
        write_note(f"headgate: {filter_id} has this version or a newer one already; nothing changed")
        return 1
    write_line(f"{filter_id}: {change.value}")
    return 0


@commands.command
def rm(
    stream: StreamText,
    filter_id: Annotated[str, Parameter(name="ID", help="Name of the filter.")],
    /,
    *,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Forget a filter; the next build drops its results."""
    from headgate.derived.match_index import FilterRegistry
    from headgate.log import resolve_stream

    registry = FilterRegistry(resolve_stream(stream, root))
    if not registry.remove(filter_id):
        near = did_you_mean(filter_id, (each.id for each in registry.read().filters))
        write_note(f"headgate: no filter {filter_id} is registered for {stream}{near}")
        return 1
    return 0


@commands.command
def configure(
    stream: StreamText,
    /,
    *settings: Annotated[str, Parameter(help="NAME=VALUE: calculate_filter_bitmap=true|false.")],
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Set whether a broker keeps the index of a stream up to date; RocketMQ's names are known. Without any: show it."""
    import msgspec

    from headgate.derived.match_index import FilterRegistry, IndexSettings
    from headgate.log import resolve_stream

    registry = FilterRegistry(resolve_stream(stream, root))
    if settings:
        given: dict[str, object] = {}
        for text in settings:
            name, equals, value = text.partition("=")
            if not equals or name in given:
                raise ConfigError(f"found {text!r}, expected NAME=VALUE, each name once")
            given[name] = value
        registry.configure(IndexSettings.parse(given))
    found = msgspec.to_builtins(registry.read().settings)
    if as_json:
        write_json(found)
    else:
        write_facts({name: str(value).lower() for name, value in found.items()})
    return 0


@commands.command
def ls(
    stream: Annotated[str | None, Parameter(help="Name or folder of a stream; by default all under --root.")] = None,
    /,
    *,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """The registered filters, whether they are alive, and how much of the stream has their results."""
    from headgate.derived import MATCH_INDEX

    chosen = named_streams(() if stream is None else (stream,), root)
    found = [(each, MATCH_INDEX.declared(each)) for each in chosen]
    rows = [row for each, registration in found if registration is not None for row in _rows(each, registration)]
    if not as_json:
        shown = ((row, shown_time(row["born_ms"]), shown_share(row["indexed"])) for row in rows)
        rows = [{**row, "born": born, "indexed": indexed} for row, born, indexed in shown]
    nothing = "no filter is registered; register one with: headgate index register STREAM ID --filter TEXT"
    write_rows(rows, _COLUMNS, as_json=as_json, nothing=nothing)
    return 0


def _rows(stream: Stream, registration: Registration) -> list[dict[str, Any]]:
    from headgate.derived.match_index import coverage, text_hash

    reach = coverage(stream)
    for reason in reach.damaged:
        write_note(f"headgate: {reason}; the next build replaces it")
    total = stream.next_offset() - stream.first_offset()
    rows: list[dict[str, Any]] = []
    for each in registration.filters:
        messages = reach.messages.get((each.id, each.dialect, text_hash(each.text)), 0)
        rows.append(
            {
                "stream": stream.name,
                "id": each.id,
                "state": "standing" if each.standing else "alive" if each.dead_ms is None else "dead",
                "dialect": each.dialect,
                "filter": each.text,
                "version": each.version,
                "born_ms": each.born_ms,
                "dead_ms": each.dead_ms,
                "indexed": min(1.0, messages / total) if total else 1.0,
                "missing": max(0, total - messages),
            }
        )
    return rows


@commands.command
def build(
    *streams: Annotated[str, Parameter(help="Names or folders of streams; by default all with registered filters.")],
    full: Annotated[bool, Parameter(negative=(), help="Calculate everything anew, not only what is new.")] = False,
    here: Annotated[bool, Parameter(negative=(), help="In this process, on one core, without Spark.")] = False,
    master: Master = None,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Calculate missing results: of new chunks, and of new filters over old ones."""
    from headgate.derived import MATCH_INDEX
    from headgate.derived.match_index import BuildCounters

    if here and master is not None:
        raise ConfigError("--here and --master: found both, expected one of them")
    nothing = "no stream has registered filters; `headgate index register` makes one"
    chosen = declared_streams(MATCH_INDEX, streams, root, undeclared=None, nothing=nothing)
    if here or not chosen:
        reports = build_here(MATCH_INDEX, chosen, distrust=full)
        done = {path: BuildCounters.total(each) for path, each in reports.items()}
    else:
        from headgate.spark import build_match_index, session

        done = build_match_index(session("headgate index", master=master), chosen, full=full)
    for stream in chosen:
        _write_report(stream, done[stream.path.absolute()], as_json=as_json)
    return 0


def _write_report(stream: Stream, done: BuildCounters, *, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        write_json({"stream": stream.name, **asdict(done)})
        return
    write_line(
        f"{stream.name}: {shown_count(done.chunks_decided)} of {counted(done.chunks, 'chunk')} read, "
        f"{counted(done.messages_decided, 'message')} decided, "
        f"{shown_count(done.segments_written)} of {counted(done.segments, 'sidecar')} written "
        f"({shown_size(done.bytes_written)})"
    )
    if done.chunks_corrupt:
        write_note(
            f"headgate: {counted(done.chunks_corrupt, 'chunk')} of {stream.name} do not check and are not indexed; "
            "`headgate stream verify` says which"
        )


@commands.command
def count(
    stream: StreamText,
    /,
    *,
    filter_text: FilterText,
    dialect: Dialect = None,
    tags: IsTags = False,
    start: Start = "first",
    until: Until = None,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Count the messages that match: from the index or column files where they are exact, else by reading them."""
    from headgate.derived import sources_of
    from headgate.evaluate import Filter
    from headgate.language.rocketmq import TAGS
    from headgate.log import resolve_stream
    from headgate.scan import ScanRequest, check_start, count_matches, resolve_range

    if tags and dialect is not None:
        raise ConfigError("--tags and --dialect: found both, expected one of them")
    now = now_ms()
    expression = Filter.stated(filter_text, TAGS if tags else chosen(dialect))
    source = resolve_stream(stream, root)
    begin, end = places_of(start, until, now_ms=now)
    with naming_option("--from"):
        check_start(source, begin, now_ms=now)
    within = resolve_range(source, start=begin, end=end, now_ms=now)
    found = count_matches(source, ScanRequest(filter=expression, now_ms=now, sources=sources_of()), within)
    if as_json:
        write_json({"matches": found.matches, "from_index": found.from_index, "counters": found.counters.as_dict()})
        return 0
    write_line(str(found.matches))
    by_columns = found.counters.messages_decided_by_columns
    by_lookup = found.counters.messages_decided_by_lookup
    write_note(
        f"{counted(found.counters.messages_decided_by_index, 'message')} decided by the index, "
        f"{f'{shown_count(by_columns)} by columns, ' if by_columns else ''}"
        f"{f'{shown_count(by_lookup)} by lookup, ' if by_lookup else ''}"
        f"{shown_count(found.counters.messages_evaluated)} evaluated ({shown_size(found.counters.bytes_read)} read)"
    )
    return 0
