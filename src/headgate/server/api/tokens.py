"""Tokens for scripts: made, listed, revoked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from headgate.broker import LONGEST_DESCRIPTION
from headgate.errors import AccessRefusedError, ResourceNotFoundError
from headgate.server.api.rights import is_administrator
from headgate.server.context import ServerContext
from headgate.server.http import Answer, Call, Endpoint, Group

_LONGEST_S = 10 * 366 * 86_400


class TokenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a token is for, and its limits."""

    description: Annotated[str, msgspec.Meta(max_length=LONGEST_DESCRIPTION)]
    expires_in_s: Annotated[int, msgspec.Meta(ge=1, le=_LONGEST_S)] | None = None
    """After this time it is refused; without it, it does not expire."""
    read_only: bool = False
    """It is refused for requests that change something, and for other protocols than HTTP."""


class NewToken(msgspec.Struct, frozen=True):
    """A token; its text is shown this once."""

    id: str
    token: str


class TokenRow(msgspec.Struct, frozen=True):
    """A token, without its text."""

    id: str
    user: str
    description: str
    created_ms: int
    expires_ms: int | None
    read_only: bool


def token_group(context: ServerContext) -> Group:
    """The endpoints of tokens."""
    requests = _TokenRequests(context)
    return Group(
        "Tokens",
        "Tokens for scripts: `Authorization: Bearer TOKEN`. A token has the permissions of its user, at most.",
        (
            Endpoint(
                "GET",
                "tokens",
                "The user's own tokens, or all with the tag `administrator`; without their texts.",
                requests.listed,
                answer=list[TokenRow],
            ),
            Endpoint(
                "POST",
                "tokens",
                "Makes a token of the user; its text is shown this once. Refused to a request by a token.",
                requests.create,
                body=TokenBody,
                example={"description": "nightly report", "expires_in_s": 86400, "read_only": True},
                answer=NewToken,
                statuses=(201,),
                action="token.create",
            ),
            Endpoint(
                "DELETE",
                "tokens/{token}",
                "Revokes a token, by its id.",
                requests.revoke,
                permission="the user's own tokens, or the tag `administrator`",
                statuses=(204,),
                action="token.delete",
            ),
        ),
    )


class _TokenRequests:
    def __init__(self, context: ServerContext) -> None:
        self._users = context.broker.users
        self._clock = context.clock

    async def listed(self, call: Call) -> Answer:
        return Answer(list(self._rows(call.user)))

    def _rows(self, user: str) -> Iterator[TokenRow]:
        sees_all = is_administrator(self._users, user)
        for name, token in self._users.tokens.all(now_ms=self._clock.now_ms()):
            if sees_all or token.user == user:
                yield TokenRow(name, token.user, token.description, token.created_ms, token.expires_ms, token.read_only)

    async def create(self, call: Call) -> Answer:
        if call.identity is not None and call.identity.token is not None:
            # It could outlive the token that made it.
            raise AccessRefusedError("a token makes no tokens: log in with the password")
        body: TokenBody = call.body
        now_ms = self._clock.now_ms()
        expires_ms = None if body.expires_in_s is None else now_ms + 1000 * body.expires_in_s
        name, text = self._users.tokens.create(
            call.user, body.description, now_ms=now_ms, expires_ms=expires_ms, read_only=body.read_only
        )
        return Answer(NewToken(name, text), 201, made=name)

    async def revoke(self, call: Call) -> Answer:
        name = call.names["token"]
        tokens = self._users.tokens
        # Of others' tokens a user does not learn that they are there.
        if tokens.get(name).user != call.user and not is_administrator(self._users, call.user):
            raise ResourceNotFoundError("no such token", subject=name)
        tokens.revoke([name])
        return Answer(status=204)
