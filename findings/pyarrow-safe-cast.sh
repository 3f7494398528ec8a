#!/bin/sh
# pyarrow: a cast, which is safe by default, rounds 1.5 to a decimal without fraction, makes 1e300 an infinite float,
# and reads a text as another number: '0xFFFFFFFF' as int32 is -1.
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

print("pyarrow", pa.__version__)
for values, kind, expected in (
    ([1.5, 2.5], pa.decimal128(10, 0), [Decimal(2), Decimal(2)]),
    ([1e300], pa.float32(), [float("inf")]),
    (["1e400"], pa.float64(), [float("inf")]),
    (["0xFFFFFFFF"], pa.int32(), [-1]),
):
    found = pa.array(values).cast(kind, safe=True).to_pylist()
    print(f"{values} cast to {kind}: {found}")
    assert found == expected
try:
    pa.array([1.5]).cast(pa.int32(), safe=True)
    raise SystemExit("1.5 becomes an int32")
except pa.ArrowInvalid as error:
    print("[1.5] cast to int32:", error)
PYTHON
