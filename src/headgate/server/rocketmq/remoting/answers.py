"""Answers that requests of many kinds have: refusals, and how settling ended."""

from __future__ import annotations

from collections.abc import Callable

from headgate.errors import HeadgateError
from headgate.protocols.rocketmq.remoting import Command, ResponseCode, response_code

_REMARK_CHARACTERS = 2_000

Answer = Callable[[Command, Command], None]
"""Gets a request and its answer; none is sent to a request that nobody waits for."""


def refusal(command: Command, error: HeadgateError) -> Command:
    """The answer to a request that is refused."""
    return command.answer(response_code(error), remark=str(error)[:_REMARK_CHARACTERS])


def settled(answer: Answer, command: Command) -> Callable[[list[bool] | HeadgateError], None]:
    """What answers a request when all that it settles is written, or when that fails."""

    def answer_with(result: list[bool] | HeadgateError) -> None:
        if isinstance(result, HeadgateError):
            answer(command, refusal(command, result))
        else:
            answer(command, command.answer(ResponseCode.SUCCESS))

    return answer_with
