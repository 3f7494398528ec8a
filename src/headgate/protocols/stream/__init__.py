"""RabbitMQ's stream protocol: both sides of a connection, without sockets (stream_protocol.md).

Hides the layout of frames (`wire`, `frames`, `codec`), what may be said when (`server`, `client`), and the frames that
carry many things each (`publishing`, `delivery`), which are read and written in bulk.
"""
