"""The command line as a whole: help, exit status, errors."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path

import pytest
from cyclopts import App

from command_line import Run
from headgate.cli import main
from headgate.cli.application import WHO_ASKS, application
from headgate.errors import AuthenticationError, ConfigError, HeadgateError
from waiting import LIMIT_S

COMMANDS = [
    ["stream"],
    ["stream", "create"],
    ["stream", "ls"],
    ["stream", "info"],
    ["stream", "dump"],
    ["stream", "verify"],
    ["stream", "adopt"],
    ["stream", "change"],
    ["backup"],
    ["stream", "bloom"],
    ["tail"],
    ["publish"],
    ["filter"],
    ["filter", "check"],
    ["filter", "explain"],
    ["rule", "explain"],
    ["filter", "test"],
    ["consumer", "ls"],
    ["consumer", "lag"],
    ["user", "add"],
    ["user", "rm"],
    ["user", "ls"],
    ["user", "password"],
    ["user", "permit"],
    ["kernels", "compile"],
    ["kernels", "ls"],
    ["serve"],
    ["run"],
    ["generate"],
    ["table", "publish"],
    ["table", "ls"],
    ["table", "drop"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help(run: Run, command: list[str]) -> None:
    shown = run(*command, "--help")
    assert shown.status == 0
    assert f"Usage: headgate {' '.join(command)}" in shown.out


def _options(commands: App, words: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[str, tuple[str, ...]]]]:
    """Every command with its options and the variables of the environment that stand for them."""
    for word in commands:
        if word.startswith("-"):
            continue
        command = commands[word]
        if command.default_command is not None:
            arguments = command.assemble_argument_collection()
            yield " ".join((*words, word)), {one.name: one.parameter.env_var for one in arguments}
        yield from _options(command, (*words, word))


def test_commands_on_a_server_all_name_it_and_its_user_in_the_same_way() -> None:
    place = {
        "--root": ("HEADGATE_ROOT",),
        "--server": ("HEADGATE_SERVER",),
        "--user": ("HEADGATE_USER",),
        "--password": ("HEADGATE_TOKEN", "HEADGATE_PASSWORD"),
    }
    on_servers = {
        command: options for command, options in _options(application) if options.keys() & place.keys() - {"--root"}
    }
    assert {"tail", "publish", "stream ls", "stream verify", "consumer lag", "user add"} <= on_servers.keys()
    for command, options in on_servers.items():
        assert {name: options.get(name) for name in place} == place, command


READING = [
    ["audit"],
    ["backup", "copy"],
    ["stream", "ls"],
    ["stream", "info", "orders"],
    ["tail", "orders"],
    ["why", "orders", "--offset", "1"],
    ["consumer", "ls"],
    ["consumer", "lag"],
    ["columns", "ls"],
    ["columns", "build"],
    ["lookup", "ls"],
    ["lookup", "build"],
    ["index", "ls"],
    ["index", "build"],
    ["table", "ls"],
    ["topic", "ls"],
    ["topic", "show", "orders"],
    ["topic", "rm", "orders"],
    ["subscription", "ls", "orders"],
    ["rocketmq", "topic", "ls"],
    ["rocketmq", "group", "ls"],
    ["rocketmq", "group", "rm", "orders"],
    ["servicebus", "export"],
    ["user", "ls"],
    ["user", "password", "guest"],
    ["key", "ls"],
    ["key", "rm", "orders"],
]


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_folder_that_is_no_root_is_named_and_left_alone(run: Run, tmp_path: Path, command: list[str]) -> None:
    missing, other = tmp_path / "missing", tmp_path / "other"
    other.mkdir()
    other.joinpath("file").touch()
    shown = run(*command, "--root", missing, stdin="secret\n")
    assert shown.status == 1 and f"{missing}: there is no such folder; --root or HEADGATE_ROOT" in shown.err
    shown = run(*command, "--root", other, stdin="secret\n")
    assert shown.status == 1 and f"{other}: the folder is no root: it has no folder 'streams'" in shown.err
    assert not missing.exists() and [path.name for path in other.iterdir()] == ["file"]


def test_the_folder_of_streams_is_not_taken_for_the_root_above_it(run: Run, tmp_path: Path) -> None:
    run("stream", "create", "orders")
    assert (
        f"give the folder above: --root {tmp_path / 'root'}"
        in run("stream", "ls", "--root", tmp_path / "root" / "streams").err
    )


def test_only_a_wrong_command_line_has_the_exit_status_of_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kinds(of: type[HeadgateError]) -> Iterator[type[HeadgateError]]:
        yield of
        for kind in of.__subclasses__():
            yield from kinds(kind)

    raised: list[HeadgateError] = []
    tmp_path.joinpath("root").mkdir()

    def failing(*_: object) -> None:
        raise raised[-1]

    monkeypatch.setattr("headgate.cli.stream._streams_of_folder", failing)
    for kind in set(kinds(HeadgateError)):
        monkeypatch.setattr(kind, "__str__", lambda _: "reason")
        raised.append(kind.__new__(kind))
        advice = f"; {WHO_ASKS}" if issubclass(kind, AuthenticationError) else ""
        shown = run("stream", "ls")
        assert (shown.status, shown.err) == (2 if kind is ConfigError else 1, f"headgate: reason{advice}\n"), kind


@pytest.mark.parametrize("arguments", [["strea"], ["stream", "mak"], ["tail"], ["stream", "create", "a", "b"]])
def test_wrong_usage_ends_with_two_and_says_why_on_standard_error(run: Run, arguments: list[str]) -> None:
    shown = run(*arguments)
    assert (shown.status, shown.out) == (2, "")
    assert shown.err


def test_root_is_taken_from_the_option_before_the_environment(run: Run, tmp_path: object) -> None:
    other = f"{tmp_path}/other"
    assert run("stream", "create", "here", "--root", other).out.startswith(other)
    assert run("stream", "ls").out == ""
    assert "here" in run("stream", "ls", "--root", other).out


@pytest.mark.slow
def test_interrupt_ends_with_130_and_without_a_traceback(run: Run) -> None:
    run("stream", "create", "orders")
    run("publish", "orders", stdin='{"body": "x"}\n')
    with subprocess.Popen(
        [sys.executable, "-m", "headgate.cli", "tail", "orders", "--follow", "--offsets"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What a shell starts in the background passes on that it ignores this signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as following:
        try:
            assert following.stdout is not None
            assert following.stdout.readline() == "0\n"
            following.send_signal(signal.SIGINT)
            _, error = following.communicate(timeout=LIMIT_S)
        finally:
            following.kill()
    assert (following.returncode, error) == (130, "")


def test_file_that_cannot_be_read_is_named(run: Run, tmp_path: object) -> None:
    run("stream", "create", "orders")
    shown = run("publish", "orders", f"{tmp_path}/nothing.jsonl")
    assert shown.status == 1
    assert "nothing.jsonl" in shown.err
    assert "Traceback" not in shown.err


def test_colours_and_frames_stay_out_of_files_and_pipes(orders: Run) -> None:
    for command in (["stream", "ls"], ["stream", "bloom", "--values", "10"], ["stream", "dump", "orders"]):
        assert "\x1b" not in orders(*command).out
        assert "│" not in orders(*command).out


def test_table_on_a_terminal_shows_every_cell_as_it_is() -> None:
    code = (
        "from headgate.cli.output import write_table; write_table(('name', 'size'), [('[red]x[/red]', 5), (None, 7)])"
    )
    reader, terminal = os.openpty()
    subprocess.run([sys.executable, "-c", code], stdout=terminal, check=True, env={**os.environ, "TERM": "xterm"})
    os.close(terminal)
    shown = os.read(reader, 65536).decode()
    os.close(reader)
    assert "[red]x[/red]" in shown
    assert "size" in shown


def test_generate_writes_the_same_events_for_the_same_seed(run: Run, tmp_path: object) -> None:
    paths = [f"{tmp_path}/deep/{name}.jsonl" for name in ("one", "two", "three")]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        assert run("generate", path, "--events", "200", "--seed", str(seed), "--format", "jsonl").status == 0
    one, two, three = (Path(path).read_text(encoding="utf-8") for path in paths)
    assert one == two != three
    assert len([json.loads(line) for line in one.splitlines()]) == 200


@pytest.mark.parametrize("options", [["--events", "0"], ["--format", "csv"], ["--events", "many"]])
def test_generate_names_a_wrong_option(run: Run, tmp_path: object, options: list[str]) -> None:
    shown = run("generate", f"{tmp_path}/events", *options)
    assert shown.status == 2
    assert options[0].strip("-") in shown.err


def test_pipeline_that_is_not_there_is_named_before_spark_starts(run: Run, tmp_path: object) -> None:
    shown = run("run", f"{tmp_path}/nothing.toml")
    assert shown.status in (1, 2)
    assert "nothing.toml" in shown.err


def test_a_command_that_needs_spark_says_where_it_comes_from(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("headgate.spark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    shown = run("run", "pipeline.toml")
    assert shown.status == 1
    assert "pip install 'headgate[spark]'" in shown.err


@pytest.mark.parametrize(
    "command", [given for given in COMMANDS if given[-1] not in ("stream", "filter")], ids=" ".join
)
def test_every_option_is_in_the_reference(command: list[str]) -> None:
    reference = (Path(__file__).parent.parent.parent / "docs" / "cli.md").read_text(encoding="utf-8")
    assert f"headgate {' '.join(command)}" in reference
    found = application
    for word in command:
        found = found[word]
    options = {
        name for argument in found.assemble_argument_collection() for name in argument.names if name.startswith("-")
    }
    assert {option for option in options if option not in reference} == set()


def test_an_interrupt_before_the_commands_are_there_leaves_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting(MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            if name == "headgate.cli.application":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "headgate.cli.application")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert main(["stream", "ls"]) == 130


SCRIPTS = {
    "bash": (".local/share/bash-completion/completions/headgate", ".bashrc"),
    "zsh": (".zsh/completions/_cyclopts_headgate", ".zshrc"),
    "fish": (".config/fish/completions/headgate.fish", None),
}


@pytest.mark.slow
@pytest.mark.parametrize("shell", SCRIPTS)
def test_completion_is_installed_for_a_shell(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    for name in ("ZSH", "ZSH_CUSTOM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    script, start_file = SCRIPTS[shell]
    for _ in range(2):
        shown = run("--install-completion", "--shell", shell)
        assert (shown.status, shown.out) == (0, f"{tmp_path / script}\n")
    text = (tmp_path / script).read_text()
    assert "publish" in text and "follow" in text
    if start_file is not None:
        assert (tmp_path / start_file).read_text().count(str((tmp_path / script).parent)) in (1, 2)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_and_options(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run("--install-completion", "--shell", "bash").status == 0
    asked = """
    . ~/.bashrc
    complete -p headgate
    COMP_WORDS=(headgate stream ver); COMP_CWORD=2; _headgate; echo "${COMPREPLY[@]}"
    COMP_WORDS=(headgate tail orders --fol); COMP_CWORD=3; _headgate; echo "${COMPREPLY[@]}"
    """
    ended = subprocess.run(["bash", "--norc", "-c", asked], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["complete -F _headgate headgate", "verify", "--follow"]


def test_a_shell_that_is_not_recognized_has_to_be_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cyclopts.completion.detect.detect_shell", lambda: "powershell")
    shown = run("--install-completion")
    assert shown.status == 2
    assert "--shell: found powershell, expected bash, zsh, fish" in shown.err
