#!/bin/sh
# fastavro writes another value where Avro's own library for Python refuses it or keeps it: 1.9 as a long is 1, the text
# "no" as a boolean is true, 1e300 as a float is infinite, and an int takes more than 32 bits. Of a union it takes the
# first branch that takes the value: a datetime loses its time to a branch of dates, an id of 64 bits its last digits to
# a double. None of this is an error. `fastavro.validation.validate` finds the first two and the int; in a union, put
# timestamps before dates and long before double.
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
from datetime import date, datetime, timezone
from importlib.metadata import version

import avro.io
import avro.schema
import fastavro

DATE = {"type": "int", "logicalType": "date"}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
NOON = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)
print("avro", version("avro"), "fastavro", version("fastavro"))
for schema, value, expected in (
    ("long", 1.9, 1),
    ("boolean", "no", True),
    ("float", 1e300, float("inf")),
    ("int", 2**31, 2**31),
    ([DATE, TIME], NOON, date(2026, 1, 2)),
    (["double", "long"], 2**53 + 1, float(2**53)),
):
    file = io.BytesIO()
    parsed = fastavro.parse_schema(schema)
    fastavro.schemaless_writer(file, parsed, value)
    found = fastavro.schemaless_reader(io.BytesIO(file.getvalue()), parsed, None)
    assert found == expected and type(found) is type(expected)
    by_avro = avro.schema.parse(json.dumps(schema))
    file = io.BytesIO()
    try:
        avro.io.DatumWriter(by_avro).write(value, avro.io.BinaryEncoder(file))
        kept = avro.io.DatumReader(by_avro).read(avro.io.BinaryDecoder(io.BytesIO(file.getvalue())))
        assert kept == value
        other = f"is {kept!r}"
    except (avro.errors.AvroTypeException, OverflowError) as error:
        other = f"ends in {type(error).__name__}"
    print(f"{value!r} as {json.dumps(schema)} is {found!r}; with avro it {other}")
PYTHON
