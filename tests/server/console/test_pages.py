"""Each page of the console does its work in a real browser: without an error, by its names for screen readers."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from headgate.client import Client
from headgate.message import Message
from server.console.browsing import HOSTILE, PASSWORD, accessible, entered, go
from server.running import RunningServer


def test_who_is_refused_is_told_and_may_try_again(browser: Browser, served: RunningServer) -> None:
    page = browser.new_page()
    try:
        page.goto(f"http://127.0.0.1:{served.ports['http']}/#/streams")
        expect(page.get_by_label("User")).to_be_focused()
        accessible(page)
        page.get_by_label("User").fill("admin")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("no such user with this password")
        expect(page.get_by_label("Password")).to_be_focused()
        # The wrong one is selected: typing replaces it.
        page.keyboard.type(PASSWORD)
        page.get_by_label("Password").press("Enter")
        expect(page.get_by_role("heading", name="Streams", level=1)).to_be_visible()
        # The session is a cookie that no script sees; after logging out it is over.
        assert page.evaluate("document.cookie") == ""
        page.reload()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("User")).to_be_visible()
        page.reload()
        expect(page.get_by_label("User")).to_be_visible()
    finally:
        page.close()


def test_a_session_that_ended_leads_to_the_login_and_back(browser: Browser, served: RunningServer) -> None:
    context = browser.new_context()
    try:
        page = entered(context, served)
        go(page, "why", query="name=events&for=everyone")
        page.get_by_role("textbox", name="Message id").fill("e-1")
        context.clear_cookies()
        page.get_by_role("button", name="Ask").click()
        expect(page.get_by_role("alert")).to_have_text("Your session has ended. Log in again.")
        page.get_by_label("User").fill("admin")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("textbox", name="Message id")).to_have_value("e-1")
    finally:
        context.close()


def test_an_unknown_address_leads_home(page: Page) -> None:
    go(page, "no", "such", "page")
    expect(page.get_by_role("heading", name="There is no such page", level=1)).to_be_focused()
    expect(page).to_have_title("There is no such page · Headgate")
    accessible(page)
    page.get_by_role("link", name="To the overview").click()
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()


def test_the_overview_has_numbers_and_a_chart_for_each(page: Page) -> None:
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    charts = page.get_by_role("img")
    expect(charts).to_have_count(8)
    assert re.match(r"Messages, the last \d+ minutes: published ", charts.first.get_attribute("aria-label") or "")
    expect(
        page.get_by_role("table", name="busiest streams").get_by_role("link", name="events", exact=True)
    ).to_be_visible()
    accessible(page)
    accessible(page, width=360, theme="dark")


def test_streams_are_found_created_and_deleted(page: Page) -> None:
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Streams").click()
    table = page.get_by_role("table", name="streams")
    expect(table.get_by_role("link", name=HOSTILE, exact=True)).to_be_visible()
    accessible(page)
    word = table.get_by_text("everything", exact=True).first
    assert word.evaluate("node => node.getClientRects().length") == 1, "a word is broken although there is room"
    table.get_by_role("button", name="Messages", exact=True).click()
    expect(table.get_by_role("columnheader", name="Messages").first).to_have_attribute("aria-sort", "descending")
    expect(table.get_by_role("row").nth(1)).to_contain_text("events")

    page.get_by_role("button", name="Create a stream").click()
    dialog = page.get_by_role("dialog", name="Create a stream")
    name = "new/<b>stream</b> 50%"
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Keep for at most").fill("7D")
    dialog.get_by_label("Keep at most").fill("20 MB")
    accessible(page)
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    expect(page.get_by_text("keeps 7\u00a0days, at most 20\u00a0MB", exact=True)).to_be_visible()

    page.get_by_role("button", name="Change limits").click()
    page.get_by_role("dialog").get_by_label("Keep for at most").fill("")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.get_by_text("keeps at most 20\u00a0MB", exact=True)).to_be_visible()

    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete this stream?")
    expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
    dialog.get_by_label("to confirm").fill(name)
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Streams", level=1)).to_be_visible()
    expect(page.get_by_role("table", name="streams")).not_to_contain_text("new/")


@pytest.mark.parametrize("tab", ["storage", "consumers", "publishers", "bloom", "settings"])
def test_a_stream_is_shown_in_parts(page: Page, tab: str) -> None:
    go(page, "streams", "events", query=f"tab={tab}")
    expect(page.get_by_role("navigation", name="Parts of this page").locator("[aria-current]")).to_be_visible()
    page.get_by_role("heading", level=2).first.wait_for()
    accessible(page, width=360)


def test_consumers_are_listed_with_the_filter_in_force(page: Page, served: RunningServer) -> None:
    with (
        Client.connect(f"127.0.0.1:{served.ports['stream']}") as client,
        client.consumer("events", start="first", name=HOSTILE, filter="price > 10", dialect="amqp"),
    ):
        go(page, "consumers")
        row = page.get_by_role("row").filter(has_text=HOSTILE)
        expect(row).to_contain_text("price > 10")
        accessible(page)


def test_messages_are_looked_at_with_a_filter(page: Page) -> None:
    go(page, "messages")
    page.get_by_role("link", name=re.compile("^events")).click()
    messages = page.get_by_role("list", name="Messages")
    expect(messages.get_by_role("listitem")).to_have_count(50)
    page.get_by_label("Filter", exact=True).fill("region = 'EMEA' AND price > 1000")
    page.get_by_label("Filter", exact=True).press("Enter")
    # 101, 103, … 117 without 109 and 119, whose prices are strings.
    expect(messages.get_by_role("listitem")).to_have_count(8)
    expect(page.get_by_text("120 looked at")).to_be_visible()
    assert "filter=region" in page.url
    page.reload()
    expect(messages.get_by_role("listitem")).to_have_count(8)

    first = messages.get_by_role("listitem").first
    first.get_by_role("button", name="Message 101", exact=True).click()
    expect(first.get_by_text('"a"')).to_be_visible()
    expect(first.get_by_text("long")).to_be_visible()
    accessible(page)
    accessible(page, width=360, theme="dark")
    first.get_by_role("button", name="Hex").click()
    expect(first.get_by_label("Body in hexadecimal")).to_contain_text("7b 22 6e 75 6d 62 65 72")


def test_copied_commands_name_the_port_of_the_server(page: Page, served: RunningServer) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    address = f"127.0.0.1:{served.ports['stream']}"
    go(page, "messages", "events", query="from=7&open=7&limit=1")
    for place, words in ((".search", "--from 7"), (".opened", "--from 7 --count 1 --json")):
        page.locator(place).get_by_role("button", name="Command line").click()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == f"headgate tail events --server {address} {words}"
    page.locator(".search").get_by_role("button", name="Python").click()
    assert f'Client.connect("{address}")' in page.evaluate("navigator.clipboard.readText()")


def test_a_filter_on_the_newest_shows_the_newest_matches(page: Page) -> None:
    go(page, "messages", "events", query="from=last&filter=body.number%20%3C%20100&limit=3")
    rows = page.get_by_role("list", name="Messages", exact=True)
    expect(rows.locator(".message-offset")).to_have_text(["97", "98", "99"])


def test_a_filter_on_the_newest_says_how_far_it_looks(page: Page) -> None:
    go(page, "messages", "events", query="from=last&filter=number%20%3D%20-1")
    expect(page.get_by_text("The last 10,000 offsets were looked through")).to_be_visible()
    expect(page.get_by_text("among the last 10,000 offsets")).to_be_visible()
    page.get_by_role("combobox", name="From").select_option("first")
    expect(page.get_by_text("among the last 10,000 offsets")).to_have_count(0)
    page.get_by_role("button", name="Look", exact=True).click()
    expect(page.get_by_text("The stream was looked at to its end.")).to_be_visible()


def test_an_id_beyond_the_numbers_of_browsers_is_found_and_copied(page: Page, served: RunningServer) -> None:
    identity = 2**64 - 1
    with Client.connect(f"127.0.0.1:{served.ports['stream']}") as client, client.publisher("events") as publisher:
        publisher.send(Message(b"b", message_id=identity))
        publisher.flush()
    go(page, "why", query=f"name=events&id={identity}")
    expect(page.get_by_text(str(identity), exact=True)).to_be_visible()
    expect(page.get_by_text(re.compile(r", 1\smessage$"))).to_be_visible()
    page.get_by_role("link", name="Look at it").click()
    page.locator(".opened").get_by_role("button", name="Filter", exact=False).first.wait_for()
    page.locator(".opened dl").get_by_role("button", name="Filter by message-id").click()
    expect(page.get_by_label("Filter", exact=True)).to_have_value(f"properties.message_id = {identity}")


def test_new_messages_are_followed_live_until_a_row_is_opened(page: Page, served: RunningServer) -> None:
    go(page, "messages", HOSTILE)
    page.get_by_role("button", name="Follow live").click()
    expect(page.get_by_text("Waiting for messages")).to_be_visible()
    with Client.connect(f"127.0.0.1:{served.ports['stream']}") as client, client.publisher(HOSTILE) as publisher:
        row = page.get_by_role("list", name="Newest messages first").get_by_role("listitem").first
        publisher.send(Message(b"new", subject="first"))
        publisher.flush()
        expect(row).to_contain_text("first")
        row.locator(".message-toggle").click()
        expect(page.get_by_text("paused", exact=True)).to_be_visible()
        publisher.send(Message(b"new", subject="second"))
        publisher.flush()
        expect(page.get_by_text(re.compile("1.message came since the pause"))).to_be_visible()
        page.get_by_role("button", name="Go on").click()
        publisher.send(Message(b"new", subject="third"))
        publisher.flush()
        expect(row).to_contain_text("third")
        # Each event of the server has the counters since the beginning.
        expect(page.get_by_label("What each stage did")).to_contain_text(re.compile(r"Matched\s*3.messages"))
    accessible(page)


def test_a_filter_is_checked_while_it_is_typed(page: Page) -> None:
    go(page, "messages", "events")
    field = page.get_by_label("Filter", exact=True)
    look = page.get_by_role("button", name="Look")
    field.press_sequentially("price > AND region")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description(re.compile("found keyword AND, expected a value"))
    expect(page.locator("pre.caret")).to_have_text("price > AND region\n        ^^^")
    expect(look).to_be_disabled()
    accessible(page)
    field.fill("sys.Label = 'event'")
    expect(look).to_be_disabled()
    page.get_by_label("Language of the filter").select_option(label="CloudEvents SQL")
    expect(field).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Language of the filter").select_option("servicebus")
    expect(field).to_have_attribute("aria-invalid", "false")
    look.click()
    expect(page.get_by_role("list", name="Messages").get_by_role("listitem")).to_have_count(50)


def test_hostile_names_and_bodies_are_shown_as_text(page: Page) -> None:
    go(page, "messages", HOSTILE)
    row = page.get_by_role("list", name="Messages").get_by_role("listitem").first
    row.get_by_role("button", name="Message 0", exact=True).click()
    expect(row.get_by_label("Body as text")).to_contain_text("<script>document.title = 'owned'</script>")
    # A mark that turns text and a NUL are seen, not obeyed.
    expect(row.get_by_text("⟨U+202E⟩gnp.exe␀")).to_be_visible()
    expect(row.get_by_text("a␀b", exact=True)).to_be_visible()
    assert page.locator("script:not([src])").count() == 0 and page.locator("img").count() == 0
    accessible(page, width=360)


def test_from_a_message_id_to_the_clause_in_three_clicks(page: Page) -> None:
    go(page, "why", query="name=orders&for=large")
    page.get_by_role("textbox", name="Message id").fill("e-19")
    page.get_by_role("button", name="Ask").click()
    clause = page.locator(".clause").filter(has_text="price > 100").last
    expect(clause).to_contain_text("error")
    expect(clause).to_contain_text("price is string '19'")
    for step in ("Stored", "Confirmed", "In force", "Decided", "Fate"):
        expect(page.get_by_role("heading", name=step, level=3)).to_be_visible()
    accessible(page)
    accessible(page, width=360, theme="dark")


def test_why_not_is_asked_of_a_row(page: Page) -> None:
    go(page, "messages", "orders", query="from=4")
    page.get_by_role("button", name="Why not? Message 4").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".clause").filter(has_text="region = 'EMEA'").last).to_contain_text("false")
    accessible(page)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_everything_is_reached_by_keyboard(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    page.keyboard.press("Tab")
    menu = page.get_by_role("button", name="Menu")
    menu.focus()
    page.keyboard.press("Enter")
    expect(menu).to_have_attribute("aria-expanded", "true")
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Messages").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Messages", level=1)).to_be_focused()
    expect(menu).to_have_attribute("aria-expanded", "false")
