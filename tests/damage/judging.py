"""What a reader may give of a damaged folder: the truth, an error that names the file, or what the format cannot tell.

`CANNOT_SHOW` is the one list of damage that nobody can see, each with its reason, and of what readers may give then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from headgate.errors import HeadgateError
from headgate.topic.journal import JOURNAL_NAME

from .mutations import Mutation
from .plain_log import CHUNK_HEADER, FILE_HEAD_BYTES, INDEX_RECORD, PlainChunk, stems, with_unchecked_bytes

Truth = list[PlainChunk]


def _nothing(_: Mutation) -> list[Truth]:
    return []


def _no_counts(_: Mutation) -> list[int]:
    return []


@dataclass(frozen=True)
class Unshown:
    """Damage that cannot be shown: why, which mutations it is, and what readers may give then.

    `truths` are other streams that may be seen, `counts` other numbers of messages; `names_nothing`: an error need not
    say which file it is about.
    """

    reason: str
    applies: Callable[[Mutation], bool]
    truths: Callable[[Mutation], list[Truth]] = _nothing
    counts: Callable[[Mutation], list[int]] = _no_counts
    names_nothing: bool = False


def whole_chunks(mutation: Mutation) -> int:
    """How many chunks lie before everything that was changed in the last pair, all chunks before it included.

    The index of a stream of ours is made again from its segment.
    """
    chunks = mutation.original.chunks
    last = mutation.original.last_stem
    limits = {name: mutation.first_change(name) for name in mutation.names}
    index_limit = 1 << 62 if mutation.original.is_own else limits.get(f"{last}.index", 1 << 62)
    segment_limit = limits.get(f"{last}.segment", 1 << 62)
    return sum(
        chunk.stem != last
        or (chunk.end <= segment_limit and FILE_HEAD_BYTES + (chunk.number + 1) * INDEX_RECORD.size <= index_limit)
        for chunk in chunks
    )


def _shorter_ends(mutation: Mutation) -> list[Truth]:
    return [
        chunks[:count]
        for chunks in (mutation.original.chunks, *_unchecked(mutation))
        for count in range(whole_chunks(mutation), len(chunks))
    ]


def is_oldest_gone(mutation: Mutation) -> bool:
    """A pair; in a foreign folder also its index, which the retention of RabbitMQ deletes first."""
    oldest = min(stems(mutation.original.files), default="")
    gone = [name for name in mutation.names if name not in mutation.files]
    is_gone = f"{oldest}.index" in gone and (not mutation.original.is_own or f"{oldest}.segment" in gone)
    return is_gone and all(name.startswith(oldest) for name in mutation.names)


def reaches_beyond_end(mutation: Mutation) -> bool:
    last = mutation.original.chunks[-1]
    if mutation.names != (f"{last.stem}.segment",) or not mutation.changes_last_chunk:
        return False
    segment = mutation.files.get(mutation.names[0], b"")
    if len(segment) < last.bloom_at:
        return False
    *_, data_length, trailer_length, bloom_length = CHUNK_HEADER.unpack_from(segment, last.position)
    return last.bloom_at + bloom_length + data_length + trailer_length > len(segment)


def _last_count(mutation: Mutation) -> int | None:
    """The number of records that the header of the last chunk says now."""
    last = mutation.original.chunks[-1]
    segment = mutation.files.get(f"{last.stem}.segment", b"")
    if len(segment) < last.position + CHUNK_HEADER.size:
        return None
    return int(CHUNK_HEADER.unpack_from(segment, last.position)[3])


def _count(chunks: Truth) -> int:
    return sum(chunk.num_records for chunk in chunks if chunk.chunk_type == 0)


def _other_counts(mutation: Mutation) -> list[int]:
    said = _last_count(mutation)
    *before, last = mutation.original.chunks
    assert said is not None
    return [_count(before) + (said if last.chunk_type == 0 else 0)]


def _without_oldest(mutation: Mutation) -> list[Truth]:
    oldest = min(stems(mutation.original.files), default="")
    return [[chunk for chunk in mutation.original.chunks if chunk.stem != oldest]]


def is_unchecked(mutation: Mutation, chunk: PlainChunk) -> bool:
    """Whether a chunk lies in a segment without a seal."""
    return not mutation.original.is_own or chunk.stem == mutation.original.last_stem


def _unchecked(mutation: Mutation) -> list[Truth]:
    chunks = mutation.original.chunks
    return [with_unchecked_bytes(chunks, mutation.files, lambda chunk: is_unchecked(mutation, chunk))]


def _is_gone(*wanted: str) -> Callable[[Mutation], bool]:
    return lambda mutation: any(name in wanted and name not in mutation.files for name in mutation.names)


CANNOT_SHOW = (
    Unshown(
        "the last segment, or the last index of a foreign folder, is cut or ends with zeros: so a crash leaves it, "
        "before anything in there was confirmed",
        lambda mutation: mutation.is_cut_tail,
        _shorter_ends,
    ),
    Unshown(
        "the oldest pair, or its index in a foreign folder, is deleted: retention does that, and keeps no record of it",
        is_oldest_gone,
        _without_oldest,
        names_nothing=True,
    ),
    Unshown(
        "the header of the last chunk says more bytes than the file has: so does a chunk that a crash cut off",
        reaches_beyond_end,
        lambda mutation: [mutation.original.chunks[:-1]],
    ),
    Unshown(
        "the header of the last chunk says another number of records: only who reads the chunk can count them",
        lambda mutation: _last_count(mutation) not in (None, mutation.original.chunks[-1].num_records),
        counts=_other_counts,
    ),
    Unshown(
        "filters, times and trailers of open and of foreign segments have no checksum in the format",
        lambda _: True,
        _unchecked,
    ),
    Unshown(
        "nothing is left of the log: there is no file to name",
        lambda mutation: not any(name.endswith((".index", ".segment")) for name in mutation.files),
        names_nothing=True,
    ),
    Unshown(
        "a file of a foreign folder's only pair is gone: nothing says that the folder was a stream",
        lambda mutation: (
            not mutation.original.is_own
            and not any(f"{stem}.segment" in mutation.files for stem in stems(mutation.files))
        ),
        names_nothing=True,
    ),
    Unshown(
        "stream.json is gone: the folder is a foreign one, which is not called after its stream",
        _is_gone("stream.json"),
        names_nothing=True,
    ),
    Unshown(
        "topic.journal is gone: the folder is a plain stream, and who asks for rules is told that there are none",
        _is_gone(JOURNAL_NAME),
        names_nothing=True,
    ),
)


def truths(mutation: Mutation) -> list[Truth]:
    """What a reader may see without an error, the whole stream first."""
    found = [mutation.original.chunks]
    for unshown in CANNOT_SHOW:
        if unshown.applies(mutation):
            found += unshown.truths(mutation)
    return found


def message_counts(mutation: Mutation) -> set[int]:
    """How many messages there may be by what index and headers say."""
    found = {_count(truth) for truth in truths(mutation)}
    for unshown in CANNOT_SHOW:
        if unshown.applies(mutation):
            found.update(unshown.counts(mutation))
    return found


def truths_of_writers(mutation: Mutation) -> list[Truth]:
    """What may be left after a recovery: the last chunk may go if it is damaged."""
    found = truths(mutation)
    if mutation.changes_last_chunk:
        found.append(mutation.original.chunks[:-1])
    return found


def names_file(mutation: Mutation, error: HeadgateError) -> bool:
    """Whether an error says which file is damaged, with its folder; of one that is gone, any file beside it."""
    if any(unshown.names_nothing and unshown.applies(mutation) for unshown in CANNOT_SHOW):
        return True
    folder = re.escape(mutation.original.name.removesuffix("_1")) + r"-\d+(_1)?/"
    said = {name for name in (*mutation.files, *mutation.names) if re.search(folder + re.escape(name[:20]), str(error))}
    is_gone = any(name not in mutation.files for name in mutation.names)
    return any(name in said for name in mutation.names) or (is_gone and bool(said))
