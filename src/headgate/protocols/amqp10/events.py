"""Events of an AMQP 1.0 connection, in the words of the standard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.protocols.amqp10.performatives import Attach, Begin, Open
from headgate.protocols.amqp10.terminus import DeliveryState, Error

if TYPE_CHECKING:
    from headgate.protocols.amqp10.link import Link
    from headgate.protocols.amqp10.session import Session

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HeadersExchanged:
    """A layer begins: a server offers its mechanisms in the SASL layer, a client opens in the other."""

    is_sasl: bool


@dataclass(frozen=True, slots=True)
class MechanismsOffered:
    """To a client: the SASL mechanisms it may use; answered by `send_init`."""

    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InitReceived:
    """To a server: the client's credentials; answered by `send_outcome`, and nothing is read until then."""

    mechanism: str
    response: bytes
    hostname: str | None


@dataclass(frozen=True, slots=True)
class OutcomeReceived:
    """To a client: a `SaslCode`; after 0 the next layer begins."""

    code: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer opened the connection; a server answers by `open`."""

    open: Open


@dataclass(frozen=True, slots=True)
class Began:
    """The peer began a session, or answered ours; a server answers by `session.start`."""

    session: Session
    begin: Begin


@dataclass(frozen=True, slots=True)
class Attached:
    """The peer attached a link, or answered ours; a server answers by `link.start` or `link.refuse`, now or later."""

    link: Link
    attach: Attach


@dataclass(frozen=True, slots=True)
class CreditChanged:
    """The peer set the credit of a link that we send on, or asked to drain it: see `link.credit`, `link.drain`."""

    link: Link


@dataclass(frozen=True, slots=True)
class WindowOpened:
    """The peer's window takes transfers again: links of the session may send."""

    session: Session


class Delivery(msgspec.Struct):
    """One of `Deliveries`; where `settled` no outcome is expected."""

    link: Link
    message: bytes
    delivery_id: int
    settled: bool


class Deliveries(msgspec.Struct, eq=False):
    """Whole messages that the peer sent on one link, in order.

    Message i is `starts[i] … starts[i] + lengths[i]` of `data` `(bytes,)` uint8; `ids` are its delivery ids, and where
    `settled` is not 0 no outcome is expected. All columns `(messages,)` int64; `message_format` is that of all. Valid
    until the next event is asked for.
    """

    link: Link
    data: NDArray[np.uint8]
    starts: Int64Array
    lengths: Int64Array
    ids: Int64Array
    settled: Int64Array
    message_format: int = 0

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[Delivery]:
        """One by one, copied; not for bulk."""
        for start, length, delivery_id, settled in zip(
            self.starts.tolist(), self.lengths.tolist(), self.ids.tolist(), self.settled.tolist(), strict=True
        ):
            yield Delivery(self.link, self.data[start : start + length].tobytes(), delivery_id, bool(settled))


@dataclass(frozen=True, slots=True)
class Aborted:
    """The peer aborted a message that had arrived in part, or we rejected one for its size; it used one credit."""

    link: Link


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The peer gave the state of deliveries `first` … `last`, which it `received` or, if false, sent.

    On a server, this event may be left out where a receiver settles; `Outcomes` is never left out.
    """

    session: Session
    received: bool
    first: int
    last: int
    settled: bool
    state: DeliveryState | None


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The peer gave the state of deliveries that it received on one link with our own tags (`Link.send`).

    If they are not `settled`, the peer waits for `Link.settle`.
    """

    link: Link
    ids: list[int]
    settled: bool
    state: DeliveryState | None


@dataclass(frozen=True, slots=True)
class Detached:
    """The link has ended: the peer detached it, answered our detach, or made an error (`failed`)."""

    link: Link
    closed: bool
    error: Error | None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The session has ended, and its links with it, in the ways that `Detached` names."""

    session: Session
    error: Error | None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Closed:
    """The peer closed the connection (and got its answer), or answered our close."""

    error: Error | None


Event = (
    HeadersExchanged
    | MechanismsOffered
    | InitReceived
    | OutcomeReceived
    | Opened
    | Began
    | Attached
    | CreditChanged
    | WindowOpened
    | Deliveries
    | Aborted
    | StateChanged
    | Outcomes
    | Detached
    | Ended
    | Closed
)
