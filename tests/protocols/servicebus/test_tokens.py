"""Shared-access signatures: what is signed, by whom, for how long."""

from __future__ import annotations

import pytest

from headgate.errors import AuthenticationError, ConfigError
from headgate.protocols.servicebus import parse_token
from servicebus_tokens import signed_token

SECRET = "SAS_KEY_VALUE"
NOW_MS = 1_700_000_000_000
TOKEN = signed_token("sb://localhost:5672/orders", "app", SECRET, expires_s=1_700_000_060)


def test_a_token_as_the_python_client_signs_it() -> None:
    # Computed by azure.servicebus 7.15.0 (ServiceBusSharedKeyCredential).
    assert TOKEN == (
        "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%3A5672%2Forders&sig="
        "xslDfk73Rsse4JInitO5qmw8Lcm2frEtrjXZ0mCerXI%3D&se=1700000060&skn=app"
    )


def test_a_token_is_checked_with_the_secrets_of_its_key() -> None:
    token = parse_token(TOKEN)
    assert (token.key_name, token.scope, token.expires_s) == ("app", "orders", 1_700_000_060)
    token.check(["other", SECRET], now_ms=NOW_MS)


@pytest.mark.parametrize("now_ms", [NOW_MS + 60_000, NOW_MS + 10**9])
def test_a_token_that_is_over_is_refused(now_ms: int) -> None:
    with pytest.raises(AuthenticationError):
        parse_token(TOKEN).check([SECRET], now_ms=now_ms)


@pytest.mark.parametrize("secrets", [[], ["other"], [SECRET.lower()]])
def test_a_token_of_another_secret_is_refused(secrets: list[str]) -> None:
    with pytest.raises(AuthenticationError):
        parse_token(TOKEN).check(secrets, now_ms=NOW_MS)


def test_a_token_that_is_altered_by_a_bit_is_refused() -> None:
    altered = 0
    for at in range(len("SharedAccessSignature "), TOKEN.index("&skn=")):
        for bit in range(7):
            text = TOKEN[:at] + chr(ord(TOKEN[at]) ^ 1 << bit) + TOKEN[at + 1 :]
            try:
                token = parse_token(text)
            except ConfigError:
                continue
            if token == parse_token(TOKEN):
                # The case of a percent-encoded digit in the signature.
                continue
            altered += 1
            with pytest.raises(AuthenticationError):
                token.check([SECRET], now_ms=NOW_MS)
    assert altered > 300


@pytest.mark.parametrize(
    "text", ["", "eyJhbGciOi", "SharedAccessSignature sr=a&sig=b&se=1", "SharedAccessSignature sr=a&sig=b&se=x&skn=k"]
)
def test_other_texts_are_no_tokens(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_token(text)


def test_the_signature_is_not_shown() -> None:
    assert parse_token(TOKEN).signature not in repr(parse_token(TOKEN))
