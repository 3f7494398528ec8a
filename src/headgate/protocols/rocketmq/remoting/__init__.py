"""RocketMQ's classic remoting protocol, without sockets: both sides of a connection (rocketmq_wire, part B).

    RemotingConnection, Command, ProtocolViolation    bytes in, commands out; commands in, bytes out
    RequestCode, ResponseCode, response_code          numbers of the protocol, and what each error is answered with
    read_header, read_send, pull_fields               typed headers (the table `headers`)
    encode_body, decode_body                          bodies in JSON (the table `bodies`); `subscriptions_of`
    not_supported                                     what an unserved request is answered: what to use instead
    is_signed, sign, ACCESS_KEY                       how clients with an access key sign their requests

Hidden: how headers are written, and the liberties that clients take with JSON.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.protocols.rocketmq.remoting.bodies import decode_body, encode_body, subscriptions_of
    from headgate.protocols.rocketmq.remoting.codes import (
        Flag,
        Language,
        RequestCode,
        ResponseCode,
        Serialization,
        response_code,
    )
    from headgate.protocols.rocketmq.remoting.connection import ProtocolViolation, RemotingConnection
    from headgate.protocols.rocketmq.remoting.frames import Command
    from headgate.protocols.rocketmq.remoting.headers import (
        MessageFlag,
        PullFlag,
        pull_fields,
        read_header,
        read_send,
    )
    from headgate.protocols.rocketmq.remoting.signatures import ACCESS_KEY, is_signed, sign
    from headgate.protocols.rocketmq.remoting.substitutes import not_supported
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
