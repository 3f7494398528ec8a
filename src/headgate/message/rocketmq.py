"""The places of a RocketMQ message's properties in the AMQP 1.0 message that is stored for it.

    TAGS                      message annotation x-opt-rocketmq-tag, string
    KEYS                      message annotation x-opt-rocketmq-keys, string
    UNIQ_KEY                  message-id, string
    other system properties   message annotation x-opt-rocketmq-<name>, string
    user properties           application properties, string → string

Source: rocketmq_filters, sections 2 and 13. System properties are the names that RocketMQ 5.5's clients refuse for user
properties; every other name is a user property, even if it looks like a system property.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headgate.message.constructors import AmqpType
from headgate.message.fields import PROPERTIES_FIELDS, FieldReference, Section
from headgate.message.message import Message

ANNOTATION_PREFIX = "x-opt-rocketmq-"
TAG_ANNOTATION = f"{ANNOTATION_PREFIX}tag"
KEYS_ANNOTATION = f"{ANNOTATION_PREFIX}keys"

_NAMES = (
    "1ST_POP_TIME",
    "ARRIVE_TIME",
    "BORN_TIMESTAMP",
    "BUYER_ID",
    "CLUSTER",
    "CONSUME_START_TIME",
    "CORRECTION_FLAG",
    "CORRELATION_ID",
    "DELAY",
    "DLQ_ORIGIN_MESSAGE_ID",
    "DLQ_ORIGIN_TOPIC",
    "DUP_INFO",
    "EXTEND_UNIQ_INFO",
    "INNER_MULTI_QUEUE_OFFSET",
    "INSTANCE_ID",
    "KEYS",
    "MAX_OFFSET",
    "MAX_RECONSUME_TIMES",
    "MIN_OFFSET",
    "MQ2_FLAG",
    "MSG_REGION",
    "MSG_TYPE",
    "ORIGIN_GROUP",
    "ORIGIN_MESSAGE_ID",
    "PGROUP",
    "POP_CK",
    "POP_CK_OFFSET",
    "PUSH_REPLY_TIME",
    "REAL_QID",
    "REAL_TOPIC",
    "RECONSUME_TIME",
    "REPLY_TO_CLIENT",
    "RETRY_TOPIC",
    "TAGS",
    "TIMER_DELAY_LEVEL",
    "TIMER_DELAY_MS",
    "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS",
    "TIMER_DEL_UNIQKEY",
    "TIMER_DEQUEUE_MS",
    "TIMER_ENQUEUE_MS",
    "TIMER_OUT_MS",
    "TIMER_ROLL_TIMES",
    "TRACE_ON",
    "TRANSFER_FLAG",
    "TRAN_MSG",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "TTL",
    "UNIQ_KEY",
    "WAIT",
    "_SYS_MSG_PRIORITY_",
    "__BORNHOST",
    "__CRC32#",
    "__LITE_TOPIC",
)

_OTHER_KEYS = {"TAGS": TAG_ANNOTATION, "KEYS": KEYS_ANNOTATION}


def _annotation(name: str) -> FieldReference:
    key = _OTHER_KEYS.get(name, ANNOTATION_PREFIX + name)
    return FieldReference(Section.MESSAGE_ANNOTATIONS, key=key.encode(), only=AmqpType.STRING)


SYSTEM_PROPERTIES: Mapping[str, FieldReference] = MappingProxyType(
    {name: _annotation(name) for name in _NAMES}
    | {
        "UNIQ_KEY": FieldReference(
            Section.PROPERTIES, position=PROPERTIES_FIELDS.index("message-id"), only=AmqpType.STRING
        )
    }
)
"""The field of each system property; a value that is not a string counts as none."""

TAG = SYSTEM_PROPERTIES["TAGS"]
"""The field that holds a message's tag."""


def stored_message(properties: Mapping[str, object], body: bytes = b"") -> Message:
    """The message that RocketMQ's property map and body are stored as; values as `amqp_value` takes them.

    Raises ConfigError for values without AMQP type.
    """
    annotations: dict[str, object] = {}
    message_id: dict[str, object] = {}
    user: dict[str, object] = {}
    for name, value in properties.items():
        reference = SYSTEM_PROPERTIES.get(name)
        if reference is None:
            user[name] = value
        elif reference.key is None:
            message_id["message-id"] = value
        else:
            annotations[reference.key.decode()] = value
    return Message(
        body,
        message_annotations=annotations or None,
        properties=message_id or None,
        application_properties=user or None,
    )
