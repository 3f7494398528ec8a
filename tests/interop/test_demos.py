"""The demos of `make`, as a user runs them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.client import Management
from waiting import LIMIT_S, eventually

PROJECT = Path(__file__).parents[2]


def shown_by(demo: str, *clients: str) -> list[str]:
    """What a demo shows, line by line, with one space for many; it needs these clients."""
    for client in clients:
        pytest.importorskip(client, reason="the Python clients are not installed: `make clients`")
    script = PROJECT / "examples" / "demos" / f"{demo}.py"
    shown = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False, cwd=PROJECT
    )
    assert shown.returncode == 0, shown.stderr[-4000:]
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert lines[-1] == "server stopped"
    return lines


def test_the_broker_shows_what_each_stage_removed() -> None:
    lines = shown_by("broker", "rstream", "rabbitmq_amqp_python_client")
    assert "20,000 events published by rstream" in lines
    assert any(re.fullmatch(r"stage 1 0 of \d+ chunks skipped by their Bloom filters", line) for line in lines)
    skipped = [re.fullmatch(r"stage 1 (\d+) of (\d+) chunks .*", line) for line in lines]
    assert sum(found is not None and int(found[1]) > 0.7 * int(found[2]) for found in skipped) == 2
    assert any(
        re.fullmatch(r"stage 2 [\d,]+ of [\d,]+ messages removed by the server's SQL filter", line) for line in lines
    )
    assert any(re.fullmatch(r"stage 3 [\d,]+ of [\d,]+ messages dropped by the client", line) for line in lines)
    assert "'10 red ones', quantity 5: settled" in lines
    assert "'3 red ones' is a dead letter, quantity 1" in lines


def test_rocketmq_shows_both_filters_what_was_decided_ahead_and_the_topic_in_spark() -> None:
    lines = shown_by("rocketmq", "rocketmq", "pyspark")
    assert sum(line.startswith("packing (paid): 50 messages, ") for line in lines) == 2
    assert sum(line.startswith("billing (region = 'EMEA' AND ") and "): 2 messages, " in line for line in lines) == 2
    decided = [re.search(r"examined for 'billing': (\d+) decided ahead", line) for line in lines]
    assert [int(found[1]) > 0 for found in decided if found] == [True]
    rows = [re.fullmatch(r"\|\d+ *\|(order \d+) *\|EMEA *\|\d+ *\|", line) for line in lines]
    assert [found[1] for found in rows if found] == ["order 145", "order 155", "order 45", "order 55"]


def test_servicebus_shows_what_a_program_of_the_cloud_gets() -> None:
    lines = shown_by("servicebus", "azure.servicebus")
    assert "'10 red ones': a parcel with 5" in lines
    assert "dead letters of 'red': ['0 red ones']" in lines
    assert any(line.startswith("Red 1 0 2 0 0 color = 'red' SET quantity = quantity / 2") for line in lines)


def test_the_console_has_traffic_a_failing_rule_and_dead_letters_until_it_is_interrupted() -> None:
    script = PROJECT / "examples" / "demos" / "console.py"
    command = [sys.executable, str(script), "--events", "2000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT) as demo:
        try:
            assert demo.stdout is not None
            said = (re.match(r"console: (http://\S+/) +user (\w+), password (\w+)", line) for line in demo.stdout)
            address, user, password = next(found for found in said if found).groups()
            management = Management(address.rstrip("/"), user, password)
            names = {"dashboard", "orders-only", "expensive"}
            eventually(lambda: names <= {row["name"] for row in management.consumers() if row["delivered_messages"]})
            eventually(lambda: management.topics.subscription("orders", "billing")["dead_lettered"])
            (rule,) = management.topics.subscription("orders", "large")["rules"]
            assert rule["errors"] > 0 and rule["last_failure_reason"] == "a string does not compare with a number"
            demo.send_signal(signal.SIGINT)
            assert demo.stdout.read().splitlines()[-1] == "server stopped"
            assert demo.wait(LIMIT_S) == 0
        finally:
            demo.kill()
