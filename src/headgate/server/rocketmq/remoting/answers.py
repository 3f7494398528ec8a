"""What is said to clients: answers that requests of many kinds have, and what the server asks by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headgate.errors import HeadgateError
from headgate.protocols.rocketmq.remoting import Command, RequestCode, ResponseCode, response_code
from headgate.server.transport import Buffer

_REMARK_CHARACTERS = 2_000

Answer = Callable[[Command, Command], None]
"""Gets a request and its answer; none is sent to a request that nobody waits for."""


class Tell(Protocol):
    """Says something to the client, or asks it something: `answered` gets the answer, None if it has gone."""

    def __call__(
        self,
        code: RequestCode,
        fields: dict[str, str],
        answered: Callable[[Command | None], None] | None = None,
        body: Buffer = b"",
    ) -> None:
        """Without `answered` the client need not answer."""


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
