"""Kernels where they can be had, and what happens where they cannot."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import llvmlite.binding
import numpy as np
import pytest

from headgate.errors import HeadgateError
from headgate.kernels import address_of, cache, checksum, load, processor

USE_A_FILTER = """
import warnings
warnings.simplefilter("always")
import numpy as np
from headgate.evaluate.program import compile_program
from headgate.kernels import load
from headgate.language import bind, parse
from headgate.message.batch import EncodedMessages
program = compile_program(bind(parse("n = 5"), "rabbitmq", "n = 5"))
batch = EncodedMessages.of([bytes.fromhex("005374c10602a1016e5105005375a00130")] * 2)
for _ in range(2):
    print(program.verdicts(batch, 0, exact=False).tolist())
"""
needs_kernels = pytest.mark.skipif(load("headgate.evaluate.kernel") is None, reason="kernels cannot be compiled here")


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {key: value for key, value in os.environ.items() if key != "HEADGATE_KERNELS"} | environment
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300, env=variables
    )


def test_without_numba_rows_are_left_to_the_reference_with_one_warning() -> None:
    ended = run_python("import sys; sys.modules['numba'] = None\n" + USE_A_FILTER)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["[4, 4]", "[4, 4]"]
    assert ended.stderr.count("KernelUnavailableWarning") == 1
    assert "numba" in ended.stderr


@needs_kernels
def test_a_kernel_that_does_not_compile_is_left_out_with_one_warning() -> None:
    broken = (
        "from headgate.kernels import load, cache, compiler\n"
        "load('headgate.kernels.self_test')\n"
        "def refuse(module):\n"
        "    raise TypeError('no such type')\n"
        "cache.read, compiler.compile_kernels = lambda source: None, refuse\n"
    )
    ended = run_python(broken + USE_A_FILTER)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["[4, 4]", "[4, 4]"]
    assert ended.stderr.count("KernelUnavailableWarning") == 1
    assert "no such type" in ended.stderr


def test_switched_off_kernels_leave_rows_to_the_reference_without_warning() -> None:
    ended = run_python(USE_A_FILTER, HEADGATE_KERNELS="off")
    assert ended.stdout.splitlines() == ["[4, 4]", "[4, 4]"]
    assert ended.stderr == ""


@needs_kernels
def test_where_no_cache_folder_can_be_made_kernels_are_compiled_in_memory(tmp_path: Path) -> None:
    a_file = tmp_path / "file"
    a_file.write_bytes(b"")
    code = "from headgate.kernels import load; print(load('headgate.kernels.checksum'))"
    ended = run_python(code, HEADGATE_CACHE=str(a_file / "cache"))
    assert ended.stdout.strip() == "<module 'headgate.kernels.checksum'>", ended.stderr
    assert ended.stderr == ""
    assert a_file.read_bytes() == b""


@needs_kernels
def test_code_from_a_folder_that_others_may_write_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no folder"))
    (tmp_path / "no folder").write_bytes(b"")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = Path(checksum.__file__)
    found = cache.cache_folder.__wrapped__(source)
    assert found is not None and found.parent.parent == tmp_path
    found.parent.chmod(0o777)
    assert cache.cache_folder.__wrapped__(source) is None


def test_compiled_kernels_are_kept_in_the_given_folder_and_used_again_without_numba(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from headgate.kernels import load\n"
        "print(load('headgate.kernels.self_test').index_walk(0, 290), 'numba' in sys.modules)\n"
    )
    first = run_python(code, HEADGATE_CACHE=str(tmp_path))
    assert first.stdout.split() == ["10", "True"], first.stderr
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("code")}
    assert kept
    again = run_python(code, HEADGATE_CACHE=str(tmp_path))
    assert again.stdout.split() == ["10", "False"], again.stderr
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == kept


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Linux's description of a processor of x86-64 that can run portable code; LLVM calls it another name."""
    described = tmp_path / "cpuinfo"
    described.write_text(
        f"processor\t: 0\nflags\t\t: fpu {' '.join(processor._PORTABLE_PROCESSORS['x86_64'][2])}\n", encoding="utf-8"
    )
    monkeypatch.setattr(processor, "_PROCESSORS", described)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", lambda: llvmlite.binding.FeatureMap({"bmi2": False}))
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_name", lambda: "old")
    monkeypatch.setenv(processor.PROCESSOR_VARIABLE, processor.PORTABLE)
    return described


def test_a_processor_that_cannot_run_portable_code_gets_its_own(processors: Path) -> None:
    assert processor.processor.__wrapped__() == processor.portable() == ("x86-64-v3", "+pclmul")
    processors.write_text(processors.read_text(encoding="utf-8").replace(" bmi2", ""), encoding="utf-8")
    assert processor.lacking_for_portable() == ["bmi2"]
    assert processor.processor.__wrapped__() == ("old", "-bmi2")


def test_a_processor_of_which_nothing_is_known_gets_its_own(processors: Path) -> None:
    processors.unlink()
    assert processor.processor.__wrapped__() == ("old", "-bmi2")


@needs_kernels
def test_constants_come_with_the_kernels_that_callers_use_them_for() -> None:
    from headgate.log import kernel as source

    linked = load("headgate.log.kernel")
    assert linked is not None and linked is not source
    assert (linked.CACHE_SLOTS, linked.SUB_BATCH) == (source.CACHE_SLOTS, source.SUB_BATCH)


@needs_kernels
def test_kernels_outlive_the_modules_that_linked_them() -> None:
    """When the interpreter ends modules go first, and the garbage collector looks at functions that are left."""
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "import ctypes, gc\n"
            "from headgate.kernels import linker, load\n"
            "kernels = load('headgate.kernels.checksum')\n"
            "vars(linker).clear()\n"
            "gc.collect()\n"
            "sizes = [size for size in range(17, 65) for _ in range(2000)]\n"
            "taken = [ctypes.create_string_buffer(b'\\xff' * size, size) for size in sizes]\n"
            "gc.collect()\n"
            "print(kernels.__name__)",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "headgate.kernels.checksum"), ran.stderr


def test_a_kernel_that_is_called_wrongly_raises() -> None:
    self_test = load("headgate.kernels.self_test")
    assert self_test is not None
    for wrong in ((), (1,), (1, 2, 3), (1, "2"), (1, 2**63), (1.5, 2)):
        with pytest.raises((TypeError, OverflowError)):
            self_test.index_walk(*wrong)
    assert self_test.index_walk(-1, -1) == self_test.index_walk(np.int64(-1), False) == 0


@needs_kernels
@pytest.mark.parametrize("module", ["evaluate", "evaluate/rules"])
def test_kernels_are_kept_for_the_constants_that_they_were_compiled_with(module: str, tmp_path: Path) -> None:
    code = (
        "import shutil\n"
        "from pathlib import Path\n"
        "from headgate.kernels import cache, sources\n"
        f"package = Path(shutil.copytree(sources._PACKAGE, {str(tmp_path / 'headgate')!r}))\n"
        "sources._PACKAGE = package\n"
        f"source, constants = (package / {module!r} / name for name in ('kernel.py', 'layout.py'))\n"
        "before = cache.cache_folder(source)\n"
        "constants.write_text(constants.read_text() + 'ONE_MORE = 1\\n')\n"
        "cache.cache_folder.cache_clear()\n"
        "print(before != cache.cache_folder(source))\n"
    )
    ended = run_python(code, HEADGATE_CACHE=str(tmp_path / "cache"))
    assert ended.stdout.split() == ["True"], ended.stderr


@needs_kernels
def test_damaged_files_in_the_cache_folder_cost_time_only(tmp_path: Path) -> None:
    code = "from headgate.kernels import load; print(load('headgate.kernels.self_test').index_walk(0, 290))"
    assert run_python(code, HEADGATE_CACHE=str(tmp_path)).stdout.strip() == "10"
    for path in tmp_path.rglob("code"):
        path.write_bytes(path.read_bytes()[:100])
    cut = run_python(code, HEADGATE_CACHE=str(tmp_path))
    assert (cut.stdout.strip(), cut.stderr) == ("10", "")
    for path in tmp_path.rglob("code"):
        path.write_bytes(b"no code")
    overwritten = run_python(code, HEADGATE_CACHE=str(tmp_path))
    assert (overwritten.stdout.strip(), overwritten.stderr) == ("10", "")


@needs_kernels
def test_the_self_test_loop_that_needs_128_bit_division_counts_right() -> None:
    self_test = load("headgate.kernels.self_test")
    assert self_test is not None
    for end in (0, 28, 29, 30, 29 * 1_000_003 + 5):
        assert self_test.index_walk(0, end) == end // 29


@needs_kernels
def test_arrays_are_refused_in_kernel_signatures() -> None:
    from headgate.kernels.compiler import kernel

    with pytest.raises(HeadgateError, match=r"only scalars .*\['uint8\[::1\]'\]"):
        kernel("int64(uint8[::1], int64)")


@needs_kernels
def test_the_filter_kernel_releases_the_interpreter_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("headgate.evaluate.kernel")
    assert module is not None
    from headgate.evaluate.program import compile_program
    from headgate.language import bind, parse
    from headgate.message.batch import EncodedMessages

    program = compile_program(bind(parse("n = 5"), "rabbitmq", "n = 5"))
    assert program is not None
    one = EncodedMessages.of([bytes.fromhex("005374c10602a1016e5105005375a00130")])
    many = EncodedMessages(one.data, np.zeros(5_000_000, np.int64), np.full(5_000_000, one.lengths[0]))
    inside = [False]
    seen_inside = [False]
    evaluate = module.evaluate

    def watched(*arguments: int) -> int:
        inside[0] = True
        row: int = evaluate(*arguments)
        inside[0] = False
        return row

    monkeypatch.setattr(module, "evaluate", watched)
    worker = threading.Thread(target=program.verdicts, args=(many, 0))
    interval = sys.getswitchinterval()
    # No switch by time: this thread runs only when the other gives the lock away.
    sys.setswitchinterval(1_000)
    try:
        worker.start()
        while worker.is_alive() and not seen_inside[0]:
            seen_inside[0] = inside[0]
            worker.join(timeout=0)
        worker.join()
    finally:
        sys.setswitchinterval(interval)
    assert seen_inside[0]


def test_the_address_of_an_array_is_that_of_its_first_element() -> None:
    array = np.arange(4, dtype=np.int64)
    assert address_of(array[1:]) == address_of(array) + 8
    assert address_of(array[::2]) == address_of(array[:0]) == address_of(array) == array.ctypes.data
    readable = array.view()
    readable.flags.writeable = False
    assert address_of(readable) == array.ctypes.data


LOAD_IN_BACKGROUND = """
import threading
from headgate.kernels import load, load_in_background
from headgate.kernels import loader
may_go_on = threading.Event()
real = loader._load
def waiting_load(module):
    may_go_on.wait(60)
    return real(module)
loader._load = waiting_load
loader = load_in_background(["headgate.kernels.checksum", "headgate.message.lookup.kernel"])
print(load("headgate.kernels.checksum"), load("headgate.message.lookup.kernel"))
may_go_on.set()
loader.join()
print(load("headgate.kernels.checksum").__name__, load("headgate.message.lookup.kernel").__name__)
"""


@needs_kernels
def test_while_kernels_load_in_the_background_there_are_none_and_then_all() -> None:
    ended = run_python(LOAD_IN_BACKGROUND)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["None None", "headgate.kernels.checksum headgate.message.lookup.kernel"]
    assert ended.stderr == ""


@needs_kernels
def test_in_the_background_kernels_are_compiled_by_another_process(tmp_path: Path) -> None:
    code = (
        "from headgate.kernels import load, load_in_background\n"
        "load_in_background(['headgate.kernels.self_test']).join()\n"
        "import sys\n"
        "print(load('headgate.kernels.self_test').index_walk(0, 290), 'numba' in sys.modules)\n"
    )
    ended = run_python(code, HEADGATE_CACHE=str(tmp_path))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split() == ["10", "False"]


def test_a_background_load_that_ends_at_once_gives_its_thread() -> None:
    code = "from headgate.kernels import load_in_background\nload_in_background(['a', 'b']).join()\n"
    ended = run_python(code, HEADGATE_KERNELS="off")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_every_module_with_kernels_is_listed() -> None:
    from headgate.kernels import kernel_modules

    assert {"headgate.kernels.checksum", "headgate.evaluate.kernel", "headgate.log.kernel"} <= set(kernel_modules())
