"""Names of subscriptions, and where what belongs to a topic lies."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.log import Stream, list_streams, stream_folder
from headgate.topic import (
    SubscriptionName,
    dead_letters_folder,
    deferred_folder,
    postings_folder,
    subscription_folder,
    view_key,
    waiting_folder,
)

RED = SubscriptionName("orders", "red")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders/Subscriptions/red", RED),
        ("orders/subscriptions/red", RED),
        ("orders/SUBSCRIPTIONS/Red", SubscriptionName("orders", "Red")),
        ("orders/Subscriptions/red/$DeadLetterQueue", SubscriptionName("orders", "red", is_dead_letter=True)),
        ("orders/Subscriptions/red/$deadletterqueue", SubscriptionName("orders", "red", is_dead_letter=True)),
        ("eu/orders/Subscriptions/red", SubscriptionName("eu/orders", "red")),
        ("a/Subscriptions/b/Subscriptions/c", SubscriptionName("a/Subscriptions/b", "c")),
        ("a/Subscriptions/Subscriptions/b", SubscriptionName("a/Subscriptions", "b")),
        ("a/Subscriptions/Subscriptions", SubscriptionName("a", "Subscriptions")),
        ("a/Subscriptions/Subscriptions/$DeadLetterQueue", SubscriptionName("a", "Subscriptions", is_dead_letter=True)),
        ("orders", None),
        ("orders/red", None),
        ("orders/Subscriptions", None),
        ("orders/Subscriptions/", None),
        ("/Subscriptions/red", None),
        ("Subscriptions/red", None),
        ("orders/Subscriptions/red/", None),
        ("orders/Subscriptions/red/more", None),
        ("orders/Subscriptions/red\n", SubscriptionName("orders", "red\n")),
        ("orders/\u017fubscriptions/red", None),
        ("orders/$DeadLetterQueue", None),
        ("orders/Subscriptions/$DeadLetterQueue", None),
        ("orders/Subscriptions/$management", None),
        ("orders/Subscriptions/red/$management", None),
        ("orders/Subscriptions/red/$Transfer/$DeadLetterQueue", None),
        ("orders/Subscriptions/Subscriptions/$Transfer/$DeadLetterQueue", None),
        ("orders/Subscriptions/red/$DeadLetterQueue/$DeadLetterQueue", None),
    ],
)
def test_a_name_is_that_of_a_subscription_or_of_its_dead_letters_or_neither(
    name: str, expected: SubscriptionName | None
) -> None:
    assert SubscriptionName.parse(name) == expected


@given(
    st.text(min_size=1),
    st.text(min_size=1).filter(lambda name: "/" not in name and not name.startswith("$")),
    st.booleans(),
)
def test_a_name_that_is_written_is_read_again(topic: str, subscription: str, is_dead_letter: bool) -> None:
    name = SubscriptionName(topic, subscription, is_dead_letter)
    assert SubscriptionName.parse(str(name)) == name


def test_streams_inside_a_topic_are_apart_and_in_no_list(tmp_path: Path) -> None:
    topic = Stream.create(stream_folder(tmp_path, "orders"), name="orders", now_ms=0)
    folders = [
        postings_folder(topic),
        waiting_folder(topic),
        *(place(topic, number) for number in (1, 2) for place in (dead_letters_folder, deferred_folder)),
    ]
    for folder in folders:
        Stream.create(folder, name="inside", now_ms=0)
    assert [stream.name for stream in list_streams(tmp_path)] == ["orders"]
    assert len({*folders}) == len(folders)
    assert dead_letters_folder(topic, 2).is_relative_to(subscription_folder(topic, 2))
    assert view_key(1) != view_key(12)
