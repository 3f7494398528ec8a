"""Consumer groups: who consumes the messages of a topic together.

Registering                        the expressions that members announce (`Broker.registering`): an `Expression` each,
                                   kept up in the match indexes of streams; why one was refused: `Refusal`
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.broker.consumer_groups.registering import Expression, Refusal, Registering
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
