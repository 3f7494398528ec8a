#!/bin/sh
# polars reads no column at all of a Parquet file that has a VARIANT column, not even another one by its name.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check polars==2.1.0 duckdb==2.0.1 pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import duckdb
import polars
import pyarrow.parquet as pq

print("polars", polars.__version__, "duckdb", duckdb.__version__)
duckdb.sql("COPY (SELECT 1 AS n, {'a': 1}::VARIANT AS v) TO 'rows.parquet' (FORMAT parquet)")
print("pyarrow:", pq.read_table("rows.parquet", columns=["n"]).to_pylist())
try:
    polars.scan_parquet("rows.parquet").select("n").collect()
    raise SystemExit("polars reads it")
except polars.exceptions.ComputeError as error:
    print("polars:", type(error).__name__, error)
    assert "LogicalType union has no variant set" in str(error)
PYTHON
