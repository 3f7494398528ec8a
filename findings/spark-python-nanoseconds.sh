#!/bin/sh
# Spark 4.3 has timestamps of nanoseconds where spark.sql.timestampNanosTypes.enabled is set, and its Python cannot name
# their type: schema and collect of such a column end in an error, while the JVM has both. Needs Java 17 or newer.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0
cd "$folder"
PYSPARK_PYTHON="$folder/venv/bin/python" "$folder/venv/bin/python" - <<'PYTHON'
import pyspark
from pyspark.errors import PySparkValueError
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.timestampNanosTypes.enabled", "true").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rows = spark.sql("SELECT CAST('2026-01-02 00:00:00.123456789' AS TIMESTAMP_NTZ(9)) AS t")
in_the_jvm = rows._jdf.schema().simpleString()
as_text = rows.selectExpr("CAST(t AS STRING) AS t").collect()[0].t
print("pyspark", pyspark.__version__)
print(f"in the JVM: {in_the_jvm}, and as text {as_text}")
refused = []
for what, ask in (("schema", lambda: rows.schema), ("collect", rows.collect)):
    try:
        ask()
    except PySparkValueError as error:
        refused.append(what)
        print(f"{what}: {error.getCondition()}")
spark.stop()
assert (in_the_jvm, refused) == ("struct<t:timestamp_ntz(9)>", ["schema", "collect"])
assert as_text.endswith("123456789")
PYTHON
