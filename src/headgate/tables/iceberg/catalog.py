"""The catalog of a table, and the errors of catalogs and the storage behind them."""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from headgate.errors import ConfigError, HeadgateError, SinkError, did_you_mean, how_to_install
from headgate.log import PRIVATE_FOLDER, Stream

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

OWN_NAMESPACE = "headgate"
STREAM_PROPERTY = "headgate.stream"
"""Property of a table and of its snapshots: the identity of the stream."""
NAME_PROPERTY = "headgate.stream-name"
OFFSETS_PROPERTY = "headgate.offsets"
"""Property of a snapshot: the offsets that it added."""
PUBLISHED_PROPERTY = "headgate.published"
"""Property of a snapshot that added something, and of the table: all offsets that were ever added."""
REPLACED_PROPERTY = "headgate.replaced"
"""Property of a snapshot: the offsets whose data files it replaced."""
REMOVED_PROPERTY = "headgate.removed-below"
"""Property of a snapshot: the offset below which it no longer has data files."""

_OWN_CATALOG = "headgate"
_OWN_FOLDER = "iceberg"

Identifier: TypeAlias = tuple[str, ...]
"""Namespaces and name of a table."""


@dataclass(frozen=True, slots=True)
class CatalogLocation:
    """A catalog by its name in pyiceberg's configuration; without a name the SQLite one beside the streams of `root`.

    `properties` are added to the configured ones, and override them.
    """

    root: Path
    name: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"catalog {self.name!r}" if self.name else f"catalog {self._own_folder / 'catalog.db'}"

    @property
    def _own_folder(self) -> Path:
        return self.root.absolute() / PRIVATE_FOLDER / _OWN_FOLDER

    def holds(self, table: Table) -> bool:
        """Whether a table lies beside the streams, as all do that were made there."""
        return table.location().startswith(f"file://{self._own_folder}/")

    @contextlib.contextmanager
    def opened(self) -> Iterator[Catalog]:
        """The catalog, to use inside; errors of pyiceberg and of the storage become SinkErrors that name it.

        Raises ConfigError if pyiceberg is not installed, or does not know the catalog.
        """
        if importlib.util.find_spec("pyiceberg") is None:
            raise ConfigError(f"tables need the package pyiceberg: {how_to_install('iceberg')}")
        with self._telling():
            catalog = self._load()
            try:
                yield catalog
            finally:
                catalog.close()

    def _load(self) -> Catalog:
        from pyiceberg.catalog import list_catalogs, load_catalog

        if self.name is None:
            self._own_folder.mkdir(parents=True, exist_ok=True)
            own = {
                "type": "sql",
                "uri": f"sqlite:///{self._own_folder / 'catalog.db'}",
                "warehouse": f"file://{self._own_folder}",
            }
            return load_catalog(_OWN_CATALOG, **{**own, **self.properties})
        known = list_catalogs()
        if self.name.lower() not in known and not self.properties:
            raise ConfigError(
                f"--catalog: pyiceberg knows no catalog {self.name!r}{did_you_mean(self.name, known)}; describe it in "
                "~/.pyiceberg.yaml, or by --property, as in --property uri=http://localhost:8181"
            )
        return load_catalog(self.name, **self.properties)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except HeadgateError:
            raise
        except Exception as error:
            # The exceptions of pyiceberg have no base of their own, and catalogs, drivers and storage add theirs.
            raise SinkError(f"{self}: {type(error).__name__}: {error}") from error


def identifier_of(stream: Stream, table: str | None) -> Identifier:
    """The table of a stream: the given `namespace.name`, or by default `headgate.<name of the stream>`.

    Characters that other programs would not take in a name become `_`. Raises ConfigError for a text that names no
    table.
    """
    if table is None:
        return OWN_NAMESPACE, re.sub(r"[^A-Za-z0-9_]", "_", stream.name)
    parts = tuple(table.split("."))
    if len(parts) < 2 or not all(parts):
        raise ConfigError(f"--table: found {table!r}, expected NAMESPACE.NAME")
    return parts


def shown(identifier: Identifier) -> str:
    """A table as people write it."""
    return ".".join(identifier)


def check_is_of(table: Table, stream: Stream, place: CatalogLocation) -> None:
    """Raise ConfigError for a table of another stream, or of none, or of a root that this one was copied from."""
    if place.name is None and "warehouse" not in place.properties and not place.holds(table):
        raise ConfigError(
            f"{place} has a table that lies in {table.location()}: these streams were moved or copied with their "
            "tables, which know where they lie; remove that catalog, and publish anew"
        )
    of = table.properties.get(STREAM_PROPERTY)
    if of == stream.identity:
        return
    name = shown(table.name())
    whose = "of no stream" if of is None else f"of stream {table.properties.get(NAME_PROPERTY, of)!r} ({of})"
    raise ConfigError(
        f"--table: {name} in {place} is {whose}, not of {stream.name!r} ({stream.identity}); name another table"
    )
