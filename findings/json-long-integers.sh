#!/bin/sh
# An integer of JSON beyond 64 bits: Python's json, msgspec and polars' read_ndjson keep it; orjson, pyarrow and DuckDB's
# read_json make a double of it, without an error; ClickHouse makes a text. In DuckDB and pyarrow the one long integer
# makes doubles of the whole column, so ids of other rows lose their last digits.
# Give the type of the column (DuckDB: HUGEINT; pyarrow: a decimal), or send ids as text.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    orjson==3.13.0 msgspec==0.22.0 polars==2.1.0 duckdb==2.0.1 pyarrow==26.0.1 chdb==4.4.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import io
import json
from importlib.metadata import version

import chdb
import duckdb
import msgspec
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.json

print(*(f"{name} {version(name)}" for name in ("orjson", "msgspec", "polars", "duckdb", "pyarrow", "chdb")))
ID, LONG = 2**53 + 1, 2**64 + 1
TEXT = f'{{"id":{ID}}}\n{{"id":{LONG}}}\n'
LINES = TEXT.encode().splitlines()
with open("rows.json", "w") as file:
    file.write(TEXT)


def by_pyarrow(*parse_options: object) -> list[object]:
    return pyarrow.json.read_json(io.BytesIO(TEXT.encode()), None, *parse_options)["id"].to_pylist()


as_decimals = pyarrow.json.ParseOptions(explicit_schema=pa.schema([("id", pa.decimal128(30, 0))]))
in_clickhouse = chdb.query("SELECT j.id FROM file('rows.json', JSONAsObject, 'j JSON')", "JSONCompactEachRow").data()
found = {
    "json": [json.loads(line)["id"] for line in LINES],
    "msgspec": [msgspec.json.decode(line)["id"] for line in LINES],
    "polars": pl.read_ndjson(io.BytesIO(TEXT.encode()))["id"].to_list(),
    "orjson": [orjson.loads(line)["id"] for line in LINES],
    "DuckDB": [row[0] for row in duckdb.sql("SELECT id FROM 'rows.json'").fetchall()],
    "DuckDB, HUGEINT": [row[0] for row in duckdb.sql("SELECT id FROM read_json('rows.json', columns={id: 'HUGEINT'})").fetchall()],
    "pyarrow": by_pyarrow(),
    "pyarrow, decimal": by_pyarrow(as_decimals),
    "ClickHouse": [json.loads(line)[0] for line in in_clickhouse.splitlines()],
}
for name, values in found.items():
    print(f"{name}: {values}")
KEPT, DOUBLES = [ID, LONG], [float(ID), float(LONG)]
expected = dict.fromkeys(found, KEPT) | {"orjson": [ID, float(LONG)], "ClickHouse": [ID, str(LONG)]}
expected |= {"DuckDB": DOUBLES, "pyarrow": DOUBLES}
assert found == expected
assert [type(value) for value in found["DuckDB"] + found["pyarrow"]] == [float] * 4
PYTHON
