"""Answers to requests that are refused."""

from __future__ import annotations

from collections.abc import Callable

from headgate.errors import HeadgateError
from headgate.protocols.rocketmq.remoting import Command, response_code

_REMARK_CHARACTERS = 2_000

Answer = Callable[[Command, Command], None]
"""Gets a request and its answer; none is sent to a request that nobody waits for."""


def refusal(command: Command, error: HeadgateError) -> Command:
    """The answer to a request that is refused."""
    return command.answer(response_code(error), remark=str(error)[:_REMARK_CHARACTERS])
