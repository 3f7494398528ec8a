"""Service Bus on top of AMQP 1.0: addresses, tokens, requests and responses, batches, rules, conditions.

    Address, Part, parse_address, is_cbs, covers   entities and what belongs to them, as addresses
    SharedAccessToken, parse_token   shared-access signatures
    RequestMessage                                 a request, what it asks for, and the responses to it: `peeked`,
                                                   `received`, `scheduled`, `deleted`, `renewed`, `enumerated`
    RuleDescription, CorrelationDescription        rules as clients describe them; `told_rule` tells of one
    Refusal, refusal_of                            condition, status and text of every error; `LOCK_LOST` and others
    stored, delivered, Given                       messages as they are stored, and as receivers get them
    delivered_messages, GivenMessages              many of them at once
    Identifiers, beyond_limits                     which ids they have, and those that are larger than allowed
    BATCH_FORMAT, unbatched                        many messages in one delivery
    guid_of, token_of                              lock tokens
    SessionRequest, session_request                which session a link is to have; `session_answer`: which one it has
    SESSION_FILTER                                 the filter that says so
    Resource, ResourceKind, parse_resource         paths of requests to administration
    parse_entry, Entry, feed, error_document       Atom documents of administration
    EntityDescription, RuntimeDescription          entities in them: `read_description`, `told_description`,
                                                   `told_namespace`; rules: `read_rule_description`,
                                                   `told_rule_description`

The requests are in the table `requests`. Pure: no sockets, no clock, and no broker.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.protocols.servicebus.addresses import Address, Part, covers, is_cbs, parse_address, relative
    from headgate.protocols.servicebus.atom import Entry, error_document, feed, parse_entry
    from headgate.protocols.servicebus.batches import BATCH_FORMAT, MAX_BATCH_MESSAGES, unbatched
    from headgate.protocols.servicebus.codes import (
        LOCK_LOST,
        MESSAGE_NOT_FOUND,
        NO_SESSION,
        SESSION_LOCK_LOST,
        Refusal,
        ServiceBusCondition,
        not_found,
        not_implemented,
        refusal_of,
    )
    from headgate.protocols.servicebus.descriptions import (
        AuthorizationDescription,
        DescriptionKind,
        EntityDescription,
        EntityStatus,
        RuntimeDescription,
        read_description,
        told_description,
        told_namespace,
    )
    from headgate.protocols.servicebus.locks import guid_of, token_of
    from headgate.protocols.servicebus.messages import (
        SCHEDULED_TIME,
        Given,
        GivenMessages,
        Identifiers,
        beyond_limits,
        delivered,
        delivered_messages,
        stored,
    )
    from headgate.protocols.servicebus.requests import (
        RequestMessage,
        deleted,
        enumerated,
        listed_sessions,
        peeked,
        received,
        renewed,
        renewed_session,
        scheduled,
        told_state,
    )
    from headgate.protocols.servicebus.resources import Resource, ResourceKind, parse_resource
    from headgate.protocols.servicebus.rule_xml import read_rule_description, told_rule_description
    from headgate.protocols.servicebus.rules import (
        COMPATIBILITY_LEVEL,
        CORRELATION_FIELDS,
        CorrelationDescription,
        RuleDescription,
        told_rule,
    )
    from headgate.protocols.servicebus.sessions import SESSION_FILTER, SessionRequest, session_answer, session_request
    from headgate.protocols.servicebus.tokens import SharedAccessToken, parse_token
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
