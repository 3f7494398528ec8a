#!/bin/sh
# Spark over a Parquet file that it wrote itself: rows with −0.0 are lost for `= 0.0`, because the dictionary of the
# column has no 0.0. Over the same rows in memory they are found. Needs Java 17 or newer.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0
cd "$folder"
PYSPARK_PYTHON="$folder/venv/bin/python" "$folder/venv/bin/python" - <<'PYTHON'
import pyspark
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rows = spark.sql("SELECT IF(id % 2 = 0, double('-0.0'), -3.0D) AS p FROM range(100)").coalesce(1)
rows.write.parquet("rows")
counts = [
    spark.read.option("parquet.filter.dictionary.enabled", enabled).parquet("rows").where("p = 0.0").count()
    for enabled in ("true", "false")
]
in_memory = rows.where("p = 0.0").count()
print("pyspark", pyspark.__version__)
print(f"p = 0.0: {counts[0]} rows over the file, {counts[1]} without its dictionary, {in_memory} in memory")
spark.stop()
assert (*counts, in_memory) == (0, 50, 50)
PYTHON
