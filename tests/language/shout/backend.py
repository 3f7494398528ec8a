"""Builds the wheel with the standard library alone, so that a test can install it anywhere and without a network."""

from __future__ import annotations

import tomllib
import zipfile
from pathlib import Path
from typing import Any


def build_wheel(wheel_directory: str, _settings: object = None, _metadata: object = None) -> str:
    """Write the wheel of the folder beside this file; its name."""
    here = Path(__file__).parent
    project: dict[str, Any] = tomllib.loads((here / "pyproject.toml").read_text())["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    metadata = {
        "METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: backend\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "\n".join(points),
    }
    files = {path.relative_to(here / "src").as_posix(): path.read_text() for path in (here / "src").rglob("*.py")}
    files |= {f"{stem}.dist-info/{name}": text for name, text in metadata.items()}
    record = f"{stem}.dist-info/RECORD"
    files[record] = "".join(f"{name},,\n" for name in (*files, record))
    with zipfile.ZipFile(Path(wheel_directory) / f"{stem}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return f"{stem}-py3-none-any.whl"
