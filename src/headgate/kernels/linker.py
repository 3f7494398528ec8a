"""Object code of kernels becomes functions that Python calls: LLVM links it, nothing is compiled, numba is not needed.

Guards against a trap of LLVM that was met in practice (docs/design/kernels.md): it leaves the 128-bit division helpers
of the C compiler's runtime unresolved, and an innocent loop with a step that is no power of two then jumps into
nowhere. They are registered before anything is compiled or linked.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import threading
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import llvmlite.binding

from headgate.kernels.cache import CompiledKernels, processor

_DIVISION_SYMBOLS = ("__udivti3", "__divti3", "__umodti3", "__modti3")
_METH_FASTCALL = 0x80


class _MethodDefinition(ctypes.Structure):
    """`PyMethodDef` of CPython."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.argtypes = [ctypes.POINTER(_MethodDefinition), ctypes.c_void_p, ctypes.c_void_p]
_new_function.restype = ctypes.py_object


def _register_division_symbols() -> None:
    try:
        runtime = ctypes.CDLL("libgcc_s.so.1")
    except OSError:
        # Looking for it starts a process.
        runtime = ctypes.CDLL(ctypes.util.find_library("gcc_s"))
    for symbol in _DIVISION_SYMBOLS:
        llvmlite.binding.add_symbol(symbol, ctypes.cast(getattr(runtime, symbol), ctypes.c_void_p).value)


_register_division_symbols()


def _keep_for_ever(thing: object) -> None:
    """Let nothing free it. What holds a kernel may outlive all modules when the interpreter ends, and is looked at."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


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
    made = ModuleType(module)
    made.__dict__.update(compiled.constants)
    for name in compiled.names:
        address = engine.get_function_address(symbol_of(module, name))
        definition = _MethodDefinition(name.encode(), address, _METH_FASTCALL, None)
        _keep_for_ever(definition)
        made.__dict__[name] = _new_function(definition, None, None)
    return made


def symbol_of(module: str, name: str) -> str:
    """The name in the object code of the function that Python calls; all modules share one table of symbols."""
    return f"python.{module}.{name}"


def shared_symbol_of(module: str, name: str) -> str:
    """The name in the object code of a function that kernels of all modules call."""
    return f"shared.{module}.{name}"


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
        reloc="static" if target.name.startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )


@functools.cache
def _engine() -> Any:
    """The linker, which keeps code in memory: a thread may still run in it while the interpreter ends."""
    engine = llvmlite.binding.create_mcjit_compiler(llvmlite.binding.parse_assembly(""), target_machine())
    _keep_for_ever(engine)
    return engine
