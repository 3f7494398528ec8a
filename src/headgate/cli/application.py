"""The application: its commands, and the handling of errors."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from headgate.cli import columns as columns_commands
from headgate.cli import consumer as consumer_commands
from headgate.cli import filter as filter_commands
from headgate.cli import index as index_commands
from headgate.cli import job as job_commands
from headgate.cli import kernels as kernels_commands
from headgate.cli import key as key_commands
from headgate.cli import lookup as lookup_commands
from headgate.cli import rocketmq as rocketmq_commands
from headgate.cli import rule as rule_commands
from headgate.cli import servicebus as servicebus_commands
from headgate.cli import stream as stream_commands
from headgate.cli import subscription as subscription_commands
from headgate.cli import table as table_commands
from headgate.cli import token as token_commands
from headgate.cli import topic as topic_commands
from headgate.cli import user as user_commands
from headgate.cli.audit import audit
from headgate.cli.backup import backup
from headgate.cli.completion import add_completion
from headgate.cli.export import export
from headgate.cli.generate import generate
from headgate.cli.mcp import mcp
from headgate.cli.output import tell_compiling, write_note
from headgate.cli.publish import publish
from headgate.cli.run import run
from headgate.cli.serve import serve
from headgate.cli.tail import tail
from headgate.cli.why import why
from headgate.errors import AuthenticationError, ConfigError, HeadgateError
from headgate.version import __version__

WHO_ASKS = "--user and --password say who asks, or HEADGATE_USER and HEADGATE_PASSWORD; HEADGATE_TOKEN alone does, too"


class ExitStatus(enum.IntEnum):
    """The exit status of the process."""

    DONE = 0
    FAILED = 1
    """A correct command failed: because of data, streams, rules, a server or the machine."""
    WRONG_USAGE = 2
    """The command line, or a configuration file that it names, is wrong in itself."""
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


application = App(
    name="headgate",
    version=__version__,
    help="Streams with filters: a Spark data pipeline whose storage is a broker's log.",
    suppress_keyboard_interrupt=False,
)
application.command(stream_commands.commands)
application.command(tail)
application.command(why)
application.command(mcp)
application.command(export)
application.command(backup)
application.command(publish)
application.command(filter_commands.commands)
application.command(topic_commands.commands)
application.command(subscription_commands.commands)
application.command(rule_commands.commands)
application.command(servicebus_commands.commands)
application.command(rocketmq_commands.commands)
application.command(columns_commands.commands)
application.command(table_commands.commands)
application.command(lookup_commands.commands)
application.command(index_commands.commands)
application.command(consumer_commands.commands)
application.command(job_commands.commands)
application.command(audit)
application.command(user_commands.commands)
application.command(token_commands.commands)
application.command(key_commands.commands)
application.command(kernels_commands.commands)
application.command(run)
application.command(serve)
application.command(generate)
add_completion(application)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line, by default the process's; gives the exit status and raises nothing of Headgate's."""
    tell_compiling()
    try:
        status = application(
            arguments, exit_on_error=False, print_error=True, result_action="return_int_as_exit_code_else_zero"
        )
        sys.stdout.flush()
    except CycloptsError:
        return ExitStatus.WRONG_USAGE
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":
            raise
        # Bytes of an argument that are not UTF-8 are single surrogates to Python, and no name or text here has any.
        write_note(f"headgate: {error.object!a}: found bytes that are no UTF-8")
        return ExitStatus.WRONG_USAGE
    except AuthenticationError as error:
        write_note(f"headgate: {error}; {WHO_ASKS}")
        return ExitStatus.FAILED
    except HeadgateError as error:
        write_note(f"headgate: {error}")
        return ExitStatus.WRONG_USAGE if isinstance(error, ConfigError) else ExitStatus.FAILED
    except BrokenPipeError:
        # The reader went away, as `head` does. What is still buffered must not raise again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.OUTPUT_CLOSED
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        write_note(f"headgate: {where}{error.strerror or error}")
        return ExitStatus.FAILED
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED
    return int(status)
