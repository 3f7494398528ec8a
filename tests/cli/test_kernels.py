"""`headgate kernels`, and what commands do while kernels are compiled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from command_line import Run
from headgate import kernels
from headgate.cli.output import tell_compiling
from headgate.kernels.precompile import CacheEntry, tell_progress
from waiting import LIMIT_S

SLOW_START = """
import sys
from headgate.cli import main
from headgate.kernels import cache, precompile, sources
from headgate.server import process
cache.is_missing = lambda source: bool(sources.kernel_count(source))
child = "import sys; open(sys.argv[1]).read(); [print(module, flush=True) for module in sys.argv[2:]]"
precompile.CHILD = (sys.executable, "-c", child, sys.argv[1])
process.KERNELS_WITHIN_S = 3600.0
sys.exit(main(sys.argv[2:]))
"""
"""A command whose kernels are compiled when somebody opens the FIFO named first."""


@contextmanager
def slow_start(fifo: Path, *arguments: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
    os.mkfifo(fifo)
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_START, str(fifo), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "HEADGATE_KERNELS"} | environment,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            finish_children(fifo)


def finish_children(fifo: Path) -> None:
    """Let all children of a command go on; each reads the FIFO once."""
    while True:
        try:
            os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return


def test_tail_shows_messages_before_its_kernels_are_compiled_and_tells_of_compiling(
    orders: Run, tmp_path: Path
) -> None:
    fifo = tmp_path / "go"
    with slow_start(fifo, "tail", "orders", "--filter", "region = 'EMEA'", "--offsets", "--follow") as process:
        assert process.stdout is not None and process.stderr is not None
        assert [int(process.stdout.readline()) for _ in range(10)] == list(range(10, 20))
        begins = process.stderr.readline()
        assert begins.startswith("compiling filter kernels, once per version: 0 of ")
        total = begins.split()[-1]
        fifo.write_text("", encoding="utf-8")
        assert process.stderr.readline() == begins.replace(": 0 of", f": {total} of")


def test_serve_is_ready_before_its_kernels_are_compiled(tmp_path: Path) -> None:
    fifo = tmp_path / "go"
    free = {
        f"HEADGATE_SERVER__LISTENERS__{name}": "0"
        for name in ("AMQP", "STREAM", "STOMP", "HTTP", "SERVICEBUS", "ROCKETMQ", "ROCKETMQ_NAMES", "ROCKETMQ_CLASSIC")
    }
    with slow_start(
        fifo, "serve", "--root", tmp_path / "root", HEADGATE_SERVER__LISTENERS__HOST="127.0.0.1", **free
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready: ")
        finish_children(fifo)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=LIMIT_S)
    assert "info headgate.kernels: compiling filter kernels, once per version: 0 of " in log
    assert log.count(": 0 of ") == 1
    assert "ready before the kernels are" in log


@pytest.mark.parametrize(
    ("missing", "options", "wanted"),
    [
        (True, [], kernels.READ),
        (True, ["--filter", "price > 1"], kernels.FILTER),
        (False, ["--filter", "price > 1"], None),
    ],
)
def test_tail_has_compiled_only_what_it_needs(
    orders: Run,
    monkeypatch: pytest.MonkeyPatch,
    missing: bool,
    options: list[str],
    wanted: tuple[str, ...] | None,
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(kernels, "missing", lambda modules: list(modules) if missing else [])
    monkeypatch.setattr(kernels, "load_in_background", asked.append)
    assert orders("tail", "orders", *options).status == 0
    assert asked == ([] if wanted is None else [wanted])


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_noted_step_by_step_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    tell_compiling()
    for done in (0, 12, 31):
        tell_progress(done, 31)
    told = [0, 12, 31] if is_terminal else [0, 31]
    assert capsys.readouterr().err.splitlines() == [
        f"compiling filter kernels, once per version: {done} of 31" for done in told
    ]


def test_kernels_compile_compiles_all_that_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    entries = [CacheEntry("one", 2, True, "folder"), CacheEntry("two", 3, True, "folder")]
    monkeypatch.setattr(kernels, "compile_missing", asked.append)
    monkeypatch.setattr(kernels, "cache_entries", lambda: entries)
    shown = run("kernels", "compile")
    assert (shown.status, shown.lines) == (0, ["5 kernels compiled"])
    assert asked == [kernels.kernel_modules()]


def test_kernels_that_cannot_be_compiled_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    entries = [CacheEntry("one", 2, True, "folder"), CacheEntry("two", 3, False, None)]
    monkeypatch.setattr(kernels, "compile_missing", lambda _modules: None)
    monkeypatch.setattr(kernels, "cache_entries", lambda: entries)
    monkeypatch.setattr(kernels, "load", loaded.append)
    shown = run("kernels", "compile")
    assert (shown.status, shown.out) == (1, "")
    assert shown.err.startswith("headgate: not in the cache: two;")
    assert loaded == ["two"]


def test_kernels_compile_shared_compiles_for_every_server_and_says_which_file_has_them(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[object] = []
    monkeypatch.setenv(kernels.PROCESSOR_VARIABLE, "native")
    monkeypatch.setattr(kernels, "compile_missing", asked.append)
    monkeypatch.setattr(
        kernels, "link_shared", lambda: tmp_path / os.environ[kernels.PROCESSOR_VARIABLE] if asked else None
    )
    shown = run("kernels", "compile", "--shared")
    assert (shown.status, shown.lines) == (0, [f"all kernels are in {tmp_path / 'shared'}"])
    assert asked == [kernels.shared_modules()]


@pytest.mark.parametrize("command", [["compile"], ["compile", "--shared"], ["ls"]])
def test_kernels_that_are_switched_off_are_an_error(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("HEADGATE_KERNELS", "off")
    monkeypatch.setenv(kernels.PROCESSOR_VARIABLE, "native")
    shown = run("kernels", *command)
    assert shown.status == 1 and "switched off" in shown.err


def test_kernels_ls_says_what_is_in_which_folder(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from headgate.kernels import cache

    compiled, other = tmp_path / "compiled", tmp_path / "other"
    for folder in (compiled, other):
        folder.mkdir()
    (compiled / "code").write_bytes(b"")
    monkeypatch.setattr(cache, "cache_folder", lambda source: compiled if "log" in source.parts else other)
    rows = {row["module"]: row for row in run("kernels", "ls", "--json").json}
    assert set(rows) == set(kernels.kernel_modules())
    assert rows["headgate.log.kernel"] == {
        "module": "headgate.log.kernel",
        "kernels": 3,
        "is_compiled": True,
        "folder": str(compiled),
    }
    assert {module for module, row in rows.items() if row["is_compiled"]} == {"headgate.log.kernel"}
