"""Delivery of copies from a ledger's views, for subscriptions of topics and for consumer groups.

Consumption           a ledger at work: the changes of a turn, one commit, then answers and deliveries
ViewDispatcher        what gives out the copies of one view; `Settled`, `nobody_asks`: how settlement is answered
CopySource, Found     where copies come from; `StreamSource`: all messages of a stream; `read_some`, with
                      `READ_FIRST`, `RULE_BITS`, `NO_COPIES`: for sources of other kinds; `whole_offsets`
Leases                the claimed copies of one view, from their claim to settlement or expiry; `LeaseCounters`;
                      `Policy`, `Order`: how they are delivered, and in which order; `drop_copies`: settles others
ReadCopies, ReadCopy  copies that were read, and not claimed; `CopyState`: what one waits for
GivenCopies           claimed copies on their way to one receiver, in columns; each is a `Delivery`
Movement, TargetKind  how a moved copy is changed, and where it goes; `MovedCopies`: where it is taken from;
                      `Refused`: why a stream does not take it
Mover                 carries out the moves of a ledger; `append_to_stream`: to a stream, as its publishers append
Properties            what a copy gets beside its own properties: `NO_PROPERTIES`, `noted`, `with_note`
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.broker.delivery.consumption import Consumption, Settled, ViewDispatcher, nobody_asks
    from headgate.broker.delivery.copies import CopyState, Delivery, GivenCopies, ReadCopies, ReadCopy
    from headgate.broker.delivery.leases import LeaseCounters, Leases, Order, Policy, drop_copies
    from headgate.broker.delivery.mover import Mover
    from headgate.broker.delivery.moves import (
        NO_PROPERTIES,
        MovedCopies,
        Movement,
        Properties,
        Refused,
        TargetKind,
        append_to_stream,
        noted,
        with_note,
    )
    from headgate.broker.delivery.sources import (
        NO_COPIES,
        READ_FIRST,
        RULE_BITS,
        CopySource,
        Found,
        StreamSource,
        read_some,
        whole_offsets,
    )
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
