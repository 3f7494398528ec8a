"""Receipt handles, commit offsets and message ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import RemoteProtocolError
from headgate.protocols.rocketmq import (
    MAX_QUEUES,
    NOWHERE,
    ReceiptHandle,
    Status,
    first_place,
    host_bytes,
    message_id,
    numbered_place_of,
    place_of,
    receipt_handles,
)
from rocketmq_client import parse_message_id


@given(st.integers(0, 65535), st.binary(min_size=16, max_size=16))
def test_a_handle_comes_back(queue: int, token: bytes) -> None:
    text = ReceiptHandle(queue, token).encode("topic", "group")
    assert ReceiptHandle.decode(text, "topic", "group") == ReceiptHandle(queue, token)
    assert receipt_handles("topic", "group", queue, [token]) == [text]
    assert text.isascii() and len(text) == 31


@given(st.one_of(st.text(max_size=40), st.binary(max_size=40).map(lambda octets: octets.hex())))
def test_any_other_text_is_no_handle(text: str) -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        ReceiptHandle.decode(text, "topic", "group")
    assert refused.value.code == Status.INVALID_RECEIPT_HANDLE


def test_a_handle_of_another_topic_or_group_is_none() -> None:
    text = ReceiptHandle(1, bytes(16)).encode("topic", "group")
    for topic, group in (("topic", "other"), ("other", "group"), ("topicg", "roup")):
        with pytest.raises(RemoteProtocolError):
            ReceiptHandle.decode(text, topic, group)


@given(st.integers(0, MAX_QUEUES - 1), st.integers(0, 2**48 - 1))
def test_a_place_is_one_number(queue: int, offset: int) -> None:
    commit_offset = first_place(0, queue) + offset
    assert 0 <= commit_offset < 2**63
    assert place_of(commit_offset) == (queue, offset)
    assert numbered_place_of(commit_offset) is None


@given(st.integers(1, 2**17 - 1), st.integers(0, MAX_QUEUES - 1), st.integers(0, 2**45 - 1))
def test_a_place_of_a_stream_with_a_number_names_that(number: int, queue: int, offset: int) -> None:
    commit_offset = first_place(number, queue) + offset
    assert 0 <= commit_offset < 2**63
    assert numbered_place_of(commit_offset) == (number, offset)
    assert numbered_place_of(NOWHERE) == (0, 0)


def test_message_ids_are_the_original_s() -> None:
    commit_offset = first_place(0, 2) + 5
    text = message_id(host_bytes("127.0.0.1", 10911), commit_offset)
    assert text == "7F00000100002A9F0002000000000005"
    assert parse_message_id(text) == (bytes.fromhex("7F00000100002A9F"), commit_offset)
    long = message_id(host_bytes("::1%eth0", 1), 3)
    assert len(long) == 56
    assert parse_message_id(long.lower()) == (host_bytes("::1", 1), 3)
