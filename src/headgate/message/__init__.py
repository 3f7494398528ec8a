"""WHAT a message is: AMQP 1.0 sections and typed values, their encoding, and many of them side by side.

Hides the byte layout of values and sections. `Message` is one message, decoded when it is used; `EncodedMessages` is a
batch that kernels and evaluators take; `check` says when bytes are not a message (docs/design/message-validity.md);
`fields` has the names of fields. Arrow columns are in `headgate.message.arrow`, which is imported on demand.
"""

from headgate.message.batch import SLACK_BYTES, EncodedMessages
from headgate.message.codec import decode_value, encode_value
from headgate.message.compose import Body
from headgate.message.constructors import CONSTRUCTOR_WIDTHS, AmqpType
from headgate.message.fields import FieldReference, Section
from headgate.message.framing import check
from headgate.message.message import Message
from headgate.message.types import AmqpArray, AmqpValue, Described, amqp_value

__all__ = [
    "AmqpArray",
    "AmqpType",
    "AmqpValue",
    "Body",
    "CONSTRUCTOR_WIDTHS",
    "Described",
    "EncodedMessages",
    "FieldReference",
    "Message",
    "SLACK_BYTES",
    "Section",
    "amqp_value",
    "check",
    "decode_value",
    "encode_value",
]
