"""Messages: AMQP 1.0 sections and typed values, their encoding, and batches of encoded messages.

    Message, Body, Change             one message, decoded when it is used; how it is made and edited
    EncodedMessages, check            a batch for kernels and evaluators; when bytes are not a message
                                      (docs/design/message-validity.md)
    NO_BODY, EMPTY_BODY               how a message without a body is stored
    FieldReference, Section           names of fields; `parse_field` reads one, `body_path_text` writes
                                      a path into a body
    JsonValue, json_document          the body as JSON: `Message.json`, and what paths lead to, `JsonPaths` several
    BodyValues, FieldValues           what filters compare at paths into the bodies of a batch, by `FoundKind`
    AmqpValue, AmqpType, AmqpArray    values with their types; `amqp_value` finds the type of a Python value
    encode_value, decode_value        values as bytes; `section_spans`, `skip_value` and `read_…` go through bytes
    from_json, to_json, plain_json    values as JSON with types, or without
    encode_variant, decode_variant    maps of values as Parquet's VARIANT
    stored_message, TAG               messages of RocketMQ as streams store them

Hidden: the byte layout of values and sections. Fields out of a batch are found by
`headgate.message.lookup`, Arrow columns are in `headgate.message.arrow`, which imports pyarrow.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.message.batch import SLACK_BYTES, EncodedMessages, outside_of_buffer
    from headgate.message.body_values import (
        BodyPath,
        BodyValues,
        FieldValues,
        FoundKind,
        paths_of,
        reference_body_values,
    )
    from headgate.message.codec import ValueDecoder, decode_value, encode_value
    from headgate.message.composition import Body
    from headgate.message.constructors import CONSTRUCTOR_WIDTHS, AmqpType
    from headgate.message.decimals import decimal_of, decimal_value, holds_decimal
    from headgate.message.description import SECTION_NAMES
    from headgate.message.edits import Change
    from headgate.message.fields import (
        DEFAULT_PRIORITY,
        HEADER_FIELDS,
        MAX_PATH_STEPS,
        PROPERTIES_FIELDS,
        FieldReference,
        Section,
        body_path_text,
        parse_field,
        steps_text,
        without_case,
    )
    from headgate.message.framing import (
        SectionSpan,
        check,
        is_usable,
        read_descriptor,
        read_unsigned,
        section_spans,
        skip_value,
        value_bounds,
    )
    from headgate.message.json_body import JsonKind, JsonPaths, JsonScalar, JsonValue, json_document, json_number
    from headgate.message.message import EMPTY_BODY, NO_BODY, Message
    from headgate.message.rocketmq import SYSTEM_PROPERTIES, TAG, stored_message
    from headgate.message.typed_json import from_json, from_plain_or_typed, plain_json, to_json
    from headgate.message.types import (
        DECIMAL_SIZES,
        INTEGER_RANGES,
        NULL,
        AmqpArray,
        AmqpValue,
        Described,
        amqp_value,
        timestamp_ms,
    )
    from headgate.message.variant import decode_variant, encode_variant
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
