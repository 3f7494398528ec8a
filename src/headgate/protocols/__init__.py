"""HOW peers speak: one pure core per protocol. Bytes in, events out; commands in, bytes out; no sockets, no clock.

Each core has `receive(data) -> events`, methods or `send(command)` for what this side says, and `take_output()`. What
the events mean is decided in `server` (or `client`), never here.
"""
