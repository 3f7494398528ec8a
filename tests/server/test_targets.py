"""Whoever may use `a…` only cannot let anything go to `b`, by no road on which a target can be named.

A new road is a new command of `Session`, or a new caller of what changes topics: both are listed here, and the test of
the lists fails until it stands in one of them.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.broker import Entities, KeyRights, Resubmission, Session
from headgate.errors import AccessRefusedError
from headgate.protocols.rocketmq.remoting import ResponseCode
from headgate.topic import ChangeSubscription, CreateSubscription, SubscriptionName, SubscriptionSettings
from server.entities import ServedEntities
from server.remoting_client import RemotingClient
from server.running import RunningServer, running_server
from server.servicebus.test_administration import Site as AdministrationSite
from server.servicebus.test_administration import body
from server.topics.test_topics import ask
from servicebus_tokens import signed_token

ANNA = ("anna", "secret")
SECRET = "the secret of the application"
LETTERS = SubscriptionName("a", "s", is_dead_letter=True)
FORWARDS = SubscriptionSettings(forward_dead_letters_to="b")

Ask = Callable[[RunningServer], bool]
"""Tries a road as Anna, or with her key; whether it was refused for want of a right."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    pattern = "^a"
    anna = {"name": "anna", "password": "secret"}
    anna["permissions"] = {"configure": pattern, "write": pattern, "read": pattern}  # type: ignore[assignment]
    bob = {"name": "bob", "password": "secret", "permissions": {"configure": pattern, "write": "^(a|b)", "read": "^a"}}
    carl = {"name": "carl", "password": "secret", "permissions": {"configure": ".*", "write": "^a", "read": ".*"}}
    with running_server(
        tmp_path_factory.mktemp("server"), listeners={"servicebus": 0, "rocketmq_classic": 0}, user=[anna, bob, carl]
    ) as running:
        entities = ServedEntities(running)
        entities.topic("a", s=None)
        entities.topic("b")
        entities.queue("a-queue")
        admin = running.context.broker.open_session("guest", protocol="test", connection="test")
        running.call(lambda: admin.declare_exchange("a-super", arguments={"x-super-stream": True}))
        running.call(lambda: admin.declare_exchange("a-direct"))
        running.call(lambda: admin.declare_exchange("b-direct"))
        keys = running.context.broker.keys
        # She may use entities that begin with A, and one that is spelled B, which is not there.
        running.call(lambda: keys.add("anna", KeyRights(manage="^(a.*|B)$"), secret=SECRET))
        yield running


def _http(method: str, path: str, given: Any = None) -> Ask:
    return lambda running: ask(running, method, f"/api/{path}", given, user=ANNA)[0] == 403


def _atom(path: str, kind: str, inner: str, **headers: str) -> Ask:
    def put(running: RunningServer) -> bool:
        token = signed_token("sb://localhost", "anna", SECRET, expires_s=4_000_000_000)
        return AdministrationSite(running, token).raw("PUT", path, body(kind, inner), **headers)[0] == 401

    return put


def _session(call: Callable[[Session], object], user: str = "anna") -> Ask:
    def asked(running: RunningServer) -> bool:
        session = running.call(lambda: running.context.broker.open_session(user, protocol="test", connection="test"))
        try:
            running.call(lambda: call(session))
        except AccessRefusedError:
            return True
        finally:
            running.call(session.close)
        return False

    return asked


def _gives_up(running: RunningServer) -> bool:
    """A member of a group sends what it could not consume, which becomes a dead letter of the group."""
    with contextlib.closing(RemotingClient(running, key=("anna", SECRET))) as client:
        code = client.send("%RETRY%b", j=99).code
    there = running.context.broker.catalogue
    return code == ResponseCode.NO_PERMISSION and running.call(lambda: there.find("%DLQ%b")) is None


UPDATE = {"If-Match": "*"}
ROADS: dict[str, Ask] = {
    "HTTP: a new subscription": _http("PUT", "topics/a/subscriptions/new", {"forward_to": "b"}),
    "HTTP: a subscription": _http("PUT", "topics/a/subscriptions/s", {"forward_to": "b"}),
    "HTTP: its dead letters": _http(
        "PUT", "topics/a/subscriptions/s", {"settings": {"forward_dead_letters_to": "b"}}
    ),
    "HTTP: a queue": _http("PUT", "entities/a-queue", {"settings": {"kind": "queue"}, "forward_to": "b"}),
    "HTTP: a new queue, spelled otherwise": _http(
        "PUT", "entities/a-new", {"settings": {"kind": "queue"}, "forward_to": "B"}
    ),
    "HTTP: dead letters of a queue": _http(
        "PUT", "entities/a-queue", {"settings": {"kind": "queue"}, "delivery": {"forward_dead_letters_to": "b"}}
    ),
    "HTTP: a subscription of an entity": _http(
        "PUT", "entities/a", {"subscriptions": [{"name": "s", "forward_to": "b"}]}
    ),
    "administration: a queue": _atom("/a-other", "QueueDescription", "<ForwardTo>sb://localhost/b</ForwardTo>"),
    "administration: a queue, spelled otherwise": _atom("/a-other", "QueueDescription", "<ForwardTo>B</ForwardTo>"),
    "administration: dead letters": _atom(
        "/a-queue", "QueueDescription", "<ForwardDeadLetteredMessagesTo>b</ForwardDeadLetteredMessagesTo>", **UPDATE
    ),
    "administration: a subscription": _atom(
        "/a/subscriptions/f", "SubscriptionDescription", "<ForwardTo>B</ForwardTo>"
    ),
    "broker: a subscription": _session(
        lambda session: session.change_topic("a", [CreateSubscription("x", settings=FORWARDS)], lambda _result: None)
    ),
    "broker: a change": _session(
        lambda session: session.change_topic("a", [ChangeSubscription("s", forward_to="b")], lambda _result: None)
    ),
    "exchanges: a stream": _session(lambda session: session.bind("a-direct", "b", "k")),
    "exchanges: an exchange": _session(lambda session: session.bind_exchange("a-direct", "b-direct", "k")),
    "exchanges: the alternate one": _session(
        lambda session: session.declare_exchange("a-new", arguments={"alternate-exchange": "b-direct"})
    ),
    "super streams: a partition": _session(
        lambda session: session.create_super_stream("a-1", ["b-1"], ["0"], {}), "carl"
    ),
    "super streams: the exchange": _session(lambda session: session.create_super_stream("b-1", ["a-1"], ["0"], {})),
    "super streams: a stream that is only written": _session(lambda session: session.bind("a-super", "b", "0"), "bob"),
    "publishing": _session(lambda session: session.publisher("b")),
    "publishing: its sequence": _session(lambda session: session.last_sequence("b", "name")),
    "publishing: by an exchange": _session(lambda session: session.route("b-direct", "k")),
    "replies of RocketMQ": _session(lambda session: session.check_writes("DefaultCluster_REPLY_TOPIC")),
    "resubmission: HTTP": _http("POST", "topics/a/subscriptions/s/dead-letters/resubmissions", {"to": "b"}),
    "resubmission: its dry run": _http(
        "POST", "topics/a/subscriptions/s/dead-letters/resubmissions", {"to": "b", "dry_run": True}
    ),
    "resubmission: a job": _session(lambda session: session.resubmit(LETTERS, Resubmission("b"))),
    "resubmission of a group: HTTP": _http("POST", "rocketmq/groups/a/dead-letters/resubmissions", {"to": "b"}),
    "resubmission of a group: a job": _session(lambda session: session.resubmit_of_group("a", Resubmission("b"))),
    "dead letters of another group of RocketMQ": _gives_up,
}  # fmt: skip

NAMES_A_TARGET = {
    "bind", "bind_exchange", "change_topic", "check_writes", "create_super_stream", "declare_exchange",
    "ensure_message_topic", "last_sequence", "publisher", "resubmit", "resubmit_of_group",
    "resubmitter", "group_resubmitter", "route",
    "schedule_message", "unbind", "unbind_exchange",
    "delete_super_stream",
}  # fmt: skip
NAMES_NONE = {
    "actor", "bindings", "bounds", "check_reads", "chunk_consumer", "close", "consumers", "create_topic",
    "declare_stream", "delete_dead_letters",
    "delete_dead_letters_of_group", "delete_exchange", "delete_stream", "exchange", "group_dead_letters", "group_view",
    "is_stored_remotely", "message_consumer", "message_read", "message_topic",
    "needs_headers", "partitions", "publishers", "purge", "queue_depth", "reads", "recall_message",
    "receive_from", "receiver", "receivers", "remove_topic", "replies", "resolution",
    "route_super_stream",
    "session_receiver", "store_offset", "stored_offset", "stream_info", "streams", "subscription_of", "tell_deleted",
    "topic_kind", "topic_of", "uses",
}  # fmt: skip
"""Commands of a session that lead nothing anywhere."""
ASKED_FOR_TARGETS = {"create", "create_subscription", "declare", "update", "update_subscription"}
OPERATORS = {"definitions.py", "topics.py", "entities.py"}
"""Where nobody is asked: the operator's configuration, subscriptions that end idle, and changes of rules."""


@pytest.mark.parametrize("road", ROADS)
def test_a_target_needs_the_right_to_write_there(server: RunningServer, road: str) -> None:
    assert ROADS[road](server)
    assert not server.call(lambda: [*server.context.broker.exchanges.bindings(queue="b")])


def test_with_the_right_the_same_is_done(server: RunningServer) -> None:
    assert ask(server, "PUT", "/api/topics/a/subscriptions/onward", {"forward_to": "b"})[0] == 201
    # What the subscription has already is not asked for again.
    assert (
        ask(server, "PUT", "/api/topics/a/subscriptions/onward", {"settings": {"lock_ms": 9_000}}, user=ANNA)[0] == 200
    )
    assert ask(server, "PUT", "/api/topics/a/subscriptions/onward", {"forward_to": None}, user=ANNA)[0] == 200
    assert ask(server, "PUT", "/api/topics/a/subscriptions/onward", {"forward_to": "b"}, user=ANNA)[0] == 403


def test_every_road_stands_in_a_list() -> None:
    commands = {name for name, _ in inspect.getmembers(Session) if not name.startswith("_")}
    slots = {"backlog", "connection", "on_stream_deleted", "protocol", "user"}
    assert commands - slots == NAMES_A_TARGET | NAMES_NONE
    members = inspect.getmembers(Entities, inspect.isfunction)
    assert {name for name, member in members if "check_target" in inspect.signature(member).parameters} == (
        ASKED_FOR_TARGETS | {"_change"}
    )
    sources = Path(headgate.__file__).parent.rglob("*.py")
    assert {file.name for file in sources if "any_target" in file.read_text()} == OPERATORS | {
        "targets.py",
        "__init__.py",
    }
