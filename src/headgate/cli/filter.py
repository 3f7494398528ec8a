"""`headgate filter`: is it right, what does it decide, does it still pass its tests."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from headgate.cli.options import AsJson, Dialect
from headgate.cli.output import write_json, write_line
from headgate.errors import FilterError

commands = App(name="filter", help="Check, explain and test filters.")


@commands.command
def check(
    text: Annotated[str, Parameter(help="The filter expression.", allow_leading_hyphen=True)],
    /,
    *,
    dialect: Dialect = None,
    as_json: AsJson = False,
) -> int:
    """Say whether a filter is accepted, or where it goes wrong."""
    from headgate.evaluate.filter import Filter
    from headgate.language import DEFAULT_DIALECT, dialect_named
    from headgate.language.printer import print_tree

    language = dialect_named(dialect or DEFAULT_DIALECT).name
    try:
        accepted = Filter.parse(text, language)
    except FilterError as error:
        if not as_json:
            raise
        write_json({"accepted": False, "dialect": language, "reason": error.reason, "span": error.span})
        return 1
    if as_json:
        write_json(
            {"accepted": True, "dialect": language, "bound": print_tree(accepted.tree), "uses_time": accepted.uses_time}
        )
    else:
        write_line(f"accepted as a {language} filter: {print_tree(accepted.tree)}")
    return 0
