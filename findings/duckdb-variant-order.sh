#!/bin/sh
# DuckDB compares numbers in a VARIANT by their type before their value: every double is greater than every integer.
# So `price > 9` is true for 1.5 and -3.5 of a JSON text, 9.0 is not equal to 9, and the largest of 1.5 and 12 is 1.5.
# A text is greater than every number. Cast the value: `TRY_CAST(v.price AS DOUBLE) > 9`.
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
duckdb.sql(
    """CREATE TABLE events AS SELECT t AS text, t::JSON::VARIANT AS v
    FROM (SELECT unnest(['{"price":1.5}', '{"price":-3.5}', '{"price":9}', '{"price":9.0}', '{"price":12}', '{"price":"x"}']) AS t)"""
)


def texts(condition: str) -> list[str]:
    return [row[0] for row in duckdb.sql(f"SELECT text FROM events WHERE {condition} ORDER BY rowid").fetchall()]


greater = texts("v.price > 9")
equal = texts("v.price = 9")
cast = texts("TRY_CAST(v.price AS DOUBLE) > 9")
largest = duckdb.sql("SELECT max(v.price) FROM events WHERE text IN ('{\"price\":1.5}', '{\"price\":12}')").fetchall()[0][0]
print("v.price > 9:", greater)
print("v.price = 9:", equal)
print("cast to DOUBLE, > 9:", cast)
print("max of 1.5 and 12:", largest)
assert greater == ['{"price":1.5}', '{"price":-3.5}', '{"price":9.0}', '{"price":12}', '{"price":"x"}']
assert equal == ['{"price":9}']
assert cast == ['{"price":12}']
assert largest == 1.5
PYTHON
