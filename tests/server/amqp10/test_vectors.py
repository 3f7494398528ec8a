"""Every recorded case of RabbitMQ through the wire: messages published once, attached with each filter map."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.message import AmqpType, AmqpValue, Described, Message, amqp_value, decode_value, encode_value
from headgate.message.fields import FieldReference, Section
from headgate.message.typed_json import from_json
from headgate.protocols.amqp10.performatives import SETTLED
from headgate.protocols.amqp10.terminus import Accepted, RawEntry
from server.amqp10_client import Client, Management, client_of, rabbitmq_handler
from server.running import running_server

pytestmark = pytest.mark.slow

VECTORS = Path(__file__).parents[2] / "vectors"
FIRST = RawEntry.of("rabbitmq:stream-offset-spec", "rabbitmq:stream-offset-spec", amqp_value("first"))
FILTER_VALUE = FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-stream-filter-value")


def _cases(name: str) -> list[dict[str, Any]]:
    with (VECTORS / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        running_server(
            tmp_path_factory.mktemp("server"), handlers={"amqp": rabbitmq_handler}, filters={"dialect": "rabbitmq"}
        ) as server,
        client_of(server.ports["amqp"]) as client,
    ):
        management = Management(client)
        management.declare("messages")
        management.declare("chunks")
        messages = [bytes.fromhex(case["encoded_hex"]) for case in _cases("rabbitmq_messages")]
        outcomes = client.send(client.sender("/queues/messages"), *messages)
        assert outcomes == [Accepted()] * len(messages)
        _publish_chunks(client)
        yield client


def _publish_chunks(client: Client) -> None:
    """The messages of the Bloom cases, in the same chunks: the outcomes of one come before the next is sent."""
    rows = _cases("rabbitmq_bloom")
    link = client.sender("/queues/chunks")
    by_chunk: dict[int, list[bytes]] = {}
    for case in rows:
        if case["kind"] == "message":
            message = Message.decode(bytes.fromhex(case["encoded_hex"]))
            value = case["filter_value"]
            if value is not None:
                message = message.with_changes([(FILTER_VALUE, amqp_value(value))])
            by_chunk.setdefault(case["chunk"], []).append(message.encode())
    for messages in by_chunk.values():
        assert client.send(link, *messages) == [Accepted()] * len(messages)


def _entry(filter_: dict[str, Any]) -> RawEntry:
    name = filter_["name"]
    key = from_json(name) if isinstance(name, dict) else AmqpValue(AmqpType.SYMBOL, name)
    value = from_json(filter_["value"])
    if filter_.get("descriptor") is not None:
        value = AmqpValue(AmqpType.DESCRIBED, Described(from_json(filter_["descriptor"]), value))
    return RawEntry(encode_value(key), encode_value(value))


def _attach(client: Client, stream: str, entries: list[RawEntry]) -> tuple[list[RawEntry], list[int]]:
    """What is echoed beside the place to start, and the offsets that come."""
    link = client.receiver(f"/queues/{stream}", filters=(*entries,), snd_settle_mode=SETTLED)
    assert link.is_attached
    offsets = [received.offset for received in client.drain(link)]
    echoed = list(link.peer.source.filter)
    link.detach()
    return echoed, offsets


def test_sql_filters_give_what_they_gave_in_rabbitmq(client: Client) -> None:
    wrong = []
    cases = _cases("rabbitmq_sql")
    for case in cases:
        entry = RawEntry.of("sql-filter", "amqp:sql-filter", amqp_value(case["sql"]))
        echoed, offsets = _attach(client, "messages", [FIRST, entry])
        accepted = bool(case["accepted"])
        # Where the original failed while it evaluated there are no matches on record.
        expected = case.get("matches", offsets) if accepted else list(range(227))
        if (entry in echoed) is not accepted or offsets != expected:
            wrong.append(case["id"])
    assert len(cases) == 722
    failed = {case["id"] for case in cases if case["accepted"] is None}
    assert set(wrong) <= failed


def test_property_filters_give_what_they_gave_in_rabbitmq(client: Client) -> None:
    wrong = []
    cases = _cases("rabbitmq_properties")
    for case in cases:
        entries = [_entry(filter_) for filter_ in case["filters"]]
        echoed, offsets = _attach(client, "messages", [FIRST, *entries])
        if case["accepted"] is None:
            continue
        names = [decode_value(entry.name).value for entry in echoed if entry != FIRST]
        expected = case.get("matches", list(range(227)))
        if names != case["effective"] or offsets != expected:
            wrong.append((case["id"], names, offsets))
    assert len(cases) == 188
    assert wrong == []


def test_bloom_filters_and_offsets_give_what_they_gave_in_rabbitmq(client: Client) -> None:
    wrong = []
    refused = 0
    for case in _cases("rabbitmq_bloom"):
        # Chunks have the time at which the test wrote them.
        if case["kind"] != "case" or any(filter_["value"]["t"] == "timestamp" for filter_ in case["filters"]):
            continue
        entries = [_entry(filter_) for filter_ in case["filters"]]
        if case.get("error") == "attach-refused":
            link = client.receiver("/queues/chunks", filters=(*entries,))
            assert client.detached(link)[0] == case["condition"] == "amqp:precondition-failed"
            refused += 1
            continue
        echoed, offsets = _attach(client, "chunks", entries)
        if "error" in case:
            assert len(echoed) < len(entries)
            continue
        names = [decode_value(entry.name).value for entry in echoed]
        if names != case["effective"] or offsets != case["delivered"]:
            wrong.append((case["id"], names, offsets))
    assert refused > 2
    assert wrong == []
