"""Shared-access signatures as clients of Service Bus make them."""

from __future__ import annotations

import base64
import hmac
import urllib.parse


def signed_token(resource: str, key_name: str, secret: str, *, expires_s: int) -> str:
    """A token for a resource, such as `sb://localhost/orders`."""
    encoded = urllib.parse.quote_plus(resource)
    digest = hmac.digest(secret.encode(), f"{encoded}\n{expires_s}".encode(), "sha256")
    signature, name = urllib.parse.quote_plus(base64.b64encode(digest)), urllib.parse.quote_plus(key_name)
    return f"SharedAccessSignature sr={encoded}&sig={signature}&se={expires_s}&skn={name}"
