"""AMQP 0.9.1: frames, methods and contents on one side, messages as streams store them on the other. Pure.

    ServerConnection, ConnectionState      the core of a connection, with `ConnectionLimits`
    Confirms, Unacknowledged               count a channel's tags
    read_publication, publication_of       a publication as the message to store; STOMP uses it, too
    read_deliveries, Delivery              stored messages as deliveries
    Table, Field, FieldType, long, table   fields of tables, how they are made; `plain_table` gives plain values
    encode_method, encode_short_string     bytes of a method that are sent many times
    ReplyCode, reply_code, reply_text      what each error is answered with

Events are in the table `events`, methods in `methods`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.protocols.amqp091.codec import encode_method, encode_short_string
    from headgate.protocols.amqp091.codes import ReplyCode, reply_code, reply_text
    from headgate.protocols.amqp091.connection import ConnectionLimits, ConnectionState, ServerConnection
    from headgate.protocols.amqp091.delivery import OFFSET_HEADER, Delivery, read_deliveries, read_delivery
    from headgate.protocols.amqp091.fields import (
        INTEGERS,
        Field,
        FieldType,
        Table,
        boolean,
        decode_table,
        long,
        long_string,
        plain_table,
        table,
    )
    from headgate.protocols.amqp091.properties import BasicProperties, with_reply_to
    from headgate.protocols.amqp091.publication import publication as publication_of
    from headgate.protocols.amqp091.publication import read_publication
    from headgate.protocols.amqp091.tags import Confirms, Unacknowledged
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
