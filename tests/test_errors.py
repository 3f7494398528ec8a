"""Errors cross processes: a task of Spark raises them where the driver catches them."""

import pickle

import pytest

from headgate import errors


@pytest.mark.parametrize(
    "error",
    [
        errors.FilterSyntaxError("found ]", dialect="amqp", text="a = ]", span=(4, 5)),
        errors.MessageError("no section", position=3),
        errors.MismatchError("price is text", stream="orders", offset=7),
        errors.StorageFullError("no room", path="/streams/orders", position=4),
        errors.RuleLimitError("too many", topic="orders", subscription="red"),
        errors.AccessRefusedError("may not write", subject="orders"),
        errors.ConnectionLostError("closed", server="broker:5552"),
        errors.RemoteProtocolError("malformed", code="amqp:decode-error"),
        errors.ConfigError("found x, expected y"),
        errors.PipelineError("sink failed", report={"failed": 1}),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_was_pickled_says_the_same(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
