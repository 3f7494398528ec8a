"""Rules in XML; the bodies are those that clients of Service Bus sent."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from headgate.errors import ConfigError
from headgate.language.servicebus import time_span
from headgate.message import AmqpType, AmqpValue
from headgate.protocols.servicebus import (
    CorrelationDescription,
    RuleDescription,
    parse_entry,
    read_rule_description,
    told_rule_description,
)
from headgate.protocols.servicebus.atom import ATOM, INSTANCE, SCHEMA, SERVICE_BUS

PYTHON = """<?xml version='1.0' encoding='utf-8'?>
<ns0:entry xmlns:ns0="http://www.w3.org/2005/Atom"
 xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><ns0:content type="application/xml"><RuleDescription>%s\
<Name>r</Name></RuleDescription></ns0:content></ns0:entry>"""
PYTHON_SQL = """<Filter xsi:type="SqlFilter"><SqlExpression>a = @b</SqlExpression>\
<CompatibilityLevel>20</CompatibilityLevel><Parameters><KeyValueOfstringanyType><Key>@b</Key>\
<Value xsi:type="d6p1:int" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">2</Value></KeyValueOfstringanyType>\
</Parameters><RequiresPreprocessing>true</RequiresPreprocessing></Filter><Action xsi:type="SqlRuleAction">\
<SqlExpression>SET a = 1</SqlExpression><CompatibilityLevel>20</CompatibilityLevel>\
<RequiresPreprocessing>true</RequiresPreprocessing></Action>"""

JAVASCRIPT = """<?xml version="1.0" encoding="UTF-8" standalone="yes"?><entry xmlns="http://www.w3.org/2005/Atom">\
<updated>2026-11-24T11:59:49.094Z</updated><content type="application/xml"><RuleDescription \
xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" \
xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><Filter p4:type="CorrelationFilter" \
xmlns:p4="http://www.w3.org/2001/XMLSchema-instance"><Label>x</Label><Properties><KeyValueOfstringanyType><Key>f</Key>\
<Value p4:type="l28:double" xmlns:l28="http://www.w3.org/2001/XMLSchema">1.5</Value></KeyValueOfstringanyType>\
<KeyValueOfstringanyType><Key>d</Key><Value p4:type="l28:dateTime" xmlns:l28="http://www.w3.org/2001/XMLSchema">\
2026-01-02T00:00:00.000Z</Value></KeyValueOfstringanyType></Properties></Filter><Action p4:type="EmptyRuleAction" \
xmlns:p4="http://www.w3.org/2001/XMLSchema-instance"/><Name>r</Name></RuleDescription></content></entry>"""

JAVA = """<?xml version="1.0" encoding="UTF-8"?><entry xmlns="http://www.w3.org/2005/Atom">\
<content type="application/xml"><RuleDescription \
xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><Filter \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CorrelationFilter"><Label>x</Label><Properties>\
<KeyValueOfstringanyType><Key>color</Key><Value xmlns:d6p1="http://www.w3.org/2001/XMLSchema" \
xsi:type="d6p1:string">red</Value></KeyValueOfstringanyType></Properties></Filter><Name>j2</Name></RuleDescription>\
</content></entry>"""

VALUES = {
    "int": AmqpValue(AmqpType.INT, -(2**31)),
    "long": AmqpValue(AmqpType.LONG, 2**63 - 1),
    "double": AmqpValue(AmqpType.DOUBLE, 0.1),
    "infinity": AmqpValue(AmqpType.DOUBLE, -math.inf),
    "boolean": AmqpValue(AmqpType.BOOLEAN, False),
    "string": AmqpValue(AmqpType.STRING, " <a> "),
    "dateTime": AmqpValue(AmqpType.TIMESTAMP, 1_767_323_045_678),
    "duration": time_span(-15),
}


def read(body: str) -> RuleDescription:
    return read_rule_description(parse_entry(body.encode()), "r")


def told(rule: RuleDescription) -> RuleDescription:
    """What is read of what is told, as a client that sends it back would have it read."""
    return read(f'<entry xmlns="{ATOM}"><content>{told_rule_description(rule)}</content></entry>')


def test_every_clients_spelling_is_read() -> None:
    assert read(PYTHON % PYTHON_SQL) == RuleDescription("r", "a = @b", "SET a = 1", {"@b": AmqpValue(AmqpType.INT, 2)})
    assert read(JAVASCRIPT) == RuleDescription(
        "r",
        CorrelationDescription(
            {"label": "x"},
            {
                "f": AmqpValue(AmqpType.DOUBLE, 1.5),
                "d": AmqpValue(AmqpType.TIMESTAMP, 1_767_312_000_000),
            },
        ),
    )
    assert read(JAVA) == RuleDescription(
        "r", CorrelationDescription({"label": "x"}, {"color": AmqpValue(AmqpType.STRING, "red")})
    )


@pytest.mark.parametrize(
    "rule",
    [
        RuleDescription("r", "1=1"),
        RuleDescription("r", "1=0", "SET a = 1"),
        RuleDescription("r", "a < @x AND b = @Y", "SET a = @z; SET b = @x", dict.fromkeys("xyz", VALUES["long"])),
        RuleDescription("r", CorrelationDescription({"label": "", "to": "a&b"}, VALUES)),
        RuleDescription("r", CorrelationDescription({"label": "x"}), "SET a = @a", {"a": VALUES["duration"]}),
    ],
)
def test_what_is_told_is_read_as_the_same(rule: RuleDescription) -> None:
    assert told(rule) == rule


def test_what_one_client_insists_on_is_in_the_letters() -> None:
    text = told_rule_description(
        RuleDescription("r", CorrelationDescription({}, {"n": AmqpValue(AmqpType.LONG, 5)}), created_ms=0)
    )
    # It cuts five characters off the type, reads no `long`, and takes an empty element for another value.
    assert f'<Value i:type="d6p1:int" xmlns:d6p1="{SCHEMA}">5</Value>' in text
    assert '<Action i:type="EmptyRuleAction"/><CreatedAt>1970-01-01T00:00:00Z</CreatedAt><Name>r</Name>' in text
    assert "<Parameters" not in told_rule_description(RuleDescription("r", "a = 1"))
    root = ElementTree.fromstring(text)
    assert root.find(f"{{{SERVICE_BUS}}}Filter", {}).get(f"{{{INSTANCE}}}type") == "CorrelationFilter"  # type: ignore[union-attr]


def test_parameters_are_told_where_they_are_named() -> None:
    values = {"@a": VALUES["int"], "ab": VALUES["int"], "unused": VALUES["int"]}
    text = told_rule_description(RuleDescription("r", "x = @A", "SET x = @ab", values))
    filter_text, action_text = text.split("</Filter>")
    assert "<Key>@a</Key>" in filter_text and "<Key>unused</Key>" in filter_text
    assert "<Key>ab</Key>" not in filter_text and action_text.count("<Key>") == 1


def value(kind: str, text: str) -> str:
    return PYTHON % (
        '<Filter xsi:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k</Key>'
        f'<Value xsi:type="d6p1:{kind}">{text}</Value></KeyValueOfstringanyType></Properties></Filter>'
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (PYTHON % "", "Filter, and it is not there"),
        (PYTHON % '<Filter xsi:type="RegexFilter"/>', "type of the Filter is 'RegexFilter'"),
        (PYTHON % "<Filter/>", "type of the Filter is ''"),
        (PYTHON % '<Filter xsi:type="TrueFilter"/><Action xsi:type="Do"/>', "type of the Action is 'Do'"),
        (
            PYTHON
            % PYTHON_SQL.replace(
                "SET a = 1</SqlExpression>",
                "SET a = @b</SqlExpression><Parameters><KeyValueOfstringanyType><Key>@b</Key>"
                '<Value xsi:type="x:int">3</Value></KeyValueOfstringanyType></Parameters>',
            ),
            "'@b' has one value in the Filter, another",
        ),
        (
            PYTHON
            % '<Filter xsi:type="CorrelationFilter"><Properties><KeyValueOfstringanyType/></Properties></Filter>',
            "pair",
        ),
        (value("int", "2147483648"), "k: found '2147483648', expected an integer of 32 bits"),
        (value("long", "1_0"), "k: found '1_0'"),
        (value("double", "1_0"), "k: found '1_0'"),
        (value("boolean", "yes"), "k: found 'yes'"),
        (value("dateTime", "today"), "k: not a date"),
        (value("duration", "P1Y"), "k: found 'P1Y'"),
        (value("guid", "x"), "k: the type is 'guid'"),
    ],
)
def test_a_rule_that_is_wrong_is_refused_by_name(body: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read(body)
