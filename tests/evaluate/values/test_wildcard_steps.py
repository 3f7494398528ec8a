"""LIKE and CONTAINS take at most value × pattern steps, in the reference and in the kernel; counted, not timed."""

from __future__ import annotations

import struct
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from headgate.evaluate import layout
from headgate.evaluate.filter import Engine, Filter
from headgate.evaluate.values import kernel
from headgate.evaluate.values.rocketmq import kernel as rocketmq
from headgate.language.like import compile_any_like
from headgate.language.tree import LikeWildcard
from headgate.message import EncodedMessages, Message

PATTERNS = ["%a" * 30 + "%b", "%a_" * 20 + "b", "%aaaaaaaab" * 3, "_%" * 30 + "b", "%" * 60 + "b", "a%" * 30 + "b%"]
TEXT = "a" * 240


class Memory:
    """Runs kernels as plain Python over bytes; counts what they read."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.steps = 0

    def run(self, function: Any) -> Callable[..., int]:
        own = {name: getattr(self, name) for name in ("load_u8", "load_i64", "equal_text", "kept_apart")}
        plain = function.py_func
        known = {**plain.__globals__, **own}
        for name in plain.__code__.co_names:
            if name not in own and hasattr(known.get(name), "py_func"):
                known[name] = self.run(known[name])
        return types.FunctionType(plain.__code__, known)

    def load_u8(self, address: int) -> int:
        self.steps += 1
        return self._content[address]

    def load_i64(self, address: int) -> int:
        self.steps += 1
        return int(struct.unpack_from("<q", self._content, address)[0])

    def equal_text(self, one: int, other: int, size: int) -> bool:
        self.steps += size
        return self._content[one : one + size] == self._content[other : other + size]

    def kept_apart(self) -> None:
        pass


@pytest.mark.parametrize("pattern", PATTERNS)
def test_like_in_the_kernel_reads_at_most_value_times_pattern(pattern: str) -> None:
    elements, pool = b"", b""
    for part in compile_any_like(pattern, None).parts:
        if isinstance(part, LikeWildcard):
            size = layout.ANY_TEXT if part is LikeWildcard.ANY else layout.ONE_CHARACTER
            elements += struct.pack("<qq", size, 0)
        else:
            elements += struct.pack("<qq", len(part), len(pool))
            pool += part
    memory = Memory(elements + pool + TEXT.encode())
    text = len(elements) + len(pool)
    like = memory.run(kernel.like_any)
    assert like(text, text + len(TEXT), 0, len(elements) // 16, len(elements)) == layout.FALSE
    assert memory.steps <= 4 * (len(TEXT) + 1) * (len(pattern) + 1)


def test_contains_in_the_kernel_reads_at_most_value_times_pattern() -> None:
    wanted = b"a" * 30 + b"b"
    memory = Memory(wanted + TEXT.encode())
    assert not memory.run(rocketmq._contains)(len(wanted), len(TEXT), 0, len(wanted))
    assert memory.steps <= 2 * (len(TEXT) + 1) * len(wanted)


def steps_of(dialect: str, text: str, length: int) -> int:
    """Lines of Headgate that the reference runs for one message whose property is so long."""
    wanted = Filter.parse(text, dialect)
    messages = EncodedMessages.of([Message(application_properties={"p": "a" * length}).encode()])
    steps = 0

    def trace(frame: types.FrameType, event: str, _: object) -> Any:
        nonlocal steps
        if "headgate" not in frame.f_code.co_filename:
            return None
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = wanted.mask(messages, engine=Engine.REFERENCE)
    finally:
        sys.settrace(before)
    assert not found.any()
    return steps


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("dialect", ["amqp", "rabbitmq", "servicebus"])
def test_like_in_the_reference_takes_steps_in_proportion_to_the_value(dialect: str, pattern: str) -> None:
    nothing, short, long = (steps_of(dialect, f"p LIKE '{pattern}'", length) for length in (0, 200, 400))
    assert long - nothing <= 2.2 * (short - nothing)
    assert long - nothing <= 10 * 401 * len(pattern)


def test_contains_in_the_reference_takes_steps_in_proportion_to_the_value() -> None:
    text = f"p CONTAINS '{'a' * 30}b'"
    assert steps_of("rocketmq", text, 400) <= 2.2 * steps_of("rocketmq", text, 200)
