#!/bin/sh
# pika reads a floating-point header of AMQP 0.9.1 as an integer, without its fraction and without an error,
# and refuses to write one.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pika==1.4.4
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import struct

import pika
from pika import data

print("pika", pika.__version__)
for number in (120.5, -1.75):
    value, _ = data.decode_value(b"d" + struct.pack(">d", number), 0)
    print(f"double {number} on the wire is read as {value!r}, {type(value).__name__}")
    assert value == int(number) and isinstance(value, int)
try:
    data.encode_value([], 120.5)
    raise SystemExit("a float was written")
except pika.exceptions.UnsupportedAMQPFieldException as error:
    print("writing 120.5:", type(error).__name__)
PYTHON
