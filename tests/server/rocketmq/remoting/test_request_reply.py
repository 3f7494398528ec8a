"""Requests and replies: who asked by a message is given the reply on its own connection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headgate.broker import KeyRights
from headgate.protocols.rocketmq.remoting import Command, RequestCode, ResponseCode
from headgate.server.rocketmq.remoting import RemotingHandler, request_reply
from server.remoting_client import RemotingClient
from server.running import RunningServer, running_server
from waiting import LIMIT_S, eventually

HANDLERS = {"rocketmq_classic": RemotingHandler}
TOPIC = "DefaultCluster_REPLY_TOPIC"
REPLY_TO = "CORRELATION_ID\x017\x02REPLY_TO_CLIENT\x01{}\x02"
NAMES = {"a": "producerGroup", "b": "topic", "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "i": "properties"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path, handlers=HANDLERS) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[RemotingClient]:
    with closing(RemotingClient(server)) as client:
        yield client


def is_there(client: RemotingClient, name: str) -> None:
    """A client says that it sends messages."""
    body = {"clientID": name, "producerDataSet": [{"groupName": "askers"}], "consumerDataSet": []}
    assert client.call(RequestCode.HEART_BEAT, body=body).code == ResponseCode.SUCCESS


def ask_to_reply(client: RemotingClient, name: str | None, body: bytes = b"yes", *, letters: bool = True) -> int:
    properties = "" if name is None else REPLY_TO.format(name)
    fields = {"a": "repliers", "b": TOPIC, "e": -1, "f": 1, "g": 5, "i": properties}
    if letters:
        return client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, fields, body)
    return client.ask(RequestCode.SEND_REPLY_MESSAGE, {NAMES[key]: value for key, value in fields.items()}, body)


def reply(client: RemotingClient, name: str | None, body: bytes = b"yes") -> Command:
    return client.answer(ask_to_reply(client, name, body))


@pytest.mark.parametrize("letters", [False, True])
def test_a_reply_is_answered_when_who_asked_has_taken_it(
    server: RunningServer, client: RemotingClient, letters: bool
) -> None:
    with closing(RemotingClient(server)) as asker:
        is_there(asker, "asker")
        number = ask_to_reply(client, "asker", letters=letters)
        pushed = asker.next_pushed()
        assert (pushed.code, bytes(pushed.body)) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"yes")  # type: ignore[arg-type]
        said = pushed.fields
        assert (said["topic"], said["producerGroup"], said["sysFlag"], said["bornTimestamp"]) == (
            *(TOPIC, "repliers", "1", "5"),
        )
        assert said["properties"] == REPLY_TO.format("asker") + f"PUSH_REPLY_TIME\x01{said['storeTimestamp']}\x02"
        assert said["bornHost"].startswith("127.0.0.1:") and said["storeHost"].endswith(
            f":{server.ports['rocketmq_classic']}"
        )
        assert not client.has_answer(number)
        asker.reply(pushed)
        answer = client.answer(number)
        assert (answer.code, answer.fields["msgId"], answer.fields["queueId"]) == (ResponseCode.SUCCESS, "0", "0")


def test_the_topic_of_replies_is_always_there(client: RemotingClient) -> None:
    route = client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
    assert json.loads(bytes(route.body))["queueDatas"][0]["writeQueueNums"] == 1  # type: ignore[arg-type]


def test_a_reply_that_nobody_takes_is_refused(server: RunningServer, client: RemotingClient) -> None:
    def remark(answer: Command) -> str | None:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        return answer.remark

    assert remark(reply(client, None)) == "reply message properties[REPLY_TO_CLIENT] is null"
    assert remark(reply(client, "nobody")) == "push reply message fail, channel of <nobody> not found."
    with closing(RemotingClient(server)) as asker:
        is_there(asker, "asker")
        number = ask_to_reply(client, "asker")
        asker.reply(asker.next_pushed(), code=ResponseCode.SYSTEM_ERROR)
        assert remark(client.answer(number)) == "push reply message to asker fail."
        number = ask_to_reply(client, "asker")
        asker.next_pushed()
    assert remark(client.answer(number)) == "push reply message to asker fail."
    assert server.context.requesters == {}


def test_a_reply_that_is_not_taken_in_time_is_refused(
    server: RunningServer, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_reply, "TAKEN_S", 0.02)
    with closing(RemotingClient(server)) as asker:
        is_there(asker, "asker")
        assert reply(client, "asker").code == ResponseCode.SYSTEM_ERROR
        asker.reply(asker.next_pushed())
        monkeypatch.undo()
        number = ask_to_reply(client, "asker")
        asker.reply(asker.next_pushed())
        assert client.answer(number).code == ResponseCode.SUCCESS, "what came too late answers nothing else"


def test_replies_do_not_pile_up_for_who_does_not_read(
    server: RunningServer, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_reply, "TAKEN_S", 10 * LIMIT_S)
    with closing(RemotingClient(server)) as asker:
        is_there(asker, "asker")
        body = bytes(4 << 20)
        numbers = [ask_to_reply(client, "asker", body) for _ in range(12)]
        assert client.answer(numbers[-1]).code == ResponseCode.SYSTEM_ERROR
    assert {client.answer(number).code for number in numbers[:-1]} == {ResponseCode.SYSTEM_ERROR}
    assert reply(client, "asker", bytes((4 << 20) + 1)).code == ResponseCode.MESSAGE_ILLEGAL


def test_replies_come_where_the_client_was_heard_of_last(server: RunningServer, client: RemotingClient) -> None:
    with closing(RemotingClient(server)) as second:
        with closing(RemotingClient(server)) as first:
            is_there(first, "asker")
            is_there(second, "asker")
        eventually(lambda: len(server.context.connections) == 2)
        number = ask_to_reply(client, "asker")
        second.reply(second.next_pushed())
        assert client.answer(number).code == ResponseCode.SUCCESS
        second.call(RequestCode.UNREGISTER_CLIENT, {"clientID": "asker", "producerGroup": "askers"})
        assert reply(client, "asker").code == ResponseCode.SYSTEM_ERROR


def test_who_replies_may_send_to_the_topic_of_replies(tmp_path: Path) -> None:
    with running_server(tmp_path, handlers=HANDLERS) as running:
        keys = running.context.broker.keys
        allowed = running.call(lambda: keys.add("allowed", KeyRights(send=f"^{TOPIC}$")))
        other = running.call(lambda: keys.add("other", KeyRights(send="^other$")))
        with closing(RemotingClient(running, key=("other", other.primary))) as client:
            is_there(client, "other")
            assert reply(client, "other").code == ResponseCode.NO_PERMISSION
        with closing(RemotingClient(running, key=("allowed", allowed.primary))) as client:
            assert reply(client, "nobody").code == ResponseCode.SYSTEM_ERROR
