from __future__ import annotations

import re

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from rocketmq_messages import FILES, PACKAGE, TYPES, types

from headgate.protocols.rocketmq.grpc import messages


def test_types_are_those_of_the_descriptors_that_the_classes_are_made_of() -> None:
    files = [FileDescriptorProto.FromString((PACKAGE / f"{name}.binpb").read_bytes()) for name in FILES]
    stated = TYPES.read_text()
    assert stated == "\n".join(types(FileDescriptorSet(file=files)))
    assert set(re.findall(r"^class (\w+)", stated, re.MULTILINE)) - set(vars(messages)) == {
        "Protobuf",
        "_Repeated",
        "_Values",
    }
