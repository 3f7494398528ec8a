"""Which bytes are no AMQP message: the same answer as `headgate.message.check`, which is the rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import MessageError
from headgate.evaluate.validity import malformed_rows
from headgate.message import EncodedMessages, check
from strategies import damaged_messages, encoded_messages


def is_message(data: bytes) -> bool:
    try:
        check(data)
    except MessageError:
        return False
    return True


@given(st.lists(encoded_messages() | damaged_messages() | st.binary(max_size=40), max_size=6))
def test_what_does_not_check_is_malformed(messages):
    batch = EncodedMessages.of(messages)
    assert malformed_rows(batch).tolist() == [row for row, data in enumerate(messages) if not is_message(data)]


def test_sections_named_by_symbols_are_sections():
    described = b"\0\xa3\x18amqp:amqp-value:*"[:2] + b"\x11amqp:amqp-value:*" + b"\x40"
    batch = EncodedMessages.of([described, described.replace(b"value", b"other"), b""])
    assert malformed_rows(batch).tolist() == [1]
