"""A root folder and the streams under it: names to folders and back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, unquote

from headgate.errors import ConfigError, LogError, StreamNotFoundError
from headgate.log.stream import Stream

STREAMS_FOLDER = "streams"
_MAX_FOLDER_NAME_BYTES = 255


def stream_folder(root: str | Path, name: str) -> Path:
    """The folder of a stream of that name: `streams/<percent-encoded name>`; ConfigError for a name without one."""
    encoded = quote(name, safe="")
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if not encoded or len(encoded) > _MAX_FOLDER_NAME_BYTES:
        raise ConfigError(
            f"stream name {name[:40]!r} has {len(encoded)} bytes percent-encoded; "
            f"expected 1 to {_MAX_FOLDER_NAME_BYTES}"
        )
    return Path(root) / STREAMS_FOLDER / encoded


def name_of_folder(folder: str | Path) -> str:
    """The stream name that a folder under `streams/` stands for."""
    return unquote(Path(folder).name)


def list_streams(root: str | Path, *, damaged: Callable[[Path, LogError], None] | None = None) -> list[Stream]:
    """The streams under a root, by name; folders without a stream are passed over.

    `damaged` is called with each folder whose `stream.json` is wrong; without it that is raised, as a LogError.
    """
    folder = Path(root) / STREAMS_FOLDER
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except FileNotFoundError:
        return []
    streams = []
    for name in names:
        try:
            streams.append(Stream.open(folder / name))
        except StreamNotFoundError:
            continue
        except LogError as error:
            if damaged is None:
                raise
            damaged(folder / name, error)
    return sorted(streams, key=lambda stream: stream.name)


def resolve_stream(text: str, root: str | Path) -> Stream:
    """The stream meant by `text`: a name under `root`, or the path of a stream folder.

    A text with a slash is a path if a stream is there, else a name; without one it is a name first. Raises
    StreamNotFoundError that names the places, and says where the path is a folder or a file without a stream.
    """
    by_name, by_path = stream_folder(root, text), Path(text)
    candidates = [by_path, by_name] if os.sep in text else [by_name, by_path]
    for candidate in candidates:
        try:
            return Stream.open(candidate)
        except StreamNotFoundError:
            continue
    if by_path.is_dir():
        at_path = f"the folder {by_path} has neither stream.json nor a pair of log files"
    elif by_path.exists():
        at_path = f"{by_path} is a file, and a stream is a folder"
    else:
        at_path = f"there is no folder {by_path}"
    raise StreamNotFoundError(
        f"no stream {text!r}, and {at_path}; headgate stream ls --root {root} lists what is there",
        path=candidates[0],
    )
