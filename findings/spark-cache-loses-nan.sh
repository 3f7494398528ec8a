#!/bin/sh
# Spark over a DataFrame that it cached: rows with NaN are lost for `p > 5.0`, because the largest value that the cache
# notes of a batch leaves NaN out, while the comparison puts NaN above every number. Uncached they are found, and so they
# are cached where the cache skips no batches. Needs Java 17 or newer.
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
rows = spark.sql("SELECT IF(id % 2 = 0, double('NaN'), 1.0D) AS p FROM range(100)").coalesce(1)
counts = [rows.where("p > 5.0").count()]
rows.cache().count()
for pruning in ("true", "false"):
    spark.conf.set("spark.sql.inMemoryColumnarStorage.partitionPruning", pruning)
    counts.append(rows.where("p > 5.0").count())
print("pyspark", pyspark.__version__)
print(f"p > 5.0: {counts[0]} rows before cache(), {counts[1]} after, {counts[2]} after without its pruning")
spark.stop()
assert counts == [50, 0, 50]
PYTHON
