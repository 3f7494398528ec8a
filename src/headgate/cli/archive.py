"""`headgate stream archive`: everything of a RabbitMQ stream, kept in object storage."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headgate.cli.options import DEFAULT_ROOT, AsJson, LockTimeout, Root, naming_settings
from headgate.cli.output import write_json, write_line
from headgate.cli.units import counted, shown_size, size_bytes
from headgate.clock import now_ms, patient

_WAIT_S = 0.2


def archive(
    source: Annotated[Path, Parameter(help="Folder of a stream that RabbitMQ writes. It is only read.")],
    /,
    *,
    to: Annotated[str, Parameter(help="Object storage, such as s3://bucket/prefix: segments go to NAME in it.")],
    name: Annotated[str | None, Parameter(help="Name of the archive; by default that of the stream.")] = None,
    follow: Annotated[bool, Parameter(negative=(), help="Go on until SIGTERM.")] = False,
    allow_gap: Annotated[
        bool, Parameter(negative=(), help="Go on behind messages that were deleted before they were archived.")
    ] = False,
    local_bytes: Annotated[
        str, Parameter(help="Keep as much of the moved segments on this machine as well, such as 20GB.")
    ] = "0",
    as_json: AsJson = False,
    lock_timeout: LockTimeout = 5.0,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Keep all of a RabbitMQ stream, also what RabbitMQ deletes: the same offsets, times and bytes.

    The archive is a stream under --root, for all readers; its sealed segments move to object storage. Run it again
    after any end: it goes on where the archive ends.
    """
    from headgate.log import Archiver, Stream, stream_folder

    kept = size_bytes(local_bytes, option="--local-bytes")
    stream = Stream.open(source)
    chosen = stream.name if name is None else name
    stopped = threading.Event()
    before = [signal.signal(number, lambda *_: stopped.set()) for number in _SIGNALS] if follow else []
    try:
        with (
            naming_settings({"remote": "--to"}),
            Archiver.open(
                stream,
                stream_folder(root, chosen),
                name=chosen,
                remote=to,
                local_bytes=kept,
                allow_gap=allow_gap,
                now_ms=now_ms(),
                wait=patient(lock_timeout),
            ) as archiver,
        ):
            while not stopped.is_set():
                archiver.look()
                copied = archiver.copy()
                archiver.move(now_ms=now_ms(), warns=follow)
                if not copied:
                    if not follow:
                        archiver.finish(now_ms=now_ms())
                        break
                    stopped.wait(_WAIT_S)
            report, behind = archiver.report, archiver.next_offset
    finally:
        for number, handler in zip(_SIGNALS, before, strict=False):
            signal.signal(number, handler)
    if as_json:
        write_json(
            {
                "stream": chosen,
                "next_offset": behind,
                "chunks": report.chunks,
                "copied_bytes": report.copied_bytes,
                "segments_moved": report.moved,
                "moved_bytes": report.moved_bytes,
                "missing_offsets": report.missing,
            }
        )
    else:
        missing = f"; {counted(report.missing, 'offset')} missing" if report.missing else ""
        write_line(
            f"{chosen}: {counted(report.chunks, 'chunk')} copied, {shown_size(report.copied_bytes)}; "
            f"{counted(report.moved, 'segment')} moved; next offset {behind}{missing}"
        )
    return 0


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
