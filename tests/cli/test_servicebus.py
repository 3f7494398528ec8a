"""`headgate servicebus import` and `export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import Run

RULE: dict[str, Any] = {
    "Name": "Red",
    "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "color = 'red'"}},
}


def file(tmp_path: Path, *, rule: dict[str, Any] = RULE, forward_to: str = "jobs") -> Path:
    subscription = {"Name": "red", "Properties": {"ForwardTo": forward_to}, "Rules": [rule]}
    namespace = {
        "Name": "sbemulatorns",
        "Topics": [{"Name": "orders", "Subscriptions": [subscription, {"Name": "all"}]}],
        "Queues": [{"Name": "jobs", "Properties": {"LockDuration": "PT30S"}}],
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}}))
    return path


def test_what_is_imported_is_there_and_exported_as_it_was(run: Run, tmp_path: Path) -> None:
    path = file(tmp_path)
    shown = run("servicebus", "import", path)
    assert (shown.status, shown.err) == (0, f"1 queues, 1 topics, 2 subscriptions are as {path} says\n")
    assert run("rule", "ls", "orders", "red", "--json").json[0]["name"] == "Red"
    exported = run("servicebus", "export")
    assert exported.status == 0
    (namespace,) = json.loads(exported.out)["UserConfig"]["Namespaces"]
    red, every = namespace["Topics"][0]["Subscriptions"]
    assert (red["Rules"], red["Properties"]["ForwardTo"], every["Name"]) == ([RULE], "jobs", "all")
    assert "Rules" not in every
    assert namespace["Queues"][0]["Properties"]["LockDuration"] == "PT30S"
    path.write_text(exported.out)
    assert run("servicebus", "import", path, "--root", tmp_path / "other").status == 0
    assert run("servicebus", "export", "--root", tmp_path / "other").out == exported.out


def test_importing_again_changes_what_the_file_says_and_nothing_else(run: Run, tmp_path: Path) -> None:
    run("servicebus", "import", file(tmp_path))
    run("subscription", "create", "orders", "more")
    other = {"Name": "Other", "Properties": {"FilterType": "Correlation", "CorrelationFilter": {"Label": "a"}}}
    assert run("servicebus", "import", file(tmp_path, rule=other)).status == 0
    assert [row["name"] for row in run("rule", "ls", "orders", "red", "--json").json] == ["Other"]
    assert [row["name"] for row in run("subscription", "ls", "orders", "--json").json] == ["red", "all", "more"]


@pytest.mark.parametrize(
    ("rule", "status", "named"),
    [
        ({"Name": "r", "Properties": {"FilterType": "Tag"}}, 2, "found the FilterType 'Tag'"),
        ({**RULE, "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a ="}}}, 1, "a ="),
    ],
)
def test_a_file_with_anything_wrong_changes_nothing(
    run: Run, tmp_path: Path, rule: dict[str, Any], status: int, named: str
) -> None:
    shown = run("servicebus", "import", file(tmp_path, rule=rule))
    assert (shown.status, named in shown.err) == (status, True), shown.err
    assert run("topic", "ls").out == ""


def test_what_has_no_words_in_the_file_is_refused(run: Run, tmp_path: Path) -> None:
    run("topic", "create", "orders")
    run("subscription", "create", "orders", "paid", "--rule", '{"name": "r", "tags": "paid"}')
    shown = run("servicebus", "export")
    assert (shown.status, shown.out) == (2, "") and "topic 'orders', subscription 'paid', rule 'r'" in shown.err
