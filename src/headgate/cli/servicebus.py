"""`headgate servicebus`: topics and queues from the configuration of Microsoft's emulator, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from headgate.cli.options import LockTimeout
from headgate.cli.output import json_cell, write_line, write_note
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.errors import ConfigError

commands = App(name="servicebus", help="Topics and queues for clients of Azure Service Bus.")


@commands.command(name="import")
def import_(
    file: Annotated[Path, Parameter(help="Configuration of the Service Bus emulator, in JSON.")],
    /,
    *,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Make the queues, topics, subscriptions and rules of an emulator's configuration.

    What is there already is changed to what the file says; what the file does not name stays. A file with anything
    wrong in it, an unknown FilterType or a filter that is refused, changes nothing.
    """
    from headgate.broker import EntityDeclaration, from_emulator, in_steps

    try:
        declared = from_emulator(file.read_bytes())
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    with location.topics(lock_timeout_s=lock_timeout, makes_root=True) as topics:
        there = [EntityDeclaration.of(row).name for row in topics.entities()]
        for each in in_steps(declared, there):
            topics.declare_entity(each.name, msgspec.to_builtins(each))
    subscriptions = sum(len(each.subscriptions) for each in declared)
    queues = sum(each.settings.kind == "queue" for each in declared)
    write_note(f"{queues} queues, {len(declared) - queues} topics, {subscriptions} subscriptions are as {file} says")
    return 0


@commands.command
def export(*, lock_timeout: LockTimeout = 5.0, location: Location = DEFAULT_LOCATION) -> int:
    """Write all topics and queues as a configuration of the Service Bus emulator.

    Refused where that has no words for a rule. Authorization rules and backoffs are left out.
    """
    from headgate.broker import EntityDeclaration, to_emulator

    with location.topics(lock_timeout_s=lock_timeout) as topics:
        declared = [EntityDeclaration.of(row) for row in topics.entities()]
    write_line(msgspec.json.format(json_cell(to_emulator(declared)), indent=2))
    return 0
