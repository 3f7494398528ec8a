"""Credentials as clients send them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import RemoteProtocolError
from headgate.protocols.sasl import (
    MAX_CREDENTIAL_BYTES,
    Anonymous,
    ByToken,
    External,
    Mechanism,
    Plain,
    is_known,
    parse_initial,
    plain_response,
)

AMQPLAIN_GUEST = b"\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x06secret"


def test_plain_carries_user_and_password() -> None:
    assert parse_initial("PLAIN", b"\0guest\0secret") == Plain("guest", "secret")
    assert parse_initial("PLAIN", b"someone\0guest\0") == Plain("guest", "")
    assert parse_initial("PLAIN", plain_response("ü", "pässword")) == Plain("ü", "pässword")


def test_amqplain_carries_a_table_without_its_length() -> None:
    assert parse_initial("AMQPLAIN", AMQPLAIN_GUEST) == Plain("guest", "secret")


def test_external_and_anonymous_carry_a_name_or_nothing() -> None:
    assert parse_initial("EXTERNAL", b"") == External("")
    assert parse_initial("EXTERNAL", b"alice") == External("alice")
    assert parse_initial("ANONYMOUS", b"\xff anything") == Anonymous()
    assert parse_initial("MSSBCBS", b"") == ByToken()


@pytest.mark.parametrize(
    ("mechanism", "data", "reason"),
    [
        ("PLAIN", b"guest", "0 NUL bytes"),
        ("PLAIN", b"\0guest\0a\0b", "3 NUL bytes"),
        ("PLAIN", b"\0\xff\0secret", "UTF-8"),
        ("PLAIN", b"\0a\0" + b"x" * MAX_CREDENTIAL_BYTES, "limit"),
        ("AMQPLAIN", b"", "LOGIN and PASSWORD"),
        ("AMQPLAIN", AMQPLAIN_GUEST[:-1], "behind the data"),
        ("AMQPLAIN", AMQPLAIN_GUEST[:20], "long strings"),
        ("AMQPLAIN", b"\x05LOGINI\x00\x00\x00\x05guest", "long strings"),
        ("EXTERNAL", b"\xff", "UTF-8"),
        ("SCRAM-SHA-256", b"", "not known"),
        ("plain", b"\0guest\0secret", "not known"),
    ],
)
def test_a_malformed_answer_is_refused_with_its_reason(mechanism: str, data: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        parse_initial(mechanism, data)


def test_neither_errors_nor_representations_show_a_secret() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parse_initial("PLAIN", b"\0guest\0top\0secret")
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(Plain("guest", "secret"))


@given(st.sampled_from(list(Mechanism)), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(mechanism: Mechanism, data: bytes) -> None:
    assert is_known(mechanism)
    with contextlib.suppress(RemoteProtocolError):
        assert isinstance(parse_initial(mechanism, data), Plain | External | Anonymous | ByToken)
