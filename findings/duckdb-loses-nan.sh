#!/bin/sh
# DuckDB over a Parquet file loses rows with NaN: it skips row groups by minimum and maximum, which do not count NaN, as
# the format asks. Over the same rows in memory they are found.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

print("duckdb", duckdb.__version__)
rows = pa.table({"p": [1.0, float("nan"), 0.5]})
pq.write_table(rows, "rows.parquet")
for question in ("isnan(p)", "p > 5"):
    over_file = duckdb.sql(f"SELECT count(*) FROM 'rows.parquet' WHERE {question}").fetchall()[0][0]
    in_memory = duckdb.sql(f"SELECT count(*) FROM rows WHERE {question}").fetchall()[0][0]
    print(f"{question}: {over_file} row over the file, {in_memory} in memory")
    assert (over_file, in_memory) == (0, 1)
PYTHON
