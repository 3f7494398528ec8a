"""Shared-access signatures: a client signs an entity and an expiry time with the secret of a key.

    SharedAccessSignature sr=<resource>&sig=<signature>&se=<seconds since 1970>&skn=<key>

The signature is HMAC-SHA256, in base64, over the encoded resource, a line feed and the time, with the bytes of the
secret's text as key. Source: servicebus_wire, section 3.
"""

from __future__ import annotations

import base64
import hmac
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate.errors import AuthenticationError, ConfigError
from headgate.protocols.servicebus.addresses import relative

SCHEME = "SharedAccessSignature"

_FIELDS = ("sr", "sig", "se", "skn")
_MAX_TOKEN_CHARACTERS = 8192
_REFUSED = "the token has a wrong signature, is over, or names no key"
"""The text for every wrong token, whatever is wrong with it."""


@dataclass(frozen=True, slots=True)
class SharedAccessToken:
    """A token as it was sent: `resource` as it is encoded in it, `expires_s` seconds since 1970."""

    resource: str
    signature: str = field(repr=False)
    expires_s: int
    key_name: str

    @property
    def scope(self) -> str:
        """The path of the resource, empty for a whole namespace."""
        resource = urllib.parse.unquote_plus(self.resource)
        return relative(resource if "://" in resource else f"sb://{resource}")

    def check(self, secrets: Iterable[str], *, now_ms: int) -> None:
        """Raise AuthenticationError unless one of the secrets of its key signed it, and it has not expired."""
        wanted = self.signature.encode("utf-8", "surrogatepass")
        is_signed = False
        for secret in secrets:
            is_signed |= hmac.compare_digest(_signature(self.resource, self.expires_s, secret).encode(), wanted)
        if not is_signed or now_ms >= self.expires_s * 1000:
            raise AuthenticationError(_REFUSED)


def parse_token(text: str) -> SharedAccessToken:
    """The token in a text. Raises ConfigError for another text."""
    scheme, _, rest = text.partition(" ")
    if scheme.lower() != SCHEME.lower() or len(text) > _MAX_TOKEN_CHARACTERS:
        raise ConfigError(f"not a token: expected {SCHEME} sr=…&sig=…&se=…&skn=…")
    found = dict(pair.partition("=")[::2] for pair in rest.strip().split("&"))
    if any(name not in found for name in _FIELDS):
        raise ConfigError(f"not a token: expected the fields {', '.join(_FIELDS)}")
    expires = found["se"]
    if not (expires.isascii() and expires.isdecimal() and len(expires) < 16):
        raise ConfigError("not a token: se is no number of seconds")
    return SharedAccessToken(
        found["sr"],
        urllib.parse.unquote(found["sig"]),
        int(expires),
        urllib.parse.unquote_plus(found["skn"]),
    )


def _signature(resource: str, expires_s: int, secret: str) -> str:
    signed = f"{resource}\n{expires_s}".encode("utf-8", "surrogatepass")
    return base64.b64encode(hmac.digest(secret.encode(), signed, "sha256")).decode()
