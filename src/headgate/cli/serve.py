"""`headgate serve`: the broker, over one root folder."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headgate.cli.output import write_line
from headgate.errors import ConfigError


def serve(
    *,
    root: Annotated[
        Path | None,
        Parameter(env_var="HEADGATE_ROOT", help="Folder that holds the streams; made if it is not there."),
    ] = None,
    config: Annotated[Path | None, Parameter(help="Configuration in TOML.")] = None,
    in_memory: Annotated[
        bool,
        Parameter(
            negative=(),
            help="For tests: keep everything in a temporary folder, which is removed at the end. TMPDIR says where.",
        ),
    ] = False,
) -> int:
    """Serve the streams of a folder to clients of RabbitMQ, Azure Service Bus and RocketMQ.

    Without a configuration: `headgate-data`, AMQP 1.0 and 0.9.1 on port 5672, streams on 5552, STOMP on 61613,
    administration of Service Bus on 5300, RocketMQ's gRPC on 8081 and its classic protocol on 9876 and 10911, and the
    console, health, metrics and lists on 15672. Keys of the configuration can be set as
    HEADGATE_SERVER__TABLE__KEY. Writes one line with `ready` when every listener accepts, and logs to standard error.
    SIGTERM or Ctrl-C stops it: what was accepted is written and confirmed first.
    """
    from headgate.log import unflushed
    from headgate.server import load_settings
    from headgate.server import serve as serve_until_stopped
    from headgate.temporary import Purpose, TemporaryFolder

    if in_memory and root is not None and str(root) != os.environ.get("HEADGATE_ROOT"):
        raise ConfigError(f"found --in-memory and --root {root}, expected one of them")

    def ready(line: str) -> None:
        write_line(line)
        sys.stdout.flush()

    with contextlib.ExitStack() as ending:
        if in_memory:
            root = ending.enter_context(TemporaryFolder(Purpose.SERVER))
            ending.enter_context(unflushed(root))
        serve_until_stopped(load_settings(config, os.environ, root=root), ready=ready)
    return 0
