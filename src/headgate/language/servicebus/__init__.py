"""The language of Service Bus: SQL filters, correlation filters, rule actions, and the system properties they name.

SERVICE_BUS, Limits            the dialect, and the limits of a text
correlation_filter             a correlation filter as a bound tree; its errors name `CORRELATION` as their language
parse_action, Statement        rule actions; a statement is `SetProperty` or `RemoveProperty`, of a `Target`
system_property, SystemType    the system properties, and the type of each
duration_ms, duration_text      durations in texts
converted                      a string as the type of the value that it replaces
value_of, kind_of, compare     values as .NET has them: kinds, comparisons, `arithmetic`, dates and time spans
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.language.servicebus.actions import (
        RemoveProperty,
        SetProperty,
        Statement,
        Target,
        parse_action,
    )
    from headgate.language.servicebus.conversions import converted
    from headgate.language.servicebus.correlation import CORRELATION, correlation_filter
    from headgate.language.servicebus.dialect import SERVICE_BUS, parameter_values, typed_constant
    from headgate.language.servicebus.durations import (
        UNLIMITED,
        duration_ms,
        duration_text,
        duration_ticks,
        ticks_text,
    )
    from headgate.language.servicebus.limits import DEFAULT_LIMITS, Limits
    from headgate.language.servicebus.printer import field_text
    from headgate.language.servicebus.system_properties import (
        SystemProperty,
        SystemType,
        system_name,
        system_property,
        system_type,
    )
    from headgate.language.servicebus.values import (
        DATE_TIME_OFFSET,
        IMPLICIT_CONVERSIONS,
        INTEGER_LIMIT,
        INTEGER_MIN,
        INTEGERS,
        TICKS_PER_MS,
        TIME_SPAN,
        ValueKind,
        arithmetic,
        compare,
        date_time,
        described_as,
        equals,
        kind_of,
        new_id,
        new_id_octets,
        number_of,
        signed,
        text_of,
        ticks_of,
        time_span,
        typed_value,
        value_of,
    )
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
