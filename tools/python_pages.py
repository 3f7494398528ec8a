"""Writes docs/reference/python.md: every name that the packages for users offer, from signatures and docstrings.

python tools/python_pages.py            write the page
python tools/python_pages.py --check    exit status 1 if it is not what would be written

The source is read and not imported, so the page needs no Spark.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

from faces import SOURCE, offered
from key_tables import write_pages

PAGES = Path(__file__).parent.parent / "docs" / "reference"
PACKAGES = ("headgate", "headgate.client", "headgate.spark", "headgate.testing")

_HEAD = """<!-- Written by tools/python_pages.py from the code; `make docs`. -->
# The Python packages

What `headgate` offers to programs, name by name. Examples are on [filters and rules in Python](../howto/python.md),
[publishing and consuming](../howto/client.md), [reading without Spark](../howto/read-without-spark.md),
[Spark](../howto/pipeline.md) and [tests of applications](../howto/test-an-application.md). Errors are one tree, drawn
at the top of [`headgate.errors`](../../src/headgate/errors.py). Other packages may change without notice.
"""

Definition = ast.ClassDef | ast.FunctionDef
WIDTH = 100
"""A signature that is longer has a line for each parameter."""


def python_page() -> str:
    """The page of all packages for users."""
    parts = [_HEAD]
    for package in PACKAGES:
        parts += [f"## `{package}`\n", _docstring(_tree(package))]
        for name in sorted(offered(package, _tree(package)), key=str.lower):
            found = _definition(package, name)
            if found is not None:
                parts += [f"### `{package}.{name}`\n", *_described(found)]
    return "\n".join(parts)


def _definition(module: str, name: str) -> Definition | None:
    """The class or function that a name of a module is, wherever it is defined; None for a constant."""
    tree = _tree(module)
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("headgate."):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _definition(str(node.module), alias.name)
    return None


@functools.cache
def _tree(module: str) -> ast.Module:
    path = SOURCE.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(source.read_text(encoding="utf-8"))


def _described(node: Definition) -> Iterator[str]:
    """Signature, docstring, and of a class its public attributes, properties and methods."""
    if isinstance(node, ast.FunctionDef):
        yield f"```python\n{_signature(node)}\n```\n"
        yield _docstring(node)
        return
    yield from (
        f"```python\n{_signature(each, node.name)}\n```\n"
        for each in node.body
        if isinstance(each, ast.FunctionDef) and each.name == "__init__"
    )
    yield _docstring(node)
    attributes = list(_attributes(node))
    if attributes:
        yield "| | type | |\n| --- | --- | --- |\n" + "\n".join(attributes) + "\n"
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_") and not _is_property(each):
            yield f"```python\n{_decorator(each)}{_signature(each)}\n```\n"
            yield _docstring(each)


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    """A row for each public field and property, with the docstring below the field or in the property."""
    for each, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id[0] != "_":
            meaning = after.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
            yield _row(each.target.id, each.annotation, "" if meaning is None else str(meaning.value))
        elif isinstance(each, ast.FunctionDef) and _is_property(each) and not each.name.startswith("_"):
            yield _row(each.name, each.returns, ast.get_docstring(each) or "")


def _row(name: str, kind: ast.expr | None, meaning: str) -> str:
    shown = "" if kind is None else f"`{ast.unparse(kind)}`"
    return (
        f"| `{name}` | {shown.replace('|', chr(92) + '|')} | {' '.join(meaning.split()).replace('|', chr(92) + '|')} |"
    )


def _is_property(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(each) in ("property", "functools.cached_property") for each in node.decorator_list)


def _decorator(node: ast.FunctionDef) -> str:
    kinds = [ast.unparse(each) for each in node.decorator_list]
    return "".join(f"@{kind}\n" for kind in kinds if kind in ("classmethod", "staticmethod"))


def _signature(node: ast.FunctionDef, name: str = "") -> str:
    """The head of a function without `self`, on one line or with a line for each parameter; of a class with a name."""
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args]
    if named and named[0].arg in ("self", "cls"):
        arguments = ast.arguments(
            posonlyargs=arguments.posonlyargs[1:],
            args=arguments.args if arguments.posonlyargs else arguments.args[1:],
            vararg=arguments.vararg,
            kwonlyargs=arguments.kwonlyargs,
            kw_defaults=arguments.kw_defaults,
            kwarg=arguments.kwarg,
            defaults=arguments.defaults,
        )
    returns = "" if name or node.returns is None else f" -> {ast.unparse(node.returns)}"
    parameters = list(_parameters(arguments))
    line = f"{name or node.name}({', '.join(parameters)}){returns}"
    if len(line) <= WIDTH:
        return line
    rows = "".join(f"    {each},\n" for each in parameters)
    return f"{name or node.name}(\n{rows}){returns}"


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    without = len(positional) - len(arguments.defaults)
    for number, each in enumerate(positional):
        yield _parameter(each, arguments.defaults[number - without] if number >= without else None)
        if each is (arguments.posonlyargs or [None])[-1]:
            yield "/"
    if arguments.vararg is not None:
        yield "*" + _parameter(arguments.vararg, None)
    elif arguments.kwonlyargs:
        yield "*"
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(each, default)
    if arguments.kwarg is not None:
        yield "**" + _parameter(arguments.kwarg, None)


def _parameter(parameter: ast.arg, default: ast.expr | None) -> str:
    kind = "" if parameter.annotation is None else f": {ast.unparse(parameter.annotation)}"
    return f"{parameter.arg}{kind}" + ("" if default is None else f" = {ast.unparse(default)}")


def _docstring(node: ast.Module | Definition) -> str:
    """The docstring as Markdown: indented lines stay as they are, and are code there, too."""
    return (ast.get_docstring(node) or "") + "\n"


def main() -> int:
    """Write the page, or check it."""
    return write_pages(PAGES, {"python.md": python_page}, only_check="--check" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
