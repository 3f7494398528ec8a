"""`headgate job`: long work that a server does for its users."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from headgate.cli.options import AsJson
from headgate.cli.output import write_facts, write_json, write_rows
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.errors import ConfigError

commands = App(name="job", help="Long work that a server does, such as resubmission: list it, cancel it.")

JobId = Annotated[str, Parameter(help="Id of the job.")]

_LISTED = ("id", "kind", "subject", "user", "state", "done", "total", "failed", "error")


@commands.command
def ls(*, as_json: AsJson = False, location: Location = DEFAULT_LOCATION) -> int:
    """List the jobs that run, and the last that ended; after a restart of the server there are none."""
    rows = _server(location).management().topics.jobs()
    write_rows(rows, () if as_json else _LISTED, as_json=as_json, nothing="there are no jobs")
    return 0


@commands.command
def cancel(job: JobId, /, *, as_json: AsJson = False, location: Location = DEFAULT_LOCATION) -> int:
    """Let a job begin nothing more; what it did stays done."""
    row = _server(location).management().topics.cancel_job(job)
    if as_json:
        write_json(row)
    else:
        write_facts({name: row[name] for name in _LISTED})
    return 0


def _server(location: Location) -> Location:
    if not location.is_server:
        raise ConfigError("jobs are those of a server: give --server")
    return location
