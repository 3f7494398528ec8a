"""`headgate key`: access keys, whose secrets clients share with a server, in the file of a root.

Secrets are shown when they are made and never again. One that is given is the first line of standard input, never an
option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from headgate.cli.options import DEFAULT_ROOT, AsJson, Root, secret_line
from headgate.cli.output import write_facts, write_json, write_rows

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.broker import AccessKey, AccessKeys

commands = App(name="key", help="Access keys: secrets that clients share with a server, and what they allow.")

Name = Annotated[str, Parameter(help="Name of the key.")]
SecretStdin = Annotated[
    bool, Parameter(negative=(), help="Take the secret from the first line of standard input; else it is random.")
]


@commands.command
def add(
    name: Name,
    /,
    *,
    send: Annotated[str, Parameter(help="Pattern of entities that may be sent to, such as ^orders.")] = "",
    listen: Annotated[str, Parameter(help="Pattern of entities that may be received from.")] = "",
    manage: Annotated[str, Parameter(help="Pattern of entities that may be changed, sent to, received from.")] = "",
    secret_stdin: SecretStdin = False,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Add a key and show its two secrets, this once; without patterns it may do nothing."""
    from headgate.broker import KeyRights

    secret = secret_line("secret") if secret_stdin else None
    made = _keys(root, makes_root=True).add(name, KeyRights(send, listen, manage), secret=secret)
    _show(name, made, as_json=as_json)
    return 0


@commands.command
def ls(*, as_json: AsJson = False, root: Root = DEFAULT_ROOT) -> int:
    """List keys with their rights, without their secrets."""
    keys = _keys(root)
    rows = []
    for name in keys:
        rights = keys.get(name).rights
        rows.append({"name": name, "send": rights.send, "listen": rights.listen, "manage": rights.manage})
    write_rows(rows, as_json=as_json, nothing="there are no keys")
    return 0


@commands.command
def rotate(
    name: Name, /, *, secret_stdin: SecretStdin = False, as_json: AsJson = False, root: Root = DEFAULT_ROOT
) -> int:
    """Make a new primary secret and show it; the one before stays valid as the secondary until the next rotation."""
    secret = secret_line("secret") if secret_stdin else None
    _show(name, _keys(root).rotate(name, secret=secret), as_json=as_json)
    return 0


@commands.command
def rm(name: Name, /, *, root: Root = DEFAULT_ROOT) -> int:
    """Remove a key; connections that it opened stay until they end."""
    _keys(root).remove(name)
    return 0


def _keys(root: Path, *, makes_root: bool = False) -> AccessKeys:
    from headgate.broker import KEYS_NAME, AccessKeys
    from headgate.log import check_root, private_folder

    if not makes_root:
        check_root(root)
    return AccessKeys(private_folder(root) / KEYS_NAME)


def _show(name: str, key: AccessKey, *, as_json: bool) -> None:
    facts = {"name": name, "primary": key.primary, "secondary": key.secondary}
    if as_json:
        write_json(facts)
    else:
        write_facts(facts)
