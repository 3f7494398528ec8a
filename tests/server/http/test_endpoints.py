"""Every endpoint is what the OpenAPI document says of it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from headgate.server.http.dispatcher import QUERY_BYTES
from server.running import RunningServer, running_server
from waiting import LIMIT_S

GUEST = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}

_NAMES = {
    "argument": "5672",
    "check": "alarms",
    "exchange": "amq.topic",
    "group": "billing",
    "job": "1-1",
    "node": "headgate@localhost",
    "pipeline": "nightly",
    "queue": "orders",
    "rule": "$Default",
    "stream": "orders",
    "subscription": "red",
    "token": "none",
    "topic": "shop/orders",
    "user": "anna",
    "vhost": "/",
}
"""A name for each part of a path; most are there."""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    definitions = {"topic": [{"name": "payments", "queues": 2}], "group": [{"name": "billing"}]}
    with running_server(
        tmp_path,
        handlers={},
        user=[{"name": "anna", "password": "secret"}],
        stream=[{"name": "orders"}],
        rocketmq=definitions,
    ) as running:
        for path in ("topics/shop%2Forders", "topics/shop%2Forders/subscriptions/red"):
            assert ask(running, "PUT", f"/api/{path}")[0] == 201
        yield running


def ask(
    running: RunningServer, method: str, path: str, body: bytes | None = None, headers: dict[str, str] = GUEST
) -> tuple[int, str, bytes]:
    """Status, content type, body."""
    connection = http.client.HTTPConnection("127.0.0.1", running.ports["http"], timeout=LIMIT_S)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, (answer.headers.get("content-type") or "").partition(";")[0], answer.read()
    finally:
        connection.close()


@pytest.fixture
def document(running: RunningServer) -> Any:
    return json.loads(ask(running, "GET", "/api/openapi.json", headers={})[2])


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    """Method, path with names, and declaration of each endpoint; those that delete come last."""
    found = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return iter(
        sorted(found, key=lambda each: (each[0] == "DELETE", -each[1].count("/") if each[0] == "DELETE" else 0))
    )


def filled(path: str) -> str:
    return path.format(**{name: quote(value, safe="") for name, value in _NAMES.items()})


def test_the_document_is_valid(document: Any) -> None:
    OpenAPIV31SpecValidator(document).validate()
    for schema in document["components"]["schemas"].values():
        # The validator takes tuples of older drafts, too, which other tools do not.
        Draft202012Validator.check_schema(schema)
    identifiers = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(identifiers) == len(set(identifiers)) > 40


def test_generators_of_clients_find_objects_with_plain_names(document: Any) -> None:
    def check(schema: Any, where: str) -> None:
        assert isinstance(schema, dict) and "prefixItems" not in schema, where
        for key in ("items", "additionalItems"):
            if key in schema:
                check(schema[key], f"{where}/{key}")
        for name, each in schema.get("properties", {}).items():
            check(each, f"{where}/{name}")

    for name, schema in document["components"]["schemas"].items():
        assert name.isidentifier(), name
        check(schema, name)


def test_each_endpoint_answers_as_the_document_says(running: RunningServer, document: Any) -> None:
    assert running.ports["http"]
    succeeded = 0
    for method, path, operation in operations(document):
        body = None
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]["application/json"]
            example = content.get("example", {})
            # Nothing waits for messages here.
            body = json.dumps(example | {"wait_s": 0} if "wait_s" in example else example).encode()
        if "text/event-stream" in operation["responses"].get("200", {}).get("content", {}):
            # It has no end.
            continue
        status, kind, data = ask(running, method, filled(path), body)
        where = f"{method} {filled(path)}: {status} {data[:300]!r}"
        assert str(status) in operation["responses"], where
        documented = operation["responses"][str(status)].get("content", {})
        assert (kind in documented) == bool(documented) == bool(data), where
        if documented and status < 300:
            succeeded += 1
            schema = {**documented[kind]["schema"], "components": document["components"]}
            Draft202012Validator(schema).validate(json.loads(data))
    assert succeeded > 40


def test_nothing_but_what_says_so_answers_without_a_login(running: RunningServer, document: Any) -> None:
    open_paths = []
    for method, path, operation in operations(document):
        status, kind, _ = ask(running, method, filled(path), b"{}" if "requestBody" in operation else None, {})
        if operation.get("security") == []:
            open_paths.append(path)
        else:
            assert status == 401 and kind in operation["responses"]["401"]["content"], (method, path, status)
    assert set(open_paths) == {"/api/openapi.json", "/api/session"}


def test_what_is_too_long_is_refused(running: RunningServer) -> None:
    assert ask(running, "PUT", "/api/users/new", b'"' + b"x" * 70_000)[:2] == (413, "application/problem+json")
    long = "x" * QUERY_BYTES
    assert ask(running, "GET", f"/api/streams?name={long}")[:2] == (414, "application/problem+json")
    assert ask(running, "GET", f"/api/queues?name={long}")[:2] == (414, "application/json")


@pytest.mark.parametrize(
    ("method", "path", "status", "named"),
    [
        ("GET", "/api/nothing", 404, "%2F"),
        ("GET", "/api/streams/a/b/c", 404, "%2F"),
        ("GET", "/api/streams/a%0Ab", 404, "no such stream"),
        ("POST", "/api/streams", 405, "GET"),
        ("GET", "/api/topics/shop%2Forders/subscriptions/red/messages?limit=many", 400, "limit: found 'many'"),
        ("GET", "/api/topics/shop%2Forders/subscriptions/red/messages?limt=5", 400, "limt"),
        ("PUT", "/api/users/%ff", 400, "UTF-8"),
    ],
)
def test_a_wrong_request_is_a_problem_that_says_what_is_wrong(
    running: RunningServer, method: str, path: str, status: int, named: str
) -> None:
    found, kind, data = ask(running, method, path, b"{}" if method == "PUT" else None)
    problem = json.loads(data)
    assert (found, kind, problem["status"]) == (status, "application/problem+json", status)
    assert named in problem["detail"] and problem["detail"] == problem["error"]


def test_a_refused_filter_says_the_place(running: RunningServer) -> None:
    path = "/api/topics/shop%2Forders/subscriptions/red/rules/wrong"
    status, _, data = ask(running, "PUT", path, b'{"sql": "color = = 1"}')
    problem = json.loads(data)
    assert (status, problem["text"], problem["span"]) == (400, "color = = 1", [8, 9])


def test_a_list_may_end_with_a_slash(running: RunningServer) -> None:
    assert ask(running, "GET", "/api/streams/") == ask(running, "GET", "/api/streams")
