#!/bin/sh
# Of two equal keys in a JSON object, which one counts? Four functions of one Spark session give three answers: the first
# (get_json_object), the last (json_tuple, from_json), none (try_parse_json). DuckDB takes the first, polars the last.
# Needs Java 17 or newer. Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 duckdb==2.0.1 polars==2.1.0
cd "$folder"
PYSPARK_PYTHON="$folder/venv/bin/python" "$folder/venv/bin/python" - <<'PYTHON'
import duckdb
import polars
import pyspark
from pyspark.sql import SparkSession

TEXT = '{"a":1,"a":2}'
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
row = spark.sql(
    f"""SELECT get_json_object(t, '$.a') AS get_json_object, from_json(t, 'a STRING').a AS from_json,
    cast(try_parse_json(t) AS STRING) AS try_parse_json, tuple AS json_tuple
    FROM (SELECT '{TEXT}' AS t) LATERAL VIEW json_tuple(t, 'a') AS tuple"""
).first()
spark.stop()
found = row.asDict()
found["duckdb"] = duckdb.execute("SELECT json_extract_string(?, '$.a')", [TEXT]).fetchall()[0][0]
found["polars"] = polars.Series([TEXT]).str.json_path_match("$.a")[0]
print("pyspark", pyspark.__version__, "duckdb", duckdb.__version__, "polars", polars.__version__)
print(TEXT, found)
assert found == {
    "get_json_object": "1",
    "json_tuple": "2",
    "from_json": "2",
    "try_parse_json": None,
    "duckdb": "1",
    "polars": "2",
}
PYTHON
