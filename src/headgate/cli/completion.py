"""`headgate --install-completion`: the shell completes commands and options."""

from __future__ import annotations

from typing import Annotated, Literal, cast, get_args

from cyclopts import App, Parameter

from headgate.cli.output import write_line, write_note
from headgate.errors import ConfigError

Shell = Literal["bash", "zsh", "fish"]


def add_completion(application: App) -> None:
    """Give an application the command that installs its completion."""

    def install_completion(
        *, shell: Annotated[Shell | None, Parameter(help="The shell; by default the one that runs this.")] = None
    ) -> int:
        """Let the shell complete commands and options: write its script and have it loaded when the shell starts.

        Prints the path of the script. Run it again after an update.
        """
        chosen = shell or _running_shell()
        write_line(str(application.install_completion(shell=chosen)))
        write_note(f"{chosen} completes the commands and options of headgate from its next start on")
        return 0

    application.command(install_completion, name="--install-completion")


def _running_shell() -> Shell:
    from cyclopts.completion.detect import ShellDetectionError, detect_shell

    found: str | None
    try:
        found = detect_shell()
    except ShellDetectionError:
        found = None
    if found not in get_args(Shell):
        raise ConfigError(f"--shell: found {found or 'no shell'}, expected {', '.join(get_args(Shell))}")
    return cast(Shell, found)
