"""`GET /api/languages`, `POST /api/filters/check`: every language, and the place where a text is wrong."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.language import DEFAULT_DIALECT, dialect_names
from server.http.test_endpoints import GUEST, ask
from server.running import RunningServer, running_server

USERS = [{"name": "nobody", "password": "secret"}]
NOBODY = {"Authorization": "Basic " + base64.b64encode(b"nobody:secret").decode()}
STREAM = {"name": "orders", "arguments": {"headgate-filter-source": "application_properties.region"}}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("languages"), handlers={}, user=USERS, stream=[STREAM]) as running:
        yield running


def check(running: RunningServer, headers: dict[str, str] = GUEST, **body: Any) -> tuple[int, Any]:
    status, _, data = ask(running, "POST", "/api/filters/check", json.dumps(body).encode(), headers)
    return status, json.loads(data)


def test_each_language_has_an_example_that_it_accepts(running: RunningServer) -> None:
    listed = json.loads(ask(running, "GET", "/api/languages")[2])
    assert [each["name"] for each in listed] == [*dialect_names(), "tags"]
    assert [each["name"] for each in listed if each["is_default"]] == [DEFAULT_DIALECT]
    assert [each["title"] for each in listed if each["name"] in ("servicebus", "tags")] == ["Service Bus", "tags"]
    for each in listed:
        status, checked = check(running, text=each["example"], language=each["name"])
        assert (status, checked["ok"]) == (200, True) and checked["fields"], each


def test_an_accepted_filter_is_told_with_its_fields_and_values(running: RunningServer) -> None:
    text = "region IN ('EMEA', 'APAC') AND p.subject = 'x'"
    assert check(running, text=text) == (
        200,
        {"ok": True, "fields": ["p.subject", "region"], "filter_values": None, "warnings": []},
    )
    assert check(running, text=text, stream="orders")[1]["filter_values"] == ["APAC", "EMEA"]
    assert check(running, text="price > 5", stream="orders")[1]["filter_values"] is None


@pytest.mark.parametrize(
    ("text", "language", "span"),
    [
        ("region = = 5", "amqp", [9, 10]),
        ("😀 = 'x", "servicebus", [0, 1]),
        ("\x00 ' </script>", "rabbitmq", [0, 1]),
        ("||", "tags", [0, 2]),
    ],
)
def test_a_wrong_filter_is_told_with_its_place(
    running: RunningServer, text: str, language: str, span: list[int]
) -> None:
    status, checked = check(running, text=text, language=language)
    assert (status, checked["ok"], checked["span"]) == (200, False, span)
    assert checked["reason"] in checked["error"] and checked.keys() == {"ok", "error", "reason", "span"}


def test_what_is_hardly_meant_is_a_warning(running: RunningServer) -> None:
    checked = check(running, text="a = 1) OR b = 2", language="rocketmq")[1]
    assert checked["ok"] and [5, 15] in [each["span"] for each in checked["warnings"]]


def test_what_a_stream_declares_is_for_its_readers(running: RunningServer) -> None:
    assert check(running, NOBODY, text="a = 1")[0] == 200
    assert check(running, NOBODY, text="a = 1", stream="orders")[0] == 403
    assert check(running, text="a = 1", stream="order")[0] == 404
    assert check(running, text="a = 1", language="klingon")[0] == 400
    assert check(running, text="a" * 40_000)[0] == 413
