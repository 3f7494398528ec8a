from __future__ import annotations

from xml.etree import ElementTree

import pytest

from headgate.errors import ConfigError
from headgate.protocols.servicebus import (
    AuthorizationDescription,
    CorrelationDescription,
    DescriptionKind,
    EntityDescription,
    EntityStatus,
    RuleDescription,
    RuntimeDescription,
    read_description,
    told_description,
    told_namespace,
)
from headgate.protocols.servicebus.atom import SERVICE_BUS, parse_xml

RUNTIME = RuntimeDescription(
    0, 1_000, 2_000, 3, 4, 5, 6, 7, message_count=25, size_bytes=99, subscription_count=2, sql_filter_count=8
)

NEEDED = {
    DescriptionKind.TOPIC: (
        "DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow"
        " EnableBatchedOperations SupportOrdering EnablePartitioning EnableExpress Status AutoDeleteOnIdle"
    ),
    DescriptionKind.QUEUE: (
        "LockDuration MaxSizeInMegabytes MaxDeliveryCount EnablePartitioning RequiresSession EnableBatchedOperations"
        " DefaultMessageTimeToLive AutoDeleteOnIdle RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow"
        " DeadLetteringOnMessageExpiration Status EnableExpress EntityAvailabilityStatus"
    ),
    DescriptionKind.SUBSCRIPTION: (
        "LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration"
        " DeadLetteringOnFilterEvaluationExceptions MessageCount MaxDeliveryCount EnableBatchedOperations Status"
        " AutoDeleteOnIdle EntityAvailabilityStatus CountDetails CreatedAt UpdatedAt AccessedAt"
    ),
}
"""What JavaScript's client refuses to be without: servicebus_wire, section 8."""


def read(content: str, kind: str = "QueueDescription") -> EntityDescription:
    return read_description(
        parse_xml(
            f'<{kind} xmlns="{SERVICE_BUS}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{content}</{kind}>'.encode()
        )
    )


def told(description: EntityDescription) -> str:
    return told_description(description, RUNTIME, message_size_bytes=1 << 20, address=lambda name: f"sb://h/{name}")


FULL = EntityDescription(
    DescriptionKind.QUEUE,
    status=EntityStatus.RECEIVE_DISABLED,
    default_time_to_live_ms=86_400_000,
    auto_delete_on_idle_ms=600_000,
    max_size_megabytes=5,
    requires_duplicate_detection=True,
    duplicate_detection_window_ms=30_000,
    lock_ms=30_500,
    max_delivery_count=3,
    requires_session=False,
    dead_letter_on_expiration=True,
    user_metadata="a <b>",
    authorization_rules=(AuthorizationDescription("k", ("Send", "Listen"), "cA==", "cw==", created_ms=1_000),),
    kept={"EnableExpress": "true", "Newest": "of all"},
)


def test_what_is_told_is_read_as_the_same() -> None:
    found = read_description(parse_xml(told(FULL).encode()))
    assert {name: found.kept[name] for name in FULL.kept} == FULL.kept
    assert (
        EntityDescription(**{name: getattr(found, name) for name in FULL.__slots__ if name != "kept"}, kept=FULL.kept)
        == FULL
    )


@pytest.mark.parametrize("kind", DescriptionKind)
def test_nothing_that_a_client_needs_is_missing(kind: DescriptionKind) -> None:
    numbers = {"max_size_megabytes": 1, "duplicate_detection_window_ms": 1, "lock_ms": 1, "max_delivery_count": 1}
    root = ElementTree.fromstring(told(EntityDescription(kind, **numbers)))
    assert root.tag == f"{{{SERVICE_BUS}}}{kind.value}"
    assert [name for name in NEEDED[kind].split() if root.find(f"{{{SERVICE_BUS}}}{name}") is None] == []
    assert root.findtext(f"{{{SERVICE_BUS}}}AutoDeleteOnIdle") == "P10675199DT2H48M5.4775807S"
    # Its only attribute says the prefix.
    assert (
        '<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus"><d2p1:Active'
        in told(EntityDescription(kind))
    )


def test_targets_of_forwarding_are_told_as_addresses() -> None:
    text = told(EntityDescription(DescriptionKind.QUEUE, forward_to="a/b"))
    assert "<ForwardTo>sb://h/a/b</ForwardTo>" in text and "ForwardDeadLetteredMessagesTo" not in text


def test_what_is_not_said_has_its_default_and_order_does_not_matter() -> None:
    assert read("") == EntityDescription(DescriptionKind.QUEUE)
    assert read("<MaxDeliveryCount> 3 </MaxDeliveryCount><LockDuration>PT5S</LockDuration>") == EntityDescription(
        DescriptionKind.QUEUE, lock_ms=5_000, max_delivery_count=3
    )


def test_what_clients_only_send_back_is_not_theirs_to_say() -> None:
    assert read("<MessageCount>5</MessageCount><CountDetails><a/></CountDetails><CreatedAt>x</CreatedAt>") == read("")


def test_a_subscription_may_bring_its_first_rule() -> None:
    filter_text = '<Filter i:type="CorrelationFilter"><Label>r</Label></Filter>'
    rule = f"<DefaultRuleDescription>{filter_text}{{}}</DefaultRuleDescription>"
    wanted = CorrelationDescription({"label": "r"})
    named = read(rule.format("<Name>d</Name>"), "SubscriptionDescription")
    assert named.default_rule == RuleDescription("d", wanted)
    assert read(rule.format(""), "SubscriptionDescription").default_rule == RuleDescription("$Default", wanted)


@pytest.mark.parametrize(
    ("content", "kind", "reason"),
    [
        ("", "EventHubDescription", "found EventHubDescription, expected one of TopicDescription"),
        ("<LockDuration>PT1S</LockDuration>", "TopicDescription", "LockDuration: TopicDescription has no such"),
        ("<LockDuration>P10675199DT2H48M5.4775807S</LockDuration>", "QueueDescription", "LockDuration: .*that ends"),
        ("<LockDuration>1 minute</LockDuration>", "QueueDescription", "LockDuration: found '1 minute'"),
        ("<MaxDeliveryCount>many</MaxDeliveryCount>", "QueueDescription", "MaxDeliveryCount: found 'many'"),
        ("<RequiresSession>perhaps</RequiresSession>", "QueueDescription", "RequiresSession: found 'perhaps'"),
        ("<Status>Gone</Status>", "QueueDescription", "Status: found 'Gone', expected one of Active, Disabled"),
        ("<Newest><a/></Newest>", "QueueDescription", "Newest: no known property"),
        (f"<Newest>{'a' * 2000}</Newest>", "QueueDescription", "Newest: no known property"),
        ("".join(f"<N{n}/>" for n in range(40)), "QueueDescription", "40 properties"),
    ],
)
def test_a_wrong_property_is_refused_by_name(content: str, kind: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read(content, kind)


def test_a_name_that_is_no_element_is_not_told() -> None:
    assert "inject" not in told(EntityDescription(DescriptionKind.TOPIC, kept={"a><inject/><a": "b"}))


def test_the_namespace_has_what_clients_need() -> None:
    root = ElementTree.fromstring(told_namespace("a&b", created_ms=0))
    assert root.findtext(f"{{{SERVICE_BUS}}}Name") == "a&b"
    for name in ("CreatedTime", "ModifiedTime", "MessagingSKU", "MessagingUnits"):
        assert root.findtext(f"{{{SERVICE_BUS}}}{name}")
