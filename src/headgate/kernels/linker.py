"""Object code of kernels becomes functions that Python calls: LLVM links it in memory, or a C compiler into a file.

Nothing is compiled, numba is not needed.

Guards against a trap of LLVM that was met in practice (docs/design/kernels.md): it leaves the 128-bit division helpers
of the C compiler's runtime unresolved, and an innocent loop with a step that is no power of two then jumps into
nowhere. They are registered before anything is compiled or linked.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite.binding

from headgate.errors import HeadgateError
from headgate.kernels.cache import CompiledKernels
from headgate.kernels.functions import keep_for_ever, module_with
from headgate.kernels.processor import is_for_shared_object, processor
from headgate.kernels.shared_object import TABLE_SYMBOL

_DIVISION_SYMBOLS = ("__udivti3", "__divti3", "__umodti3", "__modti3")


def _register_division_symbols() -> None:
    try:
        runtime = ctypes.CDLL("libgcc_s.so.1")
    except OSError:
        # Looking for it starts a process.
        runtime = ctypes.CDLL(ctypes.util.find_library("gcc_s"))
    for symbol in _DIVISION_SYMBOLS:
        llvmlite.binding.add_symbol(symbol, ctypes.cast(getattr(runtime, symbol), ctypes.c_void_p).value)


_register_division_symbols()


_lock = threading.Lock()
_shared: set[str] = set()
"""The modules whose shared functions are linked already."""


def link(module: str, compiled: CompiledKernels, shared: Iterable[tuple[str, CompiledKernels]] = ()) -> ModuleType:
    """A module of that name with the kernels, which run without the interpreter lock, and the constants.

    `shared` names the modules whose shared functions the kernels may call; each is linked once per process.
    """
    engine = _engine()
    with _lock:
        for name, part in shared:
            if name not in _shared:
                engine.add_object_file(llvmlite.binding.ObjectFileRef.from_data(part.code))
                _shared.add(name)
        engine.add_object_file(llvmlite.binding.ObjectFileRef.from_data(compiled.code))
        engine.finalize_object()
    return module_with(module, compiled.names, compiled.constants, engine.get_function_address)


def link_into_file(path: Path, modules: Mapping[str, CompiledKernels]) -> None:
    """Make the shared object of `shared_object.py` with the kernels of these modules, by the linker of the C compiler.

    Raises HeadgateError where there is none, or it fails.
    """
    table = {module: (compiled.names, compiled.constants) for module, compiled in modules.items()}
    objects = [compiled.code for compiled in modules.values()] + [_object_with_table(json.dumps(table).encode())]
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        files = [Path(folder, f"{number}.o") for number in range(len(objects))]
        for file, content in zip(files, objects, strict=True):
            file.write_bytes(content)
        made = Path(folder, path.name)
        try:
            subprocess.run([*_LINK, "-o", made, *files, "-lm"], capture_output=True, text=True, check=True)
        except FileNotFoundError:
            raise HeadgateError("there is no C compiler, `cc`, to link kernels with") from None
        except subprocess.CalledProcessError as error:
            raise HeadgateError(f"kernels cannot be linked: {error.stderr.strip()}") from None
        made.replace(path)


_LINK = ("cc", "-shared", "-Wl,-Bsymbolic", "-Wl,--strip-all", "-Wl,-z,noexecstack")


def _object_with_table(table: bytes) -> bytes:
    machine = target_machine()
    text = "".join(f"\\{byte:02x}" for byte in table + b"\0")
    return machine.emit_object(  # type: ignore[no-any-return]
        llvmlite.binding.parse_assembly(
            f'target triple = "{machine.triple}"\ntarget datalayout = "{machine.target_data}"\n'
            f'@"{TABLE_SYMBOL}" = constant [{len(table) + 1} x i8] c"{text}"\n'
        )
    )


def target_machine() -> Any:
    """The target of compilation: the processor that `cache.processor` names."""
    llvmlite.binding.initialize_native_target()
    llvmlite.binding.initialize_native_asmprinter()
    target = llvmlite.binding.Target.from_default_triple()
    name, features = processor()
    return target.create_target_machine(
        cpu=name,
        features=features,
        opt=3,
        reloc="pic" if is_for_shared_object() else "static" if target.name.startswith("x86") else "default",
        codemodel="small" if is_for_shared_object() else "jitdefault",
        jit=not is_for_shared_object(),
    )


@functools.cache
def _engine() -> Any:
    """The linker, which keeps code in memory: a thread may still run in it while the interpreter ends."""
    # The memory manager of llvmlite keeps code near what it calls.
    nothing, near = llvmlite.binding.parse_assembly(""), is_for_shared_object()
    engine = llvmlite.binding.create_mcjit_compiler(nothing, target_machine(), use_lmm=near)
    keep_for_ever(engine)
    return engine
