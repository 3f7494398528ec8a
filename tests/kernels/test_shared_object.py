"""All kernels in one file: linked by the C compiler, and used where there is neither numba nor LLVM."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.errors import HeadgateError
from headgate.kernels import cache, linker, load, precompile, processor, shared_object, sources

pytestmark = [
    pytest.mark.skipif(load("headgate.kernels.self_test") is None, reason="kernels cannot be compiled here"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
    pytest.mark.skipif(processor.lacking_for_portable() != [], reason="this processor does not run portable code"),
]

LINK_FILTERS = """
import os, sys
from headgate.kernels import cache, linker, precompile, shared_object, sources
sys.prefix = os.environ["PREFIX"]
modules = (sources.SELF_TEST, "headgate.evaluate.kernel")
precompile.compile_missing(modules)
parts = {source for module in modules for source in sources.linked_together(sources.source_of(module))}
linker.link_into_file(shared_object.path(), {sources.module_of(source): cache.read(source) for source in parts})
"""

WITHOUT_COMPILERS = """
import os, sys, warnings
warnings.simplefilter("always")
sys.modules["numba"] = sys.modules["llvmlite"] = None
sys.prefix = os.environ["PREFIX"]
"""

ASK = """
import random
from headgate.evaluate.program import compile_program
from headgate.evaluate.reference import verdict_of_bytes
from headgate.evaluate.verdict import Verdict
from headgate.language import bind, parse
from headgate.message.batch import EncodedMessages
from headgate.kernels import load, missing
decided = Verdict.TRUE, Verdict.FALSE, Verdict.UNKNOWN
# Application properties {"n": number}, then a body.
head, body = bytes.fromhex("005374c10602a1016e54"), bytes.fromhex("005375a00130")
messages = [head + bytes([number]) + body for number in range(128)]
batch = EncodedMessages.of(messages)
for dialect, text in (("rabbitmq", "n % 3 = 1"), ("servicebus", "n IN (5, 7)"), ("rocketmq", "n BETWEEN 5 AND 90")):
    tree = bind(parse(text, dialect), dialect, text)
    found = compile_program(tree).verdicts(batch, 0, exact=True).tolist()
    print([int(verdict_of_bytes(tree, each, 0)) for each in messages] == found)
print(load("headgate.kernels.self_test").index_walk(0, 290), missing(["headgate.evaluate.kernel"]))
"""


def run_installed(prefix: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {key: value for key, value in os.environ.items() if key != precompile.SWITCH}
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILERS + code],
        capture_output=True,
        text=True,
        check=False,
        env={**variables, "PREFIX": str(prefix), **environment},
    )


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python environment with a shared object that has the kernel of filters."""
    made = tmp_path_factory.mktemp("environment")
    subprocess.run(
        [sys.executable, "-c", LINK_FILTERS],
        check=True,
        env={**os.environ, "PREFIX": str(made), processor.PROCESSOR_VARIABLE: processor.SHARED},
    )
    return made


def test_filters_run_from_it_without_numba_and_llvm_and_agree_with_the_reference(prefix: Path) -> None:
    ended = run_installed(prefix, ASK)
    assert ended.stdout.splitlines() == ["True", "True", "True", "10 []"], ended.stderr
    assert ended.stderr == ""


def test_on_a_processor_that_cannot_run_it_the_reference_serves_and_the_warning_says_what_is_lacking(
    prefix: Path, tmp_path: Path
) -> None:
    described = tmp_path / "cpuinfo"
    described.write_text("flags : fpu sse2\n", encoding="utf-8")
    set_up = (
        "import platform\n"
        "from pathlib import Path\n"
        "from headgate.kernels import processor, shared_object\n"
        f"platform.machine, processor._PROCESSORS = (lambda: 'x86_64'), Path({str(described)!r})\n"
        f"shared_object.path = lambda: Path({str(next(prefix.rglob('*.so')))!r})\n"
        "from headgate.kernels import load\n"
        "print(load('headgate.evaluate.kernel'))\n"
    )
    ended = run_installed(prefix, set_up)
    assert ended.stdout.split() == ["None"], ended.stderr
    assert ended.stderr.count("KernelUnavailableWarning") == 1
    assert "need a processor with abm, avx2, bmi1" in ended.stderr


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"\x7fELF")])
def test_without_one_that_opens_the_reference_serves_with_a_warning(
    prefix: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    copy = Path(shutil.copytree(prefix, tmp_path / "environment"))
    damage(next(copy.rglob("*.so")))
    ended = run_installed(copy, "from headgate.kernels import load; print(load('headgate.evaluate.kernel'))")
    assert ended.stdout.split() == ["None"] and "llvmlite" in ended.stderr


def test_another_state_of_the_sources_has_another_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = shared_object.path.__wrapped__()
    changed = tmp_path / "kernel.py"
    changed.write_text("", encoding="utf-8")
    monkeypatch.setattr(shared_object, "compiled_together", lambda source: frozenset({source, changed}))
    assert shared_object.path.__wrapped__().name != before.name


@pytest.fixture
def portable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What is compiled is portable, and there is no shared object; where it would be made."""
    made = tmp_path / "share" / "kernels.so"
    monkeypatch.setattr(shared_object, "path", lambda: made)
    monkeypatch.setattr(shared_object, "_opened", lambda: None)
    monkeypatch.setenv(processor.PROCESSOR_VARIABLE, processor.SHARED)
    return made


def test_all_kernels_are_linked_and_those_that_are_not_compiled_are_named(
    monkeypatch: pytest.MonkeyPatch, portable: Path
) -> None:
    linked: list[tuple[Path, list[str]]] = []
    kept = dict.fromkeys(map(sources.source_of, shared_object.shared_modules()), object())
    monkeypatch.setattr(cache, "read", kept.get)
    monkeypatch.setattr(linker, "link_into_file", lambda path, modules: linked.append((path, list(modules))))
    assert precompile.link_shared() == portable
    assert linked == [(portable, [*sources.kernel_modules(), sources.SELF_TEST])]
    del kept[sources.source_of("headgate.log.kernel")]
    with pytest.raises(HeadgateError, match=r"cannot be linked: headgate\.log\.kernel$"):
        precompile.link_shared()


def test_code_for_memory_is_not_linked_into_a_file(monkeypatch: pytest.MonkeyPatch, portable: Path) -> None:
    monkeypatch.setenv(processor.PROCESSOR_VARIABLE, processor.PORTABLE)
    with pytest.raises(HeadgateError, match="for every usual server cannot be compiled here"):
        precompile.link_shared()
    assert not portable.exists()


def test_an_environment_that_has_one_keeps_it(monkeypatch: pytest.MonkeyPatch, portable: Path) -> None:
    monkeypatch.setattr(shared_object, "_opened", lambda: (None, {}))
    assert precompile.link_shared() == portable and not portable.exists()
    assert precompile.missing(sources.kernel_modules()) == []
    entries = precompile.cache_entries()
    assert {(entry.is_compiled, entry.folder) for entry in entries} == {(True, str(portable))}


@pytest.mark.parametrize(
    ("command", "said"), [("no-such-compiler", "there is no C compiler"), ("false", "kernels cannot be linked")]
)
def test_a_linker_that_is_not_there_or_fails_is_an_error(
    monkeypatch: pytest.MonkeyPatch, portable: Path, command: str, said: str
) -> None:
    monkeypatch.setattr(linker, "_LINK", (command,))
    with pytest.raises(HeadgateError, match=said):
        linker.link_into_file(portable, {})
    assert list(portable.parent.iterdir()) == []
