"""Which sink gives which guarantee over restarts: the kinds that a pipeline knows (`docs/reference/sinks.md`).

A format that is not listed runs all the same; its guarantee depends on its connector, and is reported as `unknown`.
"""

from __future__ import annotations

import enum
import importlib.metadata
import importlib.util
import os
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import ConfigError, did_you_mean, how_to_install

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

HEADGATE = "headgate"
JDBC = "jdbc"
DELTA = "delta"
PARQUET = "parquet"


class Guarantee(enum.Enum):
    """The guarantee of a sink in mode append over runs that were killed anywhere and repeated."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"
    NONE = "none"
    UNKNOWN = "unknown"


KINDS: Mapping[str, Guarantee] = {
    HEADGATE: Guarantee.EXACTLY_ONCE,
    PARQUET: Guarantee.EXACTLY_ONCE,
    "orc": Guarantee.EXACTLY_ONCE,
    "json": Guarantee.EXACTLY_ONCE,
    "csv": Guarantee.EXACTLY_ONCE,
    "text": Guarantee.EXACTLY_ONCE,
    JDBC: Guarantee.EXACTLY_ONCE,
    DELTA: Guarantee.EXACTLY_ONCE,
    "iceberg": Guarantee.EXACTLY_ONCE,
    "kafka": Guarantee.AT_LEAST_ONCE,
    "console": Guarantee.NONE,
    "noop": Guarantee.NONE,
}
"""The formats whose guarantee is known; the page gives the reasons."""


WRITABLE = frozenset({*KINDS, "avro", "xml", "libsvm", "memory"})
"""The formats of Spark that can be written, and formats of known packages; in small letters."""

_BRINGING = re.compile("jar|class|extension|plugin|submit|files", re.IGNORECASE)
_BRINGING_VARIABLES = (
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CLASSPATH",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_HOME",
)


def check_format(name: str, spark: Mapping[str, str]) -> None:
    """Refuse a format to write that a session made here with the configuration `spark` cannot know.

    One that is no format of Spark may be a class, or come from a package: a jar of the configuration, the environment
    or Spark's own folder, or a Python package that Spark finds by its name.
    """
    if name.lower() in WRITABLE or "." in name or _formats_are_added(spark):
        return
    raise ConfigError(
        f"key format: found {name!r}, expected one of {', '.join(sorted(WRITABLE))}, or one of a package that the key "
        f"spark names (spark.jars.packages, spark.jars){did_you_mean(name, WRITABLE)}"
    )


def _formats_are_added(spark: Mapping[str, str]) -> bool:
    import pyspark

    home = Path(pyspark.__file__).parent
    own = {file.name for file in importlib.metadata.files("pyspark") or () if file.suffix == ".jar"}
    return (
        any(map(_BRINGING.search, spark))
        or any(map(os.environ.get, _BRINGING_VARIABLES))
        or any(module.name.startswith("pyspark_") and module.name != _OWN for module in pkgutil.iter_modules())
        or any(jar.name not in own for jar in home.glob("jars/*.jar"))
        or (home / "conf").exists()
    )


_OWN = "pyspark_headgate"


def guarantee_of(name: str) -> Guarantee:
    """The guarantee of a format; case in its name is ignored, as in Spark."""
    return KINDS.get(name.lower(), Guarantee.UNKNOWN)


def without_dictionaries_of_floats(schema: StructType) -> dict[str, str]:
    """Options of Spark's Parquet writer: no dictionary for columns of floats, nested ones too.

    Where a dictionary has −0.0 and no 0.0, Spark leaves out rows for which `= 0.0` is true. Everything else in Spark's
    footers about a column with NaN and −0.0 is right for every reader (`headgate.parquet` has the reasons).
    """
    return {f"parquet.enable.dictionary#{path}": "false" for path in _paths_of_floats(schema)}


def _paths_of_floats(kind: DataType, path: str = "") -> Iterator[str]:
    """The columns of floats as Parquet calls them."""
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StructType

    if isinstance(kind, DoubleType | FloatType):
        yield path
    elif isinstance(kind, StructType):
        for field in kind:
            yield from _paths_of_floats(field.dataType, f"{path}.{field.name}" if path else field.name)
    elif isinstance(kind, ArrayType):
        yield from _paths_of_floats(kind.elementType, f"{path}.list.element")
    elif isinstance(kind, MapType):
        yield from _paths_of_floats(kind.keyType, f"{path}.key_value.key")
        yield from _paths_of_floats(kind.valueType, f"{path}.key_value.value")


_TABLE = re.compile(r"[\w.\"`$]+")
_FOR_READING = ("query", "partitionColumn", "lowerBound", "upperBound", "predicates")


def check_jdbc_options(options: Mapping[str, str], keys: Sequence[str]) -> None:
    """Refuse options that name no table, or keys that name no column; ConfigError says which."""
    lowered = {name.lower(): value for name, value in options.items()}
    for name in ("url", "dbtable"):
        if not lowered.get(name):
            raise ConfigError(f"options: {name} is missing; a jdbc sink needs url and dbtable")
    for name in _FOR_READING:
        if name.lower() in lowered:
            raise ConfigError(f"options: {name} is for reading; a jdbc sink writes the table that dbtable names")
    if not _TABLE.fullmatch(lowered["dbtable"]):
        raise ConfigError(f"options: dbtable is {lowered['dbtable']!r}; expected the name of a table")
    if len(set(keys)) < len(keys) or not all(keys):
        raise ConfigError(f"key is {list(keys)}; expected names of columns, each once")


TAKEN_OVER = "another run writes this sink now; this one ends without writing its batch"
"""Why a run ends that a later run of the same sink has fenced off."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def local_folder(path: str) -> Path:
    """The folder that a path, or a URL with the scheme file, names; ConfigError for other URLs."""
    if path.startswith("file:"):
        path = re.sub("^file:(//)?", "", path)
    if not path or _SCHEME.match(path):
        raise ConfigError(f"path is {path!r}; a Delta table is written in a local folder, or one on shared storage")
    return Path(os.path.abspath(path))


def check_delta_sink(path: str | None, options: Mapping[str, str], partition_by: Sequence[str] | None) -> None:
    """Refuse a Delta sink without a folder, with options, or without the package; ConfigError says which."""
    if path is None:
        raise ConfigError("path: is missing; a delta sink needs the folder of the table")
    local_folder(path)
    if options:
        raise ConfigError(f"options: a delta sink has none, and {next(iter(options))} was given")
    if partition_by is not None and (len(set(partition_by)) < len(partition_by) or not all(partition_by)):
        raise ConfigError(f"partition_by is {list(partition_by)}; expected names of columns, each once")
    if importlib.util.find_spec("deltalake") is None:
        raise ConfigError(f"format delta needs the package deltalake: {how_to_install('delta')}")
