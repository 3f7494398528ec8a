"""Answers of the broker that gRPC calls wait for."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from headgate.errors import HeadgateError

T = TypeVar("T")


class Answer(Generic[T]):
    """Called once, with the broker's answer; ignored if the waiting call has ended."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def __call__(self, answer: T | HeadgateError) -> None:
        """The broker answers."""
        if self._future.done():
            return
        if isinstance(answer, HeadgateError):
            self._future.set_exception(answer)
            # The call may never read it, if another answer was an error already: asyncio would log that.
            self._future.exception()
        else:
            self._future.set_result(answer)

    async def result(self) -> T:
        """The broker's answer. Raises HeadgateError."""
        return await self._future
