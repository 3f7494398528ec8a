"""Parquet files that other readers may prune by the footer without losing rows.

A reader skips a row group by the least and greatest value of a column, its dictionary or its Bloom filter. With two
floating-point values, NaN and −0.0, that loses rows. NaN is above all numbers for Spark, DuckDB and polars, while
minimum and maximum pass over it: `price > 5` or `isnan(price)` do not find it. −0.0 equals 0.0, and is another entry of
a dictionary and another hash: `price = 0.0` does not find it. So here a column with such a value has none of the three.

The constant −0.0 itself, by which Spark does not find 0.0 in a dictionary, is left alone: 0.0 is too common a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


class ParquetWriter:
    """Writes a file row group by row group, with the options of `pyarrow.parquet.ParquetWriter`.

    Those options hold for a whole file. A first such value after row groups that have none has these written again
    without what is said of the column, one after the other: at most once for each column of floats.
    """

    def __init__(self, path: str | Path, schema: pa.Schema, **options: Any) -> None:
        self._path = Path(path)
        self._schema = schema
        self._options = options
        self._leaves = _leaves(schema)
        self._odd: set[str] = set()
        self._writer = self._open()
        self._has_rows = False

    def write(self, table: pa.Table) -> None:
        """Write a row group."""
        odd = {
            path
            for batch in table.to_batches()
            for path, array in zip(self._leaves, _flat(batch.columns), strict=True)
            if path not in self._odd and _has_odd(array)
        }
        if odd:
            self._odd |= odd
            self._begin_again()
        self._writer.write_table(table, row_group_size=max(1, len(table)))
        self._has_rows = True

    def add_key_value_metadata(self, metadata: dict[str, str] | dict[bytes, bytes]) -> None:
        """Put keys and values into the footer; with no row group behind."""
        self._writer.add_key_value_metadata(metadata)

    def close(self) -> None:
        """Write the footer; again without effect."""
        self._writer.close()

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> Any:
        import pyarrow.parquet as pq

        options = dict(self._options)
        for name in ("use_dictionary", "write_statistics"):
            options[name] = self._without_odd(options.get(name, True))
        blooms = options.get("bloom_filter_options") or {}
        options["bloom_filter_options"] = {name: each for name, each in blooms.items() if name not in self._odd} or None
        return pq.ParquetWriter(self._path, self._schema, **options)

    def _without_odd(self, wanted: bool | Sequence[str]) -> bool | list[str]:
        if isinstance(wanted, bool):
            if not wanted or not self._odd:
                return wanted
            wanted = self._leaves
        return [path for path in wanted if path not in self._odd]

    def _begin_again(self) -> None:
        import pyarrow.parquet as pq

        self._writer.close()
        with self._path.open("rb") as before:
            self._path.unlink()
            self._writer = self._open()
            if not self._has_rows:
                return
            with pq.ParquetFile(before) as written:
                for number in range(written.num_row_groups):
                    group = written.read_row_group(number).cast(self._schema)
                    self._writer.write_table(group, row_group_size=max(1, len(group)))


def _leaves(schema: pa.Schema) -> list[str]:
    """The paths of the columns of a file, in its order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    columns = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata.schema
    return [columns.column(place).path for place in range(len(columns))]


def _flat(arrays: Iterable[pa.Array]) -> list[pa.Array]:
    """The leaf arrays, each of which becomes a column of a file; a nested array gives its inner arrays."""
    import pyarrow as pa

    found: list[pa.Array] = []
    for array in arrays:
        if isinstance(array, pa.ExtensionArray):
            found += _flat([array.storage])
        elif pa.types.is_struct(array.type):
            found += _flat(array.flatten())
        elif pa.types.is_map(array.type):
            found += _flat([array.keys, array.items])
        elif pa.types.is_dictionary(array.type):
            found += _flat([array.dictionary])
        elif pa.types.is_nested(array.type):
            found += _flat([array.flatten()])
        else:
            found.append(array)
    return found


def _has_odd(array: pa.Array) -> bool:
    """Whether NaN or −0.0 is among the values."""
    import pyarrow as pa

    if not pa.types.is_floating(array.type):
        return False
    values = array.drop_null().cast(pa.float64()).to_numpy(zero_copy_only=False)
    return bool((np.isnan(values) | ((values == 0) & np.signbit(values))).any())
