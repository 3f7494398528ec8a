"""Pipelines, connections, users, tokens and the audit in the console."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from headgate.client import Client, Management, PipelinePart, PipelineReport, PipelineState, RuleProgress
from server.api.test_spark_jobs import orders, python_that
from server.console.browsing import HOSTILE, PASSWORD, accessible, entered, go
from server.running import RunningServer, running_server


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


def test_a_server_without_spark_says_how_to_configure_it(page: Page) -> None:
    go(page, "pipelines")
    expect(page.get_by_text('master = "local[2]"')).to_be_visible()
    expect(page.get_by_role("button", name="Start a job")).to_have_count(0)
    accessible(page, width=360)


BACK_TEST = {
    "stream": "orders",
    "start": 0,
    "stop": 20,
    "messages": 20,
    "by_copies": {"none": 16, "one": 4, "several": 0},
    "rules": [
        {
            "subscription": "tried",
            "rule": "tried",
            "matched": 4,
            "errors": 1,
            "unknown": 0,
            "failed_actions": 0,
            "samples": [
                {"offset": 16, "timestamp_ms": 1, "note": "", "message": {"application_properties": {"n": 16}}}
            ],
            "error_samples": [{"offset": 3, "timestamp_ms": 1, "note": HOSTILE, "message": {}}],
        }
    ],
    "rule_overlaps": [],
}
COLUMNS = {"stream": "orders", "segments": 2, "built": 2, "messages": 20, "inexact": 0, "bytes": 12_000}
SPARK = """case "$*" in
*"rule test"*) printf '%s' "$*" > "$0.args"; cat "$0.report" ;;
*"columns build"*) cat "$0.built" ;;
*"lookup build"*) echo "orders: it has no lookup fields" >&2; exit 1 ;;
*) exec sleep 1000 ;;
esac"""
"""In place of Python and Spark, which take minutes: what they write is tested where they run."""


def test_back_tests_and_builds_are_started_watched_and_cancelled(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders(tmp_path / "data")
    (tmp_path / "python.report").write_text(json.dumps(BACK_TEST))
    (tmp_path / "python.built").write_text(json.dumps(COLUMNS))
    python_that(tmp_path, SPARK, monkeypatch)
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    users = [{"name": "admin", "password": PASSWORD, "tags": ["administrator"], "permissions": everything}]
    wrong: list[str] = []
    with running_server(tmp_path, handlers={}, user=users, spark={"master": "local[1]"}) as served:
        context = browser.new_context()
        page = entered(context, served, wrong)
        go(page, "pipelines")

        def start(kind: str) -> Locator:
            page.get_by_role("button", name="Start a job").click()
            dialog = page.get_by_role("dialog", name="Start a job")
            dialog.get_by_label("Kind").select_option(label=kind)
            dialog.get_by_label("Stream or topic").fill("orders")
            return dialog

        dialog = start("Back-test")
        dialog.get_by_label("A filter of yours").check()
        dialog.get_by_label("Filter", exact=True).fill("n > 15")
        dialog.get_by_label("From").fill("3")
        accessible(page)
        accessible(page, width=360, theme="dark")
        dialog.get_by_role("button", name="Start").click()
        jobs = page.get_by_role("list", name="Back-tests and builds").get_by_role("listitem")
        page.get_by_role("button", name="Report of Back-test of orders").click()
        report = page.get_by_role("dialog", name="Report")
        expect(report.get_by_role("table", name="tried rules")).to_contain_text("20\u00a0%")
        expect(report).to_contain_text(HOSTILE)
        accessible(page)
        accessible(page, width=360, theme="dark")
        arguments = (tmp_path / "python.args").read_text()
        assert '--from=3 --samples=3 --rule={"name":"tried","sql":"n > 15"} ' in arguments
        page.keyboard.press("Escape")

        start("Column files").get_by_role("button", name="Start").click()
        page.get_by_role("button", name="Report of Column files of orders").click()
        expect(report).to_contain_text("12\u00a0kB")
        page.keyboard.press("Escape")

        start("Lookup files").get_by_role("button", name="Start").click()
        expect(jobs.first).to_contain_text("it has no lookup fields")
        start("Match index").get_by_role("button", name="Start").click()
        expect(jobs.first).to_contain_text("running")
        accessible(page)
        jobs.first.get_by_role("button", name="Cancel").click()
        expect(jobs.first).to_contain_text("cancelled")
        context.close()
    assert wrong == []


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
