#!/bin/sh
# PySpark turns a Variant into Python's values (`VariantVal.toPython`, `toJson`) and rounds its decimals to 28 digits,
# although the Variant holds them whole, and Spark's own `to_json` over the same value shows them.
# Needs Java 17 or newer. Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0
cd "$folder"
PYSPARK_PYTHON="$folder/venv/bin/python" "$folder/venv/bin/python" - <<'PYTHON'
import decimal

import pyspark
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
TEXT = "1234567890123456789012345678.5"
row = spark.sql(f"SELECT v, to_json(v) AS json, schema_of_variant(v) AS kind FROM (SELECT parse_json('{TEXT}') AS v)").first()
with decimal.localcontext(decimal.Context(prec=40)):
    wide = row.v.toPython()
print("pyspark", pyspark.__version__)
print(f"{row.kind}: to_json {row.json}, in Python {row.v.toPython()}, with a context of 40 digits {wide}")
spark.stop()
assert row.kind == "DECIMAL(29,1)"
assert row.json == TEXT
assert row.v.toPython() == decimal.Decimal("1234567890123456789012345678")
assert row.v.toJson() == "1234567890123456789012345678"
assert str(wide) == TEXT
PYTHON
