#!/bin/sh
# aio-pika (through pamqp) writes a Python float in a header in single precision, silently; one beyond its range is an error.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check aio-pika==10.2.1 pamqp==4.0.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import aio_pika
from pamqp import decode, encode

print("aio-pika", version("aio-pika"), "pamqp", version("pamqp"))
for number, read in ((120.1, 120.0999984741211), (16777217.0, 16777216.0)):
    headers = aio_pika.Message(b"", headers={"n": number}).properties.headers
    written = encode.field_table(headers)
    _, found = decode.field_table(written)
    print(f"{number!r} is written as {written[6:]!r}, and read as {found['n']!r}")
    assert found["n"] == read
try:
    encode.field_table({"n": 1e300})
    raise SystemExit("1e300 was written")
except OverflowError as error:
    print("1e300:", error)
PYTHON
