"""RocketMQ's gRPC protocol, version 2: requests checked, answers composed, signatures. Pure.

    GrpcLimits                                         what a client may ask for
    sent_messages, check_type, sent_response           SendMessage; a `SentMessage` is one of its messages
    receive_request, Receive                           ReceiveMessage
    delivered_messages, Delivery, DeliveredFrom        its answer; `delivered`: one message
    Route, reached_at, route_response, assignment_response    QueryRoute, QueryAssignment
    ClientSettings, settings_answer                    Telemetry
    ack_response                                       settlement
    parsed, full_name, milliseconds, timestamp         messages from bytes; names, durations, times
    status_of, OK                                      errors as statuses
    Signature, parse_signature                         access keys

The messages themselves are in the table `messages`, made from the original's definitions.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.protocols.rocketmq.grpc.fields import OK, full_name, milliseconds, parsed, status_of, timestamp
    from headgate.protocols.rocketmq.grpc.receive_answers import DeliveredFrom, Delivery, delivered, delivered_messages
    from headgate.protocols.rocketmq.grpc.receive_requests import Receive, ack_response, receive_request
    from headgate.protocols.rocketmq.grpc.routes import TopicRoute, assignment_response, reached_at, route_response
    from headgate.protocols.rocketmq.grpc.send_requests import SentMessage, check_type, sent_messages, sent_response
    from headgate.protocols.rocketmq.grpc.settings import ClientSettings, GrpcLimits, settings_answer
    from headgate.protocols.rocketmq.grpc.signatures import Signature, parse_signature
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
