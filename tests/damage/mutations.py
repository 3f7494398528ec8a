"""Damage of a folder, drawn from a seed and a number: the same two give the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .originals import Original
from .plain_log import CHUNK_HEADER, FILE_HEAD_BYTES, INDEX_RECORD, PlainChunk, stems

_INDEX_FIELDS = ((0, 8), (8, 16), (16, 24), (24, 28), (24, 28), (28, 29), (28, 29))
_HEADER_FIELDS = ((0, 1), (1, 2), (2, 4), (4, 8), (8, 16), (16, 24), (24, 32), (32, 36), (36, 40), (40, 44), (44, 48))


@dataclass(frozen=True)
class Mutation:
    """What was done to which files; `files` is the folder afterwards."""

    original: Original
    kind: str
    names: tuple[str, ...]
    detail: str
    files: dict[str, bytes]

    def __str__(self) -> str:
        return f"{self.kind} {self.original.name}/{' and '.join(self.names)} {self.detail}".rstrip()

    @property
    def file_kind(self) -> str:
        """`last index`, `older segment`, `topic.journal` …: what kind of file was damaged."""
        return " and ".join(dict.fromkeys(self._kind_of(name) for name in self.names))

    def _kind_of(self, name: str) -> str:
        stem, _, ending = name.partition(".")
        if not stem.isdecimal():
            return name
        age = "last" if stem == self.original.last_stem else "older"
        return f"{age} {ending} of {'an own' if self.original.is_own else 'a foreign'} stream"

    @property
    def is_of_last_pair(self) -> bool:
        """Whether only files of the last pair were damaged, their sidecars among them."""
        return all(name.startswith(self.original.last_stem) for name in self.names)

    def first_change(self, name: str) -> int:
        """The first byte of a file that is not what it was."""
        before, after = self.original.files[name], self.files.get(name, b"")
        return next(
            (at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other),
            min(len(before), len(after)),
        )

    @property
    def is_cut_tail(self) -> bool:
        """Whether it looks like a crash: files of the last pair end early, or with zeros, or both of them are gone."""
        log_files = [name for name in self.names if name.endswith((".index", ".segment"))]
        gone = [name for name in log_files if name not in self.files]
        if not log_files or not self.is_of_last_pair or len(gone) == 1:
            return False
        return all(self._ends_early(name) for name in log_files)

    def _ends_early(self, name: str) -> bool:
        before, after = self.original.files[name], self.files.get(name, b"")
        at = self.first_change(name)
        return len(after) <= len(before) and not after[at:].strip(b"\0")

    @property
    def is_short_index(self) -> bool:
        """Whether nothing but the last index of one of our streams was cut."""
        name = f"{self.original.last_stem}.index"
        if not self.original.is_own or self.names != (name,) or name not in self.files:
            return False
        before, after = self.original.files[name], self.files[name]
        return len(after) < len(before) and before.startswith(after)

    @property
    def is_in_last_chunk(self) -> bool:
        """Whether what was damaged is of the last chunk only, so that a recovery may cut that chunk."""
        if not self.original.chunks:
            return False
        last = self.original.chunks[-1]
        begins = {
            f"{last.stem}.index": FILE_HEAD_BYTES + last.number * INDEX_RECORD.size,
            f"{last.stem}.segment": last.position,
        }
        return all(name in begins and self.first_change(name) >= begins[name] for name in self.names)

    @property
    def changes_last_chunk(self) -> bool:
        """Whether bytes of the last chunk changed: a recovery may cut that chunk, whatever else is damaged."""
        if not self.original.chunks:
            return False
        last = self.original.chunks[-1]
        name = f"{last.stem}.segment"
        part = slice(last.position, last.end)
        return self.files.get(name, b"")[part] != self.original.files[name][part]


def draw(originals: Sequence[Original], seed: int, number: int) -> Mutation:
    """The mutation of that number."""
    chance = random.Random(f"{seed}/{number}")
    while True:
        original = chance.choices(originals, weights=[each.weight for each in originals])[0]
        kind = chance.choices(list(_KINDS), weights=[weight for _, weight in _KINDS.values()])[0]
        mutation = _KINDS[kind][0](original, chance, kind)
        if mutation.files != original.files:
            return mutation


def _pick(original: Original, chance: random.Random) -> str:
    """A file; segments and indexes more often than what else is there."""
    names = sorted(original.files)
    weights = [
        {"index": 6.0, "segment": 6.0}.get(name.rpartition(".")[2], 0.5 if name.endswith(".lock") else 3.0)
        for name in names
    ]
    return chance.choices(names, weights=weights)[0]


def _changed(original: Original, kind: str, detail: str, **changes: bytes | None) -> Mutation:
    files = {name: content for name, content in (original.files | changes).items() if content is not None}
    return Mutation(original, kind, tuple(changes), detail, files)


def _place(original: Original, name: str, chance: random.Random) -> int:
    """A byte of a file, as often of a small field as of a large one."""
    content = original.files[name]
    stem, _, ending = name.partition(".")
    chunks = [chunk for chunk in original.chunks if chunk.stem == stem]
    if ending not in ("index", "segment") or not chunks or chance.random() < 0.1:
        return chance.randrange(len(content))
    chunk = chance.choice(chunks)
    if ending == "index":
        start, stop = chance.choice(_INDEX_FIELDS)
        base = FILE_HEAD_BYTES + chunk.number * INDEX_RECORD.size
        return base + chance.randrange(start, stop)
    return _place_in_chunk(chunk, chance)


def _place_in_chunk(chunk: PlainChunk, chance: random.Random) -> int:
    header = [(chunk.position + start, chunk.position + stop) for start, stop in _HEADER_FIELDS]
    areas = [chance.choice(header), (chunk.bloom_at, chunk.data_at), (chunk.data_at, chunk.trailer_at)]
    areas.append((chunk.trailer_at, chunk.end))
    start, stop = chance.choice([area for area in areas if area[1] > area[0]])
    return chance.randrange(start, stop)


def _flip(original: Original, chance: random.Random, kind: str) -> Mutation:
    name = _pick(original, chance)
    changed = bytearray(original.files[name])
    if not changed:
        return _changed(original, kind, "")
    at, bit = _place(original, name, chance), chance.randrange(8)
    changed[at] ^= 1 << bit
    return _changed(original, kind, f"byte {at}, bit {bit}", **{name: bytes(changed)})


def _zero(original: Original, chance: random.Random, kind: str) -> Mutation:
    name = _pick(original, chance)
    content = original.files[name]
    if not content:
        return _changed(original, kind, "")
    at = _place(original, name, chance)
    stop = len(content) if chance.random() < 0.3 else min(len(content), at + chance.choice([1, 4, 8, 29, 48, 200]))
    return _changed(
        original, kind, f"bytes {at} to {stop - 1}", **{name: content[:at] + bytes(stop - at) + content[stop:]}
    )


def _cut(original: Original, chance: random.Random, kind: str) -> Mutation:
    name = _pick(original, chance)
    content = original.files[name]
    if not content:
        return _changed(original, kind, "")
    size = chance.choice([_place(original, name, chance), _border(original, name, chance), 0])
    return _changed(original, kind, f"to {size} of {len(content)} bytes", **{name: content[:size]})


def _border(original: Original, name: str, chance: random.Random) -> int:
    """Where a record, a chunk or a line of a file begins."""
    stem, _, ending = name.partition(".")
    chunks = [chunk for chunk in original.chunks if chunk.stem == stem]
    content = original.files[name]
    if ending == "index" and chunks:
        return FILE_HEAD_BYTES + chance.randrange(len(chunks)) * INDEX_RECORD.size
    if ending == "segment" and chunks:
        return chance.choice(chunks).position
    lines = [at + 1 for at, byte in enumerate(content[:-1]) if byte == 0x0A]
    return chance.choice([0, *lines])


def _cut_pair(original: Original, chance: random.Random, kind: str) -> Mutation:
    """Index and segment at one border of chunks: what the files were a moment before."""
    if not original.chunks:
        return _changed(original, kind, "")
    chunk = chance.choice(original.chunks)
    index, segment = f"{chunk.stem}.index", f"{chunk.stem}.segment"
    return _changed(
        original,
        kind,
        f"before chunk {chunk.number}",
        **{
            index: original.files[index][: FILE_HEAD_BYTES + chunk.number * INDEX_RECORD.size],
            segment: original.files[segment][: chunk.position],
        },
    )


def _swap(original: Original, chance: random.Random, kind: str) -> Mutation:
    """Two places of a file: records, chunks, or any bytes."""
    name = _pick(original, chance)
    content = original.files[name]
    stem, _, ending = name.partition(".")
    chunks = [chunk for chunk in original.chunks if chunk.stem == stem]
    if ending == "index" and len(chunks) > 1:
        rows = sorted(chance.sample(range(len(chunks)), 2))
        spans = [(FILE_HEAD_BYTES + row * INDEX_RECORD.size, INDEX_RECORD.size) for row in rows]
    elif ending == "segment" and len(chunks) > 1 and chance.random() < 0.7:
        pair = sorted(chance.sample(range(len(chunks)), 2))
        spans = [(chunks[row].position, chunks[row].end - chunks[row].position) for row in pair]
    else:
        size = chance.choice([1, 4, 16, CHUNK_HEADER.size])
        if len(content) < 2 * size:
            return _changed(original, kind, "")
        first = chance.randrange(len(content) - 2 * size + 1)
        spans = [(first, size), (chance.randrange(first + size, len(content) - size + 1), size)]
    (one, one_size), (two, two_size) = spans
    swapped = b"".join(
        (
            content[:one],
            content[two : two + two_size],
            content[one + one_size : two],
            content[one : one + one_size],
            content[two + two_size :],
        )
    )
    return _changed(original, kind, f"{one_size} bytes at {one} with {two_size} at {two}", **{name: swapped})


def _swap_files(original: Original, chance: random.Random, kind: str) -> Mutation:
    """The contents of two files of one kind."""
    ending = chance.choice([".index", ".segment"] if original.chunks else sorted(map(_ending, original.files)))
    names = sorted(name for name in original.files if _ending(name) == ending)
    if len(names) < 2:
        return _changed(original, kind, "")
    one, two = chance.sample(names, 2)
    return _changed(original, kind, "", **{one: original.files[two], two: original.files[one]})


def _ending(name: str) -> str:
    return name[name.rindex(".") :] if "." in name else name


def _delete(original: Original, chance: random.Random, kind: str) -> Mutation:
    return _changed(original, kind, "", **{_pick(original, chance): None})


def _delete_pair(original: Original, chance: random.Random, kind: str) -> Mutation:
    """A pair with its sidecars, as retention does."""
    if not original.chunks:
        return _changed(original, kind, "")
    stem = chance.choice(stems(original.files))
    return _changed(original, kind, "", **{name: None for name in original.files if name.startswith(stem)})


def _duplicate_tail(original: Original, chance: random.Random, kind: str) -> Mutation:
    name = _pick(original, chance)
    content = original.files[name]
    if not content:
        return _changed(original, kind, "")
    at = chance.choice([_place(original, name, chance), _border(original, name, chance)])
    return _changed(original, kind, f"from byte {at}", **{name: content + content[at:]})


_KINDS: dict[str, tuple[Callable[[Original, random.Random, str], Mutation], float]] = {
    "flip": (_flip, 8),
    "zero": (_zero, 4),
    "cut": (_cut, 4),
    "cut pair": (_cut_pair, 1),
    "swap": (_swap, 3),
    "swap files": (_swap_files, 0.7),
    "delete": (_delete, 1.5),
    "delete pair": (_delete_pair, 0.8),
    "duplicate tail": (_duplicate_tail, 2.5),
}
