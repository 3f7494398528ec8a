"""Rules between XML and their descriptions: filters, actions, and the typed values in them.

Source: servicebus_wire, section 8; servicebus_filters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from headgate.errors import ConfigError
from headgate.language.servicebus import TIME_SPAN, duration_ticks, ticks_text, time_span
from headgate.message import AmqpType, AmqpValue
from headgate.protocols.servicebus.atom import SCHEMA, XmlElement, described, element, escaped, read_boolean
from headgate.protocols.servicebus.dates import format_date, parse_date
from headgate.protocols.servicebus.rules import COMPATIBILITY_LEVEL, CorrelationDescription, RuleDescription

_INT_LIMIT = 2**31

_SYSTEM_FIELDS = {
    "CorrelationId": "correlation-id",
    "MessageId": "message-id",
    "To": "to",
    "ReplyTo": "reply-to",
    "Label": "label",
    "SessionId": "session-id",
    "ReplyToSessionId": "reply-to-session-id",
    "ContentType": "content-type",
}


def read_rule_description(content: XmlElement, name: str) -> RuleDescription:
    """The rule of that name that a `RuleDescription` describes. Raises ConfigError for a kind that is not known."""
    given = content.child("Filter")
    if given is None:
        raise ConfigError("a rule has a Filter, and it is not there")
    parameters = _read_parameters(given)
    found: str | CorrelationDescription
    match given.type:
        case "SqlFilter":
            found = given.child_text("SqlExpression") or ""
        case "TrueFilter":
            found = "1=1"
        case "FalseFilter":
            found = "1=0"
        case "CorrelationFilter":
            fields = {name: given.child_text(tag) for tag, name in _SYSTEM_FIELDS.items()}
            properties = given.child("Properties")
            found = CorrelationDescription(
                {name: text for name, text in fields.items() if text is not None},
                {} if properties is None else _read_values(properties),
            )
        case other:
            known = "SqlFilter, TrueFilter, FalseFilter or CorrelationFilter"
            raise ConfigError(f"the type of the Filter is {other!r}; expected {known}")
    action = content.child("Action")
    match None if action is None else action.type:
        case None | "EmptyRuleAction":
            return RuleDescription(name, found, None, parameters)
        case "SqlRuleAction":
            assert action is not None
            more = _read_parameters(action)
            differing = [key for key in more if key in parameters and more[key] != parameters[key]]
            if differing:
                raise ConfigError(f"the parameter {differing[0]!r} has one value in the Filter, another in the Action")
            return RuleDescription(name, found, action.child_text("SqlExpression") or "", {**parameters, **more})
        case other:
            raise ConfigError(f"the type of the Action is {other!r}; expected SqlRuleAction or EmptyRuleAction")


def _read_parameters(given: XmlElement) -> dict[str, AmqpValue]:
    parameters = given.child("Parameters")
    return {} if parameters is None else _read_values(parameters)


def _read_values(given: XmlElement) -> dict[str, AmqpValue]:
    found: dict[str, AmqpValue] = {}
    for pair in given.each("KeyValueOfstringanyType"):
        key, value = pair.child_text("Key"), pair.child("Value")
        if key is None or value is None:
            raise ConfigError("a pair of key and value has not both of them")
        read = _READ_VALUES.get(value.type)
        if read is None:
            raise ConfigError(f"{key}: the type is {value.type!r}; expected one of {', '.join(_READ_VALUES)}")
        try:
            found[key] = read(value.text)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from error
    return found


def _integer_of(kind: AmqpType, bits: int) -> Callable[[str], AmqpValue]:
    def read(text: str) -> AmqpValue:
        number = int(text) if re.fullmatch(r"\s*[+-]?\d{1,19}\s*", text, re.ASCII) else None
        if number is None or not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ConfigError(f"found {text!r}, expected an integer of {bits} bits")
        return AmqpValue(kind, number)

    return read


def _double(text: str) -> AmqpValue:
    given = text.strip().lower()
    if not re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,4})?|[+-]?inf(inity)?|nan", given, re.ASCII):
        raise ConfigError(f"found {text!r}, expected a number")
    return AmqpValue(AmqpType.DOUBLE, float(given))


def _time_span(text: str) -> AmqpValue:
    return time_span(max(-(2**63), min(duration_ticks(text), 2**63 - 1)))


_READ_VALUES: Mapping[str, Callable[[str], AmqpValue]] = {
    "string": lambda text: AmqpValue(AmqpType.STRING, text),
    "int": _integer_of(AmqpType.INT, 32),
    "long": _integer_of(AmqpType.LONG, 64),
    "double": _double,
    "boolean": lambda text: AmqpValue(AmqpType.BOOLEAN, read_boolean(text)),
    "dateTime": lambda text: AmqpValue(AmqpType.TIMESTAMP, parse_date(text)),
    "duration": _time_span,
}


# Writing


def told_rule_description(rule: RuleDescription) -> str:
    """The description of a rule in responses, as XML."""
    created = "" if rule.created_ms is None else element("CreatedAt", format_date(rule.created_ms))
    inner = f"{_told_filter(rule)}{_told_action(rule)}{created}{element('Name', rule.name)}"
    return described("RuleDescription", inner)


def _told_filter(rule: RuleDescription) -> str:
    if isinstance(rule.filter, str):
        kind = {"1=1": "TrueFilter", "1=0": "FalseFilter"}.get("".join(rule.filter.split()), "SqlFilter")
        unnamed = {name for name in rule.parameters if not _names(rule.action or "", name)}
        parameters = {
            name: value for name, value in rule.parameters.items() if name in unnamed or _names(rule.filter, name)
        }
        return f'<Filter i:type="{kind}">{_told_expression(rule.filter, parameters)}</Filter>'
    fields = "".join(
        element(tag, rule.filter.fields[name]) for tag, name in _SYSTEM_FIELDS.items() if name in rule.filter.fields
    )
    return f'<Filter i:type="CorrelationFilter">{fields}{_told_values("Properties", rule.filter.properties)}</Filter>'


def _told_action(rule: RuleDescription) -> str:
    if rule.action is None:
        return '<Action i:type="EmptyRuleAction"/>'
    parameters = {name: value for name, value in rule.parameters.items() if _names(rule.action, name)}
    return f'<Action i:type="SqlRuleAction">{_told_expression(rule.action, parameters)}</Action>'


def _told_expression(text: str, parameters: Mapping[str, AmqpValue]) -> str:
    level = element("CompatibilityLevel", str(COMPATIBILITY_LEVEL))
    return f"{element('SqlExpression', text)}{level}{_told_values('Parameters', parameters)}"


def _names(text: str, parameter: str) -> bool:
    """Whether a filter or an action names a parameter."""
    return re.search(rf"@{re.escape(parameter.removeprefix('@'))}(?!\w)", text, re.IGNORECASE) is not None


def _told_values(name: str, values: Mapping[str, AmqpValue]) -> str:
    """Pairs of keys and values; nothing without them: clients take an empty element for something else."""
    pairs = []
    for key, value in values.items():
        kind, text = _told_value(value)
        # One client cuts off a prefix of five characters.
        typed = f'<Value i:type="d6p1:{kind}" xmlns:d6p1="{SCHEMA}">{escaped(text)}</Value>'
        pairs.append(f"<KeyValueOfstringanyType>{element('Key', key)}{typed}</KeyValueOfstringanyType>")
    return f"<{name}>{''.join(pairs)}</{name}>" if pairs else ""


def _told_value(value: AmqpValue) -> tuple[str, str]:
    """The type and the text of a value; a value without a type in administration is sent as a text."""
    held = value.value
    if value.type is AmqpType.BOOLEAN:
        return "boolean", "true" if held else "false"
    if value.type is AmqpType.TIMESTAMP:
        return "dateTime", format_date(held)
    if value.type in (AmqpType.DOUBLE, AmqpType.FLOAT):
        return "double", {"inf": "INF", "-inf": "-INF", "nan": "NaN"}.get(str(held), repr(float(held)))
    if isinstance(held, int):
        # JavaScript's client reads no `long`: small numbers are sent as an `int`.
        return ("int" if -_INT_LIMIT <= held < _INT_LIMIT else "long"), str(held)
    if value.type is AmqpType.DESCRIBED and held.descriptor.value == TIME_SPAN:
        return "duration", ticks_text(held.value.value)
    return "string", str(held)
