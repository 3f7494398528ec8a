"""Who may do what: by tokens, by keys, as users, or because the service is open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from headgate.broker import KeyRights
from headgate.message import Message
from headgate.protocols.amqp10.events import OutcomeReceived
from headgate.protocols.amqp10.terminus import Accepted
from server.amqp10_client import Client, Management, client_of
from server.entities import ServedEntities
from server.running import RunningServer, running_server
from server.servicebus_client import Requests, peek_lock, refused
from servicebus_tokens import signed_token

MESSAGE = Message(b"x").encode()
SECRET = "the secret of the application"
FAR_S = 4_000_000_000
SECOND_SECRET = "another one"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with keys, and a topic with a subscription."""
    with running_server(tmp_path_factory.mktemp("server")) as running:
        entities = ServedEntities(running)
        entities.topic("orders", red=None)
        entities.topic("other")
        keys = running.context.broker.keys
        running.call(lambda: keys.add("app", KeyRights(send="^orders", listen="^orders/"), secret=SECRET))
        running.call(lambda: keys.add("all", KeyRights(manage=".*"), secret=SECOND_SECRET))
        yield running


@contextlib.contextmanager
def _client(server: RunningServer, mechanism: str = "ANONYMOUS", response: bytes = b"") -> Iterator[Client]:
    with client_of(server.ports["amqp"], mechanism=mechanism, response=response) as client:
        yield client


def _put(client: Client, audience: str, *, key: str = "app", secret: str = SECRET, resource: str | None = None,
         expires_s: int = FAR_S) -> int:  # fmt: skip
    token = signed_token(resource or audience, key, secret, expires_s=expires_s)
    return Requests(client, "$cbs").ask("put-token", token, type="jwt", name=audience)[0]


def _may_send(client: Client, address: str) -> bool:
    link = client.sender(address)
    if link.is_attached:
        return client.send(link, MESSAGE) == [Accepted()]
    condition, _ = refused(client, link)
    assert condition == "amqp:unauthorized-access"
    return False


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "MSSBCBS"])
def test_a_client_has_no_rights_until_a_token_says_more(server: RunningServer, mechanism: str) -> None:
    with _client(server, mechanism) as client:
        assert not _may_send(client, "orders")
        assert _put(client, "sb://localhost/orders") == 202
        assert _may_send(client, "orders") and not _may_send(client, "other")
        link = peek_lock(client, "orders/Subscriptions/red", credit=1)
        assert link.is_attached
        assert _put(client, "sb://localhost/other", key="all", secret=SECOND_SECRET) == 202
        assert _may_send(client, "other")


def test_a_token_counts_for_its_audience_only(server: RunningServer) -> None:
    with _client(server) as client:
        assert _put(client, "amqp://localhost/orders/Subscriptions/red/$management") == 202
        assert not _may_send(client, "orders")
        assert peek_lock(client, "orders/Subscriptions/red").is_attached
        requests = Requests(client, "orders/Subscriptions/red/$management")
        assert requests.do("enumerate-rules")[0] == 200
        other = Requests(client, "orders/$management")
        assert other.do("enumerate-rules")[0] == 401


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret": "guessed"},
        {"key": "nobody"},
        {"expires_s": 1_000},
        {"resource": "sb://localhost/other"},
        {"resource": "sb://localhost/orders/Subscriptions/red"},
    ],
)
def test_a_wrong_token_is_refused(server: RunningServer, wrong: dict[str, object]) -> None:
    with _client(server) as client:
        assert _put(client, "sb://localhost/orders", **wrong) == 401
        assert not _may_send(client, "orders")


def test_other_texts_are_no_tokens(server: RunningServer) -> None:
    with _client(server) as client:
        claims = Requests(client, "$cbs")
        assert claims.ask("put-token", "eyJ0eXAi", type="jwt", name="sb://localhost/orders")[0] == 401
        assert claims.ask("put-token", 5, type="jwt", name="sb://localhost/orders")[0] == 400
        assert claims.ask("delete-token", "x", name="sb://localhost/orders")[0] == 400


def test_links_end_when_their_token_is_over_unless_it_is_renewed(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = server.context.clock
    now_ms = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms)
    with _client(server) as client:
        soon_s = now_ms // 1000 + 60
        _put(client, "sb://localhost/orders", expires_s=soon_s)
        _put(client, "sb://localhost/other", key="all", secret=SECOND_SECRET, expires_s=soon_s)
        ends, stays = client.sender("orders"), client.sender("other")
        _put(client, "sb://localhost/other", key="all", secret=SECOND_SECRET, expires_s=soon_s + 600)
        now_ms += 61_000
        assert client.detached(ends)[0] == "amqp:unauthorized-access"
        assert client.send(stays, MESSAGE) == [Accepted()]


def test_a_key_logs_in_with_its_secret(server: RunningServer) -> None:
    with _client(server, "PLAIN", f"\0app\0{SECRET}".encode()) as client:
        assert _may_send(client, "orders") and not _may_send(client, "other")
        link = client.sender("/queues/orders")
        assert client.detached(link)[0] == "amqp:unauthorized-access"


def test_a_wrong_secret_logs_nobody_in(server: RunningServer) -> None:
    with _client(server, "PLAIN", b"\0app\0guessed") as client:
        assert [outcome.code for outcome in client.of(OutcomeReceived)] == [1]


def test_a_user_has_the_permissions_of_the_user(server: RunningServer) -> None:
    with _client(server, "PLAIN", b"\0guest\0guest") as client:
        assert _may_send(client, "orders") and _may_send(client, "other")
        assert peek_lock(client, "orders/Subscriptions/red").is_attached


def test_keys_do_not_take_the_streams_from_anonymous_clients_of_this_machine(server: RunningServer) -> None:
    with _client(server) as client:
        assert Management(client).declare("plain") == 201
        assert not _may_send(client, "orders")


def test_without_keys_clients_of_this_machine_need_no_token(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_server(tmp_path_factory.mktemp("open")) as server:
        ServedEntities(server).queue("q")
        for mechanism in ("ANONYMOUS", "MSSBCBS"):
            with _client(server, mechanism) as client:
                assert _put(client, "sb://localhost/q", key="RootManageSharedAccessKey", secret="SAS_KEY_VALUE") == 202
                assert (
                    Requests(client, "$cbs").ask("put-token", "any text", type="jwt", name="sb://localhost/q")[0] == 202
                )
                assert _may_send(client, "q")
        server.call(lambda: server.context.broker.keys.add("app", KeyRights(), secret=SECRET))
        with _client(server) as client:
            assert not _may_send(client, "q")


def test_an_open_service_can_be_closed(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_server(tmp_path_factory.mktemp("closed"), servicebus={"open": "no"}) as server:
        ServedEntities(server).queue("q")
        with _client(server, "MSSBCBS") as client:
            assert [outcome.code for outcome in client.of(OutcomeReceived)] == [1]
        with _client(server) as client:
            assert _put(client, "sb://localhost/q") == 401
            assert not _may_send(client, "q")
