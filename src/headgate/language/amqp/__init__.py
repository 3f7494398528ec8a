"""The languages of AMQP, `rabbitmq` and `amqp`, with property filters and the filter map of a receiver.

RABBITMQ, AMQP                            the two dialects; `COMPARISONS` and `quoted_text` others build upon
properties_filter, properties_entries     property filters as bound trees, of one section each
read_filter_set, FilterSet                the filter map of a receiver: what it asks for, which entries are refused
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.language.amqp.dialect import AMQP
    from headgate.language.amqp.filter_set import (
        PRECONDITION_FAILED,
        FilterEntry,
        FilterSet,
        OffsetRequest,
        OffsetRequestKind,
        RefusedEntry,
        read_filter_set,
    )
    from headgate.language.amqp.properties import (
        application_properties_entries,
        application_properties_filter,
        joined,
        properties_entries,
        properties_filter,
    )
    from headgate.language.amqp.rabbitmq import COMPARISONS, RABBITMQ, quoted_text
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
