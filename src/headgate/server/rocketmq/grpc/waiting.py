"""Answers of the broker that calls of gRPC wait for."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from headgate.errors import HeadgateError

T = TypeVar("T")


class Answer(Generic[T]):
    """Is called once, with what the broker answers; a call that has ended meanwhile hears nothing."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def __call__(self, answer: T | HeadgateError) -> None:
        """The broker answers."""
        if self._future.done():
            return
        if isinstance(answer, HeadgateError):
            self._future.set_exception(answer)
            # Nobody may come to it, where another answer was an error already: asyncio would log that.
            self._future.exception()
        else:
            self._future.set_result(answer)

    async def result(self) -> T:
        """What it answered. Raises HeadgateError."""
        return await self._future
