"""Events written to a file, block after block."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.errors import ConfigError
from headgate.generate import FORMATS
from headgate.generate.events import BLOCK_EVENTS, SCHEMA, event_block

_JSON_ROWS = 8_192


def write_file(path: Path, *, events: int, seed: int, format: str, run_length: int) -> None:
    """As `headgate.generate.write_events` says. Raises ConfigError."""
    for name, value, least in (("events", events, 1), ("seed", seed, 0), ("run_length", run_length, 1)):
        if value < least:
            raise ConfigError(f"{name}: found {value}, expected a number from {least}")
    if format not in FORMATS:
        raise ConfigError(f"format: found {format!r}, expected one of {', '.join(FORMATS)}")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; expected the name of a file to write")
    partial = path.with_name(path.name + ".partial")
    try:
        _write(partial, _blocks(events, seed, run_length), format)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None


def _blocks(events: int, seed: int, run_length: int) -> Iterator[pa.Table]:
    for block in range(-(-events // BLOCK_EVENTS)):
        table = event_block(seed, block, run_length)
        yield table.slice(0, events - block * BLOCK_EVENTS)


def _write(path: Path, blocks: Iterator[pa.Table], format: str) -> None:
    if format == "parquet":
        with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
            for block in blocks:
                writer.write_table(block)
        return
    with path.open("w", encoding="utf-8") as lines:
        for block in blocks:
            for batch in block.to_batches(max_chunksize=_JSON_ROWS):
                lines.writelines(_json_lines(batch))


def _json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    """One object per event; nulls are left out, times are ISO texts in UTC."""
    for row in batch.to_pylist():
        row["creation_time"] = row["creation_time"].isoformat(timespec="milliseconds").replace("+00:00", "Z")
        present = {name: value for name, value in row.items() if value is not None}
        yield json.dumps(present, ensure_ascii=False, separators=(",", ":")) + "\n"
