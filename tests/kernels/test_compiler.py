"""What the compiler relies on in numba and does not find in its documentation: a new numba fails here, by name."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

import pytest

from headgate.kernels import load

if load("headgate.kernels.self_test") is None:
    pytest.skip("kernels cannot be compiled here", allow_module_level=True)

import llvmlite.binding

from headgate.kernels import compiler

_LARGE = "\n".join(f"    a = a * {31 + 2 * line} ^ (a >> {line % 60 + 1})" for line in range(200))
"""Too large for LLVM to inline it of its own accord where it is called twice."""

SOURCE = f"""
@helper
def called(a):
{_LARGE}
    return a

@inlined
def pasted(a):
{_LARGE}
    return a

@kernel('int64(int64, int64)')
def run(a, b):
    return called(a) + called(b) + pasted(a) + pasted(b)
"""


@pytest.fixture(scope="module")
def dispatcher() -> Any:
    """numba's object for a small kernel, compiled."""
    made = ModuleType("relied_on")
    sys.modules["relied_on"] = made
    made.__dict__.update(helper=compiler.helper, inlined=compiler.inlined, kernel=compiler.kernel)
    exec(compile(SOURCE, __file__, "exec"), made.__dict__)
    compiler.compile_kernels("relied_on")
    yield made.__dict__["run"]
    del sys.modules["relied_on"], compiler._declared["relied_on"]


@pytest.fixture(scope="module")
def native(dispatcher: Any) -> Any:
    """The function that our wrapper calls, in the code that numba gives."""
    ((arguments, result),) = dispatcher.overloads.items()
    return llvmlite.binding.parse_assembly(dispatcher.inspect_llvm(arguments)).get_function(
        result.fndesc.llvm_func_name
    )


def test_a_function_takes_a_place_for_its_result_one_for_an_exception_and_its_arguments(native: Any) -> None:
    assert [str(each.type) for each in native.arguments] == ["ptr", "ptr", "i64", "i64"]
    assert re.search(r"^define [^@]*\bi32 @", str(native), re.MULTILINE)


def test_code_has_no_wrappers_and_needs_nothing_of_numba_where_it_is_linked(native: Any) -> None:
    functions = list(native.module.functions)
    assert [each.name for each in functions if each.name.startswith(("cpython.", "cfunc."))] == []
    needed = [each.name for each in functions if each.is_declaration and not each.name.startswith("llvm.")]
    assert needed == []


def test_what_is_inlined_is_in_its_caller_and_what_is_not_stays_a_function(native: Any) -> None:
    calls = re.findall(r"call [^@]*@([^(]*)\(", str(native))
    assert [name for name in calls if "pasted" in name] == []
    assert len([name for name in calls if "called" in name]) == 2
