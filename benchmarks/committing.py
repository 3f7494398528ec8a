"""Staging chunks in tasks and appending them: what one process, the driver, can commit a second.

The baseline writes as many bytes to one new file, in the same blocks: whoever appends cannot be faster than the page
cache takes them.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from harness import measure, report

from headgate.log import Stream, stream_folder
from headgate.log.chunk_builder import FilterValues
from headgate.log.commit import abort_batch, commit_batch, output_of
from headgate.log.roll_forward import BLOCK_BYTES
from headgate.log.staging import StagedChunks, StagedFile

MESSAGES = 1_000_000
BATCH = 65_536
PARTS = 2
ROUNDS = 5


def main() -> None:
    random = np.random.default_rng(20_26)
    lengths = random.integers(150, 250, MESSAGES)
    starts = np.cumsum(lengths) - lengths
    data = random.integers(0, 256, int(lengths.sum()) + 8, dtype=np.uint8)
    kinds = FilterValues.of([b"user.login", b"product.view", b"cart.add", b"order.created"])
    picked = random.integers(0, len(kinds), MESSAGES)
    values = FilterValues(kinds.data, kinds.starts[picked], kinds.lengths[picked])
    root = Path(tempfile.mkdtemp(prefix="headgate-benchmark-"))
    stream = Stream.create(stream_folder(root, "target"), name="target", now_ms=0)
    staged: list[StagedChunks | None] = []
    batches = itertools.count()

    def stage() -> None:
        staged.clear()
        for part in range(PARTS):
            file = StagedFile(root, query="benchmark", name=f"part-{part}", filter_size_bytes=16)
            share = MESSAGES // PARTS
            for first in range(part * share, (part + 1) * share, BATCH):
                rows = slice(first, min(first + BATCH, (part + 1) * share))
                file.add(data, starts[rows], lengths[rows], values.slice(rows.start, rows.stop))
            staged.extend(file.finish(durable=False))

    def commit(durable: bool) -> None:
        output = output_of(root, stream.path, staged, identity=stream.identity)
        commit_batch(root, query="benchmark", batch=next(batches), outputs=[output], now_ms=0, durable=durable)

    def write_plain() -> None:
        descriptor = os.open(root / "plain", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for position in range(0, size, BLOCK_BYTES):
            os.pwrite(descriptor, data[position : position + BLOCK_BYTES].data, position)
        os.close(descriptor)

    def remove_plain() -> None:
        (root / "plain").unlink(missing_ok=True)

    def stage_for_new_target() -> None:
        nonlocal stream
        # Without this each round fills memory that the machine never gave out, several times slower than the rest.
        shutil.rmtree(stream.path)
        stream = Stream.create(stream.path, name="target", now_ms=0)
        stage()

    def remove_staged() -> None:
        abort_batch(root, query="benchmark", staged=staged)

    try:
        size = int(lengths.sum())
        baseline = "write to one new file"
        results = [
            measure(baseline, write_plain, MESSAGES, rounds=ROUNDS, prepare=remove_plain, work_bytes=size),
            measure(
                "stage: build chunks and write them",
                stage,
                MESSAGES,
                rounds=ROUNDS,
                prepare=remove_staged,
                work_bytes=size,
            ),
            *(
                measure(
                    f"commit: append what is staged{', flushed to the disk' if durable else ''}",
                    lambda durable=durable: commit(durable),  # type: ignore[misc]
                    MESSAGES,
                    rounds=ROUNDS,
                    prepare=stage_for_new_target,
                    work_bytes=size,
                )
                for durable in (False, True)
            ),
        ]
        few, few_bytes = 1000, int(lengths[:1000].sum())

        def stage_few() -> None:
            file = StagedFile(root, query="benchmark", name="few", filter_size_bytes=16)
            file.add(data, starts[:few], lengths[:few], values.slice(0, few))
            staged[:] = file.finish(durable=False)

        results.append(
            measure(
                "commit of a batch of 1000 messages",
                lambda: commit(False),
                few,
                rounds=20,
                prepare=stage_few,
                work_bytes=few_bytes,
            )
        )
        report("committing", "Commits: messages of 150 to 250 bytes, one process", results, baseline=baseline)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
