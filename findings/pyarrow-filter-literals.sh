#!/bin/sh
# pyarrow: a filter of a table, a dataset or a Parquet file makes a number of its own of the literal. A float that single
# precision holds, such as 100.5, is compared in single precision: `id > 100.5` is an error as soon as one whole number of
# the column is beyond 2^24, and `id > 100.1` is none. A decimal column beside the integer 5 is always an error, and beside
# 5.0 it is none. The functions (`pyarrow.compute.greater`) compare in double precision.
# Cast the column, `field("id").cast("double") > 100.5`, and give a Decimal for decimals.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

print("pyarrow", pa.__version__)
IDS = pa.table({"id": [5, 20_000_000]})
pq.write_table(IDS, "ids.parquet")
PRICES = pa.table({"price": pa.array([Decimal("1.50"), Decimal("7.00")], pa.decimal128(10, 2))})
ID, PRICE = pc.field("id"), pc.field("price")


def answer(ask) -> object:
    try:
        return ask().num_rows
    except pa.ArrowInvalid as error:
        return f"{type(error).__name__}: {error}"


for what, ask, expected in (
    ("id > 100.5", lambda: IDS.filter(ID > 100.5), "not in range: -16777216 to 16777216"),
    ("id > 100.5 of the file", lambda: pq.read_table("ids.parquet", filters=ID > 100.5), "not in range: -16777216 to 16777216"),
    ("id > 100.1", lambda: IDS.filter(ID > 100.1), 1),
    ("id > 100.5, cast", lambda: IDS.filter(ID.cast("double") > 100.5), 1),
    ("id > 100.5, function", lambda: IDS.filter(pc.greater(IDS["id"], 100.5)), 1),
    ("price > 5", lambda: PRICES.filter(PRICE > 5), "Precision is not great enough"),
    ("price > 5.0", lambda: PRICES.filter(PRICE > 5.0), 1),
    ("price > Decimal(5)", lambda: PRICES.filter(PRICE > Decimal(5)), 1),
):
    found = answer(ask)
    print(f"{what}: {found}")
    assert found == expected if isinstance(expected, int) else expected in str(found)
PYTHON
