"""Jars that tests need, kept in the environment: fetched by Spark as it fetches `spark.jars.packages`, checked by hash.

Run as a program it fetches what is missing; `make test` does so.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

FOLDER = Path(sys.prefix) / "jars"

JARS = {
    "org.xerial:sqlite-jdbc:3.54.1.0": "f8dce420a6016278497f4f0560f65602b9db858de141b541cf91a4644ebe4639",
}
"""Packages and the SHA-256 of their jars."""

SQLITE = "org.xerial:sqlite-jdbc:3.54.1.0"


def jar_of(package: str) -> Path:
    """Where the jar of a package lies, once it is fetched."""
    return FOLDER / "{}_{}-{}.jar".format(*package.split(":"))


def fits(package: str) -> bool:
    """Whether the jar of a package is there, with the bytes that it should have."""
    jar = jar_of(package)
    return jar.exists() and hashlib.sha256(jar.read_bytes()).hexdigest() == JARS[package]


def main() -> None:
    """Fetch what is missing; ends with status 1 where that cannot be done or gives other bytes."""
    missing = [package for package in JARS if not fits(package)]
    if not missing:
        return
    from headgate.spark import session

    with tempfile.TemporaryDirectory() as fetched:
        packages = {"spark.jars.packages": ",".join(missing), "spark.jars.ivy": fetched}
        session("jars", master="local[1]", config=packages).stop()
        FOLDER.mkdir(exist_ok=True)
        for package in missing:
            shutil.copy(Path(fetched) / "jars" / jar_of(package).name, FOLDER)
    refused = [package for package in missing if not fits(package)]
    if refused:
        for package in refused:
            jar_of(package).unlink()
        sys.exit(f"not the jar that was expected: {', '.join(refused)}")


if __name__ == "__main__":
    main()
