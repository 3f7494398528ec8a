"""Topics, queues, consumer groups and dead letters in the console."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from headgate.client import Client, Management
from headgate.message import Message
from server.console.browsing import HOSTILE, PASSWORD, accessible, go
from server.running import RunningServer
from server.topics.test_dead_letters import give_up
from waiting import eventually


@pytest.fixture(scope="module")
def management(served: RunningServer) -> Management:
    return Management(f"http://127.0.0.1:{served.ports['http']}", "admin", PASSWORD)


@pytest.fixture
def shop(served: RunningServer, management: Management) -> Iterator[str]:
    """A topic with a subscription of one rule: 4 of 10 messages match, one fails and is a dead letter."""
    name = "shop/<i>orders</i>"
    rule = {"name": "Large", "sql": "price > 50", "action": "SET priority = 'high'"}
    management.topics.create_topic(name)
    management.topics.create_subscription(name, "large", {"rules": [rule], "dead_letter_on_errors": True})
    with (
        Client.connect(f"127.0.0.1:{served.ports['stream']}") as client,
        client.publisher(name) as publisher,
    ):
        prices: list[object] = [10 * number for number in range(9)]
        publisher.send_many([_order(number, price) for number, price in enumerate([*prices, HOSTILE])])
        publisher.flush()
    served.until(lambda: served.context.broker.topics.get(name).next_offset == 10)
    yield name
    management.topics.remove_topic(name)
    with Client.connect(f"127.0.0.1:{served.ports['stream']}") as client:
        client.delete_stream(name)


def _order(number: int, price: object) -> Message:
    return Message(b'{"n": %d}' % number, message_id=f"o-{number}", application_properties={"price": price})


def test_a_topic_gets_a_subscription_and_a_rule_that_was_tried(page: Page, shop: str) -> None:
    go(page, "topics")
    row = page.get_by_role("row").filter(has_text=shop)
    expect(row).to_contain_text("topic")
    accessible(page)
    row.get_by_role("link", name=shop, exact=True).click()
    expect(page.get_by_role("list", name="Copies of large")).to_contain_text("waiting 3")
    accessible(page, width=360, theme="dark")

    page.get_by_role("button", name="Subscription").click()
    dialog = page.get_by_role("dialog", name="Create a subscription")
    dialog.get_by_label("Name").fill("cheap <b>")
    accessible(page)
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="cheap <b>", level=1)).to_be_visible()
    expect(page.get_by_text("It gets nothing")).to_be_visible()

    page.get_by_role("link", name="Rule").first.click()
    page.get_by_label("Name").fill("Cheap")
    page.get_by_label("Takes").fill("price >> 1")
    expect(page.locator(".caret")).to_contain_text("^")
    page.get_by_label("Takes").fill("price < 30")
    page.get_by_label("Then change the copy (optional)").fill("SET cheap = TRUE")
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_role("meter", name="Taken")).to_have_attribute("aria-valuetext", re.compile("^3 of 10"))
    expect(page.get_by_role("heading", name="Fails for")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="application_properties.cheap").first).to_contain_text("true")
    accessible(page)
    accessible(page, width=360, theme="dark")
    page.get_by_role("button", name="Add the rule …").click()
    dialog = page.get_by_role("dialog", name="Add this rule?")
    expect(dialog).to_contain_text("it would have taken 3")
    dialog.get_by_role("button", name="Add").click()
    expect(page.get_by_role("heading", name="Cheap", level=2)).to_be_visible()

    page.get_by_role("button", name="Delete rule Cheap").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("It gets nothing")).to_be_visible()


def test_a_rule_says_what_it_did_and_why_it_failed(page: Page, shop: str) -> None:
    go(page, "topics", shop, "large")
    expect(page.get_by_text("a string does not compare with a number")).to_be_visible()
    accessible(page, width=360)
    page.get_by_role("link", name="Change or try").click()
    expect(page.get_by_label("Takes")).to_have_value("price > 50")
    page.get_by_label("Takes").fill("price > 70")
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_text("2 fewer than now")).to_be_visible()
    go(page, "topics", shop, "large", query="tab=waiting")
    page.get_by_role("button", name="6", exact=True).click()
    expect(page.get_by_text("priority", exact=True)).to_be_visible()
    assert "open=6-1" in page.url
    go(page, "topics", shop, "large", query="tab=settings&edit=1")
    page.get_by_label("Attempts", exact=True).fill("7")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.get_by_text("Attempts before it is a dead letter")).to_be_visible()
    expect(page.locator(".facts")).to_contain_text("dead letter7")
    accessible(page)


def test_a_queue_is_made_and_deleted(page: Page) -> None:
    go(page, "topics", query="new=1")
    dialog = page.get_by_role("dialog", name="Create a topic or a queue")
    dialog.get_by_role("radio", name="Queue").check()
    dialog.get_by_role("textbox", name="Name").fill("work")
    accessible(page)
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_text("Nothing waits")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete this queue?")
    dialog.get_by_label("to confirm").fill("work")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Topics and queues", level=1)).to_be_visible()
    expect(page.get_by_role("table", name="topics and queues")).not_to_contain_text("work")


def test_a_consumer_group_goes_on_elsewhere(page: Page, management: Management) -> None:
    management.rocketmq.create_topic("shipments", queues=2)
    go(page, "rocketmq", query="new=1")
    page.get_by_role("dialog").get_by_label("Name").fill("packing")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_text("It has read nothing yet")).to_be_visible()
    accessible(page)
    page.get_by_role("button", name="Move its place").click()
    dialog = page.get_by_role("dialog", name="Move the place of the group")
    dialog.get_by_label("Topic").fill("shipments")
    dialog.get_by_label("Goes on").select_option("next")
    accessible(page, width=360, theme="dark")
    dialog.get_by_role("button", name="Move").click()
    expect(page.get_by_role("table", name="places").get_by_role("row")).to_have_count(3)
    accessible(page, width=360)
    page.get_by_role("link", name="shipments").first.click()
    expect(page.get_by_role("table", name="groups").get_by_role("link", name="packing")).to_have_count(2)
    accessible(page)
    management.rocketmq.remove_group("packing")
    management.rocketmq.remove_topic("shipments")


def test_dead_letters_are_resubmitted_after_a_dry_run(page: Page, shop: str) -> None:
    go(page, "dead-letters")
    page.get_by_role("link", name=f"1 dead letters of {shop} / large").click()
    line = page.get_by_role("list", name="Dead letters", exact=True).get_by_role("listitem").first
    expect(line).to_contain_text("rule 'Large': a string does not compare with a number")
    expect(line.get_by_role("link", name="why?")).to_have_attribute("href", re.compile("offset=9&for=large"))
    line.get_by_role("button", name="0", exact=True).click()
    expect(line.get_by_text(HOSTILE)).to_be_visible()
    accessible(page)
    accessible(page, width=360, theme="dark")

    line.get_by_role("checkbox").check()
    assert "chosen=0-0" in page.url
    page.get_by_role("button", name="Resubmit 1 …").click()
    dialog = page.get_by_role("dialog", name="Resubmit 1")
    dialog.get_by_role("button", name="Dry run").click()
    expect(dialog).to_contain_text("No rule of the target takes any.")
    dialog.get_by_label("Name 1").fill("price")
    dialog.get_by_label("Value 1").fill("99.5")
    expect(dialog).to_contain_text("Something was changed since the dry run")
    dialog.get_by_role("button", name="Dry run").click()
    expect(dialog.get_by_role("list", name="Taken by")).to_contain_text("large / Large")
    accessible(page)
    dialog.get_by_role("button", name="Resubmit 1").click()
    expect(page.get_by_text("No dead letters")).to_be_visible()
    expect(page.get_by_role("meter", name="resubmitted")).to_have_attribute("aria-valuetext", "1 of 1")


def test_dead_letters_of_a_group_are_resubmitted_chosen_or_all(
    page: Page, served: RunningServer, management: Management
) -> None:
    management.rocketmq.create_topic("payments", queues=1)
    management.rocketmq.create_group("billing", {"start": "first"})
    served.call(give_up, served, 3)
    eventually(lambda: management.rocketmq.group("billing")["dead_letters"] == 3)
    go(page, "dead-letters")
    page.get_by_role("link", name="3 dead letters of billing").click()
    lines = page.get_by_role("list", name="Dead letters", exact=True).get_by_role("listitem")
    expect(lines).to_have_count(3)
    expect(lines.first).to_contain_text("given up")
    expect(lines.first.get_by_role("link", name="why?")).to_have_attribute(
        "href", re.compile("name=payments&offset=0&for=billing")
    )
    accessible(page)
    accessible(page, width=360, theme="dark")

    lines.first.get_by_role("checkbox").check()
    page.get_by_role("button", name="Resubmit 1 …").click()
    dialog = page.get_by_role("dialog", name="Resubmit 1")
    dialog.get_by_role("button", name="Dry run").click()
    expect(dialog).to_contain_text("There are no rules where they go")
    accessible(page)
    dialog.get_by_role("button", name="Resubmit 1").click()
    expect(page.get_by_role("meter", name="resubmitted")).to_have_attribute("aria-valuetext", "1 of 1")
    expect(lines).to_have_count(2)

    page.get_by_role("button", name="Delete all …").click()
    dialog = page.get_by_role("dialog", name="Delete all dead letters?")
    expect(dialog).to_contain_text("The stream %DLQ%billing keeps them")
    dialog.get_by_label("to confirm").fill("delete all")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No dead letters")).to_be_visible()
    page.get_by_role("link", name="The group").click()
    expect(page.get_by_role("heading", name="billing", level=1)).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="Dead letters", exact=True).click()
    expect(page.get_by_role("heading", name="Dead letters of billing", level=1)).to_be_visible()
    management.rocketmq.remove_group("billing")
    management.rocketmq.remove_topic("payments")


def test_dead_letters_are_deleted(page: Page, shop: str) -> None:
    go(page, "dead-letters", shop, "large")
    page.get_by_role("button", name="Delete all …").click()
    dialog = page.get_by_role("dialog", name="Delete all dead letters?")
    expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
    dialog.get_by_label("to confirm").fill("delete all")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No dead letters")).to_be_visible()
