"""Answers that requests of many kinds share, and the server's own requests to a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headgate.errors import HeadgateError
from headgate.protocols.rocketmq.remoting import Command, RequestCode, ResponseCode, response_code
from headgate.server.transport import Buffer

_REMARK_CHARACTERS = 2_000

Answer = Callable[[Command, Command], None]
"""Called with a request and its answer; the answer to a one-way request is not sent."""


class Tell(Protocol):
    """Sends a notice or a request to the client: `answered` gets the client's answer, None if the client has gone."""

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
    """A callback that answers a request when everything that it settles is written, or when that fails."""

    def answer_with(result: list[bool] | HeadgateError) -> None:
        if isinstance(result, HeadgateError):
            answer(command, refusal(command, result))
        else:
            answer(command, command.answer(ResponseCode.SUCCESS))

    return answer_with
