"""Pipelines, connections, users, tokens and the audit in the console."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from headgate.client import Client, Management, PipelinePart, PipelineReport, PipelineState, RuleProgress
from server.console.browsing import HOSTILE, PASSWORD, accessible, go
from server.running import RunningServer


@pytest.fixture(scope="module")
def management(served: RunningServer) -> Management:
    return Management(f"http://127.0.0.1:{served.ports['http']}", "admin", PASSWORD)


def test_the_audit_says_who_did_what(page: Page, management: Management) -> None:
    management.topics.create_topic("audited")
    management.topics.remove_topic("audited")
    go(page, "audit")
    entries = page.get_by_role("list", name="Entries").get_by_role("listitem")
    expect(entries.first).to_contain_text("topic.delete")
    expect(entries.first).to_contain_text("audited")
    accessible(page)
    accessible(page, width=360, theme="dark")
    page.get_by_label("Action").fill("topic.create")
    page.get_by_label("User").fill("admin")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(entries.first).to_contain_text("topic.create")
    assert "action=topic.create" in page.url
    entries.first.get_by_role("button", name=re.compile("^Entry ")).click()
    expect(entries.first).to_contain_text("over HTTP")
    accessible(page)
    page.get_by_label("User").fill("nobody")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_text("No such entry among the last")).to_be_visible()


def test_a_pipeline_shows_its_rows_rules_and_error(page: Page, management: Management, served: RunningServer) -> None:
    go(page, "pipelines")
    expect(page.get_by_text("No job has reported yet")).to_be_visible()
    rule = RuleProgress("large", HOSTILE, 7, 7, 2, 0, "a string does not compare with a number")
    counters = {"chunks_skipped": 90, "chunks_examined": 10}
    part = PipelinePart("lake", "sink", PipelineState.RUNNING, 1200, 40.0, 3, 1500, counters, (rule,))
    management.report_pipeline(HOSTILE, PipelineReport(PipelineState.RUNNING, (part,)))
    failed = PipelinePart("query", "query", PipelineState.FAILED, error="OutOfMemoryError")
    management.report_pipeline("broken", PipelineReport(PipelineState.FAILED, (failed,)))
    page.reload()
    row = page.get_by_role("row").filter(has_text=HOSTILE)
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("1,200")
    expect(page.get_by_role("row").filter(has_text="broken")).to_contain_text("OutOfMemoryError")
    accessible(page)
    row.get_by_role("link", name=HOSTILE).click()
    expect(page.get_by_role("table", name="rules")).to_contain_text("a string does not compare with a number")
    expect(page.get_by_role("table", name="parts")).to_contain_text("1.5\u00a0s")
    accessible(page, width=360, theme="dark")

    def silent(route: Route) -> None:
        answer = route.fetch()
        rows = [{**one, "reported_ms": one["reported_ms"] - 3_600_000} for one in answer.json()]
        route.fulfill(response=answer, json=rows)

    page.route("**/api/pipelines", silent)
    page.reload()
    expect(page.get_by_text("It has not reported for 1\u00a0h")).to_be_visible()
    go(page, "pipelines", "broken")
    expect(page.get_by_role("alert")).to_contain_text("query: OutOfMemoryError")


def test_connections_are_listed_and_held_back_ones_named(page: Page, served: RunningServer) -> None:
    with Client.connect(f"127.0.0.1:{served.ports['stream']}"):
        go(page, "connections")
        row = page.get_by_role("row").filter(has_text="headgate client")
        expect(row.first).to_contain_text("running")
        accessible(page)
        accessible(page, width=360, theme="dark")

        def held(route: Route) -> None:
            answer = route.fetch()
            route.fulfill(response=answer, json=[{**one, "state": "flow"} for one in answer.json()])

        page.route("**/api/connections", held)
        page.reload()
        expect(row.first).to_contain_text("held back")


def test_users_are_made_changed_and_deleted(page: Page, browser: Browser, served: RunningServer) -> None:
    go(page, "users", query="new=1")
    dialog = page.get_by_role("dialog", name="Create a user")
    dialog.get_by_label("Name").fill(HOSTILE)
    dialog.get_by_label("Password").fill("first")
    dialog.get_by_label("monitoring").check()
    accessible(page, width=360, theme="dark")
    dialog.get_by_label("Read", exact=True).fill("^orders$")
    dialog.get_by_role("button", name="Create").click()
    row = page.get_by_role("row").filter(has_text=HOSTILE)
    expect(row).to_contain_text("^orders$")
    accessible(page)
    row.get_by_role("button", name=f"Change {HOSTILE}").click()
    page.get_by_role("dialog").get_by_label("New password").fill("second")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    other = browser.new_context()
    address = f"http://127.0.0.1:{served.ports['http']}/api/session"
    assert other.request.post(address, data={"user": HOSTILE, "password": "first"}).status == 401
    assert other.request.post(address, data={"user": HOSTILE, "password": "second"}).status == 200
    other.close()
    row.get_by_role("button", name=f"Delete {HOSTILE}").click()
    page.get_by_role("dialog").get_by_label("to confirm").fill(HOSTILE)
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)


def test_a_token_is_shown_once_and_revoked(page: Page, browser: Browser, served: RunningServer) -> None:
    go(page, "tokens")
    page.get_by_role("button", name="Create a token").first.click()
    page.get_by_role("dialog").get_by_label("For what").fill(HOSTILE)
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    dialog = page.get_by_role("dialog", name="The token")
    text = dialog.locator("pre").inner_text().strip()
    accessible(page)
    page.keyboard.press("Escape")
    script = browser.new_context(extra_http_headers={"Authorization": f"Bearer {text}"})
    address = f"http://127.0.0.1:{served.ports['http']}/api/streams"
    assert script.request.get(address).status == 200
    expect(page.get_by_role("table", name="tokens")).not_to_contain_text(text)
    accessible(page, width=360, theme="dark")
    page.get_by_role("button", name=f"Revoke {HOSTILE}").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("No tokens yet")).to_be_visible()
    assert script.request.get(address).status == 401
    script.close()
