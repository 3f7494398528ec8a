"""`headgate export`: messages as files for other programs."""

from __future__ import annotations

from pathlib import Path

from command_line import Run


def test_what_passes_the_filter_is_in_the_file(run: Run, tmp_path: Path) -> None:
    run("stream", "create", "orders")
    lines = [f'{{"application_properties": {{"region": "{region}"}}}}' for region in ("EMEA", "AMER", "EMEA")]
    run("publish", "orders", stdin="\n".join(lines) + "\n")
    target = tmp_path / "orders.csv"
    done = run(
        "export", "orders", "--to", str(target), "--columns", "offset, region string", "--filter", "region = 'EMEA'"
    )
    assert (done.status, done.err) == (0, f"2 messages in {target}\n")
    assert target.read_text() == '"offset","region"\n0,"EMEA"\n2,"EMEA"\n'


def test_a_file_of_no_known_format_is_refused(run: Run, tmp_path: Path) -> None:
    run("stream", "create", "orders")
    refused = run("export", "orders", "--to", str(tmp_path / "orders.xlsx"))
    assert refused.status == 2
    assert "the name tells the format; expected it to end with .parquet" in refused.err
    assert list(tmp_path.glob("orders.*")) == []
