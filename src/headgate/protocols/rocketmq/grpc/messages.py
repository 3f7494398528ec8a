"""The messages of `apache.rocketmq.v2.MessagingService`: a class each, and an enumeration each.

They are made from the descriptors `definition.binpb` and `service.binpb`. `make messages` writes these from Apache
RocketMQ's definitions, together with the types of the messages, `messages.pyi`. The descriptor pool is this module's
own: clients of RocketMQ for Python register files and messages of the same names in the default pool.
"""

from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pool, duration_pb2, timestamp_pb2
from google.protobuf.message_factory import GetMessageClass

SERVICE = "apache.rocketmq.v2.MessagingService"


class Method(NamedTuple):
    """A method of the service, and its messages."""

    name: str
    request: Any
    response: Any
    takes_stream: bool
    gives_stream: bool


_POOL = descriptor_pool.DescriptorPool()
for _serialized in (
    timestamp_pb2.DESCRIPTOR.serialized_pb,
    duration_pb2.DESCRIPTOR.serialized_pb,
    Path(__file__).with_name("definition.binpb").read_bytes(),
    Path(__file__).with_name("service.binpb").read_bytes(),
):
    _file = _POOL.AddSerializedFile(_serialized)
    for _name, _enum in _file.enum_types_by_name.items():
        if _name != "Code":  # the status codes are `headgate.protocols.rocketmq.Status`
            globals()[_name] = IntEnum(_name, {each.name: each.number for each in _enum.values}, module=__name__)
    for _name, _message in _file.message_types_by_name.items():
        globals()[_name] = GetMessageClass(_message)

METHODS = tuple(
    Method(
        each.name,
        GetMessageClass(each.input_type),
        GetMessageClass(each.output_type),
        each.client_streaming,
        each.server_streaming,
    )
    for each in _POOL.FindServiceByName(SERVICE).methods
)
