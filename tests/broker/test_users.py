"""Users: passwords, permissions by pattern, the file that keeps them, and which command asks for which permission."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from brokers import START_MS, open_broker, open_session
from headgate.broker import users as users_module
from headgate.broker.consumers import ConsumerOptions
from headgate.broker.session import Session
from headgate.broker.users import EVERYTHING, Permission, Permissions, Users
from headgate.errors import (
    AccessRefusedError,
    AuthenticationError,
    ConfigError,
    PreconditionFailedError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from headgate.log import OffsetSpecification


@pytest.fixture(autouse=True)
def _cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real cost is that of attackers; tests make many."""
    monkeypatch.setattr(users_module, "_TIME_COST", 1)
    monkeypatch.setattr(users_module, "_MEMORY_KIB", 64)


@pytest.fixture
def users(tmp_path: Path) -> Users:
    return Users(tmp_path / "users.json", default_user="guest")


def test_the_default_user_is_made_once_with_its_name_as_password(tmp_path: Path, users: Users) -> None:
    users.authenticate("guest", "guest")
    assert list(users) == ["guest"] and users.get("guest").permissions == EVERYTHING
    users.remove("guest")
    assert "guest" not in Users(tmp_path / "users.json", default_user="guest")


def test_a_default_user_without_a_password_cannot_log_in_with_one(tmp_path: Path) -> None:
    users = Users(tmp_path / "users.json", default_user="guest", default_has_password=False)
    assert users.get("guest").permissions == EVERYTHING
    for password in ("guest", ""):
        with pytest.raises(AuthenticationError):
            users.authenticate("guest", password)


def test_passwords_are_kept_as_hashes_in_a_file_for_its_owner(tmp_path: Path, users: Users) -> None:
    users.add("anna", "sécret", tags=("management",), permissions=Permissions("^a", "^a", ".*"))
    content = (tmp_path / "users.json").read_text()
    assert "cret" not in content and "$argon2id$" in content
    assert stat.S_IMODE(os.stat(tmp_path / "users.json").st_mode) == 0o600
    again = Users(tmp_path / "users.json", default_user="guest")
    again.authenticate("anna", "sécret")
    assert again.get("anna").tags == ("management",)


@pytest.mark.usefixtures("real_passwords")
def test_a_stolen_file_of_hashes_is_dear_to_guess(tmp_path: Path) -> None:
    """At least what OWASP's password storage cheat sheet asks of argon2id: 19 MiB, two passes."""
    users = Users(tmp_path / "users.json", default_user="guest")
    users.add("anna", "secret")
    users.authenticate("anna", "secret")
    found = re.findall(r"\$argon2id\$v=19\$m=(\d+),t=(\d+),p=1\$", (tmp_path / "users.json").read_text())
    assert len(found) == 2 and all(int(memory) >= 19 * 1024 and int(passes) >= 2 for memory, passes in found)


@pytest.mark.parametrize(("name", "password"), [("anna", "wrong"), ("anna", ""), ("nobody", "right"), ("", "")])
def test_wrong_credentials_are_refused_without_saying_what_was_wrong(users: Users, name: str, password: str) -> None:
    users.add("anna", "right")
    for _ in range(2):
        with pytest.raises(AuthenticationError) as caught:
            users.authenticate(name, password)
        assert str(caught.value) == "no such user, or a wrong password"
        users.authenticate("anna", "right")


def test_a_verified_password_is_not_hashed_again_until_it_changes(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    users.add("anna", "old")
    users.authenticate("anna", "old")

    def hashed(*_: object) -> bool:
        raise AssertionError("hashed again")

    with monkeypatch.context() as patch:
        patch.setattr(users_module, "_verify", hashed)
        users.authenticate("anna", "old")
    users.set_password("anna", "new")
    with pytest.raises(AuthenticationError):
        users.authenticate("anna", "old")
    users.authenticate("anna", "new")
    users.remove("anna")
    with pytest.raises(AuthenticationError):
        users.authenticate("anna", "new")


def test_a_user_without_a_password_cannot_log_in_with_one(users: Users) -> None:
    users.add("machine", None)
    for password in ("", "machine"):
        with pytest.raises(AuthenticationError):
            users.authenticate("machine", password)


@pytest.mark.parametrize(
    ("pattern", "resource", "allowed"),
    [
        (".*", "orders", True),
        ("", "orders", False),
        ("rder", "orders", True),
        ("^orders$", "orders", True),
        ("^orders$", "orders-2", False),
        ("^(orders|returns)", "returns.eu", True),
        ("amq.default", "", True),
        ("^$", "", False),
    ],
)
def test_a_pattern_matches_anywhere_and_the_empty_one_nowhere(
    users: Users, pattern: str, resource: str, allowed: bool
) -> None:
    users.add("anna", "x", permissions=Permissions(write=pattern))
    if allowed:
        users.check("anna", Permission.WRITE, resource)
    else:
        with pytest.raises(AccessRefusedError, match="'anna' has no write permission"):
            users.check("anna", Permission.WRITE, resource)
    with pytest.raises(AccessRefusedError):
        users.check("anna", Permission.READ, resource)
    with pytest.raises(AccessRefusedError):
        users.check("nobody", Permission.WRITE, resource)


def test_wrong_changes_are_refused(users: Users) -> None:
    with pytest.raises(ResourceExistsError):
        users.add("guest", "x")
    with pytest.raises(PreconditionFailedError):
        users.add("", "x")
    for change in (
        lambda: users.add("anna", "x", permissions=Permissions("(")),
        lambda: users.permit("guest", Permissions(read="[")),
    ):
        with pytest.raises(PreconditionFailedError, match="regular expression"):
            change()
    for change in (
        lambda: users.remove("nobody"),
        lambda: users.set_password("nobody", "x"),
        lambda: users.permit("nobody", EVERYTHING),
        lambda: users.set_tags("nobody", ()),
    ):
        with pytest.raises(ResourceNotFoundError):
            change()
    assert list(users) == ["guest"]


@pytest.mark.parametrize(
    "content", [b"{", b"\xff", b'{"users": {}, "format": 9}', b'{"users": {"a": {"password_hash": 1}}}']
)
def test_a_wrong_file_of_users_is_an_error_and_a_running_broker_keeps_the_users_it_has(
    tmp_path: Path, content: bytes
) -> None:
    broker = open_broker(tmp_path)
    path = broker.users.path
    path.write_bytes(content)
    os.utime(path, (time.time() + 5, time.time() + 5))
    broker.tick(START_MS + 10_000)
    broker.users.authenticate("guest", "guest")
    with pytest.raises(ConfigError, match=r"users\.json"):
        Users(path, default_user="guest")


def test_a_running_broker_takes_over_what_another_process_changed(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    other = Users(broker.users.path, default_user="guest")
    other.add("anna", "x", permissions=EVERYTHING)
    broker.tick(START_MS + 1_000)
    broker.users.authenticate("anna", "x")
    other.set_password("anna", "y")
    broker.tick(START_MS + 2_000)
    with pytest.raises(AuthenticationError):
        broker.users.authenticate("anna", "x")


def test_changes_of_two_processes_are_both_kept(tmp_path: Path, users: Users) -> None:
    other = Users(tmp_path / "users.json", default_user="guest")
    users.add("anna", "x")
    other.add("berta", "x")
    users.set_tags("berta", ("monitoring",))
    other.remove("anna")
    assert list(Users(tmp_path / "users.json", default_user="guest")) == ["berta", "guest"]
    assert other.get("berta").tags == ("monitoring",)


OPTIONS = ConsumerOptions(OffsetSpecification.first())
COMMANDS: list[tuple[str, Permissions, Callable[[Session], object]]] = [
    ("declare", Permissions(configure="^s$"), lambda session: session.declare_stream("s", {})),
    ("delete", Permissions(configure="^s$"), lambda session: session.delete_stream("s")),
    ("publish", Permissions(write="^s$"), lambda session: session.publisher("s")),
    ("publish by exchange", Permissions(write="^x$"), lambda session: session.publisher("s", exchange="x")),
    ("route", Permissions(write="^x$"), lambda session: session.route("x", "k")),
    ("route to a queue", Permissions(write="^amq.default$"), lambda session: session.route("", "s")),
    ("sequence", Permissions(write="^s$"), lambda session: session.last_sequence("s", "p")),
    ("messages", Permissions(read="^s$"), lambda session: session.message_consumer("s", OPTIONS)),
    ("chunks", Permissions(read="^s$"), lambda session: session.chunk_consumer("s", OPTIONS)),
    ("store", Permissions(read="^s$"), lambda session: session.store_offset("s", "r", 1)),
    ("stored", Permissions(read="^s$"), lambda session: session.stored_offset("s", "r")),
    ("declare exchange", Permissions(configure="^x$"), lambda session: session.declare_exchange("x")),
    ("delete exchange", Permissions(configure="^x$"), lambda session: session.delete_exchange("x")),
    ("bind", Permissions(write="^s$", read="^x$"), lambda session: session.bind("x", "s", "k")),
    ("unbind", Permissions(write="^s$", read="^x$"), lambda session: session.unbind("x", "s", "k")),
    ("bind exchange", Permissions(write="^q$", read="^x$"), lambda session: session.bind_exchange("x", "q", "k")),
    ("unbind exchange", Permissions(write="^q$", read="^x$"), lambda session: session.unbind_exchange("x", "q", "k")),
    (
        "alternate exchange",
        Permissions(configure="^y$", write="^x$", read="^y$"),
        lambda session: session.declare_exchange("y", arguments={"alternate-exchange": "x"}),
    ),
    (
        "create super stream",
        Permissions(configure="^(p|p-0)$", write="^p-0$", read="^p$"),
        lambda session: session.create_super_stream("p", ["p-0"], ["0"], {}),
    ),
    (
        "delete super stream",
        Permissions(configure="^(q|q-0)$", write="^q-0$", read="^q$"),
        lambda session: session.delete_super_stream("q"),
    ),
]


@pytest.mark.parametrize(("permissions", "command"), [row[1:] for row in COMMANDS], ids=[row[0] for row in COMMANDS])
def test_each_command_needs_just_its_own_permissions(
    tmp_path: Path, permissions: Permissions, command: Callable[[Session], object]
) -> None:
    broker = open_broker(tmp_path)
    owner = open_session(broker)
    owner.declare_stream("s", {})
    owner.declare_exchange("x")
    owner.create_super_stream("q", ["q-0"], ["0"], {})
    broker.users.add("anna", "x")
    session = open_session(broker, "anna")
    needed = [permission for permission in Permission if permissions.pattern(permission)]
    for left_out in needed:
        kept = {permission.value: permissions.pattern(permission) for permission in needed if permission != left_out}
        broker.users.permit("anna", Permissions(**kept))
        with pytest.raises(AccessRefusedError):
            command(session)
    broker.users.permit("anna", permissions)
    command(session)
    broker.close()
