"""Which error has which code."""

from __future__ import annotations

import inspect

import pytest

from headgate import errors
from headgate.errors import (
    AccessRefusedError,
    AuthenticationError,
    FilterSyntaxError,
    HeadgateError,
    LoopbackOnlyError,
    PreconditionFailedError,
    RemoteProtocolError,
    ReservedNameError,
    ResourceNotFoundError,
    StorageFullError,
    StreamLockedError,
    StreamNotFoundError,
    UnsuitableArgumentError,
)
from headgate.protocols.stream.codes import RESPONSE_CODES, SERVER_VERSIONS, ResponseCode, name_of_code, response_code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ResourceNotFoundError("no"), 0x02),
        (StreamNotFoundError("no", path="s"), 0x02),
        (StreamLockedError("held", path="s"), 0x06),
        (AuthenticationError("no"), 0x08),
        (LoopbackOnlyError("no"), 0x0B),
        (StorageFullError("full", path="s"), 0x0F),
        (AccessRefusedError("no"), 0x10),
        (PreconditionFailedError("no"), 0x11),
        (UnsuitableArgumentError("no"), 0x11),
        (ReservedNameError("no"), 0x11),
        (FilterSyntaxError("no", dialect="amqp", text="a ="), 0x11),
        (RemoteProtocolError("no", code=ResponseCode.FRAME_TOO_LARGE), 0x0E),
        (RemoteProtocolError("no"), 0x0F),
    ],
)
def test_an_error_has_the_code_of_the_nearest_class_in_the_table(error: HeadgateError, code: int) -> None:
    assert response_code(error) == code


def test_every_refusal_of_broker_and_log_has_a_code_that_is_not_ok() -> None:
    for _, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, HeadgateError):
            nearest = next(RESPONSE_CODES[base] for base in kind.__mro__ if base in RESPONSE_CODES)
            assert nearest is not ResponseCode.OK


def test_commands_are_listed_in_the_order_that_rstream_counts_on() -> None:
    assert SERVER_VERSIONS[:2] == ((1, 1, 1), (2, 1, 2))
    assert [key for key, _, _ in SERVER_VERSIONS] == [1, 2, *range(5, 8), *range(9, 16), *range(22, 26), *range(28, 32)]
    assert all(lowest == 1 for _, lowest, _ in SERVER_VERSIONS)


def test_codes_have_names() -> None:
    assert name_of_code(0x11) == "precondition failed (0x11)"
    assert name_of_code(0x99) == "unknown code 0x99"
