"""RocketMQ's classic protocol on a running server: routes, producers, members, pulls, places, what comes again."""

import contextlib
import functools
import json
import socket
import ssl
from contextlib import closing

import pytest
import trustme

from headgate.broker import GroupSettings, KeyRights
from headgate.broker.consumer_groups import Received, ReceiveRequest
from headgate.protocols.rocketmq import first_place, host_bytes
from headgate.protocols.rocketmq.remoting import RequestCode, ResponseCode
from headgate.protocols.rocketmq.stored_messages import BatchedMessage
from headgate.server.rocketmq.message_ids import place_of_stream
from headgate.server.rocketmq.remoting import RemotingHandler
from headgate.server.rocketmq.remoting.group_members import share_of
from rocketmq_client import encode_batch, parse_message_id
from server.remoting_client import VERSION, RemotingClient, bodies, properties, stored
from server.running import RunningServer, running_server
from waiting import LIMIT_S, eventually

HANDLERS = {"rocketmq_names": RemotingHandler, "rocketmq_classic": RemotingHandler}
HOLD_MS = 20_000


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("remoting"), handlers=HANDLERS) as running:
        yield running


@pytest.fixture
def client(server):
    with closing(RemotingClient(server)) as opened:
        yield opened


@pytest.fixture
def topic(server, request):
    """A topic of one queue."""
    name = request.node.name.replace("[", "-").replace("]", "")[:100]
    server.call(server.context.broker.message_topics.create, name, 1)
    return name


@pytest.fixture
def other(server):
    with closing(RemotingClient(server)) as opened:
        yield opened


def place_of_first(server, topic):
    """The commit offset of the first message of a topic of one queue."""
    broker = server.context.broker
    return first_place(server.call(lambda: broker.queue_numbers.of(broker.catalogue.get(topic))), 0)


def committed(client, group, topic):
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "setZeroIfNotFound": False}
    answer = client.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return int(answer.fields["offset"]) if answer.code == ResponseCode.SUCCESS else answer.code


def commit(client, group, topic, offset):
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": offset}
    assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == ResponseCode.SUCCESS


def send_back(client, group, topic, offset, level=1, **more):
    fields = {"offset": first_place(0, 0) + offset, "group": group, "delayLevel": level, "originTopic": topic}
    return client.call(RequestCode.CONSUMER_SEND_MSG_BACK, {**fields, **more})


def given_again(client, number):
    """What a held pull of what comes again is given; one that is answered with nothing, as something came for another
    member, is made again, as clients do.
    """
    answer = client.answer(number)
    while not answer.body:
        answer = client.pull("group", "%RETRY%group", hold_ms=HOLD_MS)
    return answer


# routes


def test_topics_are_looked_up_and_made_by_their_first_message(server, client):
    with closing(RemotingClient(server, "rocketmq_names")) as names:
        unknown = names.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "made"})
        assert (unknown.code, unknown.body) == (ResponseCode.TOPIC_NOT_EXIST, b"")
        pattern = json.loads(names.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).body)
        assert pattern["queueDatas"][0]["readQueueNums"] == 4
        assert client.send("made", d=2, e=1).fields["queueId"] == "1"
        route = json.loads(names.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "made"}).body)
        assert route["queueDatas"] == [
            {"brokerName": "headgate", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicSysFlag": 0}
        ]
        address = route["brokerDatas"][0]["brokerAddrs"]["0"]
        assert address == f"127.0.0.1:{server.ports['rocketmq_classic']}"


def test_a_retry_topic_is_there_before_the_first_heartbeat(client):
    route = client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%anybody"})
    assert json.loads(route.body)["queueDatas"][0]["readQueueNums"] == 1


def test_unknown_requests_are_answered_with_a_code_and_transactions_refused(client, topic):
    unknown = client.call(9_999)
    assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert unknown.remark == " request type 9999 not supported"
    assert "`headgate rocketmq topic ls`" in client.call(206).remark
    assert client.send(topic, properties="TRAN_MSG\x01true\x02").code == ResponseCode.NO_PERMISSION
    assert client.call(RequestCode.GET_MAX_OFFSET, {"topic": topic}).code == ResponseCode.SYSTEM_ERROR
    assert client.call(RequestCode.HEART_BEAT, body=b"{").code == ResponseCode.SYSTEM_ERROR


# producers


def test_messages_are_stored_and_their_places_answered(server, client, topic):
    first = client.send(topic, b"one", properties="UNIQ_KEY\x01AB\x02TAGS\x01A\x02")
    assert first.code == ResponseCode.SUCCESS
    assert (first.fields["queueOffset"], first.fields["transactionId"]) == ("0", "AB")
    client.tell(RequestCode.SEND_MESSAGE_V2, {"a": "p", "b": topic, "e": 0, "f": 0, "g": 5}, b"two")
    batch = encode_batch([BatchedMessage(0, body, b"KEYS\x01k\x02") for body in (b"three", b"four")])
    fields = {"a": "p", "b": topic, "e": 0, "f": 0, "g": 5, "m": True}
    many = client.call(RequestCode.SEND_BATCH_MESSAGE, fields, batch)
    assert many.fields["queueOffset"] == "2"
    place = place_of_first(server, topic)
    assert [int(each[-16:], 16) for each in many.fields["msgId"].split(",")] == [place + 2, place + 3]
    client.heartbeat("readers", topic)
    answer = client.pull("readers", topic)
    assert bodies(answer) == [b"one", b"two", b"three", b"four"]
    assert properties(stored(answer)[0])["TAGS"] == "A"
    assert [message.commit_offset - place for message in stored(answer)] == [0, 1, 2, 3]


def test_what_cannot_be_stored_is_refused_with_the_originals_codes(client, topic):
    large = client.send(topic, bytes((4 << 20) + 1))
    assert large.code == ResponseCode.MESSAGE_ILLEGAL
    assert large.remark.startswith("the message is illegal, maybe msg body or properties length not matched.")
    assert client.send(topic, properties="a\x01" + 33_000 * "b" + "\x02").code == ResponseCode.MESSAGE_ILLEGAL
    assert client.send(topic, queue=1).code == ResponseCode.INVALID_PARAMETER
    assert client.send("no such name!").code == ResponseCode.INVALID_PARAMETER
    assert client.send(topic, properties="TIMER_DELAY_SEC\x01x\x02").code == ResponseCode.INVALID_PARAMETER
    fields = {"a": "p", "b": topic, "e": 0, "f": 0, "g": 5, "m": True}
    assert client.call(RequestCode.SEND_BATCH_MESSAGE, fields, b"\0\0\0\x40").code == ResponseCode.MESSAGE_ILLEGAL


def test_a_message_for_later_is_recalled_by_its_handle(client, topic):
    sent = client.send(topic, properties="DELAY\x0118\x02")
    fields = {"topic": topic, "recallHandle": sent.fields["recallHandle"]}
    assert client.call(RequestCode.RECALL_MESSAGE, fields).code == ResponseCode.SUCCESS
    assert client.call(RequestCode.RECALL_MESSAGE, fields).code == ResponseCode.TOPIC_NOT_EXIST
    wrong = client.call(RequestCode.RECALL_MESSAGE, {**fields, "recallHandle": "x"})
    assert wrong.code == ResponseCode.INVALID_PARAMETER


# members


def test_members_are_listed_and_told_of_each_other(client, other, topic):
    assert client.heartbeat("crew", topic).fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    assert client.next_pushed().fields == {"consumerGroup": "crew"}
    other.heartbeat("crew", topic, client="two")
    assert client.next_pushed().code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    members = client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "crew"})
    assert json.loads(members.body) == {"consumerIdList": ["one", "two"]}
    other.close()
    client.next_pushed()
    client.call(RequestCode.UNREGISTER_CLIENT, {"clientID": "one", "consumerGroup": "crew"})
    nobody = client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "crew"})
    assert nobody.code == ResponseCode.SYSTEM_ERROR


def test_a_member_that_came_back_stays_when_its_old_connection_ends(server, client, topic):
    client.send(topic, b"first")
    with closing(RemotingClient(server)) as old:
        old.heartbeat("back", topic)
        connections = len(server.context.connections)
        client.heartbeat("back", topic)
    eventually(lambda: len(server.context.connections) < connections)
    assert bodies(client.pull("back", topic)) == [b"first"]


def test_a_queue_is_locked_for_one_member(client, other, topic):
    client.heartbeat("orderly", topic)
    other.heartbeat("orderly", topic, client="two")
    queue = {"topic": topic, "brokerName": "headgate", "queueId": 0}
    body = {"consumerGroup": "orderly", "clientId": "one", "mqSet": [queue, {**queue, "queueId": 7}]}
    assert json.loads(client.call(RequestCode.LOCK_BATCH_MQ, body=body).body) == {"lockOKMQSet": [queue]}
    theirs = {**body, "clientId": "two"}
    assert json.loads(other.call(RequestCode.LOCK_BATCH_MQ, body=theirs).body) == {"lockOKMQSet": []}
    client.call(RequestCode.UNLOCK_BATCH_MQ, body=body)
    assert json.loads(other.call(RequestCode.LOCK_BATCH_MQ, body=theirs).body) == {"lockOKMQSet": [queue]}


def test_an_illegal_expression_is_refused_with_the_reason(client, topic):
    subscription = {"topic": topic, "subString": "a =", "expressionType": "SQL92"}
    refused = client.call(RequestCode.CHECK_CLIENT_CONFIG, body={"group": "g", "subscriptionData": subscription})
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "expected a value" in refused.remark
    good = {**subscription, "subString": "a = 1"}
    assert client.call(RequestCode.CHECK_CLIENT_CONFIG, body={"subscriptionData": good}).code == ResponseCode.SUCCESS
    own = client.pull("pullers", topic, sysFlag=4, subscription="a =", expressionType="SQL92")
    assert own.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    client.heartbeat("wrong", topic, "a =", kind="SQL92")
    assert client.pull("wrong", topic).code == ResponseCode.FILTER_DATA_NOT_EXIST


# pulls


def test_filters_leave_messages_out_and_the_answer_says_how_far_it_came(client, topic):
    for tag in ("A", "B", "A", "C"):
        client.send(topic, tag.encode(), properties=f"TAGS\x01{tag}\x02n\x013\x02")
    client.heartbeat("tags", topic, "A || B")
    found = client.pull("tags", topic)
    assert (bodies(found), found.fields["nextBeginOffset"]) == ([b"A", b"B", b"A"], "4")
    none = client.pull("tags", topic, 3)
    assert (none.code, none.fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "4")
    end = client.pull("tags", topic, 4)
    assert (end.code, end.fields["maxOffset"]) == (ResponseCode.PULL_NOT_FOUND, "4")
    own = client.pull("lite", topic, sysFlag=20, subscription="n > 2 AND TAGS <> 'B'", expressionType="SQL92")
    assert bodies(own) == [b"A", b"A", b"C"]
    again = client.pull("lite", topic, 1, sysFlag=20, subscription="n > 2 AND TAGS <> 'B'", expressionType="SQL92")
    assert bodies(again) == [b"A", b"C"]
    moved = client.pull("tags", topic, 9)
    assert (moved.code, moved.fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "4")


def make_again(server, topic):
    """Delete a topic, and make another one of its name."""
    topics = server.context.broker.message_topics
    server.call(topics.delete, topic)
    server.call(topics.create, topic, 1)


@pytest.mark.parametrize("count", [2, 6])
def test_a_member_begins_anew_where_its_topic_was_made_again(server, client, other, topic, count):
    for _ in range(4):
        client.send(topic, b"old")
    client.heartbeat("anew", topic)
    assert len(bodies(client.pull("anew", topic))) == 4
    commit(client, "anew", topic, 3)
    held = client.ask_pull("anew", topic, 4, hold_ms=HOLD_MS)
    make_again(server, topic)
    for number in range(count):
        other.send(topic, b"%d" % number)
    assert client.answer(held).fields["nextBeginOffset"] == "4"
    # Its offsets are those of the deleted one: they say nothing of this one.
    commit(client, "anew", topic, 4)
    moved = client.pull("anew", topic, 4, sysFlag=1, commitOffset=4)
    assert (moved.code, moved.fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
    commit(client, "anew", topic, 4)
    assert committed(client, "anew", topic) == ResponseCode.QUERY_NOT_FOUND
    assert bodies(client.pull("anew", topic)) == [b"%d" % number for number in range(count)]
    commit(client, "anew", topic, 1)
    assert committed(client, "anew", topic) == 1


def test_a_member_behind_the_end_of_a_queue_that_is_new_to_its_group_begins_where_the_group_does(client, topic):
    client.send(topic, b"first")
    client.heartbeat("behind", topic)
    moved = client.pull("behind", topic, 9)
    assert (moved.code, moved.fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")


def test_what_pulls_cost_and_give_is_counted_for_their_group(server, topic):
    def counted():
        view = server.context.broker.consumer_groups.views.find_view(topic, "counted")
        read, counters = view.scan_counters, view.counters
        return read.messages_decided, read.messages_matched, read.cpu_ns > 0, counters.delivered, counters.filtered

    for starts_at in 0, 3:
        with closing(RemotingClient(server)) as client:
            for tag in "AAB" if starts_at == 0 else "B":
                client.send(topic, tag.encode(), properties=f"TAGS\x01{tag}\x02")
            client.heartbeat("counted", topic, "TAGS = 'A'", kind="SQL92", client=f"from {starts_at}")
            client.pull("counted", topic, starts_at)
            assert server.call(counted) == ((3, 2, True, 2, 1) if starts_at == 0 else (4, 2, True, 2, 2))


def test_a_held_pull_is_woken_by_messages_that_its_filter_lets_through(client, other, topic):
    client.heartbeat("held", topic, "A")
    held = client.ask_pull("held", topic, hold_ms=HOLD_MS)
    other.send(topic, b"other", properties="TAGS\x01B\x02")
    assert not client.has_answer(held)
    other.send(topic, b"mine", properties="TAGS\x01A\x02")
    answer = client.answer(held)
    assert (bodies(answer), answer.fields["nextBeginOffset"]) == ([b"mine"], "2")
    short = client.pull("held", topic, 2, hold_ms=1)
    assert short.code == ResponseCode.PULL_NOT_FOUND


def test_a_held_pull_is_answered_when_its_group_asks_for_something_else(client, other, topic):
    client.heartbeat("changing", topic, "A")
    held = client.ask_pull("changing", topic, hold_ms=HOLD_MS)
    other.send(topic, b"b", properties="TAGS\x01B\x02")
    client.heartbeat("changing", topic, "B", version=VERSION + 1)
    answer = client.answer(held)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "1")


def test_what_was_read_ahead_and_forgotten_is_read_again(server, client, topic):
    batch = encode_batch([BatchedMessage(0, b"%d" % number, b"TAGS\x01A\x02") for number in range(700)])
    client.call(RequestCode.SEND_BATCH_MESSAGE, {"a": "p", "b": topic, "e": 0, "f": 0, "g": 5, "m": True}, batch)
    client.heartbeat("slow", topic, "A")
    found = bodies(client.pull("slow", topic))
    assert found == [b"%d" % number for number in range(32)]

    def forget():
        for consumer in server.context.broker.consumers._members:
            consumer.drop_unused(2**62)

    while len(found) < 700:
        server.call(forget)
        more = bodies(client.pull("slow", topic, len(found), hold_ms=HOLD_MS))
        assert more
        found += more
    assert found == [b"%d" % number for number in range(700)]


def test_where_memory_is_short_nothing_is_read_ahead(server, client, topic, monkeypatch):
    batch = encode_batch([BatchedMessage(0, b"%d" % number, b"TAGS\x01A\x02") for number in range(1500)])
    client.call(RequestCode.SEND_BATCH_MESSAGE, {"a": "p", "b": topic, "e": 0, "f": 0, "g": 5, "m": True}, batch)
    client.heartbeat("short", topic, "A")
    found = bodies(client.pull("short", topic))
    monkeypatch.setattr("headgate.broker.consumers.PENDING_BYTES", -1)

    def wanted():
        return [each.wanted for each in server.context.broker.consumers._members if each.options.name == "short"]

    eventually(lambda: server.call(wanted) == [0])
    while len(found) < 1500:
        more = bodies(client.pull("short", topic, len(found), hold_ms=HOLD_MS))
        assert more
        assert server.call(wanted) == [0]
        found += more
    assert found == [b"%d" % number for number in range(1500)]


def test_a_pull_that_is_newer_than_the_heartbeat_waits_for_it(client, topic):
    client.send(topic, b"b", properties="TAGS\x01B\x02")
    client.heartbeat("newer", topic, "A")
    newer = client.ask_pull("newer", topic, hold_ms=HOLD_MS, subVersion=VERSION + 1)
    assert not client.has_answer(newer)
    client.heartbeat("newer", topic, "B", version=VERSION + 1)
    assert bodies(client.answer(newer)) == [b"b"]
    stale = client.pull("newer", topic, hold_ms=1, subVersion=VERSION + 2)
    assert (stale.code, stale.remark) == (
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        "the consumer's subscription not latest",
    )


def test_a_pull_that_is_newer_than_the_heartbeat_asks_the_client(client, topic):
    client.send(topic, b"b", properties="TAGS\x01B\x02")
    client.heartbeat("asked", topic, "A")
    client.next_pushed()
    newer = client.ask_pull("asked", topic, hold_ms=HOLD_MS, subVersion=VERSION + 1)
    asked = client.next_pushed()
    assert (asked.code, asked.fields["clientId"]) == (RequestCode.GET_CONSUMER_RUNNING_INFO, "one")
    # As fastjson writes a map whose keys are objects.
    client.reply(
        asked,
        b'{"jstack":null,"mqTable":{{"brokerName":"headgate","queueId":0,"topic":"t"}:{"commitOffset":0}},'
        b'"subscriptionSet":[{"topic":"%b","subString":"B","expressionType":"TAG","subVersion":%d}],"statusTable":{}}'
        % (topic.encode(), VERSION + 1),
    )
    assert bodies(client.answer(newer)) == [b"b"]


def test_groups_and_topics_that_are_not_there_have_their_codes(server, client, topic):
    assert client.pull("nobody", topic).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    client.heartbeat("somebody", topic)
    assert client.pull("somebody", "no-topic").code == ResponseCode.TOPIC_NOT_EXIST
    assert client.pull("somebody", topic, queue=5).code == ResponseCode.INVALID_PARAMETER


# places


def test_places_are_kept_and_never_go_back(client, topic):
    for number in range(4):
        client.send(topic, b"%d" % number)
    client.heartbeat("placed", topic)
    assert committed(client, "placed", topic) == ResponseCode.QUERY_NOT_FOUND
    query = {"consumerGroup": "placed", "topic": topic, "queueId": 0}
    assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, query).fields["offset"] == "0"
    client.pull("placed", topic, 1)
    assert committed(client, "placed", topic) == 1
    commit(client, "placed", topic, 3)
    assert committed(client, "placed", topic) == 3
    commit(client, "placed", topic, 2)
    assert committed(client, "placed", topic) == 3
    client.pull("placed", topic, 4, sysFlag=1, commitOffset=4)
    assert committed(client, "placed", topic) == 4


def test_who_is_no_member_is_told_that_a_group_is_not_set_back(client, other, topic):
    for number in range(4):
        client.send(topic, b"%d" % number)
    client.heartbeat("ahead", topic)
    commit(client, "ahead", topic, 3)
    fields = {"consumerGroup": "ahead", "topic": topic, "queueId": 0, "commitOffset": 1}
    refused = other.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    assert refused.code == ResponseCode.INVALID_PARAMETER and "headgate rocketmq group reset" in refused.remark
    commit(other, "ahead", topic, 4)
    assert committed(client, "ahead", topic) == 4


def test_an_empty_queue_has_no_place_and_what_is_committed_without_an_answer_counts_at_once(client, topic):
    client.heartbeat("early", topic)
    query = {"consumerGroup": "early", "topic": topic, "queueId": 0}
    client.pull("early", topic)
    assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, query).code == ResponseCode.QUERY_NOT_FOUND
    client.send(topic)
    assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, query).fields["offset"] == "0"
    client.tell(RequestCode.UPDATE_CONSUMER_OFFSET, {**query, "commitOffset": 1})
    assert committed(client, "early", topic) == 1


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize(("queues", "members"), [(4, 1), (4, 2), (5, 3), (8, 3), (2, 4), (0, 2)])
def test_queues_are_divided_among_all_members(queues, members, in_turn):
    names = [f"m{number}" for number in range(members)]
    shares = [list(share_of(queues, names, name, in_turn=in_turn)) for name in names]
    assert sorted(number for share in shares for number in share) == list(range(queues))
    sizes = [len(share) for share in shares]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1
    assert in_turn or all(share == list(range(share[0], share[-1] + 1)) for share in shares if share)
    assert not share_of(queues, names, "nobody", in_turn=in_turn)


def test_a_member_is_told_which_queues_it_has(client, other, topic):
    client.send("divided", d=3)
    client.heartbeat("dividing", "divided", client="one")
    other.heartbeat("dividing", "divided", client="two")

    def told(member, *, of="divided", model="CLUSTERING"):
        asked = {"topic": of, "consumerGroup": "dividing", "clientId": member, "strategyName": "AVG"}
        answer = client.call(RequestCode.QUERY_ASSIGNMENT, body={**asked, "messageModel": model})
        found = json.loads(answer.body)["messageQueueAssignments"]
        assert all(each["mode"] == "PULL" and each["messageQueue"]["brokerName"] == "headgate" for each in found)
        return [each["messageQueue"]["queueId"] for each in found]

    assert [told("one"), told("two"), told("three")] == [[0, 1], [2], []]
    assert told("three", model="BROADCASTING") == [0, 1, 2]
    assert told("one", of="%RETRY%dividing") == [0] and told("one", of="not-there") == []


def test_offsets_are_found_by_time(client, topic):
    client.send(topic)
    queue = {"topic": topic, "queueId": 0}
    assert client.call(RequestCode.GET_MIN_OFFSET, queue).fields["offset"] == "0"
    assert client.call(RequestCode.GET_MAX_OFFSET, queue).fields["offset"] == "1"
    time_ms = int(client.call(RequestCode.GET_EARLIEST_MSG_STORETIME, queue).fields["timestamp"])

    def at(timestamp, boundary="LOWER"):
        fields = {**queue, "timestamp": timestamp, "boundaryType": boundary}
        return client.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields).fields["offset"]

    assert [at(time_ms), at(time_ms + 1), at(time_ms + 1, "UPPER"), at(0, "UPPER")] == ["0", "1", "0", "0"]


def test_broadcasting_members_keep_their_places_themselves(client, topic):
    client.send(topic, b"for all")
    client.heartbeat("all", topic, model="BROADCASTING")
    assert bodies(client.pull("all", topic, sysFlag=1, commitOffset=1)) == [b"for all"]
    assert committed(client, "all", topic) == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    ("settings", "model", "reason"),
    [
        (GroupSettings(enabled=False), "CLUSTERING", "subscription group no permission"),
        (GroupSettings(broadcast=False), "BROADCASTING", "can not consume by broadcast way"),
    ],
)
def test_members_whose_group_says_so_are_given_nothing(server, client, topic, settings, model, reason):
    client.send(topic, b"for nobody")
    client.heartbeat("strict", topic, model=model)
    server.call(server.context.broker.consumer_groups.declare, "strict", settings)
    refused = client.pull("strict", topic)
    assert refused.code == ResponseCode.NO_PERMISSION and reason in refused.remark
    server.call(server.context.broker.consumer_groups.declare, "strict", GroupSettings())
    assert bodies(client.pull("strict", topic)) == [b"for nobody"]


# what could not be consumed


def test_what_is_sent_back_comes_again_once_and_ends_as_a_dead_letter(server, client, topic):
    client.send(topic, b"hard", properties="UNIQ_KEY\x01AB\x02")
    client.heartbeat("trying", topic)
    client.pull("trying", topic)
    assert send_back(client, "trying", topic, 0).code == ResponseCode.SUCCESS
    assert send_back(client, "trying", topic, 0).code == ResponseCode.SUCCESS
    commit(client, "trying", topic, 1)
    # It is another member's, or another queue's, until it comes again.
    assert client.pull("trying", topic, 0).code == ResponseCode.PULL_RETRY_IMMEDIATELY
    retry = "%RETRY%trying"
    query = {"consumerGroup": "trying", "topic": retry, "queueId": 0}
    start = int(client.call(RequestCode.QUERY_CONSUMER_OFFSET, query).fields["offset"])
    answer = client.pull("trying", retry, start, hold_ms=HOLD_MS)
    (again,) = stored(answer)
    assert (again.body, again.topic, again.queue, again.offset, again.reconsume_times) == (b"hard", retry, 0, start, 1)
    assert again.commit_offset == place_of_first(server, topic)
    assert properties(again)["RETRY_TOPIC"] == topic
    # Who takes the queue over begins where nothing is settled, and is given the same.
    assert [each.offset for each in stored(client.pull("trying", retry, start, hold_ms=HOLD_MS))] == [start]
    assert send_back(client, "trying", topic, 0, maxReconsumeTimes=1).code == ResponseCode.SUCCESS
    broker = server.context.broker
    eventually(lambda: server.call(broker.catalogue.find, "%DLQ%trying") is not None)
    client.heartbeat("undertakers", "%DLQ%trying")
    dead = client.pull("undertakers", "%DLQ%trying", hold_ms=HOLD_MS)
    (letter,) = stored(dead)
    assert (letter.body, letter.reconsume_times) == (b"hard", 2)
    said = properties(letter)
    place = said["ORIGIN_MESSAGE_ID"]
    assert parse_message_id(place)[0] == host_bytes("127.0.0.1", server.ports["rocketmq_classic"])
    assert {name: said[name] for name in ("RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "WAIT", "DELAY", "UNIQ_KEY")} == {
        "RETRY_TOPIC": topic,
        "ORIGIN_MESSAGE_ID": place,
        "WAIT": "false",
        "DELAY": "0",
        "UNIQ_KEY": "AB",
    }
    viewed = client.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": parse_message_id(place)[1]})
    assert bodies(viewed) == [b"hard"]


def test_a_message_that_came_again_is_consumed_by_committing_its_number(server, client, topic):
    client.send(topic, b"hard")
    client.heartbeat("again", topic)
    client.pull("again", topic)
    send_back(client, "again", topic, 0)
    (again,) = stored(client.pull("again", "%RETRY%again", hold_ms=HOLD_MS))
    commit(client, "again", "%RETRY%again", again.offset + 1)
    view = server.call(server.context.broker.consumer_groups.view, topic, "again")
    assert server.call(view.counts).lag == 1
    commit(client, "again", topic, 1)
    assert server.call(view.counts).lag == 0


def test_members_of_both_protocols_are_given_what_the_others_could_not_consume(server, client, topic):
    groups = server.context.broker.consumer_groups
    got: list[Received] = []

    def receive(takes):
        request = ReceiveRequest("mixed", [topic], None, None, 10, 200, got.append)
        return server.call(takes, request)

    client.send(topic, b"sent back")
    client.heartbeat("mixed", topic)
    assert bodies(client.pull("mixed", topic)) == [b"sent back"]
    waiting = receive(groups.receive)
    send_back(client, "mixed", topic, 0)
    # It is the only message, fresh ones are the member's that reads the queue; this one comes again for anybody.
    eventually(lambda: bool(got))
    (message,) = got[0].messages
    assert (message.message.endswith(b"sent back"), message.attempt) == (True, 2)
    assert waiting.is_done
    # The other one does not settle it in time: the member that pulls is given it.
    (again,) = stored(client.pull("mixed", "%RETRY%mixed", hold_ms=HOLD_MS))
    assert (again.body, again.reconsume_times) == (b"sent back", 2)


def test_members_of_both_protocols_keep_the_order_of_message_groups(server, client, topic):
    groups = server.context.broker.consumer_groups
    server.call(groups.declare, "ordered", GroupSettings(fifo=True))
    got: list[Received] = []

    def receive(count):
        server.call(groups.receive, ReceiveRequest("ordered", [topic], None, None, count, 60_000, got.append))
        return lambda: [each.message[-2:] for answer in got for each in answer.messages]

    for number, key in enumerate("aab"):
        client.send(topic, b"%b%d" % (key.encode(), number), properties=f"__SHARDINGKEY\x01{key}\x02")
    client.heartbeat("ordered", topic)
    # The member that reads for itself gets all; what it could not consume holds up its message group for others.
    assert bodies(client.pull("ordered", topic)) == [b"a0", b"a1", b"b2"]
    send_back(client, "ordered", topic, 1)
    send_back(client, "ordered", topic, 0)
    commit(client, "ordered", topic, 3)
    found = receive(1)
    eventually(lambda: found() == [b"a0"])
    waits = receive(5)
    answer = client.pull("ordered", "%RETRY%ordered", 0)
    assert not bodies(answer), "a1 comes behind a0, to whoever asks"
    (first,) = got[0].messages
    settled: list[object] = []
    view = server.call(groups.view, topic, "ordered")
    server.call(view.complete, [first.token], settled.append)
    eventually(lambda: waits() == [b"a0", b"a1"])
    assert settled == [[True]]


def test_a_message_sent_to_the_retry_topic_is_a_dead_letter_after_too_many_times(client, topic):
    client.heartbeat("sends", topic)
    kept = client.send("%RETRY%sends", j=1, l=5)
    assert kept.code == ResponseCode.NO_PERMISSION
    assert client.send("%RETRY%sends", b"given up", j=6, l=5).code == ResponseCode.SUCCESS
    client.heartbeat("undertakers", "%DLQ%sends")
    assert bodies(client.pull("undertakers", "%DLQ%sends", hold_ms=HOLD_MS)) == [b"given up"]


# queries


def test_messages_are_found_by_place_and_by_key(server, client, topic):
    sent = client.send(topic, b"wanted", properties="UNIQ_KEY\x01ID1\x02KEYS\x01red blue\x02")
    client.send(topic, b"other", properties="KEYS\x01reddish\x02")
    # An id of the server names the topic, too; one that a client makes of a commit offset does not.
    for place in (
        {"offset": int(sent.fields["msgId"][-16:], 16)},
        {"offset": first_place(0, 0), "topic": topic},
    ):
        assert bodies(client.call(RequestCode.VIEW_MESSAGE_BY_ID, place)) == [b"wanted"]
        missing = client.call(RequestCode.VIEW_MESSAGE_BY_ID, {**place, "offset": place["offset"] + 77})
        assert missing.code == ResponseCode.SYSTEM_ERROR
    nameless = client.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": first_place(0, 0)})
    assert "without its topic" in nameless.remark
    query = {"topic": topic, "key": "red", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 2**62}
    assert bodies(client.call(RequestCode.QUERY_MESSAGE, query)) == [b"wanted"]
    by_id = client.call(RequestCode.QUERY_MESSAGE, {**query, "key": "ID1", "_UNIQUE_KEY_QUERY": True})
    assert bodies(by_id) == [b"wanted"]
    make_again(server, topic)
    client.send(topic, b"another")
    gone = client.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": int(sent.fields["msgId"][-16:], 16)})
    assert "its queue is not there" in gone.remark
    assert client.call(RequestCode.QUERY_MESSAGE, {**query, "key": "it's"}).code == ResponseCode.QUERY_NOT_FOUND


# restarts and keys


@pytest.mark.parametrize("listener", HANDLERS)
def test_clients_with_tls_and_without_it_are_served_at_one_port(tmp_path, listener):
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    tls = {"certificate": str(tmp_path / "server.pem"), "key": str(tmp_path / "server.pem")}
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with running_server(tmp_path, handlers=HANDLERS, tls=tls, timeouts={"handshake_s": 2}) as running:
        running.call(running.context.broker.message_topics.create, "orders", 1)
        with (
            closing(RemotingClient(running, listener)) as plain,
            closing(RemotingClient(running, listener, tls=trusting)) as encrypted,
        ):
            assert encrypted.send("orders", b"x" * 200_000).code == ResponseCode.SUCCESS
            encrypted.heartbeat("g", "orders")
            assert bodies(encrypted.pull("g", "orders")) == [b"x" * 200_000]
            assert plain.send("orders", b"plain").code == ResponseCode.SUCCESS
            shown = running.call(lambda: [each.peer.is_encrypted for each in running.context.connections])
            assert sorted(shown) == [False, True]
            with socket.create_connection(("127.0.0.1", running.ports[listener])) as broken:
                broken.settimeout(LIMIT_S)
                broken.sendall(b"\x16no handshake")
                assert broken.recv(100)[:1] in (b"", b"\x15"), "an alert, or the end"


def test_places_and_what_was_sent_back_survive_a_restart(tmp_path):
    def started() -> RunningServer:
        return running_server(tmp_path, handlers=HANDLERS)

    with started() as first, closing(RemotingClient(first)) as client:
        first.call(first.context.broker.message_topics.create, "kept", 1)
        for number in range(3):
            client.send("kept", b"%d" % number)
        client.heartbeat("group", "kept")
        client.pull("group", "kept")
        send_back(client, "group", "kept", 1)
        commit(client, "group", "kept", 2)
    with started() as second, closing(RemotingClient(second)) as client:
        client.heartbeat("group", "kept")
        assert committed(client, "group", "kept") == 2
        assert bodies(client.pull("group", "kept", 2)) == [b"2"]
        # The client goes on with the number that it knows.
        assert bodies(client.pull("group", "%RETRY%group", 5, hold_ms=HOLD_MS)) == [b"1"]


def test_requests_are_signed_where_there_are_keys(tmp_path):
    with running_server(tmp_path, handlers=HANDLERS) as running:
        broker = running.context.broker
        for name in "mine", "other":
            running.call(broker.message_topics.create, name, 1)
        rights = KeyRights(send="^mine$", listen="^mine$")
        key = running.call(lambda: broker.keys.add("app", rights))
        with closing(RemotingClient(running)) as stranger:
            refused = stranger.send("mine")
            assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, "the request has no AccessKey")
        with closing(RemotingClient(running, key=("app", "wrong"))) as liar:
            assert liar.send("mine").code == ResponseCode.NO_PERMISSION
        for secret in (key.primary, key.secondary):
            with closing(RemotingClient(running, key=("app", secret))) as client:
                assert client.send("mine", b"x").code == ResponseCode.SUCCESS
                assert client.send("other").code == ResponseCode.NO_PERMISSION
                client.heartbeat("group", "mine")
                assert client.pull("group", "mine").code == ResponseCode.SUCCESS
                queue = {"consumerGroup": "group", "topic": "other", "queueId": 0, "commitOffset": 1, "timestamp": 0}
                for code in (
                    RequestCode.PULL_MESSAGE,
                    RequestCode.QUERY_CONSUMER_OFFSET,
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    RequestCode.GET_MAX_OFFSET,
                    RequestCode.GET_MIN_OFFSET,
                    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                    RequestCode.GET_EARLIEST_MSG_STORETIME,
                ):
                    pulled = {"queueOffset": 0, "maxMsgNums": 1, "sysFlag": 0}
                    assert client.call(code, queue | pulled).code == ResponseCode.NO_PERMISSION
                queues = [{"topic": name, "brokerName": "headgate", "queueId": 0} for name in ("mine", "other")]
                locks = {"consumerGroup": "group", "clientId": "one", "mqSet": queues}
                locked = client.call(RequestCode.LOCK_BATCH_MQ, body=locks)
                assert json.loads(locked.body) == {"lockOKMQSet": queues[:1]}
                numbered = running.call(lambda: place_of_stream(broker, "other"))
                for offset in numbered, 0:
                    assert client.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset, "topic": "other"}).code == (
                        ResponseCode.NO_PERMISSION
                    )
                    back = {"offset": offset, "group": "group", "delayLevel": 0, "originTopic": "other"}
                    assert client.call(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == ResponseCode.NO_PERMISSION
        assert running.context.connections.totals.logins_failed == 2


def test_members_with_rights_of_their_own_are_given_again_and_settle_only_what_they_read(tmp_path):
    with running_server(tmp_path, handlers=HANDLERS) as running, contextlib.ExitStack() as stack:
        broker = running.context.broker
        clients = {}
        for name in "mine", "other":
            running.call(broker.message_topics.create, name, 1)
            rights = KeyRights(send=f"^{name}$", listen=f"^{name}$")
            key = running.call(functools.partial(broker.keys.add, f"app_{name}", rights))
            clients[name] = stack.enter_context(closing(RemotingClient(running, key=(f"app_{name}", key.primary))))
        for name, client in clients.items():
            client.send(name, name.encode())
            client.heartbeat("group", name, client=name)
            assert bodies(client.pull("group", name)) == [name.encode()]
            assert send_back(client, "group", name, 0).code == ResponseCode.SUCCESS
        mine, other = clients.values()
        # Who asks first asks for its own only, and who asks second is not made to wait for it.
        number = mine.ask_pull("group", "%RETRY%group", hold_ms=HOLD_MS)
        again = given_again(other, other.ask_pull("group", "%RETRY%group", hold_ms=HOLD_MS))
        assert bodies(again) == [b"other"]
        assert bodies(given_again(mine, number)) == [b"mine"]
        commit(mine, "group", "%RETRY%group", 2**62)
        assert bodies(given_again(other, other.ask_pull("group", "%RETRY%group", hold_ms=HOLD_MS))) == [b"other"]
        commit(other, "group", "%RETRY%group", int(again.fields["nextBeginOffset"]))
        settled = other.pull("group", "%RETRY%group")
        assert settled.code == ResponseCode.PULL_NOT_FOUND
