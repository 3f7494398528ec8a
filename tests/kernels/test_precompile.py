"""Compiling ahead, in other processes: who does what, what serves meanwhile, and what is told."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headgate import kernels
from headgate.evaluate.filter import Filter
from headgate.evaluate.program import KERNEL_MODULE
from headgate.kernels import cache, child, compiler, linker, load, loader, precompile, sources
from headgate.message.batch import EncodedMessages

pytestmark = pytest.mark.skipif(load("headgate.evaluate.kernel") is None, reason="kernels cannot be compiled here")

N_IS_5 = bytes.fromhex("005374c10602a1016e5105005375a00130")
CHECKSUM = "headgate.kernels.checksum"
LOOKUP = "headgate.message.lookup.kernel"


@pytest.fixture
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has loaded no kernels, and finds none in the cache."""
    monkeypatch.setattr(loader, "_modules", {})
    monkeypatch.setattr(cache, "is_missing", lambda source: bool(sources.kernel_count(source)))


@pytest.fixture
def progress(caplog: pytest.LogCaptureFixture) -> Iterator[list[tuple[int, int]]]:
    """How many kernels were told to be compiled, of how many."""
    told: list[tuple[int, int]] = []

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert isinstance(record.args, tuple)
            done, total = record.args
            assert isinstance(done, int) and isinstance(total, int)
            told.append((done, total))

    recorder = Recorder()
    with caplog.at_level(logging.DEBUG, "headgate.kernels"):
        logging.getLogger("headgate.kernels").addHandler(recorder)
        try:
            yield told
        finally:
            logging.getLogger("headgate.kernels").removeHandler(recorder)


def child_that(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(precompile, "CHILD", (sys.executable, "-c", code))


COMPILES_ALL = "import sys\nfor module in sys.argv[1:]: print(module, flush=True)\n"


@pytest.mark.usefixtures("nothing_compiled")
def test_a_module_is_missing_with_those_whose_shared_functions_it_calls() -> None:
    assert set(precompile.missing([KERNEL_MODULE])) == {
        KERNEL_MODULE,
        "headgate.evaluate.body.kernel",
        "headgate.evaluate.body.json.kernel",
        "headgate.evaluate.operations.kernel",
        *(f"headgate.evaluate.values.{family}.kernel" for family in ("amqp", "cesql", "rocketmq", "servicebus")),
    }
    assert precompile.missing([CHECKSUM]) == [CHECKSUM]


def test_a_module_has_kernels_or_shared_functions() -> None:
    for module in kernels.kernel_modules():
        text = sources.source_of(module).read_text(encoding="utf-8")
        assert ("\n@kernel(" in text) != ("\n@shared\n" in text), f"{module}: shared code would be linked twice"


@pytest.mark.usefixtures("nothing_compiled")
def test_each_core_has_a_child_that_gets_all_modules_the_longest_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(precompile, "_cores", lambda: 3)
    child_that(monkeypatch, f"import os, sys; open(f'{tmp_path}/{{os.getpid()}}', 'w').write(' '.join(sys.argv[1:]))")
    modules = kernels.kernel_modules()
    kernels.compile_missing(modules)
    first, *others = (given.read_text(encoding="utf-8") for given in tmp_path.iterdir())
    assert others == [first, first]
    assert sorted(first.split()) == sorted(modules)
    # It is the longest by far, measured.
    assert first.split()[0] == "headgate.evaluate.rules.kernel"


@pytest.mark.usefixtures("nothing_compiled")
def test_progress_counts_kernels_from_none_to_all(
    monkeypatch: pytest.MonkeyPatch, progress: list[tuple[int, int]]
) -> None:
    child_that(monkeypatch, COMPILES_ALL)
    kernels.compile_missing([CHECKSUM, LOOKUP])
    total = sum(sources.kernel_count(sources.source_of(module)) for module in (CHECKSUM, LOOKUP))
    assert progress[0] == (0, total) and progress[-1] == (total, total)
    assert progress == sorted(progress) and len(progress) == 3


@pytest.mark.usefixtures("nothing_compiled")
def test_a_child_that_fails_is_not_told_as_done(
    monkeypatch: pytest.MonkeyPatch, progress: list[tuple[int, int]]
) -> None:
    child_that(monkeypatch, "raise SystemExit(3)")
    kernels.compile_missing([CHECKSUM])
    assert progress == [(0, sources.kernel_count(sources.source_of(CHECKSUM)))]


def test_nothing_is_told_and_no_process_started_where_all_is_in_the_cache(
    monkeypatch: pytest.MonkeyPatch, progress: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(cache, "is_missing", lambda _source: False)
    monkeypatch.setattr(precompile, "CHILD", ("no such command",))
    kernels.compile_missing(kernels.kernel_modules())
    assert progress == []


@pytest.mark.usefixtures("nothing_compiled")
def test_while_a_child_compiles_the_reference_decides_and_then_the_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    monkeypatch.setattr(precompile, "_cores", lambda: 1)
    child_that(monkeypatch, f"open({str(tmp_path / 'go')!r}).read()\n{COMPILES_ALL}")
    batch = EncodedMessages.of([N_IS_5] * 3)
    by_reference: list[bytes] = []
    real = cache.is_missing
    loader = kernels.load_in_background([KERNEL_MODULE])
    wanted = Filter.parse("n = 5")
    assert wanted.program is not None
    with monkeypatch.context() as patched:
        from headgate.evaluate import filter as filter_module

        decide = filter_module.reference.verdict_of_bytes
        patched.setattr(
            filter_module.reference,
            "verdict_of_bytes",
            lambda tree, message, now_ms: by_reference.append(message) or decide(tree, message, now_ms),
        )
        assert load(KERNEL_MODULE) is None
        assert wanted.mask(batch).tolist() == [True] * 3
        assert len(by_reference) == 3
        assert real is cache.is_missing
        (tmp_path / "go").write_text("", encoding="utf-8")
        loader.join()
        assert load(KERNEL_MODULE) is not None
        assert wanted.mask(batch).tolist() == [True] * 3
        assert len(by_reference) == 3


def test_a_child_goes_on_when_nobody_reads_what_it_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Unread(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    compiled: list[str] = []
    monkeypatch.setattr(cache, "cache_folder", lambda _source: tmp_path)
    monkeypatch.setattr(child, "is_missing", lambda module: module not in compiled)
    monkeypatch.setattr(child, "compile_into_cache", compiled.append)
    monkeypatch.setattr(os, "nice", lambda _increment: 0)
    monkeypatch.setattr(sys, "stdout", Unread())
    child.main(["one", "two"])
    assert compiled == ["one", "two"]


def test_a_module_is_compiled_by_one_child_at_a_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled: list[str] = []

    def compile_alone(module: str) -> None:
        with (tmp_path / "lock").open("wb") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        compiled.append(module)

    monkeypatch.setattr(cache, "cache_folder", lambda _source: tmp_path)
    monkeypatch.setattr(child, "is_missing", lambda module: module not in compiled)
    monkeypatch.setattr(child, "compile_into_cache", compile_alone)
    monkeypatch.setattr(os, "nice", lambda _increment: 0)
    child.main(["one"])
    assert compiled == ["one"]
    # What another one compiled meanwhile is not compiled again, but told.
    child.main(["one"])
    assert compiled == ["one"]
    assert capsys.readouterr().out == "one\none\n"


def test_a_child_takes_other_modules_before_it_waits_for_another_child(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled: list[str] = []
    for module in ("one", "two"):
        (tmp_path / module).mkdir()
    monkeypatch.setattr(child, "source_of", tmp_path.joinpath)
    monkeypatch.setattr(cache, "cache_folder", lambda folder: folder)
    monkeypatch.setattr(child, "is_missing", lambda module: module not in compiled)
    monkeypatch.setattr(os, "nice", lambda _increment: 0)
    with (tmp_path / "one" / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def compile_while_another_ends(module: str) -> None:
            compiled.append(module)
            # The other child is done with its module.
            compiled.append("one")
            fcntl.flock(lock, fcntl.LOCK_UN)

        monkeypatch.setattr(child, "compile_into_cache", compile_while_another_ends)
        child.main(["one", "two"])
    assert compiled == ["two", "one"]
    assert capsys.readouterr().out == "two\none\n"


def test_with_the_cache_only_kernels_are_used_from_when_another_process_compiled_them(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys\n"
        "from headgate.kernels import load\n"
        f"print(load({CHECKSUM!r}), flush=True)\n"
        f"others = {{name: value for name, value in os.environ.items() if name != 'HEADGATE_KERNELS'}}\n"
        f"subprocess.run([sys.executable, '-m', 'headgate.kernels.child', {CHECKSUM!r}], env=others, check=True)\n"
        f"print(load({CHECKSUM!r}).__name__, 'numba' in sys.modules)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HEADGATE_KERNELS": "cached", "HEADGATE_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout.split() == ["None", CHECKSUM, CHECKSUM, "False"], ended.stderr


def test_compiling_in_the_process_itself_is_told(tmp_path: Path) -> None:
    code = (
        "import logging, sys\n"
        "logging.basicConfig(format='%(message)s', level='INFO', stream=sys.stdout)\n"
        "logging.getLogger('numba').setLevel('WARNING')\n"
        "from headgate.kernels import load\n"
        f"load({CHECKSUM!r})\n"
    )
    environment = {**os.environ, "HEADGATE_CACHE": str(tmp_path)}
    first, second = (
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    total = sources.kernel_count(sources.source_of(CHECKSUM))
    assert first.splitlines() == [
        f"compiling filter kernels, once per version: {done} of {total}" for done in (0, total)
    ]
    assert second == ""


def test_what_is_kept_is_read_again_and_not_missing_any_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "cache_folder", lambda _source: tmp_path)
    source = sources.source_of("headgate.log.kernel")
    assert cache.is_missing(source)
    cache.keep(source, cache.CompiledKernels(("one",), {"SIX": 6}, b"code"))
    assert not cache.is_missing(source)
    assert cache.read(source) == cache.CompiledKernels(("one",), {"SIX": 6}, b"code")


def test_another_kind_of_processor_has_a_cache_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    source = sources.source_of(CHECKSUM)
    folder = cache.cache_folder.__wrapped__(source)
    monkeypatch.setattr(cache, "processor", lambda: ("another", ""))
    assert cache.cache_folder.__wrapped__(source) != folder


def test_a_helper_is_compiled_once_for_all_integers_and_once_for_each_truth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = ModuleType("made")
    monkeypatch.setitem(sys.modules, "made", made)
    made.__dict__.update(helper=compiler.helper, inlined=compiler.inlined, kernel=compiler.kernel)
    source = (
        "@helper\ndef add(a, b):\n    return a + b\n"
        "@inlined\ndef double(a):\n    return a + a\n"
        "@helper\ndef signed(a, negative):\n    return -a if negative else a\n"
        "@kernel('int64(int64)')\ndef run(x):\n"
        "    return add(x, 1) + add(2, x) + add(3, 4) + double(5) + double(x) + signed(x, True) + signed(1, False)\n"
    )
    exec(compile(source, __file__, "exec"), made.__dict__)
    linked = linker.link("made", compiler.compile_kernels("made"))
    assert linked.run(10) == 11 + 12 + 7 + 10 + 20 - 10 + 1
    assert [len(made.__dict__[name].overloads) for name in ("add", "double", "signed")] == [1, 1, 2]


def test_a_shared_function_is_compiled_by_itself_and_linked_to_its_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {
        "giver": "@shared\ndef add(a: int, b: int) -> int:\n    return a + b\n"
        "@shared\ndef nothing(a: int) -> None:\n    a += 1\n",
        "taker": "@kernel('int64(int64)')\ndef run(x):\n    nothing(x)\n    return add(x, 1) * 2\n",
    }
    made = {name: ModuleType(name) for name in sources}
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
        module.__dict__.update(kernel=compiler.kernel, shared=compiler.shared)
        if name == "taker":
            module.__dict__.update(add=made["giver"].__dict__["add"], nothing=made["giver"].__dict__["nothing"])
        exec(compile(sources[name], __file__, "exec"), module.__dict__)
    taker = compiler.compile_kernels("taker")
    assert linker.link("taker", taker, [("giver", compiler.compile_kernels("giver"))]).run(20) == 42
