"""Bodies of Protobuf, by the descriptors of their types.

The library's reader gives up at 100 levels. Fields without presence appear with their default, so a body of a few bytes
can have many values: they are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from headgate.errors import ConfigError
from headgate.message.json_body import MAX_JSON_BYTES

if TYPE_CHECKING:
    from headgate.message.body_schema.schema import Decode

_MOST_VALUES = MAX_JSON_BYTES // 2
"""More do not fit into the longest document."""

Convert = Callable[[Any], object]


def decoder(content: bytes, message_type: str, *, has_indexes: bool) -> Decode:
    """The decoder of a message type in a FileDescriptorSet. Raises ConfigError.

    With `has_indexes` a body begins with the place of its type in its file, as Confluent's clients write it; a body of
    another type does not decode.
    """
    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(content)
        for file in _sorted(files):
            pool.AddSerializedFile(file.SerializeToString())
        descriptor = pool.FindMessageTypeByName(message_type)
    except DecodeError as error:
        raise ConfigError("not a FileDescriptorSet; make one with protoc --include_imports -o FILE") from error
    except KeyError as error:
        raise ConfigError(f"the FileDescriptorSet has no message {message_type!r}") from error
    except RecursionError as error:
        raise ConfigError("the files of the FileDescriptorSet import each other too deep") from error
    except TypeError as error:
        raise ConfigError(f"not a whole FileDescriptorSet: {error}; protoc needs --include_imports") from error
    message_class = message_factory.GetMessageClass(descriptor)
    prefixes = _prefixes(_indexes(descriptor)) if has_indexes else (b"",)

    def decode(body: bytes) -> object:
        prefix = next((each for each in prefixes if body.startswith(each)), None)
        if prefix is None:
            raise ValueError("another message type")
        message = message_class.FromString(body[len(prefix) :])
        if not message_class.IsInitialized(message):
            raise ValueError("a required field is missing, which this reader does not look at")
        return _Conversion().message(message)

    return decode


def _sorted(files: descriptor_pb2.FileDescriptorSet) -> Iterator[descriptor_pb2.FileDescriptorProto]:
    """The files, each behind those that it imports."""
    waiting = {file.name: file for file in files.file}

    def with_imports(name: str) -> Iterator[descriptor_pb2.FileDescriptorProto]:
        file = waiting.pop(name, None)
        if file is not None:
            for imported in file.dependency:
                yield from with_imports(imported)
            yield file

    for file in files.file:
        yield from with_imports(file.name)


def _indexes(descriptor: Descriptor) -> list[int]:
    """Where a type stands: its number in its file, or in the type around it, from the outermost on."""
    around = descriptor.containing_type
    if around is None:
        file = descriptor_pb2.FileDescriptorProto()
        descriptor.file.CopyToProto(file)
        return [[each.name for each in file.message_type].index(descriptor.name)]
    outer = descriptor_pb2.DescriptorProto()
    around.CopyToProto(outer)
    return [*_indexes(around), [each.name for each in outer.nested_type].index(descriptor.name)]


def _prefixes(indexes: list[int]) -> tuple[bytes, ...]:
    """How Confluent's clients write a place: zigzag numbers behind their count, or one 0 for the first type."""
    written = b"".join(_varint(2 * number) for number in [len(indexes), *indexes])
    return (written, b"\0") if indexes == [0] else (written,)


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


class _Conversion:
    """One message as objects of JSON, by the names of fields in the schema."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _MOST_VALUES

    def message(self, message: Message) -> dict[str, object]:
        """A message: fields with presence that are set, and all others."""
        # Of the class: fields of these names hide what every message has.
        kind = type(message)
        fields = kind.DESCRIPTOR.fields
        self._count(len(fields))
        return {
            field.name: self._field(field, getattr(message, field.name))
            for field in fields
            if not field.has_presence or kind.HasField(message, field.name)
        }

    def _field(self, field: FieldDescriptor, value: Any) -> object:
        if not field.is_repeated:
            return self._value(field, value)
        self._count(len(value))
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            of = kind.fields_by_name["value"]
            return {_key(key): self._value(of, value[key]) for key in value}
        return [self._value(field, each) for each in value]

    def _value(self, field: FieldDescriptor, value: Any) -> object:
        if field.message_type is not None:
            return self.message(value)
        if field.enum_type is not None:
            named = field.enum_type.values_by_number.get(value)
            return value if named is None else named.name
        if field.type == FieldDescriptor.TYPE_STRING and isinstance(value, bytes):
            raise ValueError("a string of proto2 that is no UTF-8, which the library gives as bytes")
        return value

    def _count(self, values: int) -> None:
        self.left -= values
        if self.left < 0:
            raise ValueError("more values than a document can have")


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
