"""Exchanges, bindings and super streams, and how they are kept."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from brokers import open_broker, open_session
from headgate.broker import exchanges
from headgate.broker.catalogue import Declared
from headgate.broker.routing import Binding
from headgate.broker.session import Session
from headgate.errors import (
    AccessRefusedError,
    LogError,
    PreconditionFailedError,
    ReservedNameError,
    ResourceExistsError,
    ResourceNotFoundError,
    StorageFullError,
    StreamLockedError,
    UnsupportedError,
)
from headgate.log import stream_folder
from headgate.log.lock import StreamLock


@pytest.fixture
def session(tmp_path: Path) -> Session:
    opened = open_session(open_broker(tmp_path))
    for name in ("a", "b"):
        opened.declare_stream(name, {})
    return opened


def test_a_super_stream_that_could_not_be_deleted_whole_can_be_deleted_again(tmp_path: Path) -> None:
    session = open_session(open_broker(tmp_path))
    session.create_super_stream("x", ["x-0", "x-1"], ["0", "1"], {})
    lock = StreamLock.acquire(stream_folder(tmp_path, "x-1"), now_ms=0)
    try:
        with pytest.raises(StreamLockedError):
            session.delete_super_stream("x")
    finally:
        lock.release()
    assert "x-1" in session.partitions("x")
    session.delete_super_stream("x")
    assert session.streams() == []
    with pytest.raises(ResourceNotFoundError):
        session.partitions("x")


def test_the_exchange_without_a_name_leads_to_the_stream_of_the_key(session: Session) -> None:
    assert session.route("", "a") == ["a"] and session.route("", "unknown") == []


def test_an_exchange_leads_to_the_streams_bound_with_exactly_that_key(session: Session) -> None:
    assert session.declare_exchange("x") is Declared.CREATED
    assert session.declare_exchange("x") is Declared.EXISTS
    assert session.declare_exchange("x", passive=True) is Declared.EXISTS
    session.bind("x", "a", "key")
    session.bind("x", "b", "key")
    session.bind("x", "b", "key")
    session.bind("x", "b", "key", {"other": 1})
    session.bind("amq.direct", "b", "")
    assert session.route("x", "key") == ["a", "b"] and session.route("x", "ke") == []
    assert session.route("amq.direct", "") == ["b"] and not session.needs_headers("x")
    assert session.bindings(source="x", queue="b") == [Binding("x", "b", "key"), Binding("x", "b", "key", {"other": 1})]
    assert len(session.bindings(key="key")) == 3 and len(session.bindings()) == 4
    session.unbind("x", "b", "key", {"other": 1})
    session.unbind("x", "b", "unknown")
    assert session.route("x", "key") == ["a", "b"]
    session.unbind("x", "b", "key")
    assert session.route("x", "key") == ["a"]
    session.delete_exchange("x")
    session.delete_exchange("x")
    with pytest.raises(ResourceNotFoundError):
        session.route("x", "key")
    assert [binding.source for binding in session.bindings()] == ["amq.direct"]


def test_durable_exchanges_and_bindings_are_there_after_a_restart_and_others_are_not(tmp_path: Path) -> None:
    session = open_session(open_broker(tmp_path))
    session.declare_stream("a", {})
    session.declare_exchange("kept", arguments={"note": ["x", {"y": 1.5}]})
    session.declare_exchange("lost", durable=False)
    for source in ("kept", "lost", "amq.direct"):
        session.bind(source, "a", "k", {"n": 1})
    session = open_session(open_broker(tmp_path))
    assert session.declare_exchange("kept", arguments={"note": ["x", {"y": 1.5}]}) is Declared.EXISTS
    assert session.bindings() == [Binding("kept", "a", "k", {"n": 1}), Binding("amq.direct", "a", "k", {"n": 1})]
    assert session.declare_exchange("lost", durable=False) is Declared.CREATED


def test_a_deleted_stream_takes_its_bindings_along_and_an_exchange_that_deletes_itself(session: Session) -> None:
    session.declare_exchange("x", auto_delete=True)
    session.bind("x", "a", "1")
    session.bind("x", "b", "2")
    session.delete_stream("a")
    assert session.bindings() == [Binding("x", "b", "2")]
    session.declare_exchange("kept")
    session.bind("kept", "b", "2")
    session.delete_stream("b")
    with pytest.raises(ResourceNotFoundError):
        session.exchange("x")
    assert session.exchange("kept").name == "kept" and session.bindings() == []


def test_exchanges_of_all_types_and_bindings_between_them_are_there_after_a_restart(tmp_path: Path) -> None:
    session = open_session(open_broker(tmp_path))
    for name in ("a", "b"):
        session.declare_stream(name, {})
    for kind in ("fanout", "topic", "headers"):
        assert session.declare_exchange(kind, kind=kind) is Declared.CREATED
    session.declare_exchange("lost", durable=False)
    session.bind("topic", "a", "a.#")
    session.bind("headers", "b", "", {"n": 1, "m": None})
    session.bind_exchange("fanout", "topic", "")
    session.bind_exchange("fanout", "headers", "", {"x": 1.0})
    session.bind_exchange("fanout", "lost", "")
    session.bind_exchange("lost", "fanout", "")
    session = open_session(open_broker(tmp_path))
    assert session.route("fanout", "a.b") == ["a"] and session.needs_headers("fanout")
    assert session.route("fanout", "b", lambda: {"n": 1, "m": "any"}) == ["b"]
    assert session.bindings("fanout") == [
        Binding("fanout", "", "", exchange="topic"),
        Binding("fanout", "", "", {"x": 1.0}, "headers"),
    ]
    for kind in ("fanout", "topic", "headers"):
        assert session.declare_exchange(kind, kind=kind) is Declared.EXISTS


def test_a_file_of_the_first_format_is_read_and_kept_on(tmp_path: Path) -> None:
    exchange = {"name": "x", "kind": "direct", "durable": True, "auto_delete": False, "internal": False}
    binding = {"source": "x", "queue": "a", "key": "k", "arguments": {}}
    path = tmp_path / ".headgate" / "exchanges.json"
    path.parent.mkdir()
    stored = {"exchanges": [exchange | {"arguments": {}}], "bindings": [binding], "format": 1}
    path.write_text(json.dumps(stored))
    for _ in range(2):
        session = open_session(open_broker(tmp_path))
        session.declare_stream("a", {})
        assert session.route("x", "k") == ["a"]
        session.bind_exchange("amq.fanout", "x", "")
    assert session.route("amq.fanout", "k") == ["a"]
    assert json.loads(path.read_bytes())["format"] == 2


def test_a_binding_is_another_one_where_an_argument_has_another_type(session: Session) -> None:
    session.declare_exchange("x", kind="headers")
    for queue, value in (("a", 1), ("b", True), ("a", "1"), ("b", 1.0)):
        session.bind("x", queue, "", {"n": value})
    assert session.route("x", "", lambda: {"n": True}) == ["b"]
    session.unbind("x", "b", "", {"n": True})
    assert session.route("x", "", lambda: {"n": True}) == []
    session.unbind("x", "b", "", {"n": b"bytes"})
    assert [binding.arguments["n"] for binding in session.bindings("x")] == [1, "1", 1.0]


def test_a_change_of_bindings_counts_for_the_next_message(session: Session) -> None:
    session.declare_exchange("x", kind="topic")
    assert session.route("x", "a.b") == []
    session.bind("x", "a", "a.*")
    assert session.route("x", "a.b") == ["a"]
    session.declare_exchange("y", kind="fanout")
    session.bind_exchange("x", "y", "#")
    session.bind("y", "b", "")
    assert session.route("x", "a.b") == ["a", "b"]
    session.delete_stream("a")
    assert session.route("x", "a.b") == ["b"]
    session.delete_exchange("y")
    assert session.route("x", "a.b") == [] and session.bindings() == []


def test_exchanges_that_delete_themselves_take_those_before_them_along(session: Session) -> None:
    for name in ("x", "y", "z"):
        session.declare_exchange(name, kind="fanout", auto_delete=name != "x")
    session.bind_exchange("x", "y", "")
    session.bind_exchange("y", "z", "")
    session.bind("z", "a", "")
    session.delete_stream("a")
    assert session.bindings() == []
    assert [name for name in ("x", "y", "z") if name in session._exchanges] == ["x"]


def test_exchanges_that_only_the_original_has_are_not_served(session: Session) -> None:
    with pytest.raises(UnsupportedError, match="x-local-random"):
        session.declare_exchange("x", kind="x-local-random")


def test_wrong_exchanges_are_refused(session: Session) -> None:
    session.declare_exchange("x")
    session.bind("x", "a", "k")
    session.declare_exchange("inner", internal=True)
    with pytest.raises(PreconditionFailedError, match="unknown exchange type"):
        session.declare_exchange("y", kind="strange")
    with pytest.raises(ResourceExistsError):
        session.declare_exchange("x", auto_delete=True)
    with pytest.raises(PreconditionFailedError, match="kind that is not kept"):
        session.declare_exchange("y", arguments={"bytes": b"x"})
    with pytest.raises(PreconditionFailedError, match="in use"):
        session.delete_exchange("x", if_unused=True)
    with pytest.raises(AccessRefusedError, match="internal"):
        session.route("inner", "k")
    for name in ("", "amq.mine"):
        with pytest.raises(ReservedNameError):
            session.delete_exchange(name)
    with pytest.raises(ReservedNameError):
        session.declare_exchange("amq.mine")
    assert session.declare_exchange("amq.direct") is Declared.EXISTS
    for command in (session.bind, session.unbind, session.bind_exchange, session.unbind_exchange):
        with pytest.raises(ReservedNameError):
            command("", "a" if command in (session.bind, session.unbind) else "x", "k")
    for command in (session.bind_exchange, session.unbind_exchange):
        with pytest.raises(ReservedNameError):
            command("x", "", "k")
    for source, queue in (("unknown", "a"), ("x", "unknown")):
        with pytest.raises(ResourceNotFoundError):
            session.bind(source, queue, "k")
    for source, destination in (("unknown", "x"), ("x", "unknown")):
        with pytest.raises(ResourceNotFoundError):
            session.bind_exchange(source, destination, "k")
    with pytest.raises(PreconditionFailedError, match="alternate-exchange"):
        session.declare_exchange("y", arguments={"alternate-exchange": 5})
    with pytest.raises(PreconditionFailedError, match="wildcards"):
        session.bind("amq.topic", "a", "#.#.#")
    with pytest.raises(ResourceNotFoundError):
        session.declare_exchange("unknown", passive=True)


def test_a_change_that_cannot_be_kept_is_not_made(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.declare_exchange("x")

    def full(path: Path, _content: bytes) -> None:
        raise StorageFullError(str(errno.ENOSPC), path=path)

    monkeypatch.setattr(exchanges, "replace_file", full)
    with pytest.raises(StorageFullError):
        session.bind("x", "a", "k")
    with pytest.raises(StorageFullError):
        session.create_super_stream("s", ["s-0", "s-1"], ["0", "1"], {})
    assert session.bindings() == [] and session.streams() == ["a", "b"]
    with pytest.raises(ResourceNotFoundError):
        session.partitions("s")


BINDING = b'{"source": "%b", "queue": "", "key": "", "arguments": {}, "exchange": "%b"}'


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"\xff",
        b"[]",
        b'{"exchanges": [], "bindings": [], "format": 3}',
        b'{"exchanges": [{"name": "x", "kind": "strange"}], "bindings": [], "format": 2}',
        b'{"exchanges": [], "bindings": [%b], "format": 2}' % (BINDING % (b"gone", b"amq.topic")),
        b'{"exchanges": [], "bindings": [%b], "format": 2}' % (BINDING % (b"amq.topic", b"gone")),
    ],
)
def test_a_file_of_exchanges_that_is_wrong_is_an_error_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ".headgate" / "exchanges.json"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(LogError, match=r"exchanges\.json"):
        open_broker(tmp_path)


# super streams


def test_a_super_stream_is_an_exchange_with_partitions_in_order(tmp_path: Path) -> None:
    session = open_session(open_broker(tmp_path))
    names = [f"invoices-{number}" for number in range(12)]
    session.create_super_stream("invoices", names, [str(number) for number in range(12)], {"max-age": "1D"})
    session = open_session(open_broker(tmp_path))
    assert session.partitions("invoices") == names
    assert session.route_super_stream("invoices", "11") == ["invoices-11"]
    assert session.route_super_stream("invoices", "12") == []
    assert session.route("invoices", "3") == ["invoices-3"]
    assert session.stream_info("invoices-7").arguments == {"max-age": "1D"}
    session.delete_super_stream("invoices")
    assert session.streams() == []
    for command in (session.partitions, session.delete_super_stream):
        with pytest.raises(ResourceNotFoundError):
            command("invoices")
    with pytest.raises(ResourceNotFoundError):
        session.route_super_stream("invoices", "1")


def test_a_super_stream_made_of_a_declared_exchange_has_its_partitions_in_the_order_of_its_bindings(
    session: Session,
) -> None:
    session.declare_exchange("s", arguments={"x-super-stream": True})
    session.bind("s", "b", "0", {"x-stream-partition-order": 0})
    session.bind("s", "a", "1", {"x-stream-partition-order": 1})
    assert session.partitions("s") == ["b", "a"]


@pytest.mark.parametrize(
    ("name", "partitions", "keys", "error"),
    [
        ("x", ["s-0"], ["0"], ResourceExistsError),
        ("s", ["s-0", "a"], ["0", "1"], ResourceExistsError),
        ("s", ["s-0"], ["0", "1"], PreconditionFailedError),
        ("s", [], [], PreconditionFailedError),
        ("s", ["s-0", "s-0"], ["0", "1"], PreconditionFailedError),
        ("s", ["s-0", "amq.x"], ["0", "1"], ReservedNameError),
        ("", ["s-0"], ["0"], ReservedNameError),
    ],
)
def test_a_super_stream_that_cannot_be_leaves_nothing_behind(
    session: Session, name: str, partitions: list[str], keys: list[str], error: type[Exception]
) -> None:
    session.declare_exchange("x")
    with pytest.raises(error):
        session.create_super_stream(name, partitions, keys, {})
    assert session.streams() == ["a", "b"] and session.bindings() == []


def test_exchanges_bound_to_a_super_stream_are_no_partitions(session: Session) -> None:
    session.create_super_stream("s", ["s-0", "s-1"], ["0", "1"], {})
    session.bind_exchange("s", "amq.fanout", "0")
    assert session.partitions("s") == ["s-0", "s-1"]
    session.bind("amq.fanout", "a", "")
    assert session.route("s", "0") == ["s-0", "a"]


def test_an_exchange_that_is_always_there_is_not_deleted_with_the_streams_bound_to_it(session: Session) -> None:
    session.bind("amq.topic", "a", "#")
    with pytest.raises(ReservedNameError):
        session.delete_super_stream("amq.topic")
    assert session.streams() == ["a", "b"]


def test_partitions_may_share_a_key_and_the_super_stream_the_name_of_a_stream(session: Session) -> None:
    session.create_super_stream("a", ["a-0", "a-1", "a-2"], ["low", "low", "high"], {})
    assert session.route_super_stream("a", "low") == ["a-0", "a-1"]
    assert session.partitions("a") == ["a-0", "a-1", "a-2"]
    session.delete_super_stream("a")
    assert session.streams() == ["a", "b"]


def test_what_utf_8_cannot_say_is_refused_before_anything_is_made(session: Session) -> None:
    session.declare_exchange("x")
    for command in (
        lambda: session.declare_exchange("\udcff"),
        lambda: session.declare_exchange("y", durable=False, arguments={"\udcff": 1}),
        lambda: session.bind("x", "a", "\udcff"),
        lambda: session.bind("x", "a", "k", {"\udcff": 1}),
        lambda: session.bind("x", "a", "k", {"map": {"\udcff": 1}}),
        lambda: session.create_super_stream("s", ["s-0"], ["\udcff"], {}),
        lambda: session.create_super_stream("s", ["s-0"], ["0"], {"\udcff": "1"}),
        lambda: session.declare_stream("c", {"\udcff": "1"}),
    ):
        with pytest.raises(PreconditionFailedError, match=r"UTF-8|not kept"):
            command()
    assert not session.bindings("x") and session.streams() == ["a", "b"]
    session.delete_exchange("\udcff")
    session.unbind("x", "a", "\udcff")
    session.unbind("\udcff", "a", "key")
    session.unbind("x", "\udcff", "key")
    session.unbind_exchange("x", "\udcff", "key")


def test_wrong_arguments_of_a_super_stream_leave_nothing_behind(session: Session) -> None:
    with pytest.raises(PreconditionFailedError):
        session.create_super_stream("s", ["s-0", "s-1"], ["0", "1"], {"max-age": "never"})
    assert session.streams() == ["a", "b"]
