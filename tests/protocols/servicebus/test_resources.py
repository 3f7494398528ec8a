from __future__ import annotations

import pytest

from headgate.errors import ConfigError
from headgate.protocols.servicebus import Resource, ResourceKind, parse_resource


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/$namespaceinfo", Resource(ResourceKind.NAMESPACE)),
        ("/$Resources/Topics", Resource(ResourceKind.TOPICS)),
        ("/$resources/queues/", Resource(ResourceKind.QUEUES)),
        ("/orders", Resource(ResourceKind.ENTITY, "orders")),
        ("/a%2Fb%20c", Resource(ResourceKind.ENTITY, "a/b c")),
        ("/a/b/subscriptions", Resource(ResourceKind.SUBSCRIPTIONS, "a/b")),
        ("/a/Subscriptions/s", Resource(ResourceKind.SUBSCRIPTION, "a", "s")),
        ("/a/Subscriptions/rules", Resource(ResourceKind.SUBSCRIPTION, "a", "rules")),
        ("/a/Subscriptions/s/Rules/", Resource(ResourceKind.RULES, "a", "s")),
        ("/a/b/subscriptions/s/rules/$Default", Resource(ResourceKind.RULE, "a/b", "s", "$Default")),
        ("/subscriptions", Resource(ResourceKind.ENTITY, "subscriptions")),
        ("/subscriptions/s", Resource(ResourceKind.ENTITY, "subscriptions/s")),
    ],
)
def test_a_path_names_what_it_is_about(path: str, expected: Resource) -> None:
    assert parse_resource(path) == expected
    assert parse_resource(f"/{expected.encoded_path}") == expected


@pytest.mark.parametrize("path", ["/", "", "//", "/a//b", "/%ff", "/$x/a", "/a/$management/b"])
def test_another_path_names_nothing(path: str) -> None:
    with pytest.raises(ConfigError, match="bad path"):
        parse_resource(path)
