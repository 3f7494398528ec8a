"""Errors as answers: problem details (RFC 9457), or RabbitMQ's form for its monitors.

    {"type": "about:blank", "title": "Not Found", "status": 404, "detail": …, "error": …}

`error` is the same as `detail`, for programs that know RabbitMQ's form. A refused filter or rule also has `text` and
`span`, the place in the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated

import msgspec

from headgate.errors import (
    AccessRefusedError,
    BrokerError,
    ConfigError,
    FilterError,
    HeadgateError,
    ResourceExistsError,
    ResourceNotFoundError,
    RuleError,
    RuleExistsError,
    RuleNotFoundError,
    StreamLockedError,
    UnsupportedError,
)

MEDIA_TYPE = "application/problem+json"

_STATUSES: tuple[tuple[type[HeadgateError], int], ...] = (
    (ResourceNotFoundError, 404),
    (RuleNotFoundError, 404),
    (AccessRefusedError, 403),
    (UnsupportedError, 405),
    (ResourceExistsError, 409),
    (RuleExistsError, 409),
    (StreamLockedError, 409),
    (BrokerError, 400),
    (RuleError, 400),
    (FilterError, 400),
    (ConfigError, 400),
    (HeadgateError, 500),
)
"""The status for each kind of error: the first kind that fits counts."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was refused."""

    type: str = "about:blank"
    title: str
    """The status in words."""
    status: int
    detail: str
    """The reason."""
    error: str
    """The same as `detail`."""
    text: str | msgspec.UnsetType = msgspec.UNSET
    """The text of a refused filter or rule."""
    span: Annotated[list[int], msgspec.Meta(min_length=2, max_length=2)] | msgspec.UnsetType = msgspec.UNSET
    """The wrong place in that text: from and to."""

    @staticmethod
    def of(status: int, detail: str) -> Problem:
        """A problem with a status of HTTP."""
        return Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, error=detail)


class RequestRefusedError(Exception):
    """A request that is answered with a status and a reason, without a fault in the broker."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.problem = Problem.of(status, reason)
        self.headers = dict(headers or {})


def problem_of(error: HeadgateError) -> Problem:
    """The problem of an error; that of a wrong filter or action says the place in its text."""
    status = next(status for kind, status in _STATUSES if isinstance(error, kind))
    problem = Problem.of(status, str(error))
    wrong = error.cause if isinstance(error, RuleError) else error
    if isinstance(wrong, FilterError):
        return msgspec.structs.replace(problem, text=wrong.text, span=list(wrong.span))
    return problem
