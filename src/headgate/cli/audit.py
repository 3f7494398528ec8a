"""`headgate audit`: who changed what, when, and from where."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from cyclopts import Parameter, validators

from headgate.cli.options import AsJson
from headgate.cli.output import json_cell, write_rows
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.cli.units import duration_ms
from headgate.clock import now_ms, shown_time
from headgate.errors import StreamNotFoundError

_MOST = 500


def audit(
    *,
    since: Annotated[str | None, Parameter(help="Only the entries of this time back from now, such as 1h.")] = None,
    user: Annotated[str | None, Parameter(name="--by", help="Only what this user did.")] = None,
    action: Annotated[str | None, Parameter(help="Only this action: stream.delete; or all on one kind: rule.")] = None,
    count: Annotated[
        int, Parameter(name=("-n", "--count"), help="The last so many.", validator=validators.Number(gte=1, lte=_MOST))
    ] = 100,
    as_json: AsJson = False,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Show the last administrative changes: of a server over every protocol, for administrators; or of a folder.

    `headgate tail headgate.audit` follows them.
    """
    since_ms = None if since is None else now_ms() - duration_ms(since, option="--since")
    rows = _rows(location, since_ms=since_ms, user=user, action=action, limit=count)
    if not as_json:
        rows = [
            {
                "time": shown_time(row["timestamp_ms"]),
                **{name: row[name] for name in ("user", "protocol", "connection", "action", "subject", "outcome")},
                "detail": json_cell(row["detail"]),
            }
            for row in rows
        ]
    write_rows(rows, as_json=as_json, nothing="nothing is recorded, or nothing of that kind")
    return 0


def _rows(location: Location, **query: Any) -> list[dict[str, Any]]:
    if location.is_server:
        return location.management().audit(**query)
    from headgate.broker import AUDIT_STREAM, read_audit
    from headgate.log import check_root, resolve_stream

    check_root(location.root)
    try:
        stream = resolve_stream(AUDIT_STREAM, location.root)
    except StreamNotFoundError:
        return []
    return [msgspec.to_builtins(row) for row in read_audit(stream, **query)]
