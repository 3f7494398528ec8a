"""The one place that imports numba to compile: decorators, the code of a module, and guards against known traps.

Traps guarded here (each met in practice, see docs/design/kernels.md):

* Array objects inside kernels cost a factor of ten: signatures with anything but integers are refused.
* numba's own disk cache needs numba to be imported where kernels are only used, and does not look at changed callees
  nor constants in other files: what is compiled here is kept by `cache.py`, and `linker.py` makes functions of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

import llvmlite.binding
import numba

from headgate.errors import HeadgateError
from headgate.kernels.cache import CompiledKernels
from headgate.kernels.functions import shared_symbol_of, symbol_of
from headgate.kernels.linker import target_machine
from headgate.kernels.processor import processor

F = TypeVar("F", bound=Callable[..., Any])

# numba's own annotations cover only part of what is used here.
_njit: Any = numba.njit
_config: Any = numba.config

if processor()[0] != llvmlite.binding.get_host_cpu_name():
    # numba optimises for this processor unless told otherwise.
    _config.CPU_NAME, _config.CPU_FEATURES = processor()

_SCALARS = {"int64", "void"}
_OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False}
# Wrappers for callers in Python and C, which numba makes unless told otherwise, take a third of the time.
_UNWRAPPED = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_declared: dict[str, dict[str, tuple[Any, str]]] = {}
"""By the name of a module: its kernels as numba sees them, each with its signature."""

_shared: dict[str, dict[str, tuple[Any, str]]] = {}
"""The same for its shared functions."""


def kernel(signature: str) -> Callable[[F], F]:
    """An entry point: a function of at most one result that Python calls, without the interpreter lock.

    `signature` names scalars only, for example `"int64(int64, int64)"`; arrays go in as addresses. Integer division by
    zero and float division follow the machine, so kernels test their divisors. It is compiled by `compile_kernels`.
    """
    unknown = set(signature.replace("(", " ").replace(")", " ").replace(",", " ").split()) - _SCALARS
    if unknown:
        raise HeadgateError(
            f"kernel signature {signature!r}: only scalars may cross into a kernel, found {sorted(unknown)}"
        )

    def declare(function: F) -> F:
        made = _njit(**_OPTIONS, **_UNWRAPPED)(function)
        _declared.setdefault(function.__module__, {})[function.__name__] = made, signature
        return made  # type: ignore[no-any-return]

    return declare


def shared(function: F) -> F:
    """A function that kernels of any module call, from integers to an integer or None: compiled once, then linked.

    Its callers see only its name, so they are compiled without it, and it is never pasted into them.
    """
    count = function.__code__.co_argcount
    result = "void" if function.__annotations__["return"] == "None" else "int64"
    symbol = shared_symbol_of(function.__module__, function.__name__)
    made = _njit(**_OPTIONS, **_UNWRAPPED)(function)
    signature = f"{result}({', '.join(['int64'] * count)})"
    _shared.setdefault(function.__module__, {})[function.__name__] = made, signature
    # numba links what it compiles, although nothing is run: any address will do.
    llvmlite.binding.add_symbol(symbol, id(function))
    return numba.types.ExternalFunction(symbol, numba.int64(*[numba.int64] * count))  # type: ignore[return-value]


def compile_kernels(module: str) -> CompiledKernels:
    """Compile the kernels of a module, which is imported. Cost: seconds of CPU; raises what numba raises."""
    imported = importlib.import_module(module)
    declared = _declared.get(module, {})
    machine = target_machine()
    together = llvmlite.binding.parse_assembly(
        f'target triple = "{machine.triple}"\ntarget datalayout = "{machine.target_data}"\n{_DECLARATIONS}'
    )
    for functions, symbol_for, called in (
        (declared, symbol_of, _called_by_python),
        (_shared.get(module, {}), shared_symbol_of, _called_by_kernels),
    ):
        for name, (dispatcher, signature) in functions.items():
            dispatcher.compile(signature)
            ((arguments, result),) = dispatcher.overloads.items()
            native = result.fndesc.llvm_func_name
            for part in (
                dispatcher.inspect_llvm(arguments),
                called(symbol_for(module, name), native, len(arguments), has_result=signature[:4] != "void"),
            ):
                together.link_in(llvmlite.binding.parse_assembly(part))
    constants = {name: int(value) for name, value in vars(imported).items() if isinstance(value, int)}
    return CompiledKernels(tuple(declared), constants, machine.emit_object(together))


_DECLARATIONS = """
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @Py_BuildValue(ptr, ...)
declare ptr @PyErr_Occurred()
declare i32 @PyErr_BadArgument()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
"""
"""The functions of Python's C API that a function called by Python needs (`METH_FASTCALL`)."""


def _called_by_python(symbol: str, native: str, count: int, *, has_result: bool) -> str:
    """The function that takes integers of Python to a kernel, and its result back."""
    numbers = range(count)
    parameters = "".join(", i64" for _ in numbers)
    converted = "\n".join(
        f"  %place{n} = getelementptr ptr, ptr %arguments, i64 {n}\n"
        f"  %object{n} = load ptr, ptr %place{n}\n"
        f"  %a{n} = call i64 @PyLong_AsLongLong(ptr %object{n})\n"
        # What cannot be converted is minus one, as some numbers are: then Python knows.
        f"  %odd{n} = icmp eq i64 %a{n}, -1\n"
        f"  %any{n} = or i1 %odd{n}, {f'%any{n - 1}' if n else 'false'}"
        for n in numbers
    )
    made = "call ptr @PyLong_FromLongLong(i64 %number)"
    nothing = "call ptr (ptr, ...) @Py_BuildValue(ptr %space)"
    return f"""{_DECLARATIONS}
declare i32 @{native}(ptr, ptr{parameters})
define ptr @"{symbol}"(ptr %self, ptr %arguments, i64 %count) {{
  %space = alloca i64
  %exception = alloca ptr
  store i64 0, ptr %space
  %fits = icmp eq i64 %count, {count}
  br i1 %fits, label %convert, label %refuse
convert:
{converted}
  br i1 %any{count - 1}, label %ask, label %run
ask:
  %error = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %run, label %fail
run:
  %state = call ptr @PyEval_SaveThread()
  %status = call i32 @{native}(ptr %space, ptr %exception{"".join(f", i64 %a{n}" for n in numbers)})
  call void @PyEval_RestoreThread(ptr %state)
  %done = icmp eq i32 %status, 0
  br i1 %done, label %give, label %refuse
give:
  %number = load i64, ptr %space
  {"" if has_result else "store i64 0, ptr %space"}
  %result = {made if has_result else nothing}
  ret ptr %result
refuse:
  %ignored = call i32 @PyErr_BadArgument()
  br label %fail
fail:
  ret ptr null
}}
"""


def _called_by_kernels(symbol: str, native: str, count: int, *, has_result: bool) -> str:
    """The function that takes the integers of another kernel to a shared one, and its result back."""
    parameters = "".join(", i64" for _ in range(count))
    return f"""
declare i32 @{native}(ptr, ptr{parameters})
define i64 @"{symbol}"({", ".join(f"i64 %a{n}" for n in range(count))}) {{
  %space = alloca i64
  %exception = alloca ptr
  store i64 0, ptr %space
  %status = call i32 @{native}(ptr %space, ptr %exception{"".join(f", i64 %a{n}" for n in range(count))})
  %number = load i64, ptr %space
  ret i64 {"%number" if has_result else "0"}
}}
"""


def helper(function: F) -> F:
    """A function that kernels call; compiled into them, never called from Python.

    `forceinline` is said although it is the default: left out, it is taken over from the caller that compiles it first.
    """
    return _compiled_into_callers(function, forceinline=False)


def inlined(function: F) -> F:
    """Like `helper`, but pasted into its callers before optimisation: for tiny functions on the innermost path."""
    return _compiled_into_callers(function, forceinline=True)


def _compiled_into_callers(function: F, *, forceinline: bool) -> F:
    made = _njit(**_OPTIONS, **_UNWRAPPED, forceinline=forceinline)(function)
    template_for = made.get_call_template

    def template_for_any_integer(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        # numba would compile it anew for each constant that a caller passes. For truths that is wanted: their branches
        # are left out, which a loop over messages notices.
        plain = tuple(
            numba.types.unliteral(each) if isinstance(each, numba.types.IntegerLiteral) else each for each in arguments
        )
        return template_for(plain, keywords)

    made.get_call_template = template_for_any_integer
    return made  # type: ignore[no-any-return]
