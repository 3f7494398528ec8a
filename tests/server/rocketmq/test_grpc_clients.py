"""Who clients of gRPC are, what they may do, how many they may be, and what becomes of them when they or we go."""

from __future__ import annotations

import hmac
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from headgate.broker import KeyRights
from headgate.broker.consumer_groups import GroupSettings
from headgate.errors import ConfigError
from headgate.protocols.rocketmq import Status
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.server.listings import connection_rows
from server.rocketmq.conftest import GrpcSite
from server.rocketmq.grpc_peer import GrpcPeer, consumer_settings, finished, producer_settings, seconds
from server.running import running_server
from waiting import LIMIT_S

OpenSite = Callable[..., GrpcSite]
ROUTE = pb.QueryRouteRequest(topic=pb.Resource(name="orders"))


def signed(key: str, secret: str, time: str = "20260101T000000Z") -> dict[str, str]:
    digest = hmac.new(secret.encode(), time.encode(), "sha1").hexdigest()
    header = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return {"authorization": header, "x_mq_date_time": time}


def test_without_keys_clients_on_this_machine_need_none(open_site: OpenSite) -> None:
    site = open_site()
    site.topic("orders")
    assert site.peer().call(ROUTE).status.code == Status.OK
    assert site.peer(**signed("any", "secret")).call(ROUTE).status.code == Status.OK


def test_the_configuration_may_ask_for_a_key_all_the_same(open_site: OpenSite) -> None:
    site = open_site(rocketmq={"open": "no"})
    assert site.peer().call(ROUTE).status.code == Status.UNAUTHORIZED


def test_without_the_default_user_everybody_needs_an_access_key(open_site: OpenSite) -> None:
    site = open_site()
    peer = site.peer()
    assert peer.call(ROUTE).status.code == Status.TOPIC_NOT_FOUND
    site.running.call(lambda: site.running.context.broker.users.remove("guest"))
    assert peer.call(ROUTE).status.code == Status.UNAUTHORIZED


def test_a_key_gives_its_rights_on_topics(open_site: OpenSite) -> None:
    site = open_site()
    site.topic("orders", 2)
    keys = site.running.context.broker.keys
    secret = site.running.call(lambda: keys.add("app", KeyRights(send="^orders$", listen="^audit$"))).primary
    assert site.peer().call(ROUTE).status.code == Status.UNAUTHORIZED
    assert site.peer(**signed("app", "wrong")).call(ROUTE).status.code == Status.UNAUTHORIZED
    assert site.peer(**signed("nobody", secret)).call(ROUTE).status.code == Status.UNAUTHORIZED
    peer = site.peer(**signed("app", secret))
    assert peer.send("orders", b"x").status.code == Status.OK
    assert peer.receive("g", "orders")[0].code == Status.FORBIDDEN
    with site.peer().telemetry(producer_settings()) as answers, pytest.raises(grpc.RpcError) as ended:
        next(answers)
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    rotated = site.running.call(lambda: keys.rotate("app"))
    assert peer.send("orders", b"x").status.code == Status.OK
    assert site.peer(**signed("app", rotated.primary)).send("orders", b"x").status.code == Status.OK
    site.running.call(lambda: keys.remove("app"))
    site.running.call(lambda: keys.add("other", KeyRights()))
    assert peer.send("orders", b"x").status.code == Status.UNAUTHORIZED
    assert site.running.context.connections.totals.logins_failed >= 4


def test_clients_are_in_the_list_of_connections_until_they_end(open_site: OpenSite) -> None:
    site = open_site()
    context = site.running.context
    peer = site.peer(client_id="me", x_mq_client_version="5.1")
    peer.call(ROUTE)
    [row] = site.running.call(lambda: list(connection_rows(context, "guest")))
    told = {name: row[name] for name in ("peer_host", "listener", "encrypted", "protocol", "user", "client", "state")}
    assert told == {
        "peer_host": "127.0.0.1",
        "listener": "rocketmq",
        "encrypted": False,
        "protocol": "RocketMQ gRPC v2",
        "user": "guest",
        "client": {"client_id": "me", "language": "TEST", "version": "5.1"},
        "state": "running",
    }
    received, sent = row["bytes_received"], row["bytes_sent"]
    assert isinstance(received, int) and isinstance(sent, int) and received > 0 and sent > 0
    with peer.telemetry(producer_settings()) as answers:
        next(answers)
        assert peer.call(pb.NotifyClientTerminationRequest()).status.code == Status.OK
        with pytest.raises((StopIteration, grpc.RpcError)):
            next(answers)
    site.running.until(lambda: not len(context.connections))


def test_a_silent_client_has_gone_and_an_open_stream_is_a_sign_of_life(open_site: OpenSite) -> None:
    site = open_site(rocketmq={"client_silence_s": 0.05})
    connections = site.running.context.connections
    alive = site.peer(client_id="alive")
    with alive.telemetry(producer_settings()) as answers:
        next(answers)
        site.peer(client_id="silent").call(ROUTE)
        site.running.until(lambda: connections.totals.timed_out == 1)
        assert [record.client["client_id"] for record in site.running.call(lambda: list(connections))] == ["alive"]


def test_there_is_a_limit_of_clients(open_site: OpenSite) -> None:
    site = open_site(rocketmq={"clients": 2})
    site.topic("orders")
    first, second, third = (site.peer() for _ in range(3))
    assert [peer.call(ROUTE).status.code for peer in (first, second, third)] == [20000, 20000, Status.TOO_MANY_REQUESTS]
    assert first.call(ROUTE).status.code == Status.OK
    second.call(pb.NotifyClientTerminationRequest())
    assert third.call(ROUTE).status.code == Status.OK


def test_there_is_a_limit_of_calls(open_site: OpenSite) -> None:
    site = open_site(rocketmq={"calls": 2})
    site.topic("orders")
    peer = site.peer()
    with peer.telemetry(producer_settings()) as one, peer.telemetry(producer_settings()) as two:
        assert next(one).status.code == next(two).status.code == Status.OK
        assert peer.call(ROUTE).status.code == Status.TOO_MANY_REQUESTS
        assert peer.receive("g", "orders")[0].code == Status.TOO_MANY_REQUESTS
        with peer.telemetry(producer_settings()) as three, pytest.raises(grpc.RpcError) as ended:
            next(three)
        assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_producer_is_not_read_while_much_of_what_it_sent_is_not_written(open_site: OpenSite) -> None:
    site = open_site(limits={"unconfirmed_messages": 1})
    site.topic("orders")
    peer = site.peer()
    peer.send("orders", b"first")
    broker = site.running.context.broker
    stream = site.running.call(lambda: broker.catalogue.get("orders"))

    def hold() -> None:
        stream.is_writing = True

    def let_go() -> None:
        stream.is_writing = False
        broker._writes.turns.ask(stream)

    site.running.call(hold)
    answers: list[Any] = []
    senders = [threading.Thread(target=lambda: answers.append(peer.send("orders", b"x" * 10))) for _ in range(5)]
    for sender in senders:
        sender.start()
    [record] = site.running.call(lambda: list(site.running.context.connections))
    site.running.until(lambda: not record.is_read)
    assert not answers
    site.running.call(let_go)
    for sender in senders:
        sender.join(LIMIT_S)
    assert [answer.status.code for answer in answers] == [Status.OK] * 5
    assert record.is_read


def test_a_server_that_stops_answers_receives_and_ends_streams(open_site: OpenSite) -> None:
    site = open_site()
    site.topic("orders")
    peer = site.peer()
    with peer.telemetry(producer_settings()) as answers:
        next(answers)
        held = peer.begin_receive("g", "orders", long_polling_timeout=seconds(20))
        groups = site.running.context.broker.consumer_groups
        site.running.until(lambda: groups.find("g") is not None)
        stopped = site.running.stop()
        assert finished(held)[0].code == Status.MESSAGE_NOT_FOUND
        with pytest.raises(grpc.RpcError) as ended:
            next(answers)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        stopped.result(LIMIT_S)


def test_a_receive_whose_client_goes_keeps_nothing(open_site: OpenSite) -> None:
    site = open_site()
    site.topic("orders")
    groups = site.running.context.broker.consumer_groups
    leaver, other = site.peer(), site.peer()
    held = leaver.begin_receive("g", "orders", long_polling_timeout=seconds(20))
    site.running.until(lambda: groups.find("g") is not None and groups.view("orders", "g").waiting)
    held.cancel()
    site.running.until(lambda: not groups.view("orders", "g").waiting)
    assert other.send("orders", b"x").status.code == Status.OK
    _, [found] = other.receive("g", "orders")
    assert found.system_properties.delivery_attempt == 1


def test_what_a_client_does_not_take_is_given_to_others(open_site: OpenSite) -> None:
    site = open_site()
    site.topic("orders")
    leaver, other = site.peer(is_slow=True), site.peer()
    for _ in range(9):
        other.send("orders", b"x" * 100_000)
    fields = {"auto_renew": True, "invisible_duration": None, "long_polling_timeout": seconds(20)}
    held = leaver.begin_receive("g", "orders", **fields)
    assert pb.ReceiveMessageResponse.FromString(next(iter(held))).status.code == Status.OK
    held.cancel()
    _, again = other.receive("g", "orders", long_polling_timeout=seconds(20))
    assert len(again) == 9
    assert {each.system_properties.delivery_attempt for each in again} == {2}


def test_what_a_push_consumer_has_is_renewed_while_it_lives(open_site: OpenSite) -> None:
    site = open_site(rocketmq={"renewed_messages": 2})
    site.topic("orders")
    peer, other = site.peer(), site.peer()
    peer.send("orders", b"a", b"b", b"c")
    fields = {"auto_renew": True, "invisible_duration": None}
    _, found = peer.receive("g", "orders", batch_size=2, **fields)
    assert len(found) == 2 and {each.system_properties.invisible_duration.seconds for each in found} == {60}
    assert peer.receive("g", "orders", **fields)[0].code == Status.TOO_MANY_REQUESTS
    assert peer.ack("g", "orders", found[0].system_properties.receipt_handle).status.code == Status.OK
    _, [last] = peer.receive("g", "orders", **fields)
    assert last.body == b"c"
    peer.call(pb.NotifyClientTerminationRequest())
    _, again = other.receive("g", "orders", long_polling_timeout=seconds(20))
    while len(again) < 2:
        again += other.receive("g", "orders", long_polling_timeout=seconds(20))[1]
    assert {each.body for each in again} == {b"b", b"c"}
    assert {each.system_properties.delivery_attempt for each in again} == {2}


def test_consumers_are_members_of_their_groups_and_what_they_ask_for_is_known_while_they_live(
    open_site: OpenSite,
) -> None:
    site = open_site()
    site.topic("orders")
    site.topic("audit")
    members = site.running.context.broker.members
    registering = site.running.context.broker.expressions
    peer = site.peer(client_id="me")

    def asked(topic: str) -> str | None:
        found = site.running.call(lambda: members.subscription("g", topic))
        return None if found is None else str(found.announcement.text)

    with peer.telemetry(consumer_settings("g", {"orders": (pb.FilterType.SQL, "a = 1")})) as answers:
        next(answers)
    assert site.running.call(lambda: members.of("g")) == ["me"]
    assert (asked("orders"), asked("audit")) == ("a = 1", None)
    assert site.running.call(lambda: registering.expression("g", "orders")) is not None
    tags = pb.FilterExpression(type=pb.FilterType.TAG, expression="A")
    assert peer.receive("g", "audit", filter_expression=tags)[0].code == Status.MESSAGE_NOT_FOUND
    assert (asked("orders"), asked("audit")) == ("a = 1", "A")
    heartbeat = pb.HeartbeatRequest(group=pb.Resource(name="g"), client_type=pb.ClientType.SIMPLE_CONSUMER)
    assert peer.call(heartbeat).status.code == Status.OK
    peer.call(pb.NotifyClientTerminationRequest())
    assert site.running.call(lambda: members.of("g")) == []
    assert (asked("orders"), asked("audit")) == (None, None)


def test_a_wrong_filter_may_be_refused_late_as_in_the_original(open_site: OpenSite) -> None:
    site = open_site(rocketmq={"check_filters": "late"})
    site.topic("orders")
    peer = site.peer()
    with peer.telemetry(consumer_settings("g", {"orders": (pb.FilterType.SQL, "a =")})) as answers:
        assert next(answers).status.code == Status.OK
    wrong = pb.FilterExpression(type=pb.FilterType.SQL, expression="a =")
    status, _ = peer.receive("g", "orders", filter_expression=wrong)
    assert (status.code, status.message) == (
        Status.INTERNAL_SERVER_ERROR,
        "parse the consumer's subscription failed",
    )


def test_with_tls(open_site: OpenSite, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    files = {name: tmp_path / f"{name}.pem" for name in ("certificate", "key")}
    certificate.private_key_pem.write_to_path(files["key"])
    for part in certificate.cert_chain_pems:
        part.write_to_path(files["certificate"], append=True)
    site = open_site(listeners={"rocketmq_tls": 0}, tls={name: str(path) for name, path in files.items()})
    trusted = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    with grpc.secure_channel(f"localhost:{site.running.ports['rocketmq_tls']}", trusted) as channel:
        peer = GrpcPeer(site.address)
        peer.channel.close()
        peer.channel = channel
        found = peer.call(ROUTE)
        assert found.status.code == Status.TOPIC_NOT_FOUND
        site.topic("orders")
        [address] = peer.call(ROUTE).message_queues[0].broker.endpoints.addresses
        assert address.port == site.running.ports["rocketmq_tls"]
        [record] = site.running.call(lambda: list(site.running.context.connections))
        assert (record.listener, record.peer.is_encrypted) == ("rocketmq_tls", True)


def test_a_port_that_is_taken_is_told_before_anything_is_touched(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=f"listeners.rocketmq: .* port {port}: the port is taken"),
            running_server(tmp_path, handlers={}, listeners={"rocketmq": port}),
        ):
            pass
    assert not (tmp_path / "data").exists()


def test_a_root_that_is_in_use_gives_the_port_back(open_site: OpenSite, tmp_path: Path) -> None:
    site = open_site()
    with (
        pytest.raises(ConfigError, match="is in use"),
        running_server(tmp_path, handlers={}, listeners={"rocketmq": 0}),
    ):
        pass
    assert site.peer().call(ROUTE).status.code == Status.TOPIC_NOT_FOUND


def test_what_a_push_consumer_is_given_again_is_renewed_once(open_site: Callable[..., GrpcSite]) -> None:
    site = open_site(rocketmq={"renewed_messages": 1})
    site.topic("pushed")
    groups = site.running.context.broker.consumer_groups
    site.running.call(lambda: groups.declare("g", GroupSettings(fifo=True)))
    peer = site.peer()
    peer.send("pushed", b"x")
    fields = {"auto_renew": True, "invisible_duration": None, "attempt_id": "one"}
    _, [first] = peer.receive("g", "pushed", **fields)
    assert peer.receive("g", "pushed", **fields | {"attempt_id": "two"})[0].code == Status.TOO_MANY_REQUESTS
    _, [second] = peer.receive("g", "pushed", **fields)
    first_handle, second_handle = (each.system_properties.receipt_handle for each in (first, second))
    assert peer.ack("g", "pushed", first_handle).status.code == Status.INVALID_RECEIPT_HANDLE
    assert peer.ack("g", "pushed", second_handle).status.code == Status.OK
    assert peer.receive("g", "pushed", **fields)[0].code == Status.MESSAGE_NOT_FOUND
