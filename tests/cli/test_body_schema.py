"""A stream that declares a schema of its bodies: its filters look into them, wherever it is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headgate
from body_schemas import TYPE, descriptor_set, order_body
from command_line import Outcome, Run
from headgate.errors import ConfigError
from headgate.log import resolve_stream
from headgate.server.stream import StreamHandler
from server.running import running_server

LARGE = "body.total > 100"
BODIES = [
    order_body(id=1, total=120.5, state="PAID"),
    order_body(id=2, total=99.99, lines=[{"sku": "A-1"}]),
    b'{"total": 500}',
]


@pytest.fixture
def orders(run: Run, tmp_path: Path) -> Run:
    """A stream `orders` with a schema that is not kept anywhere else, and three messages; the third is JSON."""
    file = tmp_path / "orders.desc"
    file.write_bytes(descriptor_set())
    assert run("stream", "create", "orders", "--body-schema", f"{file}#{TYPE}").status == 0
    file.unlink()
    return run


def publish(run: Run) -> None:
    lines = [json.dumps({"body": {"data": {"hex": body.hex()}}}) for body in BODIES]
    published = run("publish", "orders", stdin="\n".join(lines) + "\n")
    assert published.status == 0, published.err


def test_tail_and_explain_decode_bodies(orders: Run) -> None:
    publish(orders)
    assert orders("tail", "orders", "--filter", LARGE, "--offsets").lines == ["0"]
    assert orders("tail", "orders", "--filter", "body.lines[*].sku LIKE 'A-%'", "--offsets").lines == ["1"]
    explained = orders("filter", "explain", LARGE, "--stream", "orders", "--offset", "1")
    assert "body.total is the number 99.99" in explained.out
    assert "the body is not protobuf shop.Order" in orders("why", "orders", "--offset", "2", "--filter", LARGE).out
    assert orders("stream", "info", "orders", "--json").json[0]["body_schema"] == "protobuf shop.Order"


def test_rules_of_a_topic_decode_bodies_and_so_does_their_trial(orders: Run) -> None:
    for command in (
        ["topic", "create", "orders"],
        ["subscription", "create", "orders", "large", "--no-rules"],
        ["rule", "add", "orders", "large", "total", "--dialect", "amqp", "--sql", LARGE],
    ):
        assert orders(*command).status == 0
    publish(orders)
    peeked = orders("subscription", "peek", "orders", "large")
    assert [line.split("\t")[0] for line in peeked.lines[1:]] == ["0"]
    small = ("--dialect", "amqp", "--sql", "body.total < 100")
    tried = orders("rule", "add", "orders", "large", "small", *small, "--dry-run", "--json")
    assert tried.status == 0 and tried.json[0]["matched"] == 1, tried.err
    assert "99.99" in orders("why", "orders", "--offset", "1", "--for", "large").out


def test_a_schema_stays_when_limits_change_and_no_match_index_is_kept(orders: Run, tmp_path: Path) -> None:
    root = tmp_path / "root"
    before = resolve_stream("orders", root).body_schema
    assert before is not None
    assert orders("stream", "change", "orders", "--max-length", "1GB").status == 0
    assert resolve_stream("orders", root).body_schema == before
    refused = orders("index", "register", "orders", "large", "--filter", LARGE)
    assert refused.status != 0 and "bodies of a declared schema" in refused.err
    assert orders("index", "register", "orders", "plain", "--filter", "region = 'EMEA'").status == 0


def test_columns_hold_no_values_of_bodies_of_a_schema(orders: Run, tmp_path: Path) -> None:
    refused = orders("columns", "declare", "orders", "region string, body.total double")
    assert refused.status != 0 and "body.total: the stream declares a schema of its bodies" in refused.err
    with pytest.raises(ConfigError, match=r"body\.total: the stream declares a schema of its bodies"):
        headgate.read("orders", columns="body.total double", root=tmp_path / "root")


def test_a_wrong_schema_is_refused(run: Run, tmp_path: Path) -> None:
    refused = run("stream", "create", "x", "--body-schema", "https://registry/subjects/x")
    assert refused.status != 0 and "--body-schema" in refused.err and "no registry is asked" in refused.err
    (tmp_path / "x.desc").write_bytes(descriptor_set())
    schema = ("--body-schema", f"{tmp_path / 'x.desc'}#{TYPE}")
    sourced = run("stream", "create", "x", *schema, "--filter-source", "body.region")
    assert sourced.status != 0
    assert "--filter-source: body.region: a path as filter source leads into JSON bodies" in sourced.err


def test_a_server_takes_the_schema_and_its_filters_decode_bodies(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "orders.desc"
    file.write_bytes(descriptor_set())
    with running_server(tmp_path, handlers={"stream": StreamHandler}) as running:

        def there(*arguments: object, stdin: str = "") -> Outcome:
            return run(*arguments, "--server", f"127.0.0.1:{running.ports['stream']}", stdin=stdin)

        create = ("stream", "create", "orders", "--body-schema", f"{file}#{TYPE}", "--max-age", "7d")
        assert there(*create).out == "orders\n"
        assert "there is a stream of this name" in there(*create).err
        wrong = there("stream", "create", "other", "--body-schema", f"{file}#{TYPE}", "--filter-source", "body.region")
        assert wrong.status != 0 and "a path as filter source" in wrong.err
        lines = [json.dumps({"body": {"data": {"hex": body.hex()}}}) for body in BODIES]
        assert there("publish", "orders", stdin="\n".join(lines) + "\n").status == 0
        assert there("tail", "orders", "--filter", LARGE, "--offsets").lines == ["0"]
        assert "the body is not protobuf shop.Order" in there("why", "orders", "--offset", "2", "--filter", LARGE).out
        info = there("stream", "info", "orders", "--json").json[0]
        assert (info["body_schema"], info["body_schema_bytes"]) == ("protobuf shop.Order", len(descriptor_set()))
        assert info["arguments"]["max-age"] == "604800s"
