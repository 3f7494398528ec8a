#!/bin/sh
# DuckDB compares a JSON value with a whole number by rounding the JSON value first: for a price of 9.4, `= 9` and
# `IN (9, 12)` are true, and `> 9` is false. With `9.0` in place of `9` it compares what stands there.
# Cast the JSON value: `(body -> 'price')::DOUBLE > 9`.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import duckdb

print("duckdb", duckdb.__version__)
PRICE = "(body -> 'price')"
for price in ("9.4", "9.6"):
    found = {}
    for question in ("= 9", "IN (9, 12)", "> 9", "< 10", "> 9.0"):
        query = f"SELECT {PRICE} {question}, {PRICE}::DOUBLE {question} FROM (SELECT ?::JSON AS body)"
        found[question] = duckdb.execute(query, [f'{{"price": {price}}}']).fetchall()[0]
    print(f"price {price}, as JSON and as DOUBLE:", found)
    low = price == "9.4"
    assert found == {
        "= 9": (low, False),
        "IN (9, 12)": (low, False),
        "> 9": (not low, True),
        "< 10": (low, True),
        "> 9.0": (True, True),
    }
PYTHON
