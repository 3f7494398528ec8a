#!/bin/sh
# polars over a dataset of pyarrow hands filters to pyarrow, which decides otherwise: `~is_in` gives rows whose column is
# null, and `> 5` loses rows with NaN, which polars puts above every number. The same filters over the same rows in memory
# keep polars' own rules. `scan_parquet` reads files by those rules, too.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check polars==2.1.0 pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

print("polars", pl.__version__, "pyarrow", pa.__version__)
rows = pa.table({"region": ["EMEA", "APAC", None], "price": [1.0, float("nan"), None]})
pq.write_table(rows, "rows.parquet")
for what, condition, expected in (
    ("~is_in(['EMEA'])", ~pl.col("region").is_in(["EMEA"]), (["APAC", None], ["APAC"])),
    ("price > 5", pl.col("price") > 5, ([], ["APAC"])),
):
    over_dataset, of_file = (
        frame.filter(condition).collect()["region"].to_list()
        for frame in (pl.scan_pyarrow_dataset(pa.dataset.dataset("rows.parquet")), pl.scan_parquet("rows.parquet"))
    )
    in_memory = pl.from_arrow(rows).filter(condition)["region"].to_list()
    print(f"{what}: over the dataset {over_dataset}, by scan_parquet {of_file}, in memory {in_memory}")
    assert (over_dataset, in_memory) == expected and of_file == in_memory
PYTHON
