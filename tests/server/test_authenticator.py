from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headgate.broker.tokens import Tokens
from headgate.errors import AuthenticationError, LoopbackOnlyError
from headgate.protocols.sasl import Anonymous, Credentials, External, Plain
from headgate.server.authenticator import Authenticator
from headgate.server.connections import Connections
from headgate.server.settings import ServerSettings
from headgate.server.transport import Peer
from server.links import FakeLink, SetClock

HERE = Peer("127.0.0.1", 1, is_loopback=True)
ELSEWHERE = Peer("192.0.2.7", 1, is_loopback=False)
WITH_CERTIFICATE = Peer("192.0.2.8", 1, is_loopback=False, is_encrypted=True, certificate_name="anna")


class FakeUsers:
    def __init__(self) -> None:
        self.passwords = {"guest": "guest", "anna": "secret"}
        self.checks = 0
        self.tokens = Tokens(None)

    def authenticate(self, name: str, password: str) -> None:
        self.checks += 1
        if self.passwords.get(name) != password:
            raise AuthenticationError("no such user, or a wrong password")

    def __contains__(self, name: object) -> bool:
        return name in self.passwords


class Login:
    """An authenticator over two users; the thread for passwords is this one."""

    def __init__(self, **settings: Any) -> None:
        self.users = FakeUsers()
        self.clock = SetClock()
        self.connections = Connections()
        self.authenticator = Authenticator(
            self.users,
            msgspec.convert(settings, ServerSettings),
            self.clock,
            connections=self.connections,
            run_in_thread=self.run,
        )

    def run(self, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        try:
            work()
        except BaseException as error:
            then(error)
        else:
            then(None)

    def answer(self, credentials: Credentials, peer: Peer = HERE) -> tuple[object, float]:
        """What a client is told, and after how many seconds."""
        link = FakeLink(peer)
        told: list[object] = []
        self.authenticator.authenticate(link, credentials, told.append)
        assert told == []
        link.turn()
        if told:
            return told[0], 0.0
        ((delay, call),) = link.timers
        call()
        return told[0], delay


@pytest.mark.parametrize(
    ("credentials", "peer", "user"),
    [
        (Plain("guest", "guest"), HERE, "guest"),
        (Plain("anna", "secret"), ELSEWHERE, "anna"),
        (External(""), WITH_CERTIFICATE, "anna"),
        (External("anna"), WITH_CERTIFICATE, "anna"),
        (Anonymous(), HERE, "guest"),
    ],
)
def test_who_may_come_in_is_told_at_once(credentials: Credentials, peer: Peer, user: str) -> None:
    login = Login()
    assert login.answer(credentials, peer) == (user, 0.0)
    assert (login.connections.totals.logins, login.connections.totals.logins_failed) == (1, 0)


@pytest.mark.parametrize(
    ("credentials", "peer"),
    [
        (Plain("guest", "wrong"), HERE),
        (Plain("nobody", "guest"), HERE),
        (Plain("guest", "guest"), ELSEWHERE),
        (External(""), HERE),
        (External("guest"), WITH_CERTIFICATE),
        (Anonymous(), ELSEWHERE),
    ],
)
def test_everybody_else_is_told_the_same_and_late(
    credentials: Credentials, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    login = Login(timeouts={"login_failure_s": 2.5})
    with caplog.at_level(logging.INFO):
        error, delay = login.answer(credentials, peer)
    assert isinstance(error, AuthenticationError) and str(error) == "Login was refused" and delay == 2.5
    assert "login refused" in caplog.text and peer.host in caplog.text
    for secret in ("wrong", "secret"):
        assert secret not in caplog.text.replace("wrong password", "")


def test_logins_are_told_to_who_debugs_and_refused_ones_to_everybody(caplog: pytest.LogCaptureFixture) -> None:
    login, link = Login(), FakeLink(HERE)
    login.connections.opened(link, listener="amqp", now_ms=0)
    with caplog.at_level(logging.DEBUG):
        for password in ("secret", "wrong"):
            login.authenticator.authenticate(link, Plain("anna", password), lambda _: None)
    assert [(record.levelname, "'anna'" in record.getMessage()) for record in caplog.records] == [
        ("DEBUG", True),
        ("WARNING", True),
    ]


def test_the_default_user_from_elsewhere_is_an_error_of_its_own_and_not_checked() -> None:
    login = Login()
    error, _ = login.answer(Plain("guest", "guest"), ELSEWHERE)
    assert isinstance(error, LoopbackOnlyError) and login.users.checks == 0


def test_a_certificate_of_the_default_user_counts_on_this_machine_only() -> None:
    names = {"is_encrypted": True, "certificate_name": "guest"}
    assert Login().answer(External(""), Peer("127.0.0.1", 1, is_loopback=True, **names))[0] == "guest"
    elsewhere = Peer("192.0.2.8", 1, is_loopback=False, **names)
    assert isinstance(Login().answer(External(""), elsewhere)[0], LoopbackOnlyError)
    login = Login(authentication={"default_password": "another"})
    assert login.answer(External(""), elsewhere)[0] == "guest"


def test_the_default_user_with_a_password_of_its_own_may_come_from_anywhere() -> None:
    login = Login(authentication={"default_password": "guest"})
    assert login.answer(Plain("guest", "guest"), ELSEWHERE) == ("guest", 0.0)


def test_a_certificate_of_nobody_is_refused() -> None:
    peer = Peer("192.0.2.8", 1, is_loopback=False, is_encrypted=True, certificate_name="stranger")
    assert isinstance(Login().answer(External(""), peer)[0], AuthenticationError)


def test_mechanisms_are_those_that_can_succeed() -> None:
    login = Login()
    offered = [login.authenticator.mechanisms(FakeLink(peer)) for peer in (HERE, ELSEWHERE, WITH_CERTIFICATE)]
    assert offered == [
        ("PLAIN", "AMQPLAIN", "ANONYMOUS"),
        ("PLAIN", "AMQPLAIN"),
        ("EXTERNAL", "PLAIN", "AMQPLAIN"),
    ]
    assert "ANONYMOUS" not in Login(authentication={"anonymous": False}).authenticator.mechanisms(FakeLink(HERE))


def test_after_too_many_failures_in_a_minute_an_address_is_not_looked_at() -> None:
    login = Login(limits={"login_failures_a_minute": 3})
    for _ in range(3):
        login.answer(Plain("anna", "guess"), ELSEWHERE)
    assert isinstance(login.answer(Plain("anna", "secret"), ELSEWHERE)[0], AuthenticationError)
    assert login.users.checks == 3
    assert login.answer(Plain("anna", "secret"), WITH_CERTIFICATE) == ("anna", 0.0)
    login.clock.seconds += 61
    assert login.answer(Plain("anna", "secret"), ELSEWHERE) == ("anna", 0.0)


def test_a_check_that_fails_by_itself_refuses_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    login = Login()
    login.users.authenticate = lambda name, password: 1 / 0  # type: ignore[assignment,return-value,misc]
    with caplog.at_level(logging.ERROR):
        assert isinstance(login.answer(Plain("anna", "secret"))[0], AuthenticationError)
    assert "could not be checked" in caplog.text and "secret" not in caplog.text


def test_a_token_is_a_password_of_its_user_whatever_the_name_beside_it() -> None:
    login = Login()
    _, text = login.users.tokens.create("anna", "", now_ms=login.clock.now_ms())
    for name in ("", "anna", "guest", "nobody"):
        assert login.answer(Plain(name, text), ELSEWHERE)[0] == "anna"
    assert login.users.checks == 0
    login.users.passwords.pop("anna")
    assert isinstance(login.answer(Plain("anna", text))[0], AuthenticationError)


def test_a_token_goes_no_further_than_its_user_and_a_read_only_one_only_where_it_is_taken() -> None:
    login = Login()
    _, of_guest = login.users.tokens.create("guest", "", now_ms=0)
    assert login.answer(Plain("", of_guest))[0] == "guest"
    assert isinstance(login.answer(Plain("", of_guest), ELSEWHERE)[0], LoopbackOnlyError)
    _, reading = login.users.tokens.create("anna", "", now_ms=0, read_only=True)
    assert isinstance(login.answer(Plain("anna", reading))[0], AuthenticationError)
