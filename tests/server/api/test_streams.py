"""Streams are made and changed over HTTP."""

from __future__ import annotations

import base64
import http.client
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from body_schemas import TYPE, descriptor_set, order_schema
from headgate.message.body_schema import MAX_SCHEMA_FILES_BYTES
from server.running import RunningServer, running_server
from waiting import LIMIT_S


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    anna = {"name": "anna", "password": "secret", "permissions": {"configure": "^a$"}}
    with running_server(tmp_path, handlers={}, user=[anna], stream=[{"name": "orders"}]) as running:
        yield running


def put(
    running: RunningServer, path: str, arguments: dict[str, Any], user: str = "guest:guest", **more: object
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", running.ports["http"], timeout=LIMIT_S)
    headers = {"Authorization": "Basic " + base64.b64encode(user.encode()).decode(), "Content-Type": "application/json"}
    try:
        connection.request("PUT", f"/api/streams/{path}", json.dumps({"arguments": arguments, **more}), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_stream_is_made_where_the_query_says_so(running: RunningServer) -> None:
    limits = {"max-age": "7D", "stream-filter-size-bytes": 64}
    status, made = put(running, "new%2Fone?only=new", limits)
    assert (status, made["name"]) == (201, "new/one") and limits.items() <= made["arguments"].items()
    assert put(running, "new%2Fone?only=new", limits)[0] == 409
    rest = {name: value for name, value in made["arguments"].items() if name != "max-age"}
    assert put(running, "new%2Fone", {"max-age": None}) == (200, {**made, "arguments": rest})
    assert put(running, "other", limits)[0] == 404


@pytest.mark.parametrize(
    ("path", "arguments", "user", "status", "reason"),
    [
        ("b?only=new", {}, "anna:secret", 403, "no configure permission"),
        ("a?only=new", {"headgate-remote": "s3://bucket/x"}, "guest:guest", 400, "not for clients"),
        ("a?only=new", {"max-age": "never"}, "anna:secret", 400, "max-age"),
        ("a?only=old", {}, "anna:secret", 400, "only: found 'old'"),
    ],
)
def test_what_is_refused_makes_nothing(
    running: RunningServer, path: str, arguments: dict[str, Any], user: str, status: int, reason: str
) -> None:
    found, problem = put(running, path, arguments, user)
    assert found == status and reason in problem["detail"]
    assert running.call(running.context.broker.catalogue.names) == ["orders"]


ORDERS = {"format": "protobuf", "type": TYPE, "files": {"": base64.b64encode(descriptor_set()).decode()}}


def test_a_stream_is_made_with_a_schema_of_its_bodies(running: RunningServer) -> None:
    assert put(running, "paid?only=new", {}, body_schema=ORDERS)[0] == 201
    kept = running.call(lambda: running.context.broker.catalogue.get("paid").stream.body_schema)
    assert kept == order_schema().text
    assert put(running, "paid?only=new", {}, body_schema=ORDERS)[0] == 409
    assert put(running, "paid", {"max-age": "7D"})[0] == 200
    assert running.call(lambda: running.context.broker.catalogue.get("paid").stream.body_schema) == kept


def test_a_schema_is_read_for_those_only_who_may_make_the_stream(running: RunningServer) -> None:
    found, problem = put(running, "b?only=new", {}, "anna:secret", body_schema={**ORDERS, "files": {}})
    assert found == 403 and "no configure permission" in problem["detail"]


def files_of(content: bytes) -> dict[str, str]:
    return {"": base64.b64encode(content).decode()}


@pytest.mark.parametrize(
    ("path", "arguments", "schema", "reason"),
    [
        ("orders", {}, ORDERS, "from when it is made"),
        ("a?only=new", {"headgate-filter-source": "body.region"}, ORDERS, "body.region: a path as filter source"),
        ("a?only=new", {"headgate-columns": "b.region string"}, ORDERS, "body.region: the stream declares a schema"),
        ("a?only=new", {"headgate-body-schema": "{}"}, None, "--server … --body-schema FILE"),
        ("a?only=new", {}, {**ORDERS, "type": "shop.Missing"}, "no message 'shop.Missing'"),
        ("a?only=new", {}, {**ORDERS, "type": None}, "needs its message type"),
        ("a?only=new", {}, {**ORDERS, "files": {}}, "one file, or one for each id"),
        ("a?only=new", {}, {**ORDERS, "files": {"x": ""}}, "found the file 'x'"),
        ("a?only=new", {}, {**ORDERS, "format": "xml"}, "xml"),
        (
            "a?only=new",
            {},
            {**ORDERS, "files": files_of(random.Random(0).randbytes(300_000))},
            "at most 262144 are kept",
        ),
        (
            "a?only=new",
            {},
            {**ORDERS, "files": files_of(bytes(MAX_SCHEMA_FILES_BYTES + 1))},
            "at most 4194304 are taken",
        ),
    ],
)
def test_a_wrong_schema_is_refused_with_its_reason(
    running: RunningServer, path: str, arguments: dict[str, Any], schema: dict[str, Any] | None, reason: str
) -> None:
    found, problem = put(running, path, arguments, body_schema=schema)
    assert found == 400 and reason in problem["detail"], problem
    assert running.call(running.context.broker.catalogue.names) == ["orders"]
