"""`headgate mcp`: an agent's client of the protocol, over the tools of a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from headgate.cli import main
from headgate.cli.mcp import agent_server
from headgate.client import Client as StreamClient
from headgate.client import Management
from headgate.message import Message
from server.running import RunningServer, running_server


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path, stream=[{"name": "hidden"}]) as running:
        yield running


@pytest.fixture
def management(running: RunningServer) -> Management:
    """Of a server with a topic `orders` of 20 messages, whose subscription `red` takes every second one."""
    made = Management.of(f"http://127.0.0.1:{running.ports['http']}", user="guest", password="guest")
    made.topics.create_topic("orders")
    rules = [{"name": "red", "sql": "color = 'red'"}]
    made.topics.create_subscription("orders", "red", {"rules": rules})
    with StreamClient.connect(f"127.0.0.1:{running.ports['stream']}") as client, client.publisher("orders") as out:
        for number in range(20):
            properties = {"color": ("red", "blue")[number % 2], "n": number}
            out.send(Message(b"body", message_id=f"id-{number}", application_properties=properties))
    return made


def called(management: Management, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """What an agent gets for calls of tools, in one session: values, or the text of an error."""

    async def run() -> list[Any]:
        found: list[Any] = []
        async with Client(agent_server(management)) as agent:
            for name, arguments in calls:
                result = await agent.call_tool(name, arguments)
                texts = [block.text for block in result.content]  # type: ignore[union-attr]
                found.append(texts[0] if result.is_error else [json.loads(text) for text in texts])
        return found

    return asyncio.run(run())


def test_an_agent_finds_a_message_and_learns_why_it_was_not_taken(management: Management) -> None:
    look = {"stream": "orders", "start": "first", "filter": "n >= 18"}
    why = {"name": "orders", "consumer": "red", "id": "id-19"}
    streams, messages, answer = called(management, ("streams", {}), ("look", look), ("why", why))
    assert [row["name"] for row in streams] == ["hidden", "orders"]
    assert [row["offset"] for row in messages[0]["messages"]] == [18, 19]
    assert "color = 'red'" in json.dumps(answer)


def test_rules_are_tried_and_filters_checked_without_a_change(management: Management) -> None:
    rule = {"name": "late", "sql": "n > 15"}
    tried, checked, topic, dead_letters = called(
        management,
        ("dry_run", {"topic": "orders", "subscription": "red", "rule": rule, "last": 20}),
        ("check_filter", {"text": "n >", "language": "amqp"}),
        ("subscription", {"topic": "orders"}),
        ("dead_letters", {"topic": "orders", "subscription": "red"}),
    )
    assert (tried[0]["messages"], tried[0]["matched"]) == (20, 4)
    assert checked[0]["ok"] is False
    assert dead_letters == []
    (subscription,) = topic[0]["subscriptions"]
    assert [each["name"] for each in subscription["rules"]] == ["red"]


def test_refusals_reach_the_agent_with_their_reason(management: Management) -> None:
    near, empty, no_topic, wrong = called(
        management,
        ("stream", {"name": "orderz"}),
        ("stream", {"name": ""}),
        ("subscription", {"topic": ""}),
        ("look", {"stream": "orders", "filter": "n > >"}),
    )
    assert "did you mean 'orders'?" in near
    assert "empty name" in empty and "empty name" in no_topic
    assert "found '>'" in wrong and "%3E" not in wrong


def test_a_rule_that_is_tried_needs_no_name(management: Management) -> None:
    asked = {"topic": "orders", "subscription": "red", "last": 20}
    tried, refused = called(
        management,
        ("dry_run", {**asked, "rule": {"sql": "n > 15"}}),
        ("dry_run", {**asked, "rule": {"name": 5, "sql": "n > 15"}}),
    )
    assert tried[0]["matched"] == 4
    assert "expected a text" in refused


def test_every_tool_says_that_it_changes_nothing(management: Management) -> None:
    async def listed() -> list[Any]:
        async with Client(agent_server(management)) as agent:
            return list((await agent.list_tools()).tools)

    tools = asyncio.run(listed())
    assert len(tools) == 9
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)


def test_a_wrong_token_is_told_before_an_agent_asks(
    running: RunningServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_TOKEN", "wrong")
    assert main(["mcp", "--server", f"127.0.0.1:{running.ports['stream']}"]) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and "authentication failure" in shown.err and "HEADGATE_TOKEN" in shown.err


def test_a_server_has_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp"]) == 2
    assert "HEADGATE_SERVER" in capsys.readouterr().err
