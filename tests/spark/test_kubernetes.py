"""The settings of examples/cluster against the Spark that is installed: a wrong name is passed over in silence."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pyspark
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "cluster"
SETTING = re.compile(rb"(spark\.kubernetes\.[A-Za-z.]+|\.[A-Za-z]+)")
_PREFIX = "spark.kubernetes."


def constants() -> set[str]:
    """What may be names of settings in Spark's classes for Kubernetes, and last parts of names."""
    (jar,) = (Path(pyspark.__path__[0]) / "jars").glob("spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as classes:
        names = [name for name in classes.namelist() if name.endswith(".class")]
        return {found.decode() for name in names for found in SETTING.findall(classes.read(name))}


@pytest.mark.parametrize("name", ["kubernetes.conf", "connect.yaml"])
def test_spark_knows_the_settings_of_kubernetes(name: str) -> None:
    settings = re.findall(r"spark\.kubernetes\.[A-Za-z.]+", (FOLDER / name).read_text(encoding="utf-8"))
    known = constants()
    prefixes = [each for each in known if each.startswith(_PREFIX) and each != _PREFIX]

    def is_known(setting: str) -> bool:
        """A whole name; or one that begins with a name and a dot, or is put together of two."""
        rests = [(each, setting.removeprefix(each)) for each in prefixes if setting.startswith(each)]
        return any(not rest or each.endswith(".") or rest in known for each, rest in rests)

    assert len(settings) >= 5
    assert [setting for setting in settings if not is_known(setting)] == []
