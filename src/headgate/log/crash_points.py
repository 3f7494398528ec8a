"""Places where tests end the process as `kill -9` would, to prove that a commit survives it."""

from __future__ import annotations

import os
import signal
from collections import Counter
from enum import StrEnum

VARIABLE = "HEADGATE_CRASH_AT"
"""Environment variable, for tests only: `<step>` or `<step>:<n>`; the process dies when it reaches the step n times."""


class CommitStep(StrEnum):
    """Steps of a commit, in their order; the process can die at each."""

    STAGED = "staged"
    """All chunks are staged; there is no manifest yet."""
    PUBLISHED = "published"
    """The manifest has its name; nothing is appended."""
    APPENDING = "appending"
    """Before each block of chunks that is appended."""
    APPENDED = "appended"
    """All chunks of one output are appended; `stream.json` does not have its last sequence yet."""
    RECORDED = "recorded"
    """`stream.json` of one output has the last sequence; other outputs may be missing."""
    FINISHED = "finished"
    """All outputs are recorded; manifest and staged files still exist."""
    COMPLETED = "completed"
    """Nothing is left to do."""


class AdoptionStep(StrEnum):
    """Steps of making a staged file a segment, in their order; part of a commit."""

    STAMPED = "adoption-stamped"
    """The staged file has head, ids and sequences."""
    INDEXED = "adoption-indexed"
    """There is an index without a record, and no segment of its name."""
    RENAMED = "adoption-renamed"
    """The segment has its name; the index has no record."""
    RECORDED = "adoption-recorded"
    """Readers see the chunks; retention has not looked at the stream."""


class MoveStep(StrEnum):
    """Steps of moving a segment to object storage, and of deleting it there, in their order."""

    UPLOADED = "move-uploaded"
    """The objects are written; no catalogue names them."""
    CATALOGUED = "move-catalogued"
    """Both catalogues name the segment; its files are still in the stream's folder."""
    RELEASED = "move-released"
    """The files in the stream's folder are gone."""
    DROPPED = "move-dropped"
    """No catalogue names the segment; its objects are still there."""
    DERIVED_SENT = "move-derived-sent"
    """New derived files are written; no list names them."""
    DERIVED_LISTED = "move-derived-listed"
    """Both lists name the derived files; objects that are not in it are still there."""


class BuildStep(StrEnum):
    """Steps of building a derived file, in their order."""

    WRITING = "build-writing"
    """After each row group of a column file."""
    WRITTEN = "build-written"
    """The content is written; a column file lacks its checks."""
    CHECKED = "build-checked"
    """The whole file is on the disk under its temporary name."""
    RENAMED = "build-renamed"
    """The file has its name."""


class PublishStep(StrEnum):
    """Steps of publishing to a table, in their order."""

    STORED = "table-stored"
    """After each data file that lies where the table expects it; no snapshot has it."""
    COMMITTED = "table-committed"
    """A snapshot with new segments is committed; its files are still listed as waste."""
    REMOVED = "table-removed"
    """The snapshot without the segments that the log does not have any more is committed."""
    EXPIRING = "table-expiring"
    """The files of old snapshots alone are written down; the snapshots still exist."""
    EXPIRED = "table-expired"
    """The old snapshots are gone, their files are not."""


_reached: Counter[str] = Counter()


def reached(step: CommitStep | AdoptionStep | MoveStep | BuildStep | PublishStep) -> None:
    """Die here if the environment says so."""
    wanted, _, number = os.environ.get(VARIABLE, "").partition(":")
    if wanted == step:
        _reached[step] += 1
        if _reached[step] == int(number or 1):
            os.kill(os.getpid(), signal.SIGKILL)
