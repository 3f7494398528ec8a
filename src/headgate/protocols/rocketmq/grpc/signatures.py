"""How clients with an access key sign their calls: the header `authorization`.

    MQv2-HMAC-SHA1 Credential=KEY[/…], SignedHeaders=x-mq-date-time, Signature=HEX

The signature is the HMAC-SHA1 of the header `x-mq-date-time` with the secret, in hexadecimal digits of either case.
Clients without a key send the header, too, with nothing behind `Credential=`. Source: rocketmq_wire, A1.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from headgate.errors import AuthenticationError

ALGORITHM = "MQv2-HMAC-SHA1"


@dataclass(frozen=True, slots=True)
class Signature:
    """The parts of the header."""

    key: str
    digest: bytes

    def check(self, secrets: Iterable[str], date_time: str) -> None:
        """Raise AuthenticationError unless one of the secrets signed the time."""
        signed = date_time.encode("utf-8", "replace")
        # All of them, so that the time that it takes tells nothing.
        right = [hmac.compare_digest(hmac.digest(each.encode(), signed, "sha1"), self.digest) for each in secrets]
        if not any(right):
            raise AuthenticationError("the signature is wrong, or there is no such access key")


def parse_signature(header: str) -> Signature | None:
    """The signature in a header; None for an empty header: the client has no key. Raises AuthenticationError."""
    kind, _, rest = header.strip().partition(" ")
    if not kind:
        return None
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    if kind != ALGORITHM or "Credential" not in parts:
        raise AuthenticationError(f"expected {ALGORITHM} Credential=…, SignedHeaders=…, Signature=… in `authorization`")
    key = parts["Credential"].partition("/")[0]
    if not key:
        return None
    try:
        digest = bytes.fromhex(parts.get("Signature", ""))
    except ValueError:
        digest = b""
    return Signature(key, digest)
