"""What `headgate run` writes at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.cli.run import _show
from headgate.spark.pipeline import Report, SinkReport
from headgate.spark.pipeline.sinks import Guarantee


def test_off_a_terminal_the_report_is_separated_by_tabs_and_breaks_no_path(capsys: pytest.CaptureFixture[str]) -> None:
    target = "/data/" + "a-long-folder/" * 20 + "orders"
    sink = SinkReport("orders", "events", target, 1234, False, False, 2.0, None, Guarantee.EXACTLY_ONCE)
    _show(Report("shop", Path("/data"), 2.5, [sink]), as_json=False)
    title, head, row, end = capsys.readouterr().out.splitlines()
    assert title == "pipeline shop"
    told = dict(zip(head.split("\t"), row.split("\t"), strict=True))
    assert (told["sink"], told["written"], told["output"]) == ("orders", "1,234", target)
    assert end == "2.5 s in all; streams are in /data"
