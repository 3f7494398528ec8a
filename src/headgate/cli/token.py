"""`headgate token`: tokens of a server's user, which scripts use in place of the password.

A token is shown when it is made and never again. Commands take it as `HEADGATE_TOKEN`, or wherever a password is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from headgate.cli.options import AsJson
from headgate.cli.output import write_facts, write_json, write_rows
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.clock import shown_time
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.client import Management

commands = App(name="token", help="Tokens of a server's user, for scripts in place of the password.")


@commands.command
def create(
    description: Annotated[str, Parameter(help="What the token is for.")],
    /,
    *,
    expires_in: Annotated[str | None, Parameter(help="After this time it ends, such as 90D or 12h.")] = None,
    read_only: Annotated[bool, Parameter(negative=(), help="It changes nothing, and is taken over HTTP only.")] = False,
    as_json: AsJson = False,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Make a token of the user, and show it, this once."""
    from headgate.cli.units import duration_ms

    expires_in_s = None if expires_in is None else -(-duration_ms(expires_in, option="--expires-in") // 1000)
    made = _management(location).create_token(description, expires_in_s=expires_in_s, read_only=read_only)
    if as_json:
        write_json(made)
    else:
        write_facts(made)
    return 0


@commands.command
def ls(*, as_json: AsJson = False, location: Location = DEFAULT_LOCATION) -> int:
    """List the user's tokens, or as an administrator all; without their texts."""
    rows = _management(location).tokens()
    if not as_json:
        rows = [
            {
                "id": row["id"],
                "user": row["user"],
                "description": row["description"],
                "created": shown_time(row["created_ms"]),
                "expires": "never" if row["expires_ms"] is None else shown_time(row["expires_ms"]),
                "may": "read" if row["read_only"] else "all that its user may",
            }
            for row in rows
        ]
    write_rows(rows, as_json=as_json, nothing="there are no tokens")
    return 0


@commands.command
def rm(
    token: Annotated[str, Parameter(name="ID", help="The token's id, as `token ls` shows it.")],
    /,
    *,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Revoke a token; connections of other protocols that it opened stay until they end."""
    _management(location).delete_token(token)
    return 0


def _management(location: Location) -> Management:
    if not location.is_server:
        raise ConfigError("give --server: a running server makes, lists and revokes tokens")
    return location.management()
