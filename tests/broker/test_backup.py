"""A root is copied while it is written, received from and forwarded in: nothing confirmed before is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from brokers import stored
from headgate import Message
from headgate.broker import DeadLetterReason, back_up, backup
from headgate.errors import LogError
from headgate.log import Damage, list_streams, verify_stream
from headgate.topic import AddRule, CreateSubscription, RuleDefinition
from topic_lab import Lab

EVERY = RuleDefinition("All", sql="1=1")


def number_of(message: bytes) -> int:
    return int(str(Message.decode(message).describe()["body"]["data"]))


class Traffic:
    """Publishes, completes a third of what a subscription gets, and makes dead letters of a third."""

    def __init__(self, root: Path) -> None:
        self.lab = Lab(root)
        for name in ("orders", "paid"):
            self.lab.session.declare_stream(name, {"stream-max-segment-size-bytes": 1_000})
            self.lab.session.create_topic(name)
        self.lab.change(CreateSubscription("all"), AddRule("all", EVERY), topic="paid")
        red = (CreateSubscription("red"), AddRule("red", EVERY))
        self.lab.change(*red, CreateSubscription("on", forward_to="paid"), AddRule("on", EVERY))
        self.link = self.lab.link(want=1_000)
        self.published = 0
        self.completed: set[int] = set()
        self.dead: set[int] = set()

    def step(self) -> None:
        self.lab.publish(*(Message(b"%d" % number).encode() for number in range(self.published, self.published + 3)))
        self.published += 3
        for each in self.link.deliveries:
            number = number_of(each.message)
            if number % 3 == 0:
                self.link.receiver.settler.complete([each.token])
                self.completed.add(number)
            elif number % 3 == 1:
                self.link.receiver.settler.dead_letter([each.token], why=DeadLetterReason())
                self.dead.add(number)
        self.link.deliveries.clear()
        self.lab.turn()


def test_a_copy_made_during_traffic_has_all_that_was_confirmed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Traffic(tmp_path / "root")
    for _ in range(30):
        traffic.step()
    confirmed, dead = set(range(traffic.published)), set(traffic.dead)
    copy = backup._copy

    def between(*given: Any) -> bool:
        traffic.step()
        return copy(*given)

    monkeypatch.setattr(backup, "_copy", between)
    report = back_up(tmp_path / "root", tmp_path / "copy")
    assert traffic.published > len(confirmed) + report.files
    traffic.lab.broker.close()

    restored = Lab(tmp_path / "copy")
    restored.turn(after_ms=100_000)
    for stream in list_streams(tmp_path / "copy"):
        assert not [found for found in verify_stream(stream) if isinstance(found, Damage)]
    orders, paid = (restored.broker.topics.get(name) for name in ("orders", "paid"))
    assert confirmed <= set(map(number_of, stored(tmp_path / "copy", "orders")))

    def there(topic: Any, subscription: str, **more: bool) -> set[int]:
        return {number_of(each.message) for each in topic.browser.peek(subscription, 0, 10_000, **more)}

    letters = there(orders, "red", dead_letters=True)
    assert confirmed <= traffic.completed | there(orders, "red") | letters
    assert dead <= letters
    assert confirmed <= there(paid, "all")


def test_a_target_that_is_there_or_lies_inside_is_refused(tmp_path: Path) -> None:
    traffic = Traffic(tmp_path / "root")
    for target in (tmp_path, tmp_path / "root" / "copy"):
        with pytest.raises(LogError, match="name a folder"):
            back_up(tmp_path / "root", target)
    assert back_up(tmp_path / "root", tmp_path / "copy").files
    assert not list((tmp_path / "copy").rglob("*.lock"))
    traffic.lab.broker.close()
