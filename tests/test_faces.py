"""Faces of packages: what the check finds, and how a light face finds its names."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import faces
import pytest
import python_pages

from headgate.faces import lazy

LAZILY = """from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.log.stream import Stream
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
"""


@pytest.fixture(scope="module")
def sources() -> faces.Sources:
    """Headgate's own: they take seconds to parse."""
    return faces.Sources(faces.SOURCE)


def _faults(folder: Path, **modules: str) -> list[str]:
    """What the check says of the packages `log` (`stream`, `table`, `bloom/hash`) and `scan` with these texts."""
    texts = {
        "log/__init__": LAZILY,
        "log/stream": "class Stream: ...",
        "log/table": "ONE = 1",
        "log/bloom/__init__": "from headgate.log.bloom.hash import used\n__all__ = ['used']",
        "log/bloom/hash": "def hashed(): ...",
        "scan/__init__": "",
        "scan/cursor": "",
        **{name.replace("__", "/", 1).replace("/init", "/__init__"): text for name, text in modules.items()},
    }
    for name, text in texts.items():
        path = folder / "headgate" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    sources = faces.Sources(folder, {"headgate.log.table": "table"})
    return [
        fault.removeprefix(f"{folder}/headgate/")
        for fault in faces.faults(sources)
        if not fault.endswith("no other package imports it")
    ]


@pytest.mark.slow  # `make layers` looks at them, too.
def test_the_packages_keep_to_their_faces(sources: faces.Sources) -> None:
    assert faces.faults(sources) == []


@pytest.mark.parametrize(
    "text",
    [
        "from headgate.log import Stream",
        "from headgate import log",
        "import headgate.log",
        "from headgate.log.table import ONE",
        "from headgate.log import table",
        "from headgate.scan.stage import anything",
    ],
)
def test_a_face_an_exception_and_the_own_inside_may_be_imported(tmp_path: Path, text: str) -> None:
    assert _faults(tmp_path, scan__cursor=text) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("from headgate.log.stream import Stream", "headgate.log.stream: Stream, past the face headgate.log"),
        ("from headgate.log import stream", "headgate.log.stream, past the face headgate.log"),
        ("import headgate.log.stream", "headgate.log.stream, past the face headgate.log"),
        ("from headgate.log import Writer", "headgate.log: Writer, past the face headgate.log"),
        ("def late():\n  from headgate.log.stream import A", "headgate.log.stream: A, past the face headgate.log"),
        ("from headgate.log.bloom.hash import A", "headgate.log.bloom.hash: A, past the face headgate.log.bloom"),
        ("from headgate import __version__", "the root, which lies above every package"),
        ("import headgate", "the root, which lies above every package"),
    ],
)
def test_an_import_past_a_face_is_found(tmp_path: Path, text: str, what: str) -> None:
    line = text.count("\n") + 1
    assert _faults(tmp_path, scan__cursor=text) == [f"scan/cursor.py:{line} imports {what}"]


def test_the_inside_of_a_part_with_a_face_is_closed_to_its_package(tmp_path: Path) -> None:
    found = _faults(tmp_path, log__stream="from headgate.log.bloom.hash import hashed\nclass Stream: ...")
    assert found == ["log/stream.py:1 imports headgate.log.bloom.hash: hashed, past the face headgate.log.bloom"]


def test_a_part_with_a_face_may_import_the_inside_of_its_package(tmp_path: Path) -> None:
    (tmp_path / "headgate" / "log" / "bloom").mkdir(parents=True)
    (tmp_path / "headgate" / "log" / "bloom" / "bits.py").write_text("from headgate.log.stream import Stream")
    assert _faults(tmp_path) == []


def test_a_light_face_does_not_offer_a_name_of_a_module_lazily(tmp_path: Path) -> None:
    found = _faults(tmp_path, log__init=LAZILY.replace("Stream", "table"))
    assert found == [
        "log/__init__.py imports table lazily, which is also a module of the package: import it at once",
    ]


def test_a_light_face_offers_what_it_imports_at_once_too(tmp_path: Path) -> None:
    eager = f"from headgate.log.plan import plan\nfrom headgate.errors import Error\n{LAZILY}"
    assert _faults(tmp_path, log__init=eager, scan__cursor="from headgate.log import plan") == []
    found = _faults(tmp_path, log__init=eager, scan__cursor="from headgate.log import Error")
    assert found == ["scan/cursor.py:1 imports headgate.log: Error, past the face headgate.log"]


def test_an_exception_for_nothing_is_found(tmp_path: Path) -> None:
    _faults(tmp_path, scan__cursor="import headgate.log")
    found = faces.faults(faces.Sources(tmp_path, {"headgate.log.table": "table"}))
    assert found == ["headgate.log.table is in EXCEPTIONS and no other package imports it"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A package with a light face over one module."""
    folder = tmp_path / "light_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(LAZILY.replace("headgate.log.stream", "light_package.inside"))
    (folder / "inside.py").write_text("class Stream: ...")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("light_package", "light_package.inside"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("light_package")


def test_a_light_face_imports_a_module_when_a_name_is_asked_for(package: types.ModuleType) -> None:
    assert "Stream" in dir(package)
    assert package.__all__ == ["Stream"]
    assert "light_package.inside" not in sys.modules
    assert package.Stream is importlib.import_module("light_package.inside").Stream
    assert vars(package)["Stream"] is package.Stream


def test_a_light_face_has_no_other_names(package: types.ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'light_package' has no attribute 'Writer'"):
        package.Writer  # noqa: B018
    get, _ = lazy("light_package")
    with pytest.raises(AttributeError):
        get("__wrapped__")


def test_every_name_of_every_light_face_is_there(sources: faces.Sources) -> None:
    for name, face in sources.faces.items():
        if not name.startswith("headgate.spark"):
            package = importlib.import_module(name)
            assert [one for one in face if not hasattr(package, one)] == []
            assert set(face) == set(getattr(package, "__all__", ()))


def test_page_of_the_python_packages_is_what_their_faces_offer() -> None:
    written = (python_pages.PAGES / "python.md").read_text(encoding="utf-8")
    assert written == python_pages.python_page(), "run: make docs"
