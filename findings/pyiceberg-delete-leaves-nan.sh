#!/bin/sh
# pyiceberg: `delete` with a filter leaves the row with NaN that a scan with the same filter finds.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pyiceberg[sql-sqlite,pyarrow]==0.12.0' pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import pyarrow as pa
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog

print("pyiceberg", pyiceberg.__version__)
catalog = SqlCatalog("c", uri="sqlite:///catalog.db", warehouse="file:warehouse")
catalog.create_namespace("n")
rows = pa.table({"p": [1.0, float("nan"), 7.0]})
table = catalog.create_table("n.t", schema=rows.schema)
table.append(rows)
found = table.scan(row_filter="p != 1.0").to_arrow()["p"].to_pylist()
table.delete("p != 1.0")
left = table.scan().to_arrow()["p"].to_pylist()
again = table.scan(row_filter="p != 1.0").to_arrow()["p"].to_pylist()
print(f"a scan with p != 1.0 finds {found}; after delete('p != 1.0') the table has {left}, and that scan finds {again}")
assert str((found, left)) == str(([float("nan"), 7.0], [1.0, float("nan")]))
PYTHON
