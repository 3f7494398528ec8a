"""Writes the messages of RocketMQ's gRPC service as Python: `protocols/rocketmq/grpc/messages.py` and its types.

    python tools/rocketmq_messages.py        needs grpcio-tools (`make messages` installs it)

The files `definition.proto` and `service.proto` in `tools/rocketmq` are Apache RocketMQ's (rocketmq-apis; Apache
License 2.0), unchanged, as its clients carry them. The code keeps its messages in a descriptor pool of its own:
clients of RocketMQ for Python register files and messages of the same names in the default pool.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc_tools
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

PROTOS = Path(__file__).parent / "rocketmq"
TARGET = Path(__file__).parent.parent / "src/headgate/protocols/rocketmq/grpc/messages.py"
FILES = ("definition", "service")
FOLDER = "apache/rocketmq/v2"
PACKAGE = "apache.rocketmq.v2"

LICENSE = """\
# Made from definition.proto and service.proto of Apache RocketMQ by tools/rocketmq_messages.py; not edited by hand.
# Licensed to the Apache Software Foundation (ASF) under one or more contributor license agreements; the ASF licenses
# them under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""

_BYTES_A_LINE = 24
_WELL_KNOWN = ("Timestamp", "Duration")
_ELSEWHERE = frozenset({"Code"})
"""Enumerations that are not written: the status codes are those of `headgate.protocols.rocketmq`."""

_SCALARS = {
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_INT32: "int",
    FieldDescriptorProto.TYPE_INT64: "int",
    FieldDescriptorProto.TYPE_STRING: "str",
    FieldDescriptorProto.TYPE_ENUM: "int",
}


def compiled() -> FileDescriptorSet:
    """The two files, as protoc understands them."""
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        within = Path(folder, FOLDER)
        within.mkdir(parents=True)
        for name in FILES:
            (within / f"{name}.proto").write_bytes((PROTOS / f"{name}.proto").read_bytes())
        output = Path(folder, "all")
        sources = [f"{FOLDER}/{name}.proto" for name in FILES]
        code = protoc.main(["protoc", f"-I{folder}", f"-I{well_known}", f"--descriptor_set_out={output}", *sources])
        if code:
            raise SystemExit(code)
        return FileDescriptorSet.FromString(output.read_bytes())


def module(files: FileDescriptorSet) -> Iterator[str]:
    """The lines of the module."""
    yield LICENSE
    yield '"""The messages of `apache.rocketmq.v2.MessagingService`, in a descriptor pool of their own."""\n'
    yield "from __future__ import annotations\n"
    yield "from enum import IntEnum\nfrom typing import Any, NamedTuple\n"
    yield "from google.protobuf import descriptor_pool, duration_pb2, message_factory, timestamp_pb2\n"
    yield f'SERVICE = "{PACKAGE}.MessagingService"\n'
    yield "_POOL = descriptor_pool.DescriptorPool()"
    yield "for _file in (\n    timestamp_pb2.DESCRIPTOR.serialized_pb,\n    duration_pb2.DESCRIPTOR.serialized_pb,"
    for file in files.file:
        data = file.SerializeToString()
        yield "    ("
        for start in range(0, len(data), _BYTES_A_LINE):
            yield f"        {data[start : start + _BYTES_A_LINE]!r}"
        yield "    ),"
    yield "):\n    _POOL.AddSerializedFile(_file)\n\n"
    yield (
        "def _message(name: str) -> Any:\n"
        f'    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{{name}}"))\n\n'
    )
    yield (
        "class Method(NamedTuple):\n"
        '    """A method of the service, and its messages."""\n\n'
        "    name: str\n    request: Any\n    response: Any\n    takes_stream: bool\n    gives_stream: bool\n\n"
    )
    for enum in _enums(files):
        yield f"class {enum.name}(IntEnum):"
        yield f'    """The enumeration {enum.name}."""\n'
        yield from (f"    {value.name} = {value.number}" for value in enum.value)
        yield "\n"
    for name in _WELL_KNOWN:
        yield f'{name} = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("google.protobuf.{name}"))'
    for message in _messages(files):
        yield f'{message.name} = _message("{message.name}")'
    yield "\nMETHODS = ("
    for method in files.file[-1].service[0].method:
        types = (method.name, _name(method.input_type), _name(method.output_type))
        streams = (method.client_streaming, method.server_streaming)
        yield f'    Method("{types[0]}", {types[1]}, {types[2]}, {streams[0]}, {streams[1]}),'
    yield ")"


def types(files: FileDescriptorSet) -> Iterator[str]:
    """The lines of its types."""
    yield LICENSE
    yield "from collections.abc import Callable, Iterable, Iterator, MutableMapping"
    yield "from enum import IntEnum\nfrom typing import Generic, NamedTuple, Self, TypeVar\n"
    yield 'SERVICE: str\nMETHODS: tuple[Method, ...]\n_T = TypeVar("_T")\n'
    yield (
        "class Protobuf:\n"
        "    @classmethod\n    def FromString(cls, data: bytes) -> Self: ...\n"
        "    def SerializeToString(self) -> bytes: ...\n"
        "    def CopyFrom(self, other: Self) -> None: ...\n"
        "    def HasField(self, name: str) -> bool: ...\n"
        "    def ClearField(self, name: str) -> None: ...\n"
        "    def WhichOneof(self, name: str) -> str | None: ...\n"
        "    def ByteSize(self) -> int: ...\n"
    )
    yield (
        "class _Repeated(Generic[_T]):\n"
        "    def __len__(self) -> int: ...\n    def __iter__(self) -> Iterator[_T]: ...\n"
        "    def __getitem__(self, index: int) -> _T: ...\n"
        "    def append(self, value: _T) -> None: ...\n    def extend(self, values: Iterable[_T]) -> None: ...\n"
        "    def add(self, **values: object) -> _T: ...\n"
    )
    for name in _WELL_KNOWN:
        yield f"class {name}(Protobuf):\n    def __init__(self, *, seconds: int = ..., nanos: int = ...) -> None: ..."
        yield "    seconds: int\n    nanos: int\n"
    yield (
        "class Method(NamedTuple):\n    name: str\n    request: type[Protobuf]\n    response: Callable[..., Protobuf]\n"
        "    takes_stream: bool\n    gives_stream: bool\n"
    )
    for enum in _enums(files):
        yield f"class {enum.name}(IntEnum):"
        yield from (f"    {value.name} = {value.number}" for value in enum.value)
        yield ""
    for message in _messages(files):
        yield f"class {message.name}(Protobuf):"
        fields = [(field.name, _type(message, field), _is_plain(field)) for field in message.field]
        arguments = "".join(f", {field.name}: {_argument(message, field)} = ..." for field in message.field)
        yield f"    def __init__(self{', *' if arguments else ''}{arguments}) -> None: ..."
        for name, kind, is_plain in fields:
            yield f"    {name}: {kind}" if is_plain else f"    @property\n    def {name}(self) -> {kind}: ..."
        yield ""


def _enums(files: FileDescriptorSet) -> Iterator[EnumDescriptorProto]:
    for file in files.file:
        yield from (enum for enum in file.enum_type if enum.name not in _ELSEWHERE)


def _messages(files: FileDescriptorSet) -> Iterator[DescriptorProto]:
    for file in files.file:
        yield from file.message_type


def _name(type_name: str) -> str:
    return type_name.rpartition(".")[2]


def _is_plain(field: FieldDescriptorProto) -> bool:
    return field.label != FieldDescriptorProto.LABEL_REPEATED and field.type != FieldDescriptorProto.TYPE_MESSAGE


def _single(field: FieldDescriptorProto) -> str:
    return _name(field.type_name) if field.type == FieldDescriptorProto.TYPE_MESSAGE else _SCALARS[field.type]


def _is_map(message: DescriptorProto, field: FieldDescriptorProto) -> bool:
    return any(nested.name == _name(field.type_name) and nested.options.map_entry for nested in message.nested_type)


def _type(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    if _is_map(message, field):
        return "MutableMapping[str, str]"
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"_Repeated[{_single(field)}]"
    return _single(field)


def _argument(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    if _is_map(message, field):
        return "MutableMapping[str, str] | None"
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"Iterable[{_single(field)}] | None"
    return f"{_single(field)} | None"


def main() -> None:
    """Write both files."""
    files = compiled()
    TARGET.write_text("\n".join(module(files)) + "\n")
    TARGET.with_suffix(".pyi").write_text("\n".join(types(files)) + "\n")


if __name__ == "__main__":
    main()
