"""Confirms and acknowledgements against models that keep every message apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.protocols.amqp091 import Confirms, Unacknowledged
from headgate.protocols.amqp091.tags import Confirm


class Publisher:
    """A client that believes what it is told, as pika does: `multiple` settles everything open up to the tag."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.kept: set[int] = set()
        self.refused: set[int] = set()

    def hear(self, confirm: Confirm) -> None:
        tags = {confirm.delivery_tag}
        if confirm.multiple:
            tags |= {tag for tag in self.open if tag < confirm.delivery_tag}
        assert tags <= self.open, "settled twice"
        self.open -= tags
        (self.kept if confirm.is_kept else self.refused).update(tags)


@given(st.data())
def test_a_publisher_hears_of_each_message_once_and_the_truth(data):
    confirms, publisher = Confirms(), Publisher()
    kept: set[int] = set()
    refused: set[int] = set()
    unsettled: list[int] = []
    for _ in range(data.draw(st.integers(1, 12))):
        for _ in range(data.draw(st.integers(0, 6))):
            tag = confirms.published()
            unsettled.append(tag)
            publisher.open.add(tag)
        for _ in range(data.draw(st.integers(0, 3))):
            some = data.draw(st.lists(st.sampled_from(unsettled), unique=True)) if unsettled else []
            is_kept = data.draw(st.booleans())
            unsettled = [tag for tag in unsettled if tag not in some]
            (kept if is_kept else refused).update(some)
            confirms.settle(some, is_kept=is_kept)
        for confirm in confirms.take():
            publisher.hear(confirm)
        assert (publisher.kept, publisher.refused) == (kept, refused)
        assert publisher.open == set(unsettled)


def test_messages_settled_in_order_are_one_answer():
    confirms = Confirms()
    for _ in range(1000):
        confirms.published()
    confirms.settle(range(1, 1001), is_kept=True)
    assert confirms.take() == [Confirm(1000, multiple=True, is_kept=True)]
    assert confirms.take() == []


def test_a_single_message_is_answered_alone():
    confirms = Confirms()
    confirms.settle([confirms.published()], is_kept=True)
    assert confirms.take() == [Confirm(1, multiple=False, is_kept=True)]


def test_what_was_refused_is_said_before_what_was_kept():
    confirms = Confirms()
    tags = [confirms.published() for _ in range(3)]
    confirms.settle([tags[1]], is_kept=False)
    confirms.settle([tags[0], tags[2]], is_kept=True)
    assert confirms.take() == [Confirm(2, multiple=False, is_kept=False), Confirm(3, multiple=True, is_kept=True)]


@given(st.data())
def test_acknowledgements_give_back_what_the_model_says(data):
    unacknowledged: Unacknowledged[str] = Unacknowledged()
    model: dict[int, str] = {}
    for _ in range(data.draw(st.integers(1, 15))):
        for _ in range(data.draw(st.integers(0, 4))):
            consumer = data.draw(st.sampled_from(("a", "b")))
            model[unacknowledged.delivered(consumer)] = consumer
        tag = data.draw(st.integers(0, unacknowledged.last_tag + 1))
        multiple = data.draw(st.booleans())
        settled = unacknowledged.settle(tag, multiple=multiple)
        if multiple and tag == 0:
            expected = list(model)
        elif tag not in model:
            assert settled is None
            continue
        else:
            expected = [open_tag for open_tag in model if open_tag <= tag] if multiple else [tag]
        tags: dict[str, list[int]] = {}
        for open_tag in expected:
            tags.setdefault(model.pop(open_tag), []).append(open_tag)
        assert settled == tags


def test_settling_many_one_by_one_from_the_front_is_linear():
    unacknowledged: Unacknowledged[str] = Unacknowledged()
    for _ in range(50_000):
        unacknowledged.delivered("a")
    # Quadratic, this would take minutes.
    for tag in range(1, 50_001):
        assert unacknowledged.settle(tag, multiple=True) == {"a": [tag]}


def test_what_one_consumer_has_is_taken_and_tags_of_what_nobody_acknowledges_count():
    unacknowledged: Unacknowledged[str] = Unacknowledged()
    assert [unacknowledged.delivered(consumer) for consumer in "aba"] == [1, 2, 3]
    assert unacknowledged.sent() == 4
    assert unacknowledged.take("a") == [1, 3]
    assert unacknowledged.settle(0, multiple=True) == {"b": [2]}
    assert unacknowledged.settle(4, multiple=False) is None
