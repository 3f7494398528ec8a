"""Writes what `protocols/rocketmq/grpc/messages.py` makes its classes of, and their types for mypy.

    python tools/rocketmq_messages.py        needs grpcio-tools (`make messages` installs it)

The files `definition.proto` and `service.proto` in `tools/rocketmq` are Apache RocketMQ's (rocketmq-apis; Apache
License 2.0), unchanged, as its clients carry them. Each becomes a serialized FileDescriptorProto of the same name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet

PROTOS = Path(__file__).parent / "rocketmq"
PACKAGE = Path(__file__).parent.parent / "src/headgate/protocols/rocketmq/grpc"
TYPES = PACKAGE / "messages.pyi"
FILES = ("definition", "service")
FOLDER = "apache/rocketmq/v2"

HEAD = """\
# Made from definition.proto and service.proto of Apache RocketMQ by tools/rocketmq_messages.py; not edited by hand.
# Licensed to the Apache Software Foundation (ASF) under one or more contributor license agreements; the ASF licenses
# them under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
# ruff: noqa: N802

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from enum import IntEnum
from typing import Generic, NamedTuple, Self, TypeVar, dataclass_transform

SERVICE: str
METHODS: tuple[Method, ...]
_T = TypeVar("_T")

@dataclass_transform(kw_only_default=True)
class Protobuf:
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...
    def SerializeToString(self) -> bytes: ...
    def CopyFrom(self, other: Self) -> None: ...
    def HasField(self, name: str) -> bool: ...
    def ClearField(self, name: str) -> None: ...
    def WhichOneof(self, name: str) -> str | None: ...
    def ByteSize(self) -> int: ...

class _Values(Generic[_T]):
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_T]: ...
    def __getitem__(self, index: int) -> _T: ...
    def append(self, value: _T) -> None: ...
    def extend(self, values: Iterable[_T]) -> None: ...
    def add(self, **values: object) -> _T: ...

class _Repeated(Generic[_T]):
    def __get__(self, message: object, kind: object) -> _Values[_T]: ...
    def __set__(self, message: object, values: Iterable[_T] | None) -> None: ...

class Timestamp(Protobuf):
    seconds: int = ...
    nanos: int = ...

class Duration(Protobuf):
    seconds: int = ...
    nanos: int = ...

class Method(NamedTuple):
    name: str
    request: type[Protobuf]
    response: Callable[..., Protobuf]
    takes_stream: bool
    gives_stream: bool
"""

_ELSEWHERE = frozenset({"Code"})
"""Enumerations that `messages.py` leaves out: the status codes are those of `headgate.protocols.rocketmq`."""

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
    import grpc_tools
    from grpc_tools import protoc

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


def types(files: FileDescriptorSet) -> Iterator[str]:
    """The lines of the types."""
    yield HEAD
    for enum in _enums(files):
        yield f"class {enum.name}(IntEnum):"
        yield from (f"    {value.name} = {value.number}" for value in enum.value)
        yield ""
    for message in _messages(files):
        yield f"class {message.name}(Protobuf):" + ("" if message.field else " ...")
        yield from (f"    {field.name}: {_type(message, field)} = ..." for field in message.field)
        yield ""


def _enums(files: FileDescriptorSet) -> Iterator[EnumDescriptorProto]:
    for file in files.file:
        yield from (enum for enum in file.enum_type if enum.name not in _ELSEWHERE)


def _messages(files: FileDescriptorSet) -> Iterator[DescriptorProto]:
    for file in files.file:
        yield from file.message_type


def _name(type_name: str) -> str:
    return type_name.rpartition(".")[2]


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


def main() -> None:
    """Write the descriptors and the types."""
    files = compiled()
    for name, file in zip(FILES, files.file, strict=True):
        (PACKAGE / f"{name}.binpb").write_bytes(file.SerializeToString())
    TYPES.write_text("\n".join(types(files)))


if __name__ == "__main__":
    main()
