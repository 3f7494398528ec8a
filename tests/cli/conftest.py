"""Running the command line inside the test process."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from command_line import Outcome, Run
from headgate import kernels
from headgate.cli import main


@pytest.fixture(scope="session", autouse=True)
def _compiled_kernels() -> None:
    """Compiled before the first command: none of them tells that it has to wait."""
    for module in kernels.FILTER:
        kernels.load(module)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `headgate` with a root of its own; `stdin` is what the command reads."""
    monkeypatch.setenv("HEADGATE_ROOT", str(tmp_path / "root"))

    def run(*arguments: object, stdin: str = "") -> Outcome:
        given = tmp_path / "stdin"
        given.write_text(stdin, encoding="utf-8")
        kept = os.dup(0)
        with given.open("rb") as file:
            os.dup2(file.fileno(), 0)
            try:
                with monkeypatch.context() as patched, open(0, "rb", closefd=False) as standard_input:
                    patched.setattr("sys.stdin", standard_input)
                    status = main([str(argument) for argument in arguments])
            finally:
                os.dup2(kept, 0)
                os.close(kept)
        shown = capsys.readouterr()
        return Outcome(status, shown.out, shown.err)

    return run


@pytest.fixture
def orders(run: Run) -> Run:
    """A stream `orders` with 30 messages in three chunks, filter values AMER, EMEA, and none."""
    assert run("stream", "create", "orders").status == 0
    for region in ("AMER", "EMEA", None):
        lines = [
            json.dumps(
                {
                    "subject": "order.created" if number % 2 else "order.paid",
                    "application_properties": {"region": region, "price": number * 10},
                    "body": f"order {number}",
                    "filter_value": region,
                }
            )
            for number in range(10)
        ]
        assert run("publish", "orders", stdin="\n".join(lines) + "\n").status == 0
    return run
