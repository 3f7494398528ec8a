"""WHO gets what: streams, publishers, consumers with credit, exchanges, groups, users. No sockets, clock or protocol.

The same commands serve every protocol; time comes in as an argument or through the clock that the broker was given.
"""
