"""The plugin for pytest: the example of the documentation, as a user runs it, and what it costs those who do not."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent


def run_pytest(*arguments: object, cwd: Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    """A run with this plugin alone, as an environment has it in which Headgate is installed."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "headgate.testing.plugin",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
    ]
    temporary.mkdir()
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", "-q", "--strict-markers", "-W", "error", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(temporary)},
    )


def test_the_example_of_the_documentation_passes_and_leaves_no_folder(tmp_path: Path) -> None:
    pytest.importorskip("azure.servicebus", reason="the Python clients are not installed: `make clients`")
    example = PROJECT / "examples" / "servicebus"
    ended = run_pytest("--rootdir", example, example, cwd=tmp_path, temporary=tmp_path / "temporary")
    assert ended.returncode == 0 and "2 passed" in ended.stdout, ended.stdout + ended.stderr
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_wrong_entity_is_an_error_of_that_test_only(tmp_path: Path) -> None:
    tests = tmp_path / "test_it.py"
    tests.write_text(
        "import pytest\n"
        "@pytest.mark.headgate_entities(queue=[{'name': ''}])\n"
        "def test_wrong(headgate_server): pass\n"
        "def test_right(headgate_server): assert headgate_server.ports['amqp']\n",
        encoding="utf-8",
    )
    ended = run_pytest(tests, cwd=tmp_path, temporary=tmp_path / "temporary")
    assert "1 passed, 1 error" in ended.stdout and "ConfigError" in ended.stdout, ended.stdout + ended.stderr


def test_pytest_finds_the_plugin_which_imports_nothing_until_it_is_used() -> None:
    entry_points = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    assert entry_points["pytest11"] == {"headgate": "headgate.testing.plugin"}
    code = (
        "import pytest, sys\n"
        "before = set(sys.modules)\n"
        "import headgate.testing.plugin\n"
        "print(sorted(set(sys.modules) - before))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    light = ["", ".faces", ".testing", ".testing.plugin", ".version"]
    assert ended.stdout.strip() == str([f"headgate{name}" for name in light])
