"""HOW peers speak: one pure core per protocol. Bytes in, events out; commands in, bytes out; no sockets, no clock.

    headgate.protocols.amqp10     AMQP 1.0
    headgate.protocols.amqp091    AMQP 0.9.1, and messages between it and AMQP 1.0
    headgate.protocols.stomp      STOMP
    headgate.protocols.rocketmq   messages of RocketMQ, and what its two protocols share
    headgate.protocols.stream     RabbitMQ's stream protocol, both sides
    headgate.protocols.sasl       how clients say who they are, in all of them

Each core has `receive(data) -> events`, methods or `send(command)` for what this side says, and `take_output()`. What
the events mean is decided in `server` (or `client`), never here.
"""
