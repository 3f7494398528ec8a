"""ReceiveMessage: what is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.errors import RemoteProtocolError
from headgate.protocols.rocketmq import Status
from headgate.protocols.rocketmq.grpc import GrpcLimits, receive_request
from headgate.protocols.rocketmq.grpc import messages as pb

LIMITS = GrpcLimits()


def request(**fields: Any) -> Any:
    told = {
        "group": pb.Resource(name="g"),
        "message_queue": pb.MessageQueue(topic=pb.Resource(name="orders"), id=-1),
        "batch_size": 10,
        "invisible_duration": pb.Duration(seconds=15),
    }
    return pb.ReceiveMessageRequest(**(told | fields))


def test_what_a_simple_consumer_asks_for() -> None:
    found = receive_request(
        request(
            filter_expression=pb.FilterExpression(type=pb.FilterType.SQL, expression="a = 1"),
            long_polling_timeout=pb.Duration(seconds=5, nanos=500_000_000),
            attempt_id="attempt",
        ),
        LIMITS,
    )
    assert (found.group, found.topic, found.count) == ("g", "orders", 10)
    assert (found.filter_type, found.filter_text) == (pb.FilterType.SQL, "a = 1")
    assert (found.invisible_ms, found.is_renewed, found.polling_ms) == (15_000, False, 5_500)


def test_a_push_consumer_has_the_servers_invisible_time() -> None:
    given = request(auto_renew=True, batch_size=1_000_000)
    given.ClearField("invisible_duration")
    found = receive_request(given, LIMITS)
    assert (found.is_renewed, found.invisible_ms, found.count, found.polling_ms) == (True, 60_000, 32, None)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"group": pb.Resource(name="")}, Status.ILLEGAL_CONSUMER_GROUP),
        ({"message_queue": pb.MessageQueue()}, Status.ILLEGAL_TOPIC),
        ({"batch_size": 0}, Status.BAD_REQUEST),
        ({"invisible_duration": pb.Duration(seconds=9)}, Status.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": None}, Status.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": pb.Duration(seconds=43_201)}, Status.ILLEGAL_INVISIBLE_TIME),
        ({"long_polling_timeout": pb.Duration(seconds=-1)}, Status.ILLEGAL_POLLING_TIME),
    ],
)
def test_refusals(fields: dict[str, Any], status: Status) -> None:
    with pytest.raises(RemoteProtocolError) as refusal:
        receive_request(request(**fields), LIMITS)
    assert refusal.value.code == status
