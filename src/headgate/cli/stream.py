"""`headgate stream`: what a stream is made of, on any folder, also one that RabbitMQ wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter, validators

from headgate.cli.options import DEFAULT_ROOT, AsJson, Root
from headgate.cli.output import write_facts, write_json, write_line, write_note, write_table
from headgate.cli.units import duration_ms, now_ms, share, shown_share, shown_size, size_bytes
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.cli.bloom import BloomSizing

commands = App(name="stream", help="Create streams and look into them.")


@commands.command
def create(
    name: Annotated[str, Parameter(help="Name of the new stream.")],
    /,
    *,
    filter_size: Annotated[int | None, Parameter(help="Bytes of the Bloom filter of a chunk, 16 to 255.")] = None,
    max_segment_size: Annotated[
        str | None, Parameter(help="Size at which a new segment begins, such as 500MB.")
    ] = None,
    max_length: Annotated[
        str | None, Parameter(help="Keep about this much, such as 20GB; the rest is deleted.")
    ] = None,
    max_age: Annotated[str | None, Parameter(help="Keep messages this long, such as 7d.")] = None,
    filter_source: Annotated[
        str | None, Parameter(help="Field that filter values come from, such as application_properties.region.")
    ] = None,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Create an empty stream."""
    from headgate.log import Stream, StreamArguments, stream_folder
    from headgate.log.bloom import DEFAULT_FILTER_SIZE_BYTES
    from headgate.log.settings import DEFAULT_MAX_SEGMENT_SIZE_BYTES
    from headgate.message.fields import parse_field

    if filter_source is not None:
        parse_field(filter_source)
    arguments = StreamArguments(
        filter_size_bytes=DEFAULT_FILTER_SIZE_BYTES if filter_size is None else filter_size,
        max_segment_size_bytes=DEFAULT_MAX_SEGMENT_SIZE_BYTES
        if max_segment_size is None
        else size_bytes(max_segment_size, option="--max-segment-size"),
        max_length_bytes=None if max_length is None else size_bytes(max_length, option="--max-length"),
        max_age_ms=None if max_age is None else duration_ms(max_age, option="--max-age"),
    )
    made = Stream.create(
        stream_folder(root, name), name=name, now_ms=now_ms(), arguments=arguments, filter_source=filter_source
    )
    write_line(str(made.path))
    return 0


@commands.command
def ls(*, as_json: AsJson = False, root: Root = DEFAULT_ROOT) -> int:
    """List the streams under --root."""
    from headgate.log import list_streams

    rows = [
        {
            "name": stream.name,
            "first_offset": stream.first_offset(),
            "next_offset": stream.next_offset(),
            "segments": len(stream.segments()),
            "size_bytes": sum(segment.segment_path.stat().st_size for segment in stream.segments()),
            "kind": "foreign" if stream.is_foreign else "own",
        }
        for stream in list_streams(root)
    ]
    if as_json:
        for row in rows:
            write_json(row)
    elif rows:
        write_table(tuple(rows[0]), [tuple(row.values()) for row in rows])
    else:
        write_note(f"no streams under {root}; make one with: headgate stream create NAME --root {root}")
    return 0


_SIZES_SHOWN = (16, 32, 64, 128, 255)


@commands.command
def bloom(
    *,
    values: Annotated[int, Parameter(help="Distinct filter values in one chunk.", validator=validators.Number(gte=1))],
    error: Annotated[str | None, Parameter(help="Wanted share of false positives, such as 2%.")] = None,
    size: Annotated[int | None, Parameter(help="Bytes of the filter, 16 to 255.")] = None,
    chunk_bytes: Annotated[
        str | None, Parameter(help="Data in an average chunk (see `stream info`), such as 20kB.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Size the Bloom filter of a stream: the error of a size, or the size for an error.

    A false positive is a chunk that is read although it holds no message with the wanted value. Without --error and
    --size all usual sizes are shown.
    """
    from headgate.cli.bloom import BloomSizing, size_for
    from headgate.log.bloom import MAX_FILTER_SIZE_BYTES, check_filter_size

    if error is not None and size is not None:
        raise ConfigError("--error and --size: found both, expected one of them")
    average = None if chunk_bytes is None else size_bytes(chunk_bytes, option="--chunk-bytes")
    if error is None and size is None:
        sizes: tuple[int, ...] = _SIZES_SHOWN
    elif size is not None:
        sizes = (check_filter_size(size, option="--size"),)
    else:
        wanted = share(str(error), option="--error")
        found = size_for(values, wanted)
        if found is None:
            largest = BloomSizing(values, MAX_FILTER_SIZE_BYTES)
            write_note(
                f"headgate: no filter reaches {shown_share(wanted)} with {values} values in a chunk: "
                f"the largest, {MAX_FILTER_SIZE_BYTES} bytes, has {shown_share(largest.rate)}. "
                "Fewer distinct values per chunk would: a coarser filter value, or publishing in runs."
            )
            return 1
        sizes = (found,)
    sizings = [BloomSizing(values, each, average) for each in sizes]
    if as_json:
        for sizing in sizings:
            write_json(
                {
                    "values": sizing.distinct_values,
                    "size_bytes": sizing.size_bytes,
                    "false_positive_rate": sizing.rate,
                    "share_of_data": sizing.weight,
                }
            )
    elif len(sizings) == 1:
        _write_sizing(sizings[0])
    else:
        write_table(
            ("size_bytes", "false_positives", "share_of_data"),
            [
                (
                    sizing.size_bytes,
                    shown_share(sizing.rate),
                    None if sizing.weight is None else shown_share(sizing.weight),
                )
                for sizing in sizings
            ],
        )
    for sizing in sizings:
        if sizing.outweighs_data:
            write_note(
                f"warning: a filter of {sizing.size_bytes} bytes outweighs the {shown_size(average or 0)} of data in a "
                "chunk: reading the filters costs more than they can save. Publish larger batches, or no filter value."
            )
    return 0


def _write_sizing(sizing: BloomSizing) -> None:
    write_facts(
        {
            "filter values per chunk": sizing.distinct_values,
            "filter size": f"{sizing.size_bytes} bytes",
            "false positives": shown_share(sizing.rate),
            "share of the data": None if sizing.weight is None else shown_share(sizing.weight),
        }
    )
