"""Functions of Python from the addresses of machine code, and its symbols: neither numba nor LLVM is needed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType

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


def keep_for_ever(thing: object) -> None:
    """Let nothing free it. What holds a kernel may outlive all modules when the interpreter ends, and is looked at."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def module_with(
    module: str, names: Iterable[str], constants: Mapping[str, int], address_of: Callable[[str], int]
) -> ModuleType:
    """A module of that name with kernels, which run without the interpreter lock, and constants.

    `address_of` gives the address of a symbol.
    """
    made = ModuleType(module)
    made.__dict__.update(constants)
    for name in names:
        definition = _MethodDefinition(name.encode(), address_of(symbol_of(module, name)), _METH_FASTCALL, None)
        keep_for_ever(definition)
        made.__dict__[name] = _new_function(definition, None, None)
    return made


def symbol_of(module: str, name: str) -> str:
    """The name in the object code of the function that Python calls; all modules share one table of symbols."""
    return f"python.{module}.{name}"


def shared_symbol_of(module: str, name: str) -> str:
    """The name in the object code of a function that kernels of all modules call."""
    return f"shared.{module}.{name}"
