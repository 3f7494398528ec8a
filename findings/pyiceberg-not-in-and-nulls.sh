#!/bin/sh
# pyiceberg: a scan with `not in` of two values gives rows whose column is null; of one value, and with `!=`, it does not.
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
rows = pa.table({"s": ["a", "b", None, "c"]})
table = catalog.create_table("n.t", schema=rows.schema)
table.append(rows)
for text, expected in (("s not in ('a')", ["b", "c"]), ("s != 'a'", ["b", "c"]), ("s not in ('a', 'b')", [None, "c"])):
    found = table.scan(row_filter=text).to_arrow()["s"].to_pylist()
    print(f"{text}: {found}")
    assert found == expected
PYTHON
