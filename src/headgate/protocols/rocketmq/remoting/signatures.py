"""How clients with an access key sign their requests: fields `AccessKey` and `Signature` of the header.

The signature is the HMAC-SHA1, in base64, of the values of all other fields in the order of their names, and the body.
Source: `AclClientRPCHook` and `AclUtils` of the original's client.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from headgate.protocols.rocketmq.remoting.frames import Command

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
_ADDED_LATER = "_UNIQUE_KEY_QUERY"
"""Clients put this field in when they have signed."""


def is_signed(command: Command, secrets: tuple[str, ...]) -> bool:
    """Whether a request is signed with one of the secrets of its key."""
    given = command.fields.get(SIGNATURE, "").encode("utf-8", "replace")
    texts = [_text(command, without=(SIGNATURE,))]
    if _ADDED_LATER in command.fields:
        texts.append(_text(command, without=(SIGNATURE, _ADDED_LATER)))
    return any(hmac.compare_digest(_signature(text, secret), given) for secret in secrets for text in texts)


def sign(command: Command, key: str, secret: str) -> None:
    """Sign a request, as clients do."""
    command.fields = {**command.fields, ACCESS_KEY: key}
    command.fields[SIGNATURE] = _signature(_text(command, without=(SIGNATURE,)), secret).decode()


def _signature(text: bytes, secret: str) -> bytes:
    return base64.b64encode(hmac.digest(secret.encode(), text, hashlib.sha1))


def _text(command: Command, *, without: tuple[str, ...]) -> bytes:
    values = (command.fields[name] for name in sorted(command.fields) if name not in without)
    body = command.body
    whole = bytes(body) if isinstance(body, bytes | bytearray | memoryview) else b"".join(body)
    return "".join(values).encode("utf-8", "replace") + whole
