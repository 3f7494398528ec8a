"""The parts that both protocols of RocketMQ share: messages, names, checks; each protocol has a package below.

    RocketMessage, to_amqp, from_amqp    a message, and the AMQP 1.0 message that it is stored as
    amqp_of_sent                         what is stored, of a property text and a body
    read_properties, property_text       property texts; `write_properties`: of bytes
    stable_id                            the id of a message that has none
    Status, status_code, refused         status codes, those of errors, and refusals with one
    check_…, Limits, delay_ms            what clients may send; delay levels
    ReceiptHandle, receipt_handles       what settles a delivery
    first_place, message_id              places of messages as one number, and as a text; `numbered_place_of`,
                                         `place_of`: what they say
    decompressed, compression_of         compressed bodies; `digest`, `body_crc`: check sums
    encode_stored, StoredFrom            messages in answers to pulls; `decode_batch`: in batches

Pure: no sockets, no clock, and no broker.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.protocols.rocketmq.bodies import (
        Compression,
        Digest,
        body_crc,
        compression_of,
        decompressed,
        digest,
    )
    from headgate.protocols.rocketmq.checks import (
        AUTOMATIC_TOPIC,
        DEAD_LETTER_PREFIX,
        RETRY_PREFIX,
        Limits,
        check_body,
        check_delivery_time,
        check_group,
        check_invisible_time,
        check_keys,
        check_message_group,
        check_message_id,
        check_properties,
        check_tag,
        check_topic,
    )
    from headgate.protocols.rocketmq.codes import Status, refused, status_code
    from headgate.protocols.rocketmq.delay_levels import DELAY_LEVELS_MS, delay_ms
    from headgate.protocols.rocketmq.identifiers import (
        MAX_QUEUES,
        NOWHERE,
        ReceiptHandle,
        first_place,
        host_bytes,
        message_id,
        numbered_place_of,
        place_of,
        receipt_handles,
    )
    from headgate.protocols.rocketmq.messages import (
        SHARDING_KEY,
        RocketMessage,
        amqp_of_sent,
        from_amqp,
        stable_id,
        to_amqp,
    )
    from headgate.protocols.rocketmq.properties import (
        MAX_PROPERTIES_BYTES,
        property_text,
        read_properties,
        write_properties,
    )
    from headgate.protocols.rocketmq.stored_messages import (
        BatchedMessage,
        StoredFrom,
        StoredMessages,
        decode_batch,
        encode_one,
        encode_stored,
    )
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
