#!/bin/sh
# Avro's own library for Python writes the digits of a Decimal and ignores where its point is: with scale 2, 1.5 is read
# back as 0.15, and Decimal("1E+2") as 0.01, by every reader, without an error. Only a number with exactly as many
# places as the schema comes through. fastavro writes all of them correctly.
# Give every number its places before: `number.quantize(Decimal("0.01"))`.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check avro==1.12.2 fastavro==1.13.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import io
import json
from decimal import Decimal
from importlib.metadata import version

import avro.io
import avro.schema
import fastavro

SCHEMA = {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}
by_avro = avro.schema.parse(json.dumps(SCHEMA))
by_fastavro = fastavro.parse_schema(SCHEMA)
print("avro", version("avro"), "fastavro", version("fastavro"))
for text, expected in (("1.50", "1.50"), ("1.5", "0.15"), ("120", "1.20"), ("1E+2", "0.01")):
    file = io.BytesIO()
    avro.io.DatumWriter(by_avro).write(Decimal(text), avro.io.BinaryEncoder(file))
    written = file.getvalue()
    found = avro.io.DatumReader(by_avro).read(avro.io.BinaryDecoder(io.BytesIO(written)))
    assert found == fastavro.schemaless_reader(io.BytesIO(written), by_fastavro, None) == Decimal(expected)
    file = io.BytesIO()
    fastavro.schemaless_writer(file, by_fastavro, Decimal(text))
    kept = fastavro.schemaless_reader(io.BytesIO(file.getvalue()), by_fastavro, None)
    print(f"{text}: written by avro it is {found}, written by fastavro {kept}")
    assert kept == Decimal(text)
PYTHON
