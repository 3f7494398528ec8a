"""The files that state a schema."""

from __future__ import annotations

import re
from pathlib import Path

from headgate.errors import ConfigError
from headgate.message.body_schema.schema import BodySchema, SchemaFormat

_AVRO = ".avsc"
_PROTOBUF = (".desc", ".binpb", ".pb")
_NUMBER = re.compile("[0-9]{1,10}")
_EXPECTED = f"a file {_AVRO}, a file {', '.join(_PROTOBUF)} with #package.Message, or a folder of such files"


def read_body_schema(reference: str) -> BodySchema:
    """The schema that `orders.avsc`, `orders.desc#package.Message` or a folder of such files states, checked.

    A Protobuf file is a FileDescriptorSet with its imports. The files of a folder have the ids of a registry as names,
    `17.avsc`: bodies begin with Confluent's header, which names one. Raises ConfigError.
    """
    if "://" in reference or reference.startswith("confluent:"):
        raise ConfigError(
            f"{reference!r}: no registry is asked, so that history is decided the same for ever. Save its schemas into "
            f"a folder, each under its id, such as 17{_AVRO}, and name the folder"
        )
    place, _, message_type = reference.partition("#")
    path = Path(place)
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    if path.is_dir() and not all(_NUMBER.fullmatch(each.stem) and int(each.stem) < 1 << 32 for each in paths):
        raise ConfigError(f"{place!r}: each file of the folder has an id of the registry as its name, 17{_AVRO}")
    suffixes = {each.suffix for each in paths}
    if suffixes == {_AVRO}:
        format_ = SchemaFormat.AVRO
    elif suffixes and suffixes <= set(_PROTOBUF):
        format_ = SchemaFormat.PROTOBUF
    else:
        raise ConfigError(f"found {reference!r}; expected {_EXPECTED}")
    if bool(message_type) is not (format_ is SchemaFormat.PROTOBUF):
        raise ConfigError(f"found {reference!r}; a schema of Protobuf needs #package.Message, one of Avro has no types")
    try:
        files = [(int(each.stem) if path.is_dir() else None, each.read_bytes()) for each in paths]
    except OSError as error:
        raise ConfigError(f"{place}: cannot be read: {error.strerror}") from error
    if len({number for number, _ in files}) < len(files):
        raise ConfigError(f"{place!r}: found two files for one id")
    schema = BodySchema(format_, tuple(files), message_type or None)
    schema.check()
    return schema
