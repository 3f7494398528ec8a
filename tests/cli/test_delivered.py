"""What RabbitMQ delivered from its own stream folders, `headgate tail` delivers from the same folders."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from command_line import Run

DELIVERED = json.loads((Path(__file__).parent.parent / "data" / "delivered.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", DELIVERED, ids=lambda case: f"{case['stream']} {case['filter_values']} {case['sql']}")
def test_tail_delivers_what_rabbitmq_delivered(run: Run, rabbitmq_streams: Path, case: dict[str, Any]) -> None:
    folder = next(rabbitmq_streams.glob(f"__{case['stream']}_*"))
    options = [option for value in case["filter_values"] or () for option in ("--filter-value", value)]
    if case["sql"] is not None:
        options += ["--filter", case["sql"]]
    if case.get("match_unfiltered"):
        options += ["--match-unfiltered"]
    shown = run("tail", folder, "--offsets", *options)
    assert shown.status == 0
    assert len(shown.lines) == case["delivered"]
    assert hashlib.sha256(",".join(shown.lines).encode()).hexdigest() == case["sha256_of_offsets"]
