"""Frames: recorded ones of real clients and of RocketMQ 5.5 survive a round trip, and no bytes do harm."""

import json
import struct
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headgate.errors import RemoteProtocolError
from headgate.protocols.rocketmq.remoting import (
    Command,
    Flag,
    ProtocolViolation,
    RemotingConnection,
    RequestCode,
    Serialization,
)

RECORDED = [json.loads(line) for line in (Path(__file__).parent / "frames.jsonl").read_text().splitlines()]
FRAMES = [bytes.fromhex(each["frame"]) for each in RECORDED]
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
COMMANDS = st.builds(
    Command,
    code=st.integers(-(2**15), 2**15 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    fields=st.dictionaries(TEXTS.filter(bool), TEXTS.filter(bool), max_size=5),
    body=st.binary(max_size=40),
    remark=st.none() | TEXTS.filter(bool),
    language=st.integers(0, 13),
    version=st.integers(0, 1000),
    serialization=st.sampled_from(Serialization),
)


def sent(*commands: Command) -> bytes:
    connection = RemotingConnection()
    for command in commands:
        connection.send(command)
    return b"".join(connection.take_output())


def frame(header: bytes, *, kind: int = 0, length: int | None = None, total: int | None = None) -> bytes:
    length = len(header) if length is None else length
    total = 4 + len(header) if total is None else total
    return struct.pack(">II", total, kind << 24 | length) + header


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda each: f"{each['what']}-{each['request']}-{each['answer']}")
def test_what_real_peers_say_is_read_and_written_as_it_was(recorded):
    (command,) = RemotingConnection().receive(bytes.fromhex(recorded["frame"]))
    assert isinstance(command, Command)
    assert command.code == (recorded["request"] if recorded["answer"] is None else recorded["answer"])
    assert command.is_response == (recorded["what"] == "answer")
    assert RemotingConnection().receive(sent(command)) == [command]


@given(st.lists(COMMANDS, max_size=4))
def test_commands_survive_a_round_trip_in_both_forms_and_in_any_pieces(commands):
    data = sent(*commands)
    assert RemotingConnection().receive(data) == commands
    connection = RemotingConnection()
    assert [event for byte in data for event in connection.receive(bytes([byte]))] == commands


def test_recorded_frames_may_come_in_pieces_of_any_size():
    data = b"".join(FRAMES)
    whole = RemotingConnection().receive(data)
    for size in (3, 100, 1009):
        connection = RemotingConnection()
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        assert [event for piece in pieces for event in connection.receive(piece)] == whole


def test_an_answer_is_written_as_its_request_was():
    request = Command(code=34, opaque=7, serialization=Serialization.BINARY)
    answer = request.answer(0, fields={"offset": "5"}, body=[b"ab", memoryview(b"c")])
    (read,) = RemotingConnection().receive(sent(answer))
    assert read.serialization is Serialization.BINARY
    assert (read.opaque, read.flag, read.fields, read.body) == (7, Flag.RESPONSE, {"offset": "5"}, b"abc")


def test_values_that_are_no_texts_are_taken_as_what_they_say():
    header = (
        b'{"code":30,"language":9,"extFields":{"queueId":3,"committed":true,"nothing":null,"topic":"t"},"more":[{}]}'
    )
    (command,) = RemotingConnection().receive(frame(header))
    assert command.fields == {"queueId": "3", "committed": "true", "topic": "t"}
    assert command.language == 9


@pytest.mark.parametrize(
    "data",
    [
        frame(b"{}"),
        frame(b'{"code":99999999999}'),
        frame(b'{"code":1,"extFields":[]}'),
        frame(b'{"code":1,"extFields":' + b'{"a":' * 100_000),
        frame(b'{"code":1,"x":' + b"[" * 200_000),
        frame(b"\xff\xfe"),
        frame(b'{"code":1}', kind=2),
        frame(b'{"code":1}', length=11),
        frame(b'{"code":1}', length=2**24 - 1),
        frame(b'{"code":1,"r":"' + b"x" * 300_000 + b'"}'),
        frame(b"", total=3),
        frame(b"", total=2**31),
        frame(b"\0\x22\0\0\0\0\0\0\0\0\0\0\0", kind=1),
        frame(b"\0\x22\0\0\0\0\0\0\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\0", kind=1),
        frame(b"\0\x22\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\0\x01a\0\0\0\x09", kind=1),
        frame(b"\0\x22\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04\0\x01a\0\0\0\x01b", kind=1),
        frame(b"\0\x22\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\xff\0\0\0\0", kind=1),
    ],
)
def test_what_is_no_frame_ends_the_connection_and_nothing_is_read_behind_it(data):
    connection = RemotingConnection()
    first, violation = connection.receive(FRAMES[0] + data + FRAMES[1])
    assert isinstance(first, Command)
    assert isinstance(violation, ProtocolViolation)
    assert isinstance(violation.error, RemoteProtocolError)
    assert connection.receive(FRAMES[0]) == []


@given(st.sampled_from(FRAMES), st.data())
def test_a_mutated_frame_is_a_command_or_a_violation(whole, data):
    mutated = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(mutated)))
    at_once = RemotingConnection().receive(bytes(mutated))
    connection = RemotingConnection()
    in_two = [*connection.receive(bytes(mutated[:cut])), *connection.receive(bytes(mutated[cut:]))]
    assert [type(event) for event in in_two] == [type(event) for event in at_once]
    for event in at_once:
        assert isinstance(event, Command | ProtocolViolation)


def test_every_request_of_a_client_is_known():
    clients = {each["request"] for each in RECORDED if each["what"] == "request"}
    assert clients <= set(RequestCode)
