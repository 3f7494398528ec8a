"""Typed headers, bodies in JSON with fastjson's liberties, and signatures."""

import contextlib
import json
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headgate.errors import RemoteProtocolError
from headgate.protocols.rocketmq.remoting import (
    Command,
    RemotingConnection,
    RequestCode,
    decode_body,
    encode_body,
    is_signed,
    read_header,
    read_send,
    sign,
)
from headgate.protocols.rocketmq.remoting import bodies as b
from headgate.protocols.rocketmq.remoting import headers as h

RECORDED = [json.loads(line) for line in (Path(__file__).parent / "frames.jsonl").read_text().splitlines()]
HEADERS = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: h.RouteRequest,
    RequestCode.PULL_MESSAGE: h.PullRequest,
    RequestCode.LITE_PULL_MESSAGE: h.PullRequest,
    RequestCode.QUERY_MESSAGE: h.QueryMessageRequest,
    RequestCode.QUERY_CONSUMER_OFFSET: h.QueryOffsetRequest,
    RequestCode.UPDATE_CONSUMER_OFFSET: h.UpdateOffsetRequest,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: h.SearchOffsetRequest,
    RequestCode.GET_MAX_OFFSET: h.QueueRequest,
    RequestCode.GET_MIN_OFFSET: h.QueueRequest,
    RequestCode.GET_EARLIEST_MSG_STORETIME: h.QueueRequest,
    RequestCode.UNREGISTER_CLIENT: h.UnregisterRequest,
    RequestCode.CONSUMER_SEND_MSG_BACK: h.SendBackRequest,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: h.GroupRequest,
}
BODIES = {
    RequestCode.HEART_BEAT: b.Heartbeat,
    RequestCode.CHECK_CLIENT_CONFIG: b.CheckClient,
    RequestCode.LOCK_BATCH_MQ: b.LockRequest,
    RequestCode.UNLOCK_BATCH_MQ: b.LockRequest,
}
SENDS = {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}


def requests() -> dict[int, Command]:
    commands = (RemotingConnection().receive(bytes.fromhex(each["frame"])) for each in RECORDED)
    return {command.code: command for (command,) in commands if not command.is_response}


def test_what_real_clients_ask_is_read():
    for code, command in requests().items():
        if code in HEADERS:
            assert read_header(command, HEADERS[code]).__struct_fields__
        elif code in BODIES:
            assert decode_body(command.body, BODIES[code]).__struct_fields__
        else:
            assert code in SENDS or code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    sent = read_send(requests()[RequestCode.SEND_MESSAGE_V2])
    assert (sent.producer_group, sent.topic, sent.queue_id, sent.default_topic) == ("Phrw", "hr-walk", 0, "TBW102")
    assert sent.properties.startswith("KEYS\x01key0\x02")
    assert read_send(requests()[RequestCode.SEND_BATCH_MESSAGE]).batch
    heartbeat = decode_body(requests()[RequestCode.HEART_BEAT].body, b.Heartbeat)
    assert heartbeat.consumer_data_set[0].group_name == "hrw-tag"


def test_the_old_request_to_send_has_whole_names():
    fields = {"producerGroup": "p", "topic": "t", "queueId": "1", "sysFlag": "0", "bornTimestamp": "5", "e": "7"}
    assert read_send(Command(code=RequestCode.SEND_MESSAGE, fields=fields)).queue_id == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"topic": "t"}, "queueId"),
        ({"topic": "t", "queueId": "x"}, "queueId"),
        ({"topic": "t", "queueId": "2147483648"}, "queueId"),
        ({"topic": "t", "queueId": "9" * 5000}, "queueId"),
    ],
)
def test_a_wrong_header_is_refused_and_named(fields, reason):
    with pytest.raises(RemoteProtocolError, match=reason):
        read_header(Command(code=30, fields=fields), h.QueueRequest)


def test_routes_are_written_in_standard_json_and_read_as_fastjson_writes_them():
    route = b.RouteData([b.BrokerData("c", "a", {"0": "localhost:10911"})], [b.QueueData("a", 4, 4)])
    assert json.loads(encode_body(route))["brokerDatas"][0]["brokerAddrs"] == {"0": "localhost:10911"}
    loose = (
        rb'{"brokerDatas":[{"brokerAddrs":{0:"localhost:10911",},brokerName:'
        rb"'a',cluster : "
        rb'"c"},],"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert decode_body(loose, b.RouteData) == route


def test_texts_that_look_like_keys_stay_as_they_are():
    body = rb'{clientID:"a{0:1,}b\",0:",producerDataSet:[{groupName:' + rb"""'it\'s "quoted"'""" + rb"},]}"
    heartbeat = decode_body(body, b.Heartbeat)
    assert heartbeat.client_id == 'a{0:1,}b",0:'
    assert heartbeat.producer_data_set[0].group_name == 'it\'s "quoted"'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 300_000,
        b'{"clientID":' * 100_000,
        b"'" * 200_000,
        b"0" * 200_000,
        # Looked at again from each quote, these would take minutes.
        b'"' + b'\\"' * 200_000,
        b"'" + b"\\'" * 200_000,
        b'"' + b'\\"' * 200_000 + b"\\",
        b"\xff",
        b'{"clientID":1}',
    ],
)
def test_a_wrong_body_is_refused(body):
    with pytest.raises(RemoteProtocolError, match="the body of the request"):
        decode_body(body, b.Heartbeat)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_body_or_refused(body):
    with contextlib.suppress(RemoteProtocolError):
        decode_body(b'{"clientID":"a",' + body, b.Heartbeat)


def test_a_signature_is_that_of_the_original_client():
    # What AclClientRPCHook makes of it: fields in the order of their names, then the body.
    command = Command(code=310, fields={"b": "topic", "a": "group"}, body=b"body")
    sign(command, "key", "secret")
    assert command.fields == {"a": "group", "b": "topic", "AccessKey": "key", "Signature": SIGNATURE}
    assert is_signed(command, ("other", "secret"))
    assert not is_signed(command, ("other",))
    command.fields["_UNIQUE_KEY_QUERY"] = "true"
    assert is_signed(command, ("secret",))
    command.fields["a"] = "another"
    assert not is_signed(command, ("secret",))


SIGNATURE = "nN2DmHYxOAU2pjsyrPsv7w4AUBg="
