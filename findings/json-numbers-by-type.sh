#!/bin/sh
# A number of JSON read as a type that it does not fit: 1.5 as a 64-bit integer is null (Spark's from_json), 1 (Spark's
# try_variant_get, polars), 2 (DuckDB) or an error (pyarrow). Even 1.0, as many programs write whole numbers, is null in
# from_json and an error in pyarrow. A decimal type does not save the digits: polars, and DuckDB's `->` and `->>`, go
# through a double, while DuckDB's from_json, Spark's and pyarrow keep them.
# Read as DOUBLE or DECIMAL by from_json, and cast then; send amounts as text or in cents.
# Needs Java 17 or newer. Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 duckdb==2.0.1 polars==2.1.0 pyarrow==26.0.1
cd "$folder"
PYSPARK_PYTHON="$folder/venv/bin/python" "$folder/venv/bin/python" - <<'PYTHON'
import io

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.json
import pyspark
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
TYPES = {"BIGINT": (pl.Int64, pa.int64()), "DECIMAL(30,2)": (pl.Decimal(30, 2), pa.decimal128(30, 2))}


def by_pyarrow(text: str, kind: pa.DataType) -> object:
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema([("n", kind)]))
    try:
        return pyarrow.json.read_json(io.BytesIO(text.encode()), parse_options=options)["n"][0].as_py()
    except pa.ArrowInvalid:
        return "an error"


def readings(number: str, kind: str) -> dict[str, str]:
    text = f'{{"n":{number}}}'
    in_polars, in_pyarrow = TYPES[kind]
    by_spark = spark.sql(
        f"SELECT from_json('{text}', 'n {kind}').n AS a, try_variant_get(parse_json('{text}'), '$.n', '{kind}') AS b"
    ).first()
    by_duckdb = f"SELECT from_json(?, '{{\"n\": \"{kind}\"}}').n, (?::JSON -> 'n')::{kind}, (?::JSON ->> 'n')::{kind}"
    values = (
        *by_spark,
        *duckdb.execute(by_duckdb, [text] * 3).fetchall()[0],
        pl.Series([text]).str.json_decode(pl.Struct({"n": in_polars}))[0]["n"],
        by_pyarrow(text, in_pyarrow),
    )
    names = ("Spark from_json", "Spark Variant", "DuckDB from_json", "DuckDB ->", "DuckDB ->>", "polars", "pyarrow")
    return dict(zip(names, map(str, values), strict=True))


print("pyspark", pyspark.__version__, "duckdb", duckdb.__version__, "polars", pl.__version__, "pyarrow", pa.__version__)
EXACT = "12345678901234567.89"
for number, kind, expected in (
    ("1.5", "BIGINT", ["None", "1", "2", "2", "2", "1", "an error"]),
    ("1.0", "BIGINT", ["None", "1", "1", "1", "1", "1", "an error"]),
    (EXACT, "DECIMAL(30,2)", [EXACT, EXACT, EXACT, "12345678901234568.00", "12345678901234568.00", EXACT[:-2] + "68", EXACT]),
):
    found = readings(number, kind)
    print(f"{number} as {kind}: {found}")
    assert list(found.values()) == expected
spark.stop()
PYTHON
