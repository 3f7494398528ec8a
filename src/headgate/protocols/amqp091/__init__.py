"""AMQP 0.9.1: frames, methods and contents on one side, messages as streams store them on the other. Pure.

`ServerConnection` is the core of a connection; `publication` and `delivery` convert messages (STOMP uses them too);
`codes` says what each error is answered with.
"""
