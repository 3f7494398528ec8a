"""`headgate user`: the users of a server, in the file of a root or over HTTP of a running server.

On a terminal a new password is asked for; elsewhere it is the first line of standard input. It is never an option.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from headgate.cli.options import AsJson, secret_line
from headgate.cli.output import write_rows
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from headgate.client import Management

commands = App(name="user", help="Users of a server: passwords, tags, permissions.")

Name = Annotated[str, Parameter(help="Name of the user.")]
Configure = Annotated[str | None, Parameter(help="Pattern of names that may be declared and deleted, such as ^orders.")]
Write = Annotated[str | None, Parameter(help="Pattern of names that may be published to.")]
Read = Annotated[str | None, Parameter(help="Pattern of names that may be consumed from.")]
UsersFile = Annotated[
    Path | None, Parameter(name="--users-file", help="Users in a file of their own, as the configuration says.")
]


@commands.command
def add(
    name: Name,
    /,
    *,
    tag: Annotated[
        list[str] | None, Parameter(negative=(), help="administrator or monitoring, or one of your own. Repeatable.")
    ] = None,
    configure: Configure = None,
    write: Write = None,
    read: Read = None,
    users_file: UsersFile = None,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Add a user; without patterns it may do nothing yet."""
    from headgate.errors import ResourceExistsError

    users = _users(location, users_file, makes_root=True)
    if any(row["name"] == name for row in users.users()):
        raise ResourceExistsError("there is such a user already", subject=name)
    permissions = {"configure": configure or "", "write": write or "", "read": read or ""}
    users.put_user(name, {"password": _new_password(name), "tags": tag or [], "permissions": permissions})
    return 0


@commands.command
def rm(name: Name, /, *, users_file: UsersFile = None, location: Location = DEFAULT_LOCATION) -> int:
    """Remove a user; connections that it has stay until they end."""
    _users(location, users_file).delete_user(name)
    return 0


@commands.command
def ls(*, as_json: AsJson = False, users_file: UsersFile = None, location: Location = DEFAULT_LOCATION) -> int:
    """List users with their tags and permissions."""
    rows = _users(location, users_file).users()
    if not as_json:
        rows = [{**row, "tags": ", ".join(row["tags"])} for row in rows]
    write_rows(rows, ("name", "tags", "configure", "write", "read"), as_json=as_json, nothing="there are no users")
    return 0


@commands.command(name="password")
def change_password(name: Name, /, *, users_file: UsersFile = None, location: Location = DEFAULT_LOCATION) -> int:
    """Give a user another password."""
    users = _users(location, users_file)
    _row(users, name)
    users.put_user(name, {"password": _new_password(name)})
    return 0


@commands.command
def permit(
    name: Name,
    /,
    *,
    configure: Configure = None,
    write: Write = None,
    read: Read = None,
    users_file: UsersFile = None,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Change the permissions of a user; omitted patterns stay. An empty pattern allows nothing."""
    given = {"configure": configure, "write": write, "read": read}
    if set(given.values()) == {None}:
        raise ConfigError("give at least one of --configure, --write, --read")
    users = _users(location, users_file)
    row = _row(users, name)
    permissions = {key: row[key] if pattern is None else pattern for key, pattern in given.items()}
    users.put_user(name, {"permissions": permissions})
    return 0


class _FileUsers:
    """The users in a file, with the calls of `Management`; a missing file gets the default user, as at a server."""

    def __init__(self, path: Path) -> None:
        from headgate.broker import Users
        from headgate.server import Authentication

        self._users = Users(path, default_user=Authentication().default_user)

    def users(self) -> list[dict[str, Any]]:
        from headgate.server import user_rows

        return list(user_rows(self._users))

    def put_user(self, name: str, change: Mapping[str, object]) -> None:
        import msgspec

        from headgate.server import UserChange, change_user

        change_user(self._users, name, msgspec.convert(change, UserChange))

    def delete_user(self, name: str) -> None:
        self._users.remove(name)


def _users(location: Location, users_file: Path | None, *, makes_root: bool = False) -> _FileUsers | Management:
    if not location.is_server:
        from headgate.log import check_root, private_folder

        if users_file is not None:
            return _FileUsers(users_file)
        if not makes_root:
            check_root(location.root)
        return _FileUsers(private_folder(location.root) / "users.json")
    if users_file is not None:
        raise ConfigError("--users-file and --server: found together, expected one of them")
    return location.management()


def _row(users: _FileUsers | Management, name: str) -> dict[str, Any]:
    from headgate.errors import ResourceNotFoundError

    rows = {row["name"]: row for row in users.users()}
    if name not in rows:
        raise ResourceNotFoundError(f"no such user{did_you_mean(name, rows)}", subject=name)
    return rows[name]


def _new_password(name: str) -> str:
    if sys.stdin.isatty():
        import getpass

        given = getpass.getpass(f"New password of {name}: ")
        if given != getpass.getpass("Again: "):
            raise ConfigError("the two passwords differ")
        if not given:
            raise ConfigError("found no password")
        return given
    return secret_line("password")
